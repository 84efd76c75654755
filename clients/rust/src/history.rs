//! The history of events: attempts, and events that are kept after they have ended.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use uuid::Uuid;

/// An attempt at an event that failed or was too early.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// What came of it: `retried`, `postponed` or `dead`.
    pub outcome: String,
    /// The worker that made it.
    pub worker: Option<String>,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// Its error.
    pub error: Option<String>,
}

/// An event that has ended, and is kept for a while.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct EndedEvent {
    /// The event's id.
    pub id: Uuid,
    /// The handler's module.
    pub module: String,
    /// The handler's name.
    pub name: String,
    /// The handler's modifier.
    pub modifier: String,
    /// How it ended: `completed`, `failed` or `cancelled`.
    pub outcome: String,
    /// Its error value, or else the last error before it ended.
    pub error: Option<String>,
    /// Who cancelled it.
    pub cancelled_by: Option<String>,
    /// When it was emitted.
    pub enqueued_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
    /// Until when it is kept.
    pub kept_until: DateTime<Utc>,
    /// How long the attempt took that ended it, in seconds.
    pub took_s: Option<f64>,
    /// Whether its handler has recorded a result.
    pub has_result: bool,
}

/// Which ended events to list: all of the canvas, if nothing is set.
#[derive(Clone, Debug, Default)]
pub struct EndedFilter {
    /// The handler's module; requires `name`. Default `WORKER`.
    pub module: Option<String>,
    /// Only events of this handler.
    pub name: Option<String>,
    /// Only those that ended like this: `completed`, `failed` or `cancelled`.
    pub outcome: Option<String>,
}
