//! Unique keys over HTTP: the fields of the answer, batches, idempotency keys, other tenants, and
//! what is shown of an event.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{Answer, Service};

fn keyed(value: &str, unique: Value) -> Value {
    json!({"name": "greet", "value": value, "unique": unique})
}

#[tokio::test]
async fn an_answer_says_what_was_done() {
    let service = Service::start().await;
    let first = service.post("/events", keyed("a", json!({"key": "k"}))).await;
    assert_eq!(first.status, StatusCode::ACCEPTED);
    let id = first.json()["id"].clone();
    assert_eq!(first.json(), json!({"id": id, "duplicate": false, "outcome": "inserted"}));
    let kept = service.post("/events", keyed("b", json!({"key": "k", "until": "ended"}))).await;
    assert_eq!(kept.json(), json!({"id": id, "duplicate": false, "outcome": "kept"}));
    assert_eq!(kept.headers["location"], first.headers["location"]);
    let replaced = service.post("/events", keyed("c", json!({"key": "k", "on_conflict": "replace"}))).await;
    assert_eq!(replaced.json(), json!({"id": id, "duplicate": false, "outcome": "replaced"}));
    let quiet = json!({"key": "k", "on_conflict": "postpone", "postpone_s": 100, "at_most_s": 200});
    let postponed = service.post("/events", keyed("d", quiet)).await.json();
    let path = format!("/events/{}?view=full", id.as_str().unwrap());
    let shown = service.get(&path).await.json();
    let expected = json!({"id": id, "duplicate": false, "outcome": "postponed", "due": shown["delay_until"]});
    assert_eq!(postponed, expected);
    assert_eq!(
        (&shown["unique_key"], &shown["value"], &shown["state"]),
        (&json!("k"), &json!("d"), &json!("delayed"))
    );

    let key = service.key("other", OTHER, &[Scope::Emit, Scope::Read]).await;
    let theirs = format!("/canvases/{OTHER}/events");
    let emitted = service.ask(&key, Method::POST, &theirs, keyed("e", json!({"key": "k"}))).await.json();
    assert_eq!(emitted["outcome"], "inserted");
    let foreign = format!("{theirs}/{}", id.as_str().unwrap());
    assert_eq!(service.ask(&key, Method::GET, &foreign, Value::Null).await.problem().0, 404);
    let plain = service.post("/events", json!({"name": "greet"})).await.json();
    assert!(plain.get("outcome").is_none() && plain.get("due").is_none(), "{plain}");
    let shown = service.get(&format!("/events/{}", plain["id"].as_str().unwrap())).await.json();
    assert!(shown.get("unique_key").is_none(), "{shown}");
    assert_eq!(service.stop().await.rows().await, 3);
}

#[tokio::test]
async fn a_batch_is_answered_in_its_order() {
    let service = Service::start().await;
    let events = json!([
        keyed("a", json!({"key": "k"})),
        {"name": "greet"},
        keyed("b", json!({"key": "k", "on_conflict": "replace"})),
        keyed("c", json!({"key": "l", "remember_s": 60})),
    ]);
    let ask =
        async || service.post("/events:batch", json!({"events": events})).await.json()["events"].clone();
    let outcomes = |answer: &Value| -> Vec<Value> {
        answer.as_array().unwrap().iter().map(|one| one["outcome"].clone()).collect()
    };
    let (first, second) = (ask().await, ask().await);
    assert_eq!(outcomes(&first), [json!("inserted"), Value::Null, json!("replaced"), json!("inserted")]);
    assert_eq!(outcomes(&second), [json!("kept"), Value::Null, json!("replaced"), json!("kept")]);
    assert!([0, 2].iter().all(|at| second[*at]["id"] == first[0]["id"]));
    assert_eq!(service.stop().await.rows().await, 4);
}

/// A repeat under an idempotency key answers what was done the first time.
#[tokio::test]
async fn a_repeated_request_repeats_the_outcome() {
    let service = Service::start().await;
    let quiet = json!({"key": "k", "on_conflict": "postpone", "postpone_s": 100, "at_most_s": 200});
    let ask = async |idempotency: &str| {
        let request = service.on_canvas(Method::POST, "/events").header("idempotency-key", idempotency);
        Answer::of(request.json(&keyed("a", quiet.clone()))).await
    };
    let first = ask("1").await.json();
    assert_eq!(first["outcome"], "inserted");
    let second = ask("2").await.json();
    assert_eq!((&second["id"], &second["outcome"]), (&first["id"], &json!("postponed")));
    for (idempotency, answer) in [("1", &first), ("2", &second)] {
        let again = ask(idempotency).await;
        assert_eq!(
            (again.headers["idempotency-replayed"].to_str().unwrap(), &again.json()),
            ("true", answer)
        );
    }
    assert_eq!(service.stop().await.rows().await, 1);
}

#[tokio::test]
async fn a_refusal_says_what_excludes_a_key() {
    let service = Service::start().await;
    let unique = json!({"key": "k"});
    for (field, value, words) in [
        ("id", json!(uuid::Uuid::new_v4()), "an id of the caller's choice"),
        ("object", json!("work:1"), "be on an object"),
        ("only_queues", json!(true), "be only for queues"),
        ("logged", json!(true), "be appended to the log"),
    ] {
        let mut event = keyed("a", unique.clone());
        event[field] = value;
        service.post("/events", event.clone()).await.says((400, "bad-request"), words);
        service.post("/events:batch", json!({"events": [event]})).await.says((400, "bad-request"), words);
    }
    let change = json!({"main": keyed("a", unique)});
    service.post("/objects/work:1/events", change).await.says((400, "bad-request"), "be on an object");
    service
        .post("/events", keyed("a", json!({"key": "no blanks"})))
        .await
        .says((400, "bad-request"), "1 to 255 visible ASCII characters");
    assert_eq!(service.stop().await.rows().await, 0);
}
