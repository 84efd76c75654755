//! Queues over HTTP: registered, weighted, deleted; and closed to callers with single canvases.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::CanvasId;
use wakeq_service::access::{Access, NewKey, Reach, Scope};
use wakeq_service::server::HttpConfig;

use crate::cli::Terminal;
use crate::support::receiver::{Receiver, to_loopback};
use crate::support::service::{Answer, NONE, Service, has, make_key};
use crate::support::{OTHER, Statements};

const QUEUE: &str = "/admin/queues/email_events";

/// A key of every canvas.
async fn root(service: &Service, scopes: &[Scope]) -> String {
    make_key(&service.access, "root", Reach::EveryCanvas, scopes).await
}

fn emails() -> Value {
    json!({"patterns": [".*:email_event:.*"]})
}

// Shows: DRV-06
#[tokio::test]
async fn a_queue_is_registered_processed_and_unregistered() {
    let service = Service::start().await;
    let root = root(&service, &[Scope::Read, Scope::Operate]).await;
    let ask = async |method: Method, path: &str, body: Value| service.ask(&root, method, path, body).await;
    let put = ask(Method::PUT, QUEUE, emails()).await;
    assert_eq!(put.status.as_u16(), 201);
    let put = put.json();
    has(&put, json!({"new": true, "changed": true}));
    has(&put["queue"], json!({"weight": 1, "target": null, "created_by": "key:root"}));
    let again = ask(Method::PUT, QUEUE, emails()).await;
    assert_eq!((again.status.as_u16(), &again.json()["changed"]), (200, &json!(false)));

    let event = json!({"module": "email_event", "name": "opened_email", "value": 1, "only_queues": true});
    let emitted = service.post("/events", event.clone()).await.json();
    assert_eq!(emitted["copies"], 1, "{emitted}");
    let events = format!("/canvases/{}/events", CanvasId::DEFAULT);
    let listed = ask(Method::GET, &events, NONE).await.json();
    let copy = &listed["items"][0];
    assert_eq!(copy["copy_of"], json!({"queue": "email_events", "origin": emitted["id"]}), "{listed}");
    let shown = ask(Method::GET, &format!("{events}/{}", copy["id"].as_str().unwrap()), NONE).await.json();
    assert_eq!(shown["copy_of"], copy["copy_of"]);
    let plain = service.post("/events", json!({"name": "greet"})).await.json();
    assert_eq!(plain.get("copies"), None, "{plain}");

    let facet = format!("{QUEUE}/facets/{}", CanvasId::DEFAULT);
    let set = ask(Method::PUT, &facet, json!({"weight": 0})).await.json();
    let settings = json!({"canvas": CanvasId::DEFAULT, "weight": 0, "in_flight_max": null});
    assert_eq!(set, json!({"settings": settings, "woken": 0, "waking": false}));
    let facets = ask(Method::GET, &format!("{QUEUE}/facets?limit=1"), NONE).await.json();
    let facet = &facets["items"][0];
    assert_eq!((&facet["waiting"], &facet["weight"], &facets["next_cursor"]), (&json!(1), &json!(0), &NONE));
    let shown = ask(Method::GET, QUEUE, NONE).await.json();
    assert_eq!(shown["settings"], json!([settings]));
    let list = ask(Method::GET, "/admin/queues", NONE).await.json();
    assert_eq!((&list["items"][0]["name"], &list["next_cursor"]), (&json!("email_events"), &NONE));

    assert_eq!(ask(Method::DELETE, QUEUE, NONE).await.json(), json!({"gone": false}));
    let dropped = ask(Method::DELETE, &format!("{QUEUE}?waiting=drop"), NONE).await.json();
    assert_eq!(dropped, json!({"gone": true}));
    assert_eq!(ask(Method::GET, QUEUE, NONE).await.problem(), (404, "not-found".into()));
    service.stop().await;
}

