//! Permits for concurrent requests. Beyond the limits, requests are refused quickly and never
//! queued.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Api;
use super::bytes::ByteReservation;
use super::problem::{Kind, Problem};
use super::shares::{LimitKey, Reservation};

/// The path whose requests last as long as handlers.
pub(super) const PUSH_PATH: &str = "/v1/push";
/// Maximum time of a push, including everything before and after the run.
const PUSH_TIME_MAX: Duration = Duration::from_secs(630);

/// Delay of refusals to callers that exceeded their share, so that each connection of a client that
/// retries at once and without end costs one refusal in this time.
const REFUSAL_DELAY: Duration = Duration::from_secs(1);

/// Permits for concurrent requests. Pushes, which last as long as handlers, have a limit of their
/// own of the same size, so that neither kind keeps the other out.
pub(crate) struct Slots {
    regular: RequestPool,
    pushes: RequestPool,
    api: Api,
    /// Permits for delayed refusals.
    refusal_permits: Semaphore,
}

/// Permits for requests of a kind, and their time limit.
struct RequestPool {
    permits: Arc<Semaphore>,
    time: Duration,
}

impl Slots {
    pub(crate) fn new(api: Api) -> Self {
        let limits = &api.limits;
        let pool = |time| RequestPool { permits: Arc::new(Semaphore::new(limits.requests)), time };
        Self {
            regular: pool(limits.request_time),
            pushes: pool(PUSH_TIME_MAX.max(limits.request_time)),
            refusal_permits: Semaphore::new(limits.delayed_refusals),
            api,
        }
    }

    fn of(&self, path: &str) -> &RequestPool {
        if path == PUSH_PATH { &self.pushes } else { &self.regular }
    }
}

/// The permit of one request. It is released while the request's body arrives, so that slow bodies
/// keep no one out.
pub(crate) struct Slot {
    permits: Arc<Semaphore>,
    api: Api,
    /// The keys that the request counts for, once they are known.
    limit_keys: OnceLock<Arc<[LimitKey]>>,
    held: Mutex<HeldPermits>,
}

/// The permits and bytes that a request holds.
#[derive(Default)]
struct HeldPermits {
    permit: Option<OwnedSemaphorePermit>,
    share: Option<Reservation>,
    /// The bytes of its body, which stay in memory in one form or another until it ends.
    body: Option<ByteReservation>,
}

impl Slot {
    fn of(permits: &Arc<Semaphore>, api: &Api) -> Result<Self, Problem> {
        let (limit_keys, held) = (OnceLock::new(), Mutex::default());
        let slot = Self { permits: Arc::clone(permits), api: api.clone(), limit_keys, held };
        slot.acquire().map(|()| slot)
    }

    /// Counts the request for these keys, if they have capacity left.
    pub(super) fn count_for(&self, limit_keys: Arc<[LimitKey]>) -> Result<(), Problem> {
        let share = self.api.shares.reserve_request(&limit_keys)?;
        if self.limit_keys.set(limit_keys).is_ok() {
            self.held().share = Some(share);
        }
        Ok(())
    }

    /// Acquires the permit, if one is available.
    pub(crate) fn acquire(&self) -> Result<(), Problem> {
        let busy = |_| Problem::new(Kind::TooManyRequests, "this process is busy: try again");
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(busy)?;
        let share = self.limit_keys.get().map(|keys| self.api.shares.reserve_request(keys)).transpose()?;
        let mut held = self.held();
        (held.permit, held.share) = (Some(permit), share);
        Ok(())
    }

    /// Releases the permit.
    pub(crate) fn release(&self) {
        let mut held = self.held();
        (held.permit, held.share) = (None, None);
    }

    /// Holds the bytes of the body until the request ends.
    pub(super) fn hold_body(&self, body: ByteReservation) {
        self.held().body = Some(body);
    }

    fn release_all(&self) {
        *self.held() = HeldPermits::default();
    }

    fn held(&self) -> MutexGuard<'_, HeldPermits> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a request if a permit is available, within its time limit. The liveness check needs no
/// permit.
pub(crate) async fn shed(State(slots): State<Arc<Slots>>, mut request: Request, next: Next) -> Response {
    if request.uri().path() == super::health::ALIVE {
        return next.run(request).await;
    }
    let pool = slots.of(request.uri().path());
    let slot = match Slot::of(&pool.permits, &slots.api) {
        Ok(slot) => Arc::new(slot),
        Err(busy) => return busy.into_response(),
    };
    request.extensions_mut().insert(Arc::clone(&slot));
    let response = tokio::time::timeout(pool.time, next.run(request)).await;
    // A clone of the slot may outlive the request's future.
    slot.release_all();
    match response {
        Ok(response) => {
            if response.extensions().get().is_some_and(Problem::is_delayed)
                && let Ok(_permit) = slots.refusal_permits.try_acquire()
            {
                tokio::time::sleep(REFUSAL_DELAY).await;
            }
            response
        }
        Err(_) => {
            let limit = pool.time.as_secs();
            let words = format!(
                "no answer within {limit} s; it is unknown whether the request took effect: check, \
                 then try again"
            );
            Problem::new(Kind::Unavailable, words).into_response()
        }
    }
}
