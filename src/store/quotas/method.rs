//! Whether what a canvas keeps is counted or estimated from a sample: the decision alone, without
//! I/O or a clock of its own.
//!
//! A count reads every entry of an index, also those of rows that are gone and that an old snapshot
//! keeps. So how long it takes has no bound, and nobody should wait for it twice. A sample reads
//! some pages of a table, however many rows are in it or were.

use std::time::Duration;

use tokio::time::Instant;

/// What takes longer than this is too slow to be waited for again.
pub(super) const SLOW: Duration = Duration::from_secs(1);
/// The least time from a slow count to the next attempt.
const REST: Duration = Duration::from_secs(60);
/// And at least this many times as long as the count took, which bounds its share of a connection.
const REST_TIMES: u32 = 200;

/// About how many pages of a table a sample reads, at 8 KiB each.
const PAGES: i64 = 500;
/// The fewest, where even samples are slow.
const PAGES_LEAST: i64 = 64;

/// How a canvas is measured next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Method {
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
    /// What follows a measurement by this method, which ended now; whether the server stopped it
    /// for taking too long.
    pub(super) fn after(self, took: Duration, is_too_long: bool, now: Instant) -> Self {
        let is_slow = is_too_long || took > SLOW;
        match self {
            Self::Count if is_slow => {
                Self::Sample { pages: PAGES, count_at: now + REST.max(took * REST_TIMES) }
            }
            Self::Count => Self::Count,
            Self::Sample { pages, count_at } if is_slow => {
                Self::Sample { pages: (pages / 4).max(PAGES_LEAST), count_at }
            }
            Self::Sample { pages, count_at } => Self::Sample { pages: (pages * 2).min(PAGES), count_at },
        }
    }

    /// Whether it is time to try a count, while samples are taken.
    pub(super) fn is_count_due(self, now: Instant) -> bool {
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

    #[test]
    fn what_is_quickly_counted_is_always_counted() {
        let now = Instant::now();
        let counted = Method::Count.after(QUICK, false, now);
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
            let method = Method::Count.after(took, is_too_long, now);
            assert!(matches!(method, Method::Sample { pages: PAGES, .. }), "{method:?}");
            let due = now + Duration::from_secs(rest_s);
            assert!(!method.is_count_due(due - Duration::from_secs(1)), "after {took:?}");
            assert!(method.is_count_due(due + Duration::from_secs(1)), "after {took:?}");
            // However quick samples are, they say nothing about a count.
            let sampled = method.after(QUICK, false, due);
            assert_eq!(sampled, method);
        }
    }

    #[test]
    fn after_a_slow_sample_the_next_is_smaller() {
        let now = Instant::now();
        let mut method = Method::Count.after(LIMIT, true, now);
        let mut sizes = Vec::new();
        for (took, is_too_long) in
            [(LIMIT, true), (2 * SLOW, false), (LIMIT, true), (QUICK, false), (SLOW, false), (QUICK, false)]
        {
            method = method.after(took, is_too_long, now);
            let Method::Sample { pages, .. } = method else { panic!("{method:?}") };
            sizes.push(pages);
        }
        assert_eq!(sizes, [125, 64, 64, 128, 256, 500]);
    }
}
