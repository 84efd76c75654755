//! Pages about stopping a whole canvas, and everything.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::{NONE, Service};

/// What stops a canvas as a whole: kind, and what it stops.
async fn switches(service: &Service, key: &str, canvas: CanvasId) -> Vec<(String, String)> {
    let listed = service.ask(key, Method::GET, &format!("/canvases/{canvas}/switches"), NONE).await.json();
    let text = |rule: &Value, field: &str| rule[field].as_str().unwrap().to_owned();
    listed["items"].as_array().unwrap().iter().map(|rule| (text(rule, "kind"), text(rule, "stops"))).collect()
}

#[tokio::test]
async fn a_canvas_is_paused_and_blocked_and_lifted() {
    let service = Service::start().await;
    service.post("/events", json!({"name": "greet"})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page("/switches").await.found();
    page.says("Nothing stops the canvas as a whole.");
    assert!(page.offers("/pause") && page.offers("/block") && !page.offers("/block-everything"));
    let asked = visitor.page("/pause").await.found();
    let until = [("reason", "wrong prices"), ("lasting", ""), ("until", "2099-01-31 08:00")];
    let done = visitor.send(&asked, "/pause", &until).await.found();
    done.says("The whole canvas is paused until 2099-01-31 08:00:00 UTC")
        .says("wrong prices")
        .says("key:tests");
    visitor.page("/handlers").await.found().says("Stopped as a whole").says("wrong prices");
    visitor.page("/handlers/WORKER/greet").await.found().says("the whole canvas").says("wrong prices");
    visitor.page("/pause").await.found().says("Change reason and end").says("value=\"wrong prices\"");

    let asked = visitor.page("/block").await.found();
    let done = visitor.send(&asked, "/block", &[("lasting", "3600")]).await.found();
    done.says("The whole canvas is blocked until 20").says("It is paused as well.");
    let expected =
        [("block", "canvas"), ("pause", "canvas")].map(|(kind, stops)| (kind.to_owned(), stops.to_owned()));
    assert_eq!(switches(&service, &service.key, CanvasId::DEFAULT).await, expected);
    let page = visitor.page("/switches").await.found();
    visitor.send(&page, "/unpause", &[]).await.found().says("is lifted").says("It is still blocked.");
    visitor.send(&page, "/unblock", &[]).await.found().says("The block of the whole canvas is lifted");
    assert_eq!(switches(&service, &service.key, CanvasId::DEFAULT).await, []);
    visitor.send(&page, "/unblock", &[]).await.found().says("There was no block of the whole canvas.");
}

#[tokio::test]
async fn everything_is_blocked_by_an_admin_of_every_canvas() {
    let service = Service::start().await;
    let key = service.wide_key("wide", &Scope::ALL).await;
    let wide = Visitor::with_key(&service, &key).await;
    assert!(wide.page("/switches").await.found().offers("/block-everything"));
    let asked = wide.page("/block-everything").await.found();
    asked.says("every tenant");
    let done =
        wide.send(&asked, "/block-everything", &[("reason", "the provider bills twice")]).await.found();
    done.says("Everything is blocked until somebody lifts it").says("the provider bills twice");
    for canvas in [CanvasId::DEFAULT, OTHER] {
        assert_eq!(switches(&service, &key, canvas).await, [("block".to_owned(), "everything".to_owned())]);
    }
    let tenant = Visitor::with_key(&service, &service.key).await;
    let page = tenant.page("/switches").await.found();
    page.says("the provider bills twice");
    assert!(!page.offers("/unblock-everything"));
    assert_eq!(tenant.page("/block-everything").await.status, StatusCode::FORBIDDEN);
    let token = tenant.page("/pause").await.form("/pause").token();
    let path = on_canvas(CanvasId::DEFAULT, "/unblock-everything");
    assert_eq!(tenant.post(&path, &[("form_token", &token)]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(switches(&service, &key, OTHER).await.len(), 1);
    let page = wide.page("/switches").await.found();
    wide.send(&page, "/unblock-everything", &[]).await.found().says("The block of everything is lifted");
    assert_eq!(switches(&service, &key, OTHER).await, []);
}

#[tokio::test]
async fn without_rights_nothing_is_offered_or_stopped() {
    let service = Service::start().await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let operator = service.key("ada", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    let reader = Visitor::with_key(&service, &reader).await;
    let operator = Visitor::with_key(&service, &operator).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let page = reader.page("/switches").await.found();
    assert!(!page.offers("/pause") && !page.offers("/block") && !page.offers("/block-everything"));
    let page = operator.page("/switches").await.found();
    assert!(page.offers("/pause") && !page.offers("/block"));
    let token = operator.page("/pause").await.form("/pause").token();
    for verb in ["block", "unblock", "block-everything", "unblock-everything"] {
        let path = on_canvas(CanvasId::DEFAULT, &format!("/{verb}"));
        let refused = operator.post(&path, &[("form_token", &token)]).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{verb}");
    }
    for verb in ["pause", "unpause", "block", "unblock", "block-everything", "unblock-everything"] {
        let path = on_canvas(CanvasId::DEFAULT, &format!("/{verb}"));
        assert_eq!(reader.post(&path, &[]).await.status, StatusCode::FORBIDDEN, "{verb}");
        assert_eq!(theirs.post(&path, &[]).await.status, StatusCode::NOT_FOUND, "{verb}");
    }
    for (visitor, status) in [(&reader, StatusCode::FORBIDDEN), (&theirs, StatusCode::NOT_FOUND)] {
        assert_eq!(visitor.page("/pause").await.status, status);
    }
    assert_eq!(switches(&service, &service.key, CanvasId::DEFAULT).await, []);
}
