//! Dead events: those that are not tried again.

pub(crate) mod group;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::objects::wire::PlaceJson;
use crate::resources::queues::wire::Copied;
use crate::resources::wire::wire_from;
use wakeq::control::Bulk;

/// A dead event, which is no longer retried.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = DeadEvent)]
pub(crate) struct DeadEventJson {
    /// The event's id, which a redrive keeps.
    pub(crate) id: Uuid,
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "send-email")]
    pub(crate) name: String,
    #[schema(example = "_")]
    pub(crate) modifier: String,
    /// Why the event died: `retries` (its handler failed too often), `rejected` (its handler said
    /// that no retry can help), `expired` (the moment had passed after which its emit wanted no
    /// attempt to start) or `poison` (its workers died or stalled too often while they ran it or,
    /// for a pulled copy, its leases expired too often).
    #[schema(example = "retries")]
    pub(crate) cause: String,
    /// Failed attempts before the last one.
    #[schema(minimum = 0)]
    pub(crate) retries: i32,
    /// Claims that were lost because a worker died or stalled; for a pulled copy, leases that
    /// expired.
    #[schema(minimum = 0)]
    pub(crate) losses: i32,
    /// The last error of its handler.
    pub(crate) last_error: Option<String>,
    /// The group of those that died of the same error.
    pub(crate) error_group: Uuid,
    /// When the event was emitted.
    pub(crate) enqueued_at: DateTime<Utc>,
    /// When the event died.
    pub(crate) died_at: DateTime<Utc>,
    /// The event's object, and its link there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<PlaceJson>,
    /// If it was a copy in a registered queue: the queue, and the event it was copied from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copy_of: Option<Copied>,
    /// Whether the event halts its object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) halts: bool,
    /// The event's tags; omitted if it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["customer:7"]))]
    pub(crate) tags: Vec<String>,
}

/// The dead events to act on, which are those that match all given filters.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BulkRequest {
    /// The handler's module; requires `name`. Default `WORKER`.
    #[schema(example = "WORKER")]
    pub(crate) module: Option<String>,
    /// Only events of this handler.
    #[schema(example = "send-email")]
    pub(crate) name: Option<String>,
    /// Only events that died at or after this time.
    pub(crate) since: Option<DateTime<Utc>>,
    /// Only events that died before this time.
    pub(crate) before: Option<DateTime<Utc>>,
    /// All dead events of the canvas. Required without other filters, and refused with them.
    pub(crate) all: bool,
    /// Whether to only count the events.
    pub(crate) dry_run: bool,
    /// With `dry_run`: count at most this many events. Default 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub(crate) count_up_to: Option<u64>,
}

/// The result of a redrive.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Redriven {
    /// Number of events redriven, at most 10,000 per request. With `dry_run`: number of events that
    /// would be redriven, at most `count_up_to`.
    #[schema(minimum = 0)]
    pub(crate) redriven: u64,
    /// Whether there are more. To continue, repeat the request with `before` from this response,
    /// and without `all`.
    pub(crate) more: bool,
    /// Time on the database's clock before which all of these events died: the time of the request,
    /// or its own `before`. Repeating the request with it leaves alone events that die again later.
    pub(crate) before: Option<DateTime<Utc>>,
}

/// The result of a deletion.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Deleted {
    /// Number of events deleted, at most 10,000 per request. With `dry_run`: number of events that
    /// would be deleted, at most `count_up_to`.
    #[schema(minimum = 0)]
    pub(crate) deleted: u64,
    /// Whether there are more. To continue, repeat the request with `before` from this response,
    /// and without `all`.
    pub(crate) more: bool,
    /// Time on the database's clock before which all of these events died: the time of the request,
    /// or its own `before`.
    pub(crate) before: Option<DateTime<Utc>>,
}

wire_from! { wakeq::control::DeadEvent => DeadEventJson, |dead| {
    retries, losses, last_error, enqueued_at, died_at, halts;
    id: dead.id.0,
    error_group: dead.error_group.0,
    module: dead.address.scope.module.to_string(),
    name: dead.address.scope.name.to_string(),
    modifier: dead.address.modifier.to_string(),
    cause: dead.cause.to_string(),
    place: dead.place.map(PlaceJson::from),
    copy_of: dead.copy_of.map(Copied::from),
    tags: dead.options.iter().flat_map(|options| options.tags()).map(ToString::to_string).collect(),
} }

impl From<(Bulk, DateTime<Utc>)> for Redriven {
    fn from((bulk, before): (Bulk, DateTime<Utc>)) -> Self {
        Self { redriven: bulk.count, more: bulk.more, before: Some(before) }
    }
}

impl From<(Bulk, DateTime<Utc>)> for Deleted {
    fn from((bulk, before): (Bulk, DateTime<Utc>)) -> Self {
        Self { deleted: bulk.count, more: bulk.more, before: Some(before) }
    }
}
