//! Emits under an `Idempotency-Key`: a repeated request gets its first answer again.

use axum::http::header;
use axum::response::Response;

use super::emission::{Change, Emission};
use super::received::{EmitRequest, accepted};
use crate::http::Api;
use crate::http::caller::Caller;
use crate::http::idempotency;
use crate::http::problem::Problem;
use crate::resources::emit::wire::EmitAnswer;
use wakeq::events::{IdempotencyKey, Idempotent};

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
        idempotency::mark_replayed(&mut response);
    }
    Ok(response)
}

/// Of path, query, body, and the headers that describe the body.
fn fingerprint(received: &EmitRequest) -> Vec<u8> {
    let mut headers: Vec<_> = received
        .headers
        .iter()
        .filter(|(name, _)| *name == header::CONTENT_TYPE || name.as_str().starts_with("ce-"))
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    headers.sort_unstable();
    let (path, query) = (received.uri.path(), received.uri.query().unwrap_or_default());
    let parts = [b"POST".as_slice(), path.as_bytes(), query.as_bytes(), &received.body[..]];
    let described = headers.iter().flat_map(|(name, value)| [name.as_bytes(), *value]);
    idempotency::fingerprint(parts.into_iter().chain(described))
}
