//! Limits over HTTP: who may set and see which, and what is refused. A second tenant has limits of
//! the same names.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq::machine::Outcome;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{Answer, NONE, Service, has};

const FORBIDDEN: (u16, &str) = (403, "forbidden");
const UNKNOWN: (u16, &str) = (404, "not-found");
/// The paths of a limit of the canvas, and of the operator's.
const OWN: &str = "/canvases/00000000-0000-0000-0000-000000000000/limits/customer";
const OPERATORS: &str = "/admin/limits/customer";

fn names(items: &[Value]) -> Vec<&str> {
    items.iter().map(|limit| limit["name"].as_str().unwrap()).collect()
}

/// The body of an event that names these keys.
fn event(keys: &[&str]) -> Value {
    json!({"name": "greet", "delay_s": 3600, "options": {"limits": keys}})
}

/// Lets so many events wait for a key on a canvas, as far as others see.
async fn queue_up(service: &Service, canvas: CanvasId, key: &str, count: i32) {
    let wait = "insert into wakeq.limit_waits (event_id, canvas_id, name, due)
                select gen_random_uuid(), $1, $2, now() from generate_series(1, $3)";
    let wait = sqlx::query(wait).bind(canvas.0).bind(key).bind(count);
    wait.execute(&service.stage.pool).await.unwrap();
}

#[tokio::test]
async fn a_limit_is_set_shown_listed_and_removed() {
    let service = Service::start().await;
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let own = async |method: Method, path: &str, body: Value| {
        service.ask(&theirs, method, &format!("/canvases/{OTHER}{path}"), body).await
    };
    own(Method::PUT, "/limits/customer", json!({"concurrency": 9})).await.json();
    let rate = json!({"count": 100, "period_s": 60.0, "burst": 10});
    let body = json!({"concurrency": 5, "rate": rate, "on_full": "drop", "waiting_max": 1000});
    let set = service.put("/limits/customer", body.clone()).await;
    assert_eq!((set.status.as_u16(), &set.json()["new"]), (201, &json!(true)));
    let limit = set.json()["limit"].clone();
    has(&limit, body);
    has(&limit, json!({"name": "customer", "default": false, "created_by": "key:tests"}));
    assert_eq!(service.get("/limits/customer").await.json(), limit);

    let lower = json!({"rate": {"count": 1, "period_s": 0.25}});
    let replaced = service.put("/limits/customer", lower).await;
    assert_eq!((replaced.status.as_u16(), &replaced.json()["new"]), (200, &json!(false)));
    let limit = replaced.json()["limit"].clone();
    has(&limit, json!({"concurrency": null, "on_full": "wait", "waiting_max": null}));
    assert_eq!(limit["rate"], json!({"count": 1, "period_s": 0.25, "burst": 1}));
    for name in ["canvas", "handler:WORKER%2Fgreet", "customer:7", "a%3Db%40c"] {
        let set = service.put(&format!("/limits/{name}"), json!({"concurrency": 2})).await;
        assert_eq!(set.status, 201, "{name}");
    }
    let listed = ["a=b@c", "canvas", "customer", "customer:7", "handler:WORKER/greet"];
    for limit in ["1", "1000"] {
        assert_eq!(names(&service.items(&format!("/limits?limit={limit}")).await), listed);
    }
    let others = own(Method::GET, "/limits", NONE).await.json();
    assert_eq!(names(others["items"].as_array().unwrap()), ["customer"]);
    assert_eq!(own(Method::GET, "/limits/customer", NONE).await.json()["concurrency"], 9);
    own(Method::GET, "/limits/canvas", NONE).await.says(UNKNOWN, "no limit canvas");
    own(Method::DELETE, "/limits/canvas", NONE).await.says(UNKNOWN, "no limit canvas");

    assert_eq!(service.delete("/limits/customer").await.status, 204);
    service.delete("/limits/customer").await.says(UNKNOWN, "no limit customer");
    service.get("/limits/customer").await.says(UNKNOWN, "wakeq limits list");
    assert_eq!(own(Method::GET, "/limits/customer", NONE).await.json()["concurrency"], 9);
    let lines = service.admin(Method::GET, "/audit?limit=1000", NONE).await.json();
    let of_limits = |line: &&Value| line["action"].as_str().unwrap().ends_with("-limit");
    let details: Vec<String> =
        lines["items"].as_array().unwrap().iter().filter(of_limits).map(detail).collect();
    assert_eq!(details.len(), 7, "{details:?}");
    assert!(details[0].starts_with("delete-limit") && details[0].contains("customer"), "{details:?}");
    assert!(details[6].contains("customer: 5 at a time; 100 per 1m, 10 at once; full: drop"), "{details:?}");
    service.stop().await;
}

