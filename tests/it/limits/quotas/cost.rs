//! What quotas cost an emit that is far below them, and by how much several processes may exceed
//! one.

use std::sync::Arc;

use sqlx::Connection;
use wakeq::control::Quota;
use wakeq::notify::Notifier;
use wakeq::testing::MemoryNotifier;
use wakeq::{Queue, QueueConfig, Store, Timing};

use super::{GREEDY, VICTIM, events, set};
use crate::support::{Stage, cluster, connect};

async fn looks(observer: &mut sqlx::PgConnection) -> i64 {
    let calls =
        "select coalesce(sum(calls), 0)::bigint from pg_stat_statements where query like '%quota_of(%'";
    sqlx::query_scalar(calls).fetch_one(observer).await.unwrap()
}

/// A canvas with few events is never counted; one with more is counted once a minute, however much
/// it emits.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_emit_far_from_its_quota_sends_no_statement_more() {
    let Some(cluster) = cluster("a test that counts the statements of a whole server").await else { return };
    let url = cluster.url("postgres");
    Store::migrate(&url, false).await.unwrap();
    let mut observer = sqlx::PgConnection::connect(&url).await.unwrap();
    let sql = "create extension pg_stat_statements; select pg_stat_statements_reset()";
    sqlx::raw_sql(sql).execute(&mut observer).await.unwrap();
    let store = connect(&url, Timing::default()).await;
    let notifier = Arc::new(MemoryNotifier::new()) as Arc<dyn Notifier>;
    let queue = Queue::new(store, notifier, QueueConfig::default());
    for _ in 0..9 {
        queue.emit_all(events(VICTIM, 100)).await.unwrap();
    }
    for event in events(VICTIM, 100) {
        queue.emit(event).await.unwrap();
    }
    assert_eq!(looks(&mut observer).await, 0, "1,000 events on a canvas");
    for _ in 0..20 {
        queue.emit_all(events(GREEDY, 1_000)).await.unwrap();
    }
    for event in events(GREEDY, 200) {
        queue.emit(event).await.unwrap();
    }
    assert_eq!(looks(&mut observer).await, 1, "20,200 events on another one");
}

/// Two processes exceed a quota by no more than what each may emit before its first count.
#[tokio::test]
async fn two_processes_exceed_a_quota_by_a_known_number() {
    let (stage, _) = Stage::memory().await;
    set(&stage.admin, Quota::Events, 4_000).await;
    let mut processes = Vec::new();
    for _ in 0..2 {
        let store = connect(stage.database.url(), Timing::default()).await;
        let notifier = Arc::new(MemoryNotifier::new()) as Arc<dyn Notifier>;
        processes.push(Queue::new(store, notifier, QueueConfig::default()));
    }
    let mut refused = [0, 0];
    while refused.iter().any(|times| *times < 20) {
        for (process, refused) in processes.iter().zip(&mut refused) {
            *refused += usize::from(process.emit_all(events(GREEDY, 50)).await.is_err());
            process.emit_all(events(VICTIM, 1)).await.unwrap();
        }
    }
    let emitted = "select count(*) from wakeq.events_v2 where canvas_id = $1";
    let emitted: i64 = sqlx::query_scalar(emitted).bind(GREEDY.0).fetch_one(&stage.pool).await.unwrap();
    assert!((2_000..=6_000).contains(&emitted), "{emitted} events, of 4,000 and 1,000 for each process");
}

/// A program that forwards trusted events may turn quotas off.
#[tokio::test]
async fn a_queue_may_leave_quotas_out() {
    let (stage, notifier) = Stage::memory().await;
    set(&stage.admin, Quota::Events, 0).await;
    assert!(stage.queue.emit_all(events(GREEDY, 1)).await.is_err());
    let config = QueueConfig { quotas: false, ..QueueConfig::default() };
    let trusted = Queue::new(stage.store.clone(), notifier, config);
    trusted.emit_all(events(GREEDY, 1)).await.unwrap();
}
