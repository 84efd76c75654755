//! Push mode: requests run what Pub/Sub pushes, and a push does nothing that it may not do.

mod callers;
mod endings;
mod life;
mod processes;
mod waking;
mod whole;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wakeq::database::Retention;
use wakeq::notify::Notification;
use wakeq::testing::MemoryNotifier;
use wakeq::workers::{Counters, PushRunner};
use wakeq::{CanvasId, EventId, Execution, Handlers, QueueWorker, Timing, WorkerConfig};
use wakeq_service::access::{Access, AccessConfig, PushCallers, Reach, Scope};
use wakeq_service::delivery::{Deliverer, Targets};
use wakeq_service::server::{HttpConfig, HttpServer};

use crate::support::google_keys::{AUDIENCE, KeyServer, Signer, claims};
use crate::support::handlers::{Door, Recording, recording};
use crate::support::receiver::to_loopback;
use crate::support::service::{Answer, make_key};
use crate::support::{Stage, TIMEOUT, wait_while};

pub(super) const PUSH_AUDIENCE: &str = "project/wakeq/push";
pub(super) const PUSHER: &str = "pusher@project.iam.gserviceaccount.com";

/// A push deployment of one process.
pub(super) struct PushDeployment {
    pub(super) stage: Stage,
    pub(super) notifier: Arc<MemoryNotifier>,
    pub(super) signer: Signer,
    pub(super) key: String,
    pub(super) runner: PushRunner,
    pub(super) counters: Arc<Counters>,
    address: SocketAddr,
    client: reqwest::Client,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    _keys: KeyServer,
}

/// The timing of a push deployment.
pub(super) fn timing() -> Timing {
    Timing { horizon: Duration::ZERO, ..Timing::default() }
}

pub(super) fn callers() -> PushCallers {
    PushCallers { audiences: vec![PUSH_AUDIENCE.into()], accounts: vec![PUSHER.into()] }
}

/// The claims of Google's token for the pushing account.
pub(super) fn push_claims() -> Value {
    let mut claims = claims();
    (claims["aud"], claims["email"]) = (PUSH_AUDIENCE.into(), PUSHER.into());
    claims
}

pub(super) async fn runner(stage: &Stage, handlers: Handlers, config: WorkerConfig) -> PushRunner {
    let worker = QueueWorker::new(stage.store.clone(), stage.notifier.clone(), handlers, config).unwrap();
    let worker = worker.remote_handlers(Targets::new(&stage.store, Deliverer::new(to_loopback()).unwrap()));
    worker.into_push_runner().await.unwrap()
}

/// A server that runs what is pushed.
pub(super) async fn bind(stage: &Stage, config: HttpConfig, runner: &PushRunner) -> HttpServer {
    let server = HttpServer::bind(stage.store.clone(), stage.notifier.clone(), config).await.unwrap();
    let runner = runner.clone();
    let pushed = move |message: Vec<u8>| {
        let runner = runner.clone();
        async move { runner.run(&message).await }
    };
    server.on_push(pushed).unwrap()
}

impl PushDeployment {
    pub(super) async fn start(handlers: Handlers) -> Self {
        Self::with(handlers, WorkerConfig::default()).await
    }

    /// With a handler `greet` that completes, and what that runs.
    pub(super) async fn recorded() -> (Self, Recording<Execution>) {
        let (handler, seen) = recording();
        (Self::start(Handlers::new().on("greet", handler)).await, seen)
    }

    /// With a handler `greet` behind a door.
    pub(super) async fn behind_a_door(worker: WorkerConfig) -> (Self, Door) {
        let (handler, door) = Door::new();
        (Self::with(Handlers::new().on("greet", handler), worker).await, door)
    }

    pub(super) async fn with(handlers: Handlers, worker: WorkerConfig) -> Self {
        // Many tests send what is refused.
        let http = HttpConfig { stranger_rate: 10_000, ..HttpConfig::default() };
        Self::within(http, handlers, worker).await
    }

