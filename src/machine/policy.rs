//! Durations and limits: the only parameters of a run.

use std::time::Duration;

use crate::event::Timing;

/// The durations and limits of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a claim stands without renewal.
    pub lease: Duration,
    /// The longest time a worker may keep a notification until the event is due.
    pub horizon: Duration,
    /// The number of lost claims at which an event counts as poison.
    pub losses_max: u32,
    /// The longest delay before a retry, even if the handler's own policy allows a longer one.
    pub retry_delay_max: Duration,
}

impl Policy {
    /// The policy of a deployment with these durations.
    pub(crate) fn of(timing: &Timing, losses_max: u32) -> Self {
        let Timing { lease, horizon, retry_delay_max, .. } = *timing;
        Self { lease, horizon, losses_max, retry_delay_max }
    }
}

/// When and how often a handler is retried after an operational error.
///
/// ```
/// use std::time::Duration;
/// use wakeq::RetryPolicy;
///
/// let policy = RetryPolicy { retries: 5, delay: Duration::from_secs(1), factor: 2, delay_max: Duration::from_secs(10) };
/// let delays: Vec<u64> = (0..5).map(|retries| policy.delay_after(retries).as_secs()).collect();
/// assert_eq!(delays, [1, 2, 4, 8, 10]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Retries after the first failure. Default 2.
    pub retries: u32,
    /// Delay after the first failure. Default 5 min.
    pub delay: Duration,
    /// Factor between consecutive delays. Default 1.
    pub factor: u32,
    /// Longest delay. Default 24 h.
    pub delay_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries: 2,
            delay: Duration::from_secs(300),
            factor: 1,
            delay_max: Duration::from_secs(24 * 3600),
        }
    }
}

impl RetryPolicy {
    /// The delay after a failure that was preceded by `retries` retries.
    pub fn delay_after(&self, retries: u32) -> Duration {
        let factor = self.factor.saturating_pow(retries);
        self.delay.saturating_mul(factor).min(self.delay_max)
    }

    /// The same, without longer delays than this.
    pub(super) fn at_most(self, delay_max: Duration) -> Self {
        Self { delay_max: self.delay_max.min(delay_max), ..self }
    }
}
