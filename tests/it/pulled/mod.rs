//! Pulled handlers: programs in any language lease their events over HTTP, and a lease is a claim
//! that only its token can end.

mod apart;
mod crashes;
mod history;
mod leases;
mod options;
mod programs;
mod waiting;

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::{CanvasId, Event};
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{Answer, Service};

const SCOPES: [Scope; 4] = [Scope::Emit, Scope::Read, Scope::Values, Scope::Operate];

/// A service with a handler `mail` that is pulled on two canvases.
struct Puller {
    service: Service,
    /// On the other canvas.
    other_key: String,
}

impl Puller {
    async fn start() -> Self {
        let service = Service::start().await;
        let other_key = service.key("other", OTHER, &SCOPES).await;
        let puller = Self { service, other_key };
        for canvas in [CanvasId::DEFAULT, OTHER] {
            // What fails can be leased again at once.
            let put = puller.ask(canvas, Method::PUT, "/pull", json!({"retries": 1, "delay_s": 0})).await;
            assert_eq!(put.json()["new"], true);
        }
        puller
    }

    fn key(&self, canvas: CanvasId) -> &str {
        if canvas == OTHER { &self.other_key } else { &self.service.key }
    }

    /// A request about the handler, with a key of its canvas.
    async fn ask(&self, canvas: CanvasId, method: Method, path: &str, body: Value) -> Answer {
        let path = format!("/canvases/{canvas}/handlers/WORKER/mail{path}");
        self.service.ask(self.key(canvas), method, &path, body).await
    }

    async fn lease_on(&self, canvas: CanvasId, request: Value) -> Vec<Value> {
        let leased = self.ask(canvas, Method::POST, "/leases", request).await.json();
        leased["events"].as_array().unwrap().clone()
    }

    async fn lease(&self, request: Value) -> Vec<Value> {
        self.lease_on(CanvasId::DEFAULT, request).await
    }

    /// The only event that there is to lease.
    async fn one(&self) -> Value {
        let mut leased = self.lease(json!({"max": 10})).await;
        assert_eq!(leased.len(), 1, "{leased:?}");
        leased.remove(0)
    }

    /// What the values are of all that can be leased now.
    async fn takes(&self) -> Vec<u64> {
        let leased = self.lease(json!({"max": 100})).await;
        leased.iter().map(|event| event["value"].as_u64().unwrap()).collect()
    }

    /// A request about a leased event.
    async fn on(&self, event: &Value, verb: &str, more: Value) -> Answer {
        self.on_as((CanvasId::DEFAULT, &event["id"]), &event["lease"], verb, more).await
    }

    async fn on_as(
        &self,
        (canvas, id): (CanvasId, &Value),
        lease: &Value,
        verb: &str,
        more: Value,
    ) -> Answer {
        let mut body = json!({"lease": lease});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let path = format!("/leases/{}/{verb}", id.as_str().unwrap());
        self.ask(canvas, Method::POST, &path, body).await
    }

    async fn completes(&self, event: &Value) {
        let completed = self.on(event, "complete", json!({})).await;
        assert_eq!(completed.status, 204, "{}", completed.text);
    }

    async fn emit(&self, canvas: CanvasId, values: impl IntoIterator<Item = u64>) {
        let event = |value| Event::new("mail", &value).unwrap().canvas(canvas);
        let events = values.into_iter().map(event).collect();
        self.service.stage.queue.emit_all(events).await.unwrap();
    }

    /// One event on each canvas, with these values.
    async fn emit_two(&self) {
        self.emit(CanvasId::DEFAULT, [1]).await;
        self.emit(OTHER, [2]).await;
    }

    /// Lets all leases of the default canvas run out.
    async fn run_out(&self) {
        let shift = "update wakeq.events_v2 set locked_at = now() - interval '1 hour'
                      where locked_at is not null and canvas_id = '00000000-0000-0000-0000-000000000000'";
        self.service.stage.execute(shift).await;
    }

    /// The causes and errors of the dead events of a canvas.
    async fn dead(&self, canvas: CanvasId) -> Vec<(String, String)> {
        let path = format!("/canvases/{canvas}/dead-events?name=mail");
        let dead = self.service.ask(self.key(canvas), Method::GET, &path, Value::Null).await.json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let told = |event: &Value| (text(&event["cause"]), text(&event["last_error"]));
        dead["items"].as_array().unwrap().iter().map(told).collect()
    }

    async fn stop(self) {
        self.service.stop().await;
    }
}
