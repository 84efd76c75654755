//! Max-min fairness over owners: a queue for each owner that has something waiting. A free place
//! goes to the owner with the fewest places, and owners with as many take turns.
//!
//! Pure: it starts nothing and has no clock. The caller bounds its size.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Waiting items by owner, and how many places each owner has.
#[derive(Debug)]
pub(super) struct Rotation<K, T> {
    /// By owner; entries are never empty.
    queues: HashMap<K, Queue<T>>,
    /// Every owner that has something waiting, once; the first is next.
    turns: VecDeque<K>,
    /// How many places an owner has; entries are never 0.
    places: HashMap<K, usize>,
    came: usize,
    links: usize,
    aside: usize,
}

/// The waiting items of one owner. Arrived and handed-over items alternate while both wait, each in
/// their order: neither many arrivals nor long chains hold up the other kind.
#[derive(Debug)]
struct Queue<T> {
    came: VecDeque<T>,
    links: VecDeque<T>,
    /// Arrived items that were set aside: they follow those in `came`.
    aside: VecDeque<T>,
    /// The next turn is for an arrived item, if there is one.
    for_came: bool,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self { came: VecDeque::new(), links: VecDeque::new(), aside: VecDeque::new(), for_came: false }
    }

    fn is_empty(&self) -> bool {
        self.came.is_empty() && self.links.is_empty() && self.aside.is_empty()
    }
}

impl<K: Copy + Eq + Hash, T> Rotation<K, T> {
    pub(super) fn new() -> Self {
        let (queues, turns, places) = (HashMap::new(), VecDeque::new(), HashMap::new());
        Self { queues, turns, places, came: 0, links: 0, aside: 0 }
    }

    /// How many items wait, not counting those set aside.
    pub(super) fn len(&self) -> usize {
        self.came + self.links
    }

    /// How many were set aside.
    pub(super) fn aside(&self) -> usize {
        self.aside
    }

