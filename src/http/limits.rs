//! How much a process takes on at a time, and what happens beyond: a quick refusal, never a queue of requests.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use super::problem::{Kind, Problem};

/// The bounds of one request, and of all together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) body_bytes: usize,
    pub(super) body_time: Duration,
    pub(super) request_time: Duration,
    pub(super) requests: usize,
}

/// Room for requests.
#[derive(Clone)]
pub(super) struct Slots {
    room: Arc<Semaphore>,
    request_time: Duration,
}

impl Slots {
    pub(super) fn new(limits: Limits) -> Self {
        Self { room: Arc::new(Semaphore::new(limits.requests)), request_time: limits.request_time }
    }
}

/// Runs a request if there is room for it, and not for longer than its time. Whether the process lives is always told.
pub(super) async fn shed(State(slots): State<Slots>, request: Request, next: Next) -> Response {
    if request.uri().path() == super::health::ALIVE {
        return next.run(request).await;
    }
    let Ok(_slot) = slots.room.try_acquire() else {
        return Problem::new(Kind::TooManyRequests, "this process is busy: try again").into_response();
    };
    match tokio::time::timeout(slots.request_time, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let limit = slots.request_time.as_secs();
            let words = format!(
                "no answer within {limit} s; whether it took effect is unknown: look, then try again"
            );
            Problem::new(Kind::Unavailable, words).into_response()
        }
    }
}
