//! The parking lot: events that wait in a worker for their time.

use std::time::Duration;

use wakeq::events::Due;
use wakeq::machine::Outcome;
use wakeq::notify::{Notification, Notifier};
use wakeq::workers::Verdict;
use wakeq::{
    Actor, CanvasId, Event, EventId, Execution, HandlerError, Handlers, RetryPolicy, Route, Timing,
    WorkerConfig,
};

use crate::support::handlers::recording;
use crate::support::{Stage, promised_late, quick};

/// On the database's clock. That it starts soon after its time, too, is shown by its starting at
/// all where its promise is far away.
fn assert_not_early(event: &Execution) {
    assert!(event.claimed_at >= event.due_at, "it ran before its time");
}

fn later(name: &str, delay: Duration) -> Event {
    Event::new(name, "value").unwrap().after(delay).unwrap()
}

fn notifications(id: EventId, count: usize) -> Vec<Notification> {
    vec![Notification::new(id, CanvasId::DEFAULT); count]
}

/// It waits only in the worker, acknowledged; further notifications of it are acknowledged.
// Shows: EV2-21, EV2-24, EV2-34, EV2-54
#[tokio::test]
async fn a_delayed_event_waits_and_starts_on_time() {
    let (stage, notifier) = Stage::memory_with(promised_late()).await;
    let (mut worker, mut seen) = stage.recording("greet");
    let delay = Duration::from_millis(1500);
    let id = stage.queue.emit(later("greet", delay)).await.unwrap().id;
    notifier.publish(&notifications(id, 3)).await.unwrap();
    let parked = worker.until_count(4, Outcome::DelayNotYet).await;
    for report in parked {
        assert_eq!(report.trail, [Outcome::EventPresent, Outcome::DelayNotYet]);
        assert!(matches!(report.verdict, Verdict::Waits(left) if left <= delay), "{:?}", report.verdict);
    }
    assert_eq!((notifier.unanswered(), notifier.pending(), worker.counters.duplicates()), (0, 0, 3));
    assert_not_early(&seen.next().await);
    worker.until(id, Outcome::Deleted).await;
    notifier.drained().await;
    assert_eq!(worker.counters.outcome(Outcome::LockClaimed), 1);
    worker.stop().await;
}

/// A parked event that is made due runs at once, not when its timer ends.
#[tokio::test]
async fn a_parked_event_runs_at_once_when_made_due() {
    let (stage, notifier) =
        Stage::memory_with(Timing { horizon: Duration::from_secs(600), ..promised_late() }).await;
    let (mut worker, mut seen) = stage.recording("greet");
    let id = stage.queue.emit(later("greet", Duration::from_secs(500))).await.unwrap().id;
    worker.until(id, Outcome::DelayNotYet).await;
    stage.admin.run_now(CanvasId::DEFAULT, id, &Actor::user("ada")).await.unwrap();
    worker.until(id, Outcome::Deleted).await;
    assert_eq!(seen.next().await.id, id);
    notifier.drained().await;
    worker.stop().await;
}

/// One that is moved to an earlier time runs at that, and not when its timer ends.
#[tokio::test]
async fn a_parked_event_runs_at_the_time_that_it_is_moved_to() {
    let (stage, notifier) =
        Stage::memory_with(Timing { horizon: Duration::from_secs(600), ..promised_late() }).await;
    let (mut worker, mut seen) = stage.recording("greet");
    let id = stage.queue.emit(later("greet", Duration::from_secs(500))).await.unwrap().id;
    worker.until(id, Outcome::DelayNotYet).await;
    let due = Due::After(Duration::from_millis(1500));
    stage.admin.set_due(CanvasId::DEFAULT, id, due, &Actor::user("ada")).await.unwrap();
    assert_not_early(&seen.next().await);
    worker.until(id, Outcome::Deleted).await;
    notifier.drained().await;
    worker.stop().await;
}

