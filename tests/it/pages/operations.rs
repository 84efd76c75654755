//! Pages about operations: previewed, begun, followed and stopped.

use reqwest::{Method, StatusCode};
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Shown, Visitor, on_canvas};
use crate::support::service::Service;
use crate::support::{OTHER, Statements, wait_while};

/// Emits this many events on the default canvas, and as many on another.
async fn emit_both(service: &Service, count: usize) {
    let events: Vec<_> = (0..count).map(|n| json!({"name": "mail", "value": n, "delay_s": 3600})).collect();
    let body = json!({"events": events});
    let key = service.key("neighbour", OTHER, &[Scope::Emit]).await;
    service.post("/events:batch", body.clone()).await.json();
    service.ask(&key, Method::POST, &format!("/canvases/{OTHER}/events:batch"), body).await.json();
}

/// The page of an operation once it has ended.
async fn ended(service: &Service, visitor: &Visitor, begun: &Shown) -> Shown {
    let id = begun.path.rsplit('/').next().unwrap();
    let path = format!("/operations/{id}");
    wait_while!(service.get(&path).await.json()["state"] == "open", "it does not end");
    // What others were shown a moment ago may be shown again for two seconds.
    wait_while!(!visitor.page(&path).await.html.contains("</span> done"), "the page does not tell");
    visitor.page(&path).await.found()
}

