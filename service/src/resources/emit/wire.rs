//! Emitting: requests and answers.

mod event;
pub(crate) mod json;
mod options;
pub(crate) mod refusal;
mod unique;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::objects::wire::LinkJson;
pub(crate) use event::NewEvent;
pub(crate) use options::OptionsJson;
pub(crate) use unique::{OnConflictJson, UniqueJson, UniqueOutcomeJson, UniqueUntil};
use wakeq::events::UniqueOutcome;

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
/// `object`, `delayuntil`, `delayseconds`, `expirytime`, `limits` (keys, separated by commas),
/// `urgent` (true or false) and `traceparent`.
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
#[schema(as = Emitted)]
pub(crate) struct EmittedJson {
    /// The event's id; if its unique key was taken, that of the event that has the key.
    pub(crate) id: Uuid,
    /// Whether the chosen id had been emitted before, so that nothing was added.
    pub(crate) duplicate: bool,
    /// The event's link in the chain of its object; omitted if it has no object or is a duplicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<LinkJson>,
    /// Number of registered queues that received a copy; omitted if none did.
    #[serde(default, skip_serializing_if = "is_none")]
    #[schema(minimum = 0)]
    pub(crate) copies: u32,
    /// What was done, if the event has a unique key; omitted if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<UniqueOutcomeJson>,
    /// When the event is due now; omitted if it was not postponed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<DateTime<Utc>>,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

/// Emitted events, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct EmittedBatch {
    pub(crate) events: Vec<EmittedJson>,
}

/// The response for one event, or for a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum EmitAnswer {
    One(EmittedJson),
    Batch(EmittedBatch),
}

impl From<wakeq::Emitted> for EmittedJson {
    fn from(emitted: wakeq::Emitted) -> Self {
        let due = match emitted.unique {
            Some(UniqueOutcome::Postponed { due }) => Some(due),
            Some(UniqueOutcome::Inserted | UniqueOutcome::Kept | UniqueOutcome::Replaced) | None => None,
        };
        Self {
            id: emitted.id.0,
            duplicate: emitted.duplicate,
            link: emitted.link.map(LinkJson::from),
            copies: emitted.copies,
            outcome: emitted.unique.map(UniqueOutcomeJson::from),
            due,
        }
    }
}

impl EmitAnswer {
    /// The answer to a batch, in its order.
    pub(crate) fn batch(emitted: &[wakeq::Emitted]) -> Self {
        Self::Batch(EmittedBatch { events: emitted.iter().copied().map(EmittedJson::from).collect() })
    }

    /// As JSON text.
    pub(crate) fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }
}
