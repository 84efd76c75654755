//! Entities over HTTP: sent to, followed, shown, erased.

use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::CanvasId;
use wakeq::log::Log;
use wakeq_service::access::Scope;
use wakeq_streams::EntityProcessor;

use super::{Account, accept, config};
use crate::service::Service;
use crate::support::TIMEOUT;

#[tokio::test]
async fn an_entity_is_sent_to_followed_and_shown() {
    let service = Service::start().await;
    let queue = service.stage.queue.clone();
    let log = Log::with_signals(service.stage.store.clone(), queue.signals().clone());
    let processor = EntityProcessor::<Account>::new(queue, Arc::new(log), config()).unwrap();
    accept(&processor, 1).await;
    assert_eq!(service.get("/entities/account/ada").await.problem(), (404, "not-found".into()));
    let reply_to = json!({"name": "told"});
    let event = json!({"name": "deposit", "payload": {"cents": 500}, "reply_to": reply_to});
    let sent = service.post("/entities/account/ada/events", event.clone()).await;
    assert_eq!(sent.status, StatusCode::ACCEPTED);
    let sent = sent.json();
    assert_eq!((&sent["id"], &sent["again"]), (&sent["correlation_id"], &json!(false)));
    let status = format!("/entities/status/{}", sent["id"].as_str().unwrap());
    let completed = async {
        loop {
            let progress = service.get(&status).await.json();
            if progress["status"] == "completed" {
                return progress;
            }
        }
    };
    let progress = tokio::time::timeout(TIMEOUT, completed).await.expect("it completes");
    let event = &progress["events"][0];
    assert_eq!(
        (&event["entity"], &event["version"], &event["result"]),
        (&json!("ada"), &json!(1), &json!(500))
    );
    let entity = service.get("/entities/account/ada").await.json();
    assert_eq!((&entity["type"], &entity["version"]), (&json!("account"), &json!(1)));
    assert_eq!(entity["state"], json!({"cents": 500, "changes": 1}));
    for (path, body) in [
        ("/entities/account.inbox/ada/events", json!({"name": "deposit"})),
        ("/entities/account/ada%20lovelace/events", json!({"name": "deposit"})),
        ("/entities/account/ada/events", json!({"name": "no name"})),
        ("/entities/account/ada/events", json!({"name": "deposit", "reply_to": {"name": ""}})),
        ("/entities/account/ada/events", json!({"name": "deposit", "payload": {"cents": "\u{0}"}})),
    ] {
        let refused = service.post(path, body.clone()).await.problem();
        assert_eq!(refused, (400, "bad-request".into()), "{path} {body}");
    }
    service.stop().await;
}

/// Only an admin of its canvas can erase an entity; the answer is like that of a send, and the
/// erasure is recorded.
#[tokio::test]
async fn an_entity_is_erased_by_an_admin() {
    let service = Service::start().await;
    let queue = service.stage.queue.clone();
    let log = Log::with_signals(service.stage.store.clone(), queue.signals().clone());
    let processor = EntityProcessor::<Account>::new(queue, Arc::new(log), config()).unwrap();
    accept(&processor, 1).await;
    let other = CanvasId(Uuid::from_u128(7));
    let ada = |canvas: CanvasId| format!("/canvases/{canvas}/entities/account/ada");
    let theirs = service.key("bob", other, &Scope::ALL).await;
    let event = json!({"name": "deposit", "payload": {"cents": 500}});
    let of_others =
        service.ask(&theirs, Method::POST, &format!("{}/events", ada(other)), event.clone()).await;
    assert_eq!(of_others.status, StatusCode::ACCEPTED);
    service.post("/entities/account/ada/events", event).await;
    for (key, status) in [
        (service.key("eve", CanvasId::DEFAULT, &[Scope::Emit, Scope::Read, Scope::Operate]).await, 403),
        (theirs.clone(), 404),
    ] {
        let refused = service.ask(&key, Method::DELETE, &ada(CanvasId::DEFAULT), Value::Null).await;
        assert_eq!(refused.problem().0, status);
    }
    let (id, admin) = (Uuid::now_v7(), service.key("grace", CanvasId::DEFAULT, &[Scope::Admin]).await);
    for again in [false, true] {
        let path = format!("{}?id={id}", ada(CanvasId::DEFAULT));
        let asked = service.ask(&admin, Method::DELETE, &path, Value::Null).await;
        assert_eq!(asked.status, StatusCode::ACCEPTED);
        let asked = asked.json();
        assert_eq!((&asked["id"], &asked["again"]), (&json!(id), &json!(again)));
    }
    let completed = async {
        while service.get(&format!("/entities/status/{id}")).await.json()["status"] != "completed" {}
    };
    tokio::time::timeout(TIMEOUT, completed).await.expect("it completes");
    assert_eq!(service.get("/entities/account/ada").await.problem(), (404, "not-found".into()));
    let shown = service.ask(&theirs, Method::GET, &ada(other), Value::Null).await.json();
    assert_eq!(shown["state"], json!({"cents": 500, "changes": 1}));
    for path in
        ["/entities/account/ada?id=1", "/entities/account/ada?all=true", "/entities/account.inbox/ada"]
    {
        assert_eq!(service.delete(path).await.problem(), (400, "bad-request".into()), "{path}");
    }
    let recorded = service.admin(Method::GET, "/audit", Value::Null).await.json();
    let recorded = recorded["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| line["action"] == "erase-entity" && line["outcome"] == "done");
    let recorded: Vec<_> =
        recorded.map(|line| (line["actor"].as_str().unwrap(), line["event_id"].clone())).collect();
    assert_eq!(recorded, [("key:grace", json!(id)), ("key:grace", json!(id))]);
    service.stop().await;
}
