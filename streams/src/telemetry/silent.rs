//! Replaces metrics without the feature `telemetry`: the same names, which do nothing.

use std::time::Instant;

use wakeq::Name;

pub(crate) struct ConsumerMetrics;

impl ConsumerMetrics {
    pub(crate) fn new(_: &Name) -> Self {
        Self
    }

    pub(crate) fn handled(&self, _: Option<&'static str>) {}

    pub(crate) fn died(&self) {}

    pub(crate) fn refused(&self) {}
}

pub(crate) struct WarmUp;

impl WarmUp {
    pub(crate) fn done(self) {}
}

pub(crate) struct EntityMetrics;

impl EntityMetrics {
    pub(crate) fn new(_: &'static str) -> Self {
        Self
    }

    pub(crate) fn committed(&self, _: Instant) {}

    pub(crate) fn warms_up(&self) -> WarmUp {
        WarmUp
    }

    pub(crate) fn took(&self, _: usize, _: usize) {}

    pub(crate) fn loaded(&self, _: usize) {}

    pub(crate) fn decided(&self, _: usize, _: usize, _: usize) {}

    pub(crate) fn stalled(&self) {}

    pub(crate) fn aside(&self, _: usize) {}
}

pub(crate) struct BrokerMetrics;

impl BrokerMetrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn moved(&self, _: usize) {}

    pub(crate) fn refused(&self) {}
}
