//! The first page: what is wrong now.

use reqwest::Method;
use serde_json::json;
use wakeq::CanvasId;
use wakeq::machine::Outcome;
use wakeq_service::access::Scope;
use wakeq_testbed::wait_while;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

/// Troubles of both tenants, each with names of its own.
const TROUBLES: &str = "
    insert into wakeq.unknown_handlers (canvas_id, module, name, modifier) values
        ('00000000-0000-0000-0000-000000000000', 'WORKER', 'lost', '_'),
        ('00000000-0000-0000-0000-000000000007', 'WORKER', 'theirs', '_');
    insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev) values
        ('00000000-0000-0000-0000-000000000000', 'order:1', 'WORKER', 'ordered', gen_random_uuid(), 1, 0),
        ('00000000-0000-0000-0000-000000000000', 'order:2', 'WORKER', 'ordered', gen_random_uuid(), 1, 0),
        ('00000000-0000-0000-0000-000000000007', 'order:3', 'WORKER', 'theirs', gen_random_uuid(), 1, 0);
    update wakeq.events_v2 set delay_until = now() - interval '10 minutes' where name in ('lost', 'theirs');
    insert into wakeq.minute_statistics
    select date_trunc('minute', now()) - interval '10 minutes', canvas::uuid, '', '', 7, 4, 2, 1, died, 12000, 1000, '{0,0,4}', '{2}'
      from (values ('00000000-0000-0000-0000-000000000000', 3), ('00000000-0000-0000-0000-000000000007', 77)) as d (canvas, died);
    insert into wakeq.limit_states (canvas_id, name) values
        ('00000000-0000-0000-0000-000000000000', 'provider'), ('00000000-0000-0000-0000-000000000007', 'theirs');
    insert into wakeq.limit_waits (event_id, canvas_id, name, due)
    select gen_random_uuid(), canvas::uuid, name, now()
      from (values ('00000000-0000-0000-0000-000000000000', 'provider', 5), ('00000000-0000-0000-0000-000000000007', 'theirs', 9))
           as waits (canvas, name, times), generate_series(1, times)";

/// Emits an event on each canvas, and makes the troubles.
async fn troubled(service: &Service) -> String {
    let theirs = service.key("their-key", OTHER, &Scope::ALL).await;
    service.post("/events", json!({"name": "lost", "value": 1})).await.json();
    let path = format!("/canvases/{OTHER}/events");
    service.ask(&theirs, Method::POST, &path, json!({"name": "theirs", "value": 1})).await.json();
    service.put("/limits/provider", json!({"concurrency": 2})).await.json();
    let path = format!("/canvases/{OTHER}/limits/theirs");
    service.ask(&theirs, Method::PUT, &path, json!({"concurrency": 2})).await.json();
    service.put("/handlers/WORKER/print/pause", json!({"reason": "<b>no paper</b>"})).await.json();
    service.stage.execute(TROUBLES).await;
    theirs
}

#[tokio::test]
async fn when_nothing_is_wrong_the_page_says_so() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page("").await.found();
    page.says("What is wrong now").says("Nothing is wrong").says("Nothing was emitted here yet.");
    page.says_nothing_of("The doctor").says_nothing_of("No worker is at work");
}

/// What happened ten minutes ago: more was emitted than ended on one canvas, and less on the other.
const HAPPENED: &str = "
    insert into wakeq.minute_statistics
    select date_trunc('minute', now()) - interval '10 minutes', canvas::uuid, '', '', emitted, 4, 0, 0, 1,
           0, 0, '{}', '{}'
      from (values ('00000000-0000-0000-0000-000000000000', 40),
                   ('00000000-0000-0000-0000-000000000007', 3)) as d (canvas, emitted)";

#[tokio::test]
async fn the_page_says_whether_the_queue_grows() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    visitor.page("?over=14d").await.found().says("In the last hour as many events ended as were emitted.");
    let theirs = service.key("their-key", OTHER, &Scope::ALL).await;
    service.stage.execute(HAPPENED).await;
    let said = async || visitor.page("").await.found().html.contains("<strong>35 more</strong> were emitted");
    wait_while!(!said().await, "it does not grow");
    let tenant = Visitor::with_key(&service, &theirs).await;
    let other = tenant.get(&on_canvas(OTHER, "")).await.found();
    other.says("<strong>2 fewer</strong> were emitted than ended").says("the queue shrinks");
}

