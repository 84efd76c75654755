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

#[tokio::test]
async fn the_log_is_shown_to_readers_of_its_canvas() {
    let service = filled().await;
    let theirs = service.key("theirs", OTHER, &[Scope::Read]).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    assert_eq!(theirs.page("/log").await.status, StatusCode::NOT_FOUND);
    let own = theirs.get(&on_canvas(OTHER, "/log")).await.found();
    own.says("theirs-only").says_nothing_of("opened-").says_nothing_of("renamed");
    let operator = service.key("operator", CanvasId::DEFAULT, &[Scope::Operate]).await;
    let operator = Visitor::with_key(&service, &operator).await;
    let refused = operator.page("/log").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    refused.says_nothing_of("opened-");
}
