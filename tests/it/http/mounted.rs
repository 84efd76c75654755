//! The API below a path of another axum server: whatever it answers leads back to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use futures_util::future::join_all;
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wakeq::database::Retention;
use wakeq::testing::MemoryNotifier;
use wakeq::workers::PushRunner;
use wakeq::{CanvasId, EventId, Execution, Handlers, WorkerConfig};
use wakeq_service::access::{Access, AccessConfig, Reach, Scope};
use wakeq_service::server::{HttpApi, HttpConfig, MountedApi};

use crate::push::{callers, envelope, notification, push_claims, runner, timing};
use crate::support::google_keys::{AUDIENCE, KeyServer, Signer};
use crate::support::handlers::{Recording, recording};
use crate::support::service::{Answer, make_key};
use crate::support::{OTHER, Stage, TIMEOUT};

/// Puts the API into a server that has a page of its own.
type Mount = fn(Router, &str, &MountedApi) -> Router;

const WAYS: [Mount; 2] = [
    |server, prefix, api| server.nest(prefix, api.router()),
    |server, prefix, api| server.nest_service(prefix, api.router::<()>()),
];

/// A server with the API at a path, in push mode.
struct Mounted {
    stage: Stage,
    prefix: &'static str,
    key: String,
    signer: Signer,
    runner: PushRunner,
    seen: Recording<Execution>,
    address: SocketAddr,
    client: reqwest::Client,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    _keys: KeyServer,
}

impl Mounted {
    async fn start(prefix: &'static str, mount: Mount, config: HttpConfig) -> Self {
        let stage = Stage::with(Arc::new(MemoryNotifier::new().broadcasting()), timing()).await;
        let signer = Signer::new("one");
        let keys = KeyServer::start(&[&signer]).await;
        let access = AccessConfig {
            audiences: vec![AUDIENCE.into()],
            push: callers(),
            jwks_url: keys.url.clone(),
            ..AccessConfig::default()
        };
        let (handler, seen) = recording();
        let handlers = Handlers::new().on("greet", handler);
        let runner = runner(&stage, handlers, WorkerConfig::default()).await;
        let pushes = runner.clone();
        let config = HttpConfig { access, retention: Some(Retention::default()), ..config };
        let api = HttpApi::new(stage.store.clone(), stage.notifier.clone(), config).await.unwrap();
        let api = api.on_push(move |message: Vec<u8>| {
            let pushes = pushes.clone();
            async move { pushes.run(&message).await }
        });
        let api = api.unwrap().mount();
        let server = mount(Router::new().route("/", get(async || "a shop")), prefix, &api);
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), api.stop_token());
        let stopped = stop.clone().cancelled_owned();
        let serving = tokio::spawn(async move {
            let server = server.into_make_service_with_connect_info::<SocketAddr>();
            axum::serve(listener, server).with_graceful_shutdown(stopped).await.unwrap();
            api.finish().await;
        });
        let access = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
        let key = make_key(&access, "tests", Reach::Canvas(CanvasId::DEFAULT), &Scope::ALL).await;
        let client = reqwest::Client::builder().no_proxy().redirect(Policy::none()).timeout(TIMEOUT);
        let client = client.build().unwrap();
        Self { stage, prefix, key, signer, runner, seen, address, client, stop, serving, _keys: keys }
    }

    /// A request to a path of the server.
    fn at(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    /// A request to a path of the API, without a credential.
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.at(method, &format!("{}{path}", self.prefix))
    }

    async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path).bearer_auth(&self.key)).await
    }

    async fn emit(&self) -> Answer {
        let request = self.request(Method::POST, &events_of(CanvasId::DEFAULT)).bearer_auth(&self.key);
        Answer::of(request.json(&json!({ "name": "greet", "value": "Ada" }))).await
    }

    async fn stop(self) -> Stage {
        self.stop.cancel();
        self.runner.shut_down().await;
        tokio::time::timeout(TIMEOUT, self.serving).await.expect("no end in time").unwrap();
        self.stage
    }
}

fn events_of(canvas: CanvasId) -> String {
    format!("/v1/canvases/{canvas}/events")
}

/// An id in an answer.
fn id(answer: &Value) -> EventId {
    answer["id"].as_str().unwrap().parse().unwrap()
}

async fn check(prefix: &'static str, mount: Mount) {
    let mut mounted = Mounted::start(prefix, mount, HttpConfig::default()).await;
    emits_and_lists(&mounted).await;
    runs_what_is_pushed(&mut mounted).await;
    describes_itself(&mounted).await;
    let shop = Answer::of(mounted.at(Method::GET, "/")).await;
    assert_eq!((shop.status, shop.text.as_str()), (StatusCode::OK, "a shop"));
    let outside = Answer::of(mounted.at(Method::GET, "/livez")).await;
    assert_eq!((outside.status, outside.text.as_str()), (StatusCode::NOT_FOUND, ""));
    let stage = mounted.stop().await;
    assert_eq!(stage.rows().await, 3);
}

