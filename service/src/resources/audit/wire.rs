//! Entries of the audit log.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::wire::wire_from;
use wakeq::control::AuditOutcome;

/// Whether something was done, or was requested and refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditOutcome)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AuditOutcomeJson {
    Done,
    Refused,
}

impl From<AuditOutcomeJson> for AuditOutcome {
    fn from(outcome: AuditOutcomeJson) -> Self {
        match outcome {
            AuditOutcomeJson::Done => Self::Done,
            AuditOutcomeJson::Refused => Self::Refused,
        }
    }
}

/// An audit log entry: something that was done, or was requested and refused.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct AuditEntryJson {
    pub(crate) id: i64,
    pub(crate) at: DateTime<Utc>,
    /// The actor: `key:<holder>`, `account:<email>`, `cli:<user>`, or a name given by a program.
    #[schema(example = "key:billing")]
    pub(crate) actor: String,
    #[schema(example = "pause")]
    pub(crate) action: String,
    /// The module of the handler concerned, if any.
    pub(crate) module: Option<String>,
    pub(crate) name: Option<String>,
    /// The event concerned, if any.
    pub(crate) event_id: Option<Uuid>,
    /// `done` or `refused`.
    #[schema(example = "done")]
    pub(crate) outcome: String,
    /// Further details, as text.
    pub(crate) detail: Option<String>,
    /// Number of events affected; for a refusal, how often it occurred.
    #[schema(minimum = 0)]
    pub(crate) times: i32,
    /// The request's id, as in the `x-request-id` header.
    pub(crate) request_id: Option<String>,
}

wire_from! { wakeq::control::AuditEntry => AuditEntryJson, |entry| {
    id, at, actor, action, module, name, detail, times, request_id;
    event_id: entry.event_id.map(|id| id.0),
    outcome: entry.outcome.as_str().to_owned(),
} }
