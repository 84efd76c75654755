//! The spans of a trace: what is emitted, and each attempt at an event, with the names and
//! attributes of OpenTelemetry's conventions.
//!
//! They are spans of `tracing` with a target of their own and the lowest level, so that logs do not
//! show them unless asked to. If traces are not recorded, they are not made.

use opentelemetry::trace::{SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::{AttemptInfo, EmitCall, TRACES};
use crate::event::{EventId, HandlerScope, Traceparent};

/// The span of a call that emits: `send MODULE/name`.
pub(crate) fn send_span(sending: &EmitCall<'_>) -> Span {
    let span = tracing::trace_span!(
        target: TRACES,
        "send",
        "otel.kind" = "producer",
        "otel.name" = Empty,
        "messaging.system" = "wakeq",
        "messaging.operation.name" = "send",
        "messaging.operation.type" = "send",
        "messaging.message.id" = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    let context = Context::current();
    let around = context.span().span_context().clone();
    if let Some(cause) = sending.cause.and_then(remote)
        && cause.trace_id() != around.trace_id()
    {
        // The caller named another trace than the one around: the span belongs to that, and is
        // linked to the one around.
        adopt(&span, cause);
        span.add_link(around);
    } else if !around.is_valid()
        && let Some(cause) = super::worked_for().as_ref().and_then(remote)
    {
        adopt(&span, cause);
    }
    if let Some(scope) = sending.scope {
        name(&span, "send", scope);
    }
    if let Some(count) = sending.batch {
        span.set_attribute("messaging.batch.message_count", i64::try_from(count).unwrap_or(i64::MAX));
    }
    span
}

/// The span of an attempt: `process MODULE/name`. It is a child of the span that emitted the event,
/// wherever it runs; an attempt after the first is also linked to that span, so that retries can be
/// found.
pub(crate) fn process_span(attempted: &AttemptInfo<'_>) -> Span {
    let span = tracing::trace_span!(
        target: TRACES,
        "process",
        "otel.kind" = "consumer",
        "otel.name" = Empty,
        "messaging.system" = "wakeq",
        "messaging.operation.name" = "process",
        "messaging.operation.type" = "process",
    );
    if span.is_disabled() {
        return span;
    }
    if let Some(emitted_by) = attempted.emitted_by.and_then(remote) {
        if attempted.attempt > 1 {
            span.add_link(emitted_by.clone());
        }
        adopt(&span, emitted_by);
    }
    let address = attempted.address;
    name(&span, "process", &address.scope);
    span.set_attribute("messaging.message.id", attempted.event.to_string());
    span.set_attribute("wakeq.attempt", i64::from(attempted.attempt));
    span.set_attribute("wakeq.canvas", address.scope.canvas.to_string());
    span.set_attribute("wakeq.modifier", address.modifier.as_str().to_owned());
    span
}

/// Records a failure in the span of an attempt, or of a call that emits.
pub(crate) fn failed(span: &Span, fault: &'static str, words: &str) {
    if span.is_disabled() {
        return;
    }
    span.set_attribute("error.type", fault);
    span.set_status(Status::error(words.to_owned()));
    if !words.is_empty() {
        let exception = vec![
            KeyValue::new("exception.type", fault),
            KeyValue::new("exception.message", words.to_owned()),
        ];
        span.add_event("exception", exception);
    }
}

/// Records the single event of a call in its span.
pub(crate) fn sends(event: EventId) {
    let span = Span::current();
    if !span.is_disabled() {
        span.record("messaging.message.id", event.to_string());
    }
}

/// The trace context for an event that is emitted now: the span around this call, unless the caller
/// named another trace.
pub fn trace_of_emit(named: Option<Traceparent>) -> Traceparent {
    match (current(), named) {
        (Some(span), None) => span,
        (Some(span), Some(named)) if span.trace_id() == named.trace_id() => span,
        (_, Some(named)) => named,
        (None, None) => super::worked_for().unwrap_or_else(Traceparent::root),
    }
}

/// The trace context of the current span, if traces are recorded.
fn current() -> Option<Traceparent> {
    written(Context::current().span().span_context())
}

/// The same for any span.
pub(crate) fn span_trace(span: &Span) -> Option<Traceparent> {
    if span.is_disabled() { None } else { written(span.context().span().span_context()) }
}

/// A context as it is sent.
fn written(context: &SpanContext) -> Option<Traceparent> {
    if !context.is_valid() {
        return None;
    }
    let text = format!(
        "00-{}-{}-{:02x}",
        context.trace_id(),
        context.span_id(),
        context.trace_flags() & TraceFlags::SAMPLED
    );
    text.parse().ok()
}

fn name(span: &Span, operation: &str, scope: &HandlerScope) {
    let destination = scope.to_string();
    span.record("otel.name", format!("{operation} {destination}"));
    span.set_attribute("messaging.destination.name", destination);
}

/// Makes a span the child of one in another process, if the trace context names one.
pub fn continue_trace(span: &Span, cause: &Traceparent) {
    if let Some(parent) = remote(cause) {
        adopt(span, parent);
    }
}

/// Makes a span the child of a remote one. A span that has started keeps its parent.
fn adopt(span: &Span, parent: SpanContext) {
    let parent = Context::new().with_remote_span_context(parent);
    if let Err(error) = span.set_parent(parent) {
        tracing::debug!(%error, "a span stays in the trace that it is in");
    }
}

/// The context of a remote span.
fn remote(traceparent: &Traceparent) -> Option<SpanContext> {
    let text = traceparent.as_str();
    let trace = TraceId::from_hex(text.get(3..35)?).ok()?;
    let span = SpanId::from_hex(text.get(36..52)?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(text.get(53..55)?, 16).ok()?);
    let context = SpanContext::new(trace, span, flags & TraceFlags::SAMPLED, true, TraceState::default());
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_names_the_span_elsewhere() {
        for (flags, sampled) in [("00", false), ("01", true), ("03", true)] {
            let text = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
            let context = remote(&text.parse().unwrap()).unwrap();
            assert_eq!(context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
            assert_eq!(context.span_id().to_string(), "00f067aa0ba902b7");
            assert_eq!((context.is_sampled(), context.is_remote()), (sampled, true));
        }
    }

    #[test]
    fn without_a_recorder_there_is_no_span_and_no_trace() {
        let span = send_span(&EmitCall { scope: None, batch: None, cause: None });
        assert!(span.is_disabled());
        assert_eq!((span_trace(&span), current()), (None, None));
    }
}
