//! The configuration of the processors of entities.

use std::time::Duration;

/// The limits and periods of a processor.
#[derive(Clone, Debug)]
pub struct EntityConfig {
    /// Threads that validate and apply. An entity always stays with the same one. 1 to 256, default
    /// 4.
    pub actors: usize,
    /// Maximum number of events in one transaction. 1 to 1,000, default 500.
    pub batch: usize,
    /// Maximum bytes of events per read, and of results, follow-ups and states that a transaction
    /// writes because of its events. One event is processed in any case. 1 byte to 64 MiB, default
    /// 4 MiB.
    pub batch_bytes: usize,
    /// The state of an entity is written after this many of its events since it was last written;
    /// events that are not in the written state are replayed after a start. At least 1, default 1:
    /// with every batch, so that other readers of an entity see its current state.
    pub snapshot_every: u32,
    /// Largest state of one entity, as JSON, at the end of a batch: events that would make it
    /// larger fail. 1 byte to 16 MiB, default 256 KiB.
    pub state_limit_bytes: usize,
    /// Memory that the entities of the type may take between two batches, by estimate, divided
    /// equally among the actors. Above it, the least recently used entities of the canvas that
    /// takes the most are evicted, and loaded again when an event for them arrives. Default 1 GiB.
    pub memory_limit_bytes: usize,
    /// How often an event that makes `validate` or `apply` panic or hang, or crashes its process,
    /// is tried before it is dead. At least 1, default 3.
    pub attempts: u32,
    /// How long a processor that receives no signal waits before it looks into the inbox again.
    /// Default 1 s.
    pub poll_interval: Duration,
    /// How long `validate` and `apply` may hold up a batch. After that the entities whose events
    /// hang are isolated, and the others continue. A start is abandoned if applying stored events
    /// again, or reading states, takes longer than this at a time. Default 30 s.
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
            return Err("poll_interval and stall must be longer than zero");
        }
        Ok(())
    }
}
