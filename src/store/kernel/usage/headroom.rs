//! How much a process may add to a canvas after its last measurement: the decision alone, without
//! I/O or a clock of its own.
//!
//! The usage of a canvas is measured now and then. In between, a process deducts what it adds
//! itself from the room that it saw, measures again when an eighth of that is used up, and never
//! uses more than half of it on one measurement. Several processes that saw the same room may thus
//! exceed it: two of them not at all, `n` of them by `n / 2 - 1` of what was left when they
//! measured.

use std::time::Duration;

use tokio::time::Instant;

/// Two things that are measured together.
pub(in crate::store) type Pair = [u64; 2];

/// How long a measurement is valid, however little is added.
const HOLDS: Duration = Duration::from_secs(60);
/// It is also valid for at least this many times as long as it took, which bounds its share of a
/// connection however much there is to count.
const HOLDS_TIMES: u32 = 200;
/// The least time from one measurement to the next, if room is short; and the same in multiples of
/// how long it took.
const GAP: Duration = Duration::from_millis(200);
const GAP_TIMES: u32 = 5;
/// The least time after a measurement that saw no room at all.
const GAP_WHEN_FULL: Duration = Duration::from_secs(1);

/// A caller waits no longer than this for the next measurement, which is enough after one that took
/// a second. After a slower one, half of the room counts as used.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Measurement {
    /// When it began.
    pub(in crate::store) at: Instant,
    pub(in crate::store) took: Duration,
    pub(in crate::store) used: Pair,
    pub(in crate::store) limits: Pair,
}

impl Measurement {
    fn room(&self, which: usize) -> u64 {
        self.limits[which].saturating_sub(self.used[which])
    }

    fn holds(&self) -> Duration {
        HOLDS.max(self.took * HOLDS_TIMES)
    }

    fn gap(&self) -> Duration {
        let least = if (0..2_usize).any(|which| self.room(which) == 0) { GAP_WHEN_FULL } else { GAP };
        least.max(self.took * GAP_TIMES)
    }
}

/// The decision on an addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Verdict {
    /// Added; the measurement is valid.
    Go,
    /// Added; but it is time to measure again in the background.
    GoAndMeasure,
    /// Only another measurement can tell.
    Measure,
    /// Only another measurement can tell, and none may be made before this moment.
    Wait(Instant),
    /// The first or the second kind of data has no room for it.
    Full(usize),
}

/// This process's knowledge of two kinds of data that a canvas keeps.
#[derive(Debug, Default)]
pub(in crate::store) struct Headroom {
    measurement: Option<Measurement>,
    /// Added by this process since that measurement began; before the first, ever.
    spent: Pair,
    /// Whether a later measurement failed: what is used and added is older than the measurement's
    /// time.
    is_kept: bool,
}

impl Headroom {
    /// Whether this may be added; before the first measurement, up to `free` always may. If so, it
    /// counts as added.
    pub(in crate::store) fn ask(&mut self, wanted: Pair, free: Pair, now: Instant) -> Verdict {
        let next: Pair = [0_usize, 1].map(|which| self.spent[which].saturating_add(wanted[which]));
        let fits = |room: &dyn Fn(usize) -> u64| {
            (0..2_usize).find(|which| wanted[*which] > 0 && next[*which] > room(*which))
        };
        let Some(measurement) = self.measurement else {
            return if fits(&|which| free[which]).is_none() {
                self.add(next, Verdict::Go)
            } else {
                Verdict::Measure
            };
        };
        let age = now.saturating_duration_since(measurement.at);
        let part = fits(&|which| measurement.room(which) / 8);
        if part.is_none() {
            return self
                .add(next, if age < measurement.holds() { Verdict::Go } else { Verdict::GoAndMeasure });
        }
        let whole = fits(&|which| measurement.room(which));
        // After a failed measurement, no caller waits for the next as long as there is room.
        if self.is_kept && whole.is_none() {
            return self.add(next, if age < measurement.gap() { Verdict::Go } else { Verdict::GoAndMeasure });
        }
        // One call on a fresh measurement may take all the room, as nothing else has used it yet.
        if (self.is_kept || self.spent == [0, 0]) && age < measurement.gap() {
            return whole.map_or_else(|| self.add(next, Verdict::Go), Verdict::Full);
        }
        if age >= measurement.gap() {
            return Verdict::Measure;
        }
        match fits(&|which| measurement.room(which) / 2) {
            None => self.add(next, Verdict::Go),
            Some(which) if wanted[which] > measurement.room(which) || measurement.gap() > WAIT_MAX => {
                Verdict::Full(which)
            }
            Some(_) => Verdict::Wait(measurement.at + measurement.gap()),
        }
    }

