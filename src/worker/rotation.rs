//! Round-robin over owners: a queue for each owner that has something waiting, served in turn.
//!
//! Pure: it starts nothing and has no clock. The caller bounds its size.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Waiting items by owner. Between two turns of one owner, every other owner has at most one.
#[derive(Debug)]
pub(super) struct Rotation<K, T> {
    /// By owner; entries are never empty.
    queues: HashMap<K, Queue<T>>,
    /// Every owner that has something waiting, once; the first is next.
    turns: VecDeque<K>,
    came: usize,
    links: usize,
}

/// The waiting items of one owner. Arrived and handed-over items alternate while both wait, each in
/// their order: neither many arrivals nor long chains hold up the other kind.
#[derive(Debug)]
struct Queue<T> {
    came: VecDeque<T>,
    links: VecDeque<T>,
    /// The next turn is for an arrived item, if there is one.
    for_came: bool,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self { came: VecDeque::new(), links: VecDeque::new(), for_came: false }
    }

    fn is_empty(&self) -> bool {
        self.came.is_empty() && self.links.is_empty()
    }
}

impl<K: Copy + Eq + Hash, T> Rotation<K, T> {
    pub(super) fn new() -> Self {
        Self { queues: HashMap::new(), turns: VecDeque::new(), came: 0, links: 0 }
    }

    /// How many items wait.
    pub(super) fn len(&self) -> usize {
        self.came + self.links
    }

    /// How many of them were handed over.
    pub(super) fn links(&self) -> usize {
        self.links
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Adds an arrived item to its owner's queue. A newly waiting owner goes to the back.
    pub(super) fn push(&mut self, owner: K, waits: T) {
        self.queue(owner).came.push_back(waits);
        self.came += 1;
    }

    /// Adds an arrived item that gets its owner's next turn.
    pub(super) fn push_first(&mut self, owner: K, waits: T) {
        let queue = self.queue(owner);
        queue.came.push_front(waits);
        queue.for_came = true;
        self.came += 1;
    }

    /// Adds an item that was handed over by a run that ended, such as the next event of an object.
    /// It queues behind other handed-over items, but not behind arrived ones.
    pub(super) fn push_link(&mut self, owner: K, waits: T) {
        self.queue(owner).links.push_back(waits);
        self.links += 1;
    }

    fn queue(&mut self, owner: K) -> &mut Queue<T> {
        self.queues.entry(owner).or_insert_with(|| {
            self.turns.push_back(owner);
            Queue::new()
        })
    }

    /// Removes the latest arrived item of the owner with the most; among several such owners, of
    /// the one whose turn is last.
    pub(super) fn shed(&mut self) -> Option<T> {
        self.shed_of(|queue| &mut queue.came).inspect(|_| self.came -= 1)
    }

    /// Like [`Self::shed`], for handed-over items.
    pub(super) fn shed_link(&mut self) -> Option<T> {
        self.shed_of(|queue| &mut queue.links).inspect(|_| self.links -= 1)
    }

    fn shed_of(&mut self, part: fn(&mut Queue<T>) -> &mut VecDeque<T>) -> Option<T> {
        let Self { queues, turns, .. } = self;
        let waits = |owner: &&K| queues.get_mut(*owner).map_or(0, |queue| part(queue).len());
        let owner = *turns.iter().max_by_key(waits)?;
        let queue = queues.get_mut(&owner)?;
        let last = part(queue).pop_back();
        if queue.is_empty() {
            queues.remove(&owner);
            turns.retain(|other| *other != owner);
        }
        last
    }

    /// Takes the first item of the owner whose turn it is. An owner with more goes to the back.
    pub(super) fn pop(&mut self) -> Option<T> {
        let owner = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&owner)?;
        let has_link = !queue.links.is_empty() && (queue.came.is_empty() || !queue.for_came);
        queue.for_came = has_link;
        let (part, count) =
            if has_link { (&mut queue.links, &mut self.links) } else { (&mut queue.came, &mut self.came) };
        let first = part.pop_front();
        *count -= usize::from(first.is_some());
        if queue.is_empty() {
            self.queues.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// An item is added for an owner, or a turn is taken.
    fn steps() -> impl Strategy<Value = Vec<Option<u8>>> {
        let owner = prop_oneof![3 => Just(0), 2 => 1..4_u8, 1 => 4..12_u8];
        prop::collection::vec(prop_oneof![3 => owner.prop_map(Some), 2 => Just(None)], 0..300)
    }

    proptest! {
        // Shows: FAIR-01
        #[test]
        fn every_waiting_owner_has_one_turn_per_round(steps in steps()) {
            let mut rotation = Rotation::new();
            // The expected waiting items of each owner.
            let mut waiting: BTreeMap<u8, VecDeque<usize>> = BTreeMap::new();
            // For each waiting owner, which owners had a turn since its last one or its arrival.
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
    fn shedding_removes_the_last_item_of_the_largest_owner() {
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
    fn a_front_item_still_waits_for_other_owners_turns() {
        let mut rotation = Rotation::new();
        rotation.push(1, "a");
        rotation.push(2, "b");
        rotation.pop();
        rotation.push_first(1, "c");
        rotation.push_first(1, "d");
        assert_eq!([(); 3].map(|()| rotation.pop()), [Some("b"), Some("d"), Some("c")]);
    }

    #[test]
    fn handed_over_items_get_every_other_turn_of_their_owner() {
        let mut rotation = Rotation::new();
        (1..=3).for_each(|number| rotation.push(1, format!("came {number}")));
        (1..=3).for_each(|number| rotation.push_link(1, format!("link {number}")));
        rotation.push(2, "other".into());
        rotation.push_first(1, "first".into());
        let popped: Vec<String> = std::iter::from_fn(|| rotation.pop()).collect();
        let order = ["first", "other", "link 1", "came 1", "link 2", "came 2", "link 3", "came 3"];
        assert_eq!(popped, order);
        assert_eq!((rotation.len(), rotation.links()), (0, 0));
    }

    #[test]
    fn new_and_handed_over_items_are_shed_separately() {
        let mut rotation = Rotation::new();
        rotation.push(1, "a");
        rotation.push_link(1, "b");
        rotation.push_link(1, "c");
        rotation.push_link(2, "d");
        assert_eq!([rotation.shed(), rotation.shed()], [Some("a"), None]);
        assert_eq!((rotation.len(), rotation.links()), (3, 3));
        assert_eq!([(); 4].map(|()| rotation.shed_link()), [Some("c"), Some("d"), Some("b"), None]);
        assert!(rotation.is_empty() && rotation.turns.is_empty() && rotation.queues.is_empty());
    }
}
