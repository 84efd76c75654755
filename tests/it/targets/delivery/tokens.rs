//! OIDC tokens: sent only to their audience, fetched from Google's metadata server, and cached.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::json;
use wakeq::CanvasId;
use wakeq::targets::Target;
use wakeq_service::delivery::{
    Deliverer, DeliveryConfig, DeliveryOutcome, GoogleIdTokens, IdTokens, NoIdToken,
};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::names::Names;
use super::servers::{Answer, Server, authority};
use super::{config, deliver, deliver_on, failure, target};
use crate::support::google_keys;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

#[derive(Debug, Default)]
struct StubTokens {
    asked: AtomicUsize,
    refuses: bool,
}

#[async_trait]
impl IdTokens for StubTokens {
    async fn token(&self, audience: &str) -> Result<String, NoIdToken> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.refuses {
            Err(NoIdToken("not today".to_owned()))
        } else {
            Ok(format!("token-for.{audience}.x"))
        }
    }
}

/// With audiences that are allowed for this server only.
fn deliverer(tokens: Arc<dyn IdTokens>, server: &Server) -> Deliverer {
    let names = Arc::new(Names::default());
    names.set("target.example", &["127.0.0.1"]);
    let origin = format!("https://target.example:{}", server.address.port());
    let ours = CanvasId::DEFAULT;
    let audiences = [format!("{ours}=orders={origin}"), format!("{ours}={origin}")];
    let audiences = audiences.iter().map(|audience| audience.parse().unwrap()).collect();
    Deliverer::new(DeliveryConfig { authorities: vec![authority()], audiences, tokens, ..config(&names) })
        .unwrap()
}

fn with_audience(server: &Server, audience: &str) -> Target {
    Target { audience: Some(audience.to_owned()), ..target(server.tls_url()) }
}

#[tokio::test]
async fn a_token_is_sent_only_to_its_audience() {
    let server = Server::start_tls(Answer::KeepAlive(OK)).await;
    let tokens = Arc::new(StubTokens::default());
    let deliverer = deliverer(tokens.clone(), &server);
    let origin = format!("https://target.example:{}", server.address.port());
    for audience in [origin.as_str(), "orders"] {
        assert_eq!(deliver(&deliverer, &with_audience(&server, audience)).await, DeliveryOutcome::Completed);
        let expected = format!("Bearer token-for.{audience}.x");
        assert_eq!(server.requests().last().unwrap().header("authorization"), expected);
    }
    assert_eq!(deliver(&deliverer, &target(server.tls_url())).await, DeliveryOutcome::Completed);
    assert!(!server.requests().last().unwrap().head.contains("authorization"), "none is sent unasked");

    let message = failure(deliver(&deliverer, &with_audience(&server, "https://payments.example")).await);
    assert!(message.contains("--deliver-audience"), "{message}");
    let elsewhere = Server::start_tls(Answer::KeepAlive(OK)).await;
    let message = failure(deliver(&deliverer, &with_audience(&elsewhere, "orders")).await);
    assert!(message.contains("--deliver-audience"), "it is allowed for another origin: {message}");
    assert_eq!(elsewhere.connections(), 0);
    let theirs = CanvasId(uuid::Uuid::from_u128(2));
    for audience in [origin.as_str(), "orders"] {
        let message = failure(deliver_on(&deliverer, &with_audience(&server, audience), theirs).await);
        assert!(message.contains("--deliver-audience"), "not for another canvas: {message}");
    }
    let plain = Server::start(Answer::KeepAlive(OK)).await;
    let in_clear = Target { audience: Some("orders".to_owned()), ..target(plain.url()) };
    let message = failure(deliver(&deliverer, &in_clear).await);
    assert!(message.contains("https only"), "{message}");
    assert_eq!((server.requests().len(), plain.connections()), (3, 0));
    assert_eq!(tokens.asked.load(Ordering::SeqCst), 2, "no token is made for what is refused");
}

#[tokio::test]
async fn without_its_token_nothing_is_sent() {
    let server = Server::start_tls(Answer::KeepAlive(OK)).await;
    let deliverer = deliverer(Arc::new(StubTokens { refuses: true, ..StubTokens::default() }), &server);
    let message = failure(deliver(&deliverer, &with_audience(&server, "orders")).await);
    assert!(message.contains("nothing was sent") && message.contains("not today"), "{message}");
    assert_eq!(server.connections(), 0);
}

/// Google's tokens are fetched from the metadata server once, and cached.
// Shows: CARD-02
#[tokio::test]
async fn a_token_of_the_metadata_server_is_fetched_once() {
    let token = google_keys::unsigned(&json!({"alg": "RS256"}), &google_keys::claims()) + ".signature";
    let metadata = MockServer::builder().start().await;
    let answer = ResponseTemplate::new(200).set_body_string(token.as_str());
    Mock::given(any()).respond_with(answer).mount(&metadata).await;
    let server = Server::start_tls(Answer::KeepAlive(OK)).await;
    let deliverer = deliverer(Arc::new(GoogleIdTokens::of_metadata_server(&metadata.uri())), &server);
    for _ in 0..3 {
        assert_eq!(deliver(&deliverer, &with_audience(&server, "orders")).await, DeliveryOutcome::Completed);
    }
    assert_eq!(server.requests()[2].header("authorization"), format!("Bearer {token}"));
    let fetches = metadata.received_requests().await.unwrap();
    assert_eq!(fetches.len(), 1);
    let url = fetches[0].url.as_str();
    assert!(url.contains("/service-accounts/default/identity?audience=orders"), "{url}");
    assert_eq!(fetches[0].headers["metadata-flavor"], "Google");
}
