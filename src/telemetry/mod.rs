//! The names of spans, metrics and fields, and the trace that the current task works for. It knows
//! nothing of the other modules.
//!
//! Spans and metrics go to the program's OpenTelemetry providers, if there are any. Nothing here
//! exports, and nothing here may fail or slow down what it measures.

mod keeping;
mod labels;
mod limits;
mod metrics;
mod spans;

use std::time::Duration;

use crate::event::{EventId, HandlerAddress, HandlerScope, Name, Traceparent};

pub use keeping::QuotaGauge;
pub(crate) use labels::name_handlers;
pub use labels::name_registered;
pub use limits::{LimitGauge, LimitGauges};
pub(crate) use metrics::{
    BroadcastMetrics, RunMetrics, SendMetrics, TargetMetrics, WakeMetrics, WorkerGauges,
};
pub use metrics::{Gauges, HandlerGauge, QueueGauge, counter, observed};
pub use spans::{continue_trace, trace_of_emit};
pub(crate) use spans::{failed, process_span, send_span, sends, span_trace};

/// The target of spans that are made only for traces, so that logs can leave them out.
pub const TRACES: &str = "wakeq::trace";

/// The span of one notification's way through the state machine.
macro_rules! run_span {
    ($notification:expr) => {
        tracing::info_span!(
            "run",
            event = %$notification.id,
            canvas = %$notification.canvas,
            handler = tracing::field::Empty,
            attempt = tracing::field::Empty,
            trace_id = tracing::field::Empty,
            queue = tracing::field::Empty,
            origin = tracing::field::Empty,
            object = tracing::field::Empty,
            link = tracing::field::Empty,
        )
    };
}
pub(crate) use run_span;

/// The span of one call of a batch handler, whose events are of one canvas.
macro_rules! batch_span {
    ($address:expr, $events:expr) => {
        tracing::info_span!(
            "batch",
            canvas = %$address.scope.canvas,
            handler = %$address,
            events = $events,
        )
    };
}
pub(crate) use batch_span;

/// A call that emits events.
pub(crate) struct EmitCall<'a> {
    /// The handler of the events, if they have the same.
    pub(crate) scope: Option<&'a HandlerScope>,
    /// The number of events, if the call is a batch.
    pub(crate) batch: Option<usize>,
    /// The trace that caused them, if the caller named one.
    pub(crate) cause: Option<&'a Traceparent>,
}

/// One attempt at an event.
pub(crate) struct AttemptInfo<'a> {
    pub(crate) event: EventId,
    pub(crate) address: &'a HandlerAddress,
    pub(crate) attempt: u32,
    /// The span that emitted the event.
    pub(crate) emitted_by: Option<&'a Traceparent>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptResult<'a> {
    pub(crate) scope: &'a HandlerScope,
    /// The queue of a copy.
    pub(crate) queue: Option<&'a Name>,
    pub(crate) took: Duration,
    /// The kind of failure, if it failed.
    pub(crate) fault: Option<&'static str>,
}

/// The kinds of failures of an attempt: the `error.type` of spans and metrics.
pub mod faults {
    /// The handler returned an operational error.
    pub const ERROR: &str = "error";
    /// The attempt timed out.
    pub const TIMEOUT: &str = "timeout";
    /// The handler panicked.
    pub const PANIC: &str = "panic";
    /// The handler's target was removed: it answered 410.
    pub(crate) const GONE: &str = "gone";
    /// The claim could not be renewed.
    pub(crate) const LEASE_LOST: &str = "lease_lost";
    /// The attempt was cut off at the end of a shutdown's grace.
    pub(crate) const SHUTDOWN: &str = "shutdown";
    /// Somebody cancelled the event while it ran.
    pub(crate) const CANCELLED: &str = "cancelled";
}

tokio::task_local! {
    static TRACE: Traceparent;
}

/// Runs a handler's future in the trace of its event, so that what it emits continues the trace.
pub(crate) async fn in_trace<F: Future>(trace: Traceparent, future: F) -> F::Output {
    TRACE.scope(trace, future).await
}

fn worked_for() -> Option<Traceparent> {
    TRACE.try_with(Clone::clone).ok()
}
