//! A sender of webhooks, as the documents of each kind describe it. Nothing of the service is used.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use wakeq::CanvasId;

use crate::support::service::{Answer, Service};

pub(crate) const STANDARD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub(crate) const STRIPE_SECRET: &str = "whsec_5tr1pe5ecre7of7he3ndp01nt";
pub(crate) const GITHUB_SECRET: &str = "It's_a_Secret_to_Everybody";

/// A webhook to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Webhook {
    pub(crate) kind: &'static str,
    pub(crate) secret: String,
    pub(crate) id: String,
    pub(crate) body: String,
    /// Seconds since 1970.
    pub(crate) at: u64,
    pub(crate) content_type: &'static str,
}

/// The secret of the kind in these tests.
pub(crate) fn secret(kind: &str) -> &'static str {
    match kind {
        "standard" => STANDARD_SECRET,
        "stripe" => STRIPE_SECRET,
        _ => GITHUB_SECRET,
    }
}

/// A webhook of this kind, with this id and a small body.
pub(crate) fn webhook(kind: &'static str, id: &str) -> Webhook {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let body = json!({"id": id, "type": "paid", "data": {"cents": 500}}).to_string();
    let (secret, id) = (secret(kind).to_owned(), id.to_owned());
    Webhook { kind, secret, id, body, at, content_type: "application/json" }
}

fn tag(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Webhook {
    pub(crate) fn body(self, body: impl Into<String>) -> Self {
        Self { body: body.into(), ..self }
    }

    pub(crate) fn signed_with(self, secret: &str) -> Self {
        Self { secret: secret.to_owned(), ..self }
    }

    /// As it was sent this long ago.
    pub(crate) fn aged(self, age: Duration) -> Self {
        Self { at: self.at - age.as_secs(), ..self }
    }

    /// The headers that prove where it comes from.
    pub(crate) fn headers(&self) -> Vec<(&'static str, String)> {
        let Self { secret, id, body, at, .. } = self;
        match self.kind {
            "standard" => {
                let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
                let signed = tag(&key, format!("{id}.{at}.{body}").as_bytes());
                vec![
                    ("webhook-id", id.clone()),
                    ("webhook-timestamp", at.to_string()),
                    ("webhook-signature", format!("v1,{}", STANDARD.encode(signed))),
                ]
            }
            "stripe" => {
                let signed = hex(&tag(secret.as_bytes(), format!("{at}.{body}").as_bytes()));
                vec![("stripe-signature", format!("t={at},v1={signed},v0={}", "0".repeat(64)))]
            }
            _ => {
                let signed = hex(&tag(secret.as_bytes(), body.as_bytes()));
                vec![
                    ("x-github-delivery", id.clone()),
                    ("x-github-event", "push".to_owned()),
                    ("x-hub-signature-256", format!("sha256={signed}")),
                ]
            }
        }
    }

    /// The request to a hook, without a credential.
    pub(crate) fn to(&self, service: &Service, canvas: CanvasId, hook: &str) -> RequestBuilder {
        let request = service.request(Method::POST, &format!("/v1/canvases/{canvas}/hooks/{hook}"));
        let request = request.header("content-type", self.content_type).body(self.body.clone());
        self.headers().into_iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// The answer of a hook on the default canvas.
    pub(crate) async fn sent(&self, service: &Service, hook: &str) -> Answer {
        Answer::of(self.to(service, CanvasId::DEFAULT, hook)).await
    }
}

/// Puts a hook of this kind for the handler `receive`, with the secret of these tests and these
/// fields, on the default canvas.
pub(crate) async fn put(service: &Service, hook: &str, kind: &str, more: Value) -> Value {
    let mut body = json!({"kind": kind, "handler": {"name": "receive"}, "secret": secret(kind)});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    service.put(&format!("/hooks/{hook}"), body).await.json()
}
