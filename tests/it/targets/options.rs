//! What an event asks for in place of its target's policy, what the target is told of it, and how a
//! target has a failure counted.

use std::time::Duration;

use wakeq::control::DeadFilter;
use wakeq::machine::Outcome;
use wakeq::targets::{NewTarget, TargetPolicy};
use wakeq::{Actor, CanvasId, Event, Timestamp};

use super::share::worker;
use crate::support::receiver::{Receiver, address, target};
use crate::support::{OTHER, Stage};

async fn put(stage: &Stage, canvas: CanvasId, receiver: &Receiver, policy: TargetPolicy) {
    let target = NewTarget { policy, ..target(&receiver.url) };
    stage.admin.put_target(&address(canvas, "greet"), &target, &Actor::user("tests")).await.unwrap();
}

fn greet() -> Event {
    Event::new("greet", "Ada").unwrap()
}

#[tokio::test]
async fn a_target_is_told_what_the_emit_asked_for() {
    let (stage, _) = Stage::memory().await;
    let mut receiver = Receiver::start().await;
    put(&stage, CanvasId::DEFAULT, &receiver, TargetPolicy::default()).await;
    let mut running = worker(&stage, Default::default(), None);
    let moment: Timestamp = "2100-01-31T08:05:00Z".parse().unwrap();
    let event = greet().retries(0).unwrap().timeout(Duration::from_millis(20_500)).unwrap();
    let event =
        event.not_after(moment).unwrap().limit("customer:7").unwrap().limit("mails").unwrap().urgent();
    let batch = stage.queue.batch("import:42").unwrap();
    batch.open(Event::new("imported", &1).unwrap()).await.unwrap();
    let event = event.batch("import:42").unwrap();
    let id = stage.queue.emit(event).await.unwrap().id;
    let arrived = receiver.next().await;
    assert_eq!(arrived.header("wakeq-retries"), "0");
    assert_eq!(arrived.header("wakeq-timeout"), "20.5");
    assert_eq!(arrived.header("wakeq-not-after"), "2100-01-31T08:05:00.000000Z");
    assert_eq!(arrived.header("wakeq-batch"), "import:42");
    assert_eq!(arrived.header("wakeq-limits"), "customer:7,mails");
    assert_eq!(arrived.header("wakeq-urgent"), "true");
    arrived.answer("500 Internal Server Error", &[]);
    running.until(id, Outcome::Deleted).await;
    let dead = stage.admin.dead(&DeadFilter::default(), None, 10).await.unwrap().items;
    assert_eq!((dead[0].id, dead[0].cause.as_str(), dead[0].retries), (id, "retries", 0));
    running.stop().await;
}

/// The events of others have the target's policy.
#[tokio::test]
async fn an_event_times_out_at_a_target_as_its_emit_asked() {
    let (stage, _) = Stage::memory().await;
    let (mut receiver, mut others) = (Receiver::start().await, Receiver::start().await);
    put(&stage, CanvasId::DEFAULT, &receiver, TargetPolicy { retries: 0, ..TargetPolicy::default() }).await;
    put(&stage, OTHER, &others, TargetPolicy::default()).await;
    let mut running = worker(&stage, Default::default(), None);
    let theirs = stage.queue.emit(greet().canvas(OTHER)).await.unwrap().id;
    let id = stage.queue.emit(greet().timeout(Duration::from_millis(100)).unwrap()).await.unwrap().id;
    let (hangs, waits) = (receiver.next().await, others.next().await);
    let report = running.until(id, Outcome::Deleted).await;
    let error = report.error.unwrap();
    assert!(error.starts_with("the target did not answer within 100ms"), "{error}");
    drop(hangs);
    waits.answer("200 OK", &[]);
    assert_eq!(running.until(theirs, Outcome::Deleted).await.error, None);
    running.stop().await;
}

/// A refusal for load costs nothing, unless the target says so.
#[tokio::test]
async fn a_target_can_have_a_failure_counted() {
    let (stage, _) = Stage::memory().await;
    let mut receiver = Receiver::start().await;
    put(&stage, CanvasId::DEFAULT, &receiver, TargetPolicy { retries: 1, ..TargetPolicy::default() }).await;
    let mut running = worker(&stage, Default::default(), None);
    let event = greet().delays([Duration::ZERO]).unwrap();
    let id = stage.queue.emit(event).await.unwrap().id;
    for (attempt, ends) in [("1", Outcome::RetryAllowed), ("2", Outcome::Deleted)] {
        let arrived = receiver.next().await;
        assert_eq!(arrived.header("wakeq-attempt"), attempt);
        arrived.answer("429 Too Many Requests", &["retry-after: 0", "wakeq-outcome: retry"]);
        let report = running.until(id, ends).await;
        let error = report.error.unwrap();
        assert!(error.ends_with("it said that this counts as a failure"), "{error}");
    }
    assert_eq!(stage.rows().await, 0);
    running.stop().await;
}
