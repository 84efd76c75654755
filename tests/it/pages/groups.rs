//! Pages about consumer groups, which read the log of every canvas.

use reqwest::StatusCode;
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::service::Service;
use crate::support::{OTHER, Statements};

/// A group with two subscribers, one of them unhealthy, that waits for an event; and one of which
/// positions are left, and two dead events.
const FILL: &str = "
    insert into wakeq.nodes (node_id, heartbeat_timestamp, expires_at) values
        ('00000000-0000-7000-8000-000000000001', '2026-01-01 00:00:00Z', 'infinity');
    insert into wakeq.subscribers (subscriber_name, subscriber_id, node_id, heartbeat_timestamp, expires_at,
                                   requests, request_count, unhealthy) values
        ('projection', '00000000-0000-7000-8000-000000000003', '00000000-0000-7000-8000-000000000001',
         '2026-01-01 00:00:00Z', 'infinity',
         '[{\"type\":\"category\",\"category\":\"companies\",\"partitions\":[\"1\",\"2\"],\"of\":2}]', 2, null),
        ('projection', '00000000-0000-7000-8000-000000000004', '00000000-0000-7000-8000-000000000001',
         '2026-01-01 00:00:00Z', 'infinity',
         '[{\"type\":\"category\",\"category\":\"companies\",\"partitions\":[\"1\",\"2\"],\"of\":2}]', 2,
         '<b>the disk is full');
    insert into wakeq.subscriptions (subscriber_name, subscriber_id, node_id, subscriber_event_sources, releasing,
                                     epoch, term)
        values ('projection', '00000000-0000-7000-8000-000000000003', '00000000-0000-7000-8000-000000000001',
         '[{\"type\":\"category\",\"category\":\"companies\",\"partitions\":[\"1\"],\"of\":2}]', '[]', 3, 7);
    insert into wakeq.consumer_positions (consumer_group, source, position, epoch, updated_at) values
        ('projection', 'category/companies/1-of-2', 0, 3, '2026-01-01 00:00:00Z'),
        ('former', 'category/a', 0, 1, '2026-01-01 00:00:00Z'),
        ('former', 'log', 0, 1, '2026-01-01 00:00:00Z');
    update wakeq.consumer_positions
       set failing_seq = 1, failing_since = '2026-01-01 00:00:00Z', failing_attempts = 3, failing_error = '<b>no room'
     where consumer_group = 'projection';
    insert into wakeq.consumer_dead
        (consumer_group, source, seq, id, canvas_id, category, stream, name, payload, attempts, last_error,
         died_at) values
        ('former', 'log', 5, '00000000-0000-7000-8000-000000000005', '00000000-0000-0000-0000-000000000000',
         'companies', 'a', 'changed', '{\"n\":1.10,\"x\":\"<script>alert(1)</script>\"}', 1,
         '<b>no room', '2026-01-01 00:00:00Z'),
        ('former', 'log', 6, '00000000-0000-7000-8000-000000000006', '00000000-0000-0000-0000-000000000007',
         'companies', 'b', 'moved', '2', 1, 'no room', '2026-01-01 00:00:00Z');";

/// An event that dies after the others.
const LATER: &str = "
    insert into wakeq.consumer_dead
        (consumer_group, source, seq, id, canvas_id, category, stream, name, payload, attempts, last_error,
         died_at)
        select consumer_group, source, 7, gen_random_uuid(), canvas_id, category, stream, name, payload,
               attempts, last_error, died_at + interval '1 microsecond'
          from wakeq.consumer_dead where seq = 6";

/// As many as are counted for the question, and one more.
const MANY: &str = "
    insert into wakeq.consumer_dead
        (consumer_group, source, seq, id, canvas_id, category, stream, name, payload, attempts, last_error,
         died_at)
        select consumer_group, source, n, gen_random_uuid(), canvas_id, category, stream, name, payload,
               attempts, last_error, died_at
          from wakeq.consumer_dead, generate_series(7, 1005) n where seq = 6";

/// Of these all will be tried again but the last one of the list, which has died again since.
const AGAIN: &str = "
    update wakeq.consumer_dead set redrive_at = now() where seq > 5;
    update wakeq.consumer_dead set died_at = now() - interval '1 minute' where seq = 5";

