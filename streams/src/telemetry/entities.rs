//! The metrics of processors of entities.

use std::time::Instant;

use opentelemetry::metrics::{Counter, Gauge, Histogram};
use opentelemetry::{KeyValue, global};

use wakeq::internals::telemetry::counter;

/// Upper bounds of the buckets for batches, in seconds: most take milliseconds, and none takes
/// longer than the statement timeout.
const BATCH_BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// The buckets for a warm-up, which reads up to twice what fits into memory.
const WARM_UP_BUCKETS: [f64; 12] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// The memory of a processor, the entities that are evicted and loaded again, and how long that
/// takes.
pub(crate) struct EntityMetrics {
    batch: Histogram<f64>,
    warm_up: Histogram<f64>,
    warming: Gauge<u64>,
    memory: Gauge<u64>,
    evicted: Counter<u64>,
    loaded: Counter<u64>,
    decided: Counter<u64>,
    stalled: Counter<u64>,
    isolated: Gauge<u64>,
    entity_type: KeyValue,
}

impl EntityMetrics {
    pub(crate) fn new(entity_type: &'static str) -> Self {
        let meter = global::meter("wakeq");
        Self {
            batch: meter
                .f64_histogram("wakeq.entity.batch.duration")
                .with_unit("s")
                .with_description("How long batches of entities take, from the first event to the commit")
                .with_boundaries(BATCH_BUCKETS.to_vec())
                .build(),
            warm_up: meter
                .f64_histogram("wakeq.entity.warm_up.duration")
                .with_unit("s")
                .with_description("How long it takes to load the entities of a type into memory")
                .with_boundaries(WARM_UP_BUCKETS.to_vec())
                .build(),
            warming: meter
                .u64_gauge("wakeq.entity.warming")
                .with_description("1 while a processor loads its entities into memory, else 0")
                .build(),
            memory: meter
                .u64_gauge("wakeq.entity.memory")
                .with_unit("By")
                .with_description("Estimated memory use of the entities of a type")
                .build(),
            evicted: counter(
                "wakeq.entity.evicted",
                "{entity}",
                "Entities that left memory, because it was full",
            ),
            loaded: counter(
                "wakeq.entity.loaded",
                "{entity}",
                "Entities that were looked up in the database because events arrived for them",
            ),
            decided: counter("wakeq.entity.decided", "{event}", "Events that entities have decided upon"),
            stalled: counter(
                "wakeq.entity.stalled",
                "{batch}",
                "Batches that validate and apply have held up for too long",
            ),
            isolated: meter
                .u64_gauge("wakeq.entity.aside")
                .with_unit("{entity}")
                .with_description("Entities that are isolated because their events hang or crash the process")
                .build(),
            entity_type: KeyValue::new("wakeq.entity.type", entity_type),
        }
    }

    /// A batch that was started at this time is committed.
    pub(crate) fn committed(&self, begun: Instant) {
        self.batch.record(begun.elapsed().as_secs_f64(), std::slice::from_ref(&self.entity_type));
    }

    /// Entities are being loaded into memory, until the result is dropped.
    pub(crate) fn warms_up(&self) -> WarmUp<'_> {
        self.warming.record(1, std::slice::from_ref(&self.entity_type));
        WarmUp { metrics: self, begun: Instant::now() }
    }

    /// The bytes that the entities take now, and how many were evicted.
    pub(crate) fn record_memory(&self, bytes: usize, evicted: usize) {
        let own = std::slice::from_ref(&self.entity_type);
        self.memory.record(u64::try_from(bytes).unwrap_or(u64::MAX), own);
        if evicted > 0 {
            self.evicted.add(u64::try_from(evicted).unwrap_or(u64::MAX), own);
        }
    }

    /// How many events were stored, were rejected, and are dead.
    pub(crate) fn decided(&self, processed: usize, rejected: usize, dead: usize) {
        for (count, outcome) in [(processed, "processed"), (rejected, "rejected"), (dead, "dead")] {
            if count > 0 {
                let own = [self.entity_type.clone(), KeyValue::new("wakeq.entity.outcome", outcome)];
                self.decided.add(u64::try_from(count).unwrap_or(u64::MAX), &own);
            }
        }
    }

    /// A batch stalled.
    pub(crate) fn stalled(&self) {
        self.stalled.add(1, std::slice::from_ref(&self.entity_type));
    }

    /// How many entities are isolated now.
    pub(crate) fn isolated(&self, entities: usize) {
        self.isolated
            .record(u64::try_from(entities).unwrap_or(u64::MAX), std::slice::from_ref(&self.entity_type));
    }

    /// How many entities were looked up in the database.
    pub(crate) fn loaded(&self, entities: usize) {
        self.loaded.add(u64::try_from(entities).unwrap_or(u64::MAX), std::slice::from_ref(&self.entity_type));
    }
}

/// A load of entities that is under way.
pub(crate) struct WarmUp<'a> {
    metrics: &'a EntityMetrics,
    begun: Instant,
}

impl WarmUp<'_> {
    /// The entities are in memory. A load that failed or was interrupted is not recorded: its
    /// duration means nothing.
    pub(crate) fn done(self) {
        let EntityMetrics { warm_up, entity_type, .. } = self.metrics;
        warm_up.record(self.begun.elapsed().as_secs_f64(), std::slice::from_ref(entity_type));
    }
}

impl Drop for WarmUp<'_> {
    fn drop(&mut self) {
        self.metrics.warming.record(0, std::slice::from_ref(&self.metrics.entity_type));
    }
}
