//! Events over HTTP: from the emit to the end, listed, explained in every state, cancelled, run at
//! once.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Row;
use uuid::Uuid;
use wakeq::machine::Outcome;
use wakeq::{CanvasId, Handlers};
use wakeq_service::access::Scope;

use crate::support::handlers::Door;
use crate::support::service::{Answer, NONE, Service, has};

const LITERAL: &str = r#"{"b": 1.50,  "a": [ ], "b2":"\u00e9"}"#;

async fn sql(service: &Service, statement: &'static str, id: &str) {
    let id: Uuid = id.parse().unwrap();
    let done = sqlx::query(statement).bind(id).execute(&service.stage.pool).await.unwrap();
    assert_eq!(done.rows_affected(), 1, "{statement}");
}

async fn emit(service: &Service, event: Value) -> String {
    service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned()
}

/// Emits an event whose value is exactly [`LITERAL`].
async fn emit_literal(service: &Service, name: &str) -> String {
    let body = format!(r#"{{"name": "{name}", "value": {LITERAL}}}"#);
    let request = service.on_canvas(Method::POST, "/events").header("content-type", "application/json");
    Answer::of(request.body(body)).await.json()["id"].as_str().unwrap().to_owned()
}

async fn explain(service: &Service, id: &str) -> Value {
    service.get(&format!("/events/{id}")).await.json()
}

/// Makes the row a dead event.
async fn kill(service: &Service, id: &str) {
    let kill = "with gone as (delete from wakeq.events_v2 where id = $1 returning *)
                insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                               losses, cause, last_error)
                select id, canvas_id, module, name, modifier, value, 2, enqueued_at, 3, 0, 'retries', 'no such mailbox' from gone";
    sql(service, kill, id).await;
}

/// CARD-09: emitted over HTTP, seen waiting, running, and gone; the handler gets the value byte for
/// byte.
// Shows: EV2-04
#[tokio::test]
async fn one_event_from_its_emit_to_its_end() {
    let service = Service::start().await;
    let (handler, mut door) = Door::new();
    let id = emit_literal(&service, "greet").await;
    assert_eq!(explain(&service, &id).await["state"], "ready");
    assert_eq!((service.stage.rows().await, service.notifier.published().len()), (1, 1));
    let mut worker = service.stage.worker(Handlers::new().on("greet", handler));
    let ran = door.arrived.next().await;
    assert_eq!((ran.id.to_string(), ran.json.as_str()), (id.clone(), LITERAL));
    let running = explain(&service, &id).await;
    assert_eq!((&running["state"], &running["outcome"]), (&json!("running"), &json!("IsLocked")));
    for what in ["cancel", "run-now"] {
        let refused = service.post(&format!("/events/{id}/{what}"), json!({})).await;
        assert_eq!(refused.problem(), (409, "not-waiting".into()));
    }
    door.open(1);
    worker.until(ran.id, Outcome::Deleted).await;
    assert_eq!(service.get(&format!("/events/{id}")).await.problem(), (404, "not-found".into()));
    assert_eq!(service.get("/events").await.json(), json!({"items": [], "next_cursor": null}));
    worker.stop().await;
    service.stop().await;
}

/// Many events, emitted over HTTP, are run by a worker in the same process; each once.
// Shows: CARD-09
#[tokio::test]
async fn events_emitted_over_http_run_once() {
    let service = Service::start().await;
    let (worker, mut seen) = service.stage.recording("greet");
    let events: Vec<Value> = (0..500).map(|index| json!({"name": "greet", "value": index})).collect();
    let emitted = service.post("/events:batch", json!({"events": events})).await.json();
    let emitted = emitted["events"].as_array().unwrap();
    let ids: BTreeSet<String> = emitted.iter().map(|event| event["id"].as_str().unwrap().into()).collect();
    let ran: BTreeSet<String> = seen.take(500).await.iter().map(|run| run.id.to_string()).collect();
    assert_eq!((ran.len(), ran), (500, ids));
    service.notifier.drained().await;
    assert!(seen.rest().is_empty());
    worker.stop().await;
    service.stop().await;
}

