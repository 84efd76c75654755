//! What hostile requests to pages can't do.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;
use wakeq::{Actor, CanvasId};
use wakeq_service::access::{ApiKey, NewKey, Reach, Scope};
use wakeq_service::server::HttpConfig;
use wakeq_testbed::wait_while;

use super::visitor::{Visitor, on_canvas};
use crate::support::service::{Answer, Service};
use crate::support::{OTHER, Statements, TIMEOUT};

const SITE: &str = "sec-fetch-site";
/// What a browser accepts that loads a page.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
/// How long a page may be watched.
const LONG: Duration = Duration::from_secs(600);

async fn answer(request: RequestBuilder) -> Answer {
    Answer::of(request).await
}

/// Whether one of many requests at once is refused: one after the other they may be slower than the
/// rate.
async fn one_is_refused(ask: impl AsyncFn() -> StatusCode) -> bool {
    join_all((0..20).map(|_| ask())).await.contains(&StatusCode::TOO_MANY_REQUESTS)
}

async fn delayed_event(service: &Service) -> String {
    let event = json!({"name": "mail", "value": 1, "delay_s": 3600});
    service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned()
}

/// Another site can send a form with a browser's cookies at most. It has neither the field of the
/// session nor the browser's word that the form is ours.
#[tokio::test]
async fn a_form_of_another_site_changes_nothing() {
    let service = Service::start().await;
    let id = delayed_event(&service).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page(&format!("/events/{id}")).await.found();
    let token = page.form("/run-now").token();
    let path = on_canvas(CanvasId::DEFAULT, &format!("/events/{id}/run-now"));
    let form = "application/x-www-form-urlencoded";
    let send = |body: String| visitor.request(Method::POST, &path).header("content-type", form).body(body);
    let whole = format!("form_token={token}");
    for site in ["cross-site", "same-site"] {
        assert_eq!(
            answer(send(whole.clone()).header(SITE, site)).await.status,
            StatusCode::FORBIDDEN,
            "{site}"
        );
    }
    let other = Visitor::with_key(&service, &service.key).await;
    let others = other.page(&format!("/events/{id}")).await.found().form("/run-now").token();
    for body in [String::new(), "form_token=".into(), format!("form_token={others}"), format!("x={token}")] {
        assert_eq!(answer(send(body.clone())).await.status, StatusCode::FORBIDDEN, "{body}");
    }
    visitor.page(&format!("/events/{id}")).await.found().says("delayed");
    let done = answer(send(whole).header(SITE, "same-origin")).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
}

/// A form is sent once, also if it asks for a stream.
#[tokio::test]
async fn a_form_is_not_watched() {
    let service = Service::start().await;
    let id = delayed_event(&service).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let token = visitor.page(&format!("/events/{id}")).await.found().form("/run-now").token();
    let path = on_canvas(CanvasId::DEFAULT, &format!("/events/{id}/run-now"));
    let request = visitor.request(Method::POST, &path).header("accept", "text/event-stream");
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    let done = answer(request.body(format!("form_token={token}"))).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
    let head =
        visitor.request(Method::HEAD, &path.replace("/run-now", "")).header("accept", "text/event-stream");
    let head = answer(head).await;
    assert_eq!((head.status, head.text.as_str()), (StatusCode::OK, ""));
    assert_eq!(head.headers["content-type"], "text/html; charset=utf-8");
}

/// A form that is too large is refused, whoever sends it.
#[tokio::test]
async fn a_form_has_a_size() {
    let config = HttpConfig { body_limit_bytes: 16 * 1024, stranger_rate: 10_000, ..HttpConfig::default() };
    let service = Service::with(config).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let large = "x".repeat(4 * 16 * 1024);
    let refused = visitor.post(&on_canvas(CanvasId::DEFAULT, "/keys"), &[("holder", large.as_str())]).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    refused.says("larger than 65536 bytes");
    let refused = Visitor::stranger(&service).post("/sign-in", &[("key", &large[..20_000])]).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    refused.says("larger than 16384 bytes");
}

