//! Objects over HTTP: changed as a whole, shown, resumed.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{Answer, Service};

fn change(state: &Value) -> Value {
    json!({"main": {"name": "index", "value": 1}, "subevents": [{"name": "index"}, {"name": "mail"}], "state": state})
}

/// Main event, subevents and state are one change; the object shows them.
// Shows: ORD-18, ORD-19
#[tokio::test]
async fn a_change_is_committed_as_a_whole() {
    let service = Service::start().await;
    let path = "/objects/work:1/events";
    let first = service.post(path, change(&json!({"title": "Emma"}))).await;
    assert_eq!(first.status, StatusCode::ACCEPTED);
    let first = first.json();
    let link = |at: usize| {
        (first["events"][at]["link"]["id"].as_i64(), first["events"][at]["link"]["prev"].as_i64())
    };
    assert_eq!((link(0).1, link(1).1, link(2).1), (Some(0), link(0).0, link(1).0));
    assert_eq!(service.notifier.published().len(), 3);
    let object = service.get("/objects/work:1").await.json();
    assert_eq!((object["last_id"].as_i64(), &object["state"]), (link(2).0, &json!({"title": "Emma"})));
    // A part of the object is on the object; without a new state, the state stays as it was.
    let part =
        service.post("/objects/work:1%2Fpost:7/events", json!({"main": {"name": "index"}})).await.json();
    assert_eq!(part["events"][0]["link"]["prev"].as_i64(), link(2).0);
    let object = service.get("/objects/work:1").await.json();
    assert_eq!(object["state"], json!({"title": "Emma"}));
    // Another canvas has chosen the same id, for a far-off event.
    let taken = uuid::Uuid::from_u128(1);
    let far_off = wakeq::Event::new("index", &1).unwrap().canvas(OTHER).id(wakeq::EventId(taken));
    let far_off = far_off.at("2125-01-01T00:00:00Z".parse().unwrap()).unwrap();
    service.stage.queue.emit(far_off).await.unwrap();
    let mut changed = change(&json!(2));
    changed["subevents"][1]["id"] = json!(taken);
    let again = service.post(path, changed).await.json();
    assert_eq!(again["events"][2]["duplicate"], false, "{again}");
    assert_eq!(service.get("/objects/work:1").await.json()["state"], json!(2));
    assert_eq!(service.stop().await.rows().await, 4 + 1 + 3);
}

// Shows: ORD-26
#[tokio::test]
async fn a_repeated_change_gets_its_first_answer() {
    let service = Service::start().await;
    let send = |body: Value| {
        let request =
            service.on_canvas(Method::POST, "/objects/work:1/events").header("idempotency-key", "k");
        Answer::of(request.json(&body))
    };
    let first = send(change(&json!(1))).await;
    let between = service.post("/objects/work:1/events", change(&json!(2))).await.json();
    let again = send(change(&json!(1))).await;
    assert_eq!((first.text.clone(), again.text.clone()), (again.text.clone(), first.text));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(send(change(&json!(3))).await.problem(), (422, "idempotency-mismatch".into()));
    let object = service.get("/objects/work:1").await.json();
    assert_eq!((&object["state"], &object["last_id"]), (&json!(2), &between["events"][2]["link"]["id"]));
    assert_eq!(service.stop().await.rows().await, 6);
}

#[tokio::test]
async fn invalid_changes_of_objects_are_refused() {
    let service = Service::start().await;
    let path = "/objects/work:1/events";
    let large = "x".repeat(300 * 1024);
    for (body, problem) in [
        (json!({}), (400, "bad-request")),
        (json!({"main": {"name": "a b"}}), (400, "bad-request")),
        (json!({"main": {"name": "index"}, "state": "\u{0}"}), (400, "bad-request")),
        (json!({"main": {"name": "index"}, "state": large}), (413, "too-large")),
    ] {
        assert_eq!(service.post(path, body).await.problem(), (problem.0, problem.1.to_owned()));
    }
    let refused = service.post("/objects/a%20b/events", change(&json!(1))).await;
    assert_eq!(refused.problem(), (400, "bad-request".into()));
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let path = format!("/canvases/{}{path}", CanvasId::DEFAULT);
    let refused = service.ask(&reader, Method::POST, &path, change(&json!(1))).await;
    assert_eq!(refused.problem(), (403, "forbidden".into()));
    assert_eq!(service.stop().await.rows().await, 0);
}

/// A transaction holds the object: the error tells the caller to try again.
#[tokio::test]
async fn a_locked_object_answers_unavailable() {
    let service = Service::start().await;
    service.post("/objects/work:1/events", change(&json!(1))).await.json();
    let mut holder = PgConnection::connect(service.stage.database.url()).await.unwrap();
    sqlx::raw_sql("begin; select from wakeq.objects for update").execute(&mut holder).await.unwrap();
    let change = change(&json!(2));
    for (path, body) in
        [("/objects/work:1/events", change), ("/events", json!({"name": "index", "object": "work:1"}))]
    {
        let busy = service.post(path, body).await;
        busy.says((503, "unavailable"), "others are emitting on this object");
        assert_eq!(busy.headers["retry-after"], "1");
    }
    holder.close().await.unwrap();
    assert_eq!(service.stop().await.rows().await, 3);
}

/// A cancelled event is missing from its object's chain, on its own canvas; and only the number of
/// an event is accepted.
#[tokio::test]
async fn gaps_in_a_chain_are_listed() {
    let service = Service::start().await;
    let elsewhere = wakeq::Event::new("index", &1).unwrap().canvas(OTHER).on("work:1").unwrap();
    service.stage.queue.emit(elsewhere).await.unwrap();
    let changed = service.post("/objects/work:1/events", change(&json!(1))).await.json();
    let (middle, last) = (&changed["events"][1], &changed["events"][2]);
    let cancel = format!("/events/{}/cancel", middle["id"].as_str().unwrap());
    assert_eq!(service.post(&cancel, Value::Null).await.status, StatusCode::OK);
    let missing = service.get("/objects/work:1/tombstones").await.json();
    assert_eq!(missing["items"].as_array().unwrap().len(), 1, "{missing}");
    let (item, link) = (&missing["items"][0], &middle["link"]);
    assert_eq!(
        (&item["id"], &item["prev"], &item["cause"]),
        (&link["id"], &link["prev"], &json!("cancelled"))
    );
    let after = format!("/objects/work:1/tombstones?after={}", last["link"]["id"]);
    assert_eq!(service.get(&after).await.json()["items"], json!([]));
    let key = service.key("bob", OTHER, &[Scope::Read]).await;
    let path = format!("/canvases/{OTHER}/objects/work:1/tombstones");
    assert_eq!(service.ask(&key, Method::GET, &path, Value::Null).await.json()["items"], json!([]));
    for nonsense in ["-1", "x"] {
        let refused = service.get(&format!("/objects/work:1/tombstones?after={nonsense}")).await;
        assert_eq!(refused.problem(), (400, "bad-request".into()));
    }
    service.stop().await;
}
