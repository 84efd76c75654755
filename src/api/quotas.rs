//! Quotas: limits of a canvas, and how much there is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::store;

/// A quota of a canvas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Quota {
    /// Of what: `events`, `event-bytes`, `objects`, `log-streams`, `log-bytes`, `entities`, `entity-events`, `crons`,
    /// `cron-ticks`, `keys` or `targets`.
    #[schema(example = "events")]
    pub(crate) quota: String,
    /// How much the canvas may keep.
    #[schema(minimum = 0)]
    pub(crate) limit: u64,
    /// Whether an operator has set that for this canvas.
    pub(crate) set: bool,
    /// How much there is: counted up to one beyond the limit; bytes are estimated.
    #[schema(minimum = 0)]
    pub(crate) used: u64,
}

/// What a canvas may keep of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetQuota {
    #[schema(minimum = 0, maximum = 1_000_000_000_000_000_u64, example = 5_000_000)]
    pub(crate) limit: u64,
}

/// What became of a quota that was set for a canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct UnsetQuota {
    /// Whether one was set. If not, nothing was changed.
    pub(crate) unset: bool,
}

impl From<store::QuotaUse> for Quota {
    fn from(quota: store::QuotaUse) -> Self {
        let store::QuotaUse { quota, limit, set, used } = quota;
        Self { quota: quota.to_string(), limit, set, used }
    }
}
