//! Crons over HTTP: put, listed, shown, paused, deleted; and what is refused, with which message.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::crons::last_events::{DIED, TICKED};
use crate::support::OTHER;
use crate::support::service::{Answer, NONE, Service, has};

#[tokio::test]
async fn a_cron_is_put_shown_paused_and_deleted() {
    let service = Service::start().await;
    let body =
        json!({"expression": "30 2  * * *", "zone": "Europe/Berlin", "value": {"n": 1}, "missed": "once"});
    let put = service.put("/cron/nightly", body.clone()).await;
    assert_eq!(put.status, 201);
    let cron = put.json();
    has(&cron, json!({"name": "nightly", "expression": "30 2 * * *", "zone": "Europe/Berlin"}));
    has(&cron, json!({"modifier": "_", "value": {"n": 1}, "missed": "once"}));
    has(&cron, json!({"paused": null, "last": null, "last_event": null, "created_by": "key:tests"}));
    let next = cron["next"].as_array().unwrap();
    assert_eq!(next.len(), 5);
    for tick in next {
        let (at, local) = (tick["at"].as_str().unwrap(), tick["local"].as_str().unwrap());
        let is_local = local.contains("T02:30:00+0") || local.contains("T03:00:00+02:00");
        assert!(at.ends_with('Z') && is_local, "{tick}");
    }
    let again = service.put("/cron/nightly", body).await;
    assert_eq!(again.status, 200);
    assert_eq!(again.json()["changed_at"], cron["changed_at"], "nothing changed");
    assert_eq!(service.get("/cron/nightly").await.json(), again.json());

    let paused = service.put("/cron/nightly/pause", json!({"reason": "inventory"})).await.json();
    has(&paused["paused"], json!({"by": "key:tests", "reason": "inventory"}));
    assert_eq!(paused["next"], json!([]));
    let unpaused = service.delete("/cron/nightly/pause").await.json();
    assert_eq!((&unpaused["paused"], unpaused["next"].as_array().unwrap().len()), (&json!(null), 5));
    let deleted = service.delete("/cron/nightly").await;
    assert_eq!((deleted.status.as_u16(), deleted.text.as_str()), (204, ""));
    for gone in [
        service.delete("/cron/nightly").await,
        service.get("/cron/nightly").await,
        service.put("/cron/nightly/pause", json!({})).await,
        service.delete("/cron/nightly/pause").await,
    ] {
        assert_eq!(gone.problem(), (404, "not-found".into()));
    }
    service.stop().await;
}