/// Only the first ten limits are looked at one by one.
#[tokio::test]
async fn a_limit_behind_ten_others_is_not_passed_over() {
    let service = Service::start().await;
    let theirs = service.key("their-key", OTHER, &Scope::ALL).await;
    for name in (0..10).map(|number| format!("a{number}")).chain(["zebra".to_owned()]) {
        service.put(&format!("/limits/{name}"), json!({"concurrency": 1})).await.json();
        let path = format!("/canvases/{OTHER}/limits/{name}");
        service.ask(&theirs, Method::PUT, &path, json!({"concurrency": 1})).await.json();
    }
    let (mut worker, mut door) = service.stage.door("render");
    let event = json!({"name": "render", "value": 1, "options": {"limits": ["zebra"]}});
    service.post("/events", event.clone()).await.json();
    door.arrived.take(1).await;
    service.post("/events", event).await.json();
    worker.until_count(1, Outcome::LimitFull).await;
    let page = Visitor::with_key(&service, &service.key).await.page("").await.found();
    page.says("Events wait for limits</a>, of which there are more than the 10");
    assert!(page.offers(&on_canvas(CanvasId::DEFAULT, "/events?state=limited")));
    let tenant = Visitor::with_key(&service, &theirs).await;
    tenant.get(&on_canvas(OTHER, "")).await.found().says_nothing_of("Events wait for limits");
}

/// On the first canvas 1,200 handlers with two due events and a delayed one each, sixty of them
/// paused. Far behind in the alphabet are those that no worker knows, one that is halted, and the
/// one with the most events, of which it runs four. On the second canvas there is one handler.
const MANY_HANDLERS: &str = "
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
    select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'h' || to_char(n, 'FM0000'), '_', '1',
           now() + case when k = 0 then interval '1 h' else k * interval '-1 min' end
      from generate_series(1, 1200) n, generate_series(0, 2) k;
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, locked_at, claims)
    select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'zz-busiest', '_', '1',
           now() - n * interval '1 s', case when n > 496 then now() end, 1
      from generate_series(1, 500) n;
    insert into wakeq.scheduling_rules (rule_type, canvas_id, event_space, handler_name, reason)
    select 'pause', '00000000-0000-0000-0000-000000000000', 'WORKER', 'h' || to_char(n, 'FM0000'), 'reason ' || n
      from generate_series(1101, 1160) n;
    insert into wakeq.unknown_handlers (canvas_id, module, name, modifier)
    select '00000000-0000-0000-0000-000000000000', 'WORKER', 'h' || to_char(n, 'FM0000'), '_'
      from generate_series(1191, 1197) n;
    insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
    select '00000000-0000-0000-0000-000000000000', 'order:' || n, 'WORKER', 'h1200', gen_random_uuid(), n, n - 1
      from generate_series(1, 3) n;
    insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, cause)
    select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'h' || to_char(n, 'FM0000'), '_', '1', 2,
           now(), 3, 0, 'retries'
      from generate_series(1001, 1200) n;
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
    select gen_random_uuid(), '00000000-0000-0000-0000-000000000007', 'WORKER', 'theirs', '_', '1', now()
      from generate_series(1, 7777);
    insert into wakeq.scheduling_rules (rule_type, canvas_id, event_space, handler_name)
    values ('pause', '00000000-0000-0000-0000-000000000007', 'WORKER', 'theirs');
    insert into wakeq.unknown_handlers (canvas_id, module, name, modifier)
    values ('00000000-0000-0000-0000-000000000007', 'WORKER', 'theirs', '_')";

