//! Emitting: requests and answers.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::log::wire::Logged;
use crate::resources::objects::wire::Link;

/// An event to be emitted.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEvent {
    /// The handler's module. Default `WORKER`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "WORKER")]
    pub(crate) module: Option<String>,
    /// The handler's name.
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "send-email")]
    pub(crate) name: String,
    /// The handler's modifier. Default `_`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "_")]
    pub(crate) modifier: Option<String>,
    /// The value that the handler receives, stored verbatim. Default null. Nested at most 64 levels
    /// deep, and without NUL.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) value: Option<Box<RawValue>>,
    /// An id that you choose, unique on the canvas: emitting it again within 7 days adds nothing.
    /// The event's own id is in the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<Uuid>,
    /// Time before which the event does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_until: Option<DateTime<Utc>>,
    /// Delay before the event may run, in seconds. Excludes `delay_until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 3_162_240_000.0)]
    pub(crate) delay_s: Option<f64>,
    /// The object of the event: it runs after all earlier events on the object for the same
    /// handler. A part of an object, written after a `/`, belongs to the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        pattern = "^[A-Za-z0-9_.:@=+~-]{1,200}(/[A-Za-z0-9_.:@=+~-]{1,200})*$",
        max_length = 4096,
        example = "work:1"
    )]
    pub(crate) object: Option<String>,
    /// Only for the registered queues that match; the handler does not receive it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) only_queues: bool,
    /// Whether to also append the event to the log in the same transaction: `true`, or a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logged: Option<Logged>,
}

/// Events to be emitted together, all or none.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEvents {
    #[schema(min_items = 1, max_items = 1000)]
    pub(crate) events: Vec<NewEvent>,
}

/// A change of an object: events that are adjacent in its chain, and its new state.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewChange {
    /// The main event. Its `object` is the one in the path, or omitted.
    pub(crate) main: NewEvent,
    /// The events that accompany it, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, max_items = 999)]
    pub(crate) subevents: Vec<NewEvent>,
    /// The new state of the object: any JSON but null, stored verbatim. If omitted or null, the
    /// state does not change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, example = json!({"title": "Emma"}))]
    pub(crate) state: Option<Box<RawValue>>,
}

/// A CloudEvent 1.0 in JSON format. Its type names the handler: `name`, `MODULE/name` or
/// `MODULE/name/modifier`. Any further attribute is allowed; the queue interprets `modifier`,
/// `object`, `delayuntil`, `delayseconds` and `traceparent`.
#[derive(ToSchema)]
#[allow(
    dead_code,
    reason = "only described: it is read member by member, so that its data is kept to the letter"
)]
pub(crate) struct CloudEvent {
    #[schema(pattern = r"^1\.0$", example = "1.0")]
    specversion: String,
    /// Determines the event's id, together with `source`: a repeat within 7 days adds nothing.
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
    /// The value that the handler receives.
    #[schema(value_type = Value)]
    data: Option<serde_json::Value>,
}

/// An emitted event, whose row is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Emitted {
    pub(crate) id: Uuid,
    /// Whether the chosen id had been emitted before, so that nothing was added.
    pub(crate) duplicate: bool,
    /// The event's link in the chain of its object; omitted if it has no object or is a duplicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<Link>,
    /// Number of registered queues that received a copy; omitted if none did.
    #[serde(default, skip_serializing_if = "is_none")]
    #[schema(minimum = 0)]
    pub(crate) copies: u32,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

/// Emitted events, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct EmittedBatch {
    pub(crate) events: Vec<Emitted>,
}

/// The response for one event, or for a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum EmitAnswer {
    One(Emitted),
    Batch(EmittedBatch),
}

impl From<wakeq::Emitted> for Emitted {
    fn from(emitted: wakeq::Emitted) -> Self {
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
    pub(crate) fn batch(emitted: &[wakeq::Emitted]) -> Self {
        Self::Batch(EmittedBatch { events: emitted.iter().copied().map(Emitted::from).collect() })
    }

    /// As JSON text.
    pub(crate) fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }
}
