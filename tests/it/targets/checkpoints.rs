//! Targets that leave to the next delivery how far they have come.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::StatusCode;
use serde_json::{Value, json};
use wakeq::machine::Outcome;
use wakeq::{Event, Handlers};

use super::scene::{put, service, worker};
use crate::support::OTHER;
use crate::support::receiver::{PendingRequest, Receiver};

/// The checkpoint of an event that another tenant's worker has.
const THEIRS: &str = "insert into wakeq.checkpoints (canvas_id, event_id, claims, value)
    select canvas_id, id, 1, '\"theirs\"' from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000007'";

fn left(arrived: &PendingRequest) -> Option<Value> {
    let header = arrived.headers.get("wakeq-checkpoint")?;
    Some(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).unwrap()).unwrap())
}

/// By an answer, then over HTTP with more than goes into a header.
#[tokio::test]
async fn a_target_goes_on_where_it_was() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    let mut running = worker(&service.stage, Handlers::new());
    put(&service, &receiver.url, json!({"policy": {"retries": 5, "delay_s": 0}})).await;
    service.stage.queue.emit(Event::new("greet", &2).unwrap().canvas(OTHER)).await.unwrap();
    service.stage.execute(THEIRS).await;
    let id = service.stage.emit("greet").await;

    let first = receiver.next().await;
    assert_eq!(left(&first), None);
    let page = format!("wakeq-checkpoint: {}", URL_SAFE_NO_PAD.encode(r#"{"page":7}"#));
    first.answer("503 Service Unavailable", &[&page]);
    let second = receiver.next().await;
    assert_eq!(left(&second), Some(json!({"page": 7})));
    let path = format!("/events/{id}/checkpoint");
    let long = json!("x".repeat(4_000));
    let claim = second.header("wakeq-claim").to_owned();
    let stored = service.put(&path, json!({"claim": claim, "value": long})).await;
    assert_eq!(stored.status, StatusCode::NO_CONTENT, "{}", stored.text);
    second.answer("500 Internal Server Error", &["wakeq-checkpoint: %"]);
    let failed = running.until(id, Outcome::RetryAllowed).await;
    let failed =
        if failed.attempt == Some(1) { running.until(id, Outcome::RetryAllowed).await } else { failed };
    assert!(failed.error.unwrap().ends_with("is not JSON as base64url without padding"));

    let third = receiver.next().await;
    assert_eq!(left(&third), None);
    assert!(third.header("wakeq-checkpoint-at").ends_with(&path), "{third:?}");
    assert_eq!(service.get(&path).await.json()["value"], long);
    let late = service.put(&path, json!({"claim": claim, "value": 1})).await;
    assert_eq!(late.problem(), (410, "lease-over".into()), "the claim of the attempt before");
    third.answer("204 No Content", &[&page]);
    running.until(id, Outcome::Deleted).await;
    let values = "select count(*) filter (where value = '\"theirs\"') * 10 + count(*) from wakeq.checkpoints";
    assert_eq!(service.stage.count(values).await, 11, "only theirs is there");
    running.stop().await;
    service.stop().await;
}

/// An answer of 425 is no failure, and yet says what was wrong with it, once for each attempt.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_broken_checkpoint_is_the_target_s_fault_also_if_it_is_too_early() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    let mut running = worker(&service.stage, Handlers::new());
    put(&service, &receiver.url, json!({})).await;
    service.stage.queue.emit(Event::new("greet", &2).unwrap().canvas(OTHER)).await.unwrap();
    let id = service.stage.emit("greet").await;

    let page = format!("wakeq-checkpoint: {}", URL_SAFE_NO_PAD.encode(r#"{"page":7}"#));
    receiver.next().await.answer("425 Too Early", &[&page]);
    let broken = receiver.next().await;
    assert_eq!(left(&broken), Some(json!({"page": 7})));
    broken.answer("425 Too Early", &["wakeq-checkpoint: %"]);
    let again = receiver.next().await;
    assert_eq!(left(&again), Some(json!({"page": 7})), "the one before stays");
    let shown = service.get(&format!("/events/{id}")).await.json();
    let errors: Vec<_> = shown["attempts"].as_array().unwrap().iter().map(|one| &one["error"]).collect();
    let words = "the target answered 425; its checkpoint was not stored: its `wakeq-checkpoint` is not JSON as \
                 base64url without padding";
    assert_eq!(errors, [&json!("not yet"), &json!(words)]);
    assert_eq!(shown["retries"], 0, "{shown}");
    again.answer("204 No Content", &[]);
    running.until(id, Outcome::Deleted).await;
    running.stop().await;
    service.stop().await;
}
