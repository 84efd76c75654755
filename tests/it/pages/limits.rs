//! Pages about limits.

use reqwest::{Method, StatusCode};
use serde_json::json;
use wakeq::CanvasId;
use wakeq::machine::Outcome;
use wakeq_service::access::Scope;
use wakeq_testbed::wait_while;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::{NONE, Service, has};

#[tokio::test]
async fn a_limit_is_set_changed_and_removed() {
    let service = Service::start().await;
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let other = format!("/canvases/{OTHER}/limits/their-own");
    service.ask(&theirs, Method::PUT, &other, json!({"concurrency": 9})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let none = visitor.page("/limits").await.found();
    none.says("This canvas has no limit.").says_nothing_of("their-own");
    let fields = [("name", "customer"), ("concurrency", "5"), ("on_full", "drop")];
    let set = visitor.send(&none, "/limits", &fields).await.found();
    set.says("The limit customer is set: 5 at a time; full: drop.");
    assert_eq!(set.path, on_canvas(CanvasId::DEFAULT, "/limits/customer"));
    let list = visitor.page("/limits").await.found();
    list.says("customer").says("has room").says_nothing_of("their-own");
    let fields = [("rate_count", "100"), ("rate_period_s", "60"), ("rate_burst", "10"), ("on_full", "wait")];
    let changed = visitor.send(&set, "/limits", &fields).await.found();
    changed.says("The limit customer was replaced: 100 per 1m, 10 at once; full: wait.");
    has(&service.get("/limits/customer").await.json(), json!({"concurrency": null, "default": false}));
    for (fields, words) in [
        ([("name", "customer"), ("concurrency", "five")], "is a whole number"),
        ([("name", "customer"), ("rate_count", "5")], "give both"),
        ([("name", "<script>"), ("concurrency", "5")], "a limit is named"),
        ([("name", "customer"), ("concurrency", "0")], "1 to 1,000"),
        ([("name", " "), ("concurrency", "5")], "name what is limited"),
    ] {
        let refused = visitor.send(&none, "/limits", &fields).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{fields:?}");
        refused.says(words).says_nothing_of("<script>");
    }
    let asked = visitor.page("/limits/customer/remove").await.found();
    asked.says("Remove the limit customer, which allows 100 per 1m").says("No event waits for it.");
    visitor.send(&asked, "/remove", &[]).await.found().says("The limit customer was removed.");
    service.get("/limits/customer").await.says((404, "not-found"), "");
    assert_eq!(service.stage.count("select count(*) from wakeq.limits").await, 1, "the other tenant's");
}

/// An import holds the only place of a key, and a mail waits for it.
#[tokio::test]
async fn a_full_limit_says_who_holds_it_and_who_waits() {
    let service = Service::start().await;
    service.put("/limits/customer", json!({"concurrency": 1})).await.json();
    let (mut worker, mut door) = service.stage.door("import");
    let emit = async |object: &str| {
        let event = json!({"name": "import", "object": object, "options": {"limits": ["customer:7"]}});
        service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned()
    };
    let first = emit("file:1").await;
    door.arrived.next().await;
    let second = emit("file:2").await;
    worker.until(second.parse().unwrap(), Outcome::LimitFull).await;

    let visitor = Visitor::with_key(&service, &service.key).await;
    visitor.page("/limits").await.found().says("full, others wait");
    let one = visitor.page("/limits/customer").await.found();
    one.says("customer:7").says("1 of 1").says("1 event waits").says(&first).says_nothing_of(&second);
    let holders = visitor.page("/limits/customer/holders").await.found();
    holders.says("Who is starving whom").says("WORKER/import").says("customer:7").says(&first).says(&second);
    holders.says("file:1").says("file:2").says("Places held: 1. Waiting: 1.");
    let asked = visitor.page("/limits/customer/remove").await.found();
    asked.says("The 1 event that waits for it may then start.");
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    for path in ["/limits/customer", "/limits/customer/holders", "/limits/customer/remove"] {
        assert_eq!(theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let own = theirs.get(&on_canvas(OTHER, "/limits/customer/holders")).await.found();
    own.says("Nothing holds a place of it").says_nothing_of(&first).says_nothing_of(&second);
    assert_eq!(theirs.get(&on_canvas(OTHER, "/limits/customer")).await.status, StatusCode::NOT_FOUND);
    door.open(2);
    worker.until(second.parse().unwrap(), Outcome::HandedOver).await;
    worker.stop().await;
}

/// More events wait for another limit, and come first in the list, than are looked at.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn events_that_wait_for_another_limit_hide_none_that_waits_for_this_one() {
    let service = Service::start().await;
    for limit in ["customer", "exports"] {
        service.put(&format!("/limits/{limit}"), json!({"concurrency": 1})).await.json();
    }
    let (_worker, mut door) = service.stage.door("import");
    let emit = async |limit: &str| {
        let event = json!({"name": "import", "options": {"limits": [limit]}});
        service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned()
    };
    let waiting = async || service.stage.count("select count(*) from wakeq.limit_waits").await;
    for _ in 0..26 {
        emit("exports").await;
    }
    door.arrived.next().await;
    wait_while!(waiting().await < 25, "they are not limited");
    let first = emit("customer:7").await;
    door.arrived.next().await;
    let second = emit("customer:7").await;
    wait_while!(waiting().await < 26, "it is not limited");

    let visitor = Visitor::with_key(&service, &service.key).await;
    let holders = visitor.page("/limits/customer/holders").await.found();
    holders.says("Places held: 1. Waiting: 1.").says(&first).says(&second).says_nothing_of("exports");
    visitor.page("/limits/exports/holders").await.found().says("Waiting: 25.").says_nothing_of(&second);
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let own = theirs.get(&on_canvas(OTHER, "/limits/exports/holders")).await.found();
    own.says("Nothing holds a place of it").says("Waiting: 0.");
}

#[tokio::test]
async fn the_operators_limits_are_set_by_admins_of_every_canvas() {
    let service = Service::start().await;
    let wide = service.wide_key("wide", &Scope::ALL).await;
    let visitor = Visitor::with_key(&service, &wide).await;
    assert!(visitor.page("/limits").await.found().offers("/limits?of=operator"));
    let list = visitor.page("/limits?of=operator").await.found();
    list.says("The operator has set no limit.");
    let fields = [("name", "customer"), ("concurrency", "7")];
    let set = visitor.send(&list, "/limits?of=operator", &fields).await.found();
    set.says("The limit customer is set: 7 at a time");
    let listed = service.ask(&wide, Method::GET, "/admin/limits", NONE).await.json();
    assert_eq!(listed["items"][0]["name"], "customer");
    let default = visitor.page("/limits/customer").await.found();
    default.says("this canvas has no limit of this name").says("Set one of this canvas");
    assert!(!default.offers("/limits/customer/remove"), "it is not this canvas's");
    let asked = visitor.page("/limits/customer/remove?of=operator").await.found();
    visitor.send(&asked, "/remove?of=operator", &[]).await.found().says("was removed");
    let listed = service.ask(&wide, Method::GET, "/admin/limits", NONE).await.json();
    assert_eq!(listed["items"], json!([]));

    let narrow = Visitor::with_key(&service, &service.key).await;
    let own = narrow.page("/limits").await.found();
    assert!(!own.offers("/limits?of=operator"));
    assert_eq!(narrow.page("/limits?of=operator").await.status, StatusCode::FORBIDDEN);
    let token = own.form("/limits").token();
    let path = on_canvas(CanvasId::DEFAULT, "/limits?of=operator");
    let fields = [("form_token", token.as_str()), ("name", "customer"), ("concurrency", "7")];
    assert_eq!(narrow.post(&path, &fields).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_reader_changes_no_limit() {
    let service = Service::start().await;
    service.put("/limits/customer", json!({"concurrency": 5})).await.json();
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    for path in ["/limits", "/limits/customer"] {
        let page = reader.page(path).await.found();
        page.says("customer").says_nothing_of("Set the limit").says_nothing_of("Remove the limit");
    }
    let asked = reader.page("/limits/customer/remove").await.found();
    assert_eq!(reader.send(&asked, "/remove", &[]).await.status, StatusCode::FORBIDDEN);
    let token = asked.form("/remove").token();
    let path = on_canvas(CanvasId::DEFAULT, "/limits");
    let fields = [("form_token", token.as_str()), ("name", "customer"), ("concurrency", "7")];
    assert_eq!(reader.post(&path, &fields).await.status, StatusCode::FORBIDDEN);
    assert_eq!(service.get("/limits/customer").await.json()["concurrency"], 5);
}

#[tokio::test]
async fn limits_come_in_pages() {
    let service = Service::start().await;
    let fill = "insert into wakeq.limits (canvas_id, name, concurrency, created_by, updated_by)
                select c.id::uuid, c.word || to_char(n, 'FM00'), 5, 'tests', 'tests'
                  from generate_series(1, 21) n,
                       (values ('00000000-0000-0000-0000-000000000000', 'mine-'),
                               ('00000000-0000-0000-0000-000000000007', 'theirs-')) c (id, word)";
    service.stage.execute(fill).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let first = visitor.page("/limits").await.found();
    first.says("mine-01").says("mine-20").says_nothing_of("mine-21").says_nothing_of("theirs-");
    let second = visitor.page(&format!("/limits{}", first.next_page())).await.found();
    second.says("mine-21").says_nothing_of("mine-01").says_nothing_of("theirs-");
}
