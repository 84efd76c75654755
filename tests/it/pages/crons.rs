//! Pages about crons.

use reqwest::{Method, StatusCode};
use serde_json::json;
use wakeq::{CanvasId, HandlerError, Handlers, RetryPolicy, Route};
use wakeq_service::access::Scope;
use wakeq_testbed::wait_while;

use super::onlookers::{Onlookers, have_two_pages};
use super::visitor::{Visitor, on_canvas};
use super::watching::{until, watched};
use crate::crons::last_events::{DIED, TICKED};
use crate::support::handlers::answering;
use crate::support::service::Service;
use crate::support::{OTHER, Statements};

const EVIL: &str = "<script>alert(1)</script>\"'><img src=x>";

/// The fields of a cron's form.
fn fields<'f>(expression: &'f str, value: &'f str) -> [(&'f str, &'f str); 5] {
    [
        ("expression", expression),
        ("zone", "Europe/Berlin"),
        ("modifier", "_"),
        ("missed", "once"),
        ("value", value),
    ]
}

#[tokio::test]
async fn a_cron_is_made_changed_paused_and_deleted() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let list = visitor.page("/cron").await.found();
    list.says("There are no crons yet.");
    let mut new = fields("0 8 * * *", "{\"n\": 1.10}").to_vec();
    new.push(("name", "report"));
    let made = visitor.send(&list, "/cron", &new).await.found();
    made.says("The cron report ticks every day at 08:00 in Europe/Berlin.").says("1.10").says("CRON/report");
    made.says("are made up for by the last one").says(", 08:00:00 (+0");
    let taken = visitor.send(&list, "/cron", &new).await;
    assert_eq!(taken.status, StatusCode::CONFLICT);
    taken.says("there is a cron report already");
    let list = visitor.page("/cron").await.found();
    list.says("every day at 08:00 in Europe/Berlin").says(">0 8 * * *<").says("ticks");

    let wrong = visitor.send(&made, "/cron/report", &fields("every day", "")).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    wrong.says("is not a cron expression");
    let wrong = visitor.send(&made, "/cron/report", &fields("0 8 * * *", "{")).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    wrong.says("the value is not JSON");
    let changed = visitor.send(&made, "/cron/report", &fields("30 8 * * MON-FRI", "")).await.found();
    changed.says("The cron report ticks from Monday to Friday at 08:30 in Europe/Berlin.");

    let paused = visitor.send(&changed, "/pause", &[("reason", EVIL)]).await.found();
    paused.says("it does not tick until it is resumed").says("alert(1)").says_nothing_of("<script>alert");
    assert!(!paused.offers("/pause"), "it is paused already");
    let put = visitor.send(&paused, "/cron/report", &fields("0 9 * * *", "")).await.found();
    put.says("It is still paused.").says("None while the cron is paused.");
    let resumed = visitor.send(&put, "/unpause", &[]).await.found();
    resumed.says("The cron goes on with its next tick.");

    let asked = visitor.page("/cron/report/delete").await.found();
    asked.says("Delete 1 cron, report?").says("It has emitted");
    let deleted = visitor.send(&asked, "/delete", &[]).await.found();
    deleted.says("The cron report was deleted.").says("There are no crons yet.");
    assert_eq!(visitor.page("/cron/report").await.status, StatusCode::NOT_FOUND);
}

/// What words would say wrongly is shown as it was written.
#[tokio::test]
async fn a_schedule_that_takes_many_words_is_shown_as_it_is() {
    let service = Service::start().await;
    let cron = json!({"expression": "3,9 2,5,9,14,18,22 * * *", "value": EVIL});
    service.put("/cron/odd", cron).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    for path in ["/cron", "/cron/odd"] {
        let page = visitor.page(path).await.found();
        page.says("3,9 2,5,9,14,18,22 * * *").says(" in UTC").says_nothing_of("<script>alert");
    }
}

