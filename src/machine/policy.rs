//! Durations and limits: the only parameters of a run.

use std::time::Duration;

use crate::event::{Claim, EventOptions, Timestamp, Timing};

/// The durations and limits of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a claim stands without renewal.
    pub lease: Duration,
    /// The longest time a worker may keep a notification until the event is due.
    pub horizon: Duration,
    /// The number of lost claims at which an event counts as poison.
    pub losses_max: u32,
    /// The longest delay before a retry, before jitter, even if the handler's own policy allows a
    /// longer one.
    pub retry_delay_max: Duration,
    /// Whether waits are spread by the jitter of their policies. In the test kit they are not, so
    /// that its clock can be moved to exactly the next attempt.
    pub spreads: bool,
}

impl Policy {
    /// The policy of a deployment with these durations.
    pub(crate) fn of(timing: &Timing, losses_max: u32) -> Self {
        let Timing { lease, horizon, retry_delay_max, .. } = *timing;
        Self { lease, horizon, losses_max, retry_delay_max, spreads: true }
    }
}

/// What an event's emit asked for, as far as one attempt needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventPolicy {
    /// Retries after the first failure, in place of those of the handler's policy.
    pub retries: Option<u32>,
    /// The delay if this attempt fails, in place of that of the handler's policy.
    pub delay: Option<Duration>,
    /// For how long after the claim an attempt may start. Zero: not even this one. `None`: for
    /// ever.
    pub left: Option<Duration>,
}

impl EventPolicy {
    /// What these options mean for an attempt that began at `moment`, after `retries` retries.
    pub(crate) fn of(options: Option<&EventOptions>, retries: u32, moment: Timestamp) -> Self {
        let Some(options) = options else { return Self::default() };
        Self {
            retries: options.retries(),
            delay: options.delay_after(retries),
            left: options.time_left(moment),
        }
    }
}

/// When and how often a handler is retried after an operational error.
///
/// ```
/// use std::time::Duration;
/// use wakeq::RetryPolicy;
///
/// let policy = RetryPolicy { retries: 5, delay: Duration::from_secs(1), factor: 2, delay_max: Duration::from_secs(10), ..Default::default() };
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
    /// Longest delay, before jitter. Default 24 h.
    pub delay_max: Duration,
    /// How much later than its delay an attempt may be, in percent of the delay; never earlier.
    /// Events that failed together come back spread over this time. Default 20.
    pub jitter_percent: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries: 2,
            delay: Duration::from_secs(300),
            factor: 1,
            delay_max: Duration::from_secs(24 * 3600),
            jitter_percent: 20,
        }
    }
}

impl RetryPolicy {
    /// The delay after a failure that was preceded by `retries` retries, before jitter.
    pub fn delay_after(&self, retries: u32) -> Duration {
        let factor = self.factor.saturating_pow(retries);
        self.delay.saturating_mul(factor).min(self.delay_max)
    }

    /// A wait with its jitter. The randomness is the claim's: the same claim waits equally long
    /// each time it is asked, so a write that is repeated writes the same, and others differ.
    pub fn spread(&self, wait: Duration, claim: Claim) -> Duration {
        let share = wait.saturating_mul(self.jitter_percent.min(100)) / 100;
        wait.saturating_add(share.mul_f64(fraction(claim)).min(share))
    }

    /// The policy for an attempt of an event. A delay that the event asks for is never too long for
    /// the policy.
    pub(crate) fn for_event(self, asked: EventPolicy) -> Self {
        let retries = asked.retries.unwrap_or(self.retries);
        match asked.delay {
            Some(delay) => Self { retries, delay, factor: 1, delay_max: self.delay_max.max(delay), ..self },
            None => Self { retries, ..self },
        }
    }

    /// The same, with the jitter that the limits allow.
    pub(super) fn within(self, limits: &Policy) -> Self {
        let jitter_percent = if limits.spreads { self.jitter_percent } else { 0 };
        Self { jitter_percent, ..self }
    }
}

/// A number from 0 to 1 for each claim, evenly distributed (the finalizer of splitmix64).
fn fraction(claim: Claim) -> f64 {
    let (high, low) = claim.id.0.as_u64_pair();
    let mut bits = high ^ low.rotate_left(32) ^ u64::from(claim.claims.cast_unsigned()).rotate_left(17);
    for factor in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        bits = (bits ^ (bits >> 30)).wrapping_mul(factor);
    }
    f64::from((bits >> 32) as u32) / f64::from(u32::MAX)
}
