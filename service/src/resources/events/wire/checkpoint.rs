//! Checkpoints of events.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use wakeq::events::Checkpoint;

/// What the attempts of an event have left to the next one.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Checkpoint)]
pub(crate) struct CheckpointJson {
    /// Size of the value, in bytes of JSON.
    #[schema(minimum = 0, maximum = 65536)]
    pub(crate) bytes: u32,
    /// When it was stored.
    pub(crate) stored_at: DateTime<Utc>,
    /// The value, verbatim. An event is shown with it only with `view=full`.
    #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) value: Option<Box<RawValue>>,
}

/// The checkpoint to store.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreCheckpoint {
    /// The claim of the attempt: the header `wakeq-claim` of a delivery, or the `lease` of a copy
    /// or event.
    #[schema(pattern = "^([0-9a-f]{16}|[0-9a-f]{40})$", example = "0000000137ab6c1c")]
    pub(crate) claim: String,
    /// At most 64 KiB of JSON.
    #[schema(value_type = Value, example = json!({"page": 7}))]
    pub(crate) value: Box<RawValue>,
}

/// Keeps a value of `null` apart from a missing value.
pub(crate) fn even_null<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

impl CheckpointJson {
    pub(crate) fn of(checkpoint: Checkpoint, with_value: bool) -> Self {
        Self {
            bytes: u32::try_from(checkpoint.json.len()).unwrap_or(u32::MAX),
            stored_at: checkpoint.stored_at,
            value: if with_value { RawValue::from_string(checkpoint.json).ok() } else { None },
        }
    }
}