/// A form with more fields than any of ours has is refused before they are read, and one whose
/// fields can't be read is told so.
#[tokio::test]
async fn a_form_has_a_number_of_fields() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let token = visitor.page("/new-event").await.found().form("/new-event").token();
    let path = on_canvas(CanvasId::DEFAULT, "/new-event");
    let mut fields = vec![("form_token", token.as_str()), ("name", "mail")];
    fields.resize(200, ("x", ""));
    let within = visitor.post(&path, &fields).await.found();
    within.says("The event was emitted.");
    fields.push(("x", ""));
    let refused = visitor.post(&path, &fields).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    refused.says("more than 200 fields");
    assert_eq!(service.stage.pool.value::<i64>("select count(*) from wakeq.events_v2").await, 1);
    let path = on_canvas(CanvasId::DEFAULT, "/operations");
    let twice = [("operation", "{}"), ("operation", "{}")];
    for operations in [&twice[..0], &twice[..]] {
        let form = [&[("form_token", token.as_str())][..], operations].concat();
        let refused = visitor.post(&path, &form).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{operations:?}");
        refused.says("a field of this form is missing").says("Signed in as");
    }
}

/// The stream of a page ends with the session's key, and nothing is sent after that.
#[tokio::test]
async fn nobody_watches_after_a_revocation() {
    let service = Service::start().await;
    service.post("/events", json!({"name": "mail", "value": 1})).await.json();
    let reason = json!({"reason": "line one\r\nline two\rline three"});
    let paused = service.put("/handlers/WORKER/mail/pause", reason).await;
    assert!(paused.status.is_success(), "{}", paused.text);
    let key = service.key("ada", CanvasId::DEFAULT, &[Scope::Read]).await;
    let visitor = Visitor::with_key(&service, &key).await;
    let path = on_canvas(CanvasId::DEFAULT, "");
    let watch = visitor.request(Method::GET, &path).header("accept", "text/event-stream").timeout(LONG);
    let mut stream = watch.send().await.unwrap();
    assert_eq!(stream.status(), StatusCode::OK);
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut event = String::new();
    while !event.contains("\n\n") {
        event.push_str(&next(&mut stream).await.expect("the page as it is"));
    }
    assert!(event.starts_with("event: live\ndata: ") && event.contains("line two"), "{event}");
    let (event, _) = event.split_once("\n\n").unwrap();
    let is_field = |line: &str| line == "event: live" || line.starts_with("data:");
    assert!(
        event.lines().all(is_field) && !event.contains('\r'),
        "what tenants write makes no field: {event}"
    );

    let id = ApiKey::parse(&key).unwrap().id();
    let revoked = service.admin(Method::DELETE, &format!("/keys/{id}"), Value::Null).await;
    assert_eq!(revoked.status, StatusCode::NO_CONTENT);
    while next(&mut stream).await.is_some() {}
    let again = visitor.request(Method::GET, &path).header("accept", "text/event-stream");
    assert_eq!(answer(again).await.status, StatusCode::SEE_OTHER, "to the way to sign in");
}

/// What comes next; `None` at the end.
async fn next(stream: &mut Response) -> Option<String> {
    let chunk = timeout(TIMEOUT, stream.chunk()).await.expect("neither an event nor the end");
    chunk.ok()?.map(|chunk| String::from_utf8_lossy(&chunk).into_owned())
}

