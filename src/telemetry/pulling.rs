//! The metrics of queues that services pull from.

use opentelemetry::metrics::Counter;
use opentelemetry::{KeyValue, global};

use crate::event::Name;

/// What happens to copies that services pull through this process. Cheap to clone.
#[derive(Clone)]
pub struct PullMetrics {
    pulls: Counter<u64>,
}

impl PullMetrics {
    #[doc(hidden)]
    pub fn new() -> Self {
        let pulls = global::meter("wakeq")
            .u64_counter("wakeq.queue.pulls")
            .with_unit("{event}")
            .with_description("Copies that services leased over HTTP, and what they said of them")
            .build();
        Self { pulls }
    }

    /// This many copies of a registered queue were leased, or ended with this outcome.
    #[doc(hidden)]
    pub fn pulled(&self, queue: &Name, outcome: &'static str, count: usize) {
        if count > 0 {
            let labels = [KeyValue::new("queue", queue.to_string()), KeyValue::new("outcome", outcome)];
            self.pulls.add(u64::try_from(count).unwrap_or(u64::MAX), &labels);
        }
    }
}
