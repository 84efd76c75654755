//! The entities in memory, by canvas. Above the limit, the least recently used ones of the canvas
//! that takes the most are evicted: so no canvas loses anything to one that takes more than itself.
//!
//! The cache never decides what is true of an entity, only whether it is in memory; it also knows
//! for which canvases an entity that is not in memory may exist.

use std::collections::{BinaryHeap, HashMap};

use hashlink::LruCache;

use wakeq::CanvasId;
use wakeq::log::StreamName;

/// The key of an entity within its type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) canvas: CanvasId,
    pub(super) id: StreamName,
}

/// How many were evicted, and the canvas of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Evictions {
    pub(super) entities: usize,
    pub(super) last: Option<CanvasId>,
}

pub(super) struct Cache<T> {
    canvases: HashMap<CanvasId, CanvasCache<T>>,
    entities: usize,
    bytes: usize,
    limit_bytes: usize,
    /// Whether there may be entities of canvases that never had one in memory.
    incomplete: bool,
    /// Whether all existing entities are in memory.
    whole: bool,
}

struct CanvasCache<T> {
    lru: LruCache<StreamName, (T, usize)>,
    bytes: usize,
    /// Whether there may be entities of this canvas that are not in memory.
    partial: bool,
}

impl<T> CanvasCache<T> {
    fn new() -> Self {
        Self { lru: LruCache::new_unbounded(), bytes: 0, partial: false }
    }
}

