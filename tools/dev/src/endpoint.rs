//! A sample of an external service: an HTTP endpoint on loopback that receives the events of
//! handlers, verifies their signatures, and sends one back now and then.
//!
//! It knows nothing of the queue but its requests, like a service in any other language.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::hmac;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use wakeq::EventId;
use wakeq::targets::Secret;

use crate::screen;

/// The name of the sample handler.
pub(super) const HANDLER: &str = "webhook";
/// The value of the events that it rejects as too busy at first.
const BUSY_FOR: &str = "\"Grace\"";
/// A part of the values that it never accepts: nobody is known without an address.
const UNKNOWN: &str = "\"email\":\"\"";

type Answer = (StatusCode, [(HeaderName, &'static str); 1]);

/// The endpoint; it stops when it is dropped.
pub(super) struct Endpoint {
    /// The URL that receives events.
    pub(super) url: String,
    /// The secret that they are signed with.
    pub(super) secret: Secret,
    _serving: AbortOnDropHandle<()>,
}

impl Endpoint {
    /// Listens on a free port for events that are signed with this secret.
    pub(super) async fn start(secret: Secret) -> std::io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let url = format!("http://{}/events", listener.local_addr()?);
        let service = Service { secret: secret.clone(), refused: Mutex::default() };
        let router = Router::new().route("/events", post(take)).with_state(Arc::new(service));
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                screen::line(&format!("the sample endpoint ended: {error}"));
            }
        });
        Ok(Self { url, secret, _serving: AbortOnDropHandle::new(serving) })
    }
}

struct Service {
    secret: Secret,
    /// The events that were refused and have not come again: a 503 with `Retry-After` counts no
    /// attempt, so the number of the attempt does not tell.
    refused: Mutex<HashSet<EventId>>,
}

impl Service {
    /// Whether it is too busy for an event, which is so every other time that the event comes.
    fn is_busy_for(&self, id: EventId) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        !refused.remove(&id) && refused.insert(id)
    }
}

/// 204 completes an event; 503 says when to retry it, and 422 with `wakeq-outcome` that it is dead.
async fn take(State(service): State<Arc<Service>>, headers: HeaderMap, body: String) -> Answer {
    let plain = |status| (status, [(header::CACHE_CONTROL, "no-store")]);
    let Some(request) = SignedRequest::read(&service.secret, &headers, &body) else {
        screen::line("the sample endpoint received a request without a valid signature");
        return plain(StatusCode::UNAUTHORIZED);
    };
    let SignedRequest { id, handler, attempt } = request;
    if body == BUSY_FOR && service.is_busy_for(id) {
        screen::event(id, &handler, "POST with a valid signature; answered 503, Retry-After: 3");
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "3")]);
    }
    if body.contains(UNKNOWN) {
        screen::event(id, &handler, "POST with a valid signature; answered 422, wakeq-outcome: dead");
        return (StatusCode::UNPROCESSABLE_ENTITY, [(HeaderName::from_static("wakeq-outcome"), "dead")]);
    }
    screen::event(
        id,
        &handler,
        &format!("POST of {body} with a valid signature, attempt {attempt}; answered 204"),
    );
    plain(StatusCode::NO_CONTENT)
}

/// The headers of a request whose signature is valid.
struct SignedRequest {
    id: EventId,
    handler: String,
    attempt: u32,
}

impl SignedRequest {
    /// A real service would use a library for Standard Webhooks, and reject timestamps that are
    /// minutes off.
    fn read(secret: &Secret, headers: &HeaderMap, body: &str) -> Option<Self> {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let (id, signatures) = (text("webhook-id")?, text("webhook-signature")?);
        let message = format!("{id}.{}.{body}", text("webhook-timestamp")?);
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let is_ours = |signature: &str| {
            let tag = signature.strip_prefix("v1,").and_then(|tag| STANDARD.decode(tag).ok());
            tag.is_some_and(|tag| hmac::verify(&key, message.as_bytes(), &tag).is_ok())
        };
        if !signatures.split(' ').any(is_ours) {
            return None;
        }
        let handler = text("ce-type")?.split('/').nth(1)?.to_owned();
        Some(Self { id: id.parse().ok()?, handler, attempt: text("wakeq-attempt")?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_signed_requests() {
        let secret = Secret::generate().unwrap();
        let id = EventId::new();
        let signed_with = |secret: &Secret| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
            let tag = STANDARD.encode(hmac::sign(&key, format!("{id}.7.\"Ada\"").as_bytes()));
            let mut headers = HeaderMap::new();
            for (name, value) in [
                ("webhook-id", id.to_string()),
                ("webhook-timestamp", "7".into()),
                ("webhook-signature", format!("v1,bm9wZQ== v1,{tag}")),
                ("ce-type", "WORKER/webhook/_".into()),
                ("wakeq-attempt", "2".into()),
            ] {
                headers.insert(name, value.parse().unwrap());
            }
            headers
        };
        let request = SignedRequest::read(&secret, &signed_with(&secret), "\"Ada\"").unwrap();
        assert_eq!((request.id, request.handler.as_str(), request.attempt), (id, HANDLER, 2));
        assert!(SignedRequest::read(&secret, &signed_with(&secret), "\"Bo\"").is_none());
        let other = Secret::generate().unwrap();
        assert!(SignedRequest::read(&secret, &signed_with(&other), "\"Ada\"").is_none());
        assert!(SignedRequest::read(&secret, &HeaderMap::new(), "\"Ada\"").is_none());
    }

    #[test]
    fn refuses_each_event_once_and_forgets_it_when_it_comes_again() {
        let service = Service { secret: Secret::generate().unwrap(), refused: Mutex::default() };
        let (one, other) = (EventId::new(), EventId::new());
        assert!(service.is_busy_for(one));
        assert!(service.is_busy_for(other), "the first refusal is only of its own event");
        assert!(!service.is_busy_for(one));
        assert!(!service.is_busy_for(other));
        assert!(service.refused.lock().unwrap().is_empty());
    }
}
