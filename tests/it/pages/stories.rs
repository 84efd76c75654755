//! Stories from a question to its answer: each clicked through in a real browser, and sent as plain
//! forms by those who may, by one who only reads, and by another tenant.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Timelike, Utc};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::control::ErrorGroupId;
use wakeq::machine::Outcome;
use wakeq::{CanvasId, EventId, Execution, HandlerError, Handlers};
use wakeq_service::access::Scope;

use super::browser::Browser;
use super::scene::Scene;
use super::visitor::{Visitor, on_canvas};
use crate::support::handlers::{Door, Recording, answering};
use crate::support::service::{Service, has};
use crate::support::{OTHER, RunningWorker, once, scope, wait_while};

const MAIL: &str = "/handlers/WORKER/send-mail";
const REASON: &str = "the mail server is down";

/// A person who operates the default canvas, and may emit there.
async fn operator(service: &Service) -> String {
    service.key("ada", CanvasId::DEFAULT, &[Scope::Emit, Scope::Read, Scope::Operate]).await
}

/// A person with all rights on another canvas, where there are events and handlers of the same
/// names.
async fn neighbour(service: &Service, handler: &str) -> Visitor {
    let key = service.key("neighbour", OTHER, &Scope::ALL).await;
    let event = json!({"name": handler, "delay_s": 3600, "options": {"limits": ["customer:7"]}});
    service.ask(&key, Method::POST, &format!("/canvases/{OTHER}/events"), event).await.json();
    Visitor::with_key(service, &key).await
}

/// The mail's handler has an event for later, so that it is listed.
async fn plan_a_mail(service: &Service) {
    service.post("/events", json!({"name": "send-mail", "delay_s": 36_000})).await.json();
}

/// The rules in force on the mail's handler.
async fn rules(service: &Service) -> Vec<Value> {
    service.get(MAIL).await.json()["rules"].as_array().unwrap().clone()
}

/// The orders whose mails die of the same error, and one whose mail dies of another.
const UNANSWERED: [u64; 3] = [6, 7, 8];
const REFUSED: u64 = 9;

/// What is said of an order whose mail died because nobody answered.
fn unanswered(order: u64) -> String {
    format!("the mail server 10.1.2.{order}:25 did not answer within 30 s")
}

/// Mails of the orders have died, and so has one of another tenant, with the tag and the error of
/// order 7.
async fn mails_died(service: &Service) -> Visitor {
    let (handler, _seen) = answering(|event| {
        let order = event.value::<Value>()?["order"].as_u64().unwrap_or_default();
        Err(HandlerError::operational(match order {
            REFUSED => "no such mailbox".to_owned(),
            order => unanswered(order),
        }))
    });
    let worker = service.stage.worker(Handlers::new().on(once("send-mail"), handler));
    let theirs = service.key("neighbour", OTHER, &Scope::ALL).await;
    let mail = |order: u64| {
        let options = json!({"tags": [format!("order:{order}")]});
        json!({"name": "send-mail", "value": {"order": order}, "options": options})
    };
    for order in [&UNANSWERED[..], &[REFUSED]].concat() {
        service.post("/events", mail(order)).await.json();
    }
    service.ask(&theirs, Method::POST, &format!("/canvases/{OTHER}/events"), mail(7)).await.json();
    wait_while!(dead(service).await < 5, "they did not die");
    worker.stop().await;
    Visitor::with_key(service, &theirs).await
}

/// How many events are dead, of both tenants.
async fn dead(service: &Service) -> i64 {
    service.stage.count("select count(*) from wakeq.dead_events").await
}