/// Why an event is not running, in each of its states; its value only on request.
#[tokio::test]
async fn every_state_is_explained() {
    let service = Service::start().await;
    let ready = emit_literal(&service, "ready").await;
    let late = emit(&service, json!({"name": "late", "delay_s": 3600})).await;
    let paused = emit(&service, json!({"name": "paused"})).await;
    let blocked = emit(&service, json!({"name": "blocked"})).await;
    let runs = emit(&service, json!({"name": "runs"})).await;
    let dead = emit_literal(&service, "dead").await;
    let chosen = Uuid::new_v4().to_string();
    let own = emit(&service, json!({"name": "gone", "id": chosen})).await;
    service.put("/handlers/WORKER/paused/pause", json!({"reason": "mail server down"})).await.json();
    service.admin(Method::PUT, "/handlers/WORKER/blocked/block", NONE).await.json();
    sql(&service, "update wakeq.events_v2 set locked_at = now(), claims = 1 where id = $1", &runs).await;
    kill(&service, &dead).await;
    service.post(&format!("/events/{chosen}/cancel"), json!({})).await.json();
    let receives = "runs when a worker with free capacity receives its notification: none of its handler is \
                    running, so it waits for its canvas's share at most, as each free place goes to the canvas \
                    with the fewest";
    let returns = "ends when its handler returns, or is taken over when its lease expires";
    for (id, state, outcome, next) in [
        (&ready, "ready", json!("RuleNone"), receives),
        (&late, "delayed", json!("DelayNotYet"), "runs when it is due"),
        (&paused, "paused", json!("RulePaused"), "is woken when the handler is unpaused"),
        (&blocked, "blocked", json!("RuleBlocked"), "is woken when an admin unblocks the handler"),
        (&runs, "running", json!("IsLocked"), returns),
        (&dead, "dead", NONE, "is kept for a while; a redrive brings it back"),
        (&own, "gone", NONE, "nothing: it completed, or was cancelled or purged"),
    ] {
        let explanation = explain(&service, id).await;
        has(&explanation, json!({"id": id, "state": state, "outcome": outcome, "next": next}));
        assert!(explanation.get("value").is_none(), "{explanation}");
    }
    let explanation = explain(&service, &paused).await;
    has(&explanation["rule"], json!({"kind": "pause", "reason": "mail server down"}));
    let explanation = explain(&service, &dead).await;
    assert_eq!((&explanation["retries"], &explanation["last_error"]), (&json!(2), &json!("no such mailbox")));
    for id in [&ready, &dead] {
        let full = service.get(&format!("/events/{id}?view=full")).await;
        assert!(full.text.contains(&format!("\"value\":{LITERAL}")), "{}", full.text);
    }
    let basic = service.get(&format!("/events/{ready}?view=basic")).await.json();
    assert!(basic.get("value").is_none());
    let gone = service.get(&format!("/events/{chosen}?view=full")).await.json();
    assert!(gone.get("value").is_none(), "{gone}");
    let bad = (400, "bad-request".to_owned());
    assert_eq!(service.get(&format!("/events/{ready}?view=half")).await.problem(), bad);
    assert_eq!(service.get("/events/42").await.problem(), bad);
    service.stop().await;
}

/// In every answer another canvas's event is like one that never was, even to a key with every
/// scope there.
#[tokio::test]
async fn an_event_of_another_canvas_is_not_there() {
    let service = Service::start().await;
    let greet = json!({"name": "greet"});
    let (live, dead) = (emit(&service, greet.clone()).await, emit(&service, greet).await);
    kill(&service, &dead).await;
    let elsewhere = CanvasId(Uuid::new_v4());
    let key = service.key("elsewhere", elsewhere, &Scope::ALL).await;
    let never = Uuid::new_v4().to_string();
    let body = |answer: Answer| {
        let problem = answer.problem();
        let mut body: Value = serde_json::from_str(&answer.text).unwrap();
        body["request_id"] = NONE;
        (problem, body)
    };
    for (method, path) in [
        (Method::GET, "/events/ID"),
        (Method::GET, "/events/ID?view=full"),
        (Method::POST, "/events/ID/cancel"),
        (Method::POST, "/events/ID/run-now"),
        (Method::POST, "/dead-events/ID/redrive"),
    ] {
        let ask = async |id: &str| {
            let path = format!("/canvases/{elsewhere}{}", path.replace("ID", id));
            body(service.ask(&key, method.clone(), &path, NONE).await)
        };
        let unknown = ask(&never).await;
        assert_eq!(unknown.0, (404, "not-found".into()));
        for id in [&live, &dead] {
            assert_eq!(ask(id).await, unknown, "{path}");
        }
    }
    assert_eq!(service.stage.rows().await, 1);
    assert_eq!(explain(&service, &dead).await["state"], "dead");
    service.stop().await;
}

