//! Pages about keys.

use reqwest::{Method, StatusCode};
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::{ApiKey, Scope};

use super::onlookers::Holder;
use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::{NONE, Service};

/// The only key in a text, whole.
fn whole_key(html: &str) -> String {
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    let mut words = html.split(|sign| !is_part(sign));
    words.find(|word| ApiKey::parse(word).is_some()).expect("a key is shown").to_owned()
}

#[tokio::test]
async fn a_key_is_made_shown_once_and_revoked() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let list = visitor.page("/keys").await.found();
    list.says("tests").says("live").says("(yours)").says_nothing_of(&service.key);
    let fields = [
        ("holder", " billing "),
        ("days", "30"),
        ("read", "true"),
        ("narrow", "emit:WORKER/*\r\noperate:WORKER/mail"),
    ];
    let made = visitor.send(&list, "/keys", &fields).await.found();
    made.says("the only time").says("billing").says("emit:WORKER/*").says("operate:WORKER/mail");
    assert_eq!(made.path, on_canvas(CanvasId::DEFAULT, "/keys"), "nothing of it is in an address");
    assert!(made.headers.get("set-cookie").is_none(), "nor in a cookie");
    assert_eq!(made.headers["cache-control"], "no-store");
    let again = visitor.send(&list, "/keys", &fields).await;
    assert_eq!(again.status, StatusCode::CONFLICT, "a page that is loaded again makes no other key");
    again.says("this form was sent before").says_nothing_of(&whole_key(&made.html));
    let count = service.admin(Method::GET, "/keys", NONE).await.json()["items"].as_array().unwrap().len();
    assert_eq!(count, 2, "one's own and the new one");
    let key = whole_key(&made.html);
    let look = format!("/canvases/{}/handlers", CanvasId::DEFAULT);
    assert_eq!(service.ask(&key, Method::GET, &look, NONE).await.status, StatusCode::OK, "it is valid");
    let id = ApiKey::parse(&key).unwrap().id();
    let listed = visitor.page("/keys").await.found();
    listed.says(&format!("{id:?}")).says("billing").says("by key:tests").says_nothing_of(&key);

    let asked = visitor.page(&format!("/keys/{id}/revoke")).await.found();
    asked
        .says("Revoke this 1 key of billing?")
        .says("make another key instead")
        .says_nothing_of("signed in with this key");
    assert_eq!(
        service.ask(&key, Method::GET, &look, NONE).await.status,
        StatusCode::OK,
        "nothing is done yet"
    );
    let done = visitor.send(&asked, "/revoke", &[]).await.found();
    done.says(&format!("{id:?} was revoked")).says("revoked").says("live");
    assert_eq!(service.ask(&key, Method::GET, &look, NONE).await.status, StatusCode::UNAUTHORIZED);
    visitor.page("/keys").await.found().says_nothing_of("was revoked. It");
}

/// Somebody who only reads may send as many other forms as they like.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn forms_that_are_refused_do_not_let_a_key_be_made_twice() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let reader = Holder::of(&service, &reader).await;
    let list = visitor.page("/keys").await.found();
    let fields = [("holder", "billing"), ("read", "true")];
    visitor.send(&list, "/keys", &fields).await.found().says("the only time");
    let path = on_canvas(CanvasId::DEFAULT, "/new-event");
    // As many as are remembered of a canvas.
    for number in 0..500 {
        let form = [("form_key", number.to_string()), ("name", "mail".to_owned())];
        let form = form.each_ref().map(|(name, value)| (*name, value.as_str()));
        assert_eq!(reader.post(&path, &form).await.status, StatusCode::FORBIDDEN, "{number}");
    }
    let again = visitor.send(&list, "/keys", &fields).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    again.says("this form was sent before");
}