    /// With this configuration of the server.
    pub(super) async fn within(http: HttpConfig, handlers: Handlers, worker: WorkerConfig) -> Self {
        let (stage, notifier) = Stage::memory_with(timing()).await;
        let signer = Signer::new("one");
        let keys = KeyServer::start(&[&signer]).await;
        let access = AccessConfig {
            audiences: vec![AUDIENCE.into()],
            push: callers(),
            jwks_url: keys.url.clone(),
            ..AccessConfig::default()
        };
        let http = HttpConfig {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            shutdown_grace: worker.shutdown_grace + Duration::from_secs(2),
            retention: Some(Retention::default()),
            delivery: to_loopback(),
            access,
            ..http
        };
        let runner = self::runner(&stage, handlers, worker).await;
        let counters = runner.counters();
        let server = bind(&stage, http, &runner).await;
        let (address, stop) = (server.local_address(), server.stop_token());
        let access = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
        let key = make_key(&access, "tests", Reach::Canvas(CanvasId::DEFAULT), &Scope::ALL).await;
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().unwrap();
        let serving = tokio::spawn(server.run());
        Self { stage, notifier, signer, key, runner, counters, address, client, stop, serving, _keys: keys }
    }

    /// A request without a credential.
    pub(super) fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.client.request(Method::POST, format!("http://{}{path}", self.address)).json(body)
    }

    pub(super) fn token(&self) -> String {
        self.signer.token(&push_claims())
    }

    /// A push of this data, as Pub/Sub sends it.
    pub(super) fn push_of(&self, data: &[u8]) -> RequestBuilder {
        self.post("/v1/push", &envelope(data)).bearer_auth(self.token())
    }

    pub(super) fn push(&self, id: EventId) -> RequestBuilder {
        self.push_of(&notification(id).body())
    }

    /// Emits an event and pushes it until it is in its handler.
    pub(super) async fn running(&self, door: &mut Door) -> (EventId, JoinHandle<reqwest::Result<Response>>) {
        let id = self.stage.emit("greet").await;
        let push = tokio::spawn(self.push(id).send());
        door.arrived.next().await;
        (id, push)
    }

    /// Pushes; returns the status.
    pub(super) async fn pushed(&self, id: EventId) -> u16 {
        Answer::of(self.push(id)).await.status.as_u16()
    }

    /// Calls `/v1/wake` as Cloud Scheduler does.
    pub(super) async fn wake(&self) -> Value {
        Answer::of(self.post("/v1/wake", &json!({})).bearer_auth(self.token())).await.json()
    }

    /// Shuts down as SIGTERM does: announces it, then waits.
    pub(super) async fn stop(self) -> Stage {
        self.begin_to_stop();
        self.runner.shut_down().await;
        tokio::time::timeout(TIMEOUT, self.serving).await.expect("no end in time").unwrap();
        self.stage
    }

    pub(super) fn begin_to_stop(&self) {
        self.stop.cancel();
    }
}

pub(super) fn notification(id: EventId) -> Notification {
    Notification::new(id, CanvasId::DEFAULT)
}

/// The envelope as Pub/Sub sends it.
pub(super) fn envelope(data: &[u8]) -> Value {
    json!({
        "message": {
            "data": STANDARD.encode(data), "messageId": "7", "message_id": "7",
            "publishTime": "2030-01-31T08:00:00.000Z", "publish_time": "2030-01-31T08:00:00.000Z",
        },
        "subscription": "projects/tests/subscriptions/wakeq",
    })
}

/// The promise on an event's row, in seconds from now; `None` while the event is parked.
pub(super) async fn promise(stage: &Stage, id: EventId) -> Option<f64> {
    let query =
        "select extract(epoch from notify_at - clock_timestamp())::float8 from wakeq.events_v2 where id = $1";
    sqlx::query_scalar(query).bind(id.0).fetch_one(&stage.pool).await.unwrap()
}

/// Changes an event's row directly.
pub(super) async fn set(stage: &Stage, id: EventId, change: &str) {
    let statement = format!("update wakeq.events_v2 set {change} where id = $1");
    let done = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(id.0).execute(&stage.pool).await.unwrap();
    assert_eq!(done.rows_affected(), 1);
}

/// Waits until the queue is empty.
pub(super) async fn empty(stage: &Stage) {
    wait_while!(stage.rows().await > 0, "events are left");
}
