//! The page that emits an event.

use reqwest::StatusCode;
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::Scope;
use wakeq_service::server::{HttpConfig, HttpServer};

use super::visitor::{Visitor, on_canvas};
use crate::support::service::{Service, has};
use crate::support::{OTHER, Statements};

const EVENTS: &str = "select count(*) from wakeq.events_v2";

#[tokio::test]
async fn an_event_is_emitted_with_all_that_was_filled_in() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page("/new-event?name=mail&value=%7B%22n%22%3A+1.10%7D").await.found();
    page.says("value=\"mail\"").says("{&quot;n&quot;: 1.10}");
    let fields = [
        ("name", "mail"),
        ("value", "{\"n\": 1.10}\r\n"),
        ("due", "1 h"),
        ("tags", "customer:7, late"),
        ("unique_key", "invoice:42"),
        ("on_conflict", "replace"),
        ("retries", "7"),
        ("keep", "1 d"),
    ];
    let shown = visitor.send(&page, "/new-event", &fields).await.found();
    shown.says("The event was emitted.").says("WORKER/mail").says("delayed").says("invoice:42");
    let id = shown.path.rsplit('/').next().unwrap().to_owned();
    let full = service.get(&format!("/events/{id}?view=full")).await;
    assert!(full.text.contains(r#"{"n": 1.10}"#), "{}", full.text);
    has(&full.json(), json!({"state": "delayed", "name": "mail", "unique_key": "invoice:42"}));
    let options = json!({"retries": 7, "keep_s": 86400.0, "tags": ["customer:7", "late"]});
    assert_eq!(full.json()["options"], options);
    let next = visitor.page("/new-event").await.found();
    let again = visitor.send(&next, "/new-event", &fields).await.found();
    again.says("was replaced");
    let kept = visitor.send(&next, "/new-event", &[("name", "mail"), ("unique_key", "invoice:42")]).await;
    kept.found().says("Nothing was added");
    assert_eq!(service.stage.pool.value::<i64>(EVENTS).await, 1);
}

/// A form that is sent twice, by a double click or a page that is loaded again, emits once. Filled
/// in anew, or shown anew, it is another.
#[tokio::test]
async fn a_form_that_is_sent_twice_emits_once() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let count = async || service.stage.pool.value::<i64>(EVENTS).await;
    let page = visitor.page("/new-event").await.found();
    let fields = [("name", "mail"), ("value", "1"), ("due", "1 h")];
    let (first, second) =
        tokio::join!(visitor.send(&page, "/new-event", &fields), visitor.send(&page, "/new-event", &fields));
    let third = visitor.send(&page, "/new-event", &fields).await.found();
    let emitted = first.found().path;
    assert_eq!((second.found().path, third.path), (emitted.clone(), emitted.clone()), "the same event");
    assert_eq!(count().await, 1);

    let other = [("name", "mail"), ("value", "2"), ("due", "1 h")];
    assert_ne!(visitor.send(&page, "/new-event", &other).await.found().path, emitted);
    let anew = visitor.page("/new-event").await.found();
    assert_ne!(visitor.send(&anew, "/new-event", &fields).await.found().path, emitted);
    assert_eq!(count().await, 3);

    // The same form of another tenant, with the same key, is its own.
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let own = theirs.get(&on_canvas(OTHER, "/new-event")).await.found();
    let key = page.form("/new-event").key();
    let with_key = [&[("form_key", key.as_str())][..], &fields[..]].concat();
    let shown = theirs.send(&own, "/new-event", &with_key).await.found();
    let id = emitted.rsplit('/').next().unwrap();
    assert!(shown.path.starts_with(&on_canvas(OTHER, "/events/")) && !shown.path.ends_with(id));
    assert_eq!(count().await, 4);
}

/// What a form counts from now is counted from when it was sent first, so that it is the same
/// event. Another process can't know that moment, and emits nothing all the same.
#[tokio::test]
async fn a_form_that_counts_from_now_emits_once_when_it_is_sent_twice() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page("/new-event").await.found();
    let fields = [("name", "mail"), ("not_after", "in 1 d")];
    let emitted = visitor.send(&page, "/new-event", &fields).await.found();
    let again = visitor.send(&page, "/new-event", &fields).await.found();
    assert_eq!(again.path, emitted.path, "the same event");
    again.says("The event was emitted.");

    let config = HttpConfig { address: ([127, 0, 0, 1], 0).into(), ..HttpConfig::default() };
    let (store, notifier) = (service.stage.store.clone(), service.notifier.clone());
    let server = HttpServer::bind(store, notifier, config).await.unwrap();
    let elsewhere = Visitor::at(server.local_address());
    tokio::spawn(server.run());
    elsewhere.set_cookie("wakeq_session", &visitor.cookie("wakeq_session").unwrap());
    let refused = elsewhere.send(&page, "/new-event", &fields).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    refused.says("this form was sent before");
    assert_eq!(service.stage.pool.value::<i64>(EVENTS).await, 1);
}

#[tokio::test]
async fn what_is_wrong_is_said_and_nothing_is_lost() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page("/new-event").await.found();
    let evil = "</textarea><script>alert(1)</script>";
    for (field, value, words) in [
        ("value", "{\"n\": ", "the value is not JSON"),
        ("value", evil, "the value is not JSON"),
        ("due", "soon", "such as 10 min"),
        ("object", "a b", "object"),
        ("name", "a b", "name"),
        ("batch", "none", "batch"),
        ("retries", "many", "a whole number"),
        ("unique_key", "a b", "key"),
    ] {
        let mut fields = vec![("name", "mail"), ("tags", "kept:1")];
        fields.retain(|(name, _)| *name != field);
        fields.push((field, value));
        let refused = visitor.send(&page, "/new-event", &fields).await;
        assert!(refused.status.is_client_error(), "{field} {value}: {}", refused.html);
        let escaped = value.replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;");
        refused.says(words).says("kept:1").says(&escaped).says_nothing_of("<script>alert");
        assert_eq!(service.stage.pool.value::<i64>(EVENTS).await, 0);
    }
}

#[tokio::test]
async fn it_takes_the_scope_to_emit() {
    let service = Service::start().await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    assert!(!reader.page("").await.found().offers("/new-event"));
    let refused = reader.page("/new-event").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    refused.says("scope `emit`");
    service.post("/events", json!({"name": "print", "delay_s": 3600})).await.json();
    let list = service.get("/events").await.json();
    let event = format!("/events/{}", list["items"][0]["id"].as_str().unwrap());
    let token = reader.page(&event).await.found().form("/run-now").token();
    let path = on_canvas(CanvasId::DEFAULT, "/new-event");
    let refused = reader.post(&path, &[("form_token", &token), ("name", "mail")]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    assert_eq!(theirs.post(&path, &[("name", "mail")]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(service.stage.pool.value::<i64>(EVENTS).await, 1);
    let page = theirs.get(&on_canvas(OTHER, "/new-event")).await.found();
    let shown = theirs.send(&page, "/new-event", &[("name", "mail")]).await.found();
    assert!(shown.path.starts_with(&on_canvas(OTHER, "/events/")), "{}", shown.path);
}