fn detail(line: &Value) -> String {
    format!("{} {}", line["action"].as_str().unwrap(), line["detail"].as_str().unwrap())
}

#[tokio::test]
async fn each_sets_what_it_may() {
    let service = Service::start().await;
    let (put, five) = (Method::PUT, json!({"concurrency": 5}));
    let reader = service.key("eve", CanvasId::DEFAULT, &[Scope::Read]).await;
    let operator = service.key("ada", CanvasId::DEFAULT, &[Scope::Operate]).await;
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let (admin, wide_reader) =
        (service.wide_key("wide", &[Scope::Admin]).await, service.wide_key("reads", &[Scope::Read]).await);
    for (key, path, refused) in [
        (&reader, OWN, FORBIDDEN),
        (&theirs, OWN, UNKNOWN),
        (&operator, OPERATORS, FORBIDDEN),
        (&theirs, OPERATORS, FORBIDDEN),
        (&service.key, OPERATORS, FORBIDDEN),
        (&wide_reader, OPERATORS, FORBIDDEN),
    ] {
        service.ask(key, put.clone(), path, five.clone()).await.says(refused, "");
        service.ask(key, Method::DELETE, path, NONE).await.says(refused, "");
    }
    for (key, path, refused) in
        [(&operator, OWN, FORBIDDEN), (&theirs, OWN, UNKNOWN), (&admin, OPERATORS, FORBIDDEN)]
    {
        for path in [path.to_owned(), path.replace("/customer", ""), format!("{path}/uses")] {
            service.ask(key, Method::GET, &path, NONE).await.says(refused, "");
        }
    }
    assert_eq!(service.ask(&operator, put.clone(), OWN, five.clone()).await.status, 201);
    assert_eq!(service.ask(&reader, Method::GET, OWN, NONE).await.json()["concurrency"], 5);
    assert_eq!(service.ask(&admin, put.clone(), OPERATORS, five.clone()).await.status, 201);
    assert_eq!(service.ask(&wide_reader, Method::GET, OPERATORS, NONE).await.json()["default"], false);
    let all = OWN.replace(&CanvasId::DEFAULT.to_string(), &CanvasId::OF_QUEUES.to_string());
    let everything = service.wide_key("everything", &Scope::ALL).await;
    service.ask(&everything, put.clone(), &all, five.clone()).await.says(UNKNOWN, "");
    // A key for a handler shares the canvas's limits with others.
    let narrow = json!({"holder": "narrow", "scopes": ["operate:WORKER/greet", "read:WORKER/greet"]});
    let narrow =
        service.admin(Method::POST, "/keys", narrow).await.json()["key"].as_str().unwrap().to_owned();
    for path in [OWN, "/canvases/00000000-0000-0000-0000-000000000000/limits/handler:WORKER%2Fgreet"] {
        service.ask(&narrow, put.clone(), path, five.clone()).await.says(FORBIDDEN, "");
        service.ask(&narrow, Method::GET, path, NONE).await.says(FORBIDDEN, "");
    }
    let stage = service.stop().await;
    assert_eq!(stage.count("select count(*) from wakeq.limits").await, 2);
    let unseen = "select count(*) from wakeq.audit_log
                   where action = 'put-limit' and outcome = 'done' and canvas_id is null";
    assert_eq!(stage.count(unseen).await, 1, "the operator's is not shown to tenants");
}

