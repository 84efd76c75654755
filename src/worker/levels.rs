//! Two levels of waiting items. Urgent ones start first, in places that are kept for them if need
//! be, and of four starts at least one is another's while any waits that may start. Within a level,
//! owners share the places as in a [`Rotation`].
//!
//! Pure: it starts nothing and has no clock. The caller bounds its size.

use std::hash::Hash;

use super::rotation::Rotation;

/// How many urgent items may start one after the other while others wait.
pub(super) const IN_A_ROW_MAX: u8 = 3;

/// The level of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What is not urgent.
    Normal,
    /// What starts first.
    Urgent,
}

impl Level {
    /// Both, in the order in which they give way.
    pub(super) const ALL: [Self; 2] = [Self::Normal, Self::Urgent];

    /// The level of what is urgent or not.
    pub fn of(urgent: bool) -> Self {
        if urgent { Self::Urgent } else { Self::Normal }
    }

    /// Whether it is the upper one.
    pub fn is_urgent(self) -> bool {
        self == Self::Urgent
    }
}

/// Whose turn it is, if items of both levels wait.
#[derive(Clone, Debug, Default)]
pub(super) struct LevelTurns {
    /// How many urgent items had their turn since another had one, or none waited.
    in_a_row: u8,
}

impl LevelTurns {
    /// The level whose turn it is, of those in which something waits.
    pub(super) fn next(&self, (urgent, normal): (bool, bool)) -> Option<Level> {
        match (urgent, normal) {
            (true, true) if self.in_a_row >= IN_A_ROW_MAX => Some(Level::Normal),
            (true, _) => Some(Level::Urgent),
            (false, true) => Some(Level::Normal),
            (false, false) => None,
        }
    }

    /// An item of this level had its turn, while others that are not urgent waited or not.
    pub(super) fn took(&mut self, level: Level, others_waited: bool) {
        let counts = level.is_urgent() && others_waited;
        self.in_a_row = if counts { (self.in_a_row + 1).min(IN_A_ROW_MAX) } else { 0 };
    }
}

/// Waiting items by level and owner, and how many places each level has.
#[derive(Debug)]
pub struct Levels<K, T, A> {
    normal: Rotation<K, T, A>,
    urgent: Rotation<K, T, A>,
    turns: LevelTurns,
    /// How many places there are, and how many of them are kept for urgent items.
    capacity: usize,
    reserved: usize,
    /// How many places each level has.
    normal_places: usize,
    urgent_places: usize,
}

impl<K: Copy + Hash + Ord, T, A> Levels<K, T, A> {
    /// With so many places, of which some are kept for urgent items.
    pub fn new(capacity: usize, reserved: usize) -> Self {
        Self {
            normal: Rotation::new(),
            urgent: Rotation::new(),
            turns: LevelTurns::default(),
            capacity,
            reserved,
            normal_places: 0,
            urgent_places: 0,
        }
    }

    pub(super) fn at(&self, level: Level) -> &Rotation<K, T, A> {
        match level {
            Level::Normal => &self.normal,
            Level::Urgent => &self.urgent,
        }
    }

    pub(super) fn at_mut(&mut self, level: Level) -> &mut Rotation<K, T, A> {
        match level {
            Level::Normal => &mut self.normal,
            Level::Urgent => &mut self.urgent,
        }
    }

    /// Adds an item, behind those of its owner in this level.
    pub fn push(&mut self, level: Level, owner: K, item: T) {
        self.at_mut(level).push(owner, item);
    }

    /// How many places a level has.
    pub(super) fn places(&self, level: Level) -> usize {
        match level {
            Level::Normal => self.normal_places,
            Level::Urgent => self.urgent_places,
        }
    }

    /// How many items wait, not counting those set aside.
    pub(super) fn len(&self) -> usize {
        self.normal.len() + self.urgent.len()
    }

    /// How many were set aside.
    pub(super) fn aside(&self) -> usize {
        self.normal.aside() + self.urgent.aside()
    }

    /// The level that gets a free place; `None` if there is none, or none that may be taken.
    pub fn next(&self) -> Option<Level> {
        if self.normal_places + self.urgent_places >= self.capacity {
            return None;
        }
        let has_room = self.normal_places + self.reserved < self.capacity;
        self.turns.next((!self.urgent.is_empty(), has_room && !self.normal.is_empty()))
    }

    /// A level in which something waits, whether or not there is a place.
    pub(super) fn any(&self) -> Option<Level> {
        LevelTurns::default().next((!self.urgent.is_empty(), !self.normal.is_empty()))
    }

    /// Takes the next item of a level, which then has one place more.
    pub fn pop(&mut self, level: Level, fetch: impl FnMut(K, A) -> T) -> Option<T> {
        let popped = self.at_mut(level).pop(fetch)?;
        self.turns.took(level, !self.normal.is_empty());
        match level {
            Level::Normal => self.normal_places += 1,
            Level::Urgent => self.urgent_places += 1,
        }
        Some(popped)
    }

    /// The owner has one place less in this level.
    pub fn free_place(&mut self, level: Level, owner: K) {
        match level {
            Level::Normal => self.normal_places -= 1,
            Level::Urgent => self.urgent_places -= 1,
        }
        self.at_mut(level).free_place(owner);
    }

