//! The span of a request.

/// The span of one HTTP request. It contains neither path nor headers, which may hold what must not
/// be logged.
macro_rules! request_span {
    ($method:expr, $id:expr, $client:expr) => {
        tracing::info_span!(
            "request",
            method = $method,
            request_id = %$id,
            client = %$client,
            trace_id = tracing::field::Empty,
        )
    };
}
pub(crate) use request_span;
