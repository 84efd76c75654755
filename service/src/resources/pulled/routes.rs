//! Pulled handlers: registering them, and leasing, extending, completing and releasing their
//! events.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::Extension;
use axum::http::StatusCode;
use tokio::time::Instant;

use crate::http::body;
use crate::http::caller::Call;
use crate::http::paging::PageQuery;
use crate::http::path::{EventPath, HandlerPath, Parameters};
use crate::http::problem::{Answer, Kind, Problem};
use crate::http::slots::Slot;
use crate::resources::pulled::wire::{
    CompleteEventRequest, ExtendedEvent, LeaseEventsRequest, LeasedEvents, PulledHandlerJson, PutPulledAnswer,
};
use crate::resources::pulls::wire::{ExtendRequest, Pull, ReleaseRequest, Released};
use crate::resources::wire::List;
use wakeq::Name;

/// How much of a request's time is left for its answer when it stops waiting.
const TO_ANSWER: Duration = Duration::from_secs(5);

/// Register a handler whose events programs lease
///
/// From then on no worker and no target receives its events, whatever their modifiers. Replaces the
/// policy if the handler is pulled already. What waits can be leased at once.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/pull", operation_id = "put_pull",
    tag = "handlers", request_body = Pull, responses(
    (status = 200, description = "The policy was replaced", body = PutPulledAnswer),
    (status = 201, description = "The handler is pulled from now on", body = PutPulledAnswer),
    (status = 409, description = "The canvas has 1,000 pulled handlers")))]
pub(crate) async fn put(
    Call { api, caller }: Call,
    handler: HandlerPath,
    body::Json(policy): body::Json<Pull>,
) -> Result<(StatusCode, Json<PutPulledAnswer>), Problem> {
    let policy = policy.read().map_err(Problem::invalid)?;
    let put = api.admin.put_pulled(&caller.scope(handler), &policy, &caller.actor()).await?;
    let status = if put.new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(put.into())))
}

/// Show how a handler is pulled
#[utoipa::path(get, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/pull", operation_id = "show_pull",
    tag = "handlers", responses((status = 200, description = "The pulled handler", body = PulledHandlerJson)))]
pub(crate) async fn one(Call { api, caller }: Call, handler: HandlerPath) -> Answer<PulledHandlerJson> {
    let found = api.admin.pulled_handler(&caller.scope(handler)).await?;
    Ok(Json(found.ok_or_else(Problem::not_found)?.into()))
}

/// Stop a handler from being pulled
///
/// Workers and targets receive its events again. Leases that stand can't be extended or completed
/// from then on, and their events run again when the leases end.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/pull", operation_id = "delete_pull",
    tag = "handlers", responses((status = 204, description = "Workers and targets receive its events")))]