#[tokio::test]
async fn the_operators_limit_is_the_default_of_each_canvas() {
    let service = Service::start().await;
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let wide = service.wide_key("wide", &Scope::ALL).await;
    for (name, concurrency) in [("customer", 7), ("canvas", 8), ("handler:WORKER%2Fgreet", 9)] {
        let set = json!({"concurrency": concurrency});
        let set = service.ask(&wide, Method::PUT, &format!("/admin/limits/{name}"), set).await;
        assert_eq!(set.status, 201, "{name}");
    }
    let listed = service.ask(&wide, Method::GET, "/admin/limits", NONE).await.json();
    let listed = names(listed["items"].as_array().unwrap()).len();
    assert_eq!((listed, service.items("/limits?limit=9").await.len()), (3, 0));
    let shown = async || service.get("/limits/customer").await.json();
    has(&shown().await, json!({"concurrency": 7, "default": true}));
    service.put("/limits/customer", json!({"concurrency": 2})).await.json();
    has(&shown().await, json!({"concurrency": 2, "default": false}));
    let path = format!("/canvases/{OTHER}/limits");
    let default = service.ask(&theirs, Method::GET, &format!("{path}/customer"), NONE).await.json();
    has(&default, json!({"concurrency": 7, "default": true}));
    assert_eq!(service.delete("/limits/customer").await.status, 204);
    has(&shown().await, json!({"concurrency": 7, "default": true}));
    service.delete("/limits/customer").await.says(UNKNOWN, "no limit customer");
    has(&service.get("/limits/canvas").await.json(), json!({"concurrency": 8, "default": true}));
    // It holds beside those of canvases, and is none of theirs.
    service.get("/limits/handler:WORKER%2Fgreet").await.says(UNKNOWN, "");
    service.stop().await;
}

#[tokio::test]
async fn what_is_no_limit_is_refused() {
    let service = Service::start().await;
    let rate = |count: u64, period_s: f64| json!({"rate": {"count": count, "period_s": period_s}});
    for (body, words) in [
        (json!({}), "a concurrency, a rate or both"),
        (json!({"concurrency": 0}), "1 to 1,000"),
        (json!({"concurrency": 1001}), "1 to 1,000"),
        (json!({"concurrency": "5"}), "wrong type"),
        (json!({"concurrency": 5, "burst": 2}), "unknown"),
        (json!({"concurrency": 5, "on_full": "park"}), "none of"),
        (json!({"concurrency": 5, "waiting_max": 10_001}), "1 to 10,000"),
        (json!({"rate": {"count": 1}}), "period_s"),
        (rate(0, 1.0), "1 to 1,000,000 starts"),
        (rate(1, 0.0001), "a millisecond to 31 days"),
        (rate(1, 1e12), "a millisecond to 31 days"),
        (rate(1, -1.0), "a millisecond to 31 days"),
        (json!({"rate": {"count": 1, "period_s": 1, "burst": 0}}), "1 to 1,000,000"),
        (json!({"rate": {"count": 1, "period_s": 86_400, "burst": 32}}), "in 31 days"),
        (json!({"rate": {"count": 1, "period_s": 1}, "on_full": "drop"}), "concurrency"),
        (json!([1]), "not a JSON object"),
    ] {
        service.put("/limits/customer", body).await.says((400, "bad-request"), words);
    }
    let most = json!({"concurrency": 5, "waiting_max": 5});
    service.put("/limits/canvas", most).await.says((400, "bad-request"), "keys that emits name");
    for (name, words) in [
        ("%2E%2E%20", "a limit is named"),
        ("a%2Fb", "a limit is named"),
        ("canvas:1", "a limit is named"),
        ("handler:greet", "handler:MODULE/NAME"),
        ("handler:QUEUE%2Fmails", "in_flight_max"),
        (&"x".repeat(201), "a limit is named"),
    ] {
        let set = service.put(&format!("/limits/{name}"), json!({"concurrency": 1})).await;
        set.says((400, "bad-request"), words);
    }
    for query in ["limit=0", "limit=1001", "cursor=m~%21", "cursor=a~1", "name=customer"] {
        for path in ["/limits", "/limits/customer/uses"] {
            let answer = service.get(&format!("{path}?{query}")).await;
            assert_eq!(answer.problem().0, 400, "{path} {query}");
        }
    }
    let stage = service.stop().await;
    assert_eq!(stage.count("select count(*) from wakeq.limits").await, 0);
}

