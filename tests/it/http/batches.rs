//! Batches over HTTP: their life, what is refused, pages, and other tenants.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{Answer, Service};

fn on_end(value: Value) -> Value {
    json!({"on_end": {"name": "imported", "value": value}})
}

fn member(value: u32) -> Value {
    json!({"name": "row", "value": value, "batch": "import:42"})
}

async fn close(service: &Service, name: &str) -> Answer {
    let path = format!("/canvases/{}/batches/{name}/close", CanvasId::DEFAULT);
    service.ask(&service.key, Method::POST, &path, Value::Null).await
}

#[tokio::test]
async fn a_batch_is_opened_filled_closed_and_shown() {
    let service = Service::start().await;
    let opened = service.post("/batches/import:42", on_end(json!(7))).await;
    assert_eq!(opened.status, StatusCode::CREATED);
    let opened = opened.json();
    let none = json!({"completed": 0, "dead": 0, "cancelled": 0, "total": 0});
    assert_eq!((&opened["state"], &opened["counts"], &opened["left"]), (&json!("open"), &none, &json!(0)));
    assert_eq!(service.post("/batches/import:42", on_end(json!(7))).await.status, StatusCode::OK);
    assert_eq!(service.post("/batches/import:42", on_end(json!(8))).await.problem().0, 409);
    let emitted = service.post("/events:batch", json!({"events": [member(1), member(2)]})).await;
    assert_eq!(emitted.status, StatusCode::ACCEPTED);
    let id = emitted.json()["events"][0]["id"].as_str().unwrap().to_owned();
    let shown = service.get(&format!("/events/{id}")).await.json();
    assert_eq!(shown["batch"], "import:42");
    assert!(shown.get("options").is_none(), "{shown}");
    let closed = close(&service, "import:42").await.json();
    assert_eq!((&closed["state"], &closed["left"]), (&json!("closed"), &json!(2)));

    // Another tenant has a batch of the same name, and sees nothing of this one.
    let key = service.key("other", OTHER, &[Scope::Emit, Scope::Read, Scope::Operate]).await;
    let theirs = format!("/canvases/{OTHER}/batches/import:42");
    assert_eq!(service.ask(&key, Method::GET, &theirs, Value::Null).await.problem().0, 404);
    assert_eq!(service.ask(&key, Method::DELETE, &theirs, Value::Null).await.problem().0, 404);
    assert_eq!(service.ask(&key, Method::POST, &theirs, on_end(json!(9))).await.status, StatusCode::CREATED);
    let given_up = service.ask(&key, Method::DELETE, &theirs, Value::Null).await;
    assert_eq!(given_up.status, StatusCode::NO_CONTENT);
    let shown = service.ask(&key, Method::GET, &theirs, Value::Null).await.json();
    assert_eq!(shown["state"], "cancelled");
    let into = json!({"name": "row", "batch": "import:42"});
    let refused = service.ask(&key, Method::POST, &format!("/canvases/{OTHER}/events"), into).await;
    assert_eq!(refused.problem().0, 409);

    for id in emitted.json()["events"].as_array().unwrap() {
        let path = format!("/events/{}/cancel", id["id"].as_str().unwrap());
        assert!(service.post(&path, json!({})).await.status.is_success());
    }
    let ended = service.get("/batches/import:42").await.json();
    let counts = json!({"completed": 0, "dead": 0, "cancelled": 2, "total": 2});
    assert_eq!((&ended["state"], &ended["counts"], &ended["left"]), (&json!("ended"), &counts, &json!(0)));
    let event = format!("/events/{}?view=full", ended["on_end"]["id"].as_str().unwrap());
    let value = json!({
        "batch": "import:42", "completed": 0, "dead": 0, "cancelled": 2, "total": 2, "value": 7,
    });
    assert_eq!(service.get(&event).await.json()["value"], value);
    assert_eq!(service.post("/events", member(3)).await.problem().0, 409);
}

#[tokio::test]
async fn what_is_no_batch_is_refused() {
    let service = Service::start().await;
    for (path, body) in [
        ("/batches/a%20b", on_end(json!(1))),
        ("/batches/import", json!({})),
        ("/batches/import", json!({"on_end": {"name": "a b"}})),
        ("/batches/import", json!({"on_end": {"name": "imported", "delay_s": 1}})),
        ("/batches/import", json!({"on_end": {"name": "imported", "module": "CRON"}})),
    ] {
        assert_eq!(service.post(path, body.clone()).await.problem().0, 400, "{path} {body}");
    }
    assert_eq!(close(&service, "import").await.problem().0, 404);
    assert_eq!(service.post("/events", json!({"name": "row", "batch": "import"})).await.problem().0, 409);
    assert_eq!(service.post("/events", json!({"name": "row", "batch": "a b"})).await.problem().0, 400);
    let both = json!({"name": "row", "batch": "import", "unique": {"key": "k"}});
    assert_eq!(service.post("/events", both).await.problem().0, 400);
}

#[tokio::test]
async fn batches_are_listed_in_pages() {
    let service = Service::start().await;
    for name in ["b", "a", "c"] {
        service.post(&format!("/batches/{name}"), on_end(json!(1))).await.json();
    }
    let first = service.get("/batches?limit=2").await.json();
    let names = |page: &Value| {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|batch| batch["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&first), ["a", "b"]);
    assert!(first["items"][0].get("left").is_none(), "{first}");
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = service.get(&format!("/batches?limit=2&cursor={cursor}")).await.json();
    assert_eq!((names(&second), &second["next_cursor"]), (vec!["c".to_owned()], &Value::Null));
}