    /// The owner of all that waits, if there is only one.
    pub(super) fn only_owner(&self) -> Option<K> {
        self.turns.front().copied().filter(|_| self.turns.len() == 1)
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

    /// Whether an owner has items that were set aside.
    pub(super) fn has_aside(&self, owner: K) -> bool {
        self.queues.get(&owner).is_some_and(|queue| !queue.aside.is_empty())
    }

    /// Adds an arrived item behind those of its owner that were set aside.
    pub(super) fn push_aside(&mut self, owner: K, waits: T) {
        self.queue(owner).aside.push_back(waits);
        self.aside += 1;
    }

    /// Sets an item aside that was shed: it came before those that were set aside earlier.
    pub(super) fn set_aside(&mut self, owner: K, waits: T) {
        self.queue(owner).aside.push_front(waits);
        self.aside += 1;
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

    /// Like [`Self::shed`], for items that were set aside.
    pub(super) fn shed_aside(&mut self) -> Option<T> {
        self.shed_of(|queue| &mut queue.aside).inspect(|_| self.aside -= 1)
    }

    /// The owner has one place less.
    pub(super) fn ended(&mut self, owner: K) {
        if let Some(places) = self.places.get_mut(&owner) {
            *places -= 1;
            if *places == 0 {
                self.places.remove(&owner);
            }
        }
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

    /// Takes the first item of the owner that has the fewest places, or whose turn it is among
    /// several such owners; it then has one more. An owner with more items goes to the back.
    pub(super) fn pop(&mut self) -> Option<T> {
        let at = self.next()?;
        let owner = self.turns.remove(at)?;
        *self.places.entry(owner).or_default() += 1;
        let queue = self.queues.get_mut(&owner)?;
        if queue.came.is_empty() {
            (self.came, self.aside) = fetched(queue, (self.came, self.aside));
        }
        let has_link = !queue.links.is_empty() && (queue.came.is_empty() || !queue.for_came);
        queue.for_came = has_link;
        let first = if has_link {
            self.links -= 1;
            queue.links.pop_front()
        } else {
            self.came -= usize::from(!queue.came.is_empty());
            let first = queue.came.pop_front();
            // Its place in the order: later arrivals are behind what was set aside.
            (self.came, self.aside) = fetched(queue, (self.came, self.aside));
            first
        };
        if queue.is_empty() {
            self.queues.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        first
    }

    /// Where the owner with the fewest places stands among the turns.
    fn next(&self) -> Option<usize> {
        let mut fewest = None;
        for (at, owner) in self.turns.iter().enumerate() {
            let places = self.places.get(owner).copied().unwrap_or(0);
            if fewest.is_none_or(|(least, _)| places < least) {
                fewest = Some((places, at));
            }
            if places == 0 {
                break;
            }
        }
        fewest.map(|(_, at)| at)
    }
}

/// Moves the first item that was set aside to the arrived ones; returns the new counts of both.
fn fetched<T>(queue: &mut Queue<T>, (came, aside): (usize, usize)) -> (usize, usize) {
    match queue.aside.pop_front() {
        Some(first) => {
            queue.came.push_back(first);
            (came + 1, aside - 1)
        }
        None => (came, aside),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// What happens: an item is added for an owner, a place is free, or the owner with this number
    /// among those that have places has one less.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Comes(u8),
        Free,
        Ends(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let owner = prop_oneof![3 => Just(0), 2 => 1..4_u8, 1 => 4..12_u8];
        let step = prop_oneof![
            3 => owner.prop_map(Step::Comes),
            2 => Just(Step::Free),
            1 => (0..100_usize).prop_map(Step::Ends),
        ];
        prop::collection::vec(step, 0..300)
    }

    /// What is expected of an owner that waits: its items, and when it came or had its last turn.
    type Waiting = BTreeMap<u8, (VecDeque<usize>, usize)>;

    proptest! {
        /// A free place goes to the owner with the fewest, and among several to the one whose last
        /// turn, or arrival, is the longest ago. If all runs are as long, owners take turns.
        // Shows: FAIR-01
        #[test]
        fn a_free_place_goes_to_the_owner_with_the_fewest(steps in steps()) {
            let mut rotation = Rotation::new();
            let mut waiting = Waiting::new();
            let mut places: BTreeMap<u8, usize> = BTreeMap::new();
            let rest = std::iter::repeat_n(Step::Free, 301);
            for (at, step) in steps.into_iter().chain(rest).enumerate() {
                match step {
                    Step::Comes(owner) => {
                        rotation.push(owner, (owner, at));
                        waiting.entry(owner).or_insert_with(|| (VecDeque::new(), at)).0.push_back(at);
                    }
                    Step::Ends(number) => {
                        let having: Vec<u8> = places.keys().copied().collect();
                        if let Some(owner) = having.get(number % having.len().max(1)) {
                            rotation.ended(*owner);
                            *places.get_mut(owner).unwrap() -= 1;
                            places.retain(|_, count| *count > 0);
                        }
                    }
                    Step::Free => {
                        let has = |owner: &u8| places.get(owner).copied().unwrap_or(0);
                        let first = waiting.iter().min_by_key(|(owner, (_, since))| (has(owner), *since));
                        let expected = first.map(|(owner, (items, _))| (*owner, items[0]));
                        prop_assert_eq!(rotation.pop(), expected);
                        if let Some((owner, _)) = expected {
                            *places.entry(owner).or_default() += 1;
                            let (items, since) = waiting.get_mut(&owner).unwrap();
                            items.pop_front();
                            *since = at;
                            waiting.retain(|_, (items, _)| !items.is_empty());
                        }
                    }
                }
                prop_assert_eq!(rotation.len(), waiting.values().map(|(items, _)| items.len()).sum::<usize>());
                prop_assert_eq!(rotation.is_empty(), waiting.is_empty());
                prop_assert_eq!((rotation.queues.len(), rotation.turns.len()), (waiting.len(), waiting.len()));
                prop_assert_eq!(rotation.places.len(), places.len());
            }
            prop_assert!(waiting.is_empty());
        }
    }

    #[test]
    fn an_owner_of_long_runs_has_no_more_places_than_one_of_short_runs() {
        let mut rotation = Rotation::new();
        (0..100).for_each(|_| rotation.push("long", "long"));
        (0..100).for_each(|_| rotation.push("short", "short"));
        let mut long = 0;
        for _ in 0..8 {
            rotation.pop().unwrap();
        }
        for _ in 0..50 {
            rotation.ended("short");
            long += usize::from(rotation.pop() == Some("long"));
        }
        assert_eq!(long, 0, "each has four of eight places, whatever ends first");
    }

    #[test]
    fn what_was_set_aside_keeps_its_place_in_the_order() {
        let mut rotation = Rotation::new();
        (1..=3).for_each(|number| rotation.push(1, number));
        let shed = [rotation.shed(), rotation.shed()];
        assert_eq!(shed, [Some(3), Some(2)]);
        shed.into_iter().flatten().for_each(|number| rotation.set_aside(1, number));
        rotation.push_aside(1, 4);
        assert_eq!(
            (rotation.len(), rotation.aside(), rotation.has_aside(1), rotation.has_aside(2)),
            (1, 3, true, false)
        );
        rotation.push(2, 9);
        assert_eq!((rotation.only_owner(), rotation.shed_aside()), (None, Some(4)));
        assert_eq!([(); 4].map(|()| rotation.pop()), [Some(1), Some(9), Some(2), Some(3)]);
        assert!(rotation.is_empty() && rotation.aside() == 0);
        rotation.set_aside(1, 5);
        assert_eq!((rotation.only_owner(), rotation.len(), rotation.pop()), (Some(1), 0, Some(5)));
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
