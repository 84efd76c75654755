//! Parts of pages, which a script puts in place of others: with the rights of the page, and with
//! nothing around them.

use reqwest::StatusCode;
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

/// The same person's script.
async fn script(service: &Service, key: &str) -> Visitor {
    asking(Visitor::with_key(service, key).await)
}

fn asking(visitor: Visitor) -> Visitor {
    visitor.sending("hx-request", "true").sending("hx-target", "results")
}

async fn emitted(service: &Service, name: &str) -> String {
    let answer = service.post("/events", json!({"name": name, "value": 1})).await;
    answer.json()["id"].as_str().unwrap().to_owned()
}

// Shows: EV2-09
#[tokio::test]
async fn a_filter_is_answered_with_the_part_that_it_decides_about() {
    let service = Service::start().await;
    let (mine, other) = (emitted(&service, "mail").await, emitted(&service, "print").await);
    let whole = Visitor::with_key(&service, &service.key).await.page("/events?name=mail").await.found();
    whole.says("<html").says("id=\"results\"").says("<form class=\"filter\"").says(&mine);
    whole.says("hx-target=\"#results\"").says_nothing_of(&other);
    let script = script(&service, &service.key).await;
    let part = script.page("/events?name=mail").await.found();
    part.says("<title>Events · wakeq</title>").says("id=\"live\"").says(&mine).says_nothing_of(&other);
    for around in ["<html", "<nav id", "id=\"results\"", "<form class=\"filter\""] {
        part.says_nothing_of(around);
    }
    // What is all that matches, and what is done with it, follows the filter.
    part.says("operations/new?kind=cancel&amp;name=mail");
    assert!(part.headers.contains_key("content-security-policy"));
}

#[tokio::test]
async fn a_part_has_the_rights_of_its_page() {
    let service = Service::start().await;
    let mine = emitted(&service, "mail").await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let reading = script(&service, &reader).await;
    let part = reading.page("/events?name=mail").await.found();
    part.says(&mine).says_nothing_of("id=\"selection\"").says_nothing_of("operations/new");
    assert_eq!(reading.get(&on_canvas(OTHER, "/events")).await.status, StatusCode::NOT_FOUND);
    let neighbour = service.key("neighbour", OTHER, &[Scope::Read]).await;
    let theirs = script(&service, &neighbour).await;
    assert_eq!(theirs.page("/events?name=mail").await.status, StatusCode::NOT_FOUND);
    theirs.get(&on_canvas(OTHER, "/events?name=mail")).await.found().says_nothing_of(&mine);
    let emitter = service.key("emitter", CanvasId::DEFAULT, &[Scope::Emit]).await;
    let refused = script(&service, &emitter).await.page("/events?name=mail").await;
    assert!(refused.status.is_client_error(), "{}", refused.status);
    refused.says_nothing_of(&mine);
}

/// A redirect would be followed for the script, which then had a document to put into its own.
#[tokio::test]
async fn a_script_is_told_where_the_browser_goes() {
    let service = Service::start().await;
    let mine = emitted(&service, "mail").await;
    let told = script(&service, &service.key).await.page(&format!("/events?name=mail&id={mine}")).await;
    assert_eq!(told.status, StatusCode::NO_CONTENT);
    assert_eq!(told.headers["hx-redirect"], on_canvas(CanvasId::DEFAULT, &format!("/events/{mine}")));
    let stranger = asking(Visitor::stranger(&service)).page("/events?name=mail").await;
    assert_eq!(stranger.status, StatusCode::NO_CONTENT);
    let to = stranger.headers["hx-redirect"].to_str().unwrap();
    assert!(to.starts_with("/sign-in?next=%2Fcanvases%2F") && to.ends_with("events%3Fname%3Dmail"), "{to}");
}
