//! Whose turn it is among those who wait: a queue for each, one after the other, round after round.
//!
//! Pure: it starts nothing and knows no clock. Bounded by who fills it.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// What waits, by whose it is. Of one, the first that came goes first; between two turns of one who waits, everybody else who
/// waits has at most one.
#[derive(Debug)]
pub(super) struct Rotation<K, T> {
    /// None of them is empty.
    queues: HashMap<K, VecDeque<T>>,
    /// Everybody who waits, once; the first is next.
    turns: VecDeque<K>,
    len: usize,
}

impl<K: Copy + Eq + Hash, T> Rotation<K, T> {
    pub(super) fn new() -> Self {
        Self { queues: HashMap::new(), turns: VecDeque::new(), len: 0 }
    }

    /// How much waits altogether.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds to the end of its owner's queue. Who had nothing waiting comes after everybody who has.
    pub(super) fn push(&mut self, owner: K, waits: T) {
        let queue = self.queues.entry(owner).or_default();
        if queue.is_empty() {
            self.turns.push_back(owner);
        }
        queue.push_back(waits);
        self.len += 1;
    }

    /// Adds to the front of its owner's queue.
    pub(super) fn push_first(&mut self, owner: K, waits: T) {
        let queue = self.queues.entry(owner).or_default();
        if queue.is_empty() {
            self.turns.push_back(owner);
        }
        queue.push_front(waits);
        self.len += 1;
    }

    /// Whether something waits that is not this owner's.
    pub(super) fn has_others_than(&self, owner: K) -> bool {
        self.turns.len() > usize::from(self.queues.contains_key(&owner))
    }

    /// Takes the last of whoever has the most waiting; of several, of the one whose turn is last.
    pub(super) fn shed(&mut self) -> Option<T> {
        let waits = |owner: &K| self.queues.get(owner).map_or(0, VecDeque::len);
        let owner = *self.turns.iter().max_by_key(|owner| waits(owner))?;
        let queue = self.queues.get_mut(&owner)?;
        let last = queue.pop_back();
        if queue.is_empty() {
            self.queues.remove(&owner);
            self.turns.retain(|other| *other != owner);
        }
        self.len -= usize::from(last.is_some());
        last
    }

    /// Takes the first of whose turn it is. Who has more left comes after everybody else.
    pub(super) fn pop(&mut self) -> Option<T> {
        let owner = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&owner)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        self.len -= usize::from(first.is_some());
        first
    }

    /// Drops all that waits.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Somebody adds something, or a turn is taken.
    fn steps() -> impl Strategy<Value = Vec<Option<u8>>> {
        let owner = prop_oneof![3 => Just(0), 2 => 1..4_u8, 1 => 4..12_u8];
        prop::collection::vec(prop_oneof![3 => owner.prop_map(Some), 2 => Just(None)], 0..300)
    }

    proptest! {
        #[test]
        fn everybody_who_waits_has_one_turn_a_round(steps in steps()) {
            let mut rotation = Rotation::new();
            // What waits of whom, as it is meant to be.
            let mut waiting: BTreeMap<u8, VecDeque<usize>> = BTreeMap::new();
            // Of each who waits, whose turns there were since its last one, or since it came.
            let mut since: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
            let rest = std::iter::repeat_n(None, 301);
            for (at, step) in steps.into_iter().chain(rest).enumerate() {
                if let Some(owner) = step {
                    rotation.push(owner, (owner, at));
                    waiting.entry(owner).or_default().push_back(at);
                    since.entry(owner).or_default();
                } else if let Some((owner, taken)) = rotation.pop() {
                    let queue = waiting.get_mut(&owner).expect("it waited");
                    prop_assert_eq!(queue.pop_front(), Some(taken), "first in, first out");
                    since.remove(&owner);
                    for (other, turns) in &mut since {
                        prop_assert!(turns.insert(owner), "{} had two turns while {} waited", owner, other);
                    }
                    if queue.is_empty() {
                        waiting.remove(&owner);
                    } else {
                        since.insert(owner, BTreeSet::new());
                    }
                } else {
                    prop_assert!(waiting.is_empty(), "there is something to take");
                }
                prop_assert_eq!(rotation.len(), waiting.values().map(VecDeque::len).sum::<usize>());
                prop_assert_eq!(rotation.is_empty(), waiting.is_empty());
                prop_assert_eq!((rotation.queues.len(), rotation.turns.len()), (waiting.len(), waiting.len()));
            }
            prop_assert!(waiting.is_empty());
        }
    }

    #[test]
    fn what_was_cleared_has_no_turn() {
        let mut rotation = Rotation::new();
        (0..10).for_each(|number| rotation.push(number % 3, number));
        assert_eq!(rotation.pop(), Some(0));
        rotation.clear();
        assert_eq!((rotation.len(), rotation.pop()), (0, None));
        rotation.push(1, 11);
        assert_eq!(rotation.pop(), Some(11));
    }

    #[test]
    fn whoever_has_the_most_loses_its_last() {
        let mut rotation = Rotation::new();
        for (owner, waits) in [(1, "a"), (2, "b"), (1, "c"), (3, "d"), (3, "e")] {
            rotation.push(owner, waits);
        }
        assert_eq!(rotation.shed(), Some("e"), "of two with as many, the one whose turn is last");
        assert_eq!([(); 2].map(|()| rotation.shed()), [Some("c"), Some("d")]);
        assert_eq!(
            (rotation.len(), rotation.pop(), rotation.shed(), rotation.shed()),
            (2, Some("a"), Some("b"), None)
        );
        assert!(rotation.is_empty() && rotation.turns.is_empty() && rotation.queues.is_empty());
    }

    #[test]
    fn what_goes_first_among_its_own_waits_for_the_turns_of_others() {
        let mut rotation = Rotation::new();
        assert!(!rotation.has_others_than(1));
        rotation.push(1, "a");
        assert!(!rotation.has_others_than(1) && rotation.has_others_than(2));
        rotation.push(2, "b");
        assert!(rotation.has_others_than(1));
        rotation.pop();
        rotation.push_first(1, "c");
        rotation.push_first(1, "d");
        assert_eq!([(); 3].map(|()| rotation.pop()), [Some("b"), Some("d"), Some("c")]);
    }
}
