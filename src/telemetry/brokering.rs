//! The metrics of brokers.

use opentelemetry::global;
use opentelemetry::metrics::Counter;

/// What a coordinator does, on this process.
pub(crate) struct BrokerMetrics {
    allocations: Counter<u64>,
    refused: Counter<u64>,
}

impl BrokerMetrics {
    pub(crate) fn new() -> Self {
        let meter = global::meter("wakeq");
        Self {
            allocations: meter
                .u64_counter("wakeq.group.allocations")
                .with_unit("{subscription}")
                .with_description("Subscriptions that the coordinator of this process has written")
                .build(),
            refused: meter
                .u64_counter("wakeq.group.allocations.refused")
                .with_unit("{write}")
                .with_description("Writes of a coordinator that were refused: somebody else led by then")
                .build(),
        }
    }

    /// So many subscriptions were written.
    pub(crate) fn moved(&self, count: usize) {
        self.allocations.add(u64::try_from(count).unwrap_or(u64::MAX), &[]);
    }

    /// A write was refused.
    pub(crate) fn refused(&self) {
        self.refused.add(1, &[]);
    }
}
