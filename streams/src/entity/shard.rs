//! The entities of one actor: their states in memory, and how events change them.
//!
//! A batch works on copies, which replace the cached states when the batch was committed, and are
//! dropped when it was not. No I/O, and no clock.

use std::collections::{BTreeMap, HashMap};

use super::cache::{Cache, Evictions, Key};
use super::define::Entity;
use super::envelope::InboxEvent;
use super::run::{BatchProgress, CachedEntity, Decision, FatalError, Limits, Run};
use wakeq::CanvasId;

/// An entity that a batch has changed.
#[derive(Debug)]
pub(super) struct ChangedEntity {
    pub(super) key: Key,
    pub(super) version: i64,
    pub(super) last: i64,
    /// Its state as JSON, if that is to be written.
    pub(super) snapshot: Option<String>,
}

/// The result of an actor for its part of a batch: decisions with the indices of their events in
/// the batch, and changed entities.
#[derive(Debug, Default)]
pub(super) struct WorkOutput {
    pub(super) decisions: Vec<(usize, Decision)>,
    pub(super) changed: Vec<ChangedEntity>,
}

/// How much an actor has in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) entities: usize,
    /// An estimate.
    pub(super) bytes: usize,
    /// Whether all existing entities are in memory.
    pub(super) is_whole: bool,
    /// The latest evictions.
    pub(super) evicted: Evictions,
}

/// The result of a lookup of an entity in memory.
#[derive(Debug)]
pub(super) enum CacheLookup<S> {
    Cached(S, i64),
    /// It is not in memory, but may be in the database.
    Cold,
    /// The entity does not exist.
    Absent,
}

pub(super) struct Shard<E: Entity> {
    limits: Limits,
    cache: Cache<CachedEntity<E::State>>,
    pending: HashMap<Key, CachedEntity<E::State>>,
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
            evicted: Evictions::default(),
        }
    }

    /// The committed state of an entity, and its version.
    pub(super) fn read(&self, key: &Key) -> CacheLookup<E::State> {
        match self.cache.peek(key) {
            Some(cached) => CacheLookup::Cached(cached.state.clone(), cached.version),
            None if self.cache.is_cold(key) => CacheLookup::Cold,
            None => CacheLookup::Absent,
        }
    }

    /// The keys that are not in memory and may be in the database.
    pub(super) fn cold(&self, keys: Vec<(usize, Key)>) -> Vec<(usize, Key)> {
        keys.into_iter().filter(|(_, key)| self.cache.is_cold(key)).collect()
    }

    /// Takes an entity into memory, regardless of the limit: see [`Self::trim`].
    pub(super) fn keep(&mut self, key: Key, cached: CachedEntity<E::State>) {
        let bytes = cached.bytes;
        self.cache.insert(key, cached, bytes);
    }

    /// Notes that there is more of this canvas, or of all canvases, than is in memory.
    pub(super) fn mark_partial(&mut self, canvas: Option<CanvasId>) {
        match canvas {
            Some(canvas) => self.cache.mark_partial(canvas),
            None => self.cache.mark_all_partial(),
        }
    }

    /// Evicts entities that exceed the limit. Only between batches: a batch has its entities in
    /// memory.
    pub(super) fn trim(&mut self) -> Size {
        let evicted = self.cache.trim();
        Size { evicted, ..self.size() }
    }

    /// Processes events of a batch, those of each entity in their order. Nothing of it is visible
    /// before [`Self::commit`]. `None` if the batch writes too much.
    pub(super) fn work(
        &mut self,
        events: Vec<(usize, InboxEvent)>,
        stored: bool,
        written: &BatchProgress,
    ) -> Result<Option<WorkOutput>, FatalError> {
        self.pending.clear();
        let mut by_entity: BTreeMap<Key, Vec<(usize, InboxEvent)>> = BTreeMap::new();
        for (place, event) in events {
            let key = Key { canvas: event.canvas, id: event.entity.clone() };
            by_entity.entry(key).or_default().push((place, event));
        }
        let mut worked = WorkOutput::default();
        for (key, events) in by_entity {
            if !self.work_entity(key, &events, stored, written, &mut worked)? {
                return Ok(None);
            }
        }
        Ok(Some(worked))
    }

    /// Follows the commit of the batch.
    pub(super) fn commit(&mut self) -> Size {
        let pending: Vec<_> = self.pending.drain().collect();
        for (key, cached) in pending {
            self.keep(key, cached);
        }
        self.trim()
    }

    /// Drops the changes of a batch that was not committed.
    pub(super) fn roll_back(&mut self) {
        self.pending.clear();
    }

    /// Removes an entity from memory.
    pub(super) fn forget_one(&mut self, key: &Key) {
        self.cache.remove(key);
    }

    pub(super) fn forget(&mut self) {
        *self = Self::new(self.limits);
    }

    /// Returns false if the batch writes too much.
    fn work_entity(
        &mut self,
        key: Key,
        events: &[(usize, InboxEvent)],
        stored: bool,
        written: &BatchProgress,
        worked: &mut WorkOutput,
    ) -> Result<bool, FatalError> {
        self.cache.touch(&key);
        let before = self.cache.peek(&key);
        let mut run = Run::<E>::new(before, self.limits, written, false);
        let Some(mut decisions) = run.all(events, stored)? else { return Ok(false) };
        let mut state = run.state(&key)?;
        if state.as_ref().is_some_and(|state| state.len() > self.limits.state_bytes) {
            // One of the events made it too large; measuring after each finds out which.
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
        let (cached, snapshot) = run.end(&key, state);
        // Nothing is kept of an entity that never had a valid event.
        if cached.version > 0 && before.is_none_or(|before| before.last != cached.last) {
            worked.changed.push(ChangedEntity {
                key: key.clone(),
                version: cached.version,
                last: cached.last,
                snapshot,
            });
            self.pending.insert(key, cached);
        }
        Ok(true)
    }
}