/// Four events of the log; the group `former` is done with all of them in one of its two sources.
/// Returns the number of the last one.
pub(crate) async fn fill(service: &Service) -> i64 {
    let event = json!({"name": "changed", "payload": 1});
    let appends = json!({"appends": [{"category": "companies", "stream": "acme", "events": vec![event; 4]}]});
    service.post("/log", appends).await.json();
    service.stage.execute(FILL).await;
    let move_on = "update wakeq.consumer_positions set position = (select max(seq) from wakeq.log)
                    where consumer_group = 'former' and source = 'log'";
    service.stage.execute(move_on).await;
    service.stage.pool.value("select max(seq) from wakeq.log").await
}

async fn filled() -> (Service, i64) {
    let service = Service::start().await;
    let last = fill(&service).await;
    (service, last)
}

async fn operator(service: &Service) -> Visitor {
    let key = service.wide_key("operator", &[Scope::Read, Scope::Values, Scope::Operate]).await;
    Visitor::with_key(service, &key).await
}

#[tokio::test]
async fn groups_are_listed_and_shown() {
    let (service, _) = filled().await;
    let visitor = operator(&service).await;
    let list = visitor.page("/groups").await.found();
    list.says("projection").says("1 unhealthy").says("former").says("abandoned");
    let one = visitor.page("/groups/projection").await.found();
    one.says("category/companies/1-of-2").says("00000000-0000-7000-8000-000000000003").says("unhealthy");
    one.says("What it waits for").says("&lt;b&gt;no room").says_nothing_of("<b>");
    visitor.send(&one, "/recover", &[]).await.found().says("retry what failed with their next heartbeat");
    assert_eq!(visitor.page("/groups/nobody").await.status, StatusCode::NOT_FOUND);
}

/// What is read again is said before anything is changed.
#[tokio::test]
async fn a_group_is_reset_after_a_preview() {
    let (service, last) = filled().await;
    let visitor = operator(&service).await;
    let choice = visitor.page("/groups/former/reset").await.found();
    choice.says("all of them").says("category/a");
    let preview = visitor.page("/groups/former/reset?to=start&source=").await.found();
    preview.says("Reset 2 sources of former to log number 0?");
    preview.says(&format!("Up to {last} events are read again."));
    let ahead = visitor.page("/groups/former/reset?to=end&source=category%2Fa").await.found();
    ahead.says("Reset 1 source of former").says(&format!("Up to {last} events are never read."));
    let beyond = visitor.page("/groups/former/reset?to=after&after=999999").await;
    assert_eq!(beyond.status, StatusCode::BAD_REQUEST);
    beyond.says(&format!("from 0 to {last}"));
    let nonsense = visitor.page("/groups/former/reset?to=start&source=nonsense").await;
    assert_eq!(nonsense.status, StatusCode::NOT_FOUND);
    let moved =
        "select count(*) from wakeq.consumer_positions where consumer_group = 'former' and position > 0";
    assert_eq!(service.stage.count(moved).await, 1, "nothing was changed yet");
    let done = visitor.send(&preview, "/reset", &[]).await.found();
    done.says("former resumes after log number 0 in 2 sources.");
    assert_eq!(service.stage.count(moved).await, 0);
    visitor.send(&ahead, "/reset", &[]).await.found().says(&format!("after log number {last} in 1 source."));
}

#[tokio::test]
async fn dead_events_are_redriven_one_by_one_or_all() {
    let (service, _) = filled().await;
    let visitor = operator(&service).await;
    let dead = visitor.page("/groups/former/dead").await.found();
    dead.says("changed").says("1.10").says("moved").says(&format!("on the canvas {OTHER}"));
    dead.says_nothing_of("<b>no room").says_nothing_of("<script>alert");
    assert!(dead.offers(&on_canvas(OTHER, "/log?category=companies&amp;stream=b")));
    dead.says("Redrive all…");
    let one = visitor.send(&dead, "/dead/redrive", &[("seq", "5")]).await.found();
    one.says("1 event of former will be tried again.").says("will be tried again");
    let asked = visitor.page("/groups/former/dead/redrive").await.found();
    asked.says("Redrive 1 event of former?");
    let unseen = visitor.send(&asked, "/dead/redrive", &[("before", "")]).await;
    assert_eq!(unseen.status, StatusCode::BAD_REQUEST);
    unseen.says("look first");
    service.stage.execute(LATER).await;
    let left = "select count(*) from wakeq.consumer_dead where redrive_at is null";
    assert_eq!(service.stage.count(left).await, 2, "nothing was changed yet");
    let all = visitor.send(&asked, "/dead/redrive", &[]).await.found();
    all.says("1 event of former will be tried again.");
    assert_eq!(service.stage.count(left).await, 1, "it has died later");
    let wrong = visitor.send(&dead, "/dead/redrive", &[("seq", "five")]).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    let none = visitor.page("/groups/projection/dead/redrive").await.found();
    none.says("There is nothing to redrive.").says_nothing_of("danger");
    visitor.page("/groups/projection/dead").await.found().says("has given up no event");
}

