//! What `wakeq-service` uses of the streams beside their public API. Any release may change it.

pub use crate::store::Store as StreamStore;

/// Metrics.
pub mod telemetry {
    pub use crate::telemetry::{GroupGauge, GroupGauges, GroupsGauge};
}
