//! The page of the log.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

/// A number that is shown exactly only if it is shown as it was written.
const LARGE: u64 = 12_345_678_901_234_567_890;

fn appends(category: &str, stream: &str, events: Vec<Value>) -> Value {
    json!({"appends": [{"category": category, "stream": stream, "events": events}]})
}

/// 101 events of an account, one of another category, and one of another tenant.
async fn filled() -> Service {
    let service = Service::start().await;
    let opened = |n: usize| json!({"name": format!("opened-{n}."), "payload": {"n": LARGE, "of": n}});
    service.post("/log", appends("accounts", "account-7", (1..=101).map(opened).collect())).await.json();
    let evil =
        json!({"name": "renamed", "payload": "<script>alert(1)</script>", "metadata": {"by": "<b>ada"}});
    service.post("/log", appends("companies", "acme", vec![evil])).await.json();
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let of_others = appends("accounts", "account-7", vec![json!({"name": "theirs-only"})]);
    let path = format!("/canvases/{OTHER}/log");
    service.ask(&theirs, Method::POST, &path, of_others).await.json();
    service
}

#[tokio::test]
async fn the_log_is_read_page_by_page_and_filtered() {
    let service = filled().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let first = visitor.page("/log").await.found();
    first.says("opened-1.").says("12345678901234567890").says("account-7").says_nothing_of("opened-101.");
    let second = visitor.page(&format!("/log{}", first.next_page())).await.found();
    second.says("opened-101.").says("renamed").says_nothing_of("opened-1.<").says_nothing_of("theirs-only");
    second.says("This is the end for now.").says_nothing_of("<script>alert").says_nothing_of("<b>ada");
    let companies = visitor.page("/log?category=companies&stream=").await.found();
    companies.says("renamed").says("acme").says_nothing_of("opened-");
    let stream = visitor.page("/log?category=accounts&stream=account-7").await.found();
    let rest = visitor.page(&format!("/log{}", stream.next_page())).await.found();
    rest.says("opened-101.").says_nothing_of("renamed").says_nothing_of("theirs-only");
    visitor.page("/log?category=nothing").await.found().says("Nothing was appended there");
    let half = visitor.page("/log?stream=acme").await;
    assert_eq!(half.status, StatusCode::BAD_REQUEST);
    half.says("give both");
    assert_eq!(visitor.page("/log?after=x").await.status, StatusCode::BAD_REQUEST);
}

/// A reader who knows no name goes from the categories to the streams of one, and on to its events.
#[tokio::test]
async fn categories_and_streams_are_listed_by_name() {
    let service = filled().await;
    let own = |n: usize| {
        let events = json!([{"name": "opened"}]);
        json!({"category": "sessions", "stream": format!("s-{n:03}"), "events": events})
    };
    let many = json!({"appends": (1..=101).map(own).collect::<Vec<_>>()});
    service.post("/log", many).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    assert!(visitor.page("/log").await.found().offers("/log/categories"));
    let categories = visitor.page("/log/categories").await.found();
    for category in ["accounts", "companies", "sessions"] {
        assert!(categories.offers(&format!("/log/streams?category={category}")), "{category}");
        assert!(categories.offers(&format!("/log?category={category}")), "{category}");
    }
    let streams = visitor.page("/log/streams?category=sessions").await.found();
    streams.says(">s-001<").says(">s-100<").says_nothing_of("s-101").says_nothing_of("account-7");
    assert!(streams.offers("/log?category=sessions&amp;stream=s-001"));
    let rest = visitor.page(&format!("/log/streams{}", streams.next_page())).await.found();
    rest.says(">s-101<").says_nothing_of("s-100").says_nothing_of("Next page");
    let accounts = visitor.page("/log?category=accounts").await.found();
    assert!(accounts.offers("/log/streams?category=accounts"));
    visitor.page("/log/streams?category=nothing").await.found().says("There is no stream of this category");
    let evil = visitor.page("/log/streams?category=%3Cscript%3Ealert").await;
    assert_eq!(evil.status, StatusCode::BAD_REQUEST);
    evil.says_nothing_of("<script>alert");
}

#[tokio::test]
async fn the_log_is_shown_to_readers_of_its_canvas() {
    let service = filled().await;
    let theirs = service.key("theirs", OTHER, &[Scope::Read]).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    assert_eq!(theirs.page("/log").await.status, StatusCode::NOT_FOUND);
    let own = theirs.get(&on_canvas(OTHER, "/log")).await.found();
    own.says("theirs-only").says_nothing_of("opened-").says_nothing_of("renamed");
    for path in ["/log/categories", "/log/streams?category=accounts"] {
        assert_eq!(theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
        let own = theirs.get(&on_canvas(OTHER, path)).await.found();
        own.says("account").says_nothing_of("companies");
    }
    let operator = service.key("operator", CanvasId::DEFAULT, &[Scope::Operate]).await;
    let operator = Visitor::with_key(&service, &operator).await;
    let refused = operator.page("/log").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    refused.says_nothing_of("opened-");
    for path in ["/log/categories", "/log/streams?category=accounts"] {
        assert_eq!(operator.page(path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
}
