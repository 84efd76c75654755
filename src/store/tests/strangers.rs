//! A database login without any right on the schema: it stops no claim, no turn, no cron, no append
//! and no reader.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Executor};

use super::queues::{canvas, canvases, emails, emit_emails, take};
use super::{Table, limits, tester, told};
use crate::event::{CanvasId, EventSource, NewLogEvent, StreamAppend, StreamId};
use crate::store::{CronPut, NewCronRow};
use crate::store::{FacetSettings, LogBatch, StoreConfig, append_batch};

impl Table {
    /// A session of a login that may connect, and nothing else.
    async fn stranger(&self) -> PgConnection {
        let role = format!("{}_stranger", self.database.name());
        let create = format!("create role {role} login password 'stranger'");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&self.pool).await.unwrap();
        let options = PgConnectOptions::from_str(self.database.url()).unwrap();
        let options = options.username(&role).password("stranger");
        PgConnection::connect_with(&options).await.unwrap()
    }
}

/// Takes advisory locks for its session, and gets each.
async fn hold(stranger: &mut PgConnection, locks: &[&'static str]) {
    for lock in locks {
        let held: bool = sqlx::query_scalar(*lock).fetch_one(&mut *stranger).await.unwrap();
        assert!(held, "{lock}");
    }
}

/// Every number and every name that ever denoted a lock of the queue.
const ADVISORY: &[&str] = &[
    "select pg_try_advisory_lock(7810752301)",
    "select pg_try_advisory_lock(7810752302)",
    "select pg_try_advisory_lock(78107530, hashtext('emails'))",
    "select pg_try_advisory_lock(781075230, hashtext('00000000-0000-0000-0000-000000000001'))",
];

#[tokio::test]
async fn an_unprivileged_session_cannot_block_claims_turns_or_crons() {
    let table = emails(FacetSettings::default()).await;
    let mut stranger = table.stranger().await;
    hold(&mut stranger, ADVISORY).await;
    for lock in ["claim_gate in share mode", "log_gate in access share mode", "queue_turns in row share mode"]
    {
        let lock_table = AssertSqlSafe(format!("do $$ begin lock table wakeq.{lock}; end $$"));
        let refused = stranger.execute(lock_table).await.unwrap_err();
        assert!(refused.to_string().contains("permission denied"), "{lock}: {refused}");
    }
    let refused = stranger.execute("select wakeq.await_claims()").await.unwrap_err();
    assert!(refused.to_string().contains("permission denied"), "{refused}");

    let ids = table.add(2).await;
    assert!(table.store.claim(&told(&ids[..1]), &limits()).await.unwrap()[0].is_some());
    table.pause().await;
    assert!(table.store.claim(&told(&ids[1..]), &limits()).await.unwrap()[0].is_none(), "it is paused");
    emit_emails(&table.store, canvas(1), 1).await;
    emit_emails(&table.store, canvas(2), 1).await;
    assert_eq!(canvases(&take(&table.store, 2).await), [1, 2]);
    for of in [canvas(1), canvas(2)] {
        let (name, modifier) = ("nightly".parse().unwrap(), "_".parse().unwrap());
        let row = NewCronRow {
            canvas: of,
            name: &name,
            expression: "0 0 * * *",
            zone: "UTC",
            modifier: &modifier,
            value: "1",
            missed: "once",
            minute_ticks: 1,
        };
        let put = table.store.put_cron(&row, &tester(), |_, passed| Some(passed)).await.unwrap();
        assert_eq!(put, CronPut::New);
    }
    table.run("select setval('wakeq.log_seq', 10500000)").await;
    assert_eq!(table.store.add_log_partitions().await.unwrap(), 2);
}

fn append(number: u128, stream: &str) -> StreamAppend {
    let stream = StreamId::new(CanvasId(uuid::Uuid::from_u128(number)), "companies", stream).unwrap();
    StreamAppend::new(stream, vec![NewLogEvent::new("changed", &1).unwrap()])
}

/// Neither a floor of its own, which would hold back readers, nor a lock in the way of the floors
/// of others.
#[tokio::test]
async fn an_unprivileged_session_cannot_delay_log_readers_or_appenders() {
    let table =
        Table::with(StoreConfig { lock_timeout: Duration::from_secs(4), ..StoreConfig::default() }).await;
    let append_to = async |number| {
        let appends = [append(number, "a")];
        table.store.append_to_log(&LogBatch::of(&appends)).await.unwrap().unwrap();
    };
    append_to(1).await;
    let mut stranger = table.stranger().await;
    hold(
        &mut stranger,
        &[
            "select true from pg_advisory_lock_shared((30577::bigint << 48) | 0)",
            "select bool_and(pg_try_advisory_lock((30577::bigint << 48) | n)) from generate_series(1, 500) n",
        ],
    )
    .await;
    assert_eq!(table.store.log_horizon().await.unwrap().readable, 1);
    assert_eq!(table.store.log_appenders().await.unwrap(), []);
    append_to(1).await;
    append_to(2).await;
    let log = EventSource::Log { canvas: None };
    let page = table.store.read_log(&log, 0, 10).await.unwrap();
    assert_eq!((page.events.len(), page.through, page.held), (3, 3, false));

    // An appender still holds back readers: further than necessary, if its key was taken.
    let mut open = table.pool.begin().await.unwrap();
    let appends = [append(1, "late")];
    append_batch(&mut open, &LogBatch::of(&appends)).await.unwrap().unwrap();
    let floors: Vec<i64> = table.store.log_appenders().await.unwrap().iter().map(|one| one.floor).collect();
    assert_eq!(floors, [0]);
    append_to(2).await;
    let page = table.store.read_log(&log, 3, 10).await.unwrap();
    assert_eq!((page.events.len(), page.through, page.held), (0, 3, true));
    open.commit().await.unwrap();
    let page = table.store.read_log(&log, 3, 10).await.unwrap();
    assert_eq!((page.events.len(), page.through, page.held), (2, 5, false));
}

/// A pooled session that has set the role of one tenant emits on the canvases of that role only,
/// whatever the role may do that it logged in as.
#[tokio::test]
async fn a_role_that_was_set_emits_on_its_own_canvases() {
    let table = Table::new().await;
    let role = format!("{}_tenant", table.database.name());
    let make = format!(
        "create role {role}; grant usage on schema wakeq to {role}; grant execute on function wakeq.emit to {role};
         insert into wakeq.emitters (role, canvas_id) values ('{role}', '{}')",
        canvas(6)
    );
    sqlx::raw_sql(AssertSqlSafe(make)).execute(&table.pool).await.unwrap();
    let mut session = table.pool.acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("set role {role}"))).execute(&mut *session).await.unwrap();
    for (of, may) in [(6, true), (7, false)] {
        let emit = format!("select from wakeq.emit('greet', '1', canvas => '{}')", canvas(of));
        let emitted = sqlx::raw_sql(AssertSqlSafe(emit)).execute(&mut *session).await;
        assert_eq!(emitted.is_ok(), may, "on canvas {of}: {emitted:?}");
    }
    sqlx::raw_sql("reset role").execute(&mut *session).await.unwrap();
}