#[tokio::test]
async fn all_that_match_are_counted_and_then_cancelled() {
    let service = Service::start().await;
    emit_both(&service, 3).await;
    let other = service.post("/events", json!({"name": "print", "delay_s": 3600})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let list = visitor.page("/events?name=mail&emitted_since=1+h").await.found();
    assert!(list.offers("/operations/new?kind=cancel&amp;name=mail&amp;emitted_since=1+h"), "{}", list.html);
    let asked = visitor.page("/operations/new?kind=cancel&name=mail&emitted_since=1+h").await.found();
    asked.says("Cancel these 3 events?").says("WORKER/mail");
    // One that comes later was not counted.
    let later = service.post("/events", json!({"name": "mail", "delay_s": 3600})).await.json();
    let begun = visitor.send(&asked, "/operations", &[]).await.found();
    begun.says("The operation has begun.").says("Operation: Cancel");
    let again = visitor.send(&asked, "/operations", &[]).await.found();
    assert_eq!(again.path, begun.path, "the form was sent twice, and began one operation");
    assert_eq!(service.get("/operations").await.json()["items"].as_array().unwrap().len(), 1);
    let page = ended(&service, &visitor, &begun).await;
    page.says("<strong>3 events</strong>").says("key:tests");
    assert!(!page.offers("/cancel"), "it has ended");
    let left = visitor.page("/events?state=delayed").await.found();
    left.says(other["id"].as_str().unwrap()).says(later["id"].as_str().unwrap());
    let count =
        "select count(*) from wakeq.events_v2 where canvas_id <> '00000000-0000-0000-0000-000000000000'";
    assert_eq!(service.stage.pool.value::<i64>(count).await, 3, "another tenant's");
    visitor.page("/operations").await.found().says("Cancel").says("WORKER/mail").says("key:tests");
    visitor.page("/operations/new?kind=cancel&name=gone").await.found().says("There is nothing to do.");
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn tags_change_and_dead_events_come_back() {
    let service = Service::start().await;
    emit_both(&service, 2).await;
    let dead = "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                               losses, cause, last_error, died_at)
                select gen_random_uuid(), canvas, 'WORKER', 'print', '_', '1', 2, now(), 3, 0, 'retries', 'no paper',
                       now() - interval '1 h'
                  from (values ('00000000-0000-0000-0000-000000000000'::uuid),
                               ('00000000-0000-0000-0000-000000000007'::uuid)) as canvases(canvas)";
    service.stage.execute(dead).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let asked = visitor.page("/operations/new?kind=retag&name=mail&add_tags=late,+7").await.found();
    asked.says("Change the tags of these 2 events?");
    let begun = visitor.send(&asked, "/operations", &[]).await.found();
    ended(&service, &visitor, &begun).await.says("late, 7");
    visitor.page("/events?tag=late").await.found().says("<strong>2 events</strong> in all.");
    let asked =
        visitor.page("/operations/new?kind=redrive&error_text=paper&died_before=30+min").await.found();
    asked.says("Redrive this 1 event?");
    let begun = visitor.send(&asked, "/operations", &[]).await.found();
    ended(&service, &visitor, &begun).await.says("<strong>1 event</strong>");
    let left = "select count(*) from wakeq.dead_events";
    assert_eq!(service.stage.pool.value::<i64>(left).await, 1, "another tenant's");
    visitor.page("/events?name=print").await.found().says("<strong>1 event</strong> in all.");
}

#[tokio::test]
async fn what_is_no_operation_is_refused_beside_the_fields() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    visitor.page("/operations/new").await.found().says("Count them").says_nothing_of("Preview");
    visitor.page("/operations/new?kind=explode").await.found().says_nothing_of("Preview");
    // As the button of a list leads there, before the tags are named.
    visitor
        .page("/operations/new?kind=retag&name=mail")
        .await
        .found()
        .says("which tags")
        .says_nothing_of("Preview");
    for (query, words) in [
        ("kind=cancel&name=mail&due_since=soon", "can't be read"),
        ("kind=redrive&name=mail&state=paused", "dead events"),
        ("kind=delete&name=mail&value=7", "condition"),
    ] {
        let refused = visitor.page(&format!("/operations/new?{query}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{query}");
        refused.says(words).says("value=\"mail\"");
    }
    let token = visitor.page("/new-event").await.form("/new-event").token();
    let path = on_canvas(CanvasId::DEFAULT, "/operations");
    for operation in ["", "{}", "nonsense"] {
        let refused = visitor.post(&path, &[("form_token", &token), ("operation", operation)]).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{operation}");
    }
    let none = "select count(*) from wakeq.operations";
    assert_eq!(service.stage.pool.value::<i64>(none).await, 0);
}

/// An operation that nothing carries on.
pub(crate) const OPEN: &str = "
    insert into wakeq.operations (canvas_id, kind, filter, cut_off, author, job)
    values ('00000000-0000-0000-0000-000000000000', 'delete', '{\"tags\": [\"<b>bold\"]}', now(), '<i>ada', -1)";

#[tokio::test]
async fn an_open_operation_is_stopped_by_those_who_may() {
    let service = Service::start().await;
    service.stage.execute(OPEN).await;
    let list = service.get("/operations").await.json();
    let id = list["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/operations/{id}");
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read, Scope::Emit]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    let shown = reader.page(&path).await.found();
    shown.says("</span> open").says("&lt;b&gt;bold").says("&lt;i&gt;ada").says_nothing_of("<b>");
    assert!(!shown.offers("/cancel"));
    let list = reader.page("/operations").await.found();
    assert!(list.offers(&path) && !list.offers("/operations/new"));
    assert_eq!(reader.page("/operations/new?kind=cancel").await.status, StatusCode::FORBIDDEN);
    let own = reader.page("/new-event").await.form("/new-event").token();
    let delete = r#"{"kind": "delete", "filter": {}, "all": true}"#;
    for what in
        [on_canvas(CanvasId::DEFAULT, "/operations"), on_canvas(CanvasId::DEFAULT, &format!("{path}/cancel"))]
    {
        let refused = reader.post(&what, &[("form_token", &own), ("operation", delete)]).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{what}");
    }
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    assert_eq!(theirs.get(&on_canvas(OTHER, &path)).await.status, StatusCode::NOT_FOUND);
    theirs.get(&on_canvas(OTHER, "/operations")).await.found().says("No operation was begun here lately.");
    let owner = Visitor::with_key(&service, &service.key).await;
    let page = owner.page(&path).await.found();
    let stopped = owner.send(&page, "/cancel", &[]).await.found();
    stopped.says("The operation changes no further events.").says("</span> cancelled");
}
