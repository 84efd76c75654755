//! What the tests of targets share: a service and a worker that may call loopback, and questions.

use serde_json::{Value, json};
use wakeq::{EventId, Handlers, WorkerConfig};
use wakeq_service::server::HttpConfig;
use wiremock::{MockServer, Request};

use crate::support::receiver::{calling, to_loopback};
use crate::support::service::Service;
use crate::support::{RunningWorker, Stage};

pub(super) const GREET: &str = "/handlers/WORKER/greet";

/// A service that allows targets on loopback.
pub(super) async fn service() -> Service {
    Service::with(HttpConfig { delivery: to_loopback(), ..HttpConfig::default() }).await
}

/// A worker with these functions that calls targets, too.
pub(super) fn worker(stage: &Stage, handlers: Handlers) -> RunningWorker {
    calling(&stage.store, stage, handlers, WorkerConfig::default())
}

/// Registers a URL for `greet`; returns the answer.
pub(super) async fn put(service: &Service, url: &str, more: Value) -> Value {
    let mut body = json!({"url": url});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = service.put(GREET, body).await;
    let put = answer.json();
    assert_eq!(answer.status.as_u16(), if put["new"] == true { 201 } else { 200 }, "{put}");
    put
}

/// The row after a failed attempt: retries, losses, seconds until it is due.
pub(super) async fn row(stage: &Stage, id: EventId) -> (i32, i32, f64) {
    let query = "select retries, losses, extract(epoch from delay_until - now())::float8 from wakeq.events_v2 where id = $1";
    sqlx::query_as(query).bind(id.0).fetch_one(&stage.pool).await.unwrap()
}

/// The requests that a target received: the event's id and the attempt of each.
pub(super) async fn requests(target: &MockServer) -> Vec<(String, String)> {
    let header = |request: &Request, name| request.headers[name].to_str().unwrap().to_owned();
    let requests = target.received_requests().await.unwrap().into_iter();
    requests.map(|request| (header(&request, "webhook-id"), header(&request, "wakeq-attempt"))).collect()
}