#[tokio::test]
async fn crons_are_listed_page_by_page_without_their_values() {
    let service = Service::start().await;
    for name in ["c", "a", "d", "b", "pause"] {
        let cron = json!({"expression": "0 0 1 1 *", "value": "long"});
        service.put(&format!("/cron/{name}"), cron).await.json();
    }
    let crons = service.items("/cron?limit=2").await;
    for cron in &crons {
        assert!(cron.get("value").is_none() && cron["next"].as_array().unwrap().len() == 1, "{cron}");
    }
    let names: Vec<_> = crons.iter().map(|cron| cron["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "pause"]);
    for query in ["limit=0", "limit=1001", "cursor=%20", "name=a"] {
        assert_eq!(service.get(&format!("/cron?{query}")).await.problem().0, 400, "{query}");
    }
    service.stop().await;
}

/// In the list and alone. A cron of the same name on another canvas has an event of its own, whose
/// handler is paused there.
#[tokio::test]
async fn crons_say_what_became_of_their_last_ticks() {
    let service = Service::start().await;
    let key = service.key("other", OTHER, &Scope::ALL).await;
    let at_other = |path: &str| format!("/canvases/{OTHER}{path}");
    let cron = json!({"expression": "@yearly"});
    service.put("/cron/report", cron.clone()).await.json();
    service.ask(&key, Method::PUT, &at_other("/cron/report"), cron).await.json();
    service.stage.execute(TICKED).await;
    service.ask(&key, Method::PUT, &at_other("/handlers/CRON/report/pause"), json!({})).await.json();
    let own = async |state: &str| {
        let event = service.get("/cron/report").await.json()["last_event"].clone();
        assert_eq!(
            (&event["state"], &service.items("/cron?limit=9").await[0]["last_event"]),
            (&json!(state), &event)
        );
        event
    };
    let event = own("ready").await;
    assert_eq!((&event["retries"], event["id"].as_str().unwrap().len()), (&json!(0), 36));
    let theirs = service.ask(&key, Method::GET, &at_other("/cron/report"), NONE).await.json();
    has(&theirs["last_event"], json!({"state": "paused"}));
    assert_ne!(theirs["last_event"]["id"], event["id"]);
    service.stage.execute(DIED).await;
    assert_eq!(own("dead").await, json!({"id": event["id"], "state": "dead", "retries": 2}));
    service
        .stage
        .execute("update wakeq.dead_events set canvas_id = '00000000-0000-0000-0000-0000000000f0'")
        .await;
    assert_eq!(own("gone").await["id"], event["id"], "that of another canvas is another");
    assert_eq!(service.get(&format!("/events/{}", event["id"].as_str().unwrap())).await.problem().0, 404);
    service.stop().await;
}

#[tokio::test]
async fn rejects_invalid_crons_with_advice() {
    let service = Service::start().await;
    let cases = [
        (
            json!({"expression": "0 0 30 2 *"}),
            "`0 0 30 2 *` never occurs: no date within a hundred years matches it",
        ),
        (json!({"expression": "every day"}), "\"every day\" is not a cron expression ("),
        (
            json!({"expression": "* * * * *", "zone": "Berlin"}),
            "\"Berlin\" is not a time zone: did you mean Europe/Berlin?",
        ),
        (json!({"expression": "* * * * *", "modifier": "a b"}), "\"a b\" is not a valid name"),
        (
            json!({"expression": "* * * * *", "missed": "twice"}),
            "a value is none of `skip`, `once`, `all` before line 1, column ",
        ),
        (json!({"zone": "UTC"}), "the field `expression` is missing before line 1, column "),
        (
            json!({"expression": "* * * * *", "seconds": 1}),
            "a field is unknown: the fields are `expression`, `zone`, `value`, `modifier`, `missed`; \
             the unknown one is before line",
        ),
        (json!({"expression": 5}), "a field is of the wrong type before line 1, column "),
        (json!({"expression": "* * * * *", "value": "\u{0}"}), "the value has a NUL character"),
    ];
    for (body, words) in cases {
        let answer = service.put("/cron/nightly", body.clone()).await;
        assert_eq!(answer.problem(), (400, "bad-request".into()), "{body}");
        let problem: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
        assert!(problem["detail"].as_str().unwrap().starts_with(words), "{body}: {problem}");
    }
    let large = json!({"expression": "* * * * *", "value": "x".repeat(65_536)});
    assert_eq!(service.put("/cron/nightly", large).await.problem(), (413, "too-large".into()));
    assert_eq!(service.put("/cron/a%20b", json!({"expression": "* * * * *"})).await.problem().0, 400);
    assert_eq!(service.get("/cron").await.json()["items"], json!([]));
    service.stop().await;
}

/// A cron emits: it needs the scopes `operate` and `emit`. Its value is shown only to readers who
/// may see values.
// Shows: TARGET-11
#[tokio::test]
async fn crons_are_put_by_operators_who_may_emit() {
    let service = Service::start().await;
    let path = format!("/v1/canvases/{}/cron/nightly", CanvasId::DEFAULT);
    let body = json!({"expression": "* * * * *", "value": "for readers"});
    let to = |method, path: &str, key: &str| service.request(method, path).bearer_auth(key);
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read, Scope::Emit]).await;
    let operator = service.key("operator", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
    for (key, words) in [(&reader, "`operate`"), (&operator, "`emit`")] {
        let refused = Answer::of(to(Method::PUT, &path, key).json(&body)).await;
        refused.says((403, "forbidden"), words);
    }
    assert_eq!(Answer::of(to(Method::GET, &path, &reader)).await.problem(), (404, "not-found".into()));
    let both = service.key("both", CanvasId::DEFAULT, &[Scope::Emit, Scope::Operate]).await;
    assert_eq!(Answer::of(to(Method::PUT, &path, &both).json(&body)).await.json()["value"], "for readers");
    assert_eq!(Answer::of(to(Method::GET, &path, &both)).await.problem(), (403, "forbidden".into()));
    let shown = Answer::of(to(Method::GET, &path, &reader)).await.json();
    assert_eq!(
        (&shown["value"], &shown["hidden"]),
        (&Value::Null, &json!("hidden: this needs the scope `values`"))
    );
    let sees = service.key("sees", CanvasId::DEFAULT, &[Scope::Read, Scope::Values]).await;
    let shown = Answer::of(to(Method::GET, &path, &sees)).await.json();
    assert_eq!((&shown["value"], &shown["hidden"]), (&json!("for readers"), &Value::Null));
    let alone = service.key("alone", CanvasId::DEFAULT, &[Scope::Operate]).await;
    let pause = format!("{path}/pause");
    for method in [Method::PUT, Method::DELETE] {
        let answer = Answer::of(to(method, &pause, &alone)).await;
        assert_eq!(answer.json()["expression"], "* * * * *");
        assert!(!answer.text.contains("readers"), "{}", answer.text);
    }
    assert_eq!(Answer::of(to(Method::DELETE, &path, &alone)).await.status, 204);
    service.stop().await;
}