/// A link that another site leads to opens no session by itself, nor does one that is only looked
/// at.
#[tokio::test]
async fn another_site_signs_nobody_in() {
    let service = Service::start().await;
    let key = ApiKey::parse(&service.key).unwrap();
    let link = service.access.sign_in_link(&key).await.unwrap();
    let path = format!("/sign-in?link={link}");
    let visitor = Visitor::stranger(&service);
    let looked = answer(visitor.request(Method::HEAD, &path)).await;
    assert!(looked.status.is_success() && !looked.headers.contains_key("set-cookie"));
    let led = answer(visitor.request(Method::GET, &path).header(SITE, "cross-site")).await;
    assert!(led.status.is_success() && !led.headers.contains_key("set-cookie"), "{}", led.text);
    assert!(led.text.contains("if you have asked for it yourself"), "{}", led.text);
    let shown = visitor.get(&path).await;
    assert_eq!(shown.found().path, on_canvas(CanvasId::DEFAULT, ""), "it was not used up");

    let second = service.access.sign_in_link(&key).await.unwrap();
    let other = Visitor::stranger(&service);
    let posted = other.request(Method::POST, "/sign-in").header(SITE, "cross-site");
    let posted = posted.header("content-type", "application/x-www-form-urlencoded");
    let posted = answer(posted.body(format!("link={second}"))).await;
    assert_eq!((posted.status, posted.headers.get("set-cookie")), (StatusCode::FORBIDDEN, None));
    let signed_in = other.post("/sign-in", &[("link", second.as_str())]).await.found();
    assert_eq!(signed_in.path, on_canvas(CanvasId::DEFAULT, ""));
}

/// Over TLS, a cookie of another host of the domain counts for nothing.
#[tokio::test]
async fn a_session_is_taken_from_its_own_cookie_only() {
    let service = Service::start().await;
    let public =
        |visitor: &Visitor, method, path: &str| visitor.request(method, path).header("host", "queue.example");
    let stranger = Visitor::stranger(&service);
    let form = public(&stranger, Method::POST, "/sign-in");
    let form = form.header("content-type", "application/x-www-form-urlencoded");
    let signed_in = answer(form.body(format!("key={}", service.key))).await;
    let cookie = signed_in.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(
        cookie.starts_with("__Host-wakeq_session=") && cookie.ends_with("; SameSite=Strict; Secure"),
        "{cookie}"
    );
    let value = cookie.split(['=', ';']).nth(1).unwrap();
    for (name, status) in [("wakeq_session", StatusCode::SEE_OTHER), ("__Host-wakeq_session", StatusCode::OK)]
    {
        let visitor = Visitor::stranger(&service);
        visitor.set_cookie(name, value);
        let page = answer(public(&visitor, Method::GET, &on_canvas(CanvasId::DEFAULT, ""))).await;
        assert_eq!(page.status, status, "{name}");
    }
}

/// What anybody may see is limited by address, and attempts to sign in are recorded. A person who
/// is signed in is not kept out by what others do from there.
#[tokio::test]
async fn strangers_are_limited_and_recorded() {
    let service = Service::with(HttpConfig { stranger_rate: 1, ..HttpConfig::default() }).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    for path in ["/sign-in", "/", "/assets/x-style.css"] {
        let stranger = Visitor::stranger(&service);
        let ask = async || answer(stranger.request(Method::GET, path)).await.status;
        wait_while!(!one_is_refused(&ask).await, "nothing was refused");
    }
    visitor.page("/events").await.found();
    let style = visitor.page("/events").await.html;
    let style =
        style.split("href=\"").find(|link| link.starts_with("/assets/") && link.contains("style.css"));
    visitor.get(style.unwrap().split('"').next().unwrap()).await.found();
    service.stop().await;

    let service = Service::start().await;
    let wrong = format!("wakeq_0123456789ab_{}", "5".repeat(80));
    let stranger = Visitor::stranger(&service);
    assert_eq!(stranger.post("/sign-in", &[("key", wrong.as_str())]).await.status, StatusCode::UNAUTHORIZED);
    // What was refused is written when a server ends, at the latest.
    let stage = service.stop().await;
    let line = "select coalesce(canvas_id::text, 'none'), action, detail from wakeq.audit_log where outcome = 'refused'";
    let (canvas, action, detail): (String, String, String) = stage.pool.row(line).await;
    assert_eq!((canvas.as_str(), action.as_str()), ("none", "sign-in"));
    assert!(detail.contains("key wakeq_0123456789ab was not made by this deployment"), "{detail}");
    assert!(!detail.contains("5555"), "{detail}");
}

