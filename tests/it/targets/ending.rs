//! What a target can say of an event's end: that no retry can help, and that it has completed the
//! event itself.

use serde_json::json;
use wakeq::machine::Outcome;
use wakeq::{CanvasId, Event, EventId, Handlers};

use super::scene::{put, service, worker};
use crate::support::receiver::{PendingRequest, Receiver};
use crate::support::{Stage, wait_while};

/// Completes the event as the target would, in its own database transaction.
async fn complete(stage: &Stage, arrived: &PendingRequest) {
    let query = sqlx::query("select wakeq.complete($1::uuid, $2)");
    let query = query.bind(arrived.header("webhook-id")).bind(arrived.header("wakeq-claim"));
    query.execute(&stage.pool).await.unwrap();
}

#[tokio::test]
async fn an_event_that_no_retry_can_help_dies_at_once() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    let mut running = worker(&service.stage, Handlers::new());
    put(&service, &receiver.url, json!({"policy": {"retries": 5}})).await;
    let id = service.stage.emit("greet").await;
    receiver.next().await.answer("422 Unprocessable Content", &["wakeq-outcome: dead"]);
    let report = running.until(id, Outcome::Deleted).await;
    assert!(report.trail.contains(&Outcome::Rejected), "{report:?}");
    let dead = service.get("/dead-events").await.json();
    let event = &dead["items"][0];
    assert_eq!((&event["cause"], &event["id"]), (&json!("rejected"), &json!(id.to_string())), "{dead}");
    assert!(event["last_error"].as_str().unwrap().contains("no retry can help"), "{dead}");
    running.stop().await;
    service.stop().await;
}

/// The worker acknowledges, though nothing is left for it to delete, and hands the object over.
#[tokio::test]
async fn a_target_completes_an_event_in_its_own_transaction() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    let mut running = worker(&service.stage, Handlers::new());
    put(&service, &receiver.url, json!({})).await;
    let event = |number: u32| Event::new("greet", &number).unwrap().on("work:1").unwrap();
    let emitted = service.stage.queue.emit_all(vec![event(1), event(2)]).await.unwrap();
    let ids: Vec<EventId> = emitted.iter().map(|emitted| emitted.id).collect();
    let theirs = Event::new("greet", &3).unwrap().canvas(CanvasId(uuid::Uuid::from_u128(7)));
    service.stage.queue.emit(theirs).await.unwrap();
    for id in ids {
        let arrived = receiver.next().await;
        assert_eq!(arrived.header("webhook-id"), id.to_string());
        complete(&service.stage, &arrived).await;
        arrived.answer("204 No Content", &[]);
        let report = running.until(id, Outcome::HandedOver).await;
        assert!(report.trail.contains(&Outcome::Deleted), "{report:?}");
    }
    assert_eq!(service.stage.rows().await, 1, "that of the other canvas");
    assert_eq!(service.stage.count("select count(*) from wakeq.dead_events").await, 0);
    running.stop().await;
    service.stop().await;
}

/// A renewal in between finds no claim, since the event has ended. The run waits for the answer and
/// counts as completed, as that of a function would.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_target_that_has_completed_an_event_may_answer_late() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    let mut running = worker(&service.stage, Handlers::new());
    put(&service, &receiver.url, json!({"policy": {"timeout_s": 300}})).await;
    let late = service.stage.emit("greet").await;
    let completed = receiver.next().await;
    let other = service.stage.emit("greet").await;
    let pending = receiver.next().await;
    complete(&service.stage, &completed).await;
    // The claims of a worker are renewed together. The first of two renewals may have begun before.
    let renewed = async || -> String {
        let newest = sqlx::query_scalar("select max(locked_at)::text from wakeq.events_v2");
        newest.fetch_one(&service.stage.pool).await.unwrap()
    };
    for _ in 0..2 {
        let last = renewed().await;
        wait_while!(renewed().await == last, "its lease is not renewed");
    }
    completed.answer("204 No Content", &[]);
    let report = running.until(late, Outcome::Deleted).await;
    assert_eq!((report.error.as_deref(), report.attempt), (None, Some(1)));
    let trail = &report.trail;
    assert!(
        trail.contains(&Outcome::ExecutesToCompletion) && !trail.contains(&Outcome::LeaseLost),
        "{trail:?}"
    );
    pending.answer("204 No Content", &[]);
    running.until(other, Outcome::Deleted).await;
    running.stop().await;
    service.stop().await;
}
