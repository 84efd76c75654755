//! What an event asks for in place of its route: how long an attempt may take, and what an attempt
//! is told of its end.

use std::time::Duration;

use tokio::time::Instant;
use wakeq::machine::Outcome;
use wakeq::{Event, Route, Timestamp};

use crate::support::{OTHER, Stage, once};

const HOUR: Duration = Duration::from_secs(3600);

fn slow() -> Event {
    Event::new("slow", &1).unwrap()
}

/// In place of none, of a longer and of a shorter one.
#[tokio::test]
async fn an_attempt_is_cut_off_after_the_timeout_that_its_emit_asked_for() {
    for route in [once("slow"), once("slow").timeout(HOUR), once("slow").timeout(Duration::from_millis(1))] {
        let (stage, _) = Stage::memory().await;
        let (mut worker, mut door) = stage.door(route);
        let event = slow().timeout(Duration::from_millis(100)).unwrap();
        let id = stage.queue.emit(event).await.unwrap().id;
        let report = worker.until(id, Outcome::Deleted).await;
        assert_eq!(report.error.as_deref(), Some("timed out after 100ms"));
        assert_eq!(door.left.take(1).await, [false]);
        worker.stop().await;
    }
}

/// A longer one than the route's, for this event alone.
#[tokio::test]
async fn a_longer_timeout_is_that_of_its_event_only() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, mut door) = stage.door(once("slow").timeout(Duration::from_millis(100)));
    let long = stage.queue.emit(slow().timeout(HOUR).unwrap()).await.unwrap().id;
    let told = door.arrived.next().await.deadline().unwrap();
    assert!(told > Instant::now() + HOUR / 2);
    let usual = stage.queue.emit(slow().canvas(OTHER)).await.unwrap().id;
    assert_eq!(worker.until(usual, Outcome::Deleted).await.error.as_deref(), Some("timed out after 100ms"));
    door.open(1);
    let report = worker.until(long, Outcome::Deleted).await;
    assert_eq!((report.error, report.verdict), (None, wakeq::workers::Verdict::Acknowledged));
    worker.stop().await;
}

/// An attempt that runs at the moment is told of it, and goes on.
#[tokio::test]
async fn an_attempt_is_told_of_the_earlier_of_its_ends() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, mut door) = stage.door(Route::new("slow"));
    let now: Timestamp = sqlx::query_scalar("select clock_timestamp()").fetch_one(&stage.pool).await.unwrap();
    let asked = [
        (slow(), None),
        (slow().not_after(now + HOUR).unwrap(), Some(HOUR)),
        (slow().not_after(now + HOUR).unwrap().timeout(2 * HOUR).unwrap(), Some(HOUR)),
        (slow().not_after(now + 2 * HOUR).unwrap().timeout(HOUR).unwrap(), Some(HOUR)),
    ];
    let begun = Instant::now();
    for (event, left) in asked {
        let id = stage.queue.emit(event).await.unwrap().id;
        let deadline = door.arrived.next().await.deadline();
        let told = deadline.map(|deadline| deadline - begun);
        assert_eq!(told.is_some(), left.is_some(), "{told:?}");
        // The test's own time comes on top, or is over already.
        let (told, left) = (told.unwrap_or_default(), left.unwrap_or_default());
        assert!(told < left + HOUR / 2 && told + HOUR / 2 > left, "{told:?} for {left:?}");
        door.open(1);
        worker.until(id, Outcome::Deleted).await;
    }
    worker.stop().await;
}
