//! What happened to events in a time: how many were emitted and how they ended, how long they
//! waited and ran.

use std::time::Duration;

use super::DurationHistogram;

/// What happened to the events of a handler, or of a canvas, in a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventCounts {
    /// Events that were emitted, by crons too.
    pub emitted: u64,
    /// Events that completed, also with an error value.
    pub completed: u64,
    /// Attempts that failed: by an operational error, a time-out or a panic, because the lease was
    /// lost, or because the target was removed.
    pub failed: u64,
    /// Attempts that failed and will be retried.
    pub retried: u64,
    /// Events that became dead events.
    pub dead: u64,
    /// How long events had been due when they were claimed, for each attempt.
    pub wait: DurationHistogram,
    /// How long attempts took.
    pub run: DurationHistogram,
}

/// What one run adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountedRun {
    pub(crate) completed: bool,
    pub(crate) failed: bool,
    pub(crate) retried: bool,
    pub(crate) dead: bool,
    pub(crate) wait: Option<Duration>,
    pub(crate) run: Option<Duration>,
}

impl EventCounts {
    /// Whether nothing happened.
    pub(crate) fn is_nothing(&self) -> bool {
        let Self { emitted, completed, failed, retried, dead, wait, run } = self;
        [*emitted, *completed, *failed, *retried, *dead, wait.count(), run.count()] == [0; 7]
    }

    /// Adds what happened besides.
    pub fn add(&mut self, other: &Self) {
        self.emitted += other.emitted;
        self.completed += other.completed;
        self.failed += other.failed;
        self.retried += other.retried;
        self.dead += other.dead;
        self.wait.add(&other.wait);
        self.run.add(&other.run);
    }

    /// Adds a run.
    pub(crate) fn add_run(&mut self, run: &CountedRun) {
        self.completed += u64::from(run.completed);
        self.failed += u64::from(run.failed);
        self.retried += u64::from(run.retried);
        self.dead += u64::from(run.dead);
        run.wait.into_iter().for_each(|wait| self.wait.record(wait));
        run.run.into_iter().for_each(|took| self.run.record(took));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_counts_add_up() {
        let completes = CountedRun {
            completed: true,
            wait: Some(Duration::from_millis(7)),
            run: Some(Duration::from_millis(30)),
            ..CountedRun::default()
        };
        let dies = CountedRun { completed: false, failed: true, dead: true, ..completes };
        let (mut one, mut other) = (EventCounts::default(), EventCounts::default());
        assert!(one.is_nothing());
        one.add_run(&completes);
        other.add_run(&dies);
        other.add_run(&CountedRun { failed: true, retried: true, ..CountedRun::default() });
        other.emitted = 3;
        one.add(&other);
        let EventCounts { emitted, completed, failed, retried, dead, wait, run } = &one;
        assert_eq!([*emitted, *completed, *failed, *retried, *dead], [3, 1, 2, 1, 1]);
        assert_eq!((wait.count(), wait.sum().as_millis()), (2, 14));
        assert_eq!((run.count(), run.sum().as_millis()), (2, 60));
        assert!(!one.is_nothing());
    }
}
