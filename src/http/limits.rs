//! How much a process takes on at a time, and what happens beyond: a quick refusal, never a queue of requests.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::bytes::{Answers, Budget, Held};
use super::problem::{Kind, Problem};
use super::shares::{Party, Shares, Taken};

/// How late whoever took more than a share is told so. Of callers that come again at once, and never end, each connection costs
/// one refusal in this time.
const LATE: Duration = Duration::from_secs(1);

/// The bounds of one request, and of all together. Cheap to clone.
#[derive(Clone)]
pub(super) struct Limits {
    pub(super) body_bytes: usize,
    pub(super) body_time: Duration,
    pub(super) request_time: Duration,
    pub(super) requests: usize,
    /// Refusals that wait to be told.
    pub(super) late: usize,
    /// Bytes of bodies, from when they arrive to the end of their requests.
    pub(super) bodies: Arc<Budget>,
    /// Bytes of answers that are on their way.
    pub(super) answers: Answers,
}

/// Room for requests. Pushes, which last as long as handlers, have as much of their own: neither they nor the others keep
/// the others out.
#[derive(Clone)]
pub(super) struct Slots {
    usual: Room,
    pushes: Room,
    shares: Shares,
    /// For refusals that are told late.
    doorstep: Arc<Semaphore>,
}

/// Room for requests of a kind, and how long each may take.
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

/// The room that one request takes. It is left to others while the request's body arrives, so that slow bodies keep
/// nobody out.
#[derive(Clone)]
pub(super) struct Slot {
    room: Arc<Semaphore>,
    shares: Shares,
    /// Whom the request counts for, once that is known.
    parties: Arc<OnceLock<Arc<[Party]>>>,
    taken: Arc<Mutex<Taking>>,
}

/// What a request has taken.
#[derive(Default)]
struct Taking {
    room: Option<OwnedSemaphorePermit>,
    share: Option<Taken>,
    /// The bytes of its body, which are here in one form or another as long as it lasts.
    body: Option<Held>,
}

impl Slot {
    fn of(room: &Arc<Semaphore>, shares: &Shares) -> Result<Self, Problem> {
        let (parties, taken) = (Arc::default(), Arc::default());
        let slot = Self { room: Arc::clone(room), shares: shares.clone(), parties, taken };
        slot.take().map(|()| slot)
    }

    /// Counts the request for those who send it, if they have a share left.
    pub(super) fn belongs_to(&self, parties: Arc<[Party]>) -> Result<(), Problem> {
        let share = self.shares.request(&parties)?;
        if self.parties.set(parties).is_ok() {
            self.taken().share = Some(share);
        }
        Ok(())
    }

    /// Takes room, if there is any.
    pub(super) fn take(&self) -> Result<(), Problem> {
        let busy = |_| Problem::new(Kind::TooManyRequests, "this process is busy: try again");
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(busy)?;
        let share = self.parties.get().map(|parties| self.shares.request(parties)).transpose()?;
        let mut taken = self.taken();
        (taken.room, taken.share) = (Some(room), share);
        Ok(())
    }

    /// Leaves the room to others.
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

/// Runs a request if there is room for it, and not for longer than its time. Whether the process lives is always told.
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
    // A clone of it may live on with what is left of the request.
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
                "no answer within {limit} s; whether it took effect is unknown: look, then try again"
            );
            Problem::new(Kind::Unavailable, words).into_response()
        }
    }
}