/// The handler, which is mended now, gets the values of that error, and no others.
async fn all_of_them_run_again(service: &Service, seen: &mut Recording<Execution>) {
    let again = seen.take(UNANSWERED.len()).await;
    let orders = again.iter().map(|event| event.value::<Value>().unwrap()["order"].as_u64().unwrap());
    let mut orders: Vec<u64> = orders.collect();
    orders.sort_unstable();
    assert_eq!(orders, UNANSWERED);
    service.stage.until_empty().await;
    assert!(seen.rest().is_empty(), "others run, too");
    assert_eq!(dead(service).await, 2, "the one of another error, and the other tenant's");
}

/// Why was this order's mail not sent? The handler is mended, and all of that error brought back.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn why_this_mail_was_not_sent() {
    let service = Service::start().await;
    let Some(browser) = Browser::open(&service).await else { return };
    mails_died(&service).await;
    browser.look(1440, false).await;
    browser.sign_in(&operator(&service).await).await;
    browser.type_into("#find", "order:7").await;
    browser.press("form.find button").await;
    browser.until_address("/events/", true).await;
    browser.until_it_says(&unanswered(7)).await;
    browser.press_text("all that died of the same error").await;
    browser.until_it_says("What to do next").await;
    let (worker, mut seen) = service.stage.recording("send-mail");
    browser.press_text("Redrive all").await;
    browser.until_it_says("Redrive these 3 events?").await;
    assert!(seen.rest().is_empty(), "nobody has said yes");
    browser.press_text("Yes, these 3 events").await;
    browser.until_it_says("The operation has begun.").await;
    all_of_them_run_again(&service, &mut seen).await;
    browser.until_it_says_live("It has looked at every event.").await;
    browser.go(&Scene::at("/dead-events")).await;
    browser.until_it_says("no such mailbox").await;
    assert!(!browser.says("the mail server").await, "they are dead no more");
    assert_eq!(browser.troubles().await, Vec::<String>::new());
    browser.close().await;
    worker.stop().await;
}

