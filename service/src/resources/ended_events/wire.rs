//! Ended events: those that are kept after they have ended.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::objects::wire::PlaceJson;
use crate::resources::wire::wire_from;
use wakeq::events::{EndedEvent, EndedOutcome};

/// An event that has ended, and is kept for a while.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = EndedEvent)]
pub(crate) struct EndedEventJson {
    pub(crate) id: Uuid,
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "send-email")]
    pub(crate) name: String,
    #[schema(example = "_")]
    pub(crate) modifier: String,
    /// How the event ended: `completed`, `failed` (its handler returned an error value) or
    /// `cancelled`.
    #[schema(example = "completed")]
    pub(crate) outcome: String,
    /// The error value, or else the last error before it ended.
    pub(crate) error: Option<String>,
    /// Who cancelled the event; omitted if nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "key:ada")]
    pub(crate) cancelled_by: Option<String>,
    /// When the event was emitted.
    pub(crate) enqueued_at: DateTime<Utc>,
    pub(crate) ended_at: DateTime<Utc>,
    /// Until when the event is kept.
    pub(crate) kept_until: DateTime<Utc>,
    /// How long the attempt took that ended the event, in seconds; null if none did.
    pub(crate) took_s: Option<f64>,
    /// How often the event was started.
    #[schema(minimum = 0)]
    pub(crate) claims: u32,
    /// Retries: failed attempts that another one followed.
    #[schema(minimum = 0)]
    pub(crate) retries: i32,
    /// Claims that were lost because a worker died or stalled.
    #[schema(minimum = 0)]
    pub(crate) losses: i32,
    /// Whether its handler has recorded a result.
    pub(crate) has_result: bool,
    /// The worker of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "orders-6d4cf-x7k2p-1f0c5a9e")]
    pub(crate) worker: Option<String>,
    /// The event's object, and its link there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<PlaceJson>,
    /// The event's tags; omitted if it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["customer:7"]))]
    pub(crate) tags: Vec<String>,
    /// The batch that it was a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "import:42")]
    pub(crate) batch: Option<String>,
}

/// How an event has ended that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Completed,
    Failed,
    Cancelled,
}

impl From<Outcome> for EndedOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Self::Completed,
            Outcome::Failed => Self::Failed,
            Outcome::Cancelled => Self::Cancelled,
        }
    }
}

wire_from! { EndedEvent => EndedEventJson, |event| {
    error, enqueued_at, ended_at, kept_until, claims, retries, losses, has_result;
    id: event.id.0,
    module: event.address.scope.module.to_string(),
    name: event.address.scope.name.to_string(),
    modifier: event.address.modifier.to_string(),
    outcome: event.outcome.to_string(),
    cancelled_by: event.ended_by,
    took_s: event.ran.map(|(_, took)| took.as_secs_f64()),
    worker: event.worker.as_ref().map(ToString::to_string),
    tags: event.options.iter().flat_map(|options| options.tags()).map(ToString::to_string).collect(),
    batch: event.options.as_ref().and_then(|options| options.batch()).map(ToString::to_string),
    place: event.place.map(PlaceJson::from),
} }
