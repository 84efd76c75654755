//! Queues that services pull over HTTP: canvases take turns, and a lease is a claim that only its
//! token can end.

mod checkpoints;
mod crowd;
mod ends;
mod leases;
mod listed;
mod registration;
mod turns;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Duration;
use uuid::Uuid;
use wakeq::queues::{FacetSettings, LeasedCopy, NewQueue, PullPolicy};
use wakeq::{AdminError, CanvasId, Event};
use wakeq_service::access::Scope;
use wakeq_service::server::HttpConfig;

use crate::support::service::{Answer, NONE, Service};
use crate::support::{Stage, canvas};

const QUEUE: &str = "emails";
fn email(of: CanvasId, value: u64) -> Event {
    Event::new("opened", &value).unwrap().module("email_event").unwrap().canvas(of).only_to_queues()
}

/// What fails can be leased again at once.
fn pulled() -> NewQueue {
    NewQueue {
        patterns: vec![":email_event:".parse().unwrap()],
        pull: Some(PullPolicy { delay: Duration::ZERO, ..PullPolicy::default() }),
        ..NewQueue::default()
    }
}

/// A service with a pulled queue, and a key for every canvas.
struct Puller {
    service: Service,
    key: String,
}

/// A leased copy.
#[derive(Clone, Debug)]
struct PulledCopy {
    id: String,
    lease: String,
    canvas: u128,
    value: u64,
    attempt: u64,
    json: Value,
}

impl Puller {
    async fn start() -> Self {
        Self::of(pulled()).await
    }

    async fn of(queue: NewQueue) -> Self {
        // One key leases megabytes of all canvases, faster than the default rate allows; `shares`
        // tests the rates.
        let config =
            HttpConfig { canvas_byte_rate: u32::MAX, stranger_rate: 10_000, ..HttpConfig::default() };
        let service = Service::with(config).await;
        let key = service.wide_key("puller", &[Scope::Operate, Scope::Read, Scope::Values]).await;
        let puller = Self { service, key };
        puller.register(QUEUE, &queue).await;
        puller
    }

    async fn register(&self, name: &str, queue: &NewQueue) {
        let actor = wakeq::Actor::user("tests");
        self.stage().admin.put_queue(&name.parse().unwrap(), queue, &actor).await.unwrap();
    }

    fn stage(&self) -> &Stage {
        &self.service.stage
    }

    async fn emit(&self, of: u128, values: impl IntoIterator<Item = u64>) {
        let events = values.into_iter().map(|value| email(canvas(of), value)).collect();
        self.stage().queue.emit_all(events).await.unwrap();
    }

    /// A lease request past the service that finds nothing, to compare with: what ends before it
    /// did not wait for its time to end.
    fn waits_for_all_of_its_time(&self, queue: &str) -> JoinHandle<Result<Vec<LeasedCopy>, AdminError>> {
        let (admin, queue) = (self.stage().admin.clone(), queue.parse().unwrap());
        let wait = Duration::from_secs(20);
        tokio::spawn(async move { admin.lease_copies(&queue, 1, wait, wait).await })
    }

    /// One copy on each of two canvases, with the canvas's number as its value.
    async fn emit_two(&self) {
        self.emit(1, [1]).await;
        self.emit(2, [2]).await;
    }

    async fn lets(&self, of: u128, settings: FacetSettings) {
        let (queue, actor) = (QUEUE.parse().unwrap(), wakeq::Actor::user("tests"));
        self.stage().admin.set_facet(&queue, canvas(of), settings, &actor).await.unwrap();
    }

    async fn ask(&self, path: &str, body: Value) -> Answer {
        self.service.ask(&self.key, Method::POST, &format!("/admin/queues/{QUEUE}/copies/{path}"), body).await
    }

    async fn lease(&self, body: Value) -> Vec<PulledCopy> {
        let answer = self.ask("lease", body).await.json();
        answer["copies"].as_array().unwrap().iter().map(PulledCopy::of).collect()
    }

    /// Leases copies; returns the canvas and the value of each.
    async fn takes(&self, max: u32) -> Vec<(u128, u64)> {
        self.lease(json!({"max": max})).await.iter().map(|copy| (copy.canvas, copy.value)).collect()
    }

    async fn one(&self) -> PulledCopy {
        let mut copies = self.lease(json!({})).await;
        assert_eq!(copies.len(), 1, "{copies:?}");
        copies.remove(0)
    }

    async fn on(&self, copy: &PulledCopy, verb: &str, mut body: Value) -> Answer {
        body["lease"] = json!(copy.lease);
        self.ask(&format!("{}/{verb}", copy.id), body).await
    }

    async fn complete(&self, copy: &PulledCopy) {
        let answer = self.on(copy, "complete", json!({})).await;
        assert_eq!(answer.status.as_u16(), 204, "{}", answer.text);
    }

    async fn fails(&self, copy: &PulledCopy, retry_s: f64) -> Value {
        self.on(copy, "release", json!({"error": "no route", "retry_s": retry_s})).await.json()
    }

    /// Makes the leases of these copies expire, by moving them into the past.
    async fn run_out(&self, copies: &[PulledCopy]) {
        let ids: Vec<Uuid> = copies.iter().map(|copy| copy.id.parse().unwrap()).collect();
        let past = "update wakeq.events_v2 set locked_at = now() - interval '2 h' where id = any ($1)";
        sqlx::query(past).bind(&ids).execute(&self.stage().pool).await.unwrap();
    }

    async fn dead(&self, of: u128) -> Vec<(String, String)> {
        let dead = "select cause, coalesce(last_error, '') from wakeq.dead_events where canvas_id = $1";
        sqlx::query_as(dead).bind(canvas(of).0).fetch_all(&self.stage().pool).await.unwrap()
    }

    async fn stop(self) -> Stage {
        self.service.stop().await
    }
}

impl PulledCopy {
    fn of(json: &Value) -> Self {
        let text = |field: &str| json[field].as_str().unwrap().to_owned();
        Self {
            id: text("id"),
            lease: text("lease"),
            canvas: text("canvas").parse::<Uuid>().unwrap().as_u128(),
            value: json["value"].as_u64().unwrap_or_default(),
            attempt: json["attempt"].as_u64().unwrap(),
            json: json.clone(),
        }
    }
}
