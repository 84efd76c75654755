//! Pages about events that have not ended, and about single ones.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;
use wakeq_service::server::HttpConfig;

use super::visitor::{Shown, Visitor, on_canvas};
use crate::support::service::{Answer, Service};
use crate::support::{OTHER, Statements, wait_while};

/// The body of an event with these tags.
fn tagged(name: &str, value: Value, tags: &[&str]) -> Value {
    json!({"name": name, "value": value, "options": {"tags": tags}})
}

async fn emitted(service: &Service, event: Value) -> String {
    service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned()
}

/// An event of another tenant.
async fn emitted_elsewhere(service: &Service, event: Value) -> String {
    let key = service.key("neighbour", OTHER, &[Scope::Emit]).await;
    let answer = service.ask(&key, Method::POST, &format!("/canvases/{OTHER}/events"), event).await;
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// The address of the next page of a list, if there is one.
fn next(page: &Shown) -> Option<String> {
    let (before, _) = page.html.split_once("\" rel=\"next\"")?;
    Some(before.rsplit("href=\"").next()?.replace("&amp;", "&"))
}

#[tokio::test]
async fn an_event_is_found_shown_and_cancelled() {
    let service = Service::start().await;
    let exact =
        r#"{"name": "mail", "value": {"n": 12345678901234567890}, "options": {"tags": ["customer:7"]}}"#;
    let request = service.on_canvas(Method::POST, "/events").header("content-type", "application/json");
    let mine = Answer::of(request.body(exact)).await.json()["id"].as_str().unwrap().to_owned();
    let other = emitted(&service, tagged("print", json!(2), &[])).await;
    let theirs = emitted_elsewhere(&service, tagged("mail", json!(3), &["customer:7"])).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    visitor.page("").await.found().says("in the queue").says("WORKER/mail");
    let list = visitor.page("/events?tag=customer%3A7&name=").await.found();
    list.says(&mine).says("ready").says("customer:7").says("<strong>1 event</strong> in all.");
    list.says(">Retries</th>");
    list.says_nothing_of(&other).says_nothing_of(&theirs);
    let one = visitor.page(&format!("/events/{mine}")).await.found();
    one.says("WORKER/mail").says("Bearer $WAKEQ_KEY").says_nothing_of("12345678901234567890");
    let shown = visitor.page(&format!("/events/{mine}?value=shown")).await.found();
    shown.says("12345678901234567890").says("?view=full");
    assert!(visitor.page(&format!("/events?id={mine}")).await.found().path.ends_with(&mine));
    let asked = visitor.page(&format!("/events/{mine}/cancel")).await.found();
    asked.says("It is deleted");
    let done = visitor.send(&asked, &format!("/events/{mine}/cancel"), &[]).await.found();
    done.says("was cancelled").says(&other).says_nothing_of(&format!("{mine}\""));
    visitor.page("/events").await.found().says_nothing_of("was cancelled");
    for gone in [&mine, &theirs] {
        let page = visitor.page(&format!("/events/{gone}")).await;
        assert_eq!(page.status, StatusCode::NOT_FOUND);
        page.says("There is no such event any more");
    }
}

#[tokio::test]
async fn events_are_filtered_by_what_the_api_knows() {
    let service = Service::start().await;
    let later = json!({"name": "ship", "value": {"n": 1}, "delay_s": 3600, "object": "work:1",
                       "options": {"tags": ["a", "b"]}});
    let later = emitted(&service, later).await;
    let now = emitted(&service, tagged("mail", json!({"n": 2}), &["a"])).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    for (query, expected) in [
        ("state=delayed", vec![&later]),
        ("state=ready%2Cbehind%2Climited%2Cheld", vec![&now]),
        ("state=ready&state=delayed", vec![&later, &now]),
        ("name=ship&module=WORKER&modifier=_", vec![&later]),
        ("tag=a%2Cb", vec![&later]),
        ("object=work%3A1", vec![&later]),
        ("object=work%3A2", vec![]),
        ("batch=import%3A42", vec![]),
        ("tag=a&tag=b", vec![&later]),
        ("emitted_since=1+h", vec![&later, &now]),
        ("emitted_before=1+h+ago", vec![]),
        ("emitted_since=2020-01-01&emitted_before=in+1+d", vec![&later, &now]),
        ("due_since=in+30+min", vec![&later]),
        ("due_before=in+30+min", vec![&now]),
        ("value=%24.n+%3D+2", vec![&now]),
        ("value_text=%22n%22%3A1", vec![&later]),
        ("error_text=timeout", vec![]),
        ("worker=nobody", vec![]),
        ("waits_for=customer%3A7", vec![]),
    ] {
        let page = visitor.page(&format!("/events?{query}")).await.found();
        for id in [&later, &now] {
            assert_eq!(page.html.contains(id.as_str()), expected.contains(&id), "{query}: {}", page.html);
        }
        let words = match expected.len() {
            0 => "No event that has not ended is like that.",
            1 => "<strong>1 event</strong> in all.",
            _ => "<strong>2 events</strong> in all.",
        };
        page.says(words);
    }
    for (query, words) in [
        ("due_since=soon", "a length, such as `1 h`"),
        ("value=7", "condition"),
        ("state=lost", "a state is"),
        ("name=a+b", "name"),
    ] {
        let refused = visitor.page(&format!("/events?{query}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{query}");
        let given = query.split_once('=').unwrap().1.replace('+', " ");
        refused.says(words).says(&format!("value=\"{given}\""));
    }
}

#[tokio::test]
async fn a_long_list_has_pages_and_can_be_selected_as_a_whole() {
    let service = Service::start().await;
    let events: Vec<_> = (0..101).map(|n| json!({"name": "mail", "value": n})).collect();
    service.post("/events:batch", json!({"events": events})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let boxes = |page: &Shown| page.html.matches("aria-label=\"Select event").count();
    let first = visitor.page("/events?name=mail").await.found();
    first.says("<strong>101 events</strong> in all.");
    let address = next(&first).unwrap();
    assert!(address.starts_with("?name=mail&cursor="), "{address}");
    let second = visitor.page(&format!("/events{address}")).await.found();
    assert_eq!((boxes(&first), boxes(&second), next(&second)), (100, 1, None));
    let all = visitor.page("/events?all=selected").await.found();
    assert_eq!(all.html.matches("form=\"selection\" checked").count(), 100);
    let refused = visitor.page("/events?cursor=a~1").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
}

/// Selected in the list, counted, and done as one operation. Another tenant's event is left alone.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn selected_events_are_one_operation() {
    let service = Service::start().await;
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(emitted(&service, json!({"name": "mail", "value": n, "delay_s": 3600})).await);
    }
    let theirs = emitted_elsewhere(&service, json!({"name": "mail", "delay_s": 3600})).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let list = visitor.page("/events?name=mail").await.found();
    list.says("With those selected")
        .says("name=\"selected\" value=\"ids\"")
        .says("name=\"from\" value=\"name=mail\"");
    let ask = async |kind: &str, ids: &[&String], more: &str| {
        let ids: String = ids.iter().map(|id| format!("&id={id}")).collect();
        visitor.page(&format!("/operations/new?kind={kind}&from=name%3Dmail{ids}{more}")).await
    };
    let asked = ask("retag", &[&ids[0], &ids[1]], "&add_tags=late%2C+customer%3A7").await.found();
    asked.says("Change the tags of these 2 events?").says("Which events: 2 events").says(&ids[0]);
    assert!(asked.offers("/events?name=mail"), "the way back");
    let done = visitor.send(&asked, "/operations", &[]).await.found();
    done.says("The operation has begun").says("2 events, by their ids.");
    let tagged = async || visitor.page("/events?tag=late").await.found().html.matches("Select event").count();
    wait_while!(tagged().await < 2, "it does not end");
    let asked = ask("delete", &[&ids[0], &theirs], "").await.found();
    asked.says("Delete this 1 event?").says("are not for this: 1 event.");
    visitor.send(&asked, "/operations", &[]).await.found();
    let left = async || visitor.page("/events").await.found().html.contains(&ids[0]);
    wait_while!(left().await, "it does not end");
    let all = "select count(*) from wakeq.events_v2";
    assert_eq!(service.stage.pool.value::<i64>(all).await, 3, "two here, and one of another tenant");
    visitor.page("/operations").await.found().says("2 events by their ids");
    ask("delete", &[&theirs], "").await.found().says("No event matches.");
    let none = ask("delete", &[], "&selected=ids").await;
    assert_eq!(none.status, StatusCode::BAD_REQUEST, "nothing is not all");
    none.says("no event is selected");
    let refused = ask("delete", &[&"7".to_owned()], "").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    refused.says("is a uuid");
}

#[tokio::test]
async fn a_delayed_event_is_made_due_and_gets_other_tags() {
    let service = Service::start().await;
    let id = emitted(&service, json!({"name": "mail", "value": 1, "delay_s": 3600})).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page(&format!("/events/{id}")).await.found();
    page.says("delayed").says("runs when it is due");
    let page = visitor.send(&page, "/tags", &[("tags", "customer:8,  later ,")]).await.found();
    page.says("The event has these tags now.").says("customer:8, later");
    let refused = visitor.send(&page, "/tags", &[("tags", "Käse")]).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let page = visitor.send(&page, "/tags", &[("tags", "")]).await.found();
    page.says("The event has no tags now.").says_nothing_of("customer:8, later");
    for refused in ["soon", "1 h", "2020-01-31 08:00"] {
        let refused = visitor.send(&page, "/due", &[("due", refused)]).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        refused.says("write a time that lies ahead");
    }
    let page = visitor.send(&page, "/due", &[("due", "2999-01-31 08:00")]).await.found();
    page.says("The event is due at this time now.").says("value=\"2999-01-31T08:00\"").says("data-moment");
    let page = visitor.send(&page, "/run-now", &[]).await.found();
    page.says("The event is due now.").says("</span> ready");
    assert!(!page.offers("/run-now"), "it is due");
}

/// Why it does not run: a rule with its reason, an earlier event of its object, and its batch.
#[tokio::test]
async fn an_event_says_what_it_waits_for() {
    let service = Service::start().await;
    let paused = emitted(&service, json!({"name": "mail", "value": 1})).await;
    let pause = json!({"reason": "mail server <down>"});
    assert!(service.put("/handlers/WORKER/mail/pause", pause).await.status.is_success());
    let first = emitted(&service, json!({"name": "index", "value": 1, "object": "work:1"})).await;
    let second = emitted(&service, json!({"name": "index", "value": 2, "object": "work:1"})).await;
    let batch = json!({"on_end": {"name": "imported"}});
    assert!(service.post("/batches/import:42", batch).await.status.is_success());
    let options = json!({"retries": 5, "delays_s": [10, 3600], "keep_s": 86400, "limits": ["customer:7"],
                         "urgent": true});
    let member = json!({"name": "row", "batch": "import:42", "options": options});
    let member = emitted(&service, member).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page(&format!("/events/{paused}")).await.found();
    page.says("paused").says("Its handler was paused by key:tests").says("mail server &lt;down&gt;");
    page.says("is woken when the handler is unpaused");
    let page = visitor.page(&format!("/events/{second}")).await.found();
    page.says("behind another").says(&first).says("the first event that is left");
    assert!(page.offers("/objects/work%3A1") && page.offers(&format!("/events/{first}")));
    let page = visitor.page(&format!("/events/{member}")).await.found();
    assert!(page.offers("/batches/import%3A42") && page.offers("/handlers/WORKER/row"));
    page.says("What its emit asked for").says("10 s, 1 h").says("customer:7").says("yes: workers start it");
}

/// With a server that says where traces are shown; a person's browser is all that goes there.
#[tokio::test]
async fn an_event_leads_to_its_trace() {
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let usual = HttpConfig { stranger_rate: 10_000, ..HttpConfig::default() };
    let trace_url = Some("https://trace.example/t/{trace_id}?a=1&b=2".parse().unwrap());
    for (config, is_linked) in [(HttpConfig { trace_url, ..usual.clone() }, true), (usual, false)] {
        let service = Service::with(config).await;
        let request = service.on_canvas(Method::POST, "/events").json(&json!({"name": "mail"}));
        let request = request.header("traceparent", format!("00-{id}-00f067aa0ba902b7-01"));
        let event = Answer::of(request).await.json()["id"].as_str().unwrap().to_owned();
        let plain = emitted(&service, json!({"name": "mail"})).await;
        let visitor = Visitor::with_key(&service, &service.key).await;
        let page = visitor.page(&format!("/events/{event}")).await.found();
        page.says(&format!("00-{id}-"));
        let link = format!("<a href=\"https://trace.example/t/{id}?a=1&amp;b=2\">Show the trace</a>");
        assert_eq!(page.html.contains(&link), is_linked, "{}", page.html);
        let page = visitor.page(&format!("/events/{plain}")).await.found();
        assert!(!page.html.contains(id));
    }
}

/// Each of them leads to the limit that it has: its own, or that of its family. What another tenant
/// has limited leads nowhere, nor does anything for those who may not see limits.
#[tokio::test]
async fn the_keys_of_an_event_lead_to_their_limits() {
    let service = Service::start().await;
    for limit in ["/limits/customer", "/limits/region:eu"] {
        service.put(limit, json!({"concurrency": 5})).await.json();
    }
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let limit = format!("/canvases/{OTHER}/limits/shop");
    service.ask(&theirs, Method::PUT, &limit, json!({"concurrency": 5})).await.json();
    let options = json!({"limits": ["customer:7", "region:eu", "shop:1"]});
    let id = emitted(&service, json!({"name": "mail", "options": options})).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page(&format!("/events/{id}")).await.found();
    page.says("/limits/customer\">customer:7</a>").says("/limits/region%3Aeu\">region:eu</a>");
    page.says("<span class=\"tag\">shop:1</span>");
    let narrow = json!({"holder": "mail", "scopes": ["read:WORKER/mail"]});
    let narrow = service.admin(Method::POST, "/keys", narrow).await.json();
    let narrow = Visitor::with_key(&service, narrow["key"].as_str().unwrap()).await;
    let page = narrow.page(&format!("/events/{id}")).await.found();
    page.says("customer:7").says_nothing_of("/limits/");
}

/// Of an event that was tried and died, and one of another tenant.
const DEAD: &str = "
    insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                   cause, last_error, died_at)
    select lpad(n::text, 32, '0')::uuid, lpad((n - 1)::text, 32, '0')::uuid, 'WORKER', 'mail', '_', '1', 2,
           now() - interval '1 h', 3, 0, 'retries', 'no such mailbox', now()
      from (values (1), (8)) as numbers(n);
    insert into wakeq.attempts (canvas_id, event_id, number, nonce, outcome, worker, started_at, took_us, error)
    select '00000000-0000-0000-0000-000000000000', lpad('1', 32, '0')::uuid, n, 5,
           (array['retried', 'postponed', 'dead'])[n], 'orders-1', now(), 250000, 'no route ' || n
      from generate_series(1, 3) n";

