//! Pages about handlers: their counts and history, what stops one, and a purge.

use reqwest::StatusCode;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::scene::EVIL;
use super::visitor::{Shown, Visitor, on_canvas};
use crate::support::service::Service;
use crate::support::{OTHER, wait_while};

const GREET: &str = "/handlers/WORKER/greet";

async fn owner(service: &Service) -> Visitor {
    Visitor::with_key(service, &service.key).await
}

async fn emit(service: &Service, names: &[String]) {
    let events: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    service.post("/events:batch", json!({"events": events})).await.json();
}

/// Emits an event of another tenant.
async fn emit_theirs(service: &Service, name: &str) {
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let path = format!("/canvases/{OTHER}/events");
    service.ask(&theirs, reqwest::Method::POST, &path, json!({"name": name})).await.json();
}

/// The rules in force on `greet`, as the API has them.
async fn rules(service: &Service) -> Vec<Value> {
    service.get(GREET).await.json()["rules"].as_array().unwrap().clone()
}

/// The query of the next page of a list.
fn next(page: &Shown) -> String {
    let before = page.html.split(" rel=\"next\"").next().unwrap();
    before.rsplit("href=\"").next().unwrap().split('"').next().unwrap().replace("&amp;", "&")
}

#[tokio::test]
async fn handlers_are_listed_page_by_page_and_found_by_name() {
    let service = Service::start().await;
    let names: Vec<_> = (0..101).map(|number| format!("h-{number:03}")).collect();
    emit(&service, &names).await;
    emit_theirs(&service, "theirs").await;
    let visitor = owner(&service).await;
    visitor.page("").await.found().says("/handlers\"");
    let first = visitor.page("/handlers").await.found();
    first.says("WORKER/h-000").says("WORKER/h-099").says_nothing_of("h-100").says_nothing_of("theirs");
    let second = visitor.page(&format!("/handlers{}", next(&first))).await.found();
    second.says("WORKER/h-100").says("First page").says_nothing_of("h-099").says_nothing_of("Next page");
    for name in ["h-007", "WORKER%2Fh-007"] {
        let found = visitor.page(&format!("/handlers?name={name}")).await.found();
        found.says("WORKER/h-007").says(" open</span>").says_nothing_of("h-008");
    }
    for name in ["nothing", "theirs"] {
        let none = visitor.page(&format!("/handlers?name={name}")).await.found();
        none.says("no events, rules or targets").says(&format!("open WORKER/{name}"));
    }
    assert_eq!(visitor.page("/handlers?name=a%20b").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(visitor.page("/handlers?cursor=%20x").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn an_empty_list_says_what_to_do() {
    let service = Service::start().await;
    emit_theirs(&service, "theirs").await;
    let page = owner(&service).await.page("/handlers").await.found();
    page.says("Emit an event").says_nothing_of("theirs");
}

/// Adds what happened ten minutes ago: four attempts, each after 3 ms, of which two took half a
/// millisecond together. Another tenant has more.
async fn count(service: &Service) {
    let add = "insert into wakeq.minute_statistics
               select date_trunc('minute', now()) - interval '10 minutes', canvas, 'WORKER', 'greet', emitted,
                      4, 2, 1, 1, 12000, 1000, '{0,0,4}', '{2}'
                 from (values ($1::uuid, 5), ($2, 50)) as counted (canvas, emitted)";
    let adding = sqlx::query(add).bind(CanvasId::DEFAULT.0).bind(OTHER.0);
    adding.execute(&service.stage.pool).await.unwrap();
}

/// None, and five of each kind. Another tenant has one of the same name.
// Shows: EV2-09
#[tokio::test]
async fn the_page_of_a_handler_says_how_many_events_it_has() {
    let service = Service::start().await;
    service.put("/handlers/WORKER/paused/pause", json!({})).await.json();
    for (name, delay_s) in [("five", 0), ("late", 3600), ("paused", 0)] {
        let event = json!({"name": name, "delay_s": delay_s});
        service.post("/events:batch", json!({"events": vec![event; 5]})).await.json();
    }
    emit_theirs(&service, "five").await;
    let visitor = owner(&service).await;
    for (name, counts) in
        [("none", [0, 0, 0]), ("five", [5, 0, 0]), ("late", [0, 5, 0]), ("paused", [0, 0, 5])]
    {
        let page = visitor.page(&format!("/handlers/WORKER/{name}")).await.found();
        for (label, count) in ["waiting", "delayed", "paused or blocked"].into_iter().zip(counts) {
            page.says(&format!("<span class=\"value\">{count}</span><span class=\"label\">{label}</span>"));
        }
    }
}

/// In each of three hours about a day ago, four attempts began after 20 ms, on both canvases those
/// of another mean.
const YESTERDAY: &str = "
    insert into wakeq.hour_statistics
    select date_trunc('hour', now()) - interval '1 day' + n * interval '1 h', canvas::uuid, 'WORKER', 'greet', 5,
           4, 0, 0, 0, waited, 1000, '{0,0,0,0,0,4}', '{4}'
      from (values ('00000000-0000-0000-0000-000000000000', 80000),
                   ('00000000-0000-0000-0000-000000000007', 120000)) as d (canvas, waited),
           generate_series(-1, 1) n";

#[tokio::test]
async fn times_are_compared_with_those_of_yesterday() {
    let service = Service::start().await;
    emit(&service, &["greet".to_owned()]).await;
    service.stage.execute(YESTERDAY).await;
    let visitor = owner(&service).await;
    let page = visitor.page(GREET).await.found();
    page.says("Waited in this hour yesterday").says("Ran in this hour yesterday").says(">20 ms<");
    page.says_nothing_of(">30 ms<");
    visitor.page(&format!("{GREET}?over=24h")).await.found().says("Waited in the day before");
    visitor.page(&format!("{GREET}?over=14d")).await.found().says_nothing_of("the day before");
}

#[tokio::test]
async fn a_handler_shows_its_counts_its_history_and_its_limits() {
    let service = Service::start().await;
    emit(&service, &["greet".to_owned(), "greet".to_owned()]).await;
    count(&service).await;
    let rate = json!({"rate": {"count": 100, "period_s": 60, "burst": 10}});
    service.put("/limits/handler:WORKER%2Fgreet", json!({"concurrency": 5})).await.json();
    service.put("/limits/canvas", rate).await.json();
    service.put("/handlers/WORKER/leased/pull", json!({})).await.json();
    let unknown = "insert into wakeq.unknown_handlers (canvas_id, module, name, modifier)
                   values ('00000000-0000-0000-0000-000000000000', 'WORKER', 'greet', '_')";
    service.stage.execute(unknown).await;
    let visitor = owner(&service).await;
    for (over, words) in
        [("1h", "The last 1 hour"), ("24h", "The last 24 hours"), ("14d", "The last 14 days")]
    {
        let page = visitor.page(&format!("{GREET}?over={over}")).await.found();
        page.says(words).says("4 completed, 2 attempts failed, 1 died").says(">5 emitted<");
        page.says("half of the events had been due for at most 3 ms")
            .says("half of the attempts took at most 500");
        page.says("<td>less than 1 ms</td><td class=\"number\">0</td><td class=\"number\">2</td>");
        page.says("<td>2 ms to 4 ms</td><td class=\"number\">4</td><td class=\"number\">0</td>");
        page.says("<p class=\"axis\"><span><time datetime=");
        page.says_nothing_of("50 emitted");
    }
    let page = visitor.page(GREET).await.found();
    page.says("<span class=\"value\">2</span><span class=\"label\">waiting</span>");
    page.says("5 at a time")
        .says("100 starts in 1 min, 10 at once")
        .says("/limits/handler%3AWORKER%2Fgreet\"");
    page.says("without knowing it").says("No URL gets the events").says_nothing_of("Programs lease");
    visitor.page("/handlers").await.found().says("no worker knows it");
    visitor.page("/handlers/WORKER/leased").await.found().says("Programs lease its events");
    let slip = visitor.page("/handlers/worker/greet").await;
    assert_eq!(slip.status, StatusCode::NOT_FOUND);
    slip.says("modules are case-sensitive");
}

#[tokio::test]
async fn a_handler_is_paused_with_a_reason_and_an_end_and_lifted() {
    let service = Service::start().await;
    emit(&service, &["greet".to_owned()]).await;
    let visitor = owner(&service).await;
    let page = visitor.page(GREET).await.found();
    assert!(page.offers("/greet/pause") && !page.offers("/unpause"));
    let asked = visitor.page(&format!("{GREET}/pause")).await.found();
    let pause = async |asked: &Shown, reason: &str, lasting: &str, until: &str| {
        let fields = [("reason", reason), ("lasting", lasting), ("until", until)];
        visitor.send(asked, "/greet/pause", &fields).await
    };
    let done = pause(&asked, "mail server down", "3600", "").await.found();
    done.says("WORKER/greet is paused until 20")
        .says("mail server down")
        .says("key:tests")
        .says("Lift the pause");
    let standing = rules(&service).await;
    assert_eq!(
        (standing.len(), &standing[0]["kind"], &standing[0]["reason"]),
        (1, &json!("pause"), &json!("mail server down"))
    );
    visitor.page("/handlers").await.found().says("paused");

    let until = "2099-01-31T08:00:00Z";
    let done = pause(&asked, "still down", "", "2099-01-31 08:00").await.found();
    done.says("until 2099-01-31 08:00:00 UTC").says("reason and end were replaced").says("still down");
    assert_eq!(rules(&service).await[0]["until"], until);
    for (lasting, until, words) in [
        ("900", "2099-03-01 08:00", "not both"),
        ("", "soon", "2030-01-31 08:00, in UTC"),
        ("", "2001-01-31 08:00", "in the past"),
    ] {
        let refused = pause(&asked, "", lasting, until).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{until}");
        refused.says(words);
    }
    assert_eq!(rules(&service).await[0]["until"], until);
    let asked = visitor.page(&format!("{GREET}/pause")).await.found();
    asked.says("Change the pause").says("value=\"still down\"").says("value=\"2099-01-31T08:00\"");
    pause(&asked, "a quarter more", "900", "2099-01-31 08:00:00").await.found().says_nothing_of("2099");

    let page = visitor.page(GREET).await.found();
    visitor.send(&page, "/unpause", &[]).await.found().says("The pause of WORKER/greet is lifted");
    assert_eq!(rules(&service).await, Vec::<Value>::new());
    visitor.send(&page, "/unpause", &[]).await.found().says("There was no pause of WORKER/greet.");
}

#[tokio::test]
async fn a_handler_is_blocked_by_an_admin_alone() {
    let service = Service::start().await;
    let operator = service.key("ada", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
    let (admin, operator) = (owner(&service).await, Visitor::with_key(&service, &operator).await);
    let asked = admin.page(&format!("{GREET}/block")).await.found();
    let done = admin.send(&asked, "/greet/block", &[("reason", "it bills twice")]).await.found();
    done.says("WORKER/greet is blocked until somebody lifts it")
        .says("it bills twice")
        .says("Lift the block");
    let page = operator.page(GREET).await.found();
    page.says("it bills twice");
    assert!(page.offers("/greet/pause") && !page.offers("/greet/block") && !page.offers("/unblock"));
    assert_eq!(operator.page(&format!("{GREET}/block")).await.status, StatusCode::FORBIDDEN);
    let token = operator.page(&format!("{GREET}/pause")).await.form("/greet/pause").token();
    for verb in ["block", "unblock"] {
        let path = on_canvas(CanvasId::DEFAULT, &format!("{GREET}/{verb}"));
        let refused = operator.post(&path, &[("form_token", &token)]).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        refused.says("`admin`");
    }
    let asked = operator.page(&format!("{GREET}/pause")).await.found();
    operator.send(&asked, "/greet/pause", &[]).await.found().says("It is blocked as well.");
    let page = operator.page(GREET).await.found();
    operator.send(&page, "/unpause", &[]).await.found().says("It is still blocked.");
    let page = admin.page(GREET).await.found();
    admin.send(&page, "/unblock", &[]).await.found().says("The block of WORKER/greet is lifted");
    assert_eq!(rules(&service).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_purge_names_its_count_and_leaves_what_comes_later() {
    let service = Service::start().await;
    emit(&service, &["greet", "greet", "greet", "other"].map(str::to_owned)).await;
    emit_theirs(&service, "greet").await;
    let visitor = owner(&service).await;
    assert!(visitor.page(GREET).await.found().offers("/greet/purge"));
    let asked = visitor.page(&format!("{GREET}/purge")).await.found();
    asked.says("Delete 3 events of WORKER/greet?");
    emit(&service, &["greet".to_owned()]).await;
    let path = on_canvas(CanvasId::DEFAULT, &format!("{GREET}/purge"));
    let unseen = visitor.post(&path, &[("form_token", &asked.form("/purge").token())]).await;
    assert_eq!(unseen.status, StatusCode::BAD_REQUEST);
    unseen.says("look first");
    assert_eq!(service.stage.rows().await, 6, "nothing was deleted yet");
    visitor.send(&asked, "/purge", &[]).await.found().says("Deleted 3 events of WORKER/greet.");
    assert_eq!(service.stage.rows().await, 3, "the later one, the other one and another tenant's");
    visitor.page(&format!("{GREET}/purge")).await.found().says("Delete 1 event of");
    let none = visitor.page("/handlers/WORKER/none/purge").await.found();
    none.says("There is nothing to delete");
    assert!(!none.html.contains("danger"), "no button that would delete nothing");
}

/// More than is deleted at once is left to an operation, whose page follows.
#[tokio::test]
async fn a_large_purge_becomes_an_operation() {
    let service = Service::start().await;
    let insert = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
                  select gen_random_uuid(), $1, 'WORKER', 'greet', '_', '1', now() from generate_series(1, 10003)";
    sqlx::query(insert).bind(CanvasId::DEFAULT.0).execute(&service.stage.pool).await.unwrap();
    emit_theirs(&service, "greet").await;
    let visitor = owner(&service).await;
    let asked = visitor.page(&format!("{GREET}/purge")).await.found();
    asked.says("Delete 10\u{202f}003 events of WORKER/greet?");
    let done = visitor.send(&asked, "/purge", &[]).await;
    let operation = done.path.split("/operations/").nth(1).unwrap();
    let path = format!("/operations/{operation}");
    wait_while!(service.get(&path).await.json()["state"] == "open", "it does not end");
    assert_eq!(service.stage.rows().await, 1, "another tenant's");
}

/// Nobody is shown what they may not do, a key that only reads changes nothing, and a key of
/// another canvas finds nothing.
#[tokio::test]
async fn without_rights_a_control_is_neither_shown_nor_obeyed() {
    let service = Service::start().await;
    emit(&service, &["greet".to_owned()]).await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    let (reader, theirs) =
        (Visitor::with_key(&service, &reader).await, Visitor::with_key(&service, &theirs).await);
    let page = reader.page(GREET).await.found();
    for verb in ["pause", "unpause", "block", "unblock", "purge", "new-target"] {
        assert!(!page.offers(&format!("/greet/{verb}")), "{verb}");
    }
    for verb in ["pause", "block", "purge", "new-target"] {
        let path = format!("{GREET}/{verb}");
        assert_eq!(reader.page(&path).await.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(theirs.page(&path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let owner = owner(&service).await;
    let token = owner.page(&format!("{GREET}/pause")).await.form("/greet/pause").token();
    let without: &[(&str, &str)] = &[];
    let of_another: &[(&str, &str)] = &[("form_token", &token)];
    for verb in ["pause", "unpause", "block", "unblock", "purge", "new-target"] {
        let path = on_canvas(CanvasId::DEFAULT, &format!("{GREET}/{verb}"));
        for (visitor, status) in [(&reader, StatusCode::FORBIDDEN), (&theirs, StatusCode::NOT_FOUND)] {
            for fields in [without, of_another] {
                assert_eq!(visitor.post(&path, fields).await.status, status, "{path}");
            }
        }
    }
    assert_eq!(theirs.page("/handlers").await.status, StatusCode::NOT_FOUND);
    assert_eq!(rules(&service).await, Vec::<Value>::new());
    assert_eq!(service.stage.rows().await, 1);
}

/// A key for one handler sees that one alone, with what it may do there.
#[tokio::test]
async fn a_key_for_one_handler_sees_its_page() {
    let service = Service::start().await;
    emit(&service, &["greet", "other"].map(str::to_owned)).await;
    let scopes = json!({"holder": "narrow", "scopes": ["read:WORKER/greet", "operate:WORKER/greet"]});
    let made = service.admin(reqwest::Method::POST, "/keys", scopes).await.json();
    let narrow = Visitor::stranger(&service);
    let home = narrow.post("/sign-in", &[("key", made["key"].as_str().unwrap())]).await.found();
    assert!(home.offers(GREET), "{}", home.html);
    let page = narrow.page(GREET).await.found();
    assert!(page.offers("/greet/pause") && page.offers("/greet/purge") && !page.offers("/greet/block"));
    let asked = narrow.page(&format!("{GREET}/pause")).await.found();
    narrow.send(&asked, "/greet/pause", &[]).await.found().says("WORKER/greet is paused");
    for path in ["/handlers", "/handlers/WORKER/other", "/handlers/WORKER/other/pause"] {
        assert_eq!(narrow.page(path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn what_tenants_write_is_escaped() {
    let service = Service::start().await;
    service.put(&format!("{GREET}/pause"), json!({"reason": EVIL})).await.json();
    service.admin(reqwest::Method::PUT, &format!("{GREET}/block"), json!({"reason": EVIL})).await.json();
    service.admin(reqwest::Method::PUT, "/block", json!({"reason": EVIL})).await.json();
    let visitor = owner(&service).await;
    for path in
        ["", "/handlers", GREET, &format!("{GREET}/pause"), &format!("{GREET}/block"), "/switches", "/block"]
    {
        let page = visitor.page(path).await.found();
        page.says_nothing_of("<script>document").says_nothing_of("<img src=x");
    }
    let named = visitor.page("/handlers?name=%3Cscript%3Edocument").await;
    named.says_nothing_of("<script>document");
}
