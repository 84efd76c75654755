//! Metrics and traces as they leave a process: scraped, sent to a collector, or not at all.

mod collector;
mod conventions;
mod groups;
mod limits;
mod scraped;
mod traces;

use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::notify::NoNotifier;
use wakeq::{CanvasId, Timing};
use wakeq_service::access::{Access, AccessConfig, Reach, Scope};
use wakeq_testbed::TestDatabase;

use crate::processes::work::Process;
use crate::support::receiver::Receiver;
use crate::support::service::make_key;
use crate::support::{Stage, TIMEOUT, connect, quick};

/// `wakeq all` on Postgres alone, and one target for its events.
struct ObservedDeployment {
    stage: Stage,
    process: Process,
    receiver: Receiver,
    client: Client,
}

struct Client {
    http: reqwest::Client,
    key: String,
    /// The API's own address.
    origin: String,
}

impl ObservedDeployment {
    /// With these variables, and the target `greet`.
    async fn start(more: &[(&str, &str)], policy: Value) -> Self {
        let stage = Stage::with(Arc::new(NoNotifier), quick()).await;
        let receiver = Receiver::start().await;
        let mut variables = vec![
            ("WAKEQ_NOTIFIER", "local"),
            ("PORT", "0"),
            ("WAKEQ_DELIVER_TO", "*=127.0.0.1:1-65535"),
            ("WAKEQ_DELIVER_HTTP", "1"),
            ("NO_PROXY", "*"),
        ];
        variables.extend(more);
        let mut process = Process::stock("all", stage.database.url(), None, &variables);
        let client = Client::of(&mut process, &stage.database, quick()).await;
        let target = json!({"url": receiver.url, "policy": policy});
        client.ask(Method::PUT, "/handlers/WORKER/greet", None, target).await;
        Self { stage, process, receiver, client }
    }
}

impl Client {
    async fn of(process: &mut Process, database: &TestDatabase, timing: Timing) -> Self {
        let port = process.says("serving the API").await.trim().rsplit(':').next().unwrap().to_owned();
        let access = Access::new(connect(database.url(), timing).await, AccessConfig::default()).unwrap();
        let key = make_key(&access, "tests", Reach::Canvas(CanvasId::DEFAULT), &Scope::ALL).await;
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().unwrap();
        Self { http, key, origin: format!("http://127.0.0.1:{port}") }
    }

    async fn ask(&self, method: Method, path: &str, traceparent: Option<&str>, body: Value) -> Value {
        let url = format!("{}/v1/canvases/{}{path}", self.origin, CanvasId::DEFAULT);
        let mut request = self.http.request(method, url).bearer_auth(&self.key).json(&body);
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
        answer.json().await.unwrap()
    }

    /// Emits for a handler; returns the event's id.
    async fn emit(&self, name: &str, traceparent: Option<&str>) -> String {
        let answer = self.ask(Method::POST, "/events", traceparent, json!({"name": name, "value": 1})).await;
        answer["id"].as_str().unwrap().to_owned()
    }
}