/// Every canvas that is paused in a queue is shown, on one page or another, to a client and by the
/// command.
#[tokio::test]
async fn the_settings_of_many_canvases_are_shown_page_by_page() {
    let service = Service::start().await;
    let root = root(&service, &[Scope::Read, Scope::Operate]).await;
    service.ask(&root, Method::PUT, QUEUE, emails()).await.json();
    let paused = "insert into wakeq.facet_settings (queue, canvas_id, weight)
                  select 'email_events', lpad(to_hex(n), 32, '0')::uuid, 0 from generate_series(0, 1000) n";
    service.stage.pool.run(paused).await;
    let (mut path, mut seen) = (format!("{QUEUE}?limit=1000"), Vec::new());
    for expected in [1000, 1] {
        let shown = service.ask(&root, Method::GET, &path, NONE).await.json();
        let settings = shown["settings"].as_array().unwrap();
        assert_eq!(settings.len(), expected);
        seen.extend(settings.iter().map(|own| own["canvas"].as_str().unwrap().to_owned()));
        let cursor = shown.get("next_cursor").map(|cursor| cursor.as_str().unwrap());
        assert_eq!(cursor.is_some(), expected == 1000, "{cursor:?}");
        path = format!("{QUEUE}?limit=1000&cursor={}", cursor.unwrap_or_default());
    }
    let all = (0..=1000).map(|number| Uuid::from_u128(number).to_string());
    assert!(seen.iter().cloned().eq(all), "{} canvases", seen.len());
    let terminal = Terminal::beside(&service);
    let lines = terminal.prints(&["queues", "show", "email_events", "--limit", "10000"]).await;
    assert_eq!(lines.lines().filter(|line| line.starts_with("canvas ")).count(), 1001);
    service.stop().await;
}

#[tokio::test]
async fn rejects_invalid_arguments() {
    let service = Service::start().await;
    let root = root(&service, &[Scope::Read, Scope::Values, Scope::Operate]).await;
    for (path, body, words) in [
        (QUEUE, json!({"patterns": []}), "1 to 20 patterns"),
        (QUEUE, json!({"patterns": ["a", "("]}), "pattern 2 is not valid"),
        (QUEUE, json!({"patterns": ["x".repeat(1025)]}), "1 to 1024 bytes"),
        (QUEUE, json!({"patterns": vec!["x"; 5000]}), "1 to 20 patterns"),
        (QUEUE, json!({"patterns": ["a"], "weight": 1001}), "0 to 1,000"),
        (QUEUE, json!({"patterns": ["a"], "pattern": "b"}), "a field is unknown"),
        (QUEUE, json!({"patterns": ["a"], "target": {"url": "ftp://a.example"}}), "https://"),
        (QUEUE, json!({"patterns": ["a"], "target": {"url": "http://127.0.0.1:9/"}}), "http"),
        (QUEUE, json!({"patterns": ["a"], "target": {"url": "https://169.254.169.254/"}}), ""),
        ("/admin/queues/a%20b", emails(), "not a valid name"),
        (&format!("{QUEUE}/facets/{}", Uuid::max()), json!({"weight": 1}), "except the largest one"),
        (&format!("{QUEUE}/facets/x"), json!({"weight": 1}), "a canvas is a uuid"),
    ] {
        let answer = service.ask(&root, Method::PUT, path, body.clone()).await;
        answer.says((400, "bad-request"), words);
    }
    let list = service.ask(&root, Method::GET, "/admin/queues", NONE).await.json();
    assert_eq!(list["items"], json!([]));
    let paths = ["/facets?cursor=x", "/facets?limit=0", "?cursor=x", "?limit=1001"];
    for path in paths.map(|rest| format!("{QUEUE}{rest}")) {
        let answer = service.ask(&root, Method::GET, &path, NONE).await;
        assert_eq!(answer.problem(), (400, "bad-request".into()), "{path}");
    }
    let answer = service.ask(&root, Method::DELETE, &format!("{QUEUE}?waiting=burn"), NONE).await;
    assert_eq!(answer.problem(), (400, "bad-request".into()));
    let bad = service.post("/events", json!({"name": "greet", "only_queues": 1})).await;
    assert_eq!(bad.problem(), (400, "bad-request".into()));
    service.stop().await;
}

