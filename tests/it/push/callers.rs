//! Who may push: one kind of token, which is good for nothing else.

use aws_lc_rs::hmac;
use futures_util::future::join_all;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use wakeq::{CanvasId, Handlers, WorkerConfig};
use wakeq_service::access::{AccessConfig, PushCallers};
use wakeq_service::server::HttpConfig;

use super::{PUSH_AUDIENCE, PushDeployment, envelope, notification, push_claims};
use crate::support::Statements;
use crate::support::google_keys::{AUDIENCE, ROBOT, Signer, base64_url, claims, now, unsigned};
use crate::support::handlers::recording;
use crate::support::service::{Answer, Service};

/// Credentials that must not push, and the status that each gets.
fn wrong(pushed: &PushDeployment) -> Vec<(&'static str, Option<String>, u16)> {
    let with = |name: &str, value: Value| {
        let mut claims = push_claims();
        claims[name] = value;
        Some(pushed.signer.token(&claims))
    };
    let token = pushed.token();
    let (message, signature) = token.rsplit_once('.').unwrap();
    let none = unsigned(&json!({"alg": "none", "typ": "JWT", "kid": "one"}), &push_claims());
    let confused = unsigned(&json!({"alg": "HS256", "typ": "JWT", "kid": "one"}), &push_claims());
    let secret = hmac::Key::new(hmac::HMAC_SHA256, &pushed.signer.public());
    let tag = base64_url(hmac::sign(&secret, confused.as_bytes()).as_ref());
    let other_message = unsigned(&json!({"alg": "RS256", "typ": "JWT", "kid": "one"}), &claims());
    vec![
        ("none", None, 401),
        ("an API key with every scope", Some(pushed.key.clone()), 401),
        ("not a credential", Some("let-me-in".into()), 401),
        ("a token for the API", Some(pushed.signer.token(&claims())), 401),
        ("forged: another key of the same name", Some(Signer::new("one").token(&push_claims())), 401),
        ("a key that Google does not have", Some(Signer::new("two").token(&push_claims())), 401),
        ("expired", with("exp", (now() - 60).into()), 401),
        ("from the future", with("iat", (now() + 600).into()), 401),
        ("another audience", with("aud", "project/wakeq".into()), 401),
        ("the audience of the API", with("aud", AUDIENCE.into()), 401),
        ("a longer audience", with("aud", format!("{PUSH_AUDIENCE}/").into()), 401),
        ("another issuer", with("iss", "https://accounts.evil.example".into()), 401),
        ("an unverified address", with("email_verified", false.into()), 401),
        ("without an address", with("email", Value::Null), 401),
        ("another account", with("email", ROBOT.into()), 403),
        ("unsigned", Some(format!("{message}.")), 401),
        ("the algorithm `none`", Some(format!("{none}.")), 401),
        ("`none`, and something like a signature", Some(format!("{none}.{signature}")), 401),
        ("the public key as a secret", Some(format!("{confused}.{tag}")), 401),
        ("another's signature", Some(format!("{other_message}.{signature}")), 401),
    ]
}

fn bearing(request: RequestBuilder, credential: Option<&String>) -> RequestBuilder {
    credential.into_iter().fold(request, |request, credential| request.bearer_auth(credential))
}

/// No other credential runs, wakes or changes anything.
// Shows: PUSH-02
#[tokio::test]
async fn only_configured_accounts_push_or_wake() {
    let (pushed, mut seen) = PushDeployment::recorded().await;
    let id = pushed.stage.emit("greet").await;
    let row = "select to_jsonb(e)::text || (select next_at::text from wakeq.chores where name = 'minute')
                 from wakeq.events_v2 e";
    let looks = async || pushed.stage.pool.value::<String>(row).await;
    let before = looks().await;
    let published = pushed.notifier.published().len();
    for (kind, credential, status) in wrong(&pushed) {
        for (path, body) in [
            ("/v1/push", envelope(&notification(id).body())),
            ("/v1/wake", json!({})),
            ("/v1/push", json!([])),
        ] {
            let answer = Answer::of(bearing(pushed.post(path, &body), credential.as_ref())).await;
            let slug = if status == 403 { "forbidden" } else { "unauthenticated" };
            assert_eq!(answer.problem(), (status, slug.into()), "{path}: {kind}");
        }
    }
    let twice = pushed.push(id).bearer_auth(pushed.token());
    assert_eq!(Answer::of(twice).await.status, 401, "two credentials");
    assert_eq!((looks().await, pushed.notifier.published().len()), (before, published));
    assert!(seen.rest().is_empty(), "something ran");
    // The control: the right token runs it.
    assert_eq!(pushed.pushed(id).await, 204);
    assert_eq!(seen.next().await.id, id);
    assert_eq!(pushed.wake().await["more"], false);
    pushed.stop().await;
}