/// However many handlers come before those that matter.
#[tokio::test]
async fn all_handlers_of_the_canvas_are_counted() {
    let service = Service::start().await;
    let theirs = service.key("their-key", OTHER, &Scope::ALL).await;
    service.stage.execute(MANY_HANDLERS).await;
    let page = Visitor::with_key(&service, &service.key).await.page("").await.found();
    let says = |label: &str, value: &str| {
        page.says(&format!("<span class=\"value\">{value}</span><span class=\"label\">{label}</span>"));
    };
    says("in the queue", "4\u{202f}100");
    says("waiting", "2\u{202f}776");
    says("running", "4");
    says("delayed", "1\u{202f}200");
    says("paused or blocked", "120");
    says("dead", "200");
    says("halted objects", "3");
    for name in ["h1191", "h1192", "h1193", "h1194", "h1195"] {
        page.says(&format!("WORKER/{name}</a>, since"));
    }
    page.says("2 more handlers are</a> known to no worker").says("3 objects are halted</a> behind");
    page.says("60 handlers are paused or blocked</a>").says("reason 1101").says("reason 1150");
    page.says_nothing_of("reason 1151").says("These are 50 of 60 handlers");
    page.says("These are 50 of 1\u{202f}201 handlers")
        .says_nothing_of("theirs")
        .says_nothing_of("7\u{202f}777");
    let (by_handler, busiest) =
        (page.html.find("By handler").unwrap(), page.html.find("zz-busiest").unwrap());
    assert!(
        by_handler < busiest && !page.html[by_handler..busiest].contains("/handlers/WORKER/h"),
        "it is first"
    );

    let tenant = Visitor::with_key(&service, &theirs).await;
    let other = tenant.get(&on_canvas(OTHER, "")).await.found();
    other.says("7\u{202f}777").says("WORKER/theirs</a>, since").says("1 handler is paused or blocked");
    other.says_nothing_of("zz-busiest").says_nothing_of("more handlers").says_nothing_of("These are");
}

#[tokio::test]
async fn a_tenant_is_told_what_is_wrong_on_its_canvas() {
    let service = Service::start().await;
    let theirs = troubled(&service).await;
    let visitor = Visitor::stranger(&service);
    let page = visitor.post("/sign-in", &[("key", &service.key)]).await.found();
    for words in [
        "No worker knows the handler",
        "WORKER/lost</a>, since",
        "2 objects are halted</a> behind",
        "1 event is overdue</a>, the oldest for 10 min",
        "3 events</a> died within the last hour",
        "5 events wait for the limit",
        "provider</a>, of which 0 are running",
        "1 handler is paused or blocked",
        "&lt;b&gt;no paper",
    ] {
        page.says(words);
    }
    for words in [
        "Nothing is wrong",
        "theirs",
        "77 events",
        "<b>no paper",
        "The doctor",
        "at work",
        "No process consumes",
    ] {
        page.says_nothing_of(words);
    }
    let order = [
        "No worker knows",
        "objects are halted",
        "is overdue",
        "died within",
        "wait for the limit",
        "paused or",
    ];
    let places = order.map(|words| page.html.find(words).unwrap());
    assert!(places.is_sorted(), "the worst comes first: {places:?}");
    for link in ["/handlers/WORKER/lost", "/halted-objects", "/dead-events", "/limits"] {
        assert!(page.offers(&on_canvas(CanvasId::DEFAULT, link)), "{link}");
    }
    let tenant = Visitor::with_key(&service, &theirs).await;
    let other = tenant.get(&on_canvas(OTHER, "")).await.found();
    other.says("WORKER/theirs</a>, since").says("1 object is halted").says("77 events");
    other.says_nothing_of("WORKER/lost").says_nothing_of("no paper").says_nothing_of("provider");
}

/// Two events of both tenants name the same key and have been due for ten minutes. On the one
/// canvas they have found no room.
const WAITS: &str = "
    update wakeq.events_v2 set delay_until = now() - interval '10 minutes',
           starts_at = case when canvas_id = '00000000-0000-0000-0000-000000000000' then now() end;
    insert into wakeq.limit_states (canvas_id, name) values
        ('00000000-0000-0000-0000-000000000000', 'customer:7'), ('00000000-0000-0000-0000-000000000007', 'customer:7');
    insert into wakeq.limit_waits (event_id, canvas_id, name, due)
    select id, canvas_id, 'customer:7', delay_until from wakeq.events_v2 where starts_at is not null";