/// A queue sees what all canvases emit: a key with every scope on any number of single canvases
/// gets none of it.
#[tokio::test]
async fn a_key_of_one_canvas_sees_and_sets_nothing() {
    let service = Service::start().await;
    let everything = root(&service, &Scope::ALL).await;
    service.ask(&everything, Method::PUT, QUEUE, emails()).await.json();
    let facet = format!("{QUEUE}/facets/{}", CanvasId::DEFAULT);
    let facets = format!("{QUEUE}/facets");
    let requests = [
        (Method::PUT, QUEUE, json!({"patterns": ["."], "target": {"url": "https://spy.example/"}})),
        (Method::GET, QUEUE, NONE),
        (Method::GET, "/admin/queues", NONE),
        (Method::GET, &facets, NONE),
        (Method::PUT, &facet, json!({"weight": 0})),
        (Method::DELETE, QUEUE, NONE),
    ];
    let elsewhere = service.key("them", OTHER, &Scope::ALL).await;
    for key in [&service.key, &elsewhere] {
        for (method, path, body) in &requests {
            let answer = service.ask(key, method.clone(), path, body.clone()).await;
            answer.says((403, "forbidden"), "reaches every canvas");
        }
    }
    // Scopes on every canvas do not add up with those on another canvas, and one of two needed ones
    // is not enough.
    let access: &Access = &service.access;
    let operate = make_key(access, "operator", Reach::EveryCanvas, &[Scope::Operate, Scope::Emit]).await;
    let read = make_key(access, "reader", Reach::EveryCanvas, &[Scope::Read, Scope::Admin]).await;
    for (key, forbidden) in [(&operate, [0, 1, 2, 3].as_slice()), (&read, &[0, 4, 5])] {
        for (method, path, body) in forbidden.iter().map(|at: &usize| &requests[*at]) {
            let answer = service.ask(key, method.clone(), path, body.clone()).await;
            assert_eq!(answer.status, 403, "{method} {path}: {}", answer.text);
        }
    }
    let shown = service.ask(&read, Method::GET, QUEUE, NONE).await.json();
    has(&shown, json!({"draining": false, "target": null, "settings": []}));
    assert_eq!(service.request(Method::GET, "/v1/admin/queues").send().await.unwrap().status().as_u16(), 401);
    service.stop().await;
}

/// The targets of queues are stored under a canvas that no tenant has: no key opens it.
#[tokio::test]
async fn no_key_opens_the_canvas_of_queue_targets() {
    let service = Service::start().await;
    let root = root(&service, &Scope::ALL).await;
    let most = Uuid::max();
    let (target, event) =
        (json!({"url": "https://a.example"}), json!({"name": "email_events", "module": "QUEUE"}));
    for (method, path, body) in [
        (Method::PUT, format!("/canvases/{most}/handlers/QUEUE/email_events"), target),
        (Method::GET, format!("/canvases/{most}/handlers/QUEUE/email_events/_"), NONE),
        (Method::DELETE, format!("/canvases/{most}/handlers/QUEUE/email_events"), NONE),
        (Method::GET, format!("/canvases/{most}/handlers"), NONE),
        (Method::POST, format!("/canvases/{most}/events"), event),
        (Method::PUT, format!("/canvases/{most}/cron/spy"), json!({"expression": "* * * * *"})),
        (Method::POST, format!("/admin/canvases/{most}/keys"), json!({"holder": "spy", "scopes": ["read"]})),
        (Method::GET, format!("/admin/canvases/{most}/audit"), NONE),
    ] {
        let answer = service.ask(&root, method.clone(), &path, body).await;
        assert_eq!(answer.problem(), (404, "not-found".into()), "{method} {path}");
    }
    let scopes = Scope::ALL.into_iter().collect();
    let new = NewKey { holder: "spy".into(), reach: Reach::Canvas(CanvasId(most)), scopes, lifetime: None };
    assert!(service.access.create_key(&new, &wakeq::Actor::admin("tests")).await.is_err());
    service.stop().await;
}