/// A page costs a credential what a request of the API does.
#[tokio::test]
async fn a_credential_has_its_rate_through_pages_too() {
    let service = Service::with(HttpConfig { credential_rate: 1, ..HttpConfig::default() }).await;
    let visitor = Visitor::stranger(&service);
    let form = visitor.request(Method::POST, "/sign-in");
    let form = form.header("content-type", "application/x-www-form-urlencoded");
    let signed_in = answer(form.body(format!("key={}", service.key))).await;
    let cookie = signed_in.headers["set-cookie"].to_str().unwrap();
    visitor.set_cookie("wakeq_session", cookie.split(['=', ';']).nth(1).unwrap());
    let go = format!("/go?canvas={}", CanvasId::DEFAULT);
    let ask = async || answer(visitor.request(Method::GET, &go)).await.status;
    wait_while!(!one_is_refused(&ask).await, "nothing was refused");
}

/// A key for some handlers only is led to its own canvas.
#[tokio::test]
async fn a_narrow_key_begins_on_its_own_canvas() {
    let service = Service::start().await;
    let new = NewKey {
        holder: "narrow".into(),
        reach: Reach::Canvas(OTHER),
        scopes: std::iter::empty::<Scope>().collect(),
        lifetime: None,
    };
    let narrow = ["read:WORKER/mail".parse().unwrap()];
    let key = service.access.create_narrow_key(&new, &narrow, &Actor::admin("tests")).await.unwrap().key;
    let visitor = Visitor::stranger(&service);
    let shown = visitor.post("/sign-in", &[("key", key.reveal().as_str())]).await.found();
    assert_eq!(shown.path, on_canvas(OTHER, ""));
    shown.says("WORKER/mail");
    let whole = visitor.get(&on_canvas(OTHER, "/handlers")).await;
    assert_eq!(whole.status, StatusCode::FORBIDDEN);
    whole.says("was granted for some handlers only");
    assert_eq!(visitor.page("").await.status, StatusCode::NOT_FOUND, "another canvas");
}

/// A browser that has come over TLS once comes over nothing else.
#[tokio::test]
async fn browsers_are_told_to_come_over_tls() {
    let service = Service::start().await;
    let stranger = Visitor::stranger(&service);
    for (proto, told) in [("https", Some("max-age=31536000")), ("http", None)] {
        let ask = |path: &str| stranger.request(Method::GET, path).header("x-forwarded-proto", proto);
        for path in ["/sign-in", "/v1/canvases/nonsense", "/nowhere"] {
            let shown = answer(ask(path)).await;
            let found = shown.headers.get("strict-transport-security").map(|value| value.to_str().unwrap());
            assert_eq!(found, told, "{path}");
        }
    }
    let shown = answer(stranger.request(Method::GET, "/sign-in")).await;
    assert!(!shown.headers.contains_key("strict-transport-security"));
}

/// A form that is refused leads back without scripts, too, and to pages of ours alone.
#[tokio::test]
async fn a_refused_form_leads_back() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let home = on_canvas(CanvasId::DEFAULT, "");
    let path = on_canvas(CanvasId::DEFAULT, "/events/018f0000-0000-7000-8000-000000000000/run-now");
    let token = visitor.page("/hooks").await.found().form("/hooks").token();
    for (from, to) in [
        ("http://127.0.0.1/canvases/x/events?state=ready", "/canvases/x/events?state=ready"),
        ("http://127.0.0.1//evil.example/", home.as_str()),
        ("javascript:alert(1)", home.as_str()),
        ("nonsense", home.as_str()),
    ] {
        let form = visitor.request(Method::POST, &path).header("referer", from);
        let form = form.header("content-type", "application/x-www-form-urlencoded");
        let refused = answer(form.body(format!("form_token={token}"))).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{}", refused.text);
        assert!(refused.text.contains(&format!("href=\"{to}\" data-back")), "{from}: {}", refused.text);
    }
}