#[tokio::test]
async fn all_that_died_of_an_error_run_again_from_where_one_was_found() {
    let service = Service::start().await;
    let theirs = mails_died(&service).await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    let ada = Visitor::with_key(&service, &operator(&service).await).await;
    let group = ErrorGroupId::of(&scope("send-mail"), "retries", Some(&unanswered(7)));
    let of_group = format!("/dead-events/groups/{group}");
    let question = format!("/operations/new?kind=redrive&error_group={group}");
    for visitor in [&ada, &reader] {
        let event = visitor.page("/find?q=order%3A7").await.found();
        assert!(event.path.contains("/events/") && event.offers(&of_group), "{}", event.path);
        event.says(&unanswered(7)).says("all that died of the same error").says_nothing_of(&unanswered(6));
        let page = visitor.page(&of_group).await.found();
        page.says("What to do next").says("3 events").says_nothing_of("no such mailbox");
        assert_eq!(page.offers(&question.replace('&', "&amp;")), std::ptr::eq(visitor, &ada));
    }
    // The other tenant finds its own, which died of the same.
    for path in ["/find?q=order%3A7", &of_group, &question] {
        assert_eq!(theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    theirs.get(&on_canvas(OTHER, &of_group)).await.found().says("1 event").says_nothing_of(&unanswered(6));
    theirs.get(&on_canvas(OTHER, "/find?q=order%3A6")).await.found().says("No event that waits");

    let asked = ada.page(&question).await.found();
    asked.says("Redrive these 3 events?");
    assert_eq!(reader.page(&question).await.status, StatusCode::FORBIDDEN);
    let (worker, mut seen) = service.stage.recording("send-mail");
    for (visitor, status) in [(&reader, StatusCode::FORBIDDEN), (&theirs, StatusCode::NOT_FOUND)] {
        assert_eq!(visitor.send(&asked, "/operations", &[]).await.status, status, "with another's form");
    }
    assert_eq!((dead(&service).await, seen.rest().len()), (5, 0));
    ada.send(&asked, "/operations", &[]).await.found().says("The operation has begun.");
    all_of_them_run_again(&service, &mut seen).await;
    assert_eq!(ada.page(&of_group).await.status, StatusCode::NOT_FOUND, "nothing is dead of it");
    ada.page("/dead-events/list").await.found().says("no such mailbox").says_nothing_of("the mail server");
    theirs.get(&on_canvas(OTHER, &of_group)).await.found().says(&unanswered(7));
    worker.stop().await;
}

/// A zone in which it is 3 in the morning, and how many hours it is ahead of UTC.
fn zone_at_three() -> (String, i64) {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let hour = i64::try_from(now_s / 3600 % 24).unwrap();
    let ahead = (3 - hour).rem_euclid(24);
    let ahead = if ahead > 14 { ahead - 24 } else { ahead };
    // Such a zone's name says how far it is behind.
    let sign = if ahead >= 0 { '-' } else { '+' };
    (format!("Etc/GMT{sign}{}", ahead.abs()), ahead)
}

/// At 3 in the morning, somebody pauses a handler until 8, on a phone.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn pause_until_eight_from_a_phone() {
    let service = Service::start().await;
    let Some(browser) = Browser::open(&service).await else { return };
    plan_a_mail(&service).await;
    let (worker, mut seen) = service.stage.recording("send-mail");
    let (zone, ahead) = zone_at_three();
    browser.look(390, true).await;
    browser.in_zone(&zone).await;
    browser.sign_in(&operator(&service).await).await;
    browser.press_text("WORKER/send-mail").await;
    browser.press_text("Pause").await;
    browser.until_it_says("your time, ").await;
    browser.type_into("#reason", REASON).await;
    browser.press_text("today").await;
    assert_eq!(browser.small_controls().await, Vec::<String>::new());
    assert!(!browser.is_wider_than(390).await, "it scrolls sideways");
    browser.press_text("Pause the handler").await;
    browser.until_it_says("WORKER/send-mail is paused until").await;
    let rule = rules(&service).await.remove(0);
    let until: DateTime<Utc> = rule["until"].as_str().unwrap().parse().unwrap();
    let there = (i64::from(until.hour()) + ahead).rem_euclid(24);
    assert_eq!((there, until.minute()), (8, 0), "8 o'clock there: {until}");
    assert_eq!(rule["reason"], REASON);

    browser.press(".brand").await;
    for words in ["Rules in force", "paused", REASON, "key:ada", "8:00"] {
        browser.until_it_says(words).await;
    }
    assert!(!browser.is_wider_than(390).await, "it scrolls sideways");
    assert_eq!(browser.small_controls().await, Vec::<String>::new());
    assert_eq!(browser.words_off_centre().await, Vec::<String>::new());
    browser.go(&Scene::at("/new-event?name=send-mail")).await;
    browser.press_text("Emit the event").await;
    browser.until_it_says("The event was emitted.").await;
    browser.until_it_says("Its handler was paused by key:ada").await;
    browser.until_it_says(REASON).await;
    let path = browser.path().await;
    let id: EventId = path.rsplit('/').next().unwrap().parse().unwrap();
    assert!(seen.rest().is_empty(), "it waits");

    browser.press_text("WORKER/send-mail").await;
    browser.press_text("Lift the pause").await;
    browser.until_it_says("The pause of WORKER/send-mail is lifted").await;
    assert_eq!(seen.next().await.id, id);
    assert_eq!(browser.troubles().await, Vec::<String>::new());
    browser.close().await;
    worker.stop().await;
}

#[tokio::test]
async fn a_pause_until_eight_holds_what_comes_until_it_is_lifted() {
    let service = Service::start().await;
    plan_a_mail(&service).await;
    let theirs = neighbour(&service, "send-mail").await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    let ada = Visitor::with_key(&service, &operator(&service).await).await;
    let (worker, mut seen) = service.stage.recording("send-mail");

    let asked = ada.page(&format!("{MAIL}/pause")).await.found();
    // A browser with scripts sends what is typed in the reader's zone as UTC; others say so.
    asked.says("type=\"datetime-local\"").says("data-zone=\"until\">UTC</span>");
    let fields = [("reason", REASON), ("lasting", ""), ("until", "2099-01-31T07:00")];
    for (visitor, status) in [(&reader, StatusCode::FORBIDDEN), (&theirs, StatusCode::NOT_FOUND)] {
        assert_eq!(visitor.page(&format!("{MAIL}/pause")).await.status, status);
        assert_eq!(visitor.send(&asked, "/pause", &fields).await.status, status, "with another's form");
    }
    assert_eq!(rules(&service).await, Vec::<Value>::new());
    ada.send(&asked, "/pause", &fields).await.found().says("is paused until 2099-01-31 07:00:00 UTC");
    for visitor in [&ada, &reader] {
        let overview = visitor.page("").await.found();
        overview.says("Rules in force").says(REASON).says("by key:ada").says("2099-01-31 07:00:00 UTC");
    }
    theirs.get(&on_canvas(OTHER, "")).await.found().says_nothing_of(REASON).says_nothing_of("Rules in force");
    let form = ada.page("/new-event?name=send-mail").await.found();
    let shown = ada.send(&form, "/new-event", &[("name", "send-mail")]).await.found();
    shown.says("Its handler was paused by key:ada").says(REASON);
    let id: EventId = shown.path.rsplit('/').next().unwrap().parse().unwrap();
    assert_eq!(service.get(&format!("/events/{id}")).await.json()["state"], "paused");
    assert!(seen.rest().is_empty(), "it waits");

    let page = ada.page(MAIL).await.found();
    assert!(!reader.page(MAIL).await.found().offers("/unpause"));
    for (visitor, status) in [(&reader, StatusCode::FORBIDDEN), (&theirs, StatusCode::NOT_FOUND)] {
        assert_eq!(visitor.send(&page, "/unpause", &[]).await.status, status);
    }
    assert_eq!(rules(&service).await.len(), 1);
    ada.send(&page, "/unpause", &[]).await.found().says("The pause of WORKER/send-mail is lifted");
    assert_eq!(seen.next().await.id, id);
    worker.stop().await;
}

/// Two of four events of one customer hold both places of a handler, and one of another customer
/// waits behind the rest. Returns their ids in this order.
async fn starve(service: &Service) -> (RunningWorker, Door, Vec<EventId>) {
    service.put("/limits/handler:WORKER%2Fsync", json!({"concurrency": 2})).await.json();
    let (mut worker, mut door) = service.stage.door("sync");
    let mut ids: Vec<EventId> = Vec::new();
    for (at, customer) in [7, 7, 7, 7, 8].into_iter().enumerate() {
        let options = json!({"limits": [format!("customer:{customer}")]});
        let emitted = service.post("/events", json!({"name": "sync", "options": options})).await.json();
        let id = emitted["id"].as_str().unwrap().parse().unwrap();
        ids.push(id);
        if at < 2 {
            assert_eq!(door.arrived.next().await.id, id);
        } else {
            worker.until(id, Outcome::LimitFull).await;
        }
    }
    (worker, door, ids)
}

/// After the customer has a limit of one, another one's event starts as soon as there is a place.
async fn both_have_their_turn(door: &mut Door, ids: &[EventId]) {
    for next in [ids[2], ids[4]] {
        door.open(1);
        assert_eq!(door.arrived.next().await.id, next);
    }
}

/// Who is starving whom? That customer gets a limit, and others start again.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_customer_that_starves_others_gets_a_limit() {
    let service = Service::start().await;
    let Some(browser) = Browser::open(&service).await else { return };
    let (worker, mut door, ids) = starve(&service).await;
    browser.sign_in(&operator(&service).await).await;
    browser.until_it_says("3 events wait for the limit").await;
    browser.press_text("Who holds the places").await;
    let verdict =
        "customer:7 holds 2 of the 2 places that were looked at, while customer:8 waits and holds none.";
    browser.until_it_says(verdict).await;
    browser.press_text("Give customer:7 a limit").await;
    browser.until_it_says("It has no limit of its own").await;
    for (field, text) in [("#concurrency", "1"), ("#rate_count", "1"), ("#rate_period_s", "3600")] {
        browser.type_into(field, text).await;
    }
    browser.press_text("Set the limit").await;
    browser.until_it_says("The limit customer:7 is set").await;
    both_have_their_turn(&mut door, &ids).await;
    browser.go(&Scene::at("/limits")).await;
    browser.until_it_says("full, others wait").await;
    browser.press_text("customer:7").await;
    for words in ["1 of 1", "customer:7: 1 event waits", "its rate lets the next one start"] {
        browser.until_it_says(words).await;
    }
    browser.until_it_says(&ids[2].to_string()).await;
    assert_eq!(browser.troubles().await, Vec::<String>::new());
    browser.close().await;
    door.open(2);
    worker.stop().await;
}

