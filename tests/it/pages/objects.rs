//! Pages about objects.

use reqwest::StatusCode;
use serde_json::{Value, json};
use wakeq::{CanvasId, Event};
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

/// The first event of each object dies, and halts it.
pub(crate) const HALTS: &str = "
    with gone as (delete from wakeq.events_v2 where object is not null and prev = 0 returning *), dead as (
        insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                       losses, last_error, cause, object, seq, prev)
        select id, canvas_id, module, name, modifier, value, 0, enqueued_at, 1, 0, 'no', 'retries', object, seq,
               prev
          from gone)
    insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
    select canvas_id, object, module, name, id, seq, prev from gone";

/// Two events on `work:1` that a dead one halts, and the same of another tenant on `theirs:1`.
/// Returns the dead event's id.
async fn halted(service: &Service) -> String {
    let events = json!({"main": {"name": "index"}, "subevents": [{"name": "index"}, {"name": "index"}],
                        "state": {"title": "</pre><script>alert(1)</script>", "n": 12345678901234567890_u64}});
    let changed = service.post("/objects/work:1/events", events).await.json();
    let theirs = Event::new("index", &1).unwrap().canvas(OTHER).on("theirs:1").unwrap();
    service.stage.queue.emit(theirs).await.unwrap();
    service.stage.execute(HALTS).await;
    changed["events"][0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_halted_object_is_found_shown_and_goes_on() {
    let service = Service::start().await;
    let dead = halted(&service).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let list = visitor.page("/halted-objects").await.found();
    list.says("work:1").says("WORKER/index").says(&dead).says_nothing_of("theirs:1");
    let one = visitor.page("/halted-objects?object=work%3A1").await.found();
    assert_eq!(one.path, on_canvas(CanvasId::DEFAULT, "/objects/work%3A1"), "the search leads to it");
    assert!(one.offers("/events?object=work%3A1") && one.offers("/dead-events/list?object=work%3A1"));
    one.says("halted for a handler")
        .says(&dead)
        .says("12345678901234567890")
        .says("No link of its chain is missing");
    one.says("&lt;script&gt;").says_nothing_of("<script>alert");
    let asked = visitor.page("/objects/work:1/skip?module=WORKER&name=index").await.found();
    asked.says("Skip 1 dead event").says(&dead);
    let done = visitor.send(&asked, "/skip", &[]).await.found();
    done.says("goes on for WORKER/index").says("not halted").says("<td>dead</td>");
    visitor.page("/halted-objects").await.found().says("No object is halted.");
    let again = visitor.page("/objects/work:1/skip?module=WORKER&name=index").await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    again.says("there is nothing to skip");
    let theirs = "select count(*) from wakeq.halted_lanes";
    assert_eq!(service.stage.count(theirs).await, 1, "the other tenant's object is halted still");
}

#[tokio::test]
async fn an_object_shows_its_worker_and_its_missing_links() {
    let service = Service::start().await;
    let events = json!({"main": {"name": "index"}, "subevents": [{"name": "index"}, {"name": "index"}]});
    let changed = service.post("/objects/work:1/events", events).await.json();
    let (first, middle) = (&changed["events"][0], &changed["events"][1]);
    let cancel = format!("/events/{}/cancel", middle["id"].as_str().unwrap());
    assert_eq!(service.post(&cancel, Value::Null).await.status, StatusCode::OK);
    let runs = "update wakeq.events_v2 set locked_at = now(), claims = 1, worker = 'mill-7' where prev = 0";
    service.stage.execute(runs).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page("/objects/work:1").await.found();
    page.says("not halted").says("mill-7").says(first["id"].as_str().unwrap()).says("is running");
    page.says("cancelled").says(&format!("<td class=\"number\">{}</td>", middle["link"]["id"]));
    let missing = visitor.page("/objects/unknown").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn without_rights_nothing_is_skipped() {
    let service = Service::start().await;
    halted(&service).await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    for path in ["/halted-objects", "/objects/work:1"] {
        reader.page(path).await.found().says("work:1").says_nothing_of("Skip the event");
    }
    let asked = reader.page("/objects/work:1/skip?module=WORKER&name=index").await.found();
    assert_eq!(reader.send(&asked, "/skip", &[]).await.status, StatusCode::FORBIDDEN);
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    for path in ["/halted-objects", "/objects/work:1", "/objects/work:1/skip?module=WORKER&name=index"] {
        assert_eq!(theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let own = theirs.get(&on_canvas(OTHER, "/halted-objects")).await.found();
    own.says("theirs:1").says_nothing_of("work:1");
    let unknown = theirs.get(&on_canvas(OTHER, "/objects/work:1")).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert_eq!(service.stage.count("select count(*) from wakeq.halted_lanes").await, 2);
}

#[tokio::test]
async fn halted_objects_come_in_pages() {
    let service = Service::start().await;
    let fill =
        "insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev, halted_at)
                select c.id::uuid, c.word || n || '.', 'WORKER', 'ship', gen_random_uuid(), n, n - 1,
                       now() - n * interval '1 s'
                  from generate_series(1, 101) n,
                       (values ('00000000-0000-0000-0000-000000000000', 'mine-'),
                               ('00000000-0000-0000-0000-000000000007', 'theirs-')) c (id, word)";
    service.stage.execute(fill).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let first = visitor.page("/halted-objects").await.found();
    first.says("mine-101.").says_nothing_of("mine-1.<").says_nothing_of("theirs-");
    let second = visitor.page(&format!("/halted-objects{}", first.next_page())).await.found();
    second.says("mine-1.<").says("First page").says_nothing_of("mine-101.").says_nothing_of("theirs-");
    assert_eq!(visitor.page("/halted-objects?cursor=nonsense").await.status, StatusCode::BAD_REQUEST);
}
