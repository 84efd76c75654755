//! Copies of queues that services pull: leased, extended, completed, released. They are of every canvas.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Api;
use super::body::{self, EventPath, QueuePath};
use super::guard::Caller;
use super::limits::Slot;
use super::problem::{Details, Kind, Problem};
use crate::admin::LeasedNow;
use crate::api::{
    CompleteRequest, ExtendRequest, Extended, InvalidPull, LeaseRequest, Leased, ReleaseRequest, Released,
};
use crate::event::{Cause, HandlerScope, LeaseToken, Name};
use crate::telemetry::{PullMetrics, RunMetrics};

/// Most requests of a process that wait for copies.
const WAITING_MAX: usize = 100;
/// What is left of a request's time when it stops to wait.
const TO_ANSWER: Duration = Duration::from_secs(5);

/// Room for requests that wait for copies, and what becomes of copies. Cheap to clone.
#[derive(Clone)]
pub(super) struct Pulling {
    waiting: Arc<Semaphore>,
    metrics: PullMetrics,
    /// Beside those of the workers.
    runs: Arc<RunMetrics>,
    /// Ends what waits.
    stop: CancellationToken,
}

impl Pulling {
    pub(super) fn new(stop: CancellationToken) -> Self {
        let waiting = Arc::new(Semaphore::new(WAITING_MAX));
        Self { waiting, metrics: PullMetrics::new(), runs: Arc::default(), stop }
    }

    /// Counts copies of a queue that died, each by the handler that its event names.
    fn died(&self, queue: &Name, scopes: &[HandlerScope], cause: Cause) {
        self.metrics.pulled(queue, "died", scopes.len());
        scopes.iter().for_each(|scope| self.runs.died(scope, cause));
    }
}

/// Lease copies of a pulled queue: until the leases end, nobody else gets these.
///
/// Canvases take turns, each with its oldest copies first. An answer has values of 4 MiB, or one copy; a copy whose leases ran out twice
/// comes alone. With `wait_s` the answer comes as soon as there are any. A copy whose lease runs out comes again, and dies when that has
/// happened five times.
#[utoipa::path(post, path = "/v1/admin/queues/{queue}/copies/lease", operation_id = "lease_copies", tag = "queues",
    request_body = LeaseRequest, responses(
    (status = 200, description = "What there is to take, none included", body = Leased),
    (status = 409, description = "The queue is not pulled", body = Details, content_type = "application/problem+json")))]
pub(super) async fn lease(
    State(api): State<Api>,
    _: Caller,
    QueuePath(queue): QueuePath,
    Extension(slot): Extension<Slot>,
    body::Json(request): body::Json<LeaseRequest>,
) -> Result<Json<Leased>, Problem> {
    let (lease, wait) = request.read()?;
    crate::admin::check_wait(wait)?;
    let end = Instant::now() + wait.min(api.limits.request_time.saturating_sub(TO_ANSWER));
    let mut waiting = None;
    loop {
        let LeasedNow { copies, died } = api.admin.lease_now(&queue, request.max, lease).await?;
        api.pulling.died(&queue, &died, Cause::Poison);
        if !copies.is_empty() || Instant::now() >= end {
            api.pulling.metrics.pulled(&queue, "leased", copies.len());
            return Leased::of(copies).map(Json).map_err(|error| Problem::internal(&error));
        }
        if waiting.is_none() {
            waiting = Some(api.pulling.waiting.try_acquire().map_err(|_| {
                Problem::new(Kind::TooManyRequests, "too many requests wait for copies here: try again")
            })?);
        }
        // Others have its room meanwhile.
        slot.leave();
        let woken = api.pulling.stop.run_until_cancelled(api.admin.await_copies(&queue, end)).await;
        slot.take()?;
        if !woken.unwrap_or(Ok(false))? {
            return Ok(Json(Leased { copies: Vec::new() }));
        }
    }
}

/// Let a lease end later, or earlier: so long from now.
#[utoipa::path(post, path = "/v1/admin/queues/{queue}/copies/{id}/extend", operation_id = "extend_copy", tag = "queues",
    request_body = ExtendRequest, responses(
    (status = 200, description = "It ends then", body = Extended),
    (status = 409, description = "The copy is not held by this lease", body = Details, content_type = "application/problem+json"),
    (status = 410, description = "The lease is over (`lease-over`)", body = Details, content_type = "application/problem+json")))]
pub(super) async fn extend(
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

/// Complete a copy: it is gone.
///
/// A request whose answer was lost may have been carried out: sent again, it is answered 404 if it was.
#[utoipa::path(post, path = "/v1/admin/queues/{queue}/copies/{id}/complete", operation_id = "complete_copy", tag = "queues",
    request_body = CompleteRequest, responses(
    (status = 204, description = "It is done, and gone"),
    (status = 409, description = "The copy is not held by this lease", body = Details, content_type = "application/problem+json"),
    (status = 410, description = "The lease is over (`lease-over`)", body = Details, content_type = "application/problem+json")))]
pub(super) async fn complete(
    State(api): State<Api>,
    _: Caller,
    QueuePath(queue): QueuePath,
    EventPath(id): EventPath,
    body::Json(request): body::Json<CompleteRequest>,
) -> Result<StatusCode, Problem> {
    let token: LeaseToken = request.read()?;
    api.admin.complete_copy(&queue, id, &token).await?;
    api.pulling.metrics.pulled(&queue, "completed", 1);
    Ok(StatusCode::NO_CONTENT)
}

/// Give a copy back: as if it had not been taken, or with an `error` as one that failed.
#[utoipa::path(post, path = "/v1/admin/queues/{queue}/copies/{id}/release", operation_id = "release_copy", tag = "queues",
    request_body = ReleaseRequest, responses(
    (status = 200, description = "It comes again, or was tried often enough", body = Released),
    (status = 409, description = "The copy is not held by this lease", body = Details, content_type = "application/problem+json"),
    (status = 410, description = "The lease is over (`lease-over`)", body = Details, content_type = "application/problem+json")))]
pub(super) async fn release(
    State(api): State<Api>,
    _: Caller,
    QueuePath(queue): QueuePath,
    EventPath(id): EventPath,
    body::Json(request): body::Json<ReleaseRequest>,
) -> Result<Json<Released>, Problem> {
    let (token, release) = request.read()?;
    let (released, scope) = api.admin.give_back(&queue, id, &token, &release).await?;
    let released = Released::from(released);
    match (released.died, &release.error) {
        (true, _) => api.pulling.died(&queue, &[scope], Cause::Retries),
        (false, Some(_)) => api.pulling.metrics.pulled(&queue, "failed", 1),
        (false, None) => api.pulling.metrics.pulled(&queue, "released", 1),
    }
    Ok(Json(released))
}

impl From<InvalidPull> for Problem {
    fn from(error: InvalidPull) -> Self {
        Self::bad_request(error.to_string())
    }
}
