//! Quotas: a canvas's limits and usage.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A quota of a canvas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Quota {
    /// The quota: `events`, `event-bytes`, `objects`, `object-bytes`, `chosen-ids`,
    /// `idempotency-keys`, `log-streams`, `log-bytes`, `entities`, `entity-events`, `crons`,
    /// `cron-ticks`, `keys`, `targets`, `hooks`, `batches`, `rules` or `audit-lines`.
    #[schema(example = "events")]
    pub(crate) quota: String,
    /// The limit.
    #[schema(minimum = 0)]
    pub(crate) limit: u64,
    /// Whether an operator set the limit for this canvas.
    pub(crate) set: bool,
    /// The usage, counted up to one more than the limit; bytes are estimated.
    #[schema(minimum = 0)]
    pub(crate) used: u64,
}

/// A limit of a canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetQuota {
    #[schema(minimum = 0, maximum = 1_000_000_000_000_000_u64, example = 5_000_000)]
    pub(crate) limit: u64,
}

/// The result of restoring the default limit of a canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct UnsetQuota {
    /// Whether the canvas had a limit of its own. If not, nothing was changed.
    pub(crate) unset: bool,
}

impl From<wakeq::control::QuotaUse> for Quota {
    fn from(quota: wakeq::control::QuotaUse) -> Self {
        let wakeq::control::QuotaUse { quota, limit, set, used } = quota;
        Self { quota: quota.to_string(), limit, set, used }
    }
}