#[tokio::test]
async fn a_dead_event_tells_of_its_attempts_and_is_redriven() {
    let service = Service::start().await;
    sqlx::raw_sql(DEAD).execute(&service.stage.pool).await.unwrap();
    let id = "00000000-0000-0000-0000-000000000001";
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page(&format!("/events/{id}")).await.found();
    page.says("dead").says("its handler failed too often").says("no such mailbox");
    page.says("Attempt 1 failed, and the event is tried again").says("no route 1").says("orders-1");
    page.says("Attempt 2 was too early").says("Attempt 3 failed, and the event died").says("250 ms");
    assert!(!page.offers("/cancel") && !page.offers("/run-now") && !page.offers("/due"));
    let group =
        service.get(&format!("/events/{id}")).await.json()["error_group"].as_str().unwrap().to_owned();
    assert!(page.offers(&format!("/dead-events/groups/{group}")), "{}", page.html);
    let back = visitor.send(&page, "/redrive", &[]).await.found();
    back.says("The event runs again").says("</span> ready");
    let theirs = visitor.page("/events/00000000-0000-0000-0000-000000000008").await;
    assert_eq!(theirs.status, StatusCode::NOT_FOUND);
    let left = "select count(*) from wakeq.dead_events";
    assert_eq!(service.stage.pool.value::<i64>(left).await, 1, "that of another tenant");
}

