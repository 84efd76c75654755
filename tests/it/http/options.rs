//! Options of events over HTTP: they are shown of events that wait and of dead ones, each way to
//! emit takes them, and another tenant sees none.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq_service::access::Scope;

use crate::support::service::{Answer, Service};
use crate::support::{OTHER, Statements};

fn all() -> Value {
    json!({"retries": 7, "delays_s": [1.0, 60.5], "timeout_s": 30.0, "not_after": "2030-01-31T08:00:00Z",
           "limits": ["customer:7", "mails"], "urgent": true})
}

#[tokio::test]
async fn an_event_shows_what_its_emit_asked_for() {
    let service = Service::start().await;
    let asking = json!({"name": "greet", "value": 1, "delay_s": 3600, "options": all()});
    let emitted = service.post("/events", asking.clone()).await;
    assert_eq!(emitted.status, StatusCode::ACCEPTED);
    let id = emitted.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/events/{id}");
    assert_eq!(service.get(&path).await.json()["options"], all());

    let batch = json!({"events": [asking, {"name": "greet"}]});
    let batch = service.post("/events:batch", batch).await.json();
    let main = json!({"main": {"name": "greet", "options": {"retries": 0}}});
    let change = service.post("/objects/work:1/events", main).await.json();
    let cloud = json!({"specversion": "1.0", "type": "greet", "source": "/shop", "id": "1",
                       "limits": "customer:7,mails", "urgent": true});
    let request = service.on_canvas(Method::POST, "/events");
    let request = request.header("content-type", "application/cloudevents-batch+json");
    let clouds = Answer::of(request.body(json!([cloud]).to_string())).await.json();
    for (event, expected) in [
        (&clouds["events"][0], json!({"limits": ["customer:7", "mails"], "urgent": true})),
        (&batch["events"][0], all()),
        (&batch["events"][1], Value::Null),
        (&change["events"][0], json!({"retries": 0})),
    ] {
        let shown = service.get(&format!("/events/{}", event["id"].as_str().unwrap())).await.json();
        assert_eq!(shown["options"], expected);
        assert_eq!(shown.get("options").is_none(), expected.is_null(), "{shown}");
    }

    let key = service.key("other", OTHER, &[Scope::Emit, Scope::Read]).await;
    let foreign = format!("/canvases/{OTHER}{path}");
    assert_eq!(service.ask(&key, Method::GET, &foreign, Value::Null).await.problem().0, 404);
    service.stop().await;
}

/// With its cause, which lists show, too.
#[tokio::test]
async fn an_event_that_has_expired_shows_its_moment() {
    let service = Service::start().await;
    let moment = json!({"not_after": "2020-01-31T08:00:00Z"});
    let event = json!({"name": "greet", "options": moment});
    let id = service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/events/{id}");
    let next = service.get(&path).await.json()["next"].as_str().unwrap().to_owned();
    assert!(next.starts_with("dies as soon as it would run"), "{next}");
    service
        .stage
        .pool
        .run(
            "with gone as (delete from wakeq.events_v2 returning *)
             insert into wakeq.dead_events (canvas_id, id, module, name, modifier, value, retries, enqueued_at, claims,
                                            losses, cause, options)
             select canvas_id, id, module, name, modifier, value, retries, enqueued_at, 1, 0, 'expired', options from gone",
        )
        .await;
    let dead = service.get(&path).await.json();
    assert_eq!(
        (&dead["state"], &dead["cause"], &dead["options"]),
        (&json!("dead"), &json!("expired"), &moment)
    );
    assert_eq!(service.get("/dead-events").await.json()["items"][0]["cause"], "expired");
    service.stop().await;
}

#[tokio::test]
async fn a_refusal_says_what_is_out_of_bounds() {
    let service = Service::start().await;
    for (options, words) in [
        (json!({"retries": 1001}), "retried 1,000 times at most"),
        (json!({"delays_s": []}), "1 to 100 delays"),
        (json!({"timeout_s": 0}), "a millisecond to 30 days"),
        (json!({"limits": ["canvas"]}), "a limit's key has 1 to 200 of the characters"),
        (json!({"limits": ["handler:WORKER/greet"]}), "a limit's key has 1 to 200 of the characters"),
        (json!({"limits": ["a", "b", "c", "d"]}), "at most 3 different keys of limits"),
        (json!({"urgent": 1}), "`urgent` must be true or false"),
        (
            json!({"tries": 1}),
            "the fields are retries, delays_s, timeout_s, not_after, keep_s, tags, limits and urgent",
        ),
    ] {
        let event = json!({"name": "greet", "options": options});
        service.post("/events", event.clone()).await.says((400, "bad-request"), words);
        service.post("/events:batch", json!({"events": [event]})).await.says((400, "bad-request"), words);
    }
    for (options, words) in [
        (json!({"limits": ["customer:7"]}), "an event that is only for queues can't name limits"),
        (json!({"urgent": true}), "an event that is only for queues can't be urgent"),
    ] {
        let event = json!({"name": "greet", "only_queues": true, "options": options});
        service.post("/events", event).await.says((400, "bad-request"), words);
    }
    assert_eq!(service.stop().await.rows().await, 0);
}
