//! Pages about dead events: what they died of, what is known of it, and the way back.

use reqwest::StatusCode;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq::control::ErrorGroupId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use super::watching::{until, watched};
use crate::support::service::Service;
use crate::support::{OTHER, Statements, scope, wait_while};

/// Kills this many events of a handler of a canvas, with these tags, a second apart.
async fn die(service: &Service, canvas: CanvasId, name: &str, error: &str, count: i32) {
    let insert = "
        insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at,
                                       claims, losses, cause, last_error, options, died_at)
        select gen_random_uuid(), $1, 'WORKER', $2, '_', '\"a value\"', 2, now(), 3, 0, 'retries',
               replace($3, '<n>', n::text), jsonb_build_object('tags', jsonb_build_array('of:' || $2)),
               now() - n * interval '1 s'
          from generate_series(1, $4) n";
    let insert = sqlx::query(insert).bind(canvas.0).bind(name).bind(error).bind(count);
    insert.execute(&service.stage.pool).await.unwrap();
}

/// Two groups, and one of the other tenant with the id of the first.
async fn two_groups(service: &Service) {
    die(service, CanvasId::DEFAULT, "mail", "no answer after <n>s", 3).await;
    die(service, CanvasId::DEFAULT, "ship", "refused by the port", 2).await;
    die(service, OTHER, "mail", "no answer after 9s", 7).await;
}

fn group(name: &str, error: &str) -> String {
    ErrorGroupId::of(&scope(name), "retries", Some(error)).to_string()
}

/// How many dead events the default canvas has.
async fn left(service: &Service) -> i64 {
    let left =
        "select count(*) from wakeq.dead_events where canvas_id = '00000000-0000-0000-0000-000000000000'";
    service.stage.pool.value(left).await
}

/// Waits until the operation has ended to whose page a confirmation has led; returns it.
async fn ended(service: &Service, page: &str) -> Value {
    let path = page.strip_prefix(&on_canvas(CanvasId::DEFAULT, "")).unwrap_or_default().to_owned();
    assert!(path.starts_with("/operations/"), "{page}");
    wait_while!(service.get(&path).await.json()["state"] == "open", "it does not end");
    service.get(&path).await.json()
}

#[tokio::test]
async fn what_events_died_of_is_shown_with_its_events() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    visitor.page("/dead-events").await.found().says("No event has died.");
    two_groups(&service).await;
    // What was shown a moment ago may be shown again for two seconds: this is asked otherwise.
    let all = visitor.page("/dead-events?order=count").await.found();
    all.says("no answer after #").says("refused by the port").says("failed too often").says("new");
    all.says("5 dead events were counted").says_nothing_of("older ones");
    let mail = group("mail", "no answer after 1s");
    assert!(all.offers(&format!("/dead-events/groups/{mail}")), "{}", all.html);
    assert!(all.offers(&format!("/operations/new?kind=redrive&amp;error_group={mail}")), "{}", all.html);
    let of_ship = visitor.page("/dead-events?name=ship&known=&order=count").await.found();
    of_ship.says("refused by the port").says_nothing_of("no answer after");
    visitor.page("/dead-events?name=none").await.found().says("No dead event is like that.");

    let one = visitor.page(&format!("/dead-events/groups/{mail}")).await.found();
    one.says("no answer after 1s").says("WORKER/mail").says("What to do next").says("of:mail");
    one.says(&format!("wakeq dead redrive --error-group {mail}")).says_nothing_of("refused by the port");
    one.says_nothing_of("a value");
    let missing = visitor.page(&format!("/dead-events/groups/{}", group("mail", "else"))).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    missing.says("no dead event is of the error group");
}

/// Of three failed attempts two were retries.
/// The group is live. Its events are not, and looking on is not recorded as reading them.
#[tokio::test]
async fn a_group_that_grows_is_seen_to_grow() {
    let service = Service::start().await;
    two_groups(&service).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let path = format!("/dead-events/groups/{}", group("mail", "no answer after 1s"));
    let mut stream = watched(&visitor, &on_canvas(CanvasId::DEFAULT, &path)).await;
    let sent = until(&mut stream, "3 events").await;
    assert!(!sent.contains("Its events") && !sent.contains("<form"), "{sent}");
    die(&service, OTHER, "mail", "no answer after 9s", 5).await;
    die(&service, CanvasId::DEFAULT, "mail", "no answer after 7s", 1).await;
    until(&mut stream, "4 events").await;
    drop(stream);
    let stage = service.stop().await;
    let recorded = "select count(*) from wakeq.audit_log where action = 'list_dead_events'";
    assert_eq!(stage.count(recorded).await, 0);
}