/// A key that only reads, a form of another session, and a key of another canvas change nothing,
/// and nobody is shown what they may not do.
#[tokio::test]
async fn without_rights_a_control_is_neither_shown_nor_obeyed() {
    let service = Service::start().await;
    let id = emitted(&service, json!({"name": "mail", "value": 1, "delay_s": 3600})).await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read, Scope::Emit]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    let page = reader.page(&format!("/events/{id}")).await.found();
    assert!(!page.offers("/run-now") && !page.offers("/cancel") && !page.offers("/tags"));
    assert!(!page.offers("/due"));
    let list = reader.page("/events").await.found();
    list.says(&id)
        .says_nothing_of("Select event")
        .says_nothing_of("/operations/new")
        .says_nothing_of("Go on…");
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let owner = Visitor::with_key(&service, &service.key).await;
    let token = owner.page(&format!("/events/{id}")).await.form("/run-now").token();
    let own = reader.page("/new-event").await.form("/new-event").token();
    for what in ["run-now", "due", "cancel", "tags", "redrive"] {
        let path = on_canvas(CanvasId::DEFAULT, &format!("/events/{id}/{what}"));
        for (visitor, status) in [
            (&reader, StatusCode::FORBIDDEN),
            (&theirs, StatusCode::NOT_FOUND),
            (&owner, StatusCode::FORBIDDEN),
        ] {
            assert_eq!(visitor.post(&path, &[]).await.status, status, "{path}");
        }
        for visitor in [&reader, &theirs] {
            let refused = visitor.post(&path, &[("form_token", &token)]).await;
            assert!(refused.status.is_client_error(), "a form of another session");
        }
        let refused = reader.post(&path, &[("form_token", &own)]).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        refused.says("operate");
    }
    let operations = on_canvas(CanvasId::DEFAULT, "/operations");
    let operation = format!(r#"{{"kind": "cancel", "ids": ["{id}"]}}"#);
    let fields = [("form_token", own.as_str()), ("operation", operation.as_str())];
    assert_eq!(reader.post(&operations, &fields).await.status, StatusCode::FORBIDDEN);
    let asked = reader.page(&format!("/operations/new?kind=cancel&id={id}")).await;
    assert_eq!(asked.status, StatusCode::FORBIDDEN);
    owner.page(&format!("/events/{id}")).await.found().says("delayed");
}

#[tokio::test]
async fn what_tenants_write_is_escaped() {
    let service = Service::start().await;
    let evil = "<script>alert(1)</script>\"'><img src=x>";
    let id = emitted(&service, tagged("mail", json!(evil), &["<b>'\"&"])).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let filters =
        "/events?tag=%3Cscript%3E&error_text=%22%3E%3Cscript%3E&name=%3Cscript%3E&state=%3Cscript%3E";
    let selected =
        format!("/operations/new?kind=retag&id={id}&from=%22%3E%3Cscript%3E&add_tags=%3Cscript%3E");
    let paths = [format!("/events/{id}?value=shown"), "/events".to_owned(), filters.to_owned(), selected];
    for path in paths {
        let page = visitor.page(&path).await;
        page.says_nothing_of("<script>").says_nothing_of("<img").says_nothing_of("<b>");
    }
}
