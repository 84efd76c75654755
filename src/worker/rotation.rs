//! Max-min fairness over owners: a queue for each owner that has something waiting. A free place
//! goes to the owner with the fewest places, and owners with as many take turns.
//!
//! Pure: it starts nothing and has no clock. The caller bounds its size.

mod part;

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

use part::Part;

/// Waiting items by owner, and how many places each owner has. Arrived and handed-over items of an
/// owner alternate while both wait, each in their order: neither many arrivals nor long chains hold
/// up the other kind.
#[derive(Debug)]
pub(super) struct Rotation<K, T, A> {
    arrived: Part<K, T>,
    links: Part<K, T>,
    /// Arrived items that were set aside, in a smaller form: they follow those in `arrived`.
    aside: Part<K, A>,
    /// The owners whose next turn is for an arrived item, if there is one.
    next_arrived: HashSet<K>,
    /// Every owner that has something waiting, once; the first is next.
    turns: VecDeque<K>,
    /// How many places an owner has; entries are never 0.
    places: HashMap<K, usize>,
}

impl<K: Copy + Hash + Ord, T, A> Rotation<K, T, A> {
    pub(super) fn new() -> Self {
        let (turns, places) = (VecDeque::new(), HashMap::new());
        let (arrived, links, aside) = (Part::new(), Part::new(), Part::new());
        Self { arrived, links, aside, next_arrived: HashSet::new(), turns, places }
    }

    /// How many items wait, not counting those set aside.
    pub(super) fn len(&self) -> usize {
        self.arrived.len() + self.links.len()
    }

    /// How many of them were handed over.
    pub(super) fn links(&self) -> usize {
        self.links.len()
    }