/// Cancelled: gone. Run at once: due now, even if no notification can be published.
#[tokio::test]
async fn an_event_is_cancelled_or_run_at_once() {
    let service = Service::start().await;
    let first = emit(&service, json!({"name": "greet"})).await;
    let done = service.post(&format!("/events/{first}/cancel"), json!({})).await.json();
    assert_eq!(done, json!({"id": first}));
    assert_eq!(service.stage.rows().await, 0);
    let again = service.post(&format!("/events/{first}/cancel"), json!({})).await;
    assert_eq!(again.problem(), (404, "not-found".into()));

    for broken in [false, true] {
        if broken {
            service.notifier.break_down("the broker is away");
        }
        let late = emit(&service, json!({"name": "late", "delay_s": 3600})).await;
        let published = service.notifier.published().len();
        let done = service.post(&format!("/events/{late}/run-now"), json!({})).await.json();
        assert_eq!(done, json!({"id": late}));
        assert_eq!(explain(&service, &late).await["state"], "ready");
        assert_eq!(service.notifier.published().len(), published + usize::from(!broken));
        let promise = "select notify_at < now() + interval '1 minute' from wakeq.events_v2 where id = $1";
        let id: Uuid = late.parse().unwrap();
        let row = sqlx::query(promise).bind(id).fetch_one(&service.stage.pool).await.unwrap();
        assert!(row.get::<bool, _>(0), "its promise makes up for it");
    }
    service.stop().await;
}

/// Every page of a list.
async fn all(service: &Service, query: &str, limit: usize) -> Vec<Value> {
    let page = async |cursor: &str| {
        let page = service.get(&format!("/events?limit={limit}{query}{cursor}")).await.json();
        assert!(page["items"].as_array().unwrap().len() <= limit);
        page
    };
    service.items_by(page).await
}

/// By handler and by state, page by page to the end; an invalid cursor or filter is refused.
#[tokio::test]
async fn events_are_listed_by_handler_and_state() {
    let service = Service::start().await;
    for (name, delay_s) in [("free", 0), ("late", 3600), ("paused", 0), ("blocked", 0)] {
        let events = vec![json!({"name": name, "delay_s": delay_s}); 5];
        service.post("/events:batch", json!({"events": events})).await.json();
    }
    let other = emit(&service, json!({"module": "MAIL", "name": "free"})).await;
    service.put("/handlers/WORKER/paused/pause", json!({})).await.json();
    service.admin(Method::PUT, "/handlers/WORKER/blocked/block", NONE).await.json();
    let run = "update wakeq.events_v2 set locked_at = now(), claims = 1 where name = 'free' and module = 'WORKER'
                  and id = (select min(id::text)::uuid from wakeq.events_v2 where name = 'free' and module = 'WORKER')";
    service.stage.execute(run).await;

    let whole = all(&service, "", 1000).await;
    assert_eq!(whole.len(), 21);
    assert_eq!(all(&service, "", 4).await, whole);
    let mut seen = 0;
    for (state, count) in [("ready", 5), ("delayed", 5), ("running", 1), ("paused", 5), ("blocked", 5)] {
        let listed = all(&service, &format!("&state={state}"), 2).await;
        let meant: Vec<Value> = whole.iter().filter(|event| event["state"] == state).cloned().collect();
        assert_eq!((listed.len(), &listed), (count, &meant), "{state}");
        seen += count;
    }
    assert_eq!(seen, whole.len());
    assert_eq!(all(&service, "&name=free", 2).await.len(), 5);
    assert_eq!(all(&service, "&name=free&state=running", 2).await.len(), 1);
    let mail = all(&service, "&module=MAIL", 2).await;
    assert_eq!((mail.len(), &mail[0]["id"]), (1, &json!(other)));

    let late = service.get("/events?limit=1&name=late").await.json();
    let next = late["next_cursor"].as_str().unwrap();
    let bad = (400, "bad-request".to_owned());
    let wrong = ["limit=0", "limit=1001", "limit=x", "state=dead", "name=a%20b", "page=2"].map(str::to_owned);
    let cursors = ["garbage", "", "a~1", &format!("d~1~{}", "0".repeat(32)), &"x".repeat(401)];
    let cursors = cursors.map(|cursor| format!("cursor={cursor}"));
    for query in wrong.into_iter().chain(cursors).chain([format!("name=free&cursor={next}")]) {
        assert_eq!(service.get(&format!("/events?{query}")).await.problem(), bad, "{query}");
    }
    service.stop().await;
}
