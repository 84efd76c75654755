//! Emitting over HTTP, seen from outside: rows, notifications and answers; repeats; refusals.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Row};
use wakeq::{CanvasId, EventId, StoreConfig};
use wakeq_service::access::Scope;
use wakeq_service::server::HttpConfig;

use crate::support::service::{Answer, Service};
use crate::support::{OTHER, Statements, TIMEOUT};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A server that waits for locks as long as a test holds them, with two statements at a time.
async fn patient() -> Service {
    let (lock_timeout, statement_timeout) = (TIMEOUT, TIMEOUT);
    let store = StoreConfig { lock_timeout, statement_timeout, max_connections: 2, ..StoreConfig::default() };
    Service::over(store, HttpConfig::default()).await
}

fn post(service: &Service, path: &str, body: &Value) -> RequestBuilder {
    service.on_canvas(Method::POST, path).json(body)
}

/// A CloudEvent in JSON format as a request.
fn structured(service: &Service, query: &str, event: &Value) -> RequestBuilder {
    let request = service.on_canvas(Method::POST, &format!("/events{query}"));
    request.header("content-type", "application/cloudevents+json").body(event.to_string())
}

fn cloud_event(id: &str) -> Value {
    json!({"specversion": "1.0", "id": id, "source": "/shop", "type": "MAIL/greet", "data": {"a": 1}})
}

/// Address, value, trace and canvas in the row of the event with this id.
async fn row(service: &Service, id: &str) -> (String, String, String, String) {
    let sql =
        "select module || '/' || name || '/' || modifier, value::text, traceparent::text, canvas_id::text
                 from wakeq.events_v2 where id = $1";
    let id: uuid::Uuid = id.parse().unwrap();
    let row = sqlx::query(sql).bind(id).fetch_one(&service.stage.pool).await.unwrap();
    (row.get(0), row.get(1), row.get(2), row.get(3))
}

