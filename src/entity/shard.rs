//! The entities of one actor: their states in memory, and what events make of them.
//!
//! A batch is worked on copies, which take the place of what is cached when the batch was committed, and are dropped when it was
//! not. No I/O, and no clock.

use std::collections::{BTreeMap, HashMap};

use super::cache::{Cache, Left};
use super::define::{Entity, FollowUp};
use super::envelope::Received;
use super::run::{Kept, Run, Written};
use crate::event::{CanvasId, StreamName};

/// An entity of a type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) canvas: CanvasId,
    pub(super) id: StreamName,
}

/// What an actor may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) snapshot_every: i64,
    pub(super) state_bytes: usize,
    pub(super) payload_bytes: usize,
    pub(super) attempts: u32,
    /// The memory that its entities may take.
    pub(super) memory_bytes: usize,
}

/// What was decided about an event.
#[derive(Debug)]
pub(super) enum Decision {
    /// It is to be stored; the entity has this version with it.
    Stored { version: i64, result: Option<String>, follow_ups: Vec<FollowUp> },
    /// It is not valid.
    Rejected(String),
    /// It was decided upon before, and is the latest: its result is sent again.
    Again,
    /// It was sent again, and is stored already.
    Done,
    /// It came by before, and was decided upon then: the position of the inbox was moved back.
    Passed,
    /// The entity is erased.
    Erased,
    /// It can't be processed, now or ever.
    Dead { why: String, attempts: u32 },
}

/// An entity that a batch has changed.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) key: Key,
    pub(super) version: i64,
    pub(super) last: i64,
    /// Its state as JSON, when it is to be written.
    pub(super) snapshot: Option<String>,
}

/// What an actor made of its part of a batch: decisions by their places in the batch.
#[derive(Debug, Default)]
pub(super) struct Worked {
    pub(super) decisions: Vec<(usize, Decision)>,
    pub(super) changed: Vec<Changed>,
}

/// An entity whose state can't be made of its events any more: `apply` has come to something else than before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Broken(pub(super) String);

/// What is known of an entity that is taken into memory.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) key: Key,
    pub(super) last: i64,
    /// Its snapshot, and the version of it.
    pub(super) snapshot: Option<(String, i64)>,
}

/// What an actor has in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) entities: usize,
    /// By estimate.
    pub(super) bytes: usize,
    /// Whether all that there is is in memory.
    pub(super) is_whole: bool,
    /// What left just now.
    pub(super) left: Left,
}

/// What is in memory of an entity.
#[derive(Debug)]
pub(super) enum Found<S> {
    Kept(S, i64),
    /// Nothing, and the database may have it.
    Cold,
    /// There is no such entity.
    Nothing,
}

pub(super) struct Shard<E: Entity> {
    limits: Limits,
    cache: Cache<Kept<E::State>>,
    pending: HashMap<Key, Kept<E::State>>,
}

impl<E: Entity> Shard<E> {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, cache: Cache::new(limits.memory_bytes), pending: HashMap::new() }
    }

    pub(super) fn size(&self) -> Size {
        let Self { cache, .. } = self;
        Size {
            entities: cache.len(),
            bytes: cache.bytes(),
            is_whole: cache.is_whole(),
            left: Left::default(),
        }
    }

    /// The state of an entity, as it was committed, and its version.
    pub(super) fn read(&self, key: &Key) -> Found<E::State> {
        match self.cache.peek(key) {
            Some(kept) => Found::Kept(kept.state.clone(), kept.version),
            None if self.cache.is_cold(key) => Found::Cold,
            None => Found::Nothing,
        }
    }

    /// Those of which nothing is in memory, and the database may have something.
    pub(super) fn cold(&self, keys: Vec<(usize, Key)>) -> Vec<(usize, Key)> {
        keys.into_iter().filter(|(_, key)| self.cache.is_cold(key)).collect()
    }

    /// Takes an entity into memory, whatever the limit says: see [`Self::trim`].
    pub(super) fn keep(&mut self, key: Key, kept: Kept<E::State>) {
        let bytes = kept.bytes;
        self.cache.insert(key, kept, bytes);
    }

    /// There is more of this canvas, or of all, than was taken into memory.
    pub(super) fn is_part_of(&mut self, canvas: Option<CanvasId>) {
        match canvas {
            Some(canvas) => self.cache.is_part_of(canvas),
            None => self.cache.is_part_of_all(),
        }
    }

    /// Has entities leave, if they take more than they may. Between batches only: a batch has its entities in memory.
    pub(super) fn trim(&mut self) -> Size {
        let left = self.cache.trim();
        Size { left, ..self.size() }
    }

    /// Works through events of a batch, each entity's in their order. Nothing of it is seen before [`Self::commit`]. None, if the batch
    /// writes too much.
    pub(super) fn work(
        &mut self,
        events: Vec<(usize, Received)>,
        stored: bool,
        written: &Written,
    ) -> Result<Option<Worked>, Broken> {
        self.pending.clear();
        let mut by_entity: BTreeMap<Key, Vec<(usize, Received)>> = BTreeMap::new();
        for (place, event) in events {
            let key = Key { canvas: event.canvas, id: event.entity.clone() };
            by_entity.entry(key).or_default().push((place, event));
        }
        let mut worked = Worked::default();
        for (key, events) in by_entity {
            if !self.work_entity(key, &events, stored, written, &mut worked)? {
                return Ok(None);
            }
        }
        Ok(Some(worked))
    }

    /// What was worked is committed.
    pub(super) fn commit(&mut self) -> Size {
        let pending: Vec<_> = self.pending.drain().collect();
        for (key, kept) in pending {
            self.keep(key, kept);
        }
        self.trim()
    }

    /// What was worked is not committed.
    pub(super) fn roll_back(&mut self) {
        self.pending.clear();
    }

    /// An entity is erased.
    pub(super) fn forget_one(&mut self, key: &Key) {
        self.cache.remove(key);
    }

    pub(super) fn forget(&mut self) {
        *self = Self::new(self.limits);
    }

    /// Whether it was worked: not, if the batch writes too much.
    fn work_entity(
        &mut self,
        key: Key,
        events: &[(usize, Received)],
        stored: bool,
        written: &Written,
        worked: &mut Worked,
    ) -> Result<bool, Broken> {
        self.cache.touch(&key);
        let before = self.cache.peek(&key);
        let mut run = Run::<E>::new(before, self.limits, written, false);
        let Some(mut decisions) = run.all(events, stored)? else { return Ok(false) };
        let mut state = run.state(&key)?;
        if state.as_ref().is_some_and(|state| state.len() > self.limits.state_bytes) {
            // One of them made it too large: which one, is found by measuring after each.
            run = Run::new(before, self.limits, written, true);
            let Some(measured) = run.all(events, stored)? else { return Ok(false) };
            decisions = measured;
            state = run.state(&key)?;
        }
        if written.is_too_much() {
            return Ok(false);
        }
        worked.decisions.append(&mut decisions);
        written.goes_on(events.last().map(|(place, _)| *place), None);
        let (kept, snapshot) = run.end(&key, state);
        // Of an entity that was never valid nothing is kept.
        if kept.version > 0 && before.is_none_or(|before| before.last != kept.last) {
            worked.changed.push(Changed {
                key: key.clone(),
                version: kept.version,
                last: kept.last,
                snapshot,
            });
            self.pending.insert(key, kept);
        }
        Ok(true)
    }
}
