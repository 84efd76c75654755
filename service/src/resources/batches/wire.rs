//! Batches: many events that share a name, and the event that is emitted when the last has ended.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use wakeq::{Event, EventError, Name};

/// A batch to be opened.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenBatch {
    /// The event that is emitted when the batch is closed and its last member has ended.
    pub(crate) on_end: NewBatchEnd,
}

/// The event that is emitted at the end of a batch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBatchEnd {
    /// The handler's module. Default `WORKER`.
    #[serde(default = "worker")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "WORKER", default = "WORKER")]
    pub(crate) module: String,
    /// The handler's name.
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "imported")]
    pub(crate) name: String,
    /// The handler's modifier. Default `_`.
    #[serde(default = "no_modifier")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "_", default = "_")]
    pub(crate) modifier: String,
    /// What becomes the `value` of the event's value, which also has the counts. Default null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) value: Option<Box<RawValue>>,
}

fn worker() -> String {
    Name::worker().to_string()
}

fn no_modifier() -> String {
    Name::no_modifier().to_string()
}

/// A batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Batch)]
pub(crate) struct BatchJson {
    #[schema(example = "import:42")]
    pub(crate) name: String,
    pub(crate) state: BatchStateJson,
    pub(crate) on_end: BatchEndJson,
    pub(crate) opened_at: DateTime<Utc>,
    /// When it was closed.
    pub(crate) closed_at: Option<DateTime<Utc>>,
    /// When its event was emitted, or when it was given up.
    pub(crate) over_at: Option<DateTime<Utc>>,
    /// How its members have ended so far; omitted in lists, unless its event was emitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) counts: Option<BatchCountsJson>,
    /// How many members are left, counted up to 1,000,000; omitted in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<u64>,
}

/// How far a batch has come: `open`, `closed` while members are left, `ended` once its event was
/// emitted, or `cancelled` if it was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BatchState)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BatchStateJson {
    Open,
    Closed,
    Ended,
    Cancelled,
}

/// The event of the end of a batch, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BatchEnd)]
pub(crate) struct BatchEndJson {
    /// The event's id, which exists once the batch has ended.
    pub(crate) id: Uuid,
    pub(crate) module: String,
    pub(crate) name: String,
    pub(crate) modifier: String,
}

/// How the members of a batch have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BatchCounts)]
pub(crate) struct BatchCountsJson {
    /// Their handlers completed them.
    pub(crate) completed: u64,
    /// They died.
    pub(crate) dead: u64,
    /// They were cancelled, or purged.
    pub(crate) cancelled: u64,
    /// All of these.
    pub(crate) total: u64,
}

impl NewBatchEnd {
    /// The event that it describes.
    pub(crate) fn event(self) -> Result<Event, EventError> {
        let value = self.value.map_or_else(|| "null".into(), Box::<str>::from);
        Event::from_json(&self.name, value)?.module(&self.module)?.modifier(&self.modifier)
    }
}

impl BatchStateJson {
    /// Its name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Ended => "ended",
            Self::Cancelled => "cancelled",
        }
    }
}

impl From<wakeq::events::BatchState> for BatchStateJson {
    fn from(state: wakeq::events::BatchState) -> Self {
        match state {
            wakeq::events::BatchState::Open => Self::Open,
            wakeq::events::BatchState::Closed => Self::Closed,
            wakeq::events::BatchState::Ended => Self::Ended,
            wakeq::events::BatchState::Cancelled => Self::Cancelled,
        }
    }
}

impl From<wakeq::events::BatchCounts> for BatchCountsJson {
    fn from(counts: wakeq::events::BatchCounts) -> Self {
        Self {
            completed: counts.completed,
            dead: counts.dead,
            cancelled: counts.cancelled,
            total: counts.total(),
        }
    }
}

impl From<wakeq::events::RegisteredBatch> for BatchJson {
    fn from(batch: wakeq::events::RegisteredBatch) -> Self {
        let scope = &batch.address.scope;
        Self {
            name: batch.name.to_string(),
            state: batch.state.into(),
            on_end: BatchEndJson {
                id: batch.event.0,
                module: scope.module.to_string(),
                name: scope.name.to_string(),
                modifier: batch.address.modifier.to_string(),
            },
            opened_at: batch.opened_at,
            closed_at: batch.closed_at,
            over_at: batch.over_at,
            counts: batch.counts.map(BatchCountsJson::from),
            left: None,
        }
    }
}

impl From<wakeq::events::BatchProgress> for BatchJson {
    fn from(progress: wakeq::events::BatchProgress) -> Self {
        Self { counts: Some(progress.counts.into()), left: Some(progress.left), ..Self::from(progress.batch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_of_the_end_has_defaults_and_keeps_its_value_to_the_letter() {
        let read = |json: &str| serde_json::from_str::<OpenBatch>(json).map(|batch| batch.on_end.event());
        let event = read(r#"{"on_end": {"name": "imported"}}"#).unwrap().unwrap();
        assert_eq!(event.fields().value, "null");
        let event = read(r#"{"on_end": {"name": "imported", "value": {"a": 1.0}}}"#).unwrap().unwrap();
        assert_eq!(event.fields().value, r#"{"a": 1.0}"#);
        assert!(read(r#"{"on_end": {"name": "a b"}}"#).unwrap().is_err());
        assert!(read(r#"{"on_end": {"name": "a", "module": "CRON"}}"#).unwrap().is_err());
        assert!(read(r#"{"on_end": {"name": "a", "delay_s": 1}}"#).is_err());
    }
}
