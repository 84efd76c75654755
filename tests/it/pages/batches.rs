//! Pages about batches: listed, shown, closed and given up.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

async fn open(service: &Service, name: &str) {
    let on_end = json!({"on_end": {"name": "imported", "value": 7}});
    assert_eq!(service.post(&format!("/batches/{name}"), on_end).await.status, StatusCode::CREATED);
}

async fn state(service: &Service, name: &str) -> Value {
    service.get(&format!("/batches/{name}")).await.json()["state"].clone()
}

#[tokio::test]
async fn a_batch_is_shown_closed_and_given_up() {
    let service = Service::start().await;
    for name in ["import:42", "a%2Fb"] {
        open(&service, name).await;
    }
    for n in 0..2 {
        service.post("/events", json!({"name": "row", "value": n, "batch": "import:42"})).await.json();
    }
    let visitor = Visitor::with_key(&service, &service.key).await;
    let list = visitor.page("/batches").await.found();
    list.says("import:42").says("a/b").says("WORKER/imported").says("</span> open");
    assert!(list.offers("/batches/import%3A42") && list.offers("/batches/a%2Fb"));
    let one = visitor.page("/batches/import%3A42").await.found();
    assert!(one.offers("/events?batch=import%3A42") && one.offers("/dead-events/list?batch=import%3A42"));
    one.says("Batch import:42").says("until it is closed").says("left");
    let asked = visitor.page("/batches/import%3A42/close").await.found();
    asked.says("Close this batch with 2 members left?");
    let closed = visitor.send(&asked, "/close", &[]).await.found();
    closed.says("The batch is closed.").says("</span> closed");
    assert!(!closed.offers("/close") && closed.offers("/give-up"));
    let asked = visitor.page("/batches/a%2Fb/give-up").await.found();
    asked.says("with 0 members left?");
    let given_up = visitor.send(&asked, "/give-up", &[]).await.found();
    given_up.says("The batch was given up.").says("</span> cancelled");
    assert!(!given_up.offers("/close") && !given_up.offers("/give-up"));
    assert_eq!(state(&service, "import:42").await, "closed");
    assert_eq!(visitor.page("/batches/none").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn only_those_who_may_close_or_give_up_a_batch() {
    let service = Service::start().await;
    open(&service, "import").await;
    let key = service.key("theirs", OTHER, &Scope::ALL).await;
    let on_end = json!({"on_end": {"name": "imported"}});
    let own = format!("/canvases/{OTHER}/batches/own");
    assert_eq!(service.ask(&key, Method::POST, &own, on_end).await.status, StatusCode::CREATED);
    let theirs = Visitor::with_key(&service, &key).await;
    theirs.get(&on_canvas(OTHER, "/batches")).await.found().says("own").says_nothing_of("import\"");
    assert_eq!(theirs.get(&on_canvas(OTHER, "/batches/import")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(theirs.page("/batches/import").await.status, StatusCode::NOT_FOUND);
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    let page = reader.page("/batches/import").await.found();
    assert!(!page.offers("/close") && !page.offers("/give-up"));
    let emitter = service.key("emitter", CanvasId::DEFAULT, &[Scope::Read, Scope::Emit]).await;
    let emitter = Visitor::with_key(&service, &emitter).await;
    let page = emitter.page("/batches/import").await.found();
    assert!(page.offers("/close") && !page.offers("/give-up"));
    let token = emitter.page("/batches/import/close").await.form("/close").token();
    for (visitor, status) in [(&emitter, StatusCode::FORBIDDEN), (&reader, StatusCode::FORBIDDEN)] {
        let path = on_canvas(CanvasId::DEFAULT, "/batches/import/give-up");
        assert_eq!(visitor.post(&path, &[("form_token", &token)]).await.status, status);
    }
    assert_eq!(state(&service, "import").await, "open");
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn batches_have_pages() {
    let service = Service::start().await;
    let events: Vec<_> = (0..101).map(|n| format!("b{n:03}")).collect();
    for name in &events {
        open(&service, name).await;
    }
    let visitor = Visitor::with_key(&service, &service.key).await;
    let first = visitor.page("/batches").await.found();
    first.says("b000").says("b099").says("Next page").says_nothing_of(">b100<");
    let second = visitor.page("/batches?cursor=b099").await.found();
    second.says(">b100<").says("First page").says_nothing_of(">b099<");
}
