//! What `wakeq-streams` and `wakeq-service` use of the queue beside its public API. Any release may
//! change it.

pub use crate::admin::{COUNT_MAX, LeaseBatch, check_wait, search};
pub use crate::broadcast::{Hub, HubListener};
pub use crate::cron::in_words;
pub use crate::event::{
    EventFields, NewEvent, SealError, Spelled, answer_event, check_json, spread, stable_hash,
};
pub use crate::store::{
    ATTEMPTS_MAX, Additions, AuditLine, Coalescer, DatabaseRoute, Emission, ForeignEngine, FoundHook,
    FoundTarget, InsertOutcome, LimitDepth, LogBatch, MigrationDifferences, Purpose, SecretCounts,
    add_with_state, append_batch, default_quota, interval, lacks_partition, on_behalf_of, quota_exceeded,
    serialize_on_canvas, statements,
};
pub use crate::wake::Waker;
pub use crate::worker::{Level, Levels, SharedPermit, SharedPermits};

/// Points at which a test can kill or stop the process.
pub mod fault {
    pub use crate::fault::point;
}

/// Spans and metrics.
pub mod telemetry {
    pub use crate::telemetry::{
        Gauges, HandlerGauge, LimitGauge, LimitGauges, QueueGauge, QuotaGauge, TRACES, continue_trace,
        counter, faults, name_registered, observed, trace_of_emit,
    };
}
