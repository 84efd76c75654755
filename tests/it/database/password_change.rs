//! The database's password is changed while a process runs.

use std::sync::Arc;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection};
use tokio::sync::watch;
use wakeq::testing::MemoryNotifier;
use wakeq::{CanvasId, EmitError, Event, EventId, Queue, QueueConfig, Store, StoreConfig, StoreError};

use crate::support::{TIMEOUT, cluster, fit};

const ROLE: &str = "rotating";
const OTHER: CanvasId = CanvasId(uuid::Uuid::from_u128(7));

async fn say(owner: &mut PgConnection, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(owner).await.unwrap();
}

/// Makes the server require the role's password; returns once that has taken effect.
async fn ask_for_the_password(owner: &mut PgConnection, wrong: &PgConnectOptions) {
    let rules: String = sqlx::query_scalar("show hba_file").fetch_one(&mut *owner).await.unwrap();
    let others = std::fs::read_to_string(&rules).unwrap();
    std::fs::write(&rules, format!("host all {ROLE} all scram-sha-256\n{others}")).unwrap();
    say(owner, "select pg_reload_conf()").await;
    let refused = async { while PgConnection::connect_with(wrong).await.is_ok() {} };
    tokio::time::timeout(TIMEOUT, refused).await.expect("the server asks for the password");
}

fn queue(store: &Store) -> Queue {
    Queue::new(store.clone(), Arc::new(MemoryNotifier::new()), QueueConfig::default())
}

/// Emits for two canvases in turns until stopped; returns what was emitted, and how many emits
/// failed.
async fn emit_on(
    queue: Queue,
    emitted: watch::Sender<usize>,
    end: watch::Receiver<bool>,
) -> (Vec<EventId>, usize) {
    let (mut ids, mut failed) = (Vec::new(), 0);
    while !*end.borrow() {
        let canvas = if ids.len() % 2 == 0 { CanvasId::DEFAULT } else { OTHER };
        match queue.emit(Event::new("greet", &ids.len()).unwrap().canvas(canvas)).await {
            Ok(event) => ids.push(event.id),
            Err(EmitError::Store(StoreError::Unavailable(_))) => failed += 1,
            Err(error) => panic!("{error}"),
        }
        emitted.send_replace(ids.len());
        // It shares a thread with the tasks that it waits for.
        tokio::task::yield_now().await;
    }
    (ids, failed)
}

/// The password is changed, and every connection is lost, while events are emitted: a process that
/// was given the new one continues, one that was not can no longer connect, and what was emitted is
/// there.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_password_changes_amid_emits() {
    let Some(cluster) = cluster("a test that changes who may connect to Postgres").await else { return };
    let url = cluster.url("postgres");
    Store::migrate(&url, false).await.unwrap();
    let mut owner = PgConnection::connect(&url).await.unwrap();
    say(&mut owner, &format!("create role {ROLE} superuser login password 'first'")).await;
    let options = url.parse::<PgConnectOptions>().unwrap().username(ROLE);
    ask_for_the_password(&mut owner, &options.clone().password("wrong")).await;

    let connect = async || {
        Store::connect_with(options.clone().password("first"), fit(StoreConfig::default())).await.unwrap()
    };
    let (updated, stale) = (connect().await, connect().await);
    let (emitted, mut seen) = watch::channel(0);
    let (end, ends) = watch::channel(false);
    let emitting = tokio::spawn(emit_on(queue(&updated), emitted, ends));
    seen.wait_for(|count| *count >= 100).await.unwrap();

    say(&mut owner, &format!("alter role {ROLE} password 'second'")).await;
    let elsewhere = options.clone().password("second").database("template1");
    let refused = updated.set_connect_options(elsewhere).await.unwrap_err().to_string();
    assert!(refused.contains("connect another store"), "{refused}");
    updated.set_connect_options(options.clone().password("second")).await.unwrap();
    let lost = format!("select pg_terminate_backend(pid) from pg_stat_activity where usename = '{ROLE}'");
    say(&mut owner, &lost).await;
    let before = *seen.borrow_and_update();
    let more = seen.wait_for(|count| *count >= before + 100);
    tokio::time::timeout(TIMEOUT, more).await.expect("it goes on").unwrap();
    end.send_replace(true);
    let (ids, failed) = emitting.await.unwrap();
    assert!(failed <= 10, "{failed} emits failed, more than there were connections");

    let stale = queue(&stale);
    for attempt in 0..3 {
        let refused = stale.emit(Event::new("greet", &attempt).unwrap()).await.unwrap_err();
        assert!(matches!(refused, EmitError::Store(StoreError::Unavailable(_))), "{refused}");
    }
    let there = "select count(*) from wakeq.events_v2 where id = any ($1)";
    let all: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
    let there: i64 = sqlx::query_scalar(there).bind(all).fetch_one(&mut owner).await.unwrap();
    assert_eq!(there, ids.len() as i64);
}
