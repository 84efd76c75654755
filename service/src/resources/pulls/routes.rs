//! Pulled queues: lease, extend, complete and release copies. They belong to every canvas.

pub(crate) mod leases;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use tokio::time::Instant;

use crate::http::Api;
use crate::http::body;
use crate::http::caller::Caller;
use crate::http::path::{EventPath, QueuePath};
use crate::http::problem::{Kind, Problem};
use crate::http::slots::Slot;
use crate::resources::pulls::wire::{
    CompleteRequest, ExtendRequest, Extended, InvalidPull, LeaseRequest, Leased, ReleaseRequest, Released,
};
use wakeq::internals::LeaseBatch;
use wakeq::queues::LeaseToken;

/// How much of a request's time is left for its answer when it stops waiting.
const TO_ANSWER: Duration = Duration::from_secs(5);

/// Lease copies of a pulled queue
///
/// No one else receives the copies until their leases end. Canvases take turns, each with its
/// oldest copies first.
///
/// A response has at most 4 MiB of values, or a single copy, and what attempts before have left in
/// checkpoints. A copy whose leases expired twice is leased alone. With `wait_s`, the response is
/// sent as soon as there are any copies. A copy whose lease expires can be leased again; the fifth
/// time, it dies.
#[utoipa::path(post, path = "/v1/admin/queues/{queue}/copies/lease", operation_id = "lease_copies", tag = "queues",
    request_body = LeaseRequest, responses(
    (status = 200, description = "The leased copies; none if there are none to lease",
        body = Leased),
    (status = 409, description = "The queue is not pulled")))]
pub(crate) async fn lease(
    State(api): State<Api>,
    _: Caller,
    QueuePath(queue): QueuePath,
    slot: Option<Extension<Arc<Slot>>>,
    body::Json(request): body::Json<LeaseRequest>,
) -> Result<Json<Leased>, Problem> {
    let (lease, wait) = request.read()?;
    wakeq::internals::check_wait(wait)?;
    let end = Instant::now() + wait.min(api.limits.request_time.saturating_sub(TO_ANSWER));
    let mut waiting = None;
    loop {
        let LeaseBatch { copies, died } = api.admin.lease_now(&queue, request.max, lease).await?;
        api.pulls.metrics.pulled(&queue, "died", died);
        if !copies.is_empty() || Instant::now() >= end {
            api.pulls.metrics.pulled(&queue, "leased", copies.len());
            return Leased::of(copies).map(Json).map_err(|error| Problem::internal().because(error));
        }
        if waiting.is_none() {
            waiting = Some(api.pulls.waiting.try_acquire().map_err(|_| {
                Problem::new(Kind::TooManyRequests, "too many requests wait for copies here: try again")
            })?);
        }
        // Other requests may use the slot meanwhile.
        slot.iter().for_each(|slot| slot.release());
        let woken = api.pulls.stop.run_until_cancelled(api.admin.await_copies(&queue, end)).await;
        slot.iter().try_for_each(|slot| slot.acquire())?;
        if !woken.unwrap_or(Ok(false))? {
            return Ok(Json(Leased { copies: Vec::new() }));
        }
    }
}

/// Change when a lease ends
///
/// The lease lasts this long from now, which may be longer or shorter than before.
#[utoipa::path(post, path = "/v1/admin/queues/{queue}/copies/{id}/extend", operation_id = "extend_copy", tag = "queues",
    request_body = ExtendRequest, responses(
    (status = 200, description = "The new end of the lease", body = Extended),
    (status = 409, description = "The copy is not held by this lease"),
    (status = 410, description = "The lease is over (`lease-over`)")))]
pub(crate) async fn extend(
    State(api): State<Api>,
    _: Caller,
    QueuePath(queue): QueuePath,
    EventPath(id): EventPath,
    body::Json(request): body::Json<ExtendRequest>,
) -> Result<Json<Extended>, Problem> {
    let (token, lease) = request.read()?;
    let lease_until = api.admin.extend_copy(&queue, id, &token, lease).await?;
    Ok(Json(Extended { lease_until }))
}

/// Complete a copy
///
/// The copy is deleted.
///
/// A request whose response was lost may have been carried out. Repeated, it is answered with 404
/// if it was.
#[utoipa::path(post, path = "/v1/admin/queues/{queue}/copies/{id}/complete", operation_id = "complete_copy", tag = "queues",
    request_body = CompleteRequest, responses(
    (status = 204, description = "The copy is completed and deleted"),
    (status = 409, description = "The copy is not held by this lease"),
    (status = 410, description = "The lease is over (`lease-over`)")))]
pub(crate) async fn complete(
    State(api): State<Api>,
    _: Caller,
    QueuePath(queue): QueuePath,
    EventPath(id): EventPath,
    body::Json(request): body::Json<CompleteRequest>,
) -> Result<StatusCode, Problem> {
    let token: LeaseToken = request.read()?;
    api.admin.complete_copy(&queue, id, &token).await?;
    api.pulls.metrics.pulled(&queue, "completed", 1);
    Ok(StatusCode::NO_CONTENT)
}

/// Return a copy to the queue
///
/// Returns it as if it had not been leased or, with an `error`, as a failed attempt.
#[utoipa::path(post, path = "/v1/admin/queues/{queue}/copies/{id}/release", operation_id = "release_copy", tag = "queues",
    request_body = ReleaseRequest, responses(
    (status = 200, description = "The copy can be leased again, or died", body = Released),
    (status = 409, description = "The copy is not held by this lease"),
    (status = 410, description = "The lease is over (`lease-over`)")))]
pub(crate) async fn release(
    State(api): State<Api>,
    _: Caller,
    QueuePath(queue): QueuePath,
    EventPath(id): EventPath,
    body::Json(request): body::Json<ReleaseRequest>,
) -> Result<Json<Released>, Problem> {
    let (token, release) = request.read()?;
    let released = Released::from(api.admin.release_copy(&queue, id, &token, &release).await?);
    match (released.died, &release.error) {
        (true, _) => api.pulls.metrics.pulled(&queue, "died", 1),
        (false, Some(_)) => api.pulls.metrics.pulled(&queue, "failed", 1),
        (false, None) => api.pulls.metrics.pulled(&queue, "released", 1),
    }
    Ok(Json(released))
}

impl From<InvalidPull> for Problem {
    fn from(error: InvalidPull) -> Self {
        Self::bad_request(error.to_string()).because(error)
    }
}