/// What the API refuses is said in its words, and one's own key is pointed out.
#[tokio::test]
async fn a_mistake_is_explained() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let list = visitor.page("/keys").await.found();
    for (fields, words) in [
        (&[("holder", "a")][..], "at least one scope"),
        (&[("holder", ""), ("read", "true")], "name must have 1 to 190"),
        (&[("holder", "a"), ("narrow", "admin:WORKER/*")], "a scope is one of"),
        (&[("holder", "a"), ("read", "true"), ("days", "soon")], "number of days is not such a number"),
        (&[("holder", "a"), ("read", "true"), ("days", "4000")], "at most ten years"),
    ] {
        let refused = visitor.send(&list, "/keys", fields).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{fields:?} {}", refused.html);
        let again = refused.says(words).form("/keys");
        assert!(!again.token().is_empty(), "the form is shown again");
    }
    let again = visitor.send(&list, "/keys", &[("holder", "a-holder"), ("narrow", "admin:WORKER/*")]).await;
    again.says("value=\"a-holder\"").says(">admin:WORKER/*</textarea>");
    for _ in 0..2 {
        let list = visitor.page("/keys").await.found();
        visitor.send(&list, "/keys", &[("holder", "twice"), ("read", "true")]).await.found();
    }
    let third = visitor.send(&list, "/keys", &[("holder", "twice"), ("read", "true")]).await;
    assert_eq!(third.status, StatusCode::CONFLICT);
    third.says("twice has two live keys there already");
    let own = ApiKey::parse(&service.key).unwrap().id();
    visitor.page(&format!("/keys/{own}/revoke")).await.found().says("signed in with this key yourself");
}

#[tokio::test]
async fn keys_are_for_admins_of_their_canvas() {
    let service = Service::start().await;
    let theirs = service.key("<b>theirs</b>", OTHER, &Scope::ALL).await;
    let id = ApiKey::parse(&theirs).unwrap().id();
    let admin = Visitor::with_key(&service, &service.key).await;
    let list = admin.page("/keys").await.found();
    list.says_nothing_of(&id.to_string()).says_nothing_of("theirs");
    // A key of another canvas is as if it did not exist.
    let page = admin.page(&format!("/keys/{id}/revoke")).await.found();
    page.says("Revoke this 1 key?").says_nothing_of("theirs");
    assert_eq!(admin.send(&page, "/revoke", &[]).await.status, StatusCode::NOT_FOUND);
    let event = service.post("/events", json!({"name": "mail", "value": 1, "delay_s": 3600})).await.json();
    let others = service.key("others", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate, Scope::Emit]).await;
    let others = Visitor::with_key(&service, &others).await;
    let shown = others.page(&format!("/events/{}", event["id"].as_str().unwrap())).await.found();
    assert!(!shown.offers("/keys") && !shown.offers("/record"), "no link leads there");
    assert_eq!(others.page("/keys").await.status, StatusCode::FORBIDDEN);
    let token = shown.form("/run-now").token();
    for path in ["/keys".to_owned(), format!("/keys/{}/revoke", &service.key[6..18])] {
        let fields = [("form_token", token.as_str()), ("holder", "mallory"), ("admin", "true")];
        let refused = others.post(&on_canvas(CanvasId::DEFAULT, &path), &fields).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        refused.says("needs the scope `admin`");
    }
    admin.page("/keys").await.found().says_nothing_of("mallory");
    let tenant = Visitor::with_key(&service, &theirs).await;
    tenant.get(&on_canvas(OTHER, "/keys")).await.found().says("&lt;b&gt;theirs").says_nothing_of("<b>theirs");
    assert_eq!(tenant.page("/keys").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn many_keys_come_in_pages() {
    let service = Service::start().await;
    let many = "insert into wakeq.access_keys (id, secret_sha256, canvas_id, holder, scopes, created_by, expires_at, created_at)
        select lpad(to_hex(n), 12, '0'), sha256(n::text::bytea), canvas::uuid, holder || n, '{read}', 'tests',
               now() + interval '1 day', now() - interval '1 hour' - n * interval '1 second'
          from (values (1, 120, '00000000-0000-0000-0000-000000000000', 'holder-'),
                       (121, 240, '00000000-0000-0000-0000-000000000007', 'theirs-')) tenant (from_n, to_n, canvas, holder),
               generate_series(from_n, to_n) n";
    service.stage.execute(many).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let first = visitor.page("/keys").await.found();
    first.says("holder-1<").says("holder-99<").says_nothing_of("holder-100<");
    let next = first.next_page();
    let second = visitor.page(&format!("/keys{next}")).await.found();
    second.says("holder-100<").says("holder-119<").says("First page").says_nothing_of("holder-99<");
    first.says_nothing_of("theirs-");
    second.says_nothing_of("theirs-");
    assert_eq!(visitor.page("/keys?cursor=nonsense").await.status, StatusCode::BAD_REQUEST);
}
