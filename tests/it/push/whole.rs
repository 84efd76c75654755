//! End to end: emitted over HTTP, pushed by the emulator with a token that it signed, delivered to
//! a target.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use wakeq::notify::{
    Notifier, PubSub, PubSubConfig, PushSettings, TopicState, create_topics, describe_topics,
};
use wakeq::workers::PushRunner;
use wakeq::{CanvasId, Handlers, WorkerConfig};
use wakeq_emulator::proto::pubsub::push_config::{AuthenticationMethod, OidcToken};
use wakeq_emulator::proto::pubsub::{PushConfig, Subscription, Topic};
use wakeq_emulator::{Emulator, Options, Provision};
use wakeq_service::access::{Access, AccessConfig, Reach, Scope};
use wakeq_service::server::HttpConfig;

use super::{PUSH_AUDIENCE, PUSHER, bind, callers, empty, runner, timing};
use crate::support::receiver::{Receiver, to_loopback};
use crate::support::service::{Answer, make_key};
use crate::support::{Stage, TIMEOUT, until, wait_while};

const TOPIC: &str = "projects/tests/topics/wakeq";
const SUBSCRIPTION: &str = "projects/tests/subscriptions/wakeq";

/// An emulator with a topic.
pub(super) async fn emulator() -> Emulator {
    let provision = Provision::default().topic(Topic { name: TOPIC.into(), ..Topic::default() });
    let options = Options { provision, ..Options::default() };
    Emulator::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options).await.unwrap()
}

/// The URL of the emulator's public keys.
pub(super) fn keys_url(emulator: &Emulator) -> String {
    format!("http://{}/oauth2/v3/certs", emulator.address())
}

pub(super) fn pubsub(emulator: &Emulator) -> PubSubConfig {
    PubSubConfig { emulator_host: Some(emulator.host()), ..PubSubConfig::new("tests") }
}

/// Creates a push subscription to this endpoint.
pub(super) fn subscribe(emulator: &Emulator, endpoint: SocketAddr, audience: &str, account: &str) {
    let token = OidcToken { service_account_email: account.into(), audience: audience.into() };
    let push_config = PushConfig {
        push_endpoint: format!("http://{endpoint}/v1/push"),
        authentication_method: Some(AuthenticationMethod::OidcToken(token)),
        ..PushConfig::default()
    };
    let subscription = Subscription {
        name: SUBSCRIPTION.into(),
        topic: TOPIC.into(),
        ack_deadline_seconds: 600,
        push_config: Some(push_config),
        ..Subscription::default()
    };
    emulator.broker(|broker, now| broker.create_subscription(now, subscription)).unwrap();
}

struct EmulatedDeployment {
    stage: Stage,
    emulator: Emulator,
    receiver: Receiver,
    runner: PushRunner,
    address: SocketAddr,
    key: String,
    client: reqwest::Client,
    serving: tokio::task::JoinHandle<()>,
    stop: tokio_util::sync::CancellationToken,
}

impl EmulatedDeployment {
    /// Starts everything, with a target for `greet`.
    async fn start(audience: &str, account: &str) -> Self {
        let emulator = emulator().await;
        let notifier: Arc<dyn Notifier> = Arc::new(PubSub::connect(pubsub(&emulator)).await.unwrap());
        let stage = Stage::with(notifier, timing()).await;
        let access =
            AccessConfig { push: callers(), jwks_url: keys_url(&emulator), ..AccessConfig::default() };
        let (address, delivery) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), to_loopback());
        let config = HttpConfig { address, access, delivery, ..HttpConfig::default() };
        let grace = WorkerConfig { shutdown_grace: Duration::from_secs(5), ..WorkerConfig::default() };
        let runner = runner(&stage, Handlers::new(), grace).await;
        let server = bind(&stage, config, &runner).await;
        let (address, stop) = (server.local_address(), server.stop_token());
        let serving = tokio::spawn(server.run());
        let access = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
        let key = make_key(&access, "tests", Reach::Canvas(CanvasId::DEFAULT), &Scope::ALL).await;
        subscribe(&emulator, address, audience, account);
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().unwrap();
        let receiver = Receiver::start().await;
        let whole = Self { stage, emulator, receiver, runner, address, key, client, serving, stop };
        let put =
            whole.request(Method::PUT, "/handlers/WORKER/greet").json(&json!({"url": whole.receiver.url}));
        Answer::of(put).await.json();
        whole
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let url = format!("http://{}/v1/canvases/{}{path}", self.address, CanvasId::DEFAULT);
        self.client.request(method, url).bearer_auth(&self.key)
    }

    async fn emit(&self) -> String {
        let emitted =
            Answer::of(self.request(Method::POST, "/events").json(&json!({"name": "greet", "value": "Ada"})));
        emitted.await.json()["id"].as_str().unwrap().to_owned()
    }

    fn backlog(&self) -> usize {
        self.emulator.broker(|broker, now| broker.overview(now)).subscriptions[0].messages.backlog
    }

    async fn until(&self, done: impl Fn(&Self) -> bool) {
        wait_while!(!done(self), "it did not happen in time");
    }

    async fn stop(self) {
        self.stop.cancel();
        self.runner.shut_down().await;
        self.emulator.stop().await;
        tokio::time::timeout(TIMEOUT, self.serving).await.expect("no end in time").unwrap();
    }
}

