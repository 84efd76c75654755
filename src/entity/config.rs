//! How entities of a type are processed.

use std::time::Duration;

/// How a processor works.
#[derive(Clone, Debug)]
pub struct EntityConfig {
    /// Threads that validate and apply. An entity always has the same one. Default 4.
    pub actors: usize,
    /// Most events in one transaction. Default 500.
    pub batch: usize,
    /// Most bytes of events that are read at a time, and most that a transaction writes because of them: results, what follows, states.
    /// One event is processed in any case. Default 4 MiB, at most 64 MiB.
    pub batch_bytes: usize,
    /// The state of an entity is written when so many of its events have been stored since it was written last; those are
    /// replayed after a start. Default 1: with every batch, so that what others read of an entity is what it is.
    pub snapshot_every: u32,
    /// Largest state of one entity, as JSON, at the end of a batch: if it were larger, the events that make it so fail. Default
    /// 256 KiB, at most 16 MiB.
    pub state_limit_bytes: usize,
    /// Memory that the entities of the type may take between two batches, by estimate; each actor has its part of it. When they need more, those
    /// leave memory that were not used for the longest time, of the canvas that takes the most, and are loaded again when an event comes
    /// for them. Default 1 GiB.
    pub memory_limit_bytes: usize,
    /// How often an event is tried that makes `validate` or `apply` panic or hang, or ends its process, before
    /// it is dead. Default 3.
    pub attempts: u32,
    /// How long the inbox is left alone when nothing tells of new events. Default 1 s.
    pub poll_interval: Duration,
    /// How long `validate` and `apply` may hold up a batch. Then the entities whose events hang are set aside,
    /// and the others go on. A start at which stored events are applied again, or states are read, for longer
    /// than that at a time is given up. Default 30 s.
    pub stall: Duration,
}

impl Default for EntityConfig {
    fn default() -> Self {
        Self {
            actors: 4,
            batch: 500,
            batch_bytes: 4 * 1024 * 1024,
            snapshot_every: 1,
            state_limit_bytes: 256 * 1024,
            memory_limit_bytes: 1024 * 1024 * 1024,
            attempts: 3,
            poll_interval: Duration::from_secs(1),
            stall: Duration::from_secs(30),
        }
    }
}

impl EntityConfig {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if !(1..=256).contains(&self.actors) {
            return Err("actors must be 1 to 256");
        }
        if !(1..=1000).contains(&self.batch) {
            return Err("batch must be 1 to 1,000 events");
        }
        if !(1..=64 * 1024 * 1024).contains(&self.batch_bytes) {
            return Err("batch_bytes must be 1 byte to 64 MiB");
        }
        if self.snapshot_every == 0 || self.attempts == 0 {
            return Err("snapshot_every and attempts must be at least 1");
        }
        if !(1..=16 * 1024 * 1024).contains(&self.state_limit_bytes) {
            return Err("state_limit_bytes must be 1 byte to 16 MiB");
        }
        if self.poll_interval.is_zero() || self.stall.is_zero() {
            return Err("poll_interval and stall must be longer than nothing");
        }
        Ok(())
    }
}