/// A second notification waits for the lease of the first one's run; the retry does not wait for
/// it.
#[tokio::test]
async fn a_retry_does_not_wait_for_a_duplicate() {
    let (stage, notifier) =
        Stage::memory_with(Timing { lease: Duration::from_secs(600), ..promised_late() }).await;
    let retry = RetryPolicy { delay: Duration::from_millis(100), ..RetryPolicy::default() };
    let (mut worker, mut door) = stage.door(Route::new("greet").retry(retry));
    let id = stage.emit("greet").await;
    door.arrived.next().await;
    notifier.publish(&notifications(id, 1)).await.unwrap();
    worker.until(id, Outcome::IsLocked).await;
    door.answer(Err(HandlerError::operational("not yet")));
    door.open(1);
    worker.until(id, Outcome::Deleted).await;
    assert_not_early(&door.arrived.take(1).await[0]);
    notifier.drained().await;
    worker.stop().await;
}

/// A full lot acknowledges; the promise on the row wakes the event in time.
#[tokio::test]
async fn a_full_lot_leaves_the_rest_to_the_promise() {
    let (stage, notifier) = Stage::memory_with(quick()).await;
    let (handler, mut seen) = recording();
    let handlers = Handlers::new().on("greet", handler);
    let mut worker = stage.worker_with(handlers, WorkerConfig { lot_max: 2, ..WorkerConfig::default() });
    stage.queue.emit_all((0..5).map(|_| later("greet", Duration::from_secs(1))).collect()).await.unwrap();
    worker.until_count(5, Outcome::DelayNotYet).await;
    assert_eq!((notifier.unanswered(), notifier.pending()), (0, 0));
    worker.until_count(5, Outcome::Deleted).await;
    assert!(seen.rest().iter().all(|event| event.claimed_at >= event.due_at));
    worker.stop().await;
}

/// Nothing is published for a far-off event until its time is near; an early notification is
/// acknowledged.
// Shows: EV2-27
#[tokio::test]
async fn a_far_off_event_is_published_in_time() {
    let timing =
        Timing { horizon: Duration::from_millis(1200), probe_period: Duration::from_millis(300), ..quick() };
    let (stage, notifier) = Stage::memory_with(timing).await;
    let (mut worker, mut seen) = stage.recording("greet");
    let emitted = stage.queue.emit(later("greet", Duration::from_secs(3))).await.unwrap();
    assert!(!emitted.notified && notifier.published().is_empty());
    notifier.publish(&notifications(emitted.id, 1)).await.unwrap();
    assert_eq!(worker.until(emitted.id, Outcome::DelayNotYet).await.verdict, Verdict::Acknowledged);
    notifier.drained().await;
    let in_time = worker.until(emitted.id, Outcome::DelayNotYet).await;
    assert!(matches!(in_time.verdict, Verdict::Waits(_)), "{:?}", in_time.verdict);
    assert_not_early(&seen.next().await);
    worker.until(emitted.id, Outcome::Deleted).await;
    worker.stop().await;
}

/// A month is no different: the row says when it must be published.
// Shows: EV2-27
#[tokio::test]
async fn a_month_is_kept_by_the_row_alone() {
    let (stage, notifier) = Stage::memory().await;
    let month = Duration::from_secs(30 * 24 * 3600);
    let id = stage.queue.emit(later("greet", month)).await.unwrap().id;
    assert!(notifier.published().is_empty());
    let promise =
        "select extract(epoch from delay_until - notify_at)::float8 from wakeq.events_v2 where id = $1";
    let ahead_s: f64 = sqlx::query_scalar(promise).bind(id.0).fetch_one(&stage.pool).await.unwrap();
    assert_eq!(ahead_s, 600.0, "a horizon before it is due");
    // The month passes.
    let passes = "update wakeq.events_v2 set delay_until = delay_until - $1, notify_at = notify_at - $1";
    sqlx::query(passes).bind(month).execute(&stage.pool).await.unwrap();
    let (mut worker, mut seen) = stage.recording("greet");
    assert_eq!(seen.next().await.id, id);
    worker.until(id, Outcome::Deleted).await;
    worker.stop().await;
}
