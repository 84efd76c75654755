//! Entities over HTTP: sent to, followed, shown, erased.

use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::CanvasId;
use wakeq::log::Log;
use wakeq_service::access::Scope;
use wakeq_streams::EntityProcessor;

use super::{Account, OTHER, accept, config};
use crate::support::service::{Service, has};
use crate::support::{until, wait_while};

/// A service, and the owner of its accounts.
async fn served() -> (Service, EntityProcessor<Account>) {
    let service = Service::start().await;
    let queue = service.stage.queue.clone();
    let log = Log::with_signals(service.stage.store.clone(), queue.signals().clone());
    let processor = EntityProcessor::<Account>::new(queue, Arc::new(log), config()).unwrap();
    accept(&processor, 1).await;
    (service, processor)
}

#[tokio::test]
async fn an_entity_is_sent_to_followed_and_shown() {
    let (service, _processor) = served().await;
    assert_eq!(service.get("/entities/account/ada").await.problem(), (404, "not-found".into()));
    let reply_to = json!({"name": "told"});
    let event = json!({"name": "deposit", "payload": {"cents": 500}, "reply_to": reply_to});
    let sent = service.post("/entities/account/ada/events", event.clone()).await;
    assert_eq!(sent.status, StatusCode::ACCEPTED);
    let sent = sent.json();
    assert_eq!((&sent["id"], &sent["again"]), (&sent["correlation_id"], &json!(false)));
    let status = format!("/entities/status/{}", sent["id"].as_str().unwrap());
    let completed = async || {
        let progress = service.get(&status).await.json();
        (progress["status"] == "completed").then_some(progress)
    };
    let progress = until("it completes", completed).await;
    has(&progress["events"][0], json!({"entity": "ada", "version": 1, "result": 500}));
    let entity = service.get("/entities/account/ada").await.json();
    has(&entity, json!({"type": "account", "version": 1, "state": {"cents": 500, "changes": 1}}));
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
    let (service, _processor) = served().await;
    let ada = |canvas: CanvasId| format!("/canvases/{canvas}/entities/account/ada");
    let theirs = service.key("bob", OTHER, &Scope::ALL).await;
    let event = json!({"name": "deposit", "payload": {"cents": 500}});
    let of_others =
        service.ask(&theirs, Method::POST, &format!("{}/events", ada(OTHER)), event.clone()).await;
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
        has(&asked.json(), json!({"id": id, "again": again}));
    }
    let status = format!("/entities/status/{id}");
    wait_while!(service.get(&status).await.json()["status"] != "completed", "it completes");
    assert_eq!(service.get("/entities/account/ada").await.problem(), (404, "not-found".into()));
    let shown = service.ask(&theirs, Method::GET, &ada(OTHER), Value::Null).await.json();
    assert_eq!(shown["state"], json!({"cents": 500, "changes": 1}));
    for path in
        ["/entities/account/ada?id=1", "/entities/account/ada?all=true", "/entities/account.inbox/ada"]
    {
        assert_eq!(service.delete(path).await.problem(), (400, "bad-request".into()), "{path}");
    }
    let recorded = service.admin(Method::GET, "/audit", Value::Null).await.json();
    let mut recorded = recorded["items"].as_array().unwrap().clone();
    recorded.retain(|line| line["action"] == "erase-entity" && line["outcome"] == "done");
    assert_eq!(recorded.len(), 2);
    recorded.iter().for_each(|line| has(line, json!({"actor": "key:grace", "event_id": id})));
    service.stop().await;
}
