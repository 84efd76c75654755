//! The rows of workers: the minute's statement writes them, whoever makes the pass, at a cost that
//! does not grow; and those of lost workers are deleted.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::Table;
use super::cost::{buffers, plan};
use crate::event::{CanvasId, EventId, Timestamp};
use crate::store::{Activity, Attendance, NewWorker, Retention, SlowedAddress, StoreConfig, WorkerRun};

/// A worker of this name that runs as many events.
fn worker(name: &str, running: usize) -> Attendance {
    let run = |_| {
        let since = Timestamp::from_timestamp(1_800_000_000, 0).unwrap();
        WorkerRun::new(EventId::new(), CanvasId::DEFAULT, "WORKER/known/_".to_owned(), since)
    };
    let worker = NewWorker {
        name: name.parse().unwrap(),
        instance: Uuid::new_v4(),
        host: Some("here".to_owned()),
        pid: Some(7),
        release: "0.1.0",
        build: None,
        may_sleep: false,
        capacity: 64,
        handlers: vec!["WORKER/known/_".to_owned()],
        handler_count: 1,
        has_targets: false,
        row: Arc::default(),
    };
    let runs = (0..running).map(run).collect();
    let running = i32::try_from(running).unwrap();
    Attendance { worker: Arc::new(worker), activity: Activity { running, runs, ..Activity::default() } }
}

/// The same worker, doing something else.
fn later(worker: &Attendance, activity: Activity) -> Attendance {
    Attendance { worker: Arc::clone(&worker.worker), activity }
}

impl Table {
    /// Name and running events of each worker.
    async fn working(&self) -> Vec<(String, u32)> {
        let workers = self.store.workers(None, 100).await.unwrap();
        workers.into_iter().map(|worker| (worker.name.to_string(), worker.running)).collect()
    }
}

/// Each process writes its own row, the one that makes the pass and the one that comes too late; in
/// one statement and in parts. A worker without a row is told so, and adds it.
#[tokio::test]
async fn every_pass_writes_the_row_of_its_own_worker() {
    let table = Table::new().await;
    let (one, two) = (worker("one", 0), worker("two", 3));
    assert!(!table.store.minute(false, Some(&one)).await.unwrap().seen, "it has no row yet");
    assert_eq!(table.working().await, []);
    for worker in [&one, &two] {
        table.store.enter_worker(worker).await.unwrap();
    }
    table.run("update wakeq.workers set seen_at = now() - interval '1 hour'").await;
    table.run("update wakeq.chores set next_at = now()").await;
    let first = later(&one, worker("one", 2).activity);
    let minute = table.store.minute(false, Some(&first)).await.unwrap();
    assert!(minute.open && minute.seen);
    let minute = table.store.minute(false, Some(&two)).await.unwrap();
    assert!(!minute.open && minute.seen, "another process was first");
    assert_eq!(table.working().await, [("one".to_owned(), 2), ("two".to_owned(), 3)]);
    let fresh = "select count(*) from wakeq.workers where seen_at > now() - interval '1 minute'";
    assert_eq!(table.number(fresh).await, 2);

    let stopping = later(&one, Activity { is_stopping: true, ..Activity::default() });
    let in_parts = table.store.minute_in_parts(false, Some(&stopping)).await.unwrap();
    assert!(in_parts.seen && in_parts.failed.is_empty(), "{:?}", in_parts.failed);
    assert_eq!(table.working().await[0], ("one".to_owned(), 0));
    table.store.leave_worker(&two.worker).await.unwrap();
    assert_eq!(table.working().await.len(), 1);
    assert!(!table.store.see_worker(&two).await.unwrap(), "what is over is not written");
}