/// Of requests at the same time, one sets a new limit, and no more are set than a canvas may have.
#[tokio::test]
async fn limits_are_set_one_after_the_other() {
    let service = Service::start().await;
    let five = json!({"concurrency": 5});
    let statuses = async |names: Vec<String>| {
        let puts = names.iter().map(|name| service.put(name, five.clone()));
        let mut statuses: Vec<_> = join_all(puts).await.iter().map(|answer| answer.status.as_u16()).collect();
        statuses.sort_unstable();
        statuses
    };
    assert_eq!(statuses(vec!["/limits/customer".to_owned(); 5]).await, [200, 200, 200, 200, 201]);
    let fill = "insert into wakeq.limits (canvas_id, name, concurrency, created_by, updated_by)
                select '00000000-0000-0000-0000-000000000000', 'full-' || number, 5, 'tests', 'tests'
                  from generate_series(1, 998) as number";
    service.stage.execute(fill).await;
    let new: Vec<String> = (0..4).map(|number| format!("/limits/new:{number}")).collect();
    assert_eq!(statuses(new).await, [201, 409, 409, 409]);
    service.put("/limits/last", five.clone()).await.says((409, "conflict"), "1,000 limits");
    assert_eq!(service.put("/limits/customer", five.clone()).await.status, 200, "it is there");
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let other = format!("/canvases/{OTHER}/limits/last");
    assert_eq!(service.ask(&theirs, Method::PUT, &other, five).await.status, 201);
    service.stop().await;
}

#[tokio::test]
async fn emits_are_refused_while_as_many_wait_as_may() {
    let service = Service::start().await;
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let most = json!({"concurrency": 1, "waiting_max": 2});
    service.put("/limits/customer", most.clone()).await.json();
    let other = format!("/canvases/{OTHER}/limits/customer");
    service.ask(&theirs, Method::PUT, &other, most).await.json();
    queue_up(&service, CanvasId::DEFAULT, "customer:7", 1).await;
    queue_up(&service, OTHER, "customer:8", 2).await;
    assert_eq!(service.post("/events", event(&["customer:7"])).await.status, 202);
    queue_up(&service, CanvasId::DEFAULT, "customer:7", 1).await;

    let refused = service.post("/events", event(&["customer:7"])).await;
    refused.says((429, "limit-reached"), "2 events of the canvas");
    refused.says((429, "limit-reached"), "customer:7");
    assert_eq!(refused.headers["retry-after"], "10");
    let batch = json!({"events": [event(&[]), event(&["mails", "customer:7"])]});
    service.post("/events:batch", batch).await.says((429, "limit-reached"), "waiting_max");
    let change = json!({"main": event(&["customer:7"])});
    service.post("/objects/work:1/events", change).await.says((429, "limit-reached"), "");
    for keys in [&[][..], &["customer:8"], &["mails"]] {
        assert_eq!(service.post("/events", event(keys)).await.status, 202, "{keys:?}");
    }
    let path = format!("/canvases/{OTHER}/events");
    let emitted = service.ask(&theirs, Method::POST, &path, event(&["customer:7"])).await;
    assert_eq!(emitted.status, 202, "the other canvas has a customer 7, too");
    let refused = service.ask(&theirs, Method::POST, &path, event(&["customer:8"])).await;
    refused.says((429, "limit-reached"), "customer:8");

    service.put("/limits/customer:7", json!({"concurrency": 1})).await.json();
    let emitted = service.post("/events", event(&["customer:7"])).await;
    assert_eq!(emitted.status, 202, "its own limit has no such length");
    let stage = service.stop().await;
    assert_eq!(stage.rows().await, 6, "nothing of what was refused");
}

