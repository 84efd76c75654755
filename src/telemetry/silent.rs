//! Replaces metrics and spans without the feature `telemetry`: the same names, which do nothing.

use tracing::Span;

use super::{AttemptInfo, AttemptResult, EmitCall};
use crate::event::{Cause, EventId, HandlerScope, Traceparent};

pub(crate) fn send_span(sending: &EmitCall<'_>) -> Span {
    let EmitCall { scope: _, batch: _, cause: _ } = sending;
    Span::none()
}

pub(crate) fn sends(_: EventId) {}

pub(crate) fn process_span(attempted: &AttemptInfo<'_>) -> Span {
    let AttemptInfo { event: _, address: _, attempt: _, emitted_by: _ } = attempted;
    Span::none()
}

pub(crate) fn failed(_: &Span, _: &'static str, _: &str) {}

pub(crate) fn span_trace(_: &Span) -> Option<Traceparent> {
    None
}

#[derive(Clone)]
pub(crate) struct SendMetrics;

impl SendMetrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn sent(&self, _: &HandlerScope, _: u64, _: Option<&'static str>) {}
}

/// Measures nothing.
#[derive(Debug, Default)]
pub struct RunMetrics;

impl RunMetrics {
    pub(crate) fn processed(&self, processed: AttemptResult<'_>) {
        let AttemptResult { scope: _, queue: _, took: _, fault: _ } = processed;
    }

    pub(crate) fn outcome(&self, _: &'static str) {}

    pub(crate) fn retried(&self, _: &HandlerScope) {}

    pub(crate) fn died(&self, _: &HandlerScope, _: Cause) {}
}

pub(crate) struct WorkerGauges;

impl WorkerGauges {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn show(&self, _: usize, _: usize) {}

    pub(crate) fn receives(&self, _: bool) {}
}

#[derive(Clone)]
pub(crate) struct WakeMetrics;

impl WakeMetrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn recovered(&self, _: usize) {}
}

pub(crate) struct BroadcastMetrics;

impl BroadcastMetrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn broadcast(&self, _: &'static str, _: usize) {}
}