/// A row says which targets its worker slows down, whichever statement writes it, and has a null
/// once there is none.
#[tokio::test]
async fn a_row_says_which_targets_its_worker_slows_down() {
    let table = Table::new().await;
    let fast = worker("one", 0);
    let slowed = SlowedAddress {
        canvas: CanvasId::DEFAULT,
        module: "WORKER".to_owned(),
        name: "greet".to_owned(),
        modifier: "_".to_owned(),
        revision: Uuid::nil(),
        per_second: 0.1,
        held_s: 3600,
    };
    let slow = later(&fast, Activity { slowed: vec![slowed; 100], ..Activity::default() });
    let slowing = "select count(*) from wakeq.workers where jsonb_array_length(slowed) = 100";
    table.store.enter_worker(&slow).await.unwrap();
    assert_eq!(table.number(slowing).await, 1);
    table.store.minute(false, Some(&fast)).await.unwrap();
    assert_eq!(table.number("select count(*) from wakeq.workers where slowed is null").await, 1);
    table.store.minute(false, Some(&slow)).await.unwrap();
    assert_eq!(table.number(slowing).await, 1);
    table.store.see_worker(&fast).await.unwrap();
    assert_eq!(table.number(slowing).await, 0);
    table.store.see_worker(&slow).await.unwrap();
    assert_eq!(table.number(slowing).await, 1);
}

/// A pass that was under way when its worker left finds no row, and adds none.
#[tokio::test]
async fn a_worker_that_has_left_gets_no_row_again() {
    let table = Table::new().await;
    let (one, two) = (worker("one", 0), worker("two", 0));
    for worker in [&one, &two] {
        table.store.enter_worker(worker).await.unwrap();
    }
    table.store.leave_worker(&one.worker).await.unwrap();
    for worker in [&one, &two] {
        table.store.enter_worker(worker).await.unwrap();
    }
    assert_eq!(table.working().await, [("two".to_owned(), 0)]);
    // It is deleted after a row that is just being added, though nobody waits for that any longer.
    let mut stranger = table.pool.begin().await.unwrap();
    sqlx::query("lock table wakeq.workers").execute(&mut *stranger).await.unwrap();
    let (store, seen) = (table.store.clone(), two.clone());
    let entering = tokio::spawn(async move { store.enter_worker(&seen).await });
    table.until_waiting(1).await;
    entering.abort();
    let (store, left) = (table.store.clone(), Arc::clone(&two.worker));
    let leaving = tokio::spawn(async move { store.leave_worker(&left).await });
    stranger.rollback().await.unwrap();
    leaving.await.unwrap().unwrap();
    assert_eq!(table.working().await, []);
}

/// A worker's row costs five pages at most, however many workers there are.
#[tokio::test]
async fn a_worker_s_row_costs_a_few_pages() {
    let table = Table::of_one_connection().await;
    for number in 0..300 {
        table.store.enter_worker(&worker(&format!("w{number}"), 2)).await.unwrap();
    }
    let busy = worker("busy", 2);
    table.store.enter_worker(&busy).await.unwrap();
    for _ in 0..5 {
        table.store.minute(false, Some(&busy)).await.unwrap();
    }
    let report = format!(
        r#"'{{"name": "busy", "instance": "{}", "is_stopping": false, "running": 1, "runs": []}}'"#,
        busy.worker.instance
    );
    let arguments =
        super::cost::MINUTE_ARGUMENTS.replace("'{60000000}', null", &format!("'{{60000000}}', {report}"));
    let plan = plan(&table.store, "), overdue as (", &arguments).await;
    let pages = buffers(&plan, "Update on workers w");
    println!("pages for the row of a worker among 300: {pages}");
    assert!((1..=5).contains(&pages), "{plan}");
}

/// Rows of workers that were not seen for a day are deleted, others not.
#[tokio::test]
async fn the_rows_of_lost_workers_are_deleted_after_a_day() {
    let table = Table::with(StoreConfig::default()).await;
    for name in ["young", "old", "older"] {
        table.store.enter_worker(&worker(name, 0)).await.unwrap();
    }
    table.run("update wakeq.workers set seen_at = now() - interval '23 hours' where name = 'young'").await;
    table.run("update wakeq.workers set seen_at = now() - interval '25 hours' where name <> 'young'").await;
    assert!(!table.expire(Retention { audit: Duration::from_secs(3600), ..Retention::default() }).await);
    assert_eq!(table.working().await, [("young".to_owned(), 0)]);
}