// Shows: PUSH-01
#[tokio::test]
async fn an_event_is_pushed_delivered_and_gone() {
    let mut whole = EmulatedDeployment::start(PUSH_AUDIENCE, PUSHER).await;
    let id = whole.emit().await;
    let arrived = whole.receiver.next().await;
    assert_eq!((arrived.header("webhook-id"), arrived.body.as_str()), (id.as_str(), "\"Ada\""));
    arrived.answer("204 No Content", &[]);
    empty(&whole.stage).await;
    whole.until(|whole| whole.backlog() == 0).await;
    assert!(whole.receiver.is_quiet(), "once");
    whole.stop().await;
}

/// A token signed by the right key, but for another audience or account: nothing runs, and the
/// message stays.
// Shows: PUSH-02
#[tokio::test]
async fn a_subscription_with_another_token_is_refused() {
    let other = "other@p.iam.gserviceaccount.com";
    for (audience, account, answer) in
        [("https://elsewhere.example", PUSHER, "401"), (PUSH_AUDIENCE, other, "403")]
    {
        let mut whole = EmulatedDeployment::start(audience, account).await;
        whole.emit().await;
        let is_refused = |whole: &EmulatedDeployment| {
            let overview = whole.emulator.broker(|broker, now| broker.overview(now));
            let push = overview.subscriptions[0].push.as_ref();
            push.and_then(|push| push.last_failure.clone()).is_some_and(|words| words.contains(answer))
        };
        whole.until(is_refused).await;
        assert!(whole.receiver.is_quiet());
        assert_eq!((whole.stage.rows().await, whole.backlog()), (1, 1));
        whole.stop().await;
    }
}

/// A push subscription made by `topics create` matches its configuration, and tells workers that
/// pull why they receive nothing.
// Shows: PUSH-16
#[tokio::test]
async fn a_push_subscription_is_created_and_known() {
    let emulator = emulator().await;
    let push = PushSettings {
        endpoint: "http://127.0.0.1:1/v1/push".into(),
        audience: PUSH_AUDIENCE.into(),
        account: PUSHER.into(),
    };
    let config = PubSubConfig { push: Some(push.clone()), ..pubsub(&emulator) };
    let made = create_topics(&config).await.unwrap();
    assert_eq!(made.subscription_state, TopicState::Created);
    assert_eq!(made.push_endpoint, Some(push.endpoint.clone()));
    for config in [config, pubsub(&emulator)] {
        let found = describe_topics(&config).await.unwrap();
        assert_eq!((found.push_endpoint, found.differences), (Some(push.endpoint.clone()), vec![]));
    }
    let elsewhere = PushSettings { audience: "another".into(), ..push };
    let found = describe_topics(&PubSubConfig { push: Some(elsewhere), ..pubsub(&emulator) }).await.unwrap();
    let different: Vec<_> = found.differences.iter().map(|difference| difference.setting).collect();
    assert_eq!(different, ["push audience"]);

    let pulling = PubSub::connect(pubsub(&emulator)).await.unwrap();
    let subscription = pulling.subscribe(1).await.unwrap();
    let trouble = || subscription.trouble().filter(|words| words.contains("can't be pulled from"));
    let words = until("it says nothing", async || trouble()).await;
    assert!(words.contains("127.0.0.1:1/v1/push") && words.contains("wakeq serve"), "{words}");
    subscription.close(Duration::ZERO).await;
    emulator.stop().await;
}
