//! Why nothing was emitted.

use crate::event::{EventError, InvalidIdempotencyKey};
use crate::store::StoreError;

/// Maximum number of events that one call may emit.
pub(super) const EVENTS_MAX: usize = 10_000;

/// Why nothing was emitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// The event itself can't be emitted.
    #[error(transparent)]
    Event(#[from] EventError),
    /// Postgres did not accept it. After [`StoreError::TimedOut`] and [`StoreError::Unavailable`]
    /// the event may have been stored all the same: emit again with an id of your choice to get
    /// exactly one event.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Others emit on the same object, log into the same stream, or emit with the same unique key,
    /// all the time, or an open transaction holds it: nothing was emitted.
    #[error(
        "other transactions hold an object that this call emits on, a stream that it logs into, or a \
         unique key: nothing was emitted. Emit again; emit many events on an object in one call, and \
         keep your own transactions that emit on objects or with unique keys short"
    )]
    ObjectBusy(#[source] StoreError),
    /// An earlier emit with this idempotency key has not ended yet.
    #[error("an emit with this idempotency key is in progress: retry shortly, with the same key")]
    IdempotencyInProgress,
    /// The idempotency key was used for a different request.
    #[error("this idempotency key was used for a different request in the last 24 hours: choose a new one")]
    IdempotencyMismatch,
    /// The idempotency key is not valid.
    #[error(transparent)]
    IdempotencyKey(#[from] InvalidIdempotencyKey),
    /// The events of one change of an object are on several canvases.
    #[error("an object and the events on it belong to one canvas: emit those of others separately")]
    OtherCanvas,
    /// More events than one call may emit.
    #[error("{0} events in one call, the limit is {EVENTS_MAX}: emit them in several calls")]
    TooMany(usize),
}
