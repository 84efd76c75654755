//! Sessions of people: their list, and how each of them ends.

use std::time::Duration;

use reqwest::{Method, Response, StatusCode};
use serde_json::json;
use tokio::time::timeout;
use wakeq::CanvasId;
use wakeq_service::access::{AccessConfig, Clock, Scope};
use wakeq_service::server::HttpConfig;
use wakeq_testbed::wait_while;

use super::visitor::{Visitor, on_canvas};
use crate::support::service::Service;
use crate::support::{OTHER, Statements, TIMEOUT};

/// How long a process remembers that a session is open.
const REMEMBERED: Duration = Duration::from_secs(30);
/// How long a page may be watched.
const LONG: Duration = Duration::from_secs(600);

/// With the clock by which a process forgets.
async fn with_clock() -> (Service, Clock) {
    let clock = Clock::default();
    let access = AccessConfig { clock: clock.clone(), ..AccessConfig::default() };
    let service = Service::with(HttpConfig { access, stranger_rate: 10_000, ..HttpConfig::default() }).await;
    (service, clock)
}

/// Somebody who has copied the cookie.
fn copy_of(service: &Service, visitor: &Visitor) -> Visitor {
    let copy = Visitor::stranger(service);
    copy.set_cookie("wakeq_session", &visitor.cookie("wakeq_session").unwrap());
    copy
}

async fn is_signed_in(visitor: &Visitor) -> bool {
    !visitor.page("").await.path.starts_with("/sign-in")
}

async fn next(stream: &mut Response) -> Option<String> {
    let chunk = timeout(TIMEOUT, stream.chunk()).await.expect("neither an event nor the end");
    chunk.ok()?.map(|chunk| String::from_utf8_lossy(&chunk).into_owned())
}

#[tokio::test]
async fn a_session_that_was_signed_out_is_over_for_every_copy() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let (copy, other) = (copy_of(&service, &visitor), Visitor::with_key(&service, &service.key).await);
    let token = visitor.get("/sessions").await.found().form("/end-others").token();
    assert!(is_signed_in(&copy).await);
    visitor.post("/sign-out", &[]).await.found();
    assert!(!is_signed_in(&copy).await);
    let form = copy.post("/sessions/end-others", &[("form_token", token.as_str())]).await;
    assert!(form.path.starts_with("/sign-in"), "a form of it is of no use: {}", form.path);
    assert!(is_signed_in(&other).await, "another session of the key");
}

#[tokio::test]
async fn signing_in_again_ends_the_session_before() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let copy = copy_of(&service, &visitor);
    assert!(is_signed_in(&copy).await);
    visitor.post("/sign-in", &[("key", "wakeq_nonsense")]).await;
    assert!(is_signed_in(&copy).await, "it did not succeed");
    visitor.post("/sign-in", &[("key", service.key.as_str())]).await.found();
    assert!(is_signed_in(&visitor).await && !is_signed_in(&copy).await);
}

#[tokio::test]
async fn a_session_ends_when_no_page_is_opened_for_an_hour() {
    let (service, clock) = with_clock().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let pool = &service.stage.pool;
    pool.run("update wakeq.page_sessions set seen_at = now() - interval '59 minutes'").await;
    clock.advance(REMEMBERED);
    assert!(is_signed_in(&visitor).await);
    let seen = "select count(*) from wakeq.page_sessions where seen_at > now() - interval '5 minutes'";
    wait_while!(pool.value::<i64>(seen).await == 0, "the use was not recorded");
    pool.run("update wakeq.page_sessions set seen_at = now() - interval '61 minutes'").await;
    clock.advance(REMEMBERED);
    assert!(!is_signed_in(&visitor).await);
    let again = Visitor::with_key(&service, &service.key).await;
    assert!(is_signed_in(&again).await);
    assert_eq!(pool.value::<i64>("select count(*) from wakeq.page_sessions").await, 1, "the old one is gone");
}

