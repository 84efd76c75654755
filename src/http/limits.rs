//! Limits on concurrent requests. Beyond them, requests are refused quickly and never queued.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::bytes::{Answers, Budget, Held};
use super::problem::{Kind, Problem};
use super::shares::{Party, Shares, Taken};

/// Delay of refusals to callers that exceeded their share, so that each connection of a client that
/// retries at once and without end costs one refusal in this time.
const LATE: Duration = Duration::from_secs(1);

/// The limits of each request, and of all of them together. Cheap to clone.
#[derive(Clone)]
pub(super) struct Limits {
    pub(super) body_bytes: usize,
    pub(super) body_time: Duration,
    pub(super) request_time: Duration,
    pub(super) requests: usize,
    /// Refusals that are delayed at a time.
    pub(super) late: usize,
    /// Bytes of bodies, from their arrival to the end of their requests.
    pub(super) bodies: Arc<Budget>,
    /// Bytes of answers being sent.
    pub(super) answers: Answers,
}

/// Permits for concurrent requests. Pushes, which last as long as handlers, have a limit of their
/// own of the same size, so that neither kind keeps the other out.
#[derive(Clone)]
pub(super) struct Slots {
    usual: Room,
    pushes: Room,
    shares: Shares,
    /// Permits for delayed refusals.
    doorstep: Arc<Semaphore>,
}

/// Permits for requests of a kind, and their time limit.
#[derive(Clone)]
struct Room {
    slots: Arc<Semaphore>,
    time: Duration,
}

impl Slots {
    pub(super) fn new(limits: &Limits, shares: &Shares) -> Self {
        let room = |time| Room { slots: Arc::new(Semaphore::new(limits.requests)), time };
        Self {
            usual: room(limits.request_time),
            pushes: room(super::push::TIME_MAX.max(limits.request_time)),
            shares: shares.clone(),
            doorstep: Arc::new(Semaphore::new(limits.late)),
        }
    }

    fn of(&self, path: &str) -> &Room {
        if path == super::push::PATH { &self.pushes } else { &self.usual }
    }
}

/// The permit of one request. It is released while the request's body arrives, so that slow bodies
/// keep no one out.
#[derive(Clone)]
pub(super) struct Slot {
    room: Arc<Semaphore>,
    shares: Shares,
    /// The parties that the request counts for, once they are known.
    parties: Arc<OnceLock<Arc<[Party]>>>,
    taken: Arc<Mutex<Taking>>,
}

/// What a request holds.
#[derive(Default)]
struct Taking {
    room: Option<OwnedSemaphorePermit>,
    share: Option<Taken>,
    /// The bytes of its body, which stay in memory in one form or another until it ends.
    body: Option<Held>,
}

impl Slot {
    fn of(room: &Arc<Semaphore>, shares: &Shares) -> Result<Self, Problem> {
        let (parties, taken) = (Arc::default(), Arc::default());
        let slot = Self { room: Arc::clone(room), shares: shares.clone(), parties, taken };
        slot.take().map(|()| slot)
    }

    /// Counts the request for these parties, if they have capacity left.
    pub(super) fn belongs_to(&self, parties: Arc<[Party]>) -> Result<(), Problem> {
        let share = self.shares.request(&parties)?;
        if self.parties.set(parties).is_ok() {
            self.taken().share = Some(share);
        }
        Ok(())
    }

    /// Acquires the permit, if one is available.
    pub(super) fn take(&self) -> Result<(), Problem> {
        let busy = |_| Problem::new(Kind::TooManyRequests, "this process is busy: try again");
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(busy)?;
        let share = self.parties.get().map(|parties| self.shares.request(parties)).transpose()?;
        let mut taken = self.taken();
        (taken.room, taken.share) = (Some(room), share);
        Ok(())
    }

    /// Releases the permit.
    pub(super) fn leave(&self) {
        let mut taken = self.taken();
        (taken.room, taken.share) = (None, None);
    }

    /// Holds the bytes of the body until the request ends.
    pub(super) fn keep(&self, body: Held) {
        self.taken().body = Some(body);
    }

    fn end(&self) {
        *self.taken() = Taking::default();
    }

    fn taken(&self) -> MutexGuard<'_, Taking> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a request if a permit is available, within its time limit. The liveness check needs no
/// permit.
pub(super) async fn shed(State(slots): State<Slots>, mut request: Request, next: Next) -> Response {
    if request.uri().path() == super::health::ALIVE {
        return next.run(request).await;
    }
    let room = slots.of(request.uri().path());
    let slot = match Slot::of(&room.slots, &slots.shares) {
        Ok(slot) => slot,
        Err(busy) => return busy.into_response(),
    };
    request.extensions_mut().insert(slot.clone());
    let response = tokio::time::timeout(room.time, next.run(request)).await;
    // A clone of the slot may outlive the request's future.
    slot.end();
    match response {
        Ok(response) => {
            if response.extensions().get().is_some_and(Problem::is_late)
                && let Ok(_place) = slots.doorstep.try_acquire()
            {
                tokio::time::sleep(LATE).await;
            }
            response
        }
        Err(_) => {
            let limit = room.time.as_secs();
            let words = format!(
                "no answer within {limit} s; it is unknown whether the request took effect: check, \
                 then try again"
            );
            Problem::new(Kind::Unavailable, words).into_response()
        }
    }
}
