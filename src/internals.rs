//! What `wakeq-service` uses of the queue beside its public API. Any release may change it.

pub use crate::admin::{COUNT_MAX, LeaseBatch, check_wait, search};
pub use crate::broadcast::{Hub, HubListener};
pub use crate::event::{SealError, target_of_queue};
pub use crate::store::{
    AuditLine, Coalescer, FoundTarget, HandlerDepth, MigrationDifferences, Purpose, Route, SecretCounts,
    default_quota, interval, on_behalf_of, quota_exceeded, serialize_on_canvas,
};
pub use crate::wake::Waker;

/// Spans and metrics.
pub mod telemetry {
    pub use crate::telemetry::{
        Gauges, GroupGauge, GroupGauges, GroupsGauge, HandlerGauge, HttpMetrics, PullMetrics, QueueGauge,
        QuotaGauge, RequestInfo, RunMetrics, TRACES, answered, current_trace, known_method, server_span,
    };
}
