//! How a worker stops: handlers end within the grace, the rest is cut off and released, nothing is
//! left behind.

use std::time::Duration;

use wakeq::machine::Outcome;
use wakeq::{Event, Handlers, Route, WorkerConfig};

use crate::support::Stage;
use crate::support::handlers::{Door, recording};

async fn locked(stage: &Stage) -> i64 {
    stage.count("select count(*) from wakeq.events_v2 where locked_at is not null").await
}

/// A shutdown that waited for it would outlast the limit of a test.
const FOREVER: Duration = Duration::from_secs(3600);

fn grace(shutdown_grace: Duration) -> WorkerConfig {
    WorkerConfig { shutdown_grace, ..WorkerConfig::default() }
}

/// A handler that ends within the grace completes.
// Shows: EV2-14
#[tokio::test]
async fn handlers_may_end_within_the_grace() {
    let (stage, notifier) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    let worker = stage.worker_with(Handlers::new().on("greet", handler), grace(FOREVER));
    stage.emit_many("greet", 3).await;
    door.arrived.take(3).await;
    worker.cancel();
    let stopping = tokio::spawn(worker.stop());
    stage.emit("greet").await;
    door.open(3);
    stopping.await.unwrap();
    assert_eq!(door.left.rest(), [true; 3]);
    assert_eq!((stage.rows().await, locked(&stage).await), (1, 0), "nothing new was taken");
    assert_eq!((notifier.unanswered(), notifier.pending()), (0, 1));
}

/// EV2-35: one that does not is cut off and released, costs neither attempt nor loss, and runs
/// elsewhere at once.
// Shows: EV2-14
#[tokio::test]
async fn a_handler_beyond_the_grace_is_cut_off_and_runs_elsewhere() {
    let (stage, notifier) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    let handlers = Handlers::new().on("greet", handler);
    let mut worker = stage.worker_with(handlers.clone(), grace(Duration::from_millis(100)));
    let id = stage.emit("greet").await;
    door.arrived.next().await;
    worker.cancel();
    let report = worker.until(id, Outcome::Released).await;
    worker.stop().await;
    assert_eq!(&report.trail[5..], [Outcome::LockClaimed, Outcome::ShutDown, Outcome::Released]);
    assert!(!door.left.next().await, "the handler was dropped");
    assert_eq!((locked(&stage).await, notifier.unanswered(), notifier.pending()), (0, 0, 1));

    let mut other = stage.worker(handlers);
    assert_eq!(door.arrived.next().await.attempt, 1);
    door.open(1);
    let report = other.until(id, Outcome::Deleted).await;
    assert!(report.trail.contains(&Outcome::LockNone), "released, not expired: {:?}", report.trail);
    other.stop().await;
}

/// Notifications that wait for their time, or for a slot of their handler, are put back.
#[tokio::test]
async fn the_lot_is_given_back() {
    let (stage, notifier) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    let handlers = Handlers::new().on(Route::new("greet").concurrency(1), handler);
    let mut worker = stage.worker_with(handlers, grace(Duration::from_secs(20)));
    stage.emit_many("greet", 3).await;
    let delayed = Event::new("greet", "x").unwrap().after(Duration::from_secs(300)).unwrap();
    let delayed = stage.queue.emit(delayed).await.unwrap().id;
    door.arrived.next().await;
    worker.until(delayed, Outcome::DelayNotYet).await;
    worker.cancel();
    let stopping = tokio::spawn(worker.stop());
    door.open(3);
    stopping.await.unwrap();
    assert_eq!(door.left.rest(), [true], "those that waited for room did not start");
    assert_eq!((notifier.unanswered(), notifier.pending()), (0, 3));
    assert_eq!((stage.rows().await, locked(&stage).await), (3, 0));
}

/// A handler that blocks its thread can't be cut off, and does not hold up the worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_thread_does_not_hold_up_the_shutdown() {
    let (stage, _) = Stage::memory().await;
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let blocked = std::sync::Arc::new(blocked);
    let (record, mut seen) = recording();
    let handlers = Handlers::new().on("greet", move |event| {
        let (record, blocked) = (record.clone(), std::sync::Arc::clone(&blocked));
        async move {
            record(event).await?;
            let _ = blocked.lock().map(|blocked| blocked.recv());
            Ok(())
        }
    });
    let worker = stage.worker_with(handlers, grace(Duration::from_millis(50)));
    stage.emit("greet").await;
    seen.next().await;
    worker.stop().await;
    drop(release);
}

/// An idle worker stops at once.
#[tokio::test]
async fn an_idle_worker_stops_at_once() {
    let (stage, _) = Stage::memory().await;
    let mut worker = stage.worker_with(Handlers::new().on("greet", recording().0), grace(FOREVER));
    worker.until(stage.emit("greet").await, Outcome::Deleted).await;
    worker.stop().await;
}
