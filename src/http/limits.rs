//! How much a process takes on at a time, and what happens beyond: a quick refusal, never a queue of requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::bytes::{Answers, Held, Shares};
use super::problem::{Kind, Problem};

/// The bounds of one request, and of all together. Cheap to clone.
#[derive(Clone)]
pub(super) struct Limits {
    pub(super) body_bytes: usize,
    pub(super) body_time: Duration,
    pub(super) request_time: Duration,
    pub(super) requests: usize,
    /// Bytes of bodies, from when they arrive to the end of their requests.
    pub(super) bodies: Arc<Shares>,
    /// Bytes of answers that are on their way.
    pub(super) answers: Answers,
}

/// Room for requests. Pushes, which last as long as handlers, have as much of their own: neither they nor the others keep
/// the others out.
#[derive(Clone)]
pub(super) struct Slots {
    usual: Room,
    pushes: Room,
}

/// Room for requests of a kind, and how long each may take.
#[derive(Clone)]
struct Room {
    slots: Arc<Semaphore>,
    time: Duration,
}

impl Slots {
    pub(super) fn new(limits: &Limits) -> Self {
        let room = |time| Room { slots: Arc::new(Semaphore::new(limits.requests)), time };
        Self {
            usual: room(limits.request_time),
            pushes: room(super::push::TIME_MAX.max(limits.request_time)),
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
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
    /// The bytes of the request's body, which are here in one form or another as long as the request lasts.
    body: Arc<Mutex<Option<Held>>>,
}

impl Slot {
    fn of(room: &Arc<Semaphore>) -> Result<Self, Problem> {
        let slot = Self { room: Arc::clone(room), held: Arc::default(), body: Arc::default() };
        slot.take().map(|()| slot)
    }

    /// Takes room, if there is any.
    pub(super) fn take(&self) -> Result<(), Problem> {
        let busy = |_| Problem::new(Kind::TooManyRequests, "this process is busy: try again");
        let permit = Arc::clone(&self.room).try_acquire_owned().map_err(busy)?;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
        Ok(())
    }

    /// Leaves the room to others.
    pub(super) fn leave(&self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Holds the bytes of the body until the request ends.
    pub(super) fn keep(&self, body: Held) {
        *self.body.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
    }

    fn end(&self) {
        self.leave();
        self.body.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Runs a request if there is room for it, and not for longer than its time. Whether the process lives is always told.
pub(super) async fn shed(State(slots): State<Slots>, mut request: Request, next: Next) -> Response {
    if request.uri().path() == super::health::ALIVE {
        return next.run(request).await;
    }
    let room = slots.of(request.uri().path());
    let slot = match Slot::of(&room.slots) {
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