/// A handler holds the only place of a key, and the event behind it says so.
#[tokio::test]
async fn an_event_that_waits_says_for_what() {
    let service = Service::start().await;
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    service.put("/limits/customer", json!({"concurrency": 1})).await.json();
    let (mut worker, mut door) = service.stage.door("greet");
    let emit = async || {
        let event = json!({"name": "greet", "options": {"limits": ["customer:7"]}});
        service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned()
    };
    let first = emit().await;
    door.arrived.next().await;
    let second = emit().await;
    worker.until(second.parse().unwrap(), Outcome::LimitFull).await;

    let shown = service.get(&format!("/events/{second}")).await.json();
    has(&shown, json!({"state": "limited", "outcome": "LimitFull"}));
    let wait = json!({"name": "customer:7", "all_canvases": false, "holders": [first], "next_start": null});
    has(&shown["limit"], wait);
    assert!(
        shown["limit"]["since"].is_string() && shown["next"].as_str().unwrap().contains("limit"),
        "{shown}"
    );
    assert_eq!(service.get(&format!("/events/{first}")).await.json()["limit"], NONE);
    for query in ["state=limited", "waits_for=customer:7", "waits_for=customer:7&state=limited&name=greet"] {
        let limited = service.items(&format!("/events?{query}&limit=10")).await;
        assert_eq!((limited.len(), &limited[0]["id"]), (1, &json!(second)), "{query}");
    }
    for (query, count) in [("customer:7", 1), ("customer", 0), ("canvas", 0), ("handler:WORKER%2Fgreet", 0)] {
        let counted = service.get(&format!("/events/count?waits_for={query}")).await.json();
        assert_eq!(counted["count"], count, "{query}");
    }
    for refused in ["waits_for=", "waits_for=a%20b", "waits_for=handler:greet", "waits_for=a&waits_for=b"] {
        let answer = service.get(&format!("/events?{refused}")).await;
        assert_eq!(answer.problem(), (400, "bad-request".into()), "{refused}");
    }
    let preview = json!({"kind": "cancel", "filter": {"waits_for": "customer:7"}});
    assert_eq!(service.post("/operations/preview", preview).await.json()["count"], 1);
    let listed = format!("/canvases/{OTHER}/events?waits_for=customer:7");
    assert_eq!(service.ask(&theirs, Method::GET, &listed, NONE).await.json()["items"], json!([]));
    let uses = service.items("/limits/customer/uses?limit=1").await;
    assert_eq!(uses.len(), 1, "{uses:?}");
    has(&uses[0], json!({"name": "customer:7", "running": 1, "holders": [first], "waiting": 1}));
    let other =
        service.ask(&theirs, Method::GET, &format!("/canvases/{OTHER}/limits/customer/uses"), NONE).await;
    assert_eq!(other.json()["items"], json!([]));
    let foreign = Answer::of(
        service.request(Method::GET, &format!("/v1/canvases/{OTHER}/events/{second}")).bearer_auth(&theirs),
    )
    .await;
    assert_eq!(foreign.problem().0, 404);

    door.open(2);
    worker.until(second.parse().unwrap(), Outcome::Deleted).await;
    assert!(service.items("/events?state=limited&limit=10").await.is_empty());
    worker.stop().await;
    service.stop().await;
}

/// The time is that of the start of the event, and not of the next one in the line.
#[tokio::test]
async fn an_event_that_waits_for_a_rate_says_when_it_starts() {
    const HOUR: chrono::TimeDelta = chrono::TimeDelta::hours(1);
    let service = Service::start().await;
    service.put("/limits/customer", json!({"rate": {"count": 1, "period_s": 3600}})).await.json();
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let (mut worker, mut door) = service.stage.door("greet");
    let emit = async || {
        let event = json!({"name": "greet", "options": {"limits": ["customer:7"]}});
        service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned()
    };
    emit().await;
    let first = door.arrived.next().await;
    let mut starts: Vec<wakeq::Timestamp> = Vec::new();
    for _ in 0..3 {
        let id = emit().await;
        worker.until(id.parse().unwrap(), Outcome::LimitFull).await;
        let shown = service.get(&format!("/events/{id}")).await.json();
        has(&shown, json!({"state": "limited", "until": shown["limit"]["next_start"]}));
        starts.push(serde_json::from_value(shown["until"].clone()).unwrap());
        let path = format!("/canvases/{OTHER}/events/{id}");
        assert_eq!(service.ask(&theirs, Method::GET, &path, NONE).await.problem().0, 404);
    }
    let early = first.claimed_at + HOUR - starts[0];
    // The claim decides a moment before it writes its own time.
    assert!((0..30).contains(&early.num_seconds()), "{starts:?} after {}", first.claimed_at);
    assert_eq!([starts[1] - starts[0], starts[2] - starts[1]], [HOUR, HOUR]);
    let uses = service.items("/limits/customer/uses?limit=1").await;
    let next: wakeq::Timestamp = serde_json::from_value(uses[0]["next_start"].clone()).unwrap();
    assert_eq!((next, &uses[0]["waiting"]), (starts[0], &json!(3)));
    door.open(1);
    worker.stop().await;
    service.stop().await;
}