    fn add(&mut self, next: Pair, verdict: Verdict) -> Verdict {
        self.spent = next;
        verdict
    }

    /// Takes a new measurement. Additions made during it may or may not be included, so they stay
    /// counted.
    pub(in crate::store) fn record(&mut self, measurement: Measurement, spent_before: Pair) {
        self.spent = [0_usize, 1].map(|which| self.spent[which].saturating_sub(spent_before[which]));
        self.measurement = Some(measurement);
        self.is_kept = false;
    }

    /// Takes note that a measurement failed. The last one stays valid, and additions since then
    /// stay counted. If there is none, then `unknown` stands for it, without the additions.
    pub(in crate::store) fn keep(&mut self, unknown: Measurement) {
        let Measurement { at, took, .. } = unknown;
        match self.measurement {
            Some(last) => self.measurement = Some(Measurement { at, took, ..last }),
            None => (self.measurement, self.spent) = (Some(unknown), [0, 0]),
        }
        self.is_kept = true;
    }

    /// Makes the next call measure first.
    pub(super) fn forget(&mut self) {
        *self = Self { measurement: None, spent: [u64::MAX; 2], is_kept: false };
    }

    pub(in crate::store) fn spent(&self) -> Pair {
        self.spent
    }

    pub(in crate::store) fn measurement(&self) -> Option<&Measurement> {
        self.measurement.as_ref()
    }

