//! Events: one by one, and in lists.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Rule;

/// An event in a list.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventSummary {
    pub(crate) id: Uuid,
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "send-email")]
    pub(crate) name: String,
    #[schema(example = "_")]
    pub(crate) modifier: String,
    pub(crate) state: EventState,
    /// When it was emitted.
    pub(crate) enqueued_at: DateTime<Utc>,
    /// When it is due.
    pub(crate) delay_until: DateTime<Utc>,
    /// Attempts that failed.
    #[schema(minimum = 0)]
    pub(crate) retries: i32,
    /// Owners it has outlived.
    #[schema(minimum = 0)]
    pub(crate) losses: i32,
}

/// What an event waits for, or what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventState {
    /// Due, and free to run.
    Ready,
    /// Not due yet.
    Delayed,
    /// On a worker now.
    Running,
    /// Due, and held by a pause.
    Paused,
    /// Due, and held by a block.
    Blocked,
    /// Given up, and kept.
    Dead,
    /// It had an id of its emitter's choice, which is remembered: it completed, or was cancelled or purged.
    Gone,
}

/// An event, and why it is not running.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventDetail {
    pub(crate) id: Uuid,
    pub(crate) state: EventState,
    /// The same in the words of the state machine.
    #[schema(example = "RulePaused")]
    pub(crate) outcome: Option<String>,
    /// Since when that is so.
    pub(crate) since: Option<DateTime<Utc>>,
    /// Until when, as far as that is known.
    pub(crate) until: Option<DateTime<Utc>>,
    /// What happens next, in a sentence.
    #[schema(example = "is woken when the handler is unpaused")]
    pub(crate) next: String,
    #[schema(example = "WORKER")]
    pub(crate) module: Option<String>,
    #[schema(example = "send-email")]
    pub(crate) name: Option<String>,
    #[schema(example = "_")]
    pub(crate) modifier: Option<String>,
    /// When it was emitted.
    pub(crate) enqueued_at: DateTime<Utc>,
    /// When it is due.
    pub(crate) delay_until: Option<DateTime<Utc>>,
    /// When its notification is published anew if nothing else happens; null while a rule holds it.
    pub(crate) notify_at: Option<DateTime<Utc>>,
    /// The rule that holds it.
    pub(crate) rule: Option<Rule>,
    /// Attempts that failed.
    #[schema(minimum = 0)]
    pub(crate) retries: i32,
    /// Owners it has outlived.
    #[schema(minimum = 0)]
    pub(crate) losses: i32,
    /// What its handler said last.
    pub(crate) last_error: Option<String>,
    /// Since when some worker has known no handler for it.
    pub(crate) unknown_since: Option<DateTime<Utc>>,
    /// The W3C trace context it was emitted in.
    pub(crate) traceparent: Option<String>,
    /// What was emitted, to the letter: only with `view=full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) value: Option<Box<RawValue>>,
}

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
}
