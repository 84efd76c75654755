//! The metrics of consumers.

use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;

use wakeq::Name;
use wakeq::internals::telemetry::counter;

/// What happens to events in a consumer group, on this process.
pub(crate) struct ConsumerMetrics {
    events: Counter<u64>,
    dead: Counter<u64>,
    refused: Counter<u64>,
    group: KeyValue,
}

impl ConsumerMetrics {
    pub(crate) fn new(group: &Name) -> Self {
        Self {
            events: counter(
                "wakeq.consumer.events",
                "{event}",
                "Attempts of consumers to handle events of the log",
            ),
            dead: counter("wakeq.consumer.dead", "{event}", "Events that a consumer group gave up"),
            refused: counter(
                "wakeq.consumer.refused",
                "{commit}",
                "Positions that were refused: the source had another owner, or the position had been moved",
            ),
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
