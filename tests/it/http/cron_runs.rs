//! Crons that are run now, over HTTP: an event beside the ticks, once for each key.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{Answer, NONE, Service, has};

const RUN: &str = "/cron/yearly/run-now";

/// A service with a cron that does not tick.
async fn with_cron() -> Service {
    let service = Service::start().await;
    let cron = json!({"expression": "0 0 1 1 *", "value": {"n": 1}, "modifier": "rare"});
    service.put("/cron/yearly", cron).await.json();
    service
}

async fn run(service: &Service) -> Answer {
    Answer::of(service.on_canvas(Method::POST, RUN)).await
}

async fn run_under(service: &Service, path: &str, key: &str) -> Answer {
    Answer::of(service.on_canvas(Method::POST, path).header("idempotency-key", key)).await
}

/// The lines of the record about runs.
async fn recorded(service: &Service) -> Vec<Value> {
    let record = service.admin(Method::GET, "/audit", NONE).await.json();
    let lines = record["items"].as_array().unwrap().iter();
    lines.filter(|line| line["action"] == "run-cron").cloned().collect()
}

/// The cron stays as it is, also where it is paused, and the record names the event.
#[tokio::test]
async fn a_run_is_an_event_beside_the_ticks() {
    let service = with_cron().await;
    for paused in [false, true] {
        if paused {
            service.put("/cron/yearly/pause", json!({"reason": "inventory"})).await.json();
        }
        let before = service.get("/cron/yearly").await.json();
        let ran = run(&service).await;
        assert_eq!(ran.status, StatusCode::ACCEPTED, "{ran:?}");
        let id = ran.json()["id"].as_str().unwrap().to_owned();
        assert!(ran.headers["location"].to_str().unwrap().ends_with(&format!("/events/{id}")));
        let event = service.get(&format!("/events/{id}?view=full")).await.json();
        has(&event, json!({"module": "CRON", "name": "yearly", "modifier": "rare", "value": {"n": 1}}));
        assert_eq!(service.get("/cron/yearly").await.json(), before, "the ticks stay");
        let lines = recorded(&service).await;
        has(&lines[0], json!({"event_id": id, "module": "CRON", "name": "yearly", "actor": "key:tests"}));
        assert_eq!(lines.len(), 1 + usize::from(paused));
    }
    assert_eq!(service.notifier.published().len(), 2);
    assert_eq!(service.stop().await.rows().await, 2);
}

#[tokio::test]
async fn a_repeated_run_emits_nothing_more() {
    let service = with_cron().await;
    service.put("/cron/other", json!({"expression": "0 0 1 1 *"})).await.json();
    let first = run_under(&service, RUN, "k").await;
    let again = run_under(&service, RUN, "k").await;
    assert_eq!((first.status, &first.text), (again.status, &again.text));
    assert_eq!(first.headers["location"], again.headers["location"]);
    assert!(!first.headers.contains_key("idempotency-replayed"));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let mismatch = run_under(&service, "/cron/other/run-now", "k").await;
    assert_eq!(mismatch.problem(), (422, "idempotency-mismatch".into()));
    assert_eq!(run_under(&service, "/cron/none/run-now", "l").await.problem().0, 404);
    assert_eq!(run_under(&service, RUN, "l").await.status, StatusCode::ACCEPTED, "the key was free");
    assert_eq!(recorded(&service).await.len(), 2);
    assert_eq!(service.stop().await.rows().await, 2);
}

/// A cron of the same name, and a key of the same text and holder, are others on another canvas.
#[tokio::test]
async fn a_run_is_of_its_canvas() {
    let service = with_cron().await;
    let first = run_under(&service, RUN, "k").await.json();
    let theirs = service.key("tests", OTHER, &Scope::ALL).await;
    let path = format!("/canvases/{OTHER}{RUN}");
    let missing = service.ask(&theirs, Method::POST, &path, NONE).await;
    assert_eq!(missing.problem(), (404, "not-found".into()), "it is on the first canvas only");
    let cron = json!({"expression": "0 0 1 1 *", "value": "theirs"});
    service.ask(&theirs, Method::PUT, &format!("/canvases/{OTHER}/cron/yearly"), cron).await.json();
    let request = service.request(Method::POST, &format!("/v1{path}")).bearer_auth(&theirs);
    let own = Answer::of(request.header("idempotency-key", "k")).await;
    assert!(!own.headers.contains_key("idempotency-replayed"));
    let id = own.json()["id"].as_str().unwrap().to_owned();
    assert_ne!(first["id"], id.as_str());
    assert_eq!(service.get(&format!("/events/{id}")).await.problem().0, 404);
    assert_eq!(recorded(&service).await.len(), 1);
    let elsewhere = format!("/canvases/{}{RUN}", CanvasId::DEFAULT);
    assert_eq!(service.ask(&theirs, Method::POST, &elsewhere, NONE).await.problem().0, 404);
    assert_eq!(service.stop().await.rows().await, 2);
}

/// A run emits: it needs the scopes `operate` and `emit`, and room in the quota of events.
#[tokio::test]
async fn a_run_needs_both_scopes_and_room() {
    let service = with_cron().await;
    let canvas = CanvasId::DEFAULT;
    for (scopes, words) in
        [([Scope::Read, Scope::Emit], "`operate`"), ([Scope::Read, Scope::Operate], "`emit`")]
    {
        let key = service.key(words.trim_matches('`'), canvas, &scopes).await;
        let refused = service.ask(&key, Method::POST, &format!("/canvases/{canvas}{RUN}"), NONE).await;
        refused.says((403, "forbidden"), words);
    }
    let root = service.wide_key("root", &Scope::ALL).await;
    let quota = format!("/admin/quotas/{canvas}/events");
    let set = service.ask(&root, Method::PUT, &quota, json!({"limit": 1})).await;
    assert!(set.status.is_success(), "{set:?}");
    assert_eq!(run_under(&service, RUN, "k").await.status, StatusCode::ACCEPTED);
    assert_eq!(run(&service).await.problem(), (429, "quota-exceeded".into()));
    assert_eq!(run_under(&service, RUN, "k").await.status, StatusCode::ACCEPTED, "it was answered before");
    assert_eq!(recorded(&service).await.len(), 1);
    assert_eq!(service.stop().await.rows().await, 1);
}
