//! Who gets in, and how a session ends.

use std::sync::Arc;

use reqwest::StatusCode;
use wakeq::testing::MemoryNotifier;
use wakeq::{CanvasId, StoreConfig};
use wakeq_service::access::{ApiKey, Scope};
use wakeq_service::server::HttpConfig;

use super::visitor::{Visitor, on_canvas};
use crate::support::service::Service;
use crate::support::{OTHER, Statements};

#[tokio::test]
async fn a_page_is_shown_after_signing_in_with_a_key() {
    let service = Service::start().await;
    let visitor = Visitor::stranger(&service);
    let shown = visitor.page("/events?state=ready").await.found();
    assert!(shown.path.starts_with("/sign-in?next="), "{}", shown.path);
    let refused = visitor.send(&shown, "/sign-in", &[("key", "wakeq_nonsense")]).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    refused.says("This is not a key.");
    let other = format!("wakeq_0123456789ab_{}", "5".repeat(80));
    visitor.send(&shown, "/sign-in", &[("key", &other)]).await.says("not valid here");
    let signed_in = visitor.send(&shown, "/sign-in", &[("key", &service.key)]).await.found();
    assert_eq!(signed_in.path, on_canvas(CanvasId::DEFAULT, "/events?state=ready"));
    signed_in.says("Signed in as").says("key:tests").says_nothing_of(&service.key);
    let policy = signed_in.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let first = visitor.get("/").await.found();
    assert_eq!(first.path, on_canvas(CanvasId::DEFAULT, ""));
    visitor.post("/sign-out", &[]).await.found();
    assert!(visitor.page("").await.path.starts_with("/sign-in"));
}

#[tokio::test]
async fn a_session_ends_with_its_key_and_cannot_be_made_up() {
    let service = Service::start().await;
    let key = service.key("ada", CanvasId::DEFAULT, &[Scope::Read]).await;
    let visitor = Visitor::with_key(&service, &key).await;
    let session = visitor.cookie("wakeq_session").unwrap();
    assert!(!session.contains(&key), "the key is not in the cookie");
    let id = ApiKey::parse(&key).unwrap().id();
    let revoke = format!("/keys/{id}");
    let revoked = service.admin(reqwest::Method::DELETE, &revoke, serde_json::Value::Null).await;
    assert!(revoked.status.is_success(), "{revoked:?}");
    assert!(visitor.page("").await.path.starts_with("/sign-in"));
    let forger = Visitor::stranger(&service);
    for cookie in ["", "x", &session[1..], &format!("{session}A"), &key] {
        forger.set_cookie("wakeq_session", cookie);
        assert!(forger.page("").await.path.starts_with("/sign-in"), "{cookie}");
    }
}

#[tokio::test]
async fn a_link_signs_in_once() {
    let service = Service::start().await;
    let visitor = Visitor::stranger(&service);
    let key = ApiKey::parse(&service.key).unwrap();
    // As the process does that prints it.
    let link = service.access.sign_in_link(&key).await.unwrap();
    let path = format!("/sign-in?link={link}");
    assert_eq!(visitor.get(&path).await.found().path, on_canvas(CanvasId::DEFAULT, ""));
    let again = Visitor::stranger(&service);
    let refused = again.get(&path).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    refused.says("used before or is too old");
    again.set_cookie("wakeq_session", &link);
    assert!(again.page("").await.path.starts_with("/sign-in"), "a link is no session");
}

#[tokio::test]
async fn a_link_that_was_used_in_one_process_signs_in_at_no_other() {
    let service = Service::start().await;
    let key = ApiKey::parse(&service.key).unwrap();
    let link = service.access.sign_in_link(&key).await.unwrap();
    let path = format!("/sign-in?link={link}");
    Visitor::stranger(&service).get(&path).await.found();
    let stage = service.stop().await;
    let url = stage.database.url().to_owned();
    let config = HttpConfig { stranger_rate: 10_000, ..HttpConfig::default() };
    let notifier = Arc::new(MemoryNotifier::new());
    let service = Service::through(stage, &url, notifier, StoreConfig::default(), config).await;
    let refused = Visitor::stranger(&service).get(&path).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    refused.says("used before or is too old");
    let count = "select count(*) from wakeq.page_sessions";
    assert_eq!(service.stage.pool.value::<i64>(count).await, 1);
}

#[tokio::test]
async fn a_canvas_is_shown_to_those_with_rights_on_it() {
    let service = Service::start().await;
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    let visitor = Visitor::with_key(&service, &theirs).await;
    assert_eq!(visitor.get("/").await.found().path, on_canvas(OTHER, ""));
    for path in ["", "/events", "/events/018f0000-0000-7000-8000-000000000000"] {
        let refused = visitor.page(path).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{path}");
        refused.says("no rights on this canvas");
    }
    let wide = service.wide_key("operator", &[Scope::Read]).await;
    let operator = Visitor::with_key(&service, &wide).await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        operator.get(&on_canvas(canvas, "/events")).await.found();
    }
    let gone = operator.get(&format!("/go?canvas={OTHER}")).await.found();
    assert_eq!(gone.path, on_canvas(OTHER, ""));
    assert_eq!(operator.get("/canvases/nonsense").await.status, StatusCode::BAD_REQUEST);
}
