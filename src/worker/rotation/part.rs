//! Items of one kind by owner, with the owner that has the most at hand.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

#[derive(Debug)]
pub(super) struct Part<K, T> {
    /// By owner; entries are never empty.
    queues: HashMap<K, VecDeque<T>>,
    /// The owners, ordered by how many items they have.
    sizes: BTreeSet<(usize, K)>,
    len: usize,
}

impl<K: Copy + Hash + Ord, T> Part<K, T> {
    pub(super) fn new() -> Self {
        Self { queues: HashMap::new(), sizes: BTreeSet::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn has(&self, owner: K) -> bool {
        self.queues.contains_key(&owner)
    }

    pub(super) fn push_back(&mut self, owner: K, item: T) {
        self.change(owner, |queue| queue.push_back(item));
    }

    pub(super) fn push_front(&mut self, owner: K, item: T) {
        self.change(owner, |queue| queue.push_front(item));
    }

    pub(super) fn pop_front(&mut self, owner: K) -> Option<T> {
        if self.has(owner) { self.change(owner, VecDeque::pop_front) } else { None }
    }

    /// Removes the last item of the owner with the most; among several such owners, of any.
    pub(super) fn pop_of_largest(&mut self) -> Option<(K, T)> {
        let (_, owner) = *self.sizes.last()?;
        self.change(owner, VecDeque::pop_back).map(|item| (owner, item))
    }

    /// Removes the items of an owner that are meant, in their order.
    pub(super) fn remove_all(&mut self, owner: K, is_meant: impl FnMut(&T) -> bool) -> VecDeque<T> {
        if !self.has(owner) {
            return VecDeque::new();
        }
        self.change(owner, |queue| {
            let (meant, rest) = std::mem::take(queue).into_iter().partition(is_meant);
            *queue = rest;
            meant
        })
    }

    /// Changes the queue of an owner, and keeps the order by size up to date.
    fn change<R>(&mut self, owner: K, change: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        let queue = self.queues.entry(owner).or_default();
        let before = queue.len();
        let result = change(queue);
        let after = queue.len();
        self.len = self.len + after - before;
        self.sizes.remove(&(before, owner));
        if after > 0 {
            self.sizes.insert((after, owner));
        } else {
            self.queues.remove(&owner);
        }
        result
    }
}