/// An address may not try tokens at any speed. The right one is let in even from there.
#[tokio::test]
async fn wrong_tokens_are_limited_by_address() {
    let (handler, mut seen) = recording();
    let http = HttpConfig { stranger_rate: 1, ..HttpConfig::default() };
    let handlers = Handlers::new().on("greet", handler);
    let pushed = PushDeployment::within(http, handlers, WorkerConfig::default()).await;
    let id = pushed.stage.emit("greet").await;
    let body = envelope(&notification(id).body());
    let wrong = wrong(&pushed);
    let tries = wrong
        .iter()
        .map(|(_, credential, _)| Answer::of(bearing(pushed.post("/v1/push", &body), credential.as_ref())));
    let answers = join_all(tries).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(!refused.is_empty(), "{answers:?}");
    for answer in refused {
        assert_eq!(answer.problem(), (429, "too-many-requests".into()));
    }
    assert_eq!(pushed.pushed(id).await, 204);
    assert_eq!(seen.next().await.id, id);
    pushed.stop().await;
}

/// Conversely, the push token opens nothing else.
// Shows: PUSH-02
#[tokio::test]
async fn a_push_s_token_is_good_for_nothing_else() {
    let pushed = PushDeployment::start(Handlers::new()).await;
    let id = pushed.stage.emit("greet").await;
    let canvas = format!("/v1/canvases/{}", CanvasId::DEFAULT);
    for path in [format!("{canvas}/events"), format!("{canvas}/events/{id}/run-now")] {
        let request = pushed.post(&path, &json!({"name": "greet"})).bearer_auth(pushed.token());
        assert_eq!(Answer::of(request).await.problem(), (401, "unauthenticated".into()), "{path}");
    }
    pushed.stop().await;
}

/// Without push callers, the routes say which variables to set.
// Shows: PUSH-03
#[tokio::test]
async fn without_configuration_there_is_nothing_to_push_to() {
    let service = Service::start().await;
    for path in ["/v1/push", "/v1/wake"] {
        let answer = Answer::of(service.request(reqwest::Method::POST, path).bearer_auth(&service.key)).await;
        assert_eq!(answer.problem(), (404, "not-found".into()));
        for variable in ["WAKEQ_PUSH_AUDIENCE", "WAKEQ_PUSH_ACCOUNTS"] {
            assert!(answer.text.contains(variable), "{}", answer.text);
        }
    }
    service.stop().await;
}

/// Half a configuration, or the API's own audience, is refused at the start.
// Shows: PUSH-03
#[tokio::test]
async fn half_a_configuration_is_refused() {
    let service = Service::start().await;
    let stage = &service.stage;
    let audience = |audience: &str| vec![audience.to_owned()];
    for (push, words) in [
        (PushCallers { audiences: audience("push"), accounts: vec![] }, "WAKEQ_PUSH_ACCOUNTS"),
        (PushCallers { audiences: audience(AUDIENCE), ..super::callers() }, "a different audience"),
    ] {
        let access = AccessConfig { audiences: audience(AUDIENCE), push, ..AccessConfig::default() };
        let config = HttpConfig { access, ..HttpConfig::default() };
        let bound =
            wakeq_service::server::HttpServer::bind(stage.store.clone(), stage.notifier.clone(), config)
                .await;
        let error = bound.err().expect("it was taken").to_string();
        assert!(error.contains(words), "{error}");
    }
    service.stop().await;
}
