//! Objects: links of their chains, their state, and halted lanes.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::wire::{HIDDEN, wire_from};
use wakeq::control::{LIST_MAX, Page};

/// A link in the chain of an object. `prev` is smaller than `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Link)]
pub(crate) struct LinkJson {
    /// The event's number, from one sequence for all objects.
    #[schema(minimum = 1, example = 17)]
    pub(crate) id: i64,
    /// The number of the object's previous event; 0 for its first.
    #[schema(minimum = 0, example = 12)]
    pub(crate) prev: i64,
}

/// An event's object, and its link there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Place)]
pub(crate) struct PlaceJson {
    #[schema(example = "work:1")]
    pub(crate) object: String,
    /// The event's number, from one sequence for all objects.
    #[schema(minimum = 1, example = 17)]
    pub(crate) id: i64,
    /// The number of the object's previous event; 0 for its first.
    #[schema(minimum = 0, example = 12)]
    pub(crate) prev: i64,
}

/// An object, and where it is halted.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Object {
    #[schema(example = "work:1")]
    pub(crate) object: String,
    /// The number of the last event that was emitted on the object.
    #[schema(minimum = 0)]
    pub(crate) last_id: i64,
    /// The state that the object was last set to.
    #[schema(value_type = Option<Value>)]
    pub(crate) state: Option<Box<RawValue>>,
    /// Says that the state is hidden, and which scope shows it; omitted if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "hidden: this needs the scope `values`")]
    pub(crate) hidden: Option<String>,
    /// When the state was set.
    pub(crate) state_at: Option<DateTime<Utc>>,
    /// The first 1,000 of its events that are being processed, and by which worker; at most one per
    /// handler and queue.
    #[serde(default)]
    pub(crate) in_hand: Vec<InHandJson>,
    /// Whether more of its events are being processed.
    #[serde(default)]
    pub(crate) more_in_hand: bool,
    /// The first 1,000 handlers for which the object is halted.
    pub(crate) halted: Vec<HaltedLaneJson>,
    /// Whether it is halted for more handlers: `halted-objects` lists all, with `object`.
    #[serde(default)]
    pub(crate) more_halted: bool,
}

/// An event of an object that is being processed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = InHand)]
pub(crate) struct InHandJson {
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "index")]
    pub(crate) name: String,
    pub(crate) event: Uuid,
    /// The event's number in the chain.
    #[schema(minimum = 1)]
    pub(crate) event_link: i64,
    /// The registered queue, if the event is a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    /// The worker that has claimed the event, or the program that has leased it; omitted for a copy
    /// that is leased over HTTP, and for a program that gave no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "orders-6d4cf-x7k2p-1f0c5a9e")]
    pub(crate) worker: Option<String>,
}

/// An object that is halted for a handler by a dead event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = HaltedLane)]
pub(crate) struct HaltedLaneJson {
    #[schema(example = "work:1")]
    pub(crate) object: String,
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "index")]
    pub(crate) name: String,
    /// The dead event: redrive or skip it.
    pub(crate) event: Uuid,
    /// The event's number in the chain.
    #[schema(minimum = 1)]
    pub(crate) event_link: i64,
    /// Since when the object has been halted.
    pub(crate) halted_at: DateTime<Utc>,
}

/// A missing link of an object's chain: no event with it will ever arrive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Tombstone)]
pub(crate) struct TombstoneJson {
    /// The number of the missing event.
    #[schema(minimum = 1, example = 17)]
    pub(crate) id: i64,
    /// The number of the object's previous event; 0 for its first.
    #[schema(minimum = 0, example = 12)]
    pub(crate) prev: i64,
    /// What happened to the event: `cancelled`, `purged` or `dead`; or `redriven`, if it was
    /// redriven and has no copy in the queue.
    #[schema(example = "cancelled")]
    pub(crate) cause: String,
    /// When that happened.
    pub(crate) left_at: DateTime<Utc>,
}

/// The handler for which to resume an object without its dead event.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkipRequest {
    /// The handler's module. Default `WORKER`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "WORKER")]
    pub(crate) module: Option<String>,
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "index")]
    pub(crate) name: String,
}

/// The result of skipping a dead event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Skipped {
    /// Whether the object was halted. If not, nothing was changed.
    pub(crate) skipped: bool,
}

wire_from! { wakeq::machine::Link => LinkJson, |link| { id, prev; } }

impl From<wakeq::order::Place> for PlaceJson {
    fn from(place: wakeq::order::Place) -> Self {
        Self { object: place.object.to_string(), id: place.link.id, prev: place.link.prev }
    }
}

wire_from! { wakeq::order::HaltedLane => HaltedLaneJson, |halted| {
    halted_at;
    object: halted.lane.object.to_string(),
    module: halted.lane.scope.module.to_string(),
    name: halted.lane.scope.name.to_string(),
    event: halted.event.0,
    event_link: halted.event_seq,
} }

impl From<wakeq::control::Tombstone> for TombstoneJson {
    fn from(tombstone: wakeq::control::Tombstone) -> Self {
        let wakeq::machine::Link { id, prev } = tombstone.link;
        Self { id, prev, cause: tombstone.cause, left_at: tombstone.left_at }
    }
}

impl From<wakeq::order::InHand> for InHandJson {
    fn from(hand: wakeq::order::InHand) -> Self {
        Self {
            module: hand.lane.scope.module.to_string(),
            name: hand.lane.scope.name.to_string(),
            event: hand.event.0,
            event_link: hand.link.id,
            queue: hand.lane.queue.map(|queue| queue.to_string()),
            worker: hand.worker.map(|worker| worker.to_string()),
        }
    }
}

impl Object {
    /// Leaves out a state that is not JSON: only another program can have written it. More than
    /// [`LIST_MAX`] events in hand show that there are more.
    pub(crate) fn of(
        object: wakeq::order::Object,
        mut in_hand: Vec<wakeq::order::InHand>,
        halted: Page<wakeq::order::HaltedLane>,
    ) -> Self {
        let more_in_hand = in_hand.len() > LIST_MAX as usize;
        in_hand.truncate(LIST_MAX as usize);
        Self {
            object: object.key.to_string(),
            last_id: object.last_id,
            state: object.state.and_then(|state| RawValue::from_string(state).ok()),
            hidden: None,
            state_at: object.state_at,
            in_hand: in_hand.into_iter().map(InHandJson::from).collect(),
            more_in_hand,
            more_halted: halted.next.is_some(),
            halted: halted.items.into_iter().map(HaltedLaneJson::from).collect(),
        }
    }

    /// For callers that may not see values.
    pub(crate) fn hidden(self) -> Self {
        Self { state: None, hidden: Some(HIDDEN.to_owned()), ..self }
    }
}
