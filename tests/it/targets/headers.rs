//! Headers of their own on targets: sent with each event, kept and replaced as a whole, and never
//! shown again but by their names.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::machine::Outcome;
use wakeq::targets::{NewTarget, TargetHeaders};
use wakeq::{Actor, CanvasId, Event, EventId, Handlers};
use wakeq_service::access::Scope;

use super::scene::{GREET, put, service, worker};
use crate::support::RunningWorker;
use crate::support::receiver::{PendingRequest, Receiver, address, target};
use crate::support::service::Service;

const THEIRS: CanvasId = CanvasId(Uuid::from_u128(7));

/// Emits an event for `greet` on a canvas, and answers its delivery; returns the request's headers.
async fn delivered(
    service: &Service,
    running: &mut RunningWorker,
    receiver: &mut Receiver,
    canvas: CanvasId,
) -> BTreeMap<String, String> {
    let event = Event::new("greet", "Ada").unwrap().canvas(canvas);
    let id = service.stage.queue.emit(event).await.unwrap().id;
    let arrived = receiver.next().await;
    assert_eq!(arrived.header("webhook-id"), id.to_string());
    finished(running, id, arrived).await
}

async fn finished(
    running: &mut RunningWorker,
    id: EventId,
    arrived: PendingRequest,
) -> BTreeMap<String, String> {
    let headers = arrived.headers.clone();
    arrived.answer("200 OK", &[]);
    running.until(id, Outcome::Deleted).await;
    headers
}

