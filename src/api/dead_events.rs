//! Events that are not tried again.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Copied, Place};
use crate::admin::{BULK_MAX, Bulk};
use crate::store;

/// An event that is not tried again.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeadEvent {
    /// A redriven event keeps it.
    pub(crate) id: Uuid,
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "send-email")]
    pub(crate) name: String,
    #[schema(example = "_")]
    pub(crate) modifier: String,
    /// Why it died: `retries` or `poison`.
    #[schema(example = "retries")]
    pub(crate) cause: String,
    /// Attempts that failed before the last one.
    #[schema(minimum = 0)]
    pub(crate) retries: i32,
    /// Owners it outlived.
    #[schema(minimum = 0)]
    pub(crate) losses: i32,
    /// What its handler said last.
    pub(crate) last_error: Option<String>,
    /// When it was emitted.
    pub(crate) enqueued_at: DateTime<Utc>,
    /// When it died.
    pub(crate) died_at: DateTime<Utc>,
    /// The object it was about, and its link there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<Place>,
    /// The registered queue that it was in, and the event that it was a copy of, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copy_of: Option<Copied>,
    /// Whether its object stands still for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) halts: bool,
}

/// Which dead events are meant: those for which all that is given holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BulkRequest {
    /// Of handlers of this module. Default `WORKER`, if `name` is given.
    #[schema(example = "WORKER")]
    pub(crate) module: Option<String>,
    /// Of this handler.
    #[schema(example = "send-email")]
    pub(crate) name: Option<String>,
    /// That died at or after this moment.
    pub(crate) since: Option<DateTime<Utc>>,
    /// That died before this moment.
    pub(crate) before: Option<DateTime<Utc>>,
    /// All of the canvas: needed when nothing else is given.
    pub(crate) all: bool,
    /// Only count them.
    pub(crate) dry_run: bool,
    /// With `dry_run`: count up to so many. Default 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub(crate) count_up_to: Option<u64>,
}

impl BulkRequest {
    /// Up to how many are only counted; none: they are not.
    pub(crate) fn only_counted(&self) -> Option<u64> {
        self.dry_run.then(|| self.count_up_to.unwrap_or(BULK_MAX))
    }
}

/// What a redrive did.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Redriven {
    /// Dead events brought back, or counted; at most 10,000 in one request, or `count_up_to` of those that are only counted.
    #[schema(minimum = 0)]
    pub(crate) redriven: u64,
    /// Whether there are more: ask again, with `before` from this answer and the rest as it was, but without `all`.
    pub(crate) more: bool,
    /// All of them died before this moment of the database's clock: that of the request, or its own `before`. What dies
    /// again after it is left alone by a request that repeats it.
    pub(crate) before: Option<DateTime<Utc>>,
}

/// What a deletion did.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Deleted {
    /// Dead events deleted, or counted; at most 10,000 in one request, or `count_up_to` of those that are only counted.
    #[schema(minimum = 0)]
    pub(crate) deleted: u64,
    /// Whether there are more: ask again, with `before` from this answer and the rest as it was, but without `all`.
    pub(crate) more: bool,
    /// All of them died before this moment of the database's clock: that of the request, or its own `before`.
    pub(crate) before: Option<DateTime<Utc>>,
}

impl From<store::DeadEvent> for DeadEvent {
    fn from(dead: store::DeadEvent) -> Self {
        Self {
            id: dead.id.0,
            module: dead.address.scope.module.to_string(),
            name: dead.address.scope.name.to_string(),
            modifier: dead.address.modifier.to_string(),
            cause: dead.cause.to_string(),
            retries: dead.retries,
            losses: dead.losses,
            last_error: dead.last_error,
            enqueued_at: dead.enqueued_at,
            died_at: dead.died_at,
            place: dead.place.map(Place::from),
            copy_of: dead.copy_of.map(Copied::from),
            halts: dead.halts,
        }
    }
}

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