#[tokio::test]
async fn a_limit_for_a_customer_is_set_from_where_the_starving_is_shown() {
    let service = Service::start().await;
    let (worker, mut door, ids) = starve(&service).await;
    let theirs = neighbour(&service, "sync").await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    let ada = Visitor::with_key(&service, &operator(&service).await).await;
    let (holders, set) = ("/limits/handler:WORKER%2Fsync/holders", "/limits/customer%3A7/set");
    ada.page("").await.found().says("3 events wait for the limit");
    for visitor in [&ada, &reader] {
        let page = visitor.page(holders).await.found();
        page.says(
            "customer:7 holds 2 of the 2 places that were looked at, while customer:8 waits and holds none.",
        );
        assert_eq!(page.offers(set), std::ptr::eq(visitor, &ada));
    }
    assert_eq!(theirs.page(holders).await.status, StatusCode::NOT_FOUND);
    let asked = ada.page(set).await.found();
    asked.says("It has no limit of its own");
    let fields = [("concurrency", "1"), ("rate_count", "1"), ("rate_period_s", "3600"), ("on_full", "wait")];
    for (visitor, status) in [(&reader, StatusCode::FORBIDDEN), (&theirs, StatusCode::NOT_FOUND)] {
        assert_eq!(visitor.page(set).await.status, status);
        assert_eq!(visitor.send(&asked, "/limits", &fields).await.status, status, "with another's form");
    }
    // The key of that name on another canvas is another one.
    let own = theirs.get(&on_canvas(OTHER, set)).await.found();
    theirs
        .send(&own, "/limits", &[("concurrency", "9")])
        .await
        .found()
        .says("customer:7 is set: 9 at a time");
    service.get("/limits/customer:7").await.says((404, "not-found"), "");
    ada.page(set).await.found().says("It has no limit of its own");

    ada.send(&asked, "/limits", &fields).await.found().says("The limit customer:7 is set: 1 at a time");
    has(&service.get("/limits/customer:7").await.json(), json!({"concurrency": 1, "updated_by": "key:ada"}));
    both_have_their_turn(&mut door, &ids).await;
    let is_full = async || ada.page("/limits/customer:7").await.found().html.contains("1 event waits");
    wait_while!(!is_full().await, "the page does not tell");
    let limit = ada.page("/limits/customer:7").await.found();
    limit.says("1 of 1").says(&ids[2].to_string()).says("its rate lets the next one start");
    limit.says_nothing_of(&ids[4].to_string());
    let list = ada.page("/limits").await.found();
    list.says("full, others wait").says("handler:WORKER/sync");
    let foreign = theirs.get(&on_canvas(OTHER, "/limits/customer:7")).await.found();
    foreign.says("9 at a time").says("No event waits for it.");
    door.open(2);
    worker.stop().await;
}
