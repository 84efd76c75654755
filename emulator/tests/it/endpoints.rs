//! Pushes over HTTP: which answers acknowledge, what a request contains, and tokens that verify.

use std::time::Duration;

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use wakeq_emulator::broker::Time;
use wakeq_emulator::proto::pubsub::push_config::{AuthenticationMethod, OidcToken};
use wakeq_emulator::proto::pubsub::{PublishRequest, PubsubMessage, PushConfig, Subscription, Topic};
use wakeq_emulator::{Emulator, ManualClock, Options, Provision};

use crate::inbox::{HttpMessage, Inbox, ask};
use crate::limited::LimitedEmulator;

const TOPIC: &str = "projects/demo/topics/orders";

async fn pushing(push_config: PushConfig, options: Options) -> LimitedEmulator {
    let provision = Provision::default()
        .topic(Topic { name: TOPIC.into(), ..Topic::default() })
        .subscription(Subscription {
            name: "projects/demo/subscriptions/hook".into(),
            topic: TOPIC.into(),
            push_config: Some(push_config),
            enable_message_ordering: true,
            ..Subscription::default()
        });
    LimitedEmulator::start(Options { provision, ..options }).await
}

fn to(inbox: &Inbox) -> PushConfig {
    PushConfig { push_endpoint: format!("{}?key=1", inbox.url), ..PushConfig::default() }
}

fn publish(emulator: &Emulator, text: &str) {
    let data = text.to_owned().into();
    let message = PubsubMessage { data, ordering_key: "key".into(), ..PubsubMessage::default() };
    let request = PublishRequest { topic: TOPIC.into(), messages: vec![message] };
    emulator.broker(|broker, now| broker.publish(now, request)).unwrap();
}

fn id(received: &HttpMessage) -> String {
    received.json()["message"]["messageId"].as_str().unwrap().to_owned()
}

fn backlog(emulator: &Emulator) -> usize {
    emulator.broker(|broker, now| broker.overview(now)).subscriptions[0].messages.backlog
}

/// With an ordering key, the next push carries the next message if the first was acknowledged, else
/// the first again.
async fn check(statuses: &'static [u16], acknowledges: bool) {
    check_with(Inbox::open(statuses).await, &format!("{statuses:?}"), acknowledges).await;
}

async fn check_with(mut inbox: Inbox, answers: &str, acknowledges: bool) {
    let emulator = pushing(to(&inbox), Options::default()).await;
    publish(&emulator, "first");
    publish(&emulator, "second");
    let first = inbox.next().await;
    let next = inbox.next().await;
    assert_eq!(next.line, "POST /inbox?key=1", "no redirect is followed");
    assert_eq!(id(&next) != id(&first), acknowledges, "{answers}");
    emulator.stop().await;
}

// Shows: CARD-02
#[tokio::test]
async fn these_push_responses_acknowledge() {
    check(&[200], true).await;
    check(&[201, 200], true).await;
    check(&[202, 200], true).await;
    check(&[204, 200], true).await;
    check_with(Inbox::mute("HTTP/1.1 102 Processing\r\n\r\n").await, "102", true).await;
}

#[tokio::test]
async fn all_other_push_responses_cause_redelivery() {
    check(&[203, 200], false).await;
    check(&[206, 200], false).await;
    check(&[308, 200], false).await;
    check(&[400, 200], false).await;
    check(&[503, 200], false).await;
}

#[tokio::test]
async fn a_push_carries_what_the_service_s_carry() {
    let mut inbox = Inbox::open(&[200]).await;
    let emulator = pushing(to(&inbox), Options::default()).await;
    publish(&emulator, "hello");
    let received = inbox.next().await;
    assert_eq!(received.line, "POST /inbox?key=1");
    assert_eq!(received.headers["content-type"], "application/json");
    assert_eq!(received.headers["user-agent"], "CloudPubSub-Google");
    assert_eq!(received.headers.get("authorization"), None);
    let body = received.json();
    assert_eq!(body["message"]["data"], "aGVsbG8=");
    assert_eq!(body["message"]["messageId"], body["message"]["message_id"]);
    assert_eq!(body["subscription"], "projects/demo/subscriptions/hook");
    emulator.stop().await;
}

#[tokio::test]
async fn a_token_checks_with_the_keys_that_the_emulator_serves() {
    let mut inbox = Inbox::open(&[200]).await;
    let account = OidcToken {
        service_account_email: "push@demo.iam.gserviceaccount.com".into(),
        audience: "https://queue.example".into(),
    };
    let method = Some(AuthenticationMethod::OidcToken(account));
    let config = PushConfig { authentication_method: method, ..to(&inbox) };
    let clock = ManualClock::starting_at(Time::from_secs(1_800_000_000)).into();
    let emulator = pushing(config, Options { clock, ..Options::default() }).await;
    publish(&emulator, "hello");
    let token = inbox.next().await.headers["authorization"].strip_prefix("Bearer ").unwrap().to_owned();

    let address = emulator.address();
    let discovery = ask(address, "GET /.well-known/openid-configuration", &[], "").await.json();
    let keys_url = discovery["jwks_uri"].as_str().unwrap();
    let path = keys_url.strip_prefix(&format!("http://{address}")).unwrap();
    let keys = ask(address, &format!("GET {path}"), &[], "").await;
    assert_eq!(keys.headers["cache-control"], "public, max-age=3600");
    let key = keys.json()["keys"][0].clone();
    let number = |name: &str| URL_SAFE_NO_PAD.decode(key[name].as_str().unwrap()).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let public = RsaPublicKeyComponents { n: number("n"), e: number("e") };
    public.verify(&RSA_PKCS1_2048_8192_SHA256, signed.as_bytes(), &signature).unwrap();

    let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["iss"], "https://accounts.google.com");
    assert_eq!(claims["aud"], "https://queue.example");
    assert_eq!(claims["email"], "push@demo.iam.gserviceaccount.com");
    assert_eq!((&claims["iat"], &claims["exp"]), (&1_800_000_000.into(), &1_800_003_600.into()));
    emulator.stop().await;
}

// Shows: CARD-02
#[tokio::test]
async fn redelivers_to_a_silent_endpoint_after_the_deadline() {
    let mut inbox = Inbox::mute("").await;
    let clock = ManualClock::starting_at(Time::from_secs(1_800_000_000));
    let options = Options { clock: clock.clone().into(), ..Options::default() };
    let emulator = pushing(to(&inbox), options).await;
    publish(&emulator, "hello");
    let first = inbox.next().await;
    clock.advance(Duration::from_secs(12));
    let second = inbox.next().await;
    assert_eq!(id(&first), id(&second));
    emulator.stop().await;
}

#[tokio::test]
async fn an_unreachable_endpoint_delays_no_other_subscription() {
    let mut inbox = Inbox::open(&[200]).await;
    let nowhere = PushConfig { push_endpoint: "http://127.0.0.1:1/".into(), ..PushConfig::default() };
    let emulator = pushing(nowhere, Options::default()).await;
    let other = Subscription {
        name: "projects/demo/subscriptions/other".into(),
        topic: TOPIC.into(),
        push_config: Some(to(&inbox)),
        ..Subscription::default()
    };
    emulator.broker(|broker, now| broker.create_subscription(now, other)).unwrap();
    for text in ["one", "two", "three"] {
        publish(&emulator, text);
        assert_eq!(inbox.next().await.json()["subscription"], "projects/demo/subscriptions/other");
    }
    assert_eq!(backlog(&emulator), 3, "of the one without an endpoint");
    emulator.stop().await;
}
