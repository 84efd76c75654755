//! The API as its callers see it: a server on a port of its own, keys, and a client.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wakeq::testing::MemoryNotifier;
use wakeq::{Actor, CanvasId, Store, StoreConfig, Timing};
use wakeq_service::access::{Access, AccessConfig, NewKey, Reach, Scope};
use wakeq_service::server::{HttpConfig, HttpServer};

use super::{Stage, TIMEOUT, fit};

/// No body.
pub(crate) const NONE: Value = Value::Null;

/// A served API over a queue of its own. [`Service::stop`] shuts it down cleanly; dropping it
/// aborts it.
pub(crate) struct Service {
    pub(crate) stage: Stage,
    pub(crate) notifier: Arc<MemoryNotifier>,
    pub(crate) access: Access,
    pub(crate) address: SocketAddr,
    /// A key with every scope on [`CanvasId::DEFAULT`].
    pub(crate) key: String,
    client: reqwest::Client,
    /// The server's.
    store: Store,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

/// An answer, fully read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    /// The request, for the message of a failed assertion.
    asked: String,
}

impl Service {
    /// With the defaults, except the rate for strangers, which tests imitate as fast as they can.
    pub(crate) async fn start() -> Self {
        Self::with(HttpConfig { stranger_rate: 10_000, ..HttpConfig::default() }).await
    }

    pub(crate) async fn with(config: HttpConfig) -> Self {
        Self::over(StoreConfig::default(), config).await
    }

    /// With a store of its own, as another process would have.
    pub(crate) async fn over(store: StoreConfig, config: HttpConfig) -> Self {
        Self::with_notifier(MemoryNotifier::new(), store, config).await
    }

    /// One that broadcasts what is emitted.
    pub(crate) async fn broadcasting(config: HttpConfig) -> Self {
        Self::with_notifier(MemoryNotifier::new().broadcasting(), StoreConfig::default(), config).await
    }

    async fn with_notifier(notifier: MemoryNotifier, store: StoreConfig, config: HttpConfig) -> Self {
        let notifier = Arc::new(notifier);
        let stage = Stage::with(notifier.clone(), Timing::default()).await;
        let url = stage.database.url().to_owned();
        Self::through(stage, &url, notifier, store, config).await
    }

    /// Over a queue whose database the server reaches at this address.
    pub(crate) async fn through(
        stage: Stage,
        url: &str,
        notifier: Arc<MemoryNotifier>,
        store: StoreConfig,
        config: HttpConfig,
    ) -> Self {
        let store = Store::connect(url, fit(store)).await.unwrap();
        let config = HttpConfig { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..config };
        let access = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
        let key = make_key(&access, "tests", Reach::Canvas(CanvasId::DEFAULT), &Scope::ALL).await;
        let server = HttpServer::bind(store.clone(), notifier.clone(), config).await.unwrap();
        let (address, stop) = (server.local_address(), server.stop_token());
        let running = tokio::spawn(server.run());
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().unwrap();
        Self { stage, notifier, access, address, key, client, store, stop, running }
    }

    /// A key for some scopes on a canvas.
    pub(crate) async fn key(&self, holder: &str, canvas: CanvasId, scopes: &[Scope]) -> String {
        make_key(&self.access, holder, Reach::Canvas(canvas), scopes).await
    }

    /// A key for some scopes on every canvas.
    pub(crate) async fn wide_key(&self, holder: &str, scopes: &[Scope]) -> String {
        make_key(&self.access, holder, Reach::EveryCanvas, scopes).await
    }

    /// All items of a list, page by page: of a path below the default canvas with a query.
    pub(crate) async fn items(&self, path: &str) -> Vec<Value> {
        self.items_by(async |cursor: &str| self.get(&format!("{path}{cursor}")).await.json()).await
    }