/// A queue's target is shown without its secret, which is returned once.
#[tokio::test]
async fn a_queue_has_a_target() {
    let service = Service::with(HttpConfig { delivery: to_loopback(), ..HttpConfig::default() }).await;
    let receiver = Receiver::start().await;
    let root = root(&service, &[Scope::Read, Scope::Values, Scope::Operate]).await;
    let with_target =
        json!({"patterns": ["email"], "target": {"url": receiver.url, "policy": {"retries": 7}}});
    let put = service.ask(&root, Method::PUT, QUEUE, with_target.clone()).await.json();
    let secret = put["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("whsec_"));
    assert_eq!(put["queue"]["target"]["policy"]["retries"], 7, "{put}");
    let again = service.ask(&root, Method::PUT, QUEUE, with_target.clone()).await.json();
    assert_eq!((&again["changed"], &again["secret"]), (&json!(false), &NONE));
    let mut rotated = with_target;
    rotated["target"]["rotate_secret"] = json!(true);
    let rotated = service.ask(&root, Method::PUT, QUEUE, rotated).await.json();
    assert_ne!(rotated["secret"].as_str().unwrap(), secret);
    assert!(rotated["queue"]["target"]["previous_secret_until"].is_string());
    for path in [QUEUE, "/admin/queues"] {
        let shown = service.ask(&root, Method::GET, path, NONE).await;
        assert!(shown.text.contains(&receiver.url) && !shown.text.contains("whsec_"), "{}", shown.text);
    }
    let gone = service.ask(&root, Method::DELETE, QUEUE, NONE).await.json();
    assert_eq!(gone, json!({"gone": true}), "nothing waited");
    service.stop().await;
}

/// A target is sent what is in the events of every canvas, so whoever may not see that registers
/// none, nor does who may see it on one canvas.
#[tokio::test]
async fn a_target_takes_the_scope_for_values() {
    let service = Service::with(HttpConfig { delivery: to_loopback(), ..HttpConfig::default() }).await;
    let receiver = Receiver::start().await;
    let blind = service.wide_key("blind", &[Scope::Read, Scope::Operate, Scope::Emit, Scope::Admin]).await;
    let elsewhere = service.key("them", OTHER, &Scope::ALL).await;
    let put = async |key: &str, body: Value| service.ask(key, Method::PUT, QUEUE, body).await;
    let with_target = json!({"patterns": ["email"], "target": {"url": receiver.url}});
    assert_eq!(put(&blind, emails()).await.status, 201, "functions of workers process it");
    put(&blind, with_target.clone()).await.says((403, "forbidden"), "`values`");
    put(&elsewhere, with_target.clone()).await.says((403, "forbidden"), "reaches every canvas");
    let shown = service.ask(&blind, Method::GET, QUEUE, NONE).await.json();
    has(&shown, json!({"target": null, "patterns": [".*:email_event:.*"]}));
    let root = root(&service, &[Scope::Read, Scope::Values, Scope::Operate]).await;
    assert_eq!(put(&root, with_target).await.status, 200);
    service.stop().await;
}

/// DRV-06: events are copied however they are emitted: by the library, the API or a cron.
// Shows: DRV-01
#[tokio::test]
async fn every_way_to_emit_copies_into_queues() {
    let service = Service::start().await;
    let root = root(&service, &[Scope::Read, Scope::Operate]).await;
    let queue = json!({"patterns": [":(WORKER|CRON|page):(report|viewed)$"]});
    service.ask(&root, Method::PUT, QUEUE, queue).await.json();
    let stage = &service.stage;
    assert_eq!(stage.queue.emit(wakeq::Event::new("report", &1).unwrap()).await.unwrap().copies, 1);
    let mut transaction = stage.pool.begin().await.unwrap();
    let viewed = wakeq::Event::new("viewed", &1).unwrap().module("page").unwrap();
    let receipt = stage.queue.emit_in(&mut transaction, viewed).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(receipt.notify().await.copies, 1);
    let batch = json!({"events": [{"name": "report"}, {"name": "other"}]});
    let emitted = service.post("/events:batch", batch).await.json();
    assert_eq!((&emitted["events"][0]["copies"], &emitted["events"][1].get("copies")), (&json!(1), &None));
    let cloud = r#"{"specversion":"1.0","id":"1","source":"/shop","type":"page/viewed","data":1}"#;
    let request = service.on_canvas(Method::POST, "/events");
    let request = request.header("content-type", "application/cloudevents+json").body(cloud);
    assert_eq!(Answer::of(request).await.json()["copies"], 1);
    let put = service.put("/cron/report", json!({"expression": "* * * * * *"})).await;
    assert_eq!(put.status.as_u16(), 201);
    let sql = "select e.module || ':' || e.name, count(*) filter (where e.queue is null),
                      count(*) filter (where e.queue = 'email_events'
                                         and exists (select from wakeq.events_v2 o where o.id = e.origin))
                 from wakeq.events_v2 e group by 1 order by 1";
    let pairs: Vec<(String, i64, i64)> = service.stage.pool.table(sql).await;
    let ticks = pairs.first().unwrap().1;
    assert!(ticks > 10, "a tick each second is emitted ahead: {pairs:?}");
    let expected = [
        ("CRON:report", ticks, ticks),
        ("WORKER:other", 1, 0),
        ("WORKER:report", 2, 2),
        ("page:viewed", 2, 2),
    ];
    assert_eq!(pairs, expected.map(|(name, events, copies)| (name.to_owned(), events, copies)));
    service.stop().await;
}
