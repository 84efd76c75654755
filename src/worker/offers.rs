//! Notifications that wait here for room at a handler with limited concurrency are offered to other
//! workers, which may have room: a few per second, fewer while no worker takes any. Pure.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use crate::event::EventId;

/// How many are offered, and how many came back.
#[derive(Debug)]
pub(super) struct Offers {
    /// Minimum and maximum number of offers at once.
    range: RangeInclusive<usize>,
    pace: usize,
    offered: HashSet<EventId>,
    came_back: usize,
}

impl Offers {
    /// At least two: a single one might come back to this worker each time.
    pub(super) fn new(range: RangeInclusive<usize>) -> Self {
        Self { pace: *range.end(), range, offered: HashSet::new(), came_back: 0 }
    }

    /// How many to offer now: half as many as before if all of the last offers came back here,
    /// otherwise twice as many.
    pub(super) fn next(&mut self) -> usize {
        if !self.offered.is_empty() || self.came_back > 0 {
            let all = self.offered.is_empty();
            let pace = if all { self.pace / 2 } else { self.pace * 2 };
            self.pace = pace.min(*self.range.end()).max(*self.range.start());
        }
        self.offered.clear();
        self.came_back = 0;
        self.pace
    }

    pub(super) fn offer(&mut self, id: EventId) {
        self.offered.insert(id);
    }

    /// Records that an event waits here, possibly again.
    pub(super) fn waits_here(&mut self, id: EventId) {
        self.came_back += usize::from(self.offered.remove(&id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: usize) -> Vec<EventId> {
        (0..count as u128).map(|number| EventId(uuid::Uuid::from_u128(number))).collect()
    }

    #[test]
    fn offers_shrink_while_all_of_them_return() {
        let mut offers = Offers::new(2..=8);
        for expected in [8, 4, 2, 2, 2] {
            assert_eq!(offers.next(), expected);
            ids(expected).into_iter().for_each(|id| offers.offer(id));
            ids(expected).into_iter().for_each(|id| offers.waits_here(id));
        }
        for expected in [2, 4, 8, 8, 8] {
            assert_eq!(offers.next(), expected, "the last one stays away");
            ids(expected).into_iter().for_each(|id| offers.offer(id));
            ids(expected - 1).into_iter().for_each(|id| offers.waits_here(id));
        }
    }

    #[test]
    fn offers_stay_the_same_without_feedback() {
        let mut offers = Offers::new(2..=8);
        assert_eq!([offers.next(), offers.next()], [8, 8]);
        offers.waits_here(ids(1)[0]);
        assert_eq!(offers.next(), 8, "it was not offered");
    }
}
