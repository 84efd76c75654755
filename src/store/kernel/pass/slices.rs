//! How much of a range of promises one statement reads: all of it, or, where that took too long,
//! one slice of time after the other. No SQL, and no clock.
//!
//! How many index entries a slice has is not known before it was read: under an old snapshot,
//! entries of events that completed long ago are still there. So a slice that took too long is
//! halved, and one that was read quickly is doubled.

use std::time::Duration;

use crate::event::Timestamp;

/// Maximum number of promises that one statement moves.
pub(super) const PAGE: i64 = 1000;
/// The first slice, once a whole range has taken too long.
const FIRST: Duration = Duration::from_secs(60);
/// A slice is never shorter.
const LEAST: Duration = Duration::from_millis(10);
/// Slices that have become longer than this are no longer needed.
const MOST: Duration = Duration::from_secs(100 * 24 * 3600);
/// A slice is doubled if it took at most this part of the time that a statement may take.
const QUICK: u32 = 4;

/// How much one statement reads and moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Portion {
    /// The length of a slice; `None`: all that is left.
    length: Option<Duration>,
    /// Maximum number of promises per statement.
    pub(in crate::store) page: i64,
}

impl Portion {
    /// Everything at once.
    pub(in crate::store) const WHOLE: Self = Self { length: None, page: PAGE };
    /// The first slice.
    pub(in crate::store) const FIRST: Self = Self { length: Some(FIRST), page: PAGE };

    /// The length of a slice; `None`: all that is left.
    pub(in crate::store) fn length(self) -> Option<Duration> {
        self.length
    }

    /// After a statement that took too long; `None` if there is nothing smaller.
    pub(in crate::store) fn smaller(self) -> Option<Self> {
        let Some(length) = self.length else { return Some(Self::FIRST) };
        let page = (self.page / 2).max(1);
        (length > LEAST || self.page > 1).then(|| Self { length: Some((length / 2).max(LEAST)), page })
    }

    /// After a statement that took this long, where it may take `limit`.
    pub(in crate::store) fn after(self, took: Duration, limit: Duration) -> Self {
        if took > limit / QUICK {
            return self;
        }
        let length = self.length.map(|length| length * 2).filter(|length| *length <= MOST);
        Self { length, page: (self.page * 2).min(PAGE) }
    }
}

/// A range of promises that is read slice by slice, from its end to its beginning. Events that
/// became due last come first, so that they do not wait for the reading of earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Walk {
    /// The beginning; `None`: the first promise of all.
    pub(super) from: Option<Timestamp>,
    /// Everything after this was read; `None` once everything was.
    pub(super) at: Option<Timestamp>,
}

impl Walk {
    /// Over the promises until `at`.
    pub(super) fn back(from: Option<Timestamp>, at: Timestamp) -> Self {
        Self { from, at: Some(at) }
    }

    /// The next slice: where it begins and ends.
    pub(super) fn slice(&self, portion: Portion) -> Option<(Option<Timestamp>, Timestamp)> {
        let at = self.at?;
        let from = match (portion.length, self.from) {
            (None, from) => from,
            (Some(length), None) => Some(at - length),
            (Some(length), Some(from)) => Some(from.max(at - length)),
        };
        Some((from, at))
    }

    /// The walk after a slice was read: down to `reached` if its page was full, to its beginning
    /// if not.
    pub(super) fn after(self, slice: (Option<Timestamp>, Timestamp), reached: Option<Timestamp>) -> Self {
        if self.at != Some(slice.1) {
            // Another pass of this process was first.
            return self;
        }
        let at = reached.or(slice.0.filter(|from| self.from.is_none_or(|end| *from > end)));
        Self { at, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: i64) -> Timestamp {
        Timestamp::from_timestamp(1_000_000 + s, 0).unwrap()
    }

    const LIMIT: Duration = Duration::from_secs(4);

    /// The slices of a walk of which each is read without a full page.
    fn slices(mut walk: Walk, portion: Portion) -> Vec<(Option<Timestamp>, Timestamp)> {
        let mut slices = Vec::new();
        while let Some(slice) = walk.slice(portion) {
            slices.push(slice);
            walk = walk.after(slice, None);
        }
        slices
    }

    #[test]
    fn a_range_is_read_at_once_or_in_slices_that_leave_nothing_out() {
        let range = Walk::back(Some(at(0)), at(150));
        assert_eq!(slices(range, Portion::WHOLE), [(Some(at(0)), at(150))]);
        let three = [(Some(at(90)), at(150)), (Some(at(30)), at(90)), (Some(at(0)), at(30))];
        assert_eq!(slices(range, Portion::FIRST), three);
    }

    #[test]
    fn a_full_page_goes_on_where_it_got_to() {
        let range = Walk::back(Some(at(0)), at(50));
        let slice = range.slice(Portion::FIRST).unwrap();
        let rest = range.after(slice, Some(at(20)));
        assert_eq!(rest.slice(Portion::FIRST), Some((Some(at(0)), at(20))));
        assert_eq!(rest.after(slice, None), rest, "of two passes that read a slice, one goes on");
    }

    /// A walk without a beginning ends all the same, once its slices have become long.
    #[test]
    fn slices_grow_until_everything_is_read() {
        let (mut walk, mut portion, mut count) = (Walk::back(None, at(0)), Portion::FIRST, 0);
        while let Some(slice) = walk.slice(portion) {
            walk = walk.after(slice, None);
            portion = portion.after(Duration::from_secs(1), LIMIT);
            count += 1;
        }
        assert!((10..30).contains(&count), "{count} slices");
        assert_eq!(portion, Portion::WHOLE);
    }

    #[test]
    fn a_portion_that_timed_out_is_halved_and_a_slow_one_stays() {
        let mut portion = Portion::WHOLE;
        let mut lengths = Vec::new();
        while let Some(smaller) = portion.smaller() {
            portion = smaller;
            lengths.push((portion.length.unwrap().as_millis(), portion.page));
        }
        assert_eq!(lengths[..3], [(60_000, 1000), (30_000, 500), (15_000, 250)]);
        assert_eq!(lengths.last(), Some(&(10, 1)));
        assert_eq!(portion.after(Duration::from_secs(2), LIMIT), portion);
        assert_eq!(
            portion.after(Duration::from_secs(1), LIMIT),
            Portion { length: Some(2 * LEAST), page: 2 }
        );
    }
}