/// The overview says that a limit is full, and raises no false alarm.
#[tokio::test]
async fn what_waits_for_a_limit_is_not_overdue() {
    let service = Service::start().await;
    let theirs = service.key("their-key", OTHER, &Scope::ALL).await;
    for (key, canvas) in [(&service.key, CanvasId::DEFAULT), (&theirs, OTHER)] {
        let limit = format!("/canvases/{canvas}/limits/customer");
        service.ask(key, Method::PUT, &limit, json!({"concurrency": 1})).await.json();
        for value in [1, 2] {
            let event = json!({"name": "import", "value": value, "options": {"limits": ["customer:7"]}});
            service.ask(key, Method::POST, &format!("/canvases/{canvas}/events"), event).await.json();
        }
    }
    service.stage.execute(WAITS).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page("").await.found();
    page.says("2 events wait for the limit").says("customer:7</a>").says_nothing_of("overdue");
    let tenant = Visitor::with_key(&service, &theirs).await;
    let other = tenant.get(&on_canvas(OTHER, "")).await.found();
    other.says("2 events are overdue</a>, the oldest for 10 min").says_nothing_of("for the limit");
}

/// What stops all of it comes before everything else.
#[tokio::test]
async fn a_switch_is_said_first() {
    let service = Service::start().await;
    let wide = service.wide_key("operator", &Scope::ALL).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let reason = json!({"reason": "<i>fire</i>", "for_s": 3600});
    let pause = format!("/canvases/{}/pause", CanvasId::DEFAULT);
    service.ask(&wide, Method::PUT, &pause, reason.clone()).await.json();
    service.ask(&wide, Method::PUT, "/admin/block", reason).await.json();
    let is_said =
        async || visitor.page("").await.found().html.contains("Everything, on every canvas, is blocked");
    wait_while!(!is_said().await, "it is not said");
    let page = visitor.page("").await.found();
    page.says("The whole canvas is paused by key:operator, since")
        .says("because: &lt;i&gt;fire")
        .says(", until");
    page.says_nothing_of("<i>fire").says_nothing_of("Nothing is wrong");
}

/// An operator of every canvas is also told about workers and groups, and what the doctor finds.
#[tokio::test]
async fn an_operator_is_told_about_the_deployment() {
    let service = Service::start().await;
    let append = json!({"appends": [{"category": "accounts", "stream": "a", "events": [{"name": "opened", "payload": 1}]}]});
    service.post("/log", append).await.json();
    let fill = "insert into wakeq.consumer_positions (consumer_group, source) values ('projection', 'log');
                insert into wakeq.workers (name, instance, release, capacity, handler_count, handlers, has_targets, seen_at)
                values ('one', gen_random_uuid(), '0.1.0', 8, 0, '{}', false, now() - interval '1 hour')";
    service.stage.execute(fill).await;
    let wide = service.wide_key("operator", &Scope::ALL).await;
    let operator = Visitor::with_key(&service, &wide).await;
    let page = operator.page("").await.found();
    page.says("No worker is at work, so nothing runs").says("the last one was seen");
    page.says("No process consumes the group").says("projection</a>, which is");
    page.says("id=\"doctor\"").says("minute's pass").says("To mend it").says("wakeq doctor");
    service.stage.execute("update wakeq.workers set seen_at = now()").await;
    let is_missed = async || operator.page("").await.found().html.contains("No worker is at work");
    wait_while!(is_missed().await, "the worker is not noticed");

    // Who reads every canvas sees workers and groups, and not what the doctor finds.
    let reader = service.wide_key("reader", &[Scope::Read]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    reader.page("").await.found().says("projection").says_nothing_of("The doctor");
    // A tenant sees neither.
    let tenant = Visitor::with_key(&service, &service.key).await;
    tenant
        .page("")
        .await
        .found()
        .says("Nothing is wrong")
        .says_nothing_of("projection")
        .says_nothing_of("The doctor");
}