#[tokio::test]
async fn more_dead_events_than_are_counted_are_redriven() {
    let (service, _) = filled().await;
    service.stage.execute(MANY).await;
    let visitor = operator(&service).await;
    let asked = visitor.page("/groups/former/dead/redrive").await.found();
    asked.says("Redrive more than 1\u{202f}000 events of former?");
    let all = visitor.send(&asked, "/dead/redrive", &[]).await.found();
    all.says("1\u{202f}001 events of former will be tried again.");
}

#[tokio::test]
async fn deaths_past_the_first_page_are_redriven_with_it() {
    let (service, _) = filled().await;
    service.stage.execute(MANY).await;
    service.stage.execute(AGAIN).await;
    let visitor = operator(&service).await;
    let asked = visitor.page("/groups/former/dead/redrive").await.found();
    asked.says("Redrive more than 1\u{202f}000 events of former?");
    let all = visitor.send(&asked, "/dead/redrive", &[]).await.found();
    all.says("1 event of former will be tried again.");
}

#[tokio::test]
async fn a_group_without_members_is_removed() {
    let (service, _) = filled().await;
    let visitor = operator(&service).await;
    let asked = visitor.page("/groups/former/remove?source=category%2Fa").await.found();
    asked.says("Remove 1 position of the group former: the one in category/a?");
    visitor
        .send(&asked, "/remove", &[])
        .await
        .found()
        .says("The position of former in category/a was removed.");
    let asked = visitor.page("/groups/former/remove").await.found();
    asked.says("Remove the group former with its 1 position?");
    let done = visitor.send(&asked, "/remove", &[]).await.found();
    done.says("The group former was removed.").says("projection");
    assert!(!done.offers("/groups/former"));
    let asked = visitor.page("/groups/projection/remove").await.found();
    let refused = visitor.send(&asked, "/remove", &[]).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    refused.says("is in use");
}

#[tokio::test]
async fn without_rights_on_every_canvas_no_group_is_shown_or_changed() {
    let (service, _) = filled().await;
    let reader = service.wide_key("reader", &[Scope::Read]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    let one = reader.page("/groups/former").await.found();
    assert!(!one.offers("/recover") && !one.offers("/reset") && !one.offers("/remove"));
    one.says_nothing_of("Reset").says_nothing_of("Remove");
    reader.page("/groups/former/dead").await.found().says_nothing_of("Redrive").says("Hidden: to see values");
    let preview = reader.page("/groups/former/reset?to=start").await.found();
    assert_eq!(reader.send(&preview, "/reset", &[]).await.status, StatusCode::FORBIDDEN);
    let token = preview.form("/reset").token();
    for part in ["recover", "remove", "dead/redrive"] {
        let path = on_canvas(CanvasId::DEFAULT, &format!("/groups/former/{part}"));
        let fields = [("form_token", token.as_str()), ("before", "2099-01-01T00:00:00Z")];
        let refused = reader.post(&path, &fields).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{part}");
    }
    assert_eq!(reader.page("/groups/former/dead/redrive").await.status, StatusCode::FORBIDDEN);
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let narrow = service.key("narrow", canvas, &Scope::ALL).await;
        let narrow = Visitor::with_key(&service, &narrow).await;
        assert!(!narrow.get(&on_canvas(canvas, "")).await.found().offers(&on_canvas(canvas, "/groups")));
        for path in ["", "/former", "/former/dead", "/former/dead/redrive", "/former/reset"] {
            let refused = narrow.get(&on_canvas(canvas, &format!("/groups{path}"))).await;
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{canvas} {path}");
        }
    }
}
