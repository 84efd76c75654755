//! How many statements an event costs that waits for a limit which is always full.

use std::sync::Arc;

use sqlx::Connection;
use tokio::sync::Semaphore;
use wakeq::limits::NewLimit;
use wakeq::notify::Notifier;
use wakeq::testing::MemoryNotifier;
use wakeq::{Actor, Admin, CanvasId, Event, Handlers, Queue, QueueConfig, Store, Timing, WorkerConfig};

use crate::support::{RunningWorker, cluster, connect, until};

const PLACES: i64 = 5;
const EVENTS: i64 = 200;
/// What a process sends otherwise meanwhile: renewals, statistics, a pass of the minute.
const OTHERS: i64 = 60;

const WAITING: &str = "select count(*) from wakeq.limit_waits where woken_at is null";
const LEFT: &str = "select count(*) from wakeq.events_v2";
const SENT: &str = "select coalesce(sum(calls), 0)::bigint from pg_stat_statements
                     where query like '%wakeq.%' and query not like '%pg_stat_statements%'
                       and query not like 'select count(*) from wakeq.%'";
const LOADS: &str = "select coalesce(sum(calls), 0)::bigint from pg_stat_statements
                      where query like '%lane_halts(%' and query not like '%pg_stat_statements%'";

async fn number(observer: &mut sqlx::PgConnection, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(observer).await.unwrap()
}

async fn until_number(observer: &mut sqlx::PgConnection, query: &'static str, expected: i64) {
    until(query, async || (number(&mut *observer, query).await == expected).then_some(())).await;
}

/// A place that frees goes to the next event in the process that freed it: its end, a look for the
/// next one, and the claim of that. None of those that wait is looked at in between.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_place_goes_on_in_three_statements() {
    let Some(cluster) = cluster("a test that counts the statements of a whole server").await else { return };
    let url = cluster.url("postgres");
    Store::migrate(&url, false).await.unwrap();
    let mut observer = sqlx::PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("create extension pg_stat_statements").execute(&mut observer).await.unwrap();
    let store = connect(&url, Timing::default()).await;
    let notifier = Arc::new(MemoryNotifier::new()) as Arc<dyn Notifier>;
    let admin = Admin::new(store.clone(), notifier.clone());
    let five = NewLimit { concurrency: Some(PLACES as u32), ..NewLimit::default() };
    let key = "customer".parse().unwrap();
    admin.put_limit(CanvasId::DEFAULT, &key, &five, &Actor::user("tests")).await.unwrap();
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
    let door = Arc::new(Semaphore::new(0));
    let behind = Arc::clone(&door);
    let handlers = Handlers::new().on("sync", move |_| {
        let door = Arc::clone(&behind);
        async move {
            let _passed = door.acquire().await;
            Ok(())
        }
    });
    let worker = RunningWorker::start(store, notifier, handlers, WorkerConfig::default());
    let event = |value: i64| Event::new("sync", &value).unwrap().limit("customer:7").unwrap();
    queue.emit_all((0..EVENTS).map(event).collect()).await.unwrap();
    until_number(&mut observer, WAITING, EVENTS - PLACES).await;
    sqlx::raw_sql("select pg_stat_statements_reset()").execute(&mut observer).await.unwrap();
    door.add_permits(Semaphore::MAX_PERMITS / 2);
    until_number(&mut observer, LEFT, 0).await;
    let (sent, loads) = (number(&mut observer, SENT).await, number(&mut observer, LOADS).await);
    worker.stop().await;
    println!("{sent} statements for {EVENTS} events under {PLACES} places, {loads} of them loads");
    assert!(sent <= 3 * EVENTS + OTHERS, "{sent} statements");
    assert!(loads <= PLACES, "{loads} looks at events that were to go on");
}
