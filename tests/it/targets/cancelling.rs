//! Cancelling an event while a target has it, over HTTP.

use std::net::Ipv4Addr;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use wakeq::machine::Outcome;
use wakeq::{CanvasId, EventId, Handlers, WorkerConfig};
use wakeq_service::access::Scope;

use super::scene::{put, service};
use crate::support::receiver::{Receiver, calling};
use crate::support::service::Service;
use crate::support::{OTHER, RunningWorker, TIMEOUT};

const FOREVER: Duration = Duration::from_secs(3600);

fn worker(service: &Service, cancel_grace: Duration) -> RunningWorker {
    let config = WorkerConfig { cancel_grace, ..WorkerConfig::default() };
    calling(&service.stage.store, &service.stage, Handlers::new(), config)
}

fn cancel_running(id: EventId) -> String {
    format!("/events/{id}/cancel?running=true")
}

/// A target that answers nothing, with the connection on which a request has come.
async fn silent() -> (String, TcpListener) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    (format!("http://{}/events", listener.local_addr().unwrap()), listener)
}

/// Reads until the other side closes the connection; returns the bytes.
async fn read_to_end(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let reading = async {
        // A reset closes it as well.
        while stream.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {}
    };
    tokio::time::timeout(TIMEOUT, reading).await.expect("the connection stays open");
    bytes
}

/// The answer says what happens next; the request is closed when the grace is over, and the event
/// is gone.
#[tokio::test]
async fn the_request_of_a_cancelled_event_is_closed() {
    let service = service().await;
    let (url, listener) = silent().await;
    put(&service, &url, json!({})).await;
    let mut running = worker(&service, Duration::from_millis(50));
    let id = service.stage.emit("greet").await;
    let (stream, _) = listener.accept().await.unwrap();
    let answer = service.post(&cancel_running(id), Value::Null).await;
    assert_eq!(answer.status.as_u16(), 202);
    let answer = answer.json();
    assert_eq!(answer["id"], json!(id));
    assert!(answer["next"].as_str().unwrap().contains("told to stop"), "{answer}");
    assert!(read_to_end(stream).await.starts_with(b"POST /events"));
    let report = running.until(id, Outcome::Deleted).await;
    assert!(report.trail.contains(&Outcome::Cancelled), "{report:?}");
    assert_eq!(service.stage.rows().await, 0);
    assert_eq!(service.get("/dead-events").await.json()["items"], json!([]));
    let lines = service.admin(Method::GET, "/audit", Value::Null).await.json();
    let of = |line: &Value| (line["action"] == "cancel-running").then(|| line["event_id"].clone());
    let lines: Vec<_> = lines["items"].as_array().unwrap().iter().filter_map(of).collect();
    assert_eq!(lines, [json!(id)]);
    running.stop().await;
    service.stop().await;
}

/// A target that answers within the grace completes the event; meanwhile its description says who
/// has cancelled it.
#[tokio::test]
async fn a_target_may_complete_within_the_grace() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    put(&service, &receiver.url, json!({})).await;
    let mut running = worker(&service, FOREVER);
    let id = service.stage.emit("greet").await;
    let arrived = receiver.next().await;
    let plain = service.post(&format!("/events/{id}/cancel"), Value::Null).await;
    assert_eq!((plain.status.as_u16(), plain.problem().1), (409, "not-waiting".to_owned()));
    assert_eq!(service.post(&cancel_running(id), Value::Null).await.status.as_u16(), 202);
    let shown = service.get(&format!("/events/{id}")).await.json();
    assert_eq!(
        (&shown["state"], &shown["cancelled_by"]),
        (&json!("running"), &json!("key:tests")),
        "{shown}"
    );
    arrived.answer("204 No Content", &[]);
    let report = running.until(id, Outcome::Deleted).await;
    assert!(report.trail.contains(&Outcome::ExecutesToCompletion), "{report:?}");
    running.stop().await;
    service.stop().await;
}

/// Another tenant's key finds no such event, and a waiting one is deleted at once.
#[tokio::test]
async fn a_running_event_of_another_tenant_is_not_found() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    put(&service, &receiver.url, json!({})).await;
    let mut running = worker(&service, FOREVER);
    let id = service.stage.emit("greet").await;
    let arrived = receiver.next().await;
    let stranger = service.key("stranger", OTHER, &[Scope::Operate, Scope::Read]).await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let path = format!("/canvases/{canvas}{}", cancel_running(id));
        assert_eq!(service.ask(&stranger, Method::POST, &path, Value::Null).await.status.as_u16(), 404);
    }
    let shown = service.get(&format!("/events/{id}")).await.json();
    assert_eq!(shown.get("cancelled_by"), None, "{shown}");
    let wrong = service.post(&format!("/events/{id}/cancel?running=maybe"), Value::Null).await;
    assert_eq!(wrong.status.as_u16(), 400);
    arrived.answer("204 No Content", &[]);
    running.until(id, Outcome::Deleted).await;
    let waits = service.stage.emit("nobody").await;
    let answer = service.post(&cancel_running(waits), Value::Null).await;
    assert_eq!((answer.status.as_u16(), answer.json()), (200, json!({"id": waits})));
    running.stop().await;
    service.stop().await;
}