    /// How many were set aside.
    pub(super) fn aside(&self) -> usize {
        self.aside.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// How many owners have something waiting.
    pub(super) fn owners(&self) -> usize {
        self.turns.len()
    }

    /// The owner of all that waits, if there is only one.
    pub(super) fn only_owner(&self) -> Option<K> {
        self.turns.front().copied().filter(|_| self.turns.len() == 1)
    }

    /// Whether an owner has items that were set aside.
    pub(super) fn has_aside(&self, owner: K) -> bool {
        self.aside.has(owner)
    }

    /// Adds an arrived item to its owner's queue. A newly waiting owner goes to the back.
    pub(super) fn push(&mut self, owner: K, waits: T) {
        self.add_turn(owner);
        self.arrived.push_back(owner, waits);
    }

    /// Adds an arrived item that gets its owner's next turn.
    pub(super) fn push_first(&mut self, owner: K, waits: T) {
        self.add_turn(owner);
        self.next_arrived.insert(owner);
        self.arrived.push_front(owner, waits);
    }

    /// Adds an item that was handed over by a run that ended, such as the next event of an object.
    /// It queues behind other handed-over items, but not behind arrived ones.
    pub(super) fn push_link(&mut self, owner: K, waits: T) {
        self.add_turn(owner);
        self.links.push_back(owner, waits);
    }

    /// Adds an arrived item behind those of its owner that were set aside.
    pub(super) fn push_aside(&mut self, owner: K, waits: A) {
        self.add_turn(owner);
        self.aside.push_back(owner, waits);
    }

    fn add_turn(&mut self, owner: K) {
        if !self.waits(owner) {
            self.turns.push_back(owner);
        }
    }

    fn waits(&self, owner: K) -> bool {
        self.arrived.has(owner) || self.links.has(owner) || self.aside.has(owner)
    }

    /// Sets the latest arrived item of the owner with the most aside, before those that were set
    /// aside earlier; returns whether there was one.
    pub(super) fn set_aside(&mut self, shrink: impl FnOnce(T) -> A) -> bool {
        let Some((owner, last)) = self.arrived.pop_of_largest() else { return false };
        self.aside.push_front(owner, shrink(last));
        true
    }

    /// Removes the arrived items of an owner that are meant, in their order.
    pub(super) fn remove_all(&mut self, owner: K, is_meant: impl FnMut(&T) -> bool) -> VecDeque<T> {
        let removed = self.arrived.remove_all(owner, is_meant);
        self.drop_idle(owner);
        removed
    }

    /// Like [`Self::remove_all`], for items that were set aside.
    pub(super) fn remove_all_aside(&mut self, owner: K, is_meant: impl FnMut(&A) -> bool) -> VecDeque<A> {
        let removed = self.aside.remove_all(owner, is_meant);
        self.drop_idle(owner);
        removed
    }

    /// Removes the latest arrived item of the owner with the most.
    pub(super) fn shed(&mut self) -> Option<T> {
        let (owner, last) = self.arrived.pop_of_largest()?;
        self.drop_idle(owner);
        Some(last)
    }

    /// Like [`Self::shed`], for handed-over items.
    pub(super) fn shed_link(&mut self) -> Option<T> {
        let (owner, last) = self.links.pop_of_largest()?;
        self.drop_idle(owner);
        Some(last)
    }

    /// Like [`Self::shed`], for items that were set aside; with their owner.
    pub(super) fn shed_aside(&mut self) -> Option<(K, A)> {
        let (owner, last) = self.aside.pop_of_largest()?;
        self.drop_idle(owner);
        Some((owner, last))
    }

    fn drop_idle(&mut self, owner: K) {
        if !self.waits(owner) {
            self.turns.retain(|other| *other != owner);
            self.next_arrived.remove(&owner);
        }
    }

    /// The owner has one place less.
    pub(super) fn free_place(&mut self, owner: K) {
        if let Some(places) = self.places.get_mut(&owner) {
            *places -= 1;
            if *places == 0 {
                self.places.remove(&owner);
            }
        }
    }

    /// Takes the first item of the owner that has the fewest places, or whose turn it is among
    /// several such owners; it then has one more. An owner with more items goes to the back. The
    /// next item that was set aside takes its place, so that later arrivals stay behind it.
    pub(super) fn pop(&mut self, mut fetch: impl FnMut(K, A) -> T) -> Option<T> {
        let at = self.next()?;
        let owner = self.turns.remove(at)?;
        *self.places.entry(owner).or_default() += 1;
        let mut refill = |arrived: &mut Part<K, T>| {
            if let Some(first) = self.aside.pop_front(owner) {
                arrived.push_back(owner, fetch(owner, first));
            }
        };
        if !self.arrived.has(owner) {
            refill(&mut self.arrived);
        }
        let prefers_arrived = self.next_arrived.remove(&owner);
        let takes_link = self.links.has(owner) && !(prefers_arrived && self.arrived.has(owner));
        let first = if takes_link {
            self.next_arrived.insert(owner);
            self.links.pop_front(owner)
        } else {
            let first = self.arrived.pop_front(owner);
            refill(&mut self.arrived);
            first
        };
        if self.waits(owner) {
            self.turns.push_back(owner);
        } else {
            self.next_arrived.remove(&owner);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn rotation<K: Copy + Hash + Ord, T>() -> Rotation<K, T, T> {
        Rotation::new()
    }

    fn pop<K: Copy + Hash + Ord, T>(rotation: &mut Rotation<K, T, T>) -> Option<T> {
        rotation.pop(|_, item| item)
    }

    /// A step of a test: an item is added for an owner, a place is free, or the owner with this
    /// number among those that have places has one less.
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

    /// The expected state of an owner that waits: its items, and when it arrived or had its last
    /// turn.
    type Waiting = BTreeMap<u8, (VecDeque<usize>, usize)>;

    proptest! {
        /// A free place goes to the owner with the fewest, and among several to the one whose last
        /// turn, or arrival, is the longest ago. If all runs are as long, owners take turns.
        // Shows: FAIR-01
        #[test]
        fn a_free_place_goes_to_the_owner_with_the_fewest(steps in steps()) {
            let mut rotation = rotation();
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
                            rotation.free_place(*owner);
                            *places.get_mut(owner).unwrap() -= 1;
                            places.retain(|_, count| *count > 0);
                        }
                    }
                    Step::Free => {
                        let has = |owner: &u8| places.get(owner).copied().unwrap_or(0);
                        let first = waiting.iter().min_by_key(|(owner, (_, since))| (has(owner), *since));
                        let expected = first.map(|(owner, (items, _))| (*owner, items[0]));
                        prop_assert_eq!(pop(&mut rotation), expected);
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
                prop_assert_eq!(rotation.owners(), waiting.len());
                prop_assert_eq!(rotation.places.len(), places.len());
            }
            prop_assert!(waiting.is_empty());
        }
    }

    #[test]
    fn an_owner_of_long_runs_has_no_more_places_than_one_of_short_runs() {
        let mut rotation = rotation();
        (0..100).for_each(|_| rotation.push("long", "long"));
        (0..100).for_each(|_| rotation.push("short", "short"));
        let mut long = 0;
        for _ in 0..8 {
            pop(&mut rotation).unwrap();
        }
        for _ in 0..50 {
            rotation.free_place("short");
            long += usize::from(pop(&mut rotation) == Some("long"));
        }
        assert_eq!(long, 0, "each has four of eight places, whatever ends first");
    }

    #[test]
    fn items_that_were_set_aside_keep_their_place() {
        let mut rotation = rotation();
        (1..=3).for_each(|number| rotation.push(1, number));
        assert!(rotation.set_aside(|item| item) && rotation.set_aside(|item| item));
        rotation.push_aside(1, 4);
        assert_eq!(
            (rotation.len(), rotation.aside(), rotation.has_aside(1), rotation.has_aside(2)),
            (1, 3, true, false)
        );
        rotation.push(2, 9);
        assert_eq!((rotation.only_owner(), rotation.shed_aside()), (None, Some((1, 4))));
        assert_eq!([(); 4].map(|()| pop(&mut rotation)), [Some(1), Some(9), Some(2), Some(3)]);
        assert!(rotation.is_empty() && rotation.aside() == 0);
        rotation.push_aside(1, 5);
        assert_eq!((rotation.only_owner(), rotation.len(), pop(&mut rotation)), (Some(1), 0, Some(5)));
    }

    #[test]
    fn shedding_removes_the_last_item_of_the_largest_owner() {
        let mut rotation = rotation();
        for (owner, waits) in [(1, "a"), (2, "b"), (1, "c"), (3, "d"), (3, "e")] {
            rotation.push(owner, waits);
        }
        assert_eq!(rotation.shed(), Some("e"));
        assert_eq!([(); 2].map(|()| rotation.shed()), [Some("c"), Some("d")]);
        assert_eq!(
            (rotation.len(), pop(&mut rotation), rotation.shed(), rotation.shed()),
            (2, Some("a"), Some("b"), None)
        );
        assert!(rotation.is_empty());
    }

    #[test]
    fn removing_items_keeps_the_order_of_the_others() {
        let mut rotation = rotation();
        (1..=3).for_each(|number| rotation.push(1, number));
        rotation.push_aside(1, 4);
        rotation.push(2, 2);
        rotation.push(1, 5);
        let is_even = |item: &i32| item % 2 == 0;
        assert_eq!([(); 2].map(|()| rotation.remove_all(1, is_even).len()), [1, 0]);
        assert_eq!([(); 2].map(|()| rotation.remove_all_aside(1, is_even).len()), [1, 0]);
        assert_eq!(rotation.remove_all(2, |_| true), [2]);
        assert!(rotation.remove_all(2, |_| true).is_empty());
        assert_eq!((rotation.only_owner(), rotation.len(), rotation.aside()), (Some(1), 3, 0));
        assert_eq!(rotation.remove_all(1, |item| *item != 3), [1, 5]);
        assert_eq!([(); 2].map(|()| pop(&mut rotation)), [Some(3), None]);
        assert!(rotation.is_empty());
    }

    #[test]
    fn a_front_item_still_waits_for_other_owners_turns() {
        let mut rotation = rotation();
        rotation.push(1, "a");
        rotation.push(2, "b");
        pop(&mut rotation);
        rotation.push_first(1, "c");
        rotation.push_first(1, "d");
        assert_eq!([(); 3].map(|()| pop(&mut rotation)), [Some("b"), Some("d"), Some("c")]);
    }

    #[test]
    fn handed_over_items_get_every_other_turn_of_their_owner() {
        let mut rotation = rotation();
        (1..=3).for_each(|number| rotation.push(1, format!("arrived {number}")));
        (1..=3).for_each(|number| rotation.push_link(1, format!("link {number}")));
        rotation.push(2, "other".into());
        rotation.push_first(1, "first".into());
        let popped: Vec<String> = std::iter::from_fn(|| pop(&mut rotation)).collect();
        let order = ["first", "other", "link 1", "arrived 1", "link 2", "arrived 2", "link 3", "arrived 3"];
        assert_eq!(popped, order);
        assert_eq!((rotation.len(), rotation.links()), (0, 0));
    }

    #[test]
    fn new_and_handed_over_items_are_shed_separately() {
        let mut rotation = rotation();
        rotation.push(1, "a");
        rotation.push_link(1, "b");
        rotation.push_link(1, "c");
        rotation.push_link(2, "d");
        assert_eq!([rotation.shed(), rotation.shed()], [Some("a"), None]);
        assert_eq!((rotation.len(), rotation.links()), (3, 3));
        assert_eq!([(); 4].map(|()| rotation.shed_link()), [Some("c"), Some("d"), Some("b"), None]);
        assert!(rotation.is_empty());
    }
}