/// A browser that loads such an address again is told so in words, too.
#[tokio::test]
async fn an_address_of_forms_is_no_page() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let run_now = on_canvas(CanvasId::DEFAULT, "/events/018f0000-0000-7000-8000-000000000000/run-now");
    for path in [run_now.as_str(), "/sign-out"] {
        let shown = visitor.get(path).await;
        assert_eq!(shown.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        assert_eq!(shown.headers["content-type"], "text/html; charset=utf-8", "{path}");
        shown.says("only forms are sent");
    }
    visitor.page("").await.found();
}

/// A browser is told in a page that there is none, which is the same whoever is signed in. Programs
/// are told as ever.
#[tokio::test]
async fn an_address_that_nothing_is_at_is_a_page_for_browsers() {
    let service = Service::start().await;
    let stranger = Visitor::stranger(&service).sending("accept", BROWSER);
    let visitor = Visitor::with_key(&service, &service.key).await.sending("accept", BROWSER);
    let shown = stranger.get("/nowhere?a=b").await;
    for page in [&shown, &visitor.get("/nowhere?a=b").await, &visitor.get("/canvases").await] {
        assert_eq!((page.status, &page.html), (StatusCode::NOT_FOUND, &shown.html), "{}", page.path);
        for (name, value) in [
            ("content-type", "text/html; charset=utf-8"),
            ("x-frame-options", "DENY"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(page.headers[name], value, "{name}");
        }
        assert!(page.headers.contains_key("content-security-policy"));
    }
    shown.says("there is no page at this address").says("href=\"/\"").says_nothing_of("Signed in as");
    let head = answer(stranger.request(Method::HEAD, "/nowhere")).await;
    assert_eq!((head.status, head.text.as_str()), (StatusCode::NOT_FOUND, ""));
    let words = "this API has no such path";
    for (method, path) in [
        (Method::GET, "/v1/nothing"),
        (Method::GET, "/v1"),
        (Method::POST, "/nowhere"),
        (Method::PUT, "/nowhere"),
    ] {
        answer(visitor.request(method, path)).await.says((404, "not-found"), words);
    }
    answer(service.request(Method::GET, "/nowhere")).await.says((404, "not-found"), words);

    let without = Service::with(HttpConfig { page: false, stranger_rate: 1, ..HttpConfig::default() }).await;
    let asked = Visitor::stranger(&without).sending("accept", BROWSER).request(Method::GET, "/nowhere");
    answer(asked).await.says((404, "not-found"), words);
    let limited = Service::with(HttpConfig { stranger_rate: 1, ..HttpConfig::default() }).await;
    let stranger = Visitor::stranger(&limited).sending("accept", BROWSER);
    let ask = async || stranger.get("/nowhere").await.status;
    wait_while!(!one_is_refused(&ask).await, "nothing was refused");
    let refused = stranger.get("/nowhere").await;
    assert_eq!(refused.headers["content-type"], "text/html; charset=utf-8");
}

/// What can't be shown is said in words, and nobody is signed out by that.
#[tokio::test]
async fn without_the_database_pages_say_so() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    visitor.page("/quotas").await.found();
    service.lose_database().await;
    // The overview, to which signing in leads, may be shown as it was half a minute ago.
    for path in ["/handlers", "/events", "/keys", "/operations"] {
        let shown = visitor.page(path).await;
        assert_eq!(shown.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(shown.headers["content-type"], "text/html; charset=utf-8", "{path}");
        shown.says("is unavailable").says("Signed in as");
    }
    let stranger = Visitor::stranger(&service);
    stranger.get("/sign-in").await.found().says("With an API key");
    let refused = stranger.post("/sign-in", &[("key", service.key.as_str())]).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    refused.says("does not answer");
    let out = visitor.post("/sign-out", &[]).await;
    assert_eq!(out.status, StatusCode::SERVICE_UNAVAILABLE, "a copy of the session would stay");
    assert!(visitor.cookie("wakeq_session").is_some(), "so that one can try again");
}