impl<T> Cache<T> {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { canvases: HashMap::new(), entities: 0, bytes: 0, limit_bytes, incomplete: false, whole: true }
    }

    /// The estimated memory of the entities.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.entities
    }

    /// Whether all existing entities are in memory.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    pub(super) fn peek(&self, key: &Key) -> Option<&T> {
        self.canvases.get(&key.canvas)?.lru.peek(&key.id).map(|(value, _)| value)
    }

    /// Whether an entity is not in memory but may be in the database.
    pub(super) fn is_cold(&self, key: &Key) -> bool {
        match self.canvases.get(&key.canvas) {
            Some(canvas) => (canvas.partial || self.incomplete) && canvas.lru.peek(&key.id).is_none(),
            None => self.incomplete,
        }
    }

    /// Marks an entity as used: of its canvas it is the last to be evicted.
    pub(super) fn touch(&mut self, key: &Key) {
        if let Some(canvas) = self.canvases.get_mut(&key.canvas) {
            canvas.lru.get(&key.id);
        }
    }

    /// Adds an entity, regardless of the limit: see [`Self::trim`].
    pub(super) fn insert(&mut self, key: Key, value: T, bytes: usize) {
        let canvas = self.canvases.entry(key.canvas).or_insert_with(CanvasCache::new);
        let before = canvas.lru.insert(key.id, (value, bytes));
        self.entities += usize::from(before.is_none());
        let before = before.map_or(0, |(_, before)| before);
        canvas.bytes = (canvas.bytes + bytes).saturating_sub(before);
        self.bytes = (self.bytes + bytes).saturating_sub(before);
    }

    /// Removes an entity that no longer exists.
    pub(super) fn remove(&mut self, key: &Key) {
        let Some(canvas) = self.canvases.get_mut(&key.canvas) else { return };
        let Some((_, bytes)) = canvas.lru.remove(&key.id) else { return };
        self.entities -= 1;
        canvas.bytes = canvas.bytes.saturating_sub(bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Notes that there is more of this canvas than is in memory.
    pub(super) fn mark_partial(&mut self, canvas: CanvasId) {
        self.canvases.entry(canvas).or_insert_with(CanvasCache::new).partial = true;
        self.whole = false;
    }

    /// Notes that there may be more of any canvas than is in memory.
    pub(super) fn mark_all_partial(&mut self) {
        (self.incomplete, self.whole) = (true, false);
    }

    /// Evicts entities until the others fit into the limit.
    pub(super) fn trim(&mut self) -> Evictions {
        let mut evicted = Evictions::default();
        if self.bytes <= self.limit_bytes {
            return evicted;
        }
        let mut largest: BinaryHeap<_> =
            self.canvases.iter().map(|(id, canvas)| (canvas.bytes, *id)).collect();
        while self.bytes > self.limit_bytes {
            let Some((_, id)) = largest.pop() else { break };
            let Some(canvas) = self.canvases.get_mut(&id) else { continue };
            let Some((_, (_, bytes))) = canvas.lru.remove_lru() else { continue };
            (canvas.partial, self.whole) = (true, false);
            self.entities -= 1;
            canvas.bytes = canvas.bytes.saturating_sub(bytes);
            self.bytes = self.bytes.saturating_sub(bytes);
            largest.push((canvas.bytes, id));
            evicted = Evictions { entities: evicted.entities + 1, last: Some(id) };
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(canvas: u128, id: usize) -> Key {
        Key { canvas: CanvasId(uuid::Uuid::from_u128(canvas)), id: format!("e{id}").parse().unwrap() }
    }

    fn has(cache: &Cache<usize>, canvas: u128, ids: std::ops::Range<usize>) -> Vec<usize> {
        ids.filter(|id| cache.peek(&key(canvas, *id)).is_some()).collect()
    }

    #[test]
    fn one_canvas_pushes_nothing_out_of_another_that_takes_less() {
        let mut cache = Cache::new(1_000);
        for id in 0..30 {
            cache.insert(key(1, id), id, 10);
        }
        // New ones, and ones that grow.
        for id in 0..500 {
            cache.insert(key(2, id), id, 10);
            cache.insert(key(2, id % 7), id, 50);
            cache.trim();
            assert!(cache.bytes() <= 1_000);
        }
        assert_eq!(has(&cache, 1, 0..30).len(), 30);
        assert!(!cache.is_cold(&key(1, 77)), "of the small one all is in memory: what is not there is new");
        assert!(cache.is_cold(&key(2, 100)) && !cache.is_whole());
        assert!(!cache.is_cold(&key(3, 1)), "a canvas without entities");
        // The small canvas gets what it needs, up to as much as the other one.
        for id in 30..50 {
            cache.insert(key(1, id), id, 10);
            cache.trim();
        }
        assert_eq!(has(&cache, 1, 0..50).len(), 50);
    }

    #[test]
    fn the_least_recently_used_leave() {
        let mut cache = Cache::new(100);
        for id in 0..10 {
            cache.insert(key(1, id), id, 10);
        }
        assert_eq!((cache.trim(), cache.is_whole()), (Evictions::default(), true));
        cache.touch(&key(1, 0));
        cache.insert(key(1, 10), 10, 20);
        assert_eq!(cache.trim(), Evictions { entities: 2, last: Some(key(1, 0).canvas) });
        assert_eq!(has(&cache, 1, 0..11), [0, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!((cache.bytes(), cache.len()), (100, 9));
        // One that is larger than the whole limit does not stay.
        cache.insert(key(2, 0), 0, 1_000);
        assert_eq!(cache.trim(), Evictions { entities: 1, last: Some(key(2, 0).canvas) });
        assert_eq!(cache.len(), 9);
    }

    #[test]
    fn erased_entities_free_their_bytes_and_are_not_cold() {
        let mut cache = Cache::new(100);
        cache.insert(key(1, 0), 0, 10);
        cache.insert(key(2, 0), 0, 20);
        for _ in 0..2 {
            cache.remove(&key(1, 0));
            assert_eq!((cache.bytes(), cache.len(), cache.is_whole()), (20, 1, true));
        }
        assert!(!cache.is_cold(&key(1, 0)), "it is new when an event comes for it");
        assert_eq!(has(&cache, 2, 0..1).len(), 1);
        cache.remove(&key(3, 0));
        cache.insert(key(1, 0), 1, 10);
        assert_eq!((cache.bytes(), cache.len()), (30, 2));
    }

    #[test]
    fn entities_not_loaded_are_cold() {
        let mut cache = Cache::<usize>::new(100);
        cache.mark_partial(key(1, 0).canvas);
        assert!(cache.is_cold(&key(1, 0)) && !cache.is_cold(&key(2, 0)));
        cache.mark_all_partial();
        assert!(cache.is_cold(&key(2, 0)));
        cache.insert(key(2, 0), 0, 1);
        assert!(!cache.is_cold(&key(2, 0)) && cache.is_cold(&key(2, 1)));
    }
}
