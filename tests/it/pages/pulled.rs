//! Pages about handlers whose events programs lease.

use reqwest::StatusCode;
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::{Service, has};

const PULL: &str = "/handlers/WORKER/render/pull";

#[tokio::test]
async fn a_handler_is_pulled_changed_and_pulled_no_more() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let list = visitor.page("/pulled-handlers").await.found();
    list.says("No handler is pulled.");
    let new = [("module", ""), ("handler", "render"), ("retries", "5"), ("delay_max_s", "60.5")];
    let made = visitor.send(&list, "/pulled-handlers", &new).await.found();
    made.says("Programs can lease its events from now on.").says("5, the first after");
    let pulled = service.get(PULL).await.json();
    has(&pulled["policy"], json!({"retries": 5, "delay_s": 60.5, "factor": 1, "delay_max_s": 60.5}));
    let taken = visitor.send(&list, "/pulled-handlers", &new).await;
    assert_eq!(taken.status, StatusCode::CONFLICT);
    taken.says("WORKER/render is pulled already");
    visitor.page("/pulled-handlers").await.found().says("/pulled-handlers/WORKER/render\"");

    for value in 0..2 {
        service.post("/events", json!({"name": "render", "value": value})).await.json();
    }
    service.post("/handlers/WORKER/render/leases", json!({})).await.json();
    let change = [("retries", "1"), ("factor", "2"), ("on_death", "halt")];
    let changed = visitor.send(&made, "/pulled-handlers/WORKER/render", &change).await.found();
    changed.says("It was changed.");
    let pulled = service.get(PULL).await.json();
    has(&pulled["policy"], json!({"retries": 1, "delay_s": 300.0, "factor": 2, "on_death": "halt"}));
    let wrong = visitor.send(&made, "/pulled-handlers/WORKER/render", &[("retries", "many")]).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    wrong.says("the number of retries is not such a number");

    let asked = visitor.page("/pulled-handlers/WORKER/render/delete").await.found();
    asked.says("Stop pulling WORKER/render? It has 1 leased event, which can't be completed any more.");
    let stopped = visitor.send(&asked, "/delete", &[]).await.found();
    stopped.says("Workers and targets receive the events of WORKER/render again.");
    stopped.says("No handler is pulled.");
    assert_eq!(service.get(PULL).await.problem().0, 404);
}

#[tokio::test]
async fn what_is_leased_and_what_waits_is_counted() {
    let service = Service::start().await;
    service.put(PULL, json!({})).await.json();
    for value in 0..3 {
        service.post("/events", json!({"name": "render", "value": value})).await.json();
    }
    service.post("/handlers/WORKER/render/leases", json!({"worker": "painter-7"})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    visitor.page("/pulled-handlers").await.found().says("Programs at work").says("painter-7");
    let page = visitor.page("/pulled-handlers/WORKER/render").await.found();
    for tile in [">1</span><span class=\"label\">leased now<", ">2</span><span class=\"label\">waiting to be"]
    {
        page.says(tile);
    }
    assert_eq!(visitor.page("/pulled-handlers/WORKER/none").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn only_those_with_rights_are_shown_controls_and_obeyed() {
    let service = Service::start().await;
    service.put(PULL, json!({})).await.json();
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let owner = Visitor::with_key(&service, &service.key).await;
    let token = owner.page("/pulled-handlers").await.form("/pulled-handlers").token();
    for path in ["", "/WORKER/render", "/WORKER/render/delete"].map(|path| format!("/pulled-handlers{path}"))
    {
        let page = reader.page(&path).await;
        let status = if path.ends_with("/delete") { StatusCode::FORBIDDEN } else { StatusCode::OK };
        assert_eq!(page.status, status, "{path}");
        page.says_nothing_of("<details");
        assert!(!page.offers("/render/delete"), "{path}");
        assert_eq!(theirs.page(&path).await.status, StatusCode::NOT_FOUND, "{path}");
        let post = on_canvas(CanvasId::DEFAULT, &path);
        let form = [("form_token", token.as_str()), ("handler", "mail")];
        assert_eq!(reader.post(&post, &form).await.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(theirs.post(&post, &form).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let list = service.get("/pulled-handlers").await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    let elsewhere = theirs.get(&on_canvas(OTHER, "/pulled-handlers/WORKER/render")).await;
    assert_eq!(elsewhere.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn pulled_handlers_are_listed_page_by_page() {
    let service = Service::start().await;
    for number in 0..101 {
        service.put(&format!("/handlers/WORKER/h{number:03}/pull"), json!({})).await.json();
    }
    let visitor = Visitor::with_key(&service, &service.key).await;
    let first = visitor.page("/pulled-handlers").await.found();
    first.says("WORKER/h000").says("WORKER/h099").says_nothing_of("WORKER/h100");
    let next = visitor.page(&format!("/pulled-handlers{}", first.next_page())).await.found();
    next.says("WORKER/h100").says("First page").says_nothing_of("WORKER/h099");
}
