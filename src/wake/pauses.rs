//! How long a process waits between two of its passes.

use std::time::Duration;

/// The pause after a pass that failed. It doubles with each further failure, up to the period.
const RETRY: Duration = Duration::from_secs(5);

/// The pauses of one process.
pub(super) struct Pauses {
    period: Duration,
    /// The pause after the next failure.
    retry: Duration,
}

impl Pauses {
    pub(super) fn of(period: Duration) -> Self {
        Self { period, retry: RETRY }
    }

    /// The pause after a pass: a period if it succeeded. A pass that failed may be the only one
    /// that would have found a lost notification, so it is repeated sooner.
    pub(super) fn after(&mut self, succeeded: bool) -> Duration {
        if succeeded {
            self.retry = RETRY;
            return jittered(self.period);
        }
        let pause = self.retry.min(self.period);
        self.retry = self.retry.saturating_mul(2);
        jittered(pause)
    }
}

/// This time and up to a tenth more, never less: a process that looks just before the pass is due
/// finds nothing to do, and would be late by a whole period.
fn jittered(time: Duration) -> Duration {
    let share = uuid::Uuid::new_v4().as_u128() % 91;
    time.mul_f64(1.01 + 0.001 * share as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_pass_is_repeated_soon_and_then_less_and_less_often() {
        let mut pauses = Pauses::of(Duration::from_secs(60));
        let mut checked = |succeeded, seconds| {
            let pause = pauses.after(succeeded).as_secs_f64() / f64::from(seconds);
            assert!((1.0..=1.11).contains(&pause), "{pause} times {seconds} s");
        };
        for seconds in [5, 10, 20, 40, 60, 60] {
            checked(false, seconds);
        }
        checked(true, 60);
        checked(false, 5);
        assert!(Pauses::of(RETRY / 5).after(false) < RETRY / 4, "never longer than the period");
    }
}
