//! The spans and metrics of requests.

use std::time::Duration;

use opentelemetry::metrics::{Counter, Histogram};
use opentelemetry::trace::Status;
use opentelemetry::{KeyValue, global};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use wakeq::Name;
use wakeq::events::Traceparent;
use wakeq::internals::telemetry::{TRACES, continue_trace};

/// Upper bounds of the buckets of a request's duration, in seconds: those that the conventions
/// advise.
const BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

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

/// A request, as its span and its duration describe it.
pub(crate) struct RequestInfo<'a> {
    /// The method, if it is a known one.
    pub(crate) method: &'static str,
    /// The route's template, if there is one.
    pub(crate) route: Option<&'a str>,
    /// The trace that the caller named.
    pub(crate) cause: Option<&'a Traceparent>,
}

/// The span of a request: `POST /v1/…`, with the route's template.
pub(crate) fn server_span(request: &RequestInfo<'_>) -> Span {
    let span = tracing::trace_span!(
        target: TRACES,
        "request",
        "otel.kind" = "server",
        "otel.name" = Empty,
        "http.request.method" = request.method,
        "url.scheme" = "http",
    );
    if span.is_disabled() {
        return span;
    }
    if let Some(cause) = request.cause {
        continue_trace(&span, cause);
    }
    match request.route {
        Some(route) => {
            span.record("otel.name", format!("{} {route}", request.method));
            span.set_attribute("http.route", route.to_owned());
        }
        None => {
            span.record("otel.name", request.method);
        }
    }
    span
}

/// Records the answer in a request's span.
pub(crate) fn answered(span: &Span, status: u16) {
    if span.is_disabled() {
        return;
    }
    span.set_attribute("http.response.status_code", i64::from(status));
    if status >= 500 {
        span.set_attribute("error.type", status.to_string());
        span.set_status(Status::error(""));
    }
}

/// The duration of requests.
#[derive(Clone)]
pub(crate) struct HttpMetrics {
    duration: Histogram<f64>,
}

impl HttpMetrics {
    pub(crate) fn new() -> Self {
        let duration = global::meter("wakeq")
            .f64_histogram("http.server.request.duration")
            .with_unit("s")
            .with_description("How long requests to the API take")
            .with_boundaries(BUCKETS.to_vec())
            .build();
        Self { duration }
    }

    /// A request was answered.
    pub(crate) fn answered(&self, request: &RequestInfo<'_>, status: u16, took: Duration) {
        let mut attributes = vec![
            KeyValue::new("http.request.method", request.method),
            KeyValue::new("url.scheme", "http"),
            KeyValue::new("http.response.status_code", i64::from(status)),
        ];
        attributes.extend(request.route.map(|route| KeyValue::new("http.route", route.to_owned())));
        if status >= 500 {
            attributes.push(KeyValue::new("error.type", status.to_string()));
        }
        self.duration.record(took.as_secs_f64(), &attributes);
    }
}

/// Counts copies that services pull through this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PullMetrics {
    pulls: Counter<u64>,
}

impl PullMetrics {
    pub(crate) fn new() -> Self {
        let pulls = global::meter("wakeq")
            .u64_counter("wakeq.queue.pulls")
            .with_unit("{event}")
            .with_description("Copies that services leased over HTTP, and what they said of them")
            .build();
        Self { pulls }
    }

    /// This many copies of a registered queue were leased, or ended with this outcome.
    pub(crate) fn pulled(&self, queue: &Name, outcome: &'static str, count: usize) {
        if count > 0 {
            let labels = [KeyValue::new("queue", queue.to_string()), KeyValue::new("outcome", outcome)];
            self.pulls.add(u64::try_from(count).unwrap_or(u64::MAX), &labels);
        }
    }
}

/// Counts webhooks by what became of them. Cheap to clone. Hooks and canvases are no labels, as
/// strangers choose what they send to.
#[derive(Clone)]
pub(crate) struct WebhookMetrics {
    webhooks: Counter<u64>,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        let webhooks = global::meter("wakeq")
            .u64_counter("wakeq.webhooks")
            .with_unit("{request}")
            .with_description("Webhooks that senders sent to hooks")
            .build();
        Self { webhooks }
    }
}

impl WebhookMetrics {
    /// The event of one is committed, or was already.
    pub(crate) fn accepted(&self) {
        self.count("accepted");
    }

    /// One was refused: its hook does not accept the signature, or there is none of its name.
    pub(crate) fn refused(&self, has_hook: bool) {
        self.count(if has_hook { "refused" } else { "unknown" });
    }

    /// One has no signature that could be verified.
    pub(crate) fn unsigned(&self) {
        self.count("unsigned");
    }

    fn count(&self, outcome: &'static str) {
        self.webhooks.add(1, &[KeyValue::new("outcome", outcome)]);
    }
}

/// The methods that spans and metrics name; others, which the client could choose freely, are
/// `_OTHER`.
pub(crate) fn known_method(method: &str) -> &'static str {
    const KNOWN: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
    KNOWN.into_iter().find(|known| *known == method).unwrap_or("_OTHER")
}
