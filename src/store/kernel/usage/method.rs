//! Whether what a canvas keeps is counted or estimated from a sample: the decision alone, without
//! I/O or a clock of its own.
//!
//! A count reads every entry of an index, also those of rows that are gone and that an old snapshot
//! keeps. So how long it takes has no bound, and no caller should wait for it twice. A sample reads
//! some pages of a table, however many rows are in it or were.

use std::time::Duration;

use tokio::time::Instant;

/// From a slow count to the next attempt it takes at least this many times as long as the count
/// took, which bounds its share of a connection.
const REST_TIMES: u32 = 200;

/// About how many pages of a table a sample reads, at 8 KiB each.
const PAGES: i64 = 500;

/// When a measurement is too slow, and how it goes on then.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Bounds {
    /// If its statements take longer than this, a measurement is too slow to be waited for again.
    pub(in crate::store) slow: Duration,
    /// The least time from a slow count to the next attempt.
    rest: Duration,
    /// The fewest pages that a sample reads, where even samples are slow.
    pages_least: i64,
}

impl Bounds {
    const USUAL: Self = Self { slow: Duration::from_secs(1), rest: Duration::from_secs(60), pages_least: 64 };
    #[cfg(test)]
    pub(super) const PATIENT: Self =
        Self { slow: Duration::from_secs(3600), rest: Duration::from_secs(3600), pages_least: PAGES };
}

impl Default for Bounds {
    fn default() -> Self {
        Self::USUAL
    }
}

/// The method by which a canvas is measured next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store) enum Method {
    /// Its index entries are counted.
    #[default]
    Count,
    /// This many pages are sampled, until a count that nobody waits for was quick.
    Sample {
        pages: i64,
        /// When to try such a count.
        count_at: Instant,
    },
}

impl Method {
    /// The method after a measurement by this one that ended now, by how long its statements took
    /// and whether the server stopped one for taking too long.
    pub(in crate::store) fn after(
        self,
        took: Duration,
        is_too_long: bool,
        now: Instant,
        bounds: Bounds,
    ) -> Self {
        let is_slow = is_too_long || took > bounds.slow;
        match self {
            Self::Count if is_slow => {
                Self::Sample { pages: PAGES, count_at: now + bounds.rest.max(took * REST_TIMES) }
            }
            Self::Count => Self::Count,
            Self::Sample { pages, count_at } if is_slow => {
                Self::Sample { pages: (pages / 4).max(bounds.pages_least), count_at }
            }
            Self::Sample { pages, count_at } => Self::Sample { pages: (pages * 2).min(PAGES), count_at },
        }
    }

    /// The method after a count in the background that ended or failed now. Unless it was quick,
    /// samples go on with as many pages as they have found to be right.
    pub(in crate::store) fn after_trial(
        self,
        took: Duration,
        has_failed: bool,
        now: Instant,
        bounds: Bounds,
    ) -> Self {
        match (self, Self::Count.after(took, has_failed, now, bounds)) {
            (Self::Sample { pages, .. }, Self::Sample { count_at, .. }) => Self::Sample { pages, count_at },
            (_, Self::Count) | (Self::Count, _) => Self::Count,
        }
    }

    /// Whether it is time to try a count, while samples are taken.
    pub(in crate::store) fn is_count_due(self, now: Instant) -> bool {
        match self {
            Self::Count => false,
            Self::Sample { count_at, .. } => now >= count_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(20);
    const LIMIT: Duration = Duration::from_secs(5);
    const BOUNDS: Bounds = Bounds::USUAL;
    const SLOW: Duration = BOUNDS.slow;

    #[test]
    fn a_quick_count_is_followed_by_counts() {
        let now = Instant::now();
        let counted = Method::Count.after(QUICK, false, now, BOUNDS);
        assert_eq!(counted, Method::Count);
        assert!(!counted.is_count_due(now + Duration::from_secs(3600)));
    }

    /// One count that takes too long, or nearly so, is enough: the next is tried after a quarter of
    /// an hour, and not for a caller who waits.
    #[test]
    fn a_slow_count_is_followed_by_samples() {
        let now = Instant::now();
        for (took, is_too_long, rest_s) in [
            (LIMIT, true, 1_000),
            (Duration::from_millis(1_001), false, 200),
            (Duration::from_millis(100), true, 60),
        ] {
            let method = Method::Count.after(took, is_too_long, now, BOUNDS);
            assert!(matches!(method, Method::Sample { pages: PAGES, .. }), "{method:?}");
            let due = now + Duration::from_secs(rest_s);
            assert!(!method.is_count_due(due - Duration::from_secs(1)), "after {took:?}");
            assert!(method.is_count_due(due + Duration::from_secs(1)), "after {took:?}");
            // However quick samples are, they say nothing about a count.
            let sampled = method.after(QUICK, false, due, BOUNDS);
            assert_eq!(sampled, method);
        }
    }

    #[test]
    fn after_a_slow_sample_the_next_is_smaller() {
        let now = Instant::now();
        let mut method = Method::Count.after(LIMIT, true, now, BOUNDS);
        let mut sizes = Vec::new();
        for (took, is_too_long) in
            [(LIMIT, true), (2 * SLOW, false), (LIMIT, true), (QUICK, false), (SLOW, false), (QUICK, false)]
        {
            method = method.after(took, is_too_long, now, BOUNDS);
            let Method::Sample { pages, .. } = method else { panic!("{method:?}") };
            sizes.push(pages);
        }
        assert_eq!(sizes, [125, 64, 64, 128, 256, 500]);
    }

    #[test]
    fn only_a_quick_trial_ends_sampling() {
        let now = Instant::now();
        let sampled = Method::Count.after(LIMIT, true, now, BOUNDS).after(LIMIT, true, now, BOUNDS);
        assert!(matches!(sampled, Method::Sample { pages: 125, .. }), "{sampled:?}");
        let later = now + Duration::from_secs(1_000);
        for (took, has_failed) in [(2 * SLOW, false), (QUICK, true)] {
            let next = sampled.after_trial(took, has_failed, later, BOUNDS);
            assert!(matches!(next, Method::Sample { pages: 125, .. }), "{next:?}");
            assert!(!next.is_count_due(later + Duration::from_secs(59)), "{next:?}");
            assert!(next.is_count_due(later + Duration::from_secs(401)), "{next:?}");
        }
        assert_eq!(sampled.after_trial(QUICK, false, later, BOUNDS), Method::Count);
    }
}
