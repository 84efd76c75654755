//! How quick the runs of this worker are, and whether a given number would be done soon. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Work that would be done this soon is not worth leaving to others. Once runs count as quick, they
/// do until it would take three times as long: a brief load on the processor does not make handlers
/// slow.
const SOON: Duration = Duration::from_secs(10);
const LATE: Duration = Duration::from_secs(30);
/// How often each slot has to be used for a look before its time.
const ENOUGH: usize = 4;
/// Consecutive looks that must find runs quick before they count as quick.
const SURE: u32 = 3;

/// How busy the slots were between one look and the next.
#[derive(Debug)]
pub(super) struct Pace {
    capacity: usize,
    since: Instant,
    /// The summed running time of all runs.
    busy: Duration,
    ended: u32,
    quick_looks: u32,
    /// How many runs would be done within `LATE`, by each of the last looks.
    done: [usize; SURE as usize],
}

impl Pace {
    pub(super) fn new(capacity: usize, now: Instant) -> Self {
        Self {
            capacity,
            since: now,
            busy: Duration::ZERO,
            ended: 0,
            quick_looks: 0,
            done: [usize::MAX; SURE as usize],
        }
    }

    /// Records that `running` runs were active since the last call.
    pub(super) fn ran(&mut self, now: Instant, running: usize) {
        let running = u32::try_from(running).unwrap_or(u32::MAX);
        self.busy = self.busy.saturating_add(now.duration_since(self.since).saturating_mul(running));
        self.since = now;
    }

    pub(super) fn ended(&mut self) {
        self.ended = self.ended.saturating_add(1);
    }

    /// Whether enough runs have ended since the last look that another need not wait for its time.
    pub(super) fn has_seen_enough(&self) -> bool {
        self.ended as usize >= ENOUGH * self.capacity
    }

    /// Whether `count` runs would be done soon, judging by the runs since the last look; unchanged
    /// if there were none.
    pub(super) fn is_quick(&mut self, count: usize) -> bool {
        if self.ended > 0 || !self.busy.is_zero() {
            // The duration of a run is the total running time divided by the runs that ended; those
            // that have not ended count with the time they have had.
            let (each_s, places) = (self.busy.as_secs_f64(), self.capacity as f64 * f64::from(self.ended));
            let within = if self.quick_looks < SURE { SOON } else { LATE };
            let is_quick = each_s * count as f64 <= within.as_secs_f64() * places;
            self.done.rotate_left(1);
            self.done[SURE as usize - 1] = (LATE.as_secs_f64() * places / each_s) as usize;
            self.quick_looks = if is_quick { self.quick_looks.saturating_add(1) } else { 0 };
        }
        (self.busy, self.ended) = (Duration::ZERO, 0);
        self.quick_looks >= SURE
    }

    /// How long this many runs would take; short while nothing is known.
    pub(super) fn time_of(&self, runs: usize) -> Duration {
        LATE.mul_f64(runs as f64 / self.done_in_time().max(1) as f64)
    }

    /// How many runs would be done within `LATE`: by the best of the last looks, since a moment in
    /// which nothing ends says little.
    pub(super) fn done_in_time(&self) -> usize {
        self.done.into_iter().max().unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A second in which all slots are busy and `ended` runs end.
    fn look(pace: &mut Pace, ended: u32) -> bool {
        let now = pace.since + SECOND;
        pace.ran(now, pace.capacity);
        (0..ended).for_each(|_| pace.ended());
        pace.is_quick(5_000)
    }

    #[test]
    fn a_worker_is_quick_if_all_waiting_would_be_done_soon() {
        let mut pace = Pace::new(4, Instant::now());
        assert_eq!([500, 500, 500, 500].map(|ended| look(&mut pace, ended)), [false, false, true, true]);
        assert!(look(&mut pace, 167), "it would be done within thirty");
        assert!(!look(&mut pace, 166), "one second is enough to be slow");
        assert_eq!([500, 500, 500].map(|ended| look(&mut pace, ended)), [false, false, true]);
    }

    #[test]
    fn handlers_that_do_not_end_count_as_slow() {
        let mut pace = Pace::new(4, Instant::now());
        (0..3).for_each(|_| _ = look(&mut pace, 10_000));
        assert!(!look(&mut pace, 0));
    }

    #[test]
    fn an_idle_second_does_not_change_the_pace() {
        let mut pace = Pace::new(4, Instant::now());
        assert!(![0; 5].map(|_| pace.is_quick(5_000)).contains(&true));
        (0..3).for_each(|_| _ = look(&mut pace, 10_000));
        assert!(pace.is_quick(5_000));
    }

    #[test]
    fn a_few_quick_runs_count_as_quick() {
        let mut pace = Pace::new(64, Instant::now());
        let mut looks = [0; 3].map(|_| {
            pace.ran(pace.since + SECOND, 0);
            pace.ran(pace.since + SECOND / 200, 1);
            pace.ended();
            pace.is_quick(5_000)
        });
        looks.reverse();
        assert_eq!(looks, [true, false, false]);
    }

    #[test]
    fn throughput_is_the_best_of_three_samples() {
        let mut pace = Pace::new(4, Instant::now());
        assert_eq!(pace.done_in_time(), usize::MAX, "nothing is known yet");
        let mut done = |ended| {
            look(&mut pace, ended);
            pace.done_in_time()
        };
        assert_eq!([10, 20, 40, 0, 0].map(&mut done)[2..], [1_200, 1_200, 1_200]);
        assert_eq!([0, 10].map(&mut done), [0, 300]);
    }
}