pub(crate) async fn delete(Call { api, caller }: Call, handler: HandlerPath) -> Result<StatusCode, Problem> {
    api.admin.delete_pulled(&caller.scope(handler), &caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the pulled handlers of a canvas
///
/// Sorted by module and name.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/pulled-handlers", operation_id = "list_pulled_handlers",
    tag = "handlers", params(PageQuery),
    responses((status = 200, description = "A page of pulled handlers", body = List<PulledHandlerJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<PageQuery>,
) -> Answer<List<PulledHandlerJson>> {
    let (limit, cursor) = query.read()?;
    Ok(Json(api.admin.pulled_handlers(caller.canvas, cursor.as_ref(), limit).await?.into()))
}

/// Lease events of a pulled handler
///
/// No one else receives the events until their leases end. Those that were due first come first. An
/// event on an object is leased when no earlier one of its object is left.
///
/// A response has at most 4 MiB of values, or a single event, and what attempts before have left in
/// checkpoints. An event whose leases expired twice is leased alone. With `wait_s`, the response is
/// sent as soon as there are any events. An event whose lease expires can be leased again; the
/// fifth time, it dies. So does one for which it is too late to start.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/leases", operation_id = "lease_events",
    tag = "handlers", request_body = LeaseEventsRequest, responses(
    (status = 200, description = "The leased events; none if there are none to lease", body = LeasedEvents)))]
pub(crate) async fn lease(
    Call { api, caller }: Call,
    handler: HandlerPath,
    slot: Option<Extension<Arc<Slot>>>,
    body::Json(request): body::Json<LeaseEventsRequest>,
) -> Answer<LeasedEvents> {
    let (lease, wait) = request.read().map_err(Problem::invalid)?;
    let worker = request.worker.as_deref().map(str::parse::<Name>).transpose()?;
    wakeq::internals::check_wait(wait)?;
    let scope = caller.scope(handler);
    let end = Instant::now() + wait.min(api.limits.request_time.saturating_sub(TO_ANSWER));
    let mut place = None;
    loop {
        let events = api.admin.lease_events_now(&scope, worker.as_ref(), request.max, lease).await?;
        if !events.is_empty() || Instant::now() >= end {
            return LeasedEvents::of(events).map(Json).map_err(|error| Problem::internal().because(error));
        }
        if place.is_none() {
            place = Some(api.pulls.room.enter(scope.canvas).ok_or_else(|| {
                Problem::new(Kind::TooManyRequests, "too many requests wait for events here: try again")
            })?);
        }
        // Other requests may use the slot meanwhile.
        slot.iter().for_each(|slot| slot.release());
        let woken = api.pulls.stop.run_until_cancelled(api.admin.await_events(&scope, end)).await;
        slot.iter().try_for_each(|slot| slot.acquire())?;
        if !woken.unwrap_or(Ok(false))? {
            return Ok(Json(LeasedEvents { events: Vec::new() }));
        }
    }
}

/// Change when the lease of an event ends
///
/// The lease lasts this long from now, which may be longer or shorter than before.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/leases/{id}/extend",
    operation_id = "extend_event", tag = "handlers", request_body = ExtendRequest, responses(
    (status = 200, description = "The new end of the lease", body = ExtendedEvent),
    (status = 409, description = "The event is not held by this lease"),
    (status = 410, description = "The lease is over (`lease-over`)")))]
pub(crate) async fn extend(
    Call { api, caller }: Call,
    handler: HandlerPath,
    EventPath(id): EventPath,
    body::Json(request): body::Json<ExtendRequest>,
) -> Answer<ExtendedEvent> {
    let (token, lease) = request.read().map_err(Problem::invalid)?;
    Ok(Json(api.admin.extend_event(&caller.scope(handler), id, &token, lease).await?.into()))
}

/// Complete a leased event
///
/// The event is deleted, and kept in the history if its emit or its handler asks for that, with the
/// result.
///
/// A request whose response was lost may have been carried out. Repeated, it is answered with 404
/// if it was.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/leases/{id}/complete",
    operation_id = "complete_event", tag = "handlers", request_body = CompleteEventRequest, responses(
    (status = 204, description = "The event is completed and deleted"),
    (status = 409, description = "The event is not held by this lease"),
    (status = 410, description = "The lease is over (`lease-over`)")))]
pub(crate) async fn complete(
    Call { api, caller }: Call,
    handler: HandlerPath,
    EventPath(id): EventPath,
    body::Json(request): body::Json<CompleteEventRequest>,
) -> Result<StatusCode, Problem> {
    let (token, scope) = (request.read().map_err(Problem::invalid)?, caller.scope(handler));
    match &request.result {
        Some(result) => api.admin.complete_event_with(&scope, id, &token, result.get()).await?,
        None => api.admin.complete_event(&scope, id, &token).await?,
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Release a leased event
///
/// Releases it as if it had not been leased or, with an `error`, as a failed attempt.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/leases/{id}/release",
    operation_id = "release_event", tag = "handlers", request_body = ReleaseRequest, responses(
    (status = 200, description = "The event can be leased again, or died", body = Released),
    (status = 409, description = "The event is not held by this lease"),
    (status = 410, description = "The lease is over (`lease-over`)")))]
pub(crate) async fn release(
    Call { api, caller }: Call,
    handler: HandlerPath,
    EventPath(id): EventPath,
    body::Json(request): body::Json<ReleaseRequest>,
) -> Answer<Released> {
    let (token, release) = request.read().map_err(Problem::invalid)?;
    Ok(Json(api.admin.release_event(&caller.scope(handler), id, &token, &release).await?.into()))
}