    /// Removes the latest item that was set aside, of the owner with the most: an urgent one only
    /// if there are no others.
    pub(super) fn shed_aside(&mut self) -> Option<(Level, K, A)> {
        Level::ALL.into_iter().find_map(|level| {
            let (owner, item) = self.at_mut(level).shed_aside()?;
            Some((level, owner, item))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Waiting = Levels<&'static str, usize, usize>;

    /// Starts what may start; returns the level and the item of each.
    fn start(levels: &mut Waiting) -> Vec<(Level, usize)> {
        let mut started = Vec::new();
        while let Some(level) = levels.next() {
            started.push((level, levels.pop(level, |_, item| item).unwrap()));
        }
        started
    }

    fn push(levels: &mut Waiting, level: Level, owner: &'static str, items: std::ops::Range<usize>) {
        items.for_each(|item| levels.at_mut(level).push(owner, item));
    }

    fn levels_of(started: &[(Level, usize)]) -> Vec<bool> {
        started.iter().map(|(level, _)| level.is_urgent()).collect()
    }

    #[test]
    fn an_urgent_item_starts_before_all_others() {
        let mut levels = Waiting::new(2, 0);
        push(&mut levels, Level::Normal, "a", 0..100);
        assert_eq!(levels_of(&start(&mut levels)), [false, false]);
        push(&mut levels, Level::Urgent, "b", 100..101);
        assert_eq!(start(&mut levels), [], "every place is taken, and none is kept");
        levels.free_place(Level::Normal, "a");
        assert_eq!(start(&mut levels), [(Level::Urgent, 100)]);
        levels.free_place(Level::Urgent, "b");
        assert_eq!(start(&mut levels), [(Level::Normal, 2)]);
    }

    #[test]
    fn kept_places_are_for_urgent_items_alone() {
        let mut levels = Waiting::new(4, 1);
        push(&mut levels, Level::Normal, "a", 0..100);
        assert_eq!(levels_of(&start(&mut levels)), [false; 3]);
        push(&mut levels, Level::Urgent, "a", 100..103);
        assert_eq!(start(&mut levels), [(Level::Urgent, 100)], "it starts at once");
        levels.free_place(Level::Normal, "a");
        assert_eq!(levels_of(&start(&mut levels)), [true], "any free place will do for it");
        levels.free_place(Level::Urgent, "a");
        levels.free_place(Level::Urgent, "a");
        assert_eq!(levels_of(&start(&mut levels)), [true, false]);
        levels.free_place(Level::Urgent, "a");
        assert_eq!(start(&mut levels), [], "it is kept again");
    }

    // Shows: URG-02
    #[test]
    fn the_others_keep_a_quarter_of_the_starts() {
        for reserved in [0, 1] {
            let mut levels = Waiting::new(2, reserved);
            push(&mut levels, Level::Urgent, "flood", 0..1_000);
            push(&mut levels, Level::Normal, "flood", 0..1_000);
            push(&mut levels, Level::Normal, "quiet", 0..1_000);
            let (mut started, mut quiet) = (start(&mut levels), 0);
            for _ in 0..400 {
                let level = if started.len() % 2 == 0 { Level::Urgent } else { Level::Normal };
                let level = if levels.places(level) > 0 { level } else { Level::of(!level.is_urgent()) };
                let owner = match level {
                    Level::Urgent => "flood",
                    // Owners of the same level take turns, so these end in turn.
                    Level::Normal => {
                        quiet += 1;
                        if quiet % 2 == 0 { "quiet" } else { "flood" }
                    }
                };
                levels.free_place(level, owner);
                started.extend(start(&mut levels));
            }
            let normal = levels_of(&started).iter().filter(|is_urgent| !**is_urgent).count();
            assert!(normal * 4 >= started.len() - 4, "{normal} of {}", started.len());
            assert!(normal * 4 <= started.len() + 4, "{normal} of {}", started.len());
        }
    }

    /// An item comes, urgent or not, for an owner, or one of those that have a place ends.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Comes(bool, u8),
        Ends(usize),
    }

    proptest! {
        /// Whatever comes and ends, places are never exceeded, no place that may be taken stays
        /// free, and four starts in a row are never urgent while another item could have started.
        #[test]
        fn no_level_starves_and_no_place_is_wasted(
            (capacity, reserved) in (1..6_usize).prop_flat_map(|capacity| (Just(capacity), 0..capacity)),
            steps in prop::collection::vec(
                prop_oneof![
                    (any::<bool>(), 0..4_u8).prop_map(|(urgent, owner)| Step::Comes(urgent, owner)),
                    (0..100_usize).prop_map(Step::Ends),
                ],
                0..300,
            ),
        ) {
            let mut levels = Levels::<u8, u8, u8>::new(capacity, reserved);
            let (mut running, mut in_a_row) = (Vec::new(), 0);
            for step in steps {
                match step {
                    Step::Comes(urgent, owner) => levels.at_mut(Level::of(urgent)).push(owner, owner),
                    Step::Ends(_) if running.is_empty() => {}
                    Step::Ends(number) => {
                        let (level, owner) = running.swap_remove(number % running.len());
                        levels.free_place(level, owner);
                    }
                }
                while let Some(level) = levels.next() {
                    let normal = running.iter().filter(|(level, _)| *level == Level::Normal).count();
                    let could = !levels.at(Level::Normal).is_empty() && normal + reserved < capacity;
                    in_a_row = if level.is_urgent() && could { in_a_row + 1 } else { 0 };
                    prop_assert!(in_a_row <= usize::from(IN_A_ROW_MAX));
                    running.push((level, levels.pop(level, |_, owner| owner).unwrap()));
                }
                let count = |level| running.iter().filter(|(of, _)| *of == level).count();
                let (normal, urgent) = (count(Level::Normal), count(Level::Urgent));
                prop_assert_eq!((levels.places(Level::Normal), levels.places(Level::Urgent)), (normal, urgent));
                prop_assert!(normal + urgent <= capacity && normal <= capacity - reserved);
                if normal + urgent < capacity {
                    prop_assert!(levels.at(Level::Urgent).is_empty());
                    prop_assert!(levels.at(Level::Normal).is_empty() || normal == capacity - reserved);
                }
            }
        }
    }
}