#[tokio::test]
async fn a_dead_event_says_how_often_it_was_retried() {
    let service = Service::start().await;
    die(&service, CanvasId::DEFAULT, "mail", "no answer", 1).await;
    let id: String = service.stage.pool.value("select id::text from wakeq.dead_events").await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let list = visitor.page("/dead-events/list").await.found();
    list.says(">Retries</th>").says("<td class=\"number\">2</td>");
    let one = visitor.page(&format!("/events/{id}")).await.found();
    one.says("<dt>Retries</dt><dd>2</dd>").says_nothing_of("Failed attempts");
}

#[tokio::test]
async fn dead_events_are_filtered_and_paged() {
    let service = Service::start().await;
    two_groups(&service).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let list = async |query: &str| visitor.page(&format!("/dead-events/list{query}")).await;
    list("").await.found().says("no answer after 1s").says("refused by the port");
    for query in ["?name=ship", "?tag=of%3Aship", "?error_text=the+port", "?name=ship&died_since=2+d"] {
        let found = list(query).await.found();
        found.says("refused by the port").says_nothing_of("no answer after");
    }
    for query in ["?died_before=2020-01-01", "?died_since=2999-12-31+08%3A00", "?error_text=nothing"] {
        list(query).await.found().says("No dead event is like that.");
    }
    for (query, words) in
        [("?died_since=yesterday&name=ship", "can't be read"), ("?error_group=7&name=ship", "is a uuid")]
    {
        let wrong = list(query).await;
        assert_eq!(wrong.status, StatusCode::BAD_REQUEST, "{query}");
        wrong.says(words).says("value=\"ship\"");
    }
    die(&service, CanvasId::DEFAULT, "ship", "many", 120).await;
    let first = list("?error_text=many").await.found();
    let next = first.next_page();
    assert!(next.contains("error_text=many"), "{next}");
    let second = list(&next).await.found();
    let rows = |page: &str| page.matches("/redrive\"").count();
    assert_eq!((rows(&first.html), rows(&second.html)), (100, 20));
    let boxes = |page: &str| page.matches("aria-label=\"Select event").count();
    assert_eq!((boxes(&first.html), boxes(&second.html)), (100, 20));
    let all = list("?error_text=many&all=selected").await.found();
    assert_eq!(all.html.matches("form=\"selection\" checked").count(), 100);
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let seen = Visitor::with_key(&service, &reader).await.page("/dead-events/list").await.found();
    seen.says_nothing_of("Select event").says_nothing_of("With those selected");
}

#[tokio::test]
async fn a_group_is_redriven_after_a_question_that_names_the_count() {
    let service = Service::start().await;
    two_groups(&service).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let mail = group("mail", "no answer after 1s");
    let group = visitor.page(&format!("/dead-events/groups/{mail}")).await.found();
    let question = format!("/operations/new?kind=redrive&amp;error_group={mail}");
    assert!(group.offers(&question), "{}", group.html);
    let asked = visitor.page(&question.replace("&amp;", "&")).await.found();
    asked.says("Redrive these 3 events?").says(&format!("<code>{mail}</code>"));
    assert!(asked.offers(&format!("/dead-events/list?error_group={mail}")), "the way back");
    // What dies after the question is not meant.
    die(&service, CanvasId::DEFAULT, "mail", "no answer after 4s", 1).await;
    service
        .stage
        .execute("update wakeq.dead_events set died_at = clock_timestamp() where last_error like '% 4s'")
        .await;
    let begun = visitor.send(&asked, "/operations", &[]).await.found();
    begun.says("The operation has begun.").says(&mail);
    let ended = ended(&service, &begun.path).await;
    assert_eq!((&ended["kind"], &ended["changed"]), (&json!("redrive"), &json!(3)));
    assert_eq!((left(&service).await, service.stage.rows().await), (3, 3));
    let theirs =
        "select count(*) from wakeq.dead_events where canvas_id = '00000000-0000-0000-0000-000000000007'";
    assert_eq!(service.stage.count(theirs).await, 7);
}

#[tokio::test]
async fn dead_events_of_a_filter_are_deleted_after_a_question() {
    let service = Service::start().await;
    two_groups(&service).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let listed = visitor.page("/dead-events/list?error_text=port&tag=of%3Aship").await.found();
    let question = "/operations/new?kind=delete-dead&amp;tag=of%3Aship&amp;error_text=port";
    assert!(listed.offers(question), "{}", listed.html);
    let asked = visitor.page(&question.replace("&amp;", "&")).await.found();
    asked.says("Delete these 2 events for good?");
    let begun = visitor.send(&asked, "/operations", &[]).await;
    assert_eq!(ended(&service, &begun.path).await["changed"], 2);
    assert_eq!(left(&service).await, 3);
    visitor.page("/operations/new?kind=delete-dead&error_text=port").await.found().says("No event matches.");
    let all = visitor.page("/operations/new?kind=delete-dead").await.found();
    all.says("All events of the canvas.").says("Delete these 3 events for good?");
    let begun = visitor.send(&all, "/operations", &[]).await;
    ended(&service, &begun.path).await;
    assert_eq!(left(&service).await, 0);
}