/// A tick whose handler failed is among the dead events, and those ahead of their time are waiting.
#[tokio::test]
async fn a_cron_tells_what_came_of_its_ticks() {
    let service = Service::start().await;
    service.put("/cron/tick", json!({"expression": "* * * * * *"})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page("/cron/tick").await.found();
    page.says("every second in UTC").says("delayed").says("it is due at its tick");
    let (handler, _seen) = answering(|_| Err(HandlerError::operational("the ledger is away")));
    let route = Route::new("tick").module("CRON").retry(RetryPolicy { retries: 0, ..RetryPolicy::default() });
    let worker = service.stage.worker(Handlers::new().on(route, handler));
    let dead = "select count(*) from wakeq.dead_events";
    wait_while!(service.stage.pool.value::<i64>(dead).await == 0, "no tick died");
    worker.stop().await;
    let page = visitor.page("/cron/tick").await.found();
    page.says("died (retries): the ledger is away").says("In the last day");
    let id = page.html.split("/events/").nth(1).unwrap().split('"').next().unwrap();
    visitor.page(&format!("/events/{id}")).await.found().says("CRON/tick");
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let page = theirs.get(&on_canvas(OTHER, "/cron/tick")).await;
    assert_eq!(page.status, StatusCode::NOT_FOUND, "another canvas has no such cron");
}

/// The list says it too, and both link to the event as long as there is one.
#[tokio::test]
async fn a_last_tick_leads_to_its_event() {
    let service = Service::start().await;
    service.put("/cron/report", json!({"expression": "@yearly"})).await.json();
    let key = service.key("other", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &key).await;
    let cron = json!({"expression": "@yearly"});
    service.ask(&key, Method::PUT, &format!("/canvases/{OTHER}/cron/report"), cron).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    for path in ["/cron", "/cron/report"] {
        visitor.page(path).await.found().says("never").says_nothing_of("completed or removed");
    }
    service.stage.execute(TICKED).await;
    let id = service.get("/cron/report").await.json()["last_event"]["id"].as_str().unwrap().to_owned();
    let link = on_canvas(CanvasId::DEFAULT, &format!("/events/{id}"));
    for (becomes, word) in
        [(None, "ready"), (Some("update wakeq.events_v2 set retries = 1"), "retrying"), (Some(DIED), "dead")]
    {
        if let Some(sql) = becomes {
            service.stage.execute(sql).await;
        }
        for path in ["/cron", "/cron/report"] {
            visitor
                .page(path)
                .await
                .found()
                .says(&format!("{word}</span> <a href=\"{link}\""))
                .says("What came of it");
            let page = theirs.get(&on_canvas(OTHER, path)).await.found();
            page.says_nothing_of(&id).says_nothing_of("dead</span> <a");
        }
    }
    service.stage.execute("delete from wakeq.dead_events").await;
    for path in ["/cron", "/cron/report"] {
        visitor.page(path).await.found().says("completed or removed").says(&id).says_nothing_of(&link);
    }
    service.stop().await;
}

/// Somebody who looks on is shown each tick, and is recorded as a reader once, not at each look.
#[tokio::test]
async fn ticks_are_shown_to_those_who_look_on() {
    let service = Service::start().await;
    service.put("/cron/report", json!({"expression": "@yearly", "value": "<secret>"})).await.json();
    let key = service.key("other", OTHER, &Scope::ALL).await;
    let cron = json!({"expression": "@yearly"});
    service.ask(&key, Method::PUT, &format!("/canvases/{OTHER}/cron/report"), cron).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let theirs = Visitor::with_key(&service, &key).await;
    let mut streams = Vec::new();
    for path in ["/cron", "/cron/report"] {
        streams.push(watched(&visitor, &on_canvas(CanvasId::DEFAULT, path)).await);
    }
    let mut other = watched(&theirs, &on_canvas(OTHER, "/cron/report")).await;
    for stream in streams.iter_mut().chain([&mut other]) {
        let sent = until(stream, "never").await;
        assert!(!sent.contains("secret") && !sent.contains("<form"), "only what is live is sent: {sent}");
    }
    let tick =
        "select id::text from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000'";
    service.stage.execute(TICKED).await;
    let id: String = service.stage.pool.value(tick).await;
    for stream in &mut streams {
        until(
            stream,
            &format!("ready</span> <a href=\"{}\"", on_canvas(CanvasId::DEFAULT, &format!("/events/{id}"))),
        )
        .await;
    }
    service.stage.execute(DIED).await;
    for stream in &mut streams {
        until(stream, "dead</span> <a").await;
    }
    let sent = until(&mut other, "ready</span> <a").await;
    assert!(!sent.contains(&id) && !sent.contains("dead</span> <a"), "{sent}");
    drop((streams, other));
    let stage = service.stop().await;
    let recorded = "select string_agg(action || ' ' || times, ', ' order by action) from wakeq.audit_log
                     where canvas_id = '00000000-0000-0000-0000-000000000000' and action in
                           ('list_crons', 'show_cron', 'list_dead_events', 'list_ended_events')";
    let recorded: String = stage.pool.value(recorded).await;
    assert_eq!(recorded, "list_crons 1, list_dead_events 1, list_ended_events 1, show_cron 1");
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn crons_are_listed_page_by_page() {
    let service = Service::start().await;
    for number in 0..101 {
        service.put(&format!("/cron/c{number:03}"), json!({"expression": "@yearly"})).await.json();
    }
    have_two_pages(&service, "/cron", 'c').await;
}

/// Pressing a button twice, as a browser may send a form again, runs the cron once.
#[tokio::test]
async fn a_cron_is_run_now_once_for_each_form() {
    let service = Service::start().await;
    service.put("/cron/report", json!({"expression": "@yearly"})).await.json();
    service.put("/cron/report/pause", json!({})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page("/cron/report").await.found();
    for _ in 0..2 {
        let ran = visitor.send(&page, "/run-now", &[]).await.found();
        ran.says("The cron runs now, outside its rhythm: its event is ").says("Paused ");
        ran.says("no attempt has ended yet");
    }
    let waiting = "select count(*) from wakeq.events_v2";
    assert_eq!(service.stage.pool.value::<i64>(waiting).await, 1);
    visitor.send(&visitor.page("/cron/report").await.found(), "/run-now", &[]).await.found();
    assert_eq!(service.stage.pool.value::<i64>(waiting).await, 2);
}

/// A key that reads sees no control; one that operates and does not emit can neither put nor run;
/// and a key of another canvas is told that there is nothing.
#[tokio::test]
async fn only_those_with_rights_are_shown_controls_and_obeyed() {
    let service = Service::start().await;
    service.put("/cron/report", json!({"expression": "@yearly"})).await.json();
    let onlookers = Onlookers::of(&service).await;
    onlookers.find_no_controls("/cron", "/cron/report", &["/pause", "/run-now"]).await;
    let page = onlookers.operator.visitor.page("/cron/report").await.found();
    assert!(page.offers("/pause") && page.offers("/delete") && !page.offers("/run-now"));
    page.says_nothing_of("<details");
    let put = fields("0 9 * * *", "");
    onlookers.may_not_emit("/cron/report", &put).await;
    onlookers.may_not_emit("/cron", &[&[("name", "mine")][..], &put].concat()).await;
    onlookers.may_not_emit("/cron/report/run-now", &[]).await;
    for verb in ["pause", "unpause", "delete"] {
        onlookers.may_not_change(&format!("/cron/report/{verb}"), &[]).await;
    }
    assert_eq!(service.get("/cron/report").await.json()["expression"], "@yearly");
    assert_eq!(service.stage.pool.value::<i64>("select count(*) from wakeq.events_v2").await, 0);
}
