//! What refusals for load cost an event, and when it dies of them.

use wakeq::machine::Outcome;
use wakeq::targets::{NewTarget, TargetPolicy};
use wakeq::{Actor, CanvasId, Event, EventId, Stop};

use super::share::worker;
use crate::support::receiver::{Receiver, address, target};
use crate::support::{RunningWorker, Stage, scope};

const OTHER: CanvasId = CanvasId(uuid::Uuid::from_u128(7));

/// Registers a target that gets no event a second time after a failure.
async fn put_without_retries(stage: &Stage, canvas: CanvasId, receiver: &Receiver) {
    let policy = TargetPolicy { retries: 0, ..TargetPolicy::default() };
    let target = NewTarget { policy, ..target(&receiver.url) };
    stage.admin.put_target(&address(canvas, "greet"), &target, &Actor::user("tests")).await.unwrap();
}

/// The next request is the event's first attempt. It is refused, which ends the run like this.
async fn refuse(receiver: &mut Receiver, running: &mut RunningWorker, id: EventId, ends: Outcome) {
    let arrived = receiver.next().await;
    assert_eq!((arrived.header("webhook-id"), arrived.header("wakeq-attempt")), (&*id.to_string(), "1"));
    arrived.answer("429 Too Many Requests", &["retry-after: 0"]);
    running.until(id, ends).await;
}

async fn age(stage: &Stage, id: EventId, what: &str) {
    let sql = format!("update wakeq.events_v2 set {what} = {what} - interval '25 hours' where id = $1");
    let aged = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(id.0).execute(&stage.pool).await.unwrap();
    assert_eq!(aged.rows_affected(), 1);
}

/// The day in which refusals are not counted begins with the first of them, whatever the event
/// waited before, and begins again when the event is redriven.
// Shows: TARGET-05
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_refused_event_has_a_day_from_its_first_refusal() {
    let (stage, _) = Stage::memory().await;
    let mut events = Vec::new();
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let receiver = Receiver::start().await;
        put_without_retries(&stage, canvas, &receiver).await;
        let id = stage.queue.emit(Event::new("greet", "x").unwrap().canvas(canvas)).await.unwrap().id;
        age(&stage, id, "enqueued_at").await;
        events.push((canvas, id, receiver));
    }
    let mut running = worker(&stage, Default::default(), None);
    for (canvas, id, receiver) in &mut events {
        for _ in 0..2 {
            refuse(receiver, &mut running, *id, Outcome::Postponed).await;
        }
        age(&stage, *id, "postponed_since").await;
        refuse(receiver, &mut running, *id, Outcome::Deleted).await;
        let error = "select last_error from wakeq.dead_events where id = $1 and canvas_id = $2";
        let error = sqlx::query_scalar(error).bind(id.0).bind(canvas.0);
        let error: String = error.fetch_one(&stage.pool).await.unwrap();
        assert!(error.ends_with("it has been postponed for 86400s already"), "{error}");

        stage.admin.redrive_one(*canvas, *id, &Actor::user("tests")).await.unwrap();
        refuse(receiver, &mut running, *id, Outcome::Postponed).await;
        receiver.next().await.answer("200 OK", &[]);
        running.until(*id, Outcome::Deleted).await;
    }
    assert_eq!(stage.rows().await, 0);
    running.stop().await;
}

/// Nor is a pause part of the day, if it comes between two refusals.
#[tokio::test]
async fn a_refused_event_has_another_day_after_a_pause() {
    let (stage, _) = Stage::memory().await;
    let mut receiver = Receiver::start().await;
    put_without_retries(&stage, CanvasId::DEFAULT, &receiver).await;
    let mut running = worker(&stage, Default::default(), None);
    let id = stage.emit("greet").await;
    let arrived = receiver.next().await;
    let (greet, tests) = (scope("greet"), Actor::user("tests"));
    stage.admin.pause(&greet, &tests, &Stop::default()).await.unwrap();
    arrived.answer("429 Too Many Requests", &["retry-after: 0"]);
    running.until(id, Outcome::RulePaused).await;
    let cleared = "select count(*) from wakeq.events_v2 where notify_at is null and postponed_since is null";
    assert_eq!(stage.count(cleared).await, 1);
    stage.admin.unpause(&greet, &tests).await.unwrap();
    refuse(&mut receiver, &mut running, id, Outcome::Postponed).await;
    receiver.next().await.answer("200 OK", &[]);
    running.until(id, Outcome::Deleted).await;
    running.stop().await;
}
