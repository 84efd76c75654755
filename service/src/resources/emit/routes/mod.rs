//! Emits over HTTP: plain JSON and CloudEvents, one event or many, answered after the commit.
//!
//! The other files of this directory parse requests without I/O; this one emits and answers.

mod attributes;
mod cloudevents;
mod emission;
mod idempotency;
mod media;
mod plain;
mod received;
mod request;
#[cfg(test)]
mod tests;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Scope;
use crate::http::Api;
use crate::http::body::CompleteBody;
use crate::http::caller::Caller;
use crate::http::path::{ObjectPath, Parameters};
use crate::http::problem::{Details, Kind, Problem};
use crate::resources::emit::wire::refusal::{Fault, Refusal};
use crate::resources::emit::wire::{CloudEvent, EmitAnswer, EmittedBatch, NewChange, NewEvent, NewEvents};
use cloudevents::Keep;
use emission::{Change, Emission};
use received::{EmitRequest, accepted};
use wakeq::EventError;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EmitQuery {
    /// Which part of a CloudEvent becomes the value: its data, or the whole CloudEvent.
    #[serde(default)]
    #[param(inline)]
    value: Keep,
}

/// Emit an event
///
/// Accepts plain JSON, or a CloudEvent 1.0 in JSON format or in binary mode (`ce-` headers). A
/// batch of CloudEvents is also accepted, and is answered as by `events:batch`.
///
/// The response is sent after the commit. A valid `traceparent` header is stored with the event.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/events", operation_id = "emit", tag = "emit",
    params(
        EmitQuery,
        ("idempotency-key" = Option<String>, Header,
            description = "For 24 hours, repeats with this key receive the first response"),
    ),
    request_body(content(
        (NewEvent = "application/json"),
        (CloudEvent = "application/cloudevents+json"),
        (Vec<CloudEvent> = "application/cloudevents-batch+json"),
    )),
    responses(
        (status = 202, description = "The event is committed", body = EmitAnswer,
            headers(("location" = Option<String>,
                description = "The path of the event; not for batches"))),
        (status = 409,
            description = "An earlier request with this `idempotency-key` is in progress, or the `id` was \
                           chosen before for another handler (`id-taken`)",
            body = Details<'static>, content_type = "application/problem+json"),
        (status = 413, description = "The body or a value is too large",
            body = Details<'static>, content_type = "application/problem+json"),
        (status = 415,
            description = "The content type is not supported, or the data can't be a value",
            body = Details<'static>, content_type = "application/problem+json"),
        (status = 422, description = "The `idempotency-key` was used for a different request",
            body = Details<'static>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn one(
    State(api): State<Api>,
    caller: Caller,
    Parameters(query): Parameters<EmitQuery>,
    uri: Uri,
    headers: HeaderMap,
    CompleteBody(body): CompleteBody,
) -> Result<Response, Problem> {
    emit(&api, &caller, EmitRequest { batch: false, keep: query.value, uri, headers, body }).await
}

/// Emit a batch of events
///
/// Emits up to 1,000 events, all or none. Accepts plain JSON, or a batch of CloudEvents 1.0 in JSON
/// format.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/events:batch", operation_id = "emit_batch", tag = "emit",
    params(
        EmitQuery,
        ("idempotency-key" = Option<String>, Header,
            description = "For 24 hours, repeats with this key receive the first response"),
    ),
    request_body(content((NewEvents = "application/json"), (Vec<CloudEvent> = "application/cloudevents-batch+json"))),
    responses(
        (status = 202, description = "All events are committed", body = EmittedBatch),
        (status = 409,
            description = "An earlier request with this `idempotency-key` is in progress, or the `id` was \
                           chosen before for another handler (`id-taken`)",
            body = Details<'static>, content_type = "application/problem+json"),
        (status = 413, description = "The body or a value is too large",
            body = Details<'static>, content_type = "application/problem+json"),
        (status = 415,
            description = "The content type is not supported, or the data can't be a value",
            body = Details<'static>, content_type = "application/problem+json"),
        (status = 422, description = "The `idempotency-key` was used for a different request",
            body = Details<'static>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn batch(
    State(api): State<Api>,
    caller: Caller,
    Parameters(query): Parameters<EmitQuery>,
    uri: Uri,
    headers: HeaderMap,
    CompleteBody(body): CompleteBody,
) -> Result<Response, Problem> {
    emit(&api, &caller, EmitRequest { batch: true, keep: query.value, uri, headers, body }).await
}

/// Change an object
///
/// Emits a main event and its subevents on the object, adjacent in its chain, and sets its new
/// state, if given: all or none. Events that others emit on the object at the same time come before
/// all of them or after them. Repeating a main event whose `id` was chosen does not change the
/// state.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/objects/{object}/events", operation_id = "change_object", tag = "objects",
    params(
        ("idempotency-key" = Option<String>, Header,
            description = "For 24 hours, repeats with this key receive the first response"),
    ),
    request_body = NewChange,
    responses(
        (status = 202, description = "The whole change is committed", body = EmittedBatch),
        (status = 409,
            description = "An earlier request with this `idempotency-key` is in progress, or the `id` was \
                           chosen before for another handler (`id-taken`)",
            body = Details<'static>, content_type = "application/problem+json"),
        (status = 413, description = "The body, a value or the state is too large",
            body = Details<'static>, content_type = "application/problem+json"),
        (status = 415, description = "The content type is not supported",
            body = Details<'static>, content_type = "application/problem+json"),
        (status = 422, description = "The `idempotency-key` was used for a different request",
            body = Details<'static>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn change(
    State(api): State<Api>,
    caller: Caller,
    ObjectPath(object): ObjectPath,
    uri: Uri,
    headers: HeaderMap,
    CompleteBody(body): CompleteBody,
) -> Result<Response, Problem> {
    let received = EmitRequest { batch: true, keep: Keep::default(), uri, headers, body };
    let emission = request::read_change(&object, &received.incoming(&caller, &received.borrowed()))?;
    send(&api, &caller, received, emission).await
}

async fn emit(api: &Api, caller: &Caller, received: EmitRequest) -> Result<Response, Problem> {
    let emission = request::read(&received.incoming(caller, &received.borrowed()))?;
    send(api, caller, received, emission).await
}

async fn send(
    api: &Api,
    caller: &Caller,
    received: EmitRequest,
    emission: Emission,
) -> Result<Response, Problem> {
    caller.may_emit(api, emission.events())?;
    if let Some(what) = emission.beside_events() {
        caller.may_emit_with(api, what)?;
    }
    let emission = if caller.is_limited(Scope::Emit) { emission.with_ids_of_handlers() } else { emission };
    let has_other = api.recent_canvases.has_other(caller.canvas);
    api.shares.count_events(caller.canvas, has_other, emission.events().count())?;
    if let Some(key) = crate::http::idempotency::key(&received.headers)? {
        return idempotency::emit(api, caller, &key, received, emission).await;
    }
    // The emission holds everything that is needed from now on.
    drop(received);
    let answer = match emission {
        Emission::One(event) => EmitAnswer::One(api.queue.emit(*event).await?.into()),
        Emission::Batch(events) => EmitAnswer::batch(&api.queue.emit_all(events).await?),
        Emission::On(change) => {
            let Change { object, main, subevents, state } = *change;
            let emitting = api.queue.emit_on(object.as_str(), main, subevents, state.as_deref());
            EmitAnswer::batch(&emitting.await?)
        }
    };
    Ok(accepted(caller.canvas, &answer))
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let kind = match &refusal.fault {
            Fault::MediaType(_) => Kind::UnsupportedMediaType,
            Fault::Event(EventError::TooLarge { .. }) => Kind::TooLarge,
            Fault::Event(_)
            | Fault::Syntax(_)
            | Fault::Shape { .. }
            | Fault::UnknownField(..)
            | Fault::Repeated(_)
            | Fault::Missing(_)
            | Fault::Both(..)
            | Fault::Count { .. }
            | Fault::TooManyFields(_) => Kind::BadRequest,
        };
        Self::new(kind, refusal.to_string())
    }
}