fn id_of(answer: &Answer) -> String {
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// A connection that blocks inserts of events until it is dropped.
async fn barrier(service: &Service) -> PgConnection {
    let mut connection = PgConnection::connect(service.stage.database.url()).await.unwrap();
    let lock = "begin; lock table wakeq.events_v2 in share row exclusive mode";
    sqlx::raw_sql(lock).execute(&mut connection).await.unwrap();
    connection
}

/// EV2-32 over HTTP: the row has what the request says, and its notification is published once.
// Shows: EV2-04, CARD-09
#[tokio::test]
async fn a_request_is_a_row_and_a_notification() {
    let service = Service::start().await;
    let body = r#"{"module":"MAIL","name":"greet","modifier":"eu","value": {"b":[1.0, 1e3],"a":"é\u00e9"} }"#;
    let request = service.on_canvas(Method::POST, "/events").header("content-type", "application/json");
    let answer = Answer::of(request.header("traceparent", TRACE).body(body)).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    let id = id_of(&answer);
    assert_eq!(answer.text, format!(r#"{{"id":"{id}","duplicate":false}}"#));
    assert_eq!(answer.headers["location"], format!("/v1/canvases/{}/events/{id}", CanvasId::DEFAULT));
    let (address, value, trace, canvas) = row(&service, &id).await;
    assert_eq!((address.as_str(), trace.as_str()), ("MAIL/greet/eu", TRACE));
    assert_eq!(value, r#"{"b":[1.0, 1e3],"a":"é\u00e9"}"#);
    assert_eq!(canvas, CanvasId::DEFAULT.to_string());

    let later = service.post("/events", json!({"name": "greet", "delay_s": 86_400})).await;
    assert_eq!(later.status, StatusCode::ACCEPTED);
    let published: Vec<_> = service.notifier.published().iter().map(|sent| sent.id.to_string()).collect();
    assert_eq!(published, [id], "one for the first; the second's turn comes tomorrow");
    assert_eq!(service.stop().await.rows().await, 2);
}

#[tokio::test]
async fn the_answer_comes_after_the_commit() {
    let service = patient().await;
    let barrier = barrier(&service).await;
    let request = post(&service, "/events", &json!({"name": "greet"}));
    let answer = tokio::spawn(Answer::of(request));
    service.stage.until_waiting(1).await;
    assert!(!answer.is_finished() && service.notifier.published().is_empty());
    barrier.close().await.unwrap();
    let answer = answer.await.unwrap();
    row(&service, &id_of(&answer)).await;
    service.stop().await;
}

/// Requests that wait while the statements before are in flight share the next one.
#[tokio::test]
async fn requests_that_arrive_together_share_an_insert() {
    const REQUESTS: usize = 100;
    let service = patient().await;
    let barrier = barrier(&service).await;
    let emit = |number| {
        tokio::spawn(Answer::of(post(&service, "/events", &json!({"name": "greet", "value": number}))))
    };
    // The first one has a statement to itself, so that there is a second for the others.
    let mut requests = vec![emit(0)];
    service.stage.until_waiting(1).await;
    requests.extend((1..REQUESTS).map(emit));
    service.stage.until_waiting(2).await;
    barrier.close().await.unwrap();
    let mut ids = std::collections::BTreeSet::new();
    for request in requests {
        ids.insert(id_of(&request.await.unwrap()));
    }
    assert_eq!(ids.len(), REQUESTS, "each has an event of its own");
    let sql = "select count(distinct xmin::text) from wakeq.events_v2";
    let statements: i64 = service.stage.pool.value(sql).await;
    println!("{REQUESTS} requests in {statements} statements");
    assert!(statements <= REQUESTS as i64 / 2, "{statements} statements for {REQUESTS} requests");
    assert_eq!(service.stop().await.rows().await, REQUESTS as i64);
}

#[tokio::test]
async fn a_chosen_id_is_emitted_once() {
    let service = Service::start().await;
    let id = EventId::new().to_string();
    let body = json!({"name": "greet", "id": id});
    let first = service.post("/events", body.clone()).await;
    let own = EventId::chosen(CanvasId::DEFAULT, id.parse().unwrap());
    assert_eq!(first.json(), json!({"id": own, "duplicate": false}));
    let second = service.post("/events", body.clone()).await;
    assert_eq!((second.status, second.json()), (StatusCode::ACCEPTED, json!({"id": own, "duplicate": true})));
    assert_eq!(second.headers["location"], first.headers["location"]);

    let key = service.key("other", OTHER, &[Scope::Emit]).await;
    let foreign = |path: &str, body: &Value| {
        service.request(Method::POST, &format!("/v1/canvases/{OTHER}{path}")).bearer_auth(&key).json(body)
    };
    let theirs = EventId::chosen(OTHER, id.parse().unwrap());
    let all = Answer::of(foreign("/events:batch", &json!({"events": [{"name": "a"}, body]}))).await.json();
    assert_eq!((&all["events"][1]["id"], &all["events"][1]["duplicate"]), (&json!(theirs), &json!(false)));
    let taken = Answer::of(foreign("/events", &body)).await;
    assert_eq!(taken.json(), json!({"id": theirs, "duplicate": true}), "their own, and nobody else's");
    let shown = service.get(&format!("/events/{id}")).await;
    assert_eq!(
        (&shown.json()["id"], shown.status),
        (&json!(own), StatusCode::OK),
        "by the id that was chosen"
    );
    assert_eq!(service.get(&format!("/events/{theirs}")).await.problem().0, 404);
    assert_eq!(service.notifier.published().len(), 3);
    assert_eq!(service.stop().await.rows().await, 3);
}

/// The problem names the handler, and nothing of a batch is emitted. Another tenant's choice is its
/// own.
#[tokio::test]
async fn a_chosen_id_of_another_handler_is_refused() {
    let service = Service::start().await;
    let id = EventId::new();
    service.post("/events", json!({"name": "greet", "id": id.0})).await.json();
    let other = json!({"name": "other", "id": id.0});
    for (path, body) in
        [("/events", other.clone()), ("/events:batch", json!({"events": [{"name": "a"}, other.clone()]}))]
    {
        service.post(path, body).await.says((409, "id-taken"), "for the handler WORKER/greet");
    }
    let key = service.key("other", OTHER, &[Scope::Emit]).await;
    let theirs = service.ask(&key, Method::POST, &format!("/canvases/{OTHER}/events"), other).await.json();
    assert_eq!(theirs, json!({"id": EventId::chosen(OTHER, id), "duplicate": false}));
    assert_eq!(service.stop().await.rows().await, 2);
}

#[tokio::test]
async fn a_batch_is_emitted_whole_or_not_at_all() {
    let service = Service::start().await;
    let id = EventId::new().to_string();
    let events =
        json!([{"name": "a"}, {"name": "b", "id": id}, {"name": "b", "id": id}, {"name": "c", "value": [1]}]);
    let answer = service.post("/events:batch", json!({"events": events})).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    assert!(!answer.headers.contains_key("location"));
    let emitted = answer.json()["events"].clone();
    let duplicates = emitted.as_array().unwrap().iter().map(|event| event["duplicate"].clone());
    assert_eq!(duplicates.collect::<Vec<_>>(), [false, false, true, false]);
    let own = EventId::chosen(CanvasId::DEFAULT, id.parse().unwrap());
    assert_eq!((&emitted[1]["id"], &emitted[2]["id"]), (&json!(own), &json!(own)));
    assert_eq!(row(&service, emitted[3]["id"].as_str().unwrap()).await.1, "[1]");
    assert_eq!(service.notifier.published().len(), 3);

    for events in
        [json!([{"name": "a"}, {"name": "b c"}]), json!([]), json!(vec![json!({"name": "a"}); 1001])]
    {
        let answer = service.post("/events:batch", json!({"events": events})).await;
        assert_eq!(answer.problem(), (400, "bad-request".into()));
    }
    let full = service.post("/events:batch", json!({"events": vec![json!({"name": "a"}); 1000]})).await;
    assert_eq!(full.json()["events"].as_array().unwrap().len(), 1000);
    assert_eq!(service.stop().await.rows().await, 1003);
}

/// Only the path determines the canvas, and a key of another canvas does not open it.
#[tokio::test]
async fn the_canvas_of_the_path_is_the_events() {
    let service = Service::start().await;
    let key = service.key("other", OTHER, &[Scope::Emit]).await;
    let to = |canvas: CanvasId| {
        service.request(Method::POST, &format!("/v1/canvases/{canvas}/events")).bearer_auth(&key)
    };
    let refused = Answer::of(to(CanvasId::DEFAULT).json(&json!({"name": "greet"}))).await;
    assert_eq!(refused.problem(), (404, "not-found".into()));
    for field in ["canvas", "canvas_id", "canvasID"] {
        let refused = Answer::of(to(OTHER).json(&json!({"name": "greet", field: CanvasId::DEFAULT}))).await;
        assert_eq!(refused.problem(), (400, "bad-request".into()));
    }
    let mut event = cloud_event("1");
    event["canvas"] = json!(CanvasId::DEFAULT);
    event["canvasid"] = json!(CanvasId::DEFAULT);
    let request = to(OTHER).header("content-type", "application/cloudevents+json").header("ce-canvas", "1");
    let id = id_of(&Answer::of(request.body(event.to_string())).await);
    assert_eq!(row(&service, &id).await.3, OTHER.to_string());
    let here = Answer::of(structured(&service, "", &cloud_event("1"))).await;
    assert_ne!(id_of(&here), id, "the same source and id on another canvas are another event");
    assert_eq!(service.stop().await.rows().await, 2);
}

#[tokio::test]
async fn cloud_events_are_emitted_in_their_three_modes() {
    let service = Service::start().await;
    let first = Answer::of(structured(&service, "", &cloud_event("1"))).await;
    assert_eq!(first.json()["duplicate"], false);
    let id = id_of(&first);
    let (address, value, ..) = row(&service, &id).await;
    assert_eq!((address.as_str(), value.as_str()), ("MAIL/greet/_", r#"{"a":1}"#));

    let binary = |id: &str, body: &str| {
        let request = service.on_canvas(Method::POST, "/events").header("content-type", "application/json");
        let request =
            request.header("ce-specversion", "1.0").header("ce-id", id).header("ce-source", "/shop");
        request.header("ce-type", "MAIL/greet").header("ce-traceparent", TRACE).body(body.to_owned())
    };
    let again = Answer::of(binary("1", r#"{"a":1}"#)).await;
    assert_eq!(again.json(), json!({"id": id, "duplicate": true}));
    let other = Answer::of(binary("2", "[2]")).await;
    let (_, value, trace, _) = row(&service, &id_of(&other)).await;
    assert_eq!((value.as_str(), trace.as_str()), ("[2]", TRACE));

    let batch = json!([cloud_event("2"), cloud_event("3")]).to_string();
    for path in ["/events", "/events:batch"] {
        let request = service.on_canvas(Method::POST, path).body(batch.clone());
        let answer = Answer::of(request.header("content-type", "application/cloudevents-batch+json")).await;
        assert_eq!(answer.json()["events"][0], json!({"id": id_of(&other), "duplicate": true}));
        assert_eq!(answer.json()["events"][1]["duplicate"], path == "/events:batch");
    }
    let whole = cloud_event("4");
    let envelope = Answer::of(structured(&service, "?value=envelope", &whole)).await;
    assert_eq!(row(&service, &id_of(&envelope)).await.1, whole.to_string());
    assert_eq!(service.stop().await.rows().await, 4);
}

#[tokio::test]
async fn each_refused_emit_has_its_problem_type() {
    let service = Service::start().await;
    let send = |query: &str, content_type: &str, body: &str| {
        let request = service.on_canvas(Method::POST, &format!("/events{query}"));
        request.header("content-type", content_type).body(body.to_owned())
    };
    let too_large = format!(r#"{{"name":"a","value":"{}"}}"#, "x".repeat(256 * 1024));
    for (query, content_type, body, expected) in [
        ("", "text/plain", "hello", (415, "unsupported-media-type")),
        ("", "application/json", "", (400, "bad-request")),
        ("", "application/json", r#"{"name":"a","value":1e999}"#, (400, "bad-request")),
        ("", "application/json", r#"{"name":"a","value":"\ud800"}"#, (400, "bad-request")),
        ("", "application/json", r#"{"name":"a","value":"\u0000"}"#, (400, "bad-request")),
        ("", "application/json", too_large.as_str(), (413, "too-large")),
        ("?value=nothing", "application/json", r#"{"name":"a"}"#, (400, "bad-request")),
        ("?values=data", "application/json", r#"{"name":"a"}"#, (400, "bad-request")),
    ] {
        let (status, slug) = Answer::of(send(query, content_type, body)).await.problem();
        assert_eq!((status, slug.as_str()), expected, "{query} {content_type}");
    }
    let mut image = cloud_event("1");
    image["datacontenttype"] = json!("image/png");
    let refused = Answer::of(structured(&service, "", &image)).await;
    refused.says((415, "unsupported-media-type"), "?value=envelope");
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let path = format!("/v1/canvases/{}/events", CanvasId::DEFAULT);
    let request = service.request(Method::POST, &path).bearer_auth(reader).json(&json!({"name": "a"}));
    assert_eq!(Answer::of(request).await.problem(), (403, "forbidden".into()));
    assert!(service.notifier.published().is_empty());
    assert_eq!(service.stop().await.rows().await, 0);
}
