//! Events of targets that are kept: their result is the target's answer, if that is JSON; and the
//! last answers of a target.

use reqwest::Method;
use serde_json::json;
use wakeq::machine::Outcome;
use wakeq::{CanvasId, EventId, Handlers};
use wakeq_service::access::Scope;
use wiremock::ResponseTemplate;

use super::scene::{GREET, put, service, worker};
use crate::support::OTHER;
use crate::support::receiver::answering;
use crate::support::service::{NONE, has};

#[tokio::test]
async fn the_result_is_the_answer_if_that_is_json() {
    let service = service().await;
    let long = format!("{:?}", "x".repeat(70_000));
    let answers = [
        ResponseTemplate::new(200).set_body_raw(r#"{"sent": true}"#, "application/json"),
        ResponseTemplate::new(200).set_body_raw("<html></html>", "text/html"),
        ResponseTemplate::new(200).set_body_raw("not JSON", "application/json"),
        ResponseTemplate::new(200).set_body_raw(long, "application/json"),
        ResponseTemplate::new(204),
    ];
    let target = answering(answers).await;
    let registered = put(&service, &target.uri(), json!({"policy": {"keep_s": 3600}})).await;
    assert_eq!(registered["target"]["policy"]["keep_s"], 3600);
    assert_eq!(service.get(GREET).await.json()["targets"][0]["policy"]["keep_s"], 3600);
    let mut running = worker(&service.stage, Handlers::new());
    for result in [Some(r#"{"sent": true}"#), None, None, None, None] {
        let id = service.stage.emit("greet").await;
        running.until(id, Outcome::Deleted).await;
        let kept = service.stage.admin.result(CanvasId::DEFAULT, id).await.unwrap();
        assert_eq!(kept.as_deref(), result);
        let shown = service.get(&format!("/events/{id}")).await.json();
        assert_eq!(shown["state"], "completed", "{shown}");
        assert_eq!(service.stage.admin.result(OTHER, id).await.unwrap(), None);
    }
    running.stop().await;
    service.stop().await;
}

/// A target has a time for each outcome, or one for all of them. An emit goes before it.
#[tokio::test]
async fn a_target_keeps_by_outcome() {
    let service = service().await;
    let target = answering([ResponseTemplate::new(204), ResponseTemplate::new(204)]).await;
    let keep = json!({"completed": 0, "failed": 60, "cancelled": 3600});
    let registered = put(&service, &target.uri(), json!({"policy": {"keep_s": keep}})).await;
    assert_eq!(registered["target"]["policy"]["keep_s"], keep);
    let mut running = worker(&service.stage, Handlers::new());
    let id = service.stage.emit("greet").await;
    running.until(id, Outcome::Deleted).await;
    assert_eq!(service.get(&format!("/events/{id}")).await.problem().0, 404, "it has completed");
    let asked = json!({"name": "greet", "value": 1, "options": {"keep_s": {"completed": 60}}});
    let asked = service.post("/events", asked).await.json()["id"].as_str().unwrap().to_owned();
    running.until(EventId(asked.parse().unwrap()), Outcome::Deleted).await;
    let shown = service.get(&format!("/events/{asked}")).await.json();
    let options = json!({"keep_s": {"completed": 60.0, "failed": 0.0, "cancelled": 0.0}});
    has(&shown, json!({"state": "completed", "options": options}));
    let later = json!({"name": "greet", "value": 1, "delay_s": 3600});
    let later = service.post("/events", later).await.json()["id"].as_str().unwrap().to_owned();
    service.post(&format!("/events/{later}/cancel"), json!({})).await.json();
    has(&service.get(&format!("/events/{later}")).await.json(), json!({"state": "cancelled"}));
    for wrong in [json!({"dead": 1}), json!({"failed": -1}), json!({"failed": 7_776_001}), json!("7days")] {
        let refused = service.put(GREET, json!({"url": target.uri(), "policy": {"keep_s": wrong}})).await;
        assert_eq!(refused.problem().0, 400, "{wrong}");
        let emit = json!({"name": "greet", "options": {"keep_s": wrong}});
        assert_eq!(service.post("/events", emit).await.problem().0, 400, "{wrong}");
    }
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let path = format!("/canvases/{OTHER}/events/{asked}");
    assert_eq!(service.ask(&theirs, Method::GET, &path, NONE).await.problem().0, 404);
    running.stop().await;
    service.stop().await;
}

/// What a target answered is among the last attempts, with its status.
#[tokio::test]
async fn the_last_answers_are_shown() {
    let service = service().await;
    let target = answering([ResponseTemplate::new(500)]).await;
    put(&service, &target.uri(), json!({"policy": {"retries": 3, "delay_s": 600}})).await;
    let mut running = worker(&service.stage, Handlers::new());
    let id = service.stage.emit("greet").await;
    running.until(id, Outcome::RetryAllowed).await;
    running.stop().await;
    let last = service.get("/attempts?name=greet&modifier=_").await.json();
    let attempts = last["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 1, "{last}");
    has(&attempts[0], json!({"event": id.to_string(), "outcome": "retried", "status": 500, "number": 1}));
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let path = format!("/canvases/{OTHER}/attempts?name=greet");
    let none = service.ask(&theirs, Method::GET, &path, NONE).await.json();
    assert_eq!(none, json!({"attempts": [], "more": false}));
    service.stop().await;
}