#[tokio::test]
async fn one_event_is_redriven_and_an_error_is_marked_as_known() {
    let service = Service::start().await;
    two_groups(&service).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let ship = group("ship", "refused by the port");
    let page = visitor.page(&format!("/dead-events/groups/{ship}")).await.found();
    assert!(!page.offers(&format!("/dead-events/groups/{ship}/forget")));
    let evil = "ticket <b>17</b>\r\nask Ada";
    let known = visitor.send(&page, "/known", &[("note", evil)]).await.found();
    known.says("The error is marked as known.").says("ticket &lt;b&gt;17").says("key:tests");
    known.says_nothing_of("<b>17");
    visitor.page("/dead-events?known=true").await.found().says("refused by the port").says("ask Ada");
    visitor.page("/dead-events?known=false").await.found().says_nothing_of("refused by the port");
    let forgotten = visitor.send(&known, "/forget", &[]).await.found();
    forgotten.says("not marked as known any more");
    visitor.page("/dead-events?known=true").await.found().says("No dead event is like that.");

    let event =
        service.get("/dead-events?name=ship").await.json()["items"][0]["id"].as_str().unwrap().to_owned();
    let redriven = visitor.send(&forgotten, &format!("/events/{event}/redrive"), &[]).await.found();
    redriven.says("The event runs again").says(&event);
    assert_eq!((left(&service).await, service.stage.rows().await), (4, 1));
}

/// A key without `operate` is shown no control, and neither it nor a key of another canvas changes
/// anything.
#[tokio::test]
async fn without_rights_nothing_is_redriven_deleted_or_marked() {
    let service = Service::start().await;
    two_groups(&service).await;
    let mail = group("mail", "no answer after 1s");
    let event =
        service.get("/dead-events?name=mail").await.json()["items"][0]["id"].as_str().unwrap().to_owned();
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read, Scope::Emit]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    for path in [format!("/dead-events/groups/{mail}"), "/dead-events/list".to_owned()] {
        let page = reader.page(&path).await.found();
        page.says("no answer after").says_nothing_of("Redrive all").says_nothing_of("Delete all");
        page.says_nothing_of("/known\"").says_nothing_of("/redrive\"");
    }
    reader.page("/dead-events").await.found().says("no answer after").says_nothing_of("Redrive all");
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let token = reader.page("/new-event").await.form("/new-event").token();
    for path in [
        format!("/events/{event}/redrive"),
        format!("/dead-events/groups/{mail}/known"),
        format!("/dead-events/groups/{mail}/forget"),
    ] {
        let path = on_canvas(CanvasId::DEFAULT, &path);
        for (visitor, status) in [(&reader, StatusCode::FORBIDDEN), (&theirs, StatusCode::NOT_FOUND)] {
            let refused = visitor.post(&path, &[("form_token", &token)]).await;
            assert_eq!(refused.status, status, "{path}");
        }
    }
    let question = format!("/operations/new?kind=redrive&error_group={mail}");
    assert_eq!(reader.page(&question).await.status, StatusCode::FORBIDDEN);
    for path in ["/dead-events", "/dead-events/list", &format!("/dead-events/groups/{mail}")] {
        assert_eq!(theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let own = theirs.get(&on_canvas(OTHER, &format!("/dead-events/groups/{mail}"))).await.found();
    own.says("no answer after 9s").says_nothing_of("no answer after 1s");
    assert_eq!(left(&service).await, 5);
    let known = "select count(*) from wakeq.known_errors";
    assert_eq!(service.stage.count(known).await, 0);
}

#[tokio::test]
async fn what_tenants_write_is_escaped() {
    let service = Service::start().await;
    let evil = "<script>alert(1)</script> of <img src=x>";
    die(&service, CanvasId::DEFAULT, "mail", evil, 1).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let filters = "?error_text=%3Cscript%3E&tag=%22%3E%3Cscript%3E&name=%3Cscript%3E&died_since=%3Cscript%3E\
                   &error_group=%3Cscript%3E";
    let mail = group("mail", evil);
    for path in [
        "/dead-events".to_owned(),
        format!("/dead-events{filters}"),
        "/dead-events/list".to_owned(),
        format!("/dead-events/list{filters}"),
        "/dead-events/list?error_text=%3Cscript%3E".to_owned(),
        "/operations/new?kind=delete-dead&error_text=%3Cscript%3E".to_owned(),
        format!("/dead-events/groups/{mail}"),
    ] {
        let page = visitor.page(&path).await;
        page.says_nothing_of("<script>").says_nothing_of("<img");
    }
}
