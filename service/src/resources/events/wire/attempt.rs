//! Attempts at an event.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::resources::wire::wire_from;

/// An attempt at an event that failed or was too early.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Attempt)]
pub(crate) struct AttemptJson {
    /// The number of the attempt, from 1.
    #[schema(minimum = 1)]
    pub(crate) number: u32,
    /// What came of it: `retried`, `postponed` (it was too early) or `dead`.
    #[schema(example = "retried")]
    pub(crate) outcome: String,
    /// The worker that made it, or the program that leased the event; omitted if it gave no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "orders-6d4cf-x7k2p-1f0c5a9e")]
    pub(crate) worker: Option<String>,
    pub(crate) started_at: DateTime<Utc>,
    /// How long it took, in seconds.
    pub(crate) took_s: f64,
    /// Its error, or the first 1,000 characters of it.
    pub(crate) error: Option<String>,
}

wire_from! { wakeq::events::AttemptRecord => AttemptJson, |attempt| {
    number, outcome, started_at, error;
    worker: attempt.worker.as_ref().map(ToString::to_string),
    took_s: attempt.took.as_secs_f64(),
} }
