//! The names of spans and fields, and the trace that the current task works for. Knows nothing of the rest.

use crate::event::Traceparent;

/// Span of one notification's way through the machine.
macro_rules! run_span {
    ($notification:expr) => {
        tracing::info_span!(
            "run",
            event = %$notification.id,
            canvas = %$notification.canvas,
            handler = tracing::field::Empty,
            attempt = tracing::field::Empty,
            trace_id = tracing::field::Empty,
            object = tracing::field::Empty,
            link = tracing::field::Empty,
        )
    };
}
pub(crate) use run_span;

/// Span of one HTTP request. Neither path nor headers are in it: they may hold what a log must not.
#[cfg(feature = "http")]
macro_rules! request_span {
    ($method:expr, $id:expr) => {
        tracing::info_span!("request", method = %$method, request_id = %$id)
    };
}
#[cfg(feature = "http")]
pub(crate) use request_span;

tokio::task_local! {
    static TRACE: Traceparent;
}

/// Runs a handler's future in the trace of its event, so that what it emits continues the trace.
pub(crate) async fn in_trace<F: Future>(trace: Traceparent, future: F) -> F::Output {
    TRACE.scope(trace, future).await
}

/// The trace that the current task works for, or a new one.
pub(crate) fn current_trace() -> Traceparent {
    TRACE.try_with(Clone::clone).unwrap_or_else(|_| Traceparent::root())
}
