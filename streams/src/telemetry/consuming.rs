//! The metrics of consumers.

use opentelemetry::metrics::Counter;
use opentelemetry::{KeyValue, global};

use wakeq::Name;

/// What happens to events in a consumer group, on this process.
pub(crate) struct ConsumerMetrics {
    events: Counter<u64>,
    dead: Counter<u64>,
    refused: Counter<u64>,
    group: KeyValue,
}

impl ConsumerMetrics {
    pub(crate) fn new(group: &Name) -> Self {
        let meter = global::meter("wakeq");
        Self {
            events: meter
                .u64_counter("wakeq.consumer.events")
                .with_unit("{event}")
                .with_description("Attempts of consumers to handle events of the log")
                .build(),
            dead: meter
                .u64_counter("wakeq.consumer.dead")
                .with_unit("{event}")
                .with_description("Events that a consumer group gave up")
                .build(),
            refused: meter
                .u64_counter("wakeq.consumer.refused")
                .with_unit("{commit}")
                .with_description(
                    "Positions that were refused: the source had another owner, or the position had been moved",
                )
                .build(),
            group: KeyValue::new("messaging.consumer.group.name", group.to_string()),
        }
    }

    /// An event was handled or, with a fault, failed.
    pub(crate) fn handled(&self, fault: Option<&'static str>) {
        match fault {
            None => self.events.add(1, std::slice::from_ref(&self.group)),
            Some(fault) => self.events.add(1, &[self.group.clone(), KeyValue::new("error.type", fault)]),
        }
    }

    /// An event was given up.
    pub(crate) fn died(&self) {
        self.dead.add(1, std::slice::from_ref(&self.group));
    }

    /// A position was not moved.
    pub(crate) fn refused(&self) {
        self.refused.add(1, std::slice::from_ref(&self.group));
    }
}
