//! Another due time of an event over HTTP: what is answered, refused, and left to other tenants.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{Answer, NONE, Service};

async fn emit(service: &Service, delay_s: u32) -> String {
    let event = json!({"name": "remind", "delay_s": delay_s});
    service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned()
}

async fn set(service: &Service, id: &str, due: Value) -> Answer {
    service.put(&format!("/events/{id}/due"), due).await
}

#[tokio::test]
async fn an_event_is_due_earlier_or_later() {
    let service = Service::start().await;
    let id = emit(&service, 3600).await;
    let done = set(&service, &id, json!({"delay_until": "2999-01-31T08:00:00Z"})).await.json();
    assert_eq!(done, json!({"id": id, "delay_until": "2999-01-31T08:00:00Z"}));
    let shown = service.get(&format!("/events/{id}")).await.json();
    assert_eq!((&shown["state"], &shown["delay_until"]), (&json!("delayed"), &done["delay_until"]));
    assert_eq!(service.notifier.published().len(), 0);
    set(&service, &id, json!({"delay_s": 30})).await.json();
    assert_eq!(service.notifier.published().len(), 1, "it is due soon");
    set(&service, &id, json!({"delay_until": "2020-01-31T08:00:00Z"})).await.json();
    assert_eq!(service.get(&format!("/events/{id}")).await.json()["state"], "ready");
    let record = service.admin(Method::GET, "/audit?limit=1", NONE).await.json();
    assert_eq!(
        (&record["items"][0]["action"], &record["items"][0]["event_id"]),
        (&json!("set-due"), &json!(id))
    );
    for refused in [
        json!({}),
        json!({"delay_s": -1}),
        json!({"delay_s": 1, "delay_until": "2030-01-31T08:00:00Z"}),
        json!({"due": "tomorrow"}),
        json!({"delay_s": 4e9}),
    ] {
        assert_eq!(
            set(&service, &id, refused.clone()).await.problem(),
            (400, "bad-request".into()),
            "{refused}"
        );
    }
    service.stop().await;
}

#[tokio::test]
async fn keys_without_the_right_change_no_due_time() {
    let service = Service::start().await;
    let id = emit(&service, 3600).await;
    let path = |canvas: CanvasId| format!("/canvases/{canvas}/events/{id}/due");
    let due = json!({"delay_s": 0});
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read, Scope::Emit]).await;
    let refused = service.ask(&reader, Method::PUT, &path(CanvasId::DEFAULT), due.clone()).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    for canvas in [OTHER, CanvasId::DEFAULT] {
        let refused = service.ask(&theirs, Method::PUT, &path(canvas), due.clone()).await;
        assert_eq!(refused.problem(), (404, "not-found".into()));
    }
    assert_eq!(service.get(&format!("/events/{id}")).await.json()["state"], "delayed");
    service.stage.execute("update wakeq.events_v2 set locked_at = now(), claims = 1").await;
    set(&service, &id, due.clone()).await.says((409, "not-waiting"), "running");
    service.stage.execute("update wakeq.events_v2 set locked_at = null").await;
    service.post(&format!("/events/{id}/cancel"), json!({})).await.json();
    assert_eq!(set(&service, &id, due).await.problem(), (404, "not-found".into()));
    service.stop().await;
}
