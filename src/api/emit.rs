//! Emitting: what is sent, and what is answered.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Link, Logged};
use crate::emit;

/// An event to be emitted.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEvent {
    /// The handler's module, `WORKER` if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "WORKER")]
    pub(crate) module: Option<String>,
    /// The handler's name.
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "send-email")]
    pub(crate) name: String,
    /// The handler's modifier, `_` if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "_")]
    pub(crate) modifier: Option<String>,
    /// What the handler gets, kept to the letter; null if it is left out. Nested 64 deep at most, and without NUL.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) value: Option<Box<RawValue>>,
    /// An id of the caller's choice: emitting it again within 7 days adds nothing. It counts on this canvas only; the event's
    /// own id is in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<Uuid>,
    /// Not to run before this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_until: Option<DateTime<Utc>>,
    /// Not to run before so many seconds have passed. Excludes `delay_until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 3_162_240_000.0)]
    pub(crate) delay_s: Option<f64>,
    /// The object it is about: it runs after every earlier event on the same object for the same handler. A part of an
    /// object, written after a `/`, belongs to the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        pattern = "^[A-Za-z0-9_.:@=+~-]{1,200}(/[A-Za-z0-9_.:@=+~-]{1,200})*$",
        max_length = 4096,
        example = "work:1"
    )]
    pub(crate) object: Option<String>,
    /// No handler of its own gets it: only the registered queues that want it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) only_queues: bool,
    /// It is also appended to the log, in the same transaction: `true`, or into this stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logged: Option<Logged>,
}

/// Events to be emitted together: all or none.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEvents {
    #[schema(min_items = 1, max_items = 1000)]
    pub(crate) events: Vec<NewEvent>,
}

/// A change of an object: events on it, next to each other in its chain, and its state.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewChange {
    /// The event that the change is. Its `object` is that of the path, or left out.
    pub(crate) main: NewEvent,
    /// What comes with it, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, max_items = 999)]
    pub(crate) subevents: Vec<NewEvent>,
    /// What the object is from now on, any JSON but null, kept to the letter; left out, or null, it stays what it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, example = json!({"title": "Emma"}))]
    pub(crate) state: Option<Box<RawValue>>,
}

/// A CloudEvent 1.0 in JSON format. Its type names the handler: `name`, `MODULE/name` or `MODULE/name/modifier`. Any further
/// attribute may be there; `modifier`, `object`, `delayuntil`, `delayseconds` and `traceparent` mean something to the queue.
#[derive(ToSchema)]
#[allow(
    dead_code,
    reason = "only described: it is read member by member, so that its data is kept to the letter"
)]
pub(crate) struct CloudEvent {
    #[schema(pattern = r"^1\.0$", example = "1.0")]
    specversion: String,
    /// With `source` it makes the event's id: a repeat adds nothing within 7 days.
    #[schema(min_length = 1, max_length = 4096)]
    id: String,
    /// A URI reference.
    #[schema(min_length = 1, max_length = 4096, format = "uri-reference", example = "/shop")]
    source: String,
    #[serde(rename = "type")]
    #[schema(
        rename = "type",
        pattern = "^[A-Za-z0-9_.-]{1,128}(/[A-Za-z0-9_.-]{1,128}){0,2}$",
        example = "send-email"
    )]
    kind: String,
    /// What the handler gets.
    #[schema(value_type = Value)]
    data: Option<serde_json::Value>,
}

/// An event that was emitted: its row is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Emitted {
    pub(crate) id: Uuid,
    /// The id was chosen, and had been emitted before: nothing was added.
    pub(crate) duplicate: bool,
    /// Its link in the chain of its object; none if it is on no object, or a duplicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<Link>,
    /// How many registered queues got a copy; left out, if none did.
    #[serde(default, skip_serializing_if = "is_none")]
    #[schema(minimum = 0)]
    pub(crate) copies: u32,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

/// Events that were emitted, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct EmittedBatch {
    pub(crate) events: Vec<Emitted>,
}

/// One event's answer, or that of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum EmitAnswer {
    One(Emitted),
    Batch(EmittedBatch),
}

impl From<emit::Emitted> for Emitted {
    fn from(emitted: emit::Emitted) -> Self {
        Self {
            id: emitted.id.0,
            duplicate: emitted.duplicate,
            link: emitted.link.map(Link::from),
            copies: emitted.copies,
        }
    }
}

impl EmitAnswer {
    /// The answer to a batch, in its order.
    pub(crate) fn batch(emitted: &[emit::Emitted]) -> Self {
        Self::Batch(EmittedBatch { events: emitted.iter().copied().map(Emitted::from).collect() })
    }

    /// As JSON text.
    pub(crate) fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }
}