/// The names of the headers in an answer of the API.
fn names(target: &Value) -> Vec<&str> {
    target["header_names"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_target_sends_its_headers_until_they_are_replaced() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    let mut running = worker(&service.stage, Handlers::new());
    let given = json!({"headers": {"X-Api-Key": "k3y-one", "Authorization": "Basic YTpi"}});
    let made = put(&service, &receiver.url, given).await;
    assert_eq!(names(&made["target"]), ["authorization", "x-api-key"]);
    let headers = delivered(&service, &mut running, &mut receiver, CanvasId::DEFAULT).await;
    assert_eq!((&*headers["x-api-key"], &*headers["authorization"]), ("k3y-one", "Basic YTpi"));
    assert_eq!(headers["content-type"], "application/json", "beside ours");

    let kept = put(&service, &receiver.url, json!({"policy": {"retries": 5}, "rotate_secret": true})).await;
    assert_eq!(names(&kept["target"]), ["authorization", "x-api-key"]);
    let headers = delivered(&service, &mut running, &mut receiver, CanvasId::DEFAULT).await;
    assert_eq!(headers["x-api-key"], "k3y-one");

    let replaced = put(&service, &receiver.url, json!({"headers": {"x-other": "k3y-two"}})).await;
    assert_eq!(names(&replaced["target"]), ["x-other"]);
    let headers = delivered(&service, &mut running, &mut receiver, CanvasId::DEFAULT).await;
    assert_eq!((headers.get("x-api-key"), &*headers["x-other"]), (None, "k3y-two"));

    let mut shown = service.admin(Method::GET, "/audit?limit=100", Value::Null).await.text;
    for path in [GREET, &format!("{GREET}/_"), "/handlers", "/targets"] {
        let answer = service.get(path).await.text;
        assert!(answer.contains("x-other"), "{path}: {answer}");
        shown.push_str(&answer);
    }
    let removed = put(&service, &receiver.url, json!({"headers": {}})).await;
    assert_eq!(removed["target"].get("header_names"), None);
    let headers = delivered(&service, &mut running, &mut receiver, CanvasId::DEFAULT).await;
    assert_eq!(headers.get("x-other"), None);
    shown.push_str(&service.admin(Method::GET, "/audit?limit=100", Value::Null).await.text);
    assert!(!shown.contains("k3y-") && !shown.contains("YTpi"), "{shown}");
    for words in ["with the headers authorization, x-api-key", "without headers of its own"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let stored = "select count(*) from wakeq.http_targets where header_names <> '{}' or headers is not null";
    assert_eq!(service.stage.count(stored).await, 0);
    running.stop().await;
    service.stop().await;
}

/// Another canvas has headers of its own for the same handler, or none.
#[tokio::test]
async fn headers_are_of_one_canvas() {
    let service = service().await;
    let (mut ours, mut theirs) = (Receiver::start().await, Receiver::start().await);
    let mut running = worker(&service.stage, Handlers::new());
    let key = service.key("theirs", THEIRS, &Scope::ALL).await;
    let path = format!("/canvases/{THEIRS}{GREET}");
    service.ask(&key, Method::PUT, &path, json!({"url": theirs.url})).await.json();
    put(&service, &ours.url, json!({"headers": {"x-api-key": "k3y-of-ours"}})).await;
    let headers = delivered(&service, &mut running, &mut theirs, THEIRS).await;
    assert_eq!(headers.get("x-api-key"), None);
    let given = json!({"url": theirs.url, "headers": {"x-api-key": "k3y-of-theirs"}});
    let put = service.ask(&key, Method::PUT, &path, given).await;
    assert!(!put.text.contains("k3y-"), "{}", put.text);
    for (receiver, canvas, expected) in
        [(&mut ours, CanvasId::DEFAULT, "k3y-of-ours"), (&mut theirs, THEIRS, "k3y-of-theirs")]
    {
        let headers = delivered(&service, &mut running, receiver, canvas).await;
        assert_eq!(headers["x-api-key"], expected);
    }
    running.stop().await;
    service.stop().await;
}

#[tokio::test]
async fn the_target_of_a_queue_has_headers_too() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    let mut running = worker(&service.stage, Handlers::new());
    let root = service.wide_key("root", &Scope::ALL).await;
    let queue = |target: Value| json!({"patterns": [":report$"], "target": target});
    let ask =
        async |target| service.ask(&root, Method::PUT, "/admin/queues/reports", queue(target)).await.json();
    let url = &receiver.url.clone();
    ask(json!({"url": url, "headers": {"x-api-key": "k3y-one"}})).await;
    let again = ask(json!({"url": url})).await;
    assert_eq!((&again["changed"], names(&again["queue"]["target"])), (&json!(false), vec!["x-api-key"]));
    let replaced = ask(json!({"url": url, "headers": {"x-api-key": "k3y-two"}})).await;
    assert_eq!(replaced["changed"], json!(true), "whether it is the same one is not looked at");
    let event = Event::new("report", &1).unwrap().only_to_queues();
    assert_eq!(service.stage.queue.emit(event).await.unwrap().copies, 1);
    let arrived = receiver.next().await;
    assert_eq!((arrived.header("ce-queue"), arrived.header("x-api-key")), ("reports", "k3y-two"));
    let id = arrived.header("webhook-id").parse().unwrap();
    finished(&mut running, EventId(id), arrived).await;
    running.stop().await;
    service.stop().await;
}

/// A caller who may not see headers does not read them at a host of its own.
#[tokio::test]
async fn headers_are_sent_only_where_they_were_given_for() {
    let service = service().await;
    let (mut receiver, mut other) = (Receiver::start().await, Receiver::start().await);
    let mut running = worker(&service.stage, Handlers::new());
    let root = service.wide_key("root", &Scope::ALL).await;
    let (given, words) = (json!({"x-api-key": "k3y"}), "sends them to no other scheme, host or port");
    put(&service, &receiver.url, json!({"headers": given})).await;
    let queue = async |target: Value| {
        let body = json!({"patterns": [":report$"], "target": target});
        service.ask(&root, Method::PUT, "/admin/queues/reports", body).await
    };
    queue(json!({"url": receiver.url, "headers": given})).await.json();
    service.put(GREET, json!({"url": other.url})).await.says((400, "bad-request"), words);
    queue(json!({"url": other.url})).await.says((400, "bad-request"), words);
    let kept = service.ask(&root, Method::GET, "/admin/queues/reports", Value::Null).await.json();
    assert_eq!(kept["target"]["url"], receiver.url.as_str());

    put(&service, &receiver.url.replace("/events", "/elsewhere"), json!({})).await;
    let headers = delivered(&service, &mut running, &mut receiver, CanvasId::DEFAULT).await;
    assert_eq!(headers["x-api-key"], "k3y");
    assert!(other.is_quiet());
    put(&service, &other.url, json!({"headers": {}})).await;
    let headers = delivered(&service, &mut running, &mut other, CanvasId::DEFAULT).await;
    assert_eq!(headers.get("x-api-key"), None);
    queue(json!({"url": other.url, "headers": {"x-other": "k3y"}})).await.json();
    running.stop().await;
    service.stop().await;
}

#[tokio::test]
async fn headers_that_are_not_the_targets_are_refused_with_advice() {
    let service = service().await;
    let url = "http://127.0.0.1:8080/";
    let many: serde_json::Map<_, _> = (0..21).map(|number| (format!("x-{number}"), json!("k3y"))).collect();
    for (headers, words) in [
        (json!({"Host": "k3y"}), "the header host can't be set"),
        (json!({"Content-Length": "1"}), "the header content-length can't be set"),
        (json!({"webhook-signature": "k3y"}), "the header webhook-signature can't be set"),
        (json!({"Wakeq-Attempt": "1"}), "the header wakeq-attempt can't be set"),
        (json!({"Metadata-Flavor": "Google"}), "metadata services"),
        (json!({"x y": "k3y"}), "a header's name has 1 to 128"),
        (json!({"x-a": "k3y\r\nhost: b"}), "the value of the header x-a must have"),
        (json!({"x-a": ""}), "the value of the header x-a must have"),
        (json!({"x-a": "k".repeat(4097)}), "1 to 4096 visible ASCII characters"),
        (json!({"x-a": "k".repeat(4096), "x-b": "k".repeat(4096)}), "at most 8192 bytes together"),
        (Value::Object(many), "at most 20 headers"),
        (json!({"x-a": "k3y", "X-A": "k3y"}), "the header x-a is given twice"),
        (json!(["x-a: k3y"]), "a field is of the wrong type"),
        (json!({"x-a": 1}), "a field is of the wrong type"),
    ] {
        let refused = service.put(GREET, json!({"url": url, "headers": headers})).await;
        refused.says((400, "bad-request"), words);
        assert!(!refused.text.contains("k3y"), "{}", refused.text);
    }
    // Whether a deployment allows an audience is asked after its own rules.
    let both = NewTarget {
        audience: Some("https://a.example".to_owned()),
        headers: Some(TargetHeaders::new([("authorization", "k3y")]).unwrap()),
        ..target("https://a.example/")
    };
    let address = address(CanvasId::DEFAULT, "greet");
    let refused = service.stage.admin.put_target(&address, &both, &Actor::user("ada")).await.unwrap_err();
    assert!(refused.to_string().contains("sends a token in the header authorization"), "{refused}");
    assert_eq!(service.stage.count("select count(*) from wakeq.http_targets").await, 0);
    service.stop().await;
}