async fn emits_and_lists(mounted: &Mounted) {
    let emitted = mounted.emit().await;
    assert_eq!(emitted.status, StatusCode::ACCEPTED, "{}", emitted.text);
    let location = emitted.headers["location"].to_str().unwrap();
    let expected = format!("{}{}/{}", mounted.prefix, events_of(CanvasId::DEFAULT), id(&emitted.json()));
    assert_eq!(location, expected);
    let found = Answer::of(mounted.at(Method::GET, location).bearer_auth(&mounted.key)).await.json();
    assert_eq!(id(&found), id(&emitted.json()));

    for _ in 0..2 {
        mounted.emit().await.json();
    }
    let first = mounted.get(&format!("{}?limit=2", events_of(CanvasId::DEFAULT))).await.json();
    let cursor = first["next_cursor"].as_str().unwrap();
    let path = format!("{}?limit=2&cursor={cursor}", events_of(CanvasId::DEFAULT));
    let second = mounted.get(&path).await.json();
    let count = |page: &Value| page["items"].as_array().unwrap().len();
    assert_eq!((count(&first), count(&second)), (2, 1));
    assert!(second["next_cursor"].is_null());

    // Nothing of another tenant, nor of none.
    mounted.get(&events_of(OTHER)).await.says((404, "not-found"), "no such resource on this canvas");
    mounted.get("/v1/canvases/default/events").await.says((404, "not-found"), "write all of its 36");
}

async fn runs_what_is_pushed(mounted: &mut Mounted) {
    let id = id(&mounted.emit().await.json());
    let token = mounted.signer.token(&push_claims());
    let push = mounted.request(Method::POST, "/v1/push").json(&envelope(&notification(id).body()));
    let refused = Answer::of(push.try_clone().unwrap().bearer_auth(&mounted.key)).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    let pushed = Answer::of(push.bearer_auth(&token)).await;
    assert_eq!(pushed.status, StatusCode::NO_CONTENT, "{}", pushed.text);
    assert_eq!(mounted.seen.next().await.id, id);
    let wake = mounted.request(Method::POST, "/v1/wake").json(&json!({})).bearer_auth(&token);
    assert!(Answer::of(wake).await.json()["woken"].is_number());
}

async fn describes_itself(mounted: &Mounted) {
    let prefix = mounted.prefix;
    let document = Answer::of(mounted.request(Method::GET, "/openapi.json")).await.json();
    assert_eq!(document["servers"], json!([{ "url": prefix }]));
    assert!(document["paths"]["/v1/canvases/{canvas}/events"].is_object());
    for (path, to) in [("", "/sign-in"), ("/docs", "/docs/")] {
        let redirect = Answer::of(mounted.request(Method::GET, path)).await;
        assert!(redirect.status.is_redirection(), "{prefix}{path}: {}", redirect.status);
        assert_eq!(redirect.headers["location"], format!("{prefix}{to}"), "{path}");
    }
    let page = Answer::of(mounted.request(Method::GET, "/docs/")).await;
    assert!(page.status.is_success() && page.text.contains("swagger-ui"), "{}", page.text);
    let script = Answer::of(mounted.request(Method::GET, "/docs/swagger-initializer.js")).await;
    assert!(script.status.is_success() && script.text.contains("\"../openapi.json\""), "{}", script.text);
    for path in ["/livez", "/readyz"] {
        let answer = Answer::of(mounted.request(Method::GET, path)).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.status);
    }
    let nowhere = Answer::of(mounted.request(Method::GET, "/nowhere")).await;
    nowhere.says((404, "not-found"), &format!("{prefix}/docs/ shows"));
    let pause = format!("/v1/canvases/{}/handlers/WORKER/greet/pause", CanvasId::DEFAULT);
    let pause = mounted.request(Method::PUT, &pause).bearer_auth(&mounted.key).json(&json!([1]));
    Answer::of(pause).await.says((400, "bad-request"), &format!("see {prefix}/docs for the schema"));
}

#[tokio::test]
async fn the_api_answers_below_a_path() {
    for mount in WAYS {
        check("/x", mount).await;
    }
}

#[tokio::test]
async fn the_api_answers_below_a_path_of_two_parts() {
    check("/shop/queue", WAYS[0]).await;
}

/// The limits of unknown callers are each client's, if the server says who that is.
#[tokio::test]
async fn clients_are_known_by_their_connections() {
    let config = HttpConfig {
        stranger_rate: 1,
        trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()],
        ..HttpConfig::default()
    };
    let mounted = Mounted::start("/x", WAYS[0], config).await;
    let ask = async |client: &str| {
        let request = mounted.request(Method::GET, &events_of(CanvasId::DEFAULT));
        Answer::of(request.header("x-forwarded-for", client)).await.status.as_u16()
    };
    let refusals = join_all((0..10).map(|_| ask("198.51.100.1"))).await;
    assert!(refusals.contains(&429), "{refusals:?}");
    assert_eq!(ask("198.51.100.2").await, 401, "another client");
    mounted.stop().await;
}

/// A listener's request never ends by itself.
#[tokio::test]
async fn a_shutdown_ends_what_waits() {
    let mounted = Mounted::start("/x", WAYS[0], HttpConfig::default()).await;
    let listening = mounted.request(Method::GET, "/v1/listen?pattern=*").bearer_auth(&mounted.key);
    let mut listening = listening.timeout(Duration::from_secs(600)).send().await.unwrap();
    assert_eq!(listening.status(), StatusCode::OK);
    assert!(listening.chunk().await.unwrap().is_some(), "its beginning");
    mounted.stop().await;
    while let Ok(Some(_)) = listening.chunk().await {}
}
