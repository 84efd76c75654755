//! `Idempotency-Key`: a repeated request gets its first answer again.
//!
//! Which requests are the same is decided here; the store keeps key, events and answer in one
//! transaction.

use aws_lc_rs::digest::{Context, SHA256};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;

use super::emission::{Change, Emission};
use super::received::{EmitRequest, accepted};
use crate::http::Api;
use crate::http::caller::Caller;
use crate::http::operations::IDEMPOTENCY_KEY;
use crate::http::problem::Problem;
use crate::resources::emit::wire::EmitAnswer;
use wakeq::events::{IdempotencyKey, Idempotent};

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The request's key: 1 to 255 visible characters.
pub(super) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let visible = value.as_bytes().iter().all(u8::is_ascii_graphic) && (1..=255).contains(&value.len());
    match value.to_str() {
        Ok(text) if visible && values.next().is_none() => Ok(Some(text.to_owned())),
        Ok(_) | Err(_) => Err(Problem::bad_request(
            "an Idempotency-Key must have 1 to 255 visible ASCII characters, and be given once: a \
             uuid, for example",
        )),
    }
}

/// Emits under a key, or returns the answer that was given under it.
pub(super) async fn emit(
    api: &Api,
    caller: &Caller,
    key: &str,
    received: EmitRequest,
    emission: Emission,
) -> Result<Response, Problem> {
    let key = IdempotencyKey::new(caller.canvas, &caller.holder(), key, &fingerprint(&received))?;
    drop(received);
    let queue = &api.queue;
    let one = |emitted: &[wakeq::Emitted]| match emitted {
        [emitted] => EmitAnswer::One((*emitted).into()).text(),
        emitted => EmitAnswer::batch(emitted).text(),
    };
    let batch = |emitted: &[wakeq::Emitted]| EmitAnswer::batch(emitted).text();
    let answered = match emission {
        Emission::One(event) => queue.emit_idempotent(&key, vec![*event], one).await?,
        Emission::Batch(events) => queue.emit_idempotent(&key, events, batch).await?,
        Emission::On(change) => {
            let Change { object, main, subevents, state } = *change;
            let state = state.as_deref();
            queue.emit_on_idempotent(&key, object.as_str(), main, subevents, state, batch).await?
        }
    };
    let (answer, replayed) = match answered {
        Idempotent::First { emitted: _, answer } => (answer, false),
        Idempotent::Replayed { answer } => (answer, true),
    };
    let answer: EmitAnswer =
        serde_json::from_str(&answer).map_err(|error| Problem::internal().because(error))?;
    let mut response = accepted(caller.canvas, &answer);
    if replayed {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// A digest that is equal for requests that ask for the same: of path, query, body, and the headers
/// that describe the body.
fn fingerprint(received: &EmitRequest) -> Vec<u8> {
    let mut digest = Context::new(&SHA256);
    let mut add = |part: &[u8]| {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    };
    add(b"POST");
    add(received.uri.path().as_bytes());
    add(received.uri.query().unwrap_or_default().as_bytes());
    add(&received.body);
    let mut headers: Vec<_> = received
        .headers
        .iter()
        .filter(|(name, _)| *name == header::CONTENT_TYPE || name.as_str().starts_with("ce-"))
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    headers.sort_unstable();
    for (name, value) in headers {
        add(name.as_bytes());
        add(value);
    }
    digest.finish().as_ref().to_vec()
}
