//! An event as its handler receives it, and the form that every handler has once it is registered.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;

use crate::event::{CopyOf, EventId, HandlerAddress, Metadata, Place, Timestamp};
use crate::store::ClaimedEvent;
use crate::worker::answers::{HandlerError, HandlerResult};

/// A handler, called once per attempt.
pub type BoxedHandler = Arc<dyn Fn(Execution) -> BoxFuture<'static, HandlerResult> + Send + Sync>;

/// An event passed to its handler.
#[derive(Clone, Debug)]
pub struct Execution {
    /// The event's id: the same in every attempt, so it can be a key for idempotent effects. If the
    /// caller chose an id, this is [`EventId::chosen`] of it.
    pub id: EventId,
    /// The handler's address.
    pub address: HandlerAddress,
    /// The emitted value as JSON.
    pub json: String,
    /// The attempt, counted from 1. Attempts whose process died are not counted.
    pub attempt: u32,
    /// How often the event has lost its worker: by a crash, or because its lease could not be
    /// renewed.
    pub losses: u32,
    /// When it was emitted.
    pub enqueued_at: Timestamp,
    /// When it was due.
    pub due_at: Timestamp,
    /// When this attempt claimed the event, on the database's clock.
    pub claimed_at: Timestamp,
    /// Its metadata, with the trace of this attempt.
    pub metadata: Metadata,
    /// The object that the event is on, and its link in the object's chain.
    pub place: Option<Place>,
    /// If the event is a copy: its registered queue, and the event that was copied.
    pub copy_of: Option<CopyOf>,
}

/// The kind of source that emitted an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A program that uses the library, or a caller of the API. The content is theirs.
    Emitted,
    /// A tick of a cron on the event's canvas.
    Cron,
    /// An entity on the event's canvas, reporting the outcome of another event.
    Entity,
}

impl Execution {
    pub(in crate::worker) fn of(event: ClaimedEvent, attempt: u32) -> Self {
        Self {
            id: event.claim.id,
            address: event.address,
            json: event.value,
            attempt,
            losses: u32::try_from(event.losses).unwrap_or(0),
            enqueued_at: event.enqueued_at,
            due_at: event.delay_until,
            claimed_at: event.locked_at,
            metadata: event.metadata,
            place: event.place,
            copy_of: event.copy_of,
        }
    }

    /// The source of the event. Only crons and entities can emit events of the modules `CRON` and
    /// `ANSWER`: every other way to emit refuses these modules. A copy in a queue has the origin of
    /// the event that was copied.
    ///
    /// ```
    /// use wakeq::workers::Origin;
    /// use wakeq::{Execution, HandlerError, HandlerResult};
    ///
    /// async fn nightly(execution: Execution) -> HandlerResult {
    ///     match execution.origin() {
    ///         Origin::Cron => Ok(()),
    ///         _ => Err(HandlerError::operational("this is for the cron")),
    ///     }
    /// }
    /// ```
    pub fn origin(&self) -> Origin {
        match self.address.scope.module.as_str() {
            "CRON" => Origin::Cron,
            "ANSWER" => Origin::Entity,
            _ => Origin::Emitted,
        }
    }

    /// Deserializes the emitted value. A value of another shape is an operational error, so that
    /// the event ends up among the dead events, where it can be seen.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        serde_json::from_str(&self.json).map_err(|error| {
            HandlerError::operational(format!("the event's value does not fit the handler: {error}"))
        })
    }
}