    /// The same, with `page` asking for what comes after a `&cursor=…`.
    pub(crate) async fn items_by(&self, page: impl AsyncFn(&str) -> Value) -> Vec<Value> {
        let (mut items, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = page(&cursor).await;
            items.extend(page["items"].as_array().unwrap().iter().cloned());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return items,
            }
        }
    }

    /// A request to a path, without a credential.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    /// A request to a path below the default canvas, with the key for everything.
    pub(crate) fn on_canvas(&self, method: Method, path: &str) -> RequestBuilder {
        let path = format!("/v1/canvases/{}{path}", CanvasId::DEFAULT);
        self.request(method, &path).bearer_auth(&self.key)
    }

    /// The answer to a request with a key, for a path below `/v1`; without a body if it is null.
    pub(crate) async fn ask(&self, key: &str, method: Method, path: &str, body: Value) -> Answer {
        let request = self.request(method, &format!("/v1{path}")).bearer_auth(key);
        Answer::of(if body.is_null() { request } else { request.json(&body) }).await
    }

    /// The same with the key for everything, for a path below the default canvas's admin routes.
    pub(crate) async fn admin(&self, method: Method, path: &str, body: Value) -> Answer {
        self.ask(&self.key, method, &format!("/admin/canvases/{}{path}", CanvasId::DEFAULT), body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.on_canvas(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.on_canvas(Method::POST, path).json(&body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.on_canvas(Method::PUT, path).json(&body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.on_canvas(Method::DELETE, path)).await
    }

    /// Takes the database away from the server.
    pub(crate) async fn lose_database(&self) {
        self.store.close().await;
    }

    /// Shuts the server down, as SIGTERM does, and closes its connections: what it has counted
    /// would keep them for up to a minute.
    pub(crate) async fn stop(mut self) -> Stage {
        self.stop.cancel();
        tokio::time::timeout(TIMEOUT, &mut self.running).await.expect("no end in time").unwrap();
        self.store.close().await;
        self.stage
    }
}

pub(crate) async fn make_key(access: &Access, holder: &str, reach: Reach, scopes: &[Scope]) -> String {
    let scopes = scopes.iter().copied().collect();
    let new = NewKey { holder: holder.into(), reach, scopes, lifetime: None };
    access.create_key(&new, &Actor::admin("tests")).await.unwrap().key.reveal()
}

/// Asserts that an object has these fields; `null` stands for a missing one, too.
#[track_caller]
pub(crate) fn has(object: &Value, fields: Value) {
    for (name, value) in fields.as_object().unwrap() {
        assert_eq!(object[name], *value, "{name} of {object}");
    }
}

impl Answer {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let (client, request) = request.build_split();
        let request = request.unwrap();
        let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
        let body = String::from_utf8_lossy(&body[..body.len().min(600)]);
        let asked = format!("{} {} {body}", request.method(), request.url());
        let response = client.execute(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        Self { status, headers, text: response.text().await.unwrap(), asked }
    }

    /// The body of a success.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, self.text);
        serde_json::from_str(&self.text).unwrap()
    }

    /// Asserts that it is this failure, and has these words.
    #[track_caller]
    pub(crate) fn says(&self, (status, slug): (u16, &str), words: &str) {
        assert_eq!(self.problem(), (status, slug.to_owned()), "{}: {}", self.asked, self.text);
        assert!(self.text.contains(words), "{}: {words:?} is not in {}", self.asked, self.text);
    }

    /// A failure: its status, and the last part of its type. Every problem must have the same form.
    #[track_caller]
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json", "{} {}", self.status, self.text);
        let body: Value = serde_json::from_str(&self.text).unwrap();
        assert_eq!(body["status"], self.status.as_u16());
        assert_eq!(body["request_id"], self.headers["x-request-id"].to_str().unwrap());
        assert!(body["title"].is_string() && body["detail"].is_string(), "{body}");
        let slug = body["type"].as_str().unwrap().strip_prefix("urn:wakeq:problem:").unwrap();
        (self.status.as_u16(), slug.to_owned())
    }
}
