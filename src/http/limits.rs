//! How much a process takes on at a time, and what happens beyond: a quick refusal, never a queue of requests.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{Kind, Problem};
use super::shares::{Party, Shares, Taken};

/// The bounds of one request, and of all together. Cheap to clone.
#[derive(Clone)]
pub(super) struct Limits {
    pub(super) body_bytes: usize,
    pub(super) body_time: Duration,
    pub(super) request_time: Duration,
    pub(super) requests: usize,
    /// Bytes of bodies that have not arrived whole.
    pub(super) unfinished: Arc<Semaphore>,
}

/// Room for requests. Pushes, which last as long as handlers, have as much of their own: neither they nor the others keep
/// the others out.
#[derive(Clone)]
pub(super) struct Slots {
    usual: Room,
    pushes: Room,
    shares: Shares,
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
    parties: Arc<OnceLock<Vec<Party>>>,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    room: Option<OwnedSemaphorePermit>,
    share: Option<Taken>,
    /// What its body takes, until it is answered.
    body: Vec<Taken>,
}

impl Slot {
    fn of(room: &Arc<Semaphore>, shares: &Shares) -> Result<Self, Problem> {
        let (parties, held) = (Arc::default(), Arc::default());
        let slot = Self { room: Arc::clone(room), shares: shares.clone(), parties, held };
        slot.take().map(|()| slot)
    }

    /// Counts the request for those who send it, if they have a share left.
    pub(super) fn belongs_to(&self, parties: Vec<Party>) -> Result<(), Problem> {
        let share = self.shares.request(&parties)?;
        if self.parties.set(parties).is_ok() {
            self.held().share = Some(share);
        }
        Ok(())
    }

    /// Takes room, if there is any.
    pub(super) fn take(&self) -> Result<(), Problem> {
        let busy = |_| Problem::new(Kind::TooManyRequests, "this process is busy: try again");
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(busy)?;
        let share = self.parties.get().map(|parties| self.shares.request(parties)).transpose()?;
        let mut held = self.held();
        (held.room, held.share) = (Some(room), share);
        Ok(())
    }

    /// Leaves the room to others.
    pub(super) fn leave(&self) {
        let mut held = self.held();
        (held.room, held.share) = (None, None);
    }

    /// Takes of the share of those who send it what a piece of the body needs, until the request is answered.
    pub(super) fn hold_bytes(&self, count: usize) -> Result<(), Problem> {
        let Some(parties) = self.parties.get() else { return Ok(()) };
        let taken = self.shares.bytes(parties, count)?;
        self.held().body.push(taken);
        Ok(())
    }

    fn end(&self) {
        *self.held() = Held::default();
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
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
        Ok(response) => response,
        Err(_) => {
            let limit = room.time.as_secs();
            let words = format!(
                "no answer within {limit} s; whether it took effect is unknown: look, then try again"
            );
            Problem::new(Kind::Unavailable, words).into_response()
        }
    }
}
