//! Objects: links of their chains, their state, where they stand still.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{event, store};

/// A link in the chain of an object. `prev` is smaller than `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Link {
    /// The event's number, from one sequence for all objects.
    #[schema(minimum = 1, example = 17)]
    pub(crate) id: i64,
    /// The number of the object's event before it; 0 for its first.
    #[schema(minimum = 0, example = 12)]
    pub(crate) prev: i64,
}

/// An event's place on its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Place {
    #[schema(example = "work:1")]
    pub(crate) object: String,
    /// The event's number, from one sequence for all objects.
    #[schema(minimum = 1, example = 17)]
    pub(crate) id: i64,
    /// The number of the object's event before it; 0 for its first.
    #[schema(minimum = 0, example = 12)]
    pub(crate) prev: i64,
}

/// An object, and where it stands still.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Object {
    #[schema(example = "work:1")]
    pub(crate) object: String,
    /// The number of the last event that was emitted on it.
    #[schema(minimum = 0)]
    pub(crate) last_id: i64,
    /// What it was last set to.
    #[schema(value_type = Option<Value>)]
    pub(crate) state: Option<Box<RawValue>>,
    /// When that was.
    pub(crate) state_at: Option<DateTime<Utc>>,
    /// Which of its events are in hand now, and whose: one for each handler at most.
    #[serde(default)]
    pub(crate) in_hand: Vec<InHand>,
    /// The handlers for which it stands still.
    pub(crate) halted: Vec<HaltedLane>,
}

/// An event of an object that a worker has in hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct InHand {
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "index")]
    pub(crate) name: String,
    pub(crate) event: Uuid,
    /// Its number in the chain.
    #[schema(minimum = 1)]
    pub(crate) event_link: i64,
    /// The registered queue that it is in, if it is a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    /// The worker; none has a copy that is leased over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "orders-6d4cf-x7k2p-1f0c5a9e")]
    pub(crate) worker: Option<String>,
}

/// An object that stands still for a handler, because an event of it died there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HaltedLane {
    #[schema(example = "work:1")]
    pub(crate) object: String,
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "index")]
    pub(crate) name: String,
    /// The event that died: redrive it, or skip it.
    pub(crate) event: Uuid,
    /// Its number in the chain.
    #[schema(minimum = 1)]
    pub(crate) event_link: i64,
    /// Since when it stands still.
    pub(crate) halted_at: DateTime<Utc>,
}

/// A link that is missing from the chain of an object: no event with it will ever come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Tombstone {
    /// The number of the event that is missing.
    #[schema(minimum = 1, example = 17)]
    pub(crate) id: i64,
    /// The number of the object's event before it; 0 for its first.
    #[schema(minimum = 0, example = 12)]
    pub(crate) prev: i64,
    /// What became of it: `cancelled`, `purged`, `dead`; or `redriven`: it was brought back, and has no copy in the queue.
    #[schema(example = "cancelled")]
    pub(crate) cause: String,
    /// When that was.
    pub(crate) left_at: DateTime<Utc>,
}

/// For which handler to let an object go on.
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

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Skipped {
    /// Whether it stood still. If not, nothing was changed.
    pub(crate) skipped: bool,
}

impl From<event::Link> for Link {
    fn from(link: event::Link) -> Self {
        Self { id: link.id, prev: link.prev }
    }
}

impl From<event::Place> for Place {
    fn from(place: event::Place) -> Self {
        Self { object: place.object.to_string(), id: place.link.id, prev: place.link.prev }
    }
}

impl From<store::HaltedLane> for HaltedLane {
    fn from(halted: store::HaltedLane) -> Self {
        Self {
            object: halted.lane.object.to_string(),
            module: halted.lane.scope.module.to_string(),
            name: halted.lane.scope.name.to_string(),
            event: halted.event.0,
            event_link: halted.event_seq,
            halted_at: halted.halted_at,
        }
    }
}

impl From<store::Tombstone> for Tombstone {
    fn from(tombstone: store::Tombstone) -> Self {
        let event::Link { id, prev } = tombstone.link;
        Self { id, prev, cause: tombstone.cause, left_at: tombstone.left_at }
    }
}

impl From<store::InHand> for InHand {
    fn from(hand: store::InHand) -> Self {
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
    /// A state that is no JSON, which only another program can have written, is not shown.
    pub(crate) fn of(
        object: store::Object,
        in_hand: Vec<store::InHand>,
        halted: Vec<store::HaltedLane>,
    ) -> Self {
        Self {
            object: object.key.to_string(),
            last_id: object.last_id,
            state: object.state.and_then(|state| RawValue::from_string(state).ok()),
            state_at: object.state_at,
            in_hand: in_hand.into_iter().map(InHand::from).collect(),
            halted: halted.into_iter().map(HaltedLane::from).collect(),
        }
    }
}