    /// How much is in use, as far as this process knows.
    pub(in crate::store) fn used(&self) -> Option<Pair> {
        self.measurement.map(|measurement| {
            [0_usize, 1].map(|which| measurement.used[which].saturating_add(self.spent[which]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Pair = [100, 1000];

    fn measurement(at: Instant, used: u64, limit: u64) -> Measurement {
        Measurement { at, took: Duration::from_millis(1), used: [used, 0], limits: [limit, u64::MAX] }
    }

    #[test]
    fn a_canvas_with_little_is_never_looked_at() {
        let (mut headroom, now) = (Headroom::default(), Instant::now());
        for _ in 0..100 {
            assert_eq!(headroom.ask([1, 10], FREE, now), Verdict::Go);
        }
        assert_eq!(headroom.ask([1, 0], FREE, now), Verdict::Measure);
        assert_eq!(headroom.ask([0, 1], FREE, now), Verdict::Measure);
    }

    #[test]
    fn far_from_the_limit_no_emit_waits_for_a_measurement() {
        let (mut headroom, now) = (Headroom::default(), Instant::now());
        headroom.record(measurement(now, 10, 1_000_000), [0, 0]);
        assert_eq!(headroom.ask([10_000, 0], FREE, now + Duration::from_secs(59)), Verdict::Go);
        assert_eq!(headroom.ask([10_000, 0], FREE, now + Duration::from_secs(61)), Verdict::GoAndMeasure);
        assert_eq!(headroom.ask([200_000, 0], FREE, now + Duration::from_secs(61)), Verdict::Measure);
    }

    #[test]
    fn a_slow_measurement_is_valid_for_longer() {
        let (mut headroom, now) = (Headroom::default(), Instant::now());
        headroom
            .record(Measurement { took: Duration::from_secs(2), ..measurement(now, 10, 1_000_000) }, [0, 0]);
        assert_eq!(headroom.ask([1, 0], FREE, now + Duration::from_secs(399)), Verdict::Go);
        assert_eq!(headroom.ask([124_000, 0], FREE, now + Duration::from_secs(5)), Verdict::Go);
        assert_eq!(headroom.ask([1_000, 0], FREE, now + Duration::from_secs(9)), Verdict::Go);
        assert_eq!(headroom.ask([1_000, 0], FREE, now + Duration::from_secs(11)), Verdict::Measure);
    }

    #[test]
    fn a_full_quota_is_refused_and_measured_once_a_second() {
        let (mut headroom, now) = (Headroom::default(), Instant::now());
        headroom.record(measurement(now, 1_000, 1_000), [0, 0]);
        assert_eq!(headroom.ask([1, 0], FREE, now + Duration::from_millis(999)), Verdict::Full(0));
        assert_eq!(headroom.ask([1, 0], FREE, now + Duration::from_secs(1)), Verdict::Measure);
        assert_eq!(headroom.ask([0, 7], FREE, now), Verdict::Go);
    }

    /// However many calls they make, processes that saw the same room use at most half of it each.
    #[test]
    fn processes_together_exceed_by_half_of_the_room_each() {
        let now = Instant::now();
        for processes in 1..=8_u64 {
            let mut added = 0;
            for _ in 0..processes {
                let mut headroom = Headroom::default();
                headroom.record(measurement(now, 0, 1_000), [0, 0]);
                while headroom.ask([7, 0], FREE, now + Duration::from_millis(100)) == Verdict::Go {
                    added += 7;
                }
            }
            assert!(added <= processes * 500, "{processes} processes added {added}");
        }
    }

    #[test]
    fn one_call_may_take_all_the_room_that_was_just_seen() {
        let (mut headroom, now) = (Headroom::default(), Instant::now());
        headroom.record(measurement(now, 0, 1_000), [0, 0]);
        assert_eq!(headroom.ask([1_001, 0], FREE, now), Verdict::Full(0));
        assert_eq!(headroom.ask([1_000, 0], FREE, now), Verdict::Go);
        assert_eq!(
            headroom.ask([1, 0], FREE, now),
            Verdict::Wait(now + GAP),
            "some may have been done since"
        );
        assert_eq!(headroom.ask([1_001, 0], FREE, now), Verdict::Full(0));
    }

    /// On a busy database a measurement takes long. An addition that has room is not refused for
    /// that.
    #[test]
    fn an_addition_with_room_waits_for_a_slow_measurement() {
        let (mut headroom, now) = (Headroom::default(), Instant::now());
        let slow = Measurement { took: Duration::from_millis(900), ..measurement(now, 0, 2) };
        headroom.record(slow, [0, 0]);
        assert_eq!(headroom.ask([1, 0], FREE, now), Verdict::Go);
        let next = now + Duration::from_millis(4_500);
        assert_eq!(headroom.ask([1, 0], FREE, now + Duration::from_secs(1)), Verdict::Wait(next));
        assert_eq!(headroom.ask([1, 0], FREE, next), Verdict::Measure);
    }

    /// While nothing can be measured at all, however often that is tried, together no more is added
    /// than the last measurement had room for, and no caller waits for the next. A count that takes
    /// too long is not such a failure, because a sample follows and is recorded.
    #[test]
    fn additions_stay_counted_while_every_measurement_fails() {
        let (mut headroom, now) = (Headroom::default(), Instant::now());
        headroom.record(measurement(now, 900, 1_000), [0, 0]);
        let mut added = 0;
        for failure in 0..10_u64 {
            let at = now + Duration::from_secs(60 * failure);
            headroom.keep(measurement(at, 0, 8_000));
            while headroom.ask([10, 0], FREE, at) == Verdict::Go {
                added += 10;
            }
            assert_eq!(headroom.ask([10, 0], FREE, at), Verdict::Full(0));
        }
        assert_eq!((added, headroom.used()), (100, Some([1_000, 0])));
        headroom.record(measurement(now, 500, 1_000), headroom.spent());
        assert_eq!(headroom.ask([10, 0], FREE, now), Verdict::Go);
    }

    /// A caller that adds while measurements fail goes on with the last known usage, and a
    /// measurement runs in the background.
    #[test]
    fn while_there_is_room_nobody_waits_for_a_measurement_that_fails() {
        let (mut headroom, now) = (Headroom::default(), Instant::now());
        headroom.record(measurement(now, 0, 1_000), [0, 0]);
        let failed = Measurement { took: Duration::from_secs(5), ..measurement(now, 0, 8_000) };
        headroom.keep(failed);
        let next = now + failed.took * GAP_TIMES;
        assert_eq!(headroom.ask([400, 0], FREE, now), Verdict::Go);
        assert_eq!(headroom.ask([400, 0], FREE, next), Verdict::GoAndMeasure);
        assert_eq!(headroom.ask([201, 0], FREE, next), Verdict::Measure, "only that can tell");
    }

    /// A canvas that could not be measured even once has an allowance; also after its quota was
    /// changed.
    #[test]
    fn a_canvas_that_was_never_measured_has_an_allowance() {
        let (mut headroom, now) = (Headroom::default(), Instant::now());
        headroom.forget();
        assert_eq!(headroom.ask([1, 0], FREE, now), Verdict::Measure);
        headroom.keep(measurement(now, 0, 800));
        assert_eq!(headroom.ask([800, 0], FREE, now), Verdict::Go);
        headroom.keep(measurement(now, 0, 800));
        assert_eq!(headroom.ask([1, 0], FREE, now), Verdict::Full(0));
    }

    #[test]
    fn emits_during_a_measurement_count() {
        let (mut headroom, now) = (Headroom::default(), Instant::now());
        assert_eq!(headroom.ask([50, 0], FREE, now), Verdict::Go);
        let before = headroom.spent();
        assert_eq!(headroom.ask([30, 0], FREE, now), Verdict::Go);
        headroom.record(measurement(now, 50, 1_000), before);
        assert_eq!((headroom.spent(), headroom.used()), ([30, 0], Some([80, 0])));
    }
}
