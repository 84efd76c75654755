//! The metrics of processors of entities.

use opentelemetry::metrics::{Counter, Gauge};
use opentelemetry::{KeyValue, global};

/// What a processor has in memory, and what leaves it and comes back.
pub(crate) struct EntityMetrics {
    memory: Gauge<u64>,
    evicted: Counter<u64>,
    loaded: Counter<u64>,
    decided: Counter<u64>,
    stalled: Counter<u64>,
    entity_type: KeyValue,
}

impl EntityMetrics {
    pub(crate) fn new(entity_type: &'static str) -> Self {
        let meter = global::meter("wakeq");
        Self {
            memory: meter
                .u64_gauge("wakeq.entity.memory")
                .with_unit("By")
                .with_description("Memory that the entities of a type take, by estimate")
                .build(),
            evicted: meter
                .u64_counter("wakeq.entity.evicted")
                .with_unit("{entity}")
                .with_description("Entities that left memory, because it was full")
                .build(),
            loaded: meter
                .u64_counter("wakeq.entity.loaded")
                .with_unit("{entity}")
                .with_description(
                    "Entities that were looked for in the database, because events came for them",
                )
                .build(),
            decided: meter
                .u64_counter("wakeq.entity.decided")
                .with_unit("{event}")
                .with_description("Events that entities have decided upon")
                .build(),
            stalled: meter
                .u64_counter("wakeq.entity.stalled")
                .with_unit("{batch}")
                .with_description("Batches that validate and apply have held up for too long")
                .build(),
            entity_type: KeyValue::new("wakeq.entity.type", entity_type),
        }
    }

    /// What the entities take now, and how many have left.
    pub(crate) fn took(&self, bytes: usize, evicted: usize) {
        let own = std::slice::from_ref(&self.entity_type);
        self.memory.record(u64::try_from(bytes).unwrap_or(u64::MAX), own);
        if evicted > 0 {
            self.evicted.add(u64::try_from(evicted).unwrap_or(u64::MAX), own);
        }
    }

    /// So many are in the repository, were rejected, and are dead.
    pub(crate) fn decided(&self, processed: usize, rejected: usize, dead: usize) {
        for (count, outcome) in [(processed, "processed"), (rejected, "rejected"), (dead, "dead")] {
            if count > 0 {
                let own = [self.entity_type.clone(), KeyValue::new("wakeq.entity.outcome", outcome)];
                self.decided.add(u64::try_from(count).unwrap_or(u64::MAX), &own);
            }
        }
    }

    /// A batch was held up.
    pub(crate) fn stalled(&self) {
        self.stalled.add(1, std::slice::from_ref(&self.entity_type));
    }

    /// So many were looked for.
    pub(crate) fn loaded(&self, entities: usize) {
        self.loaded.add(u64::try_from(entities).unwrap_or(u64::MAX), std::slice::from_ref(&self.entity_type));
    }
}