/// A page that is left open asks again and again by itself.
#[tokio::test]
async fn watching_keeps_no_session_from_ending() {
    let (service, clock) = with_clock().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let path = on_canvas(CanvasId::DEFAULT, "/switches");
    let watch = visitor.request(Method::GET, &path).header("accept", "text/event-stream").timeout(LONG);
    let mut stream = watch.send().await.unwrap();
    assert_eq!(stream.headers()["cache-control"], "no-store");
    next(&mut stream).await.expect("the page as it is");
    let pool = &service.stage.pool;
    pool.run("update wakeq.page_sessions set seen_at = now() - interval '59 minutes'").await;
    clock.advance(REMEMBERED);
    service.put("/pause", json!({"reason": "a quiet hour"})).await;
    while !next(&mut stream).await.expect("the page as it is now").contains("a quiet hour") {}
    let unseen = "select count(*) from wakeq.page_sessions where seen_at < now() - interval '58 minutes'";
    assert_eq!(pool.value::<i64>(unseen).await, 1);
    pool.run("update wakeq.page_sessions set seen_at = now() - interval '61 minutes'").await;
    clock.advance(REMEMBERED);
    while next(&mut stream).await.is_some() {}
    assert!(!is_signed_in(&visitor).await);
}

#[tokio::test]
async fn people_see_and_end_their_own_sessions() {
    let service = Service::start().await;
    let first = Visitor::with_key(&service, &service.key).await;
    let second = Visitor::stranger(&service).sending("user-agent", "Firefox <b>9");
    second.post("/sign-in", &[("key", service.key.as_str())]).await.found();
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let theirs_in = Visitor::stranger(&service).sending("user-agent", "of another tenant");
    theirs_in.post("/sign-in", &[("key", theirs.as_str())]).await.found();

    let list = first.get("/sessions").await.found();
    list.says("this one").says("Firefox &lt;b&gt;9").says("127.0.0.1").says_nothing_of("another tenant");
    let done = first.send(&list, "/end", &[]).await.found();
    done.says("The session has ended.").says_nothing_of("Firefox");
    assert!(is_signed_in(&first).await && !is_signed_in(&second).await);

    let id = "select id::text from wakeq.page_sessions where browser = 'of another tenant'";
    let id: String = service.stage.pool.value(id).await;
    let end = format!("/sessions/{id}/end");
    let token = list.form("/end-others").token();
    assert_eq!(first.post(&end, &[("form_token", token.as_str())]).await.status, StatusCode::NOT_FOUND);
    let third = Visitor::with_key(&service, &service.key).await;
    assert_eq!(first.post("/sessions/end-others", &[]).await.status, StatusCode::FORBIDDEN, "no token");
    assert!(is_signed_in(&third).await);
    let list = first.get("/sessions").await.found();
    first.send(&list, "/end-others", &[]).await.found().says("1 other session has ended.");
    assert!(is_signed_in(&first).await && !is_signed_in(&third).await);
    theirs_in.get(&on_canvas(OTHER, "")).await.found().says("key:theirs");
    let unknown = first.post("/sessions/nonsense/end", &[("form_token", token.as_str())]).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

/// Another process learns within the cache's time what was ended here.
#[tokio::test]
async fn a_key_has_fifty_sessions_of_which_the_least_used_ends() {
    let (service, clock) = with_clock().await;
    let oldest = Visitor::with_key(&service, &service.key).await;
    let more = "insert into wakeq.page_sessions (id, owner, ends_at, address, browser, seen_at)
        select gen_random_uuid(), owner, ends_at, address, browser, seen_at + n * interval '1 second'
          from wakeq.page_sessions, generate_series(1, 49) n";
    service.stage.pool.run(more).await;
    let newest = Visitor::with_key(&service, &service.key).await;
    let count = "select count(*) from wakeq.page_sessions";
    assert_eq!(service.stage.pool.value::<i64>(count).await, 50);
    clock.advance(REMEMBERED);
    assert!(!is_signed_in(&oldest).await && is_signed_in(&newest).await);
}
