//! A claimed event and the run of its handler: how often and after which waits it may run again.

use std::time::Duration;

use super::{EventPolicy, RetryPolicy};
use crate::event::Claim;

/// Shortest delay of a postponed event, so that its handler is not called in a busy loop. If the
/// handler asks for less, the delay grows by what the event has been postponed for already, so that
/// it doubles each time, up to `POSTPONED_GROWN`.
const POSTPONED_MIN: Duration = Duration::from_secs(1);
const POSTPONED_GROWN: Duration = Duration::from_secs(60);
/// A handler may ask for this delay even if its policy's longest is shorter.
const ASKED_ANYWAY: Duration = Duration::from_secs(60);

/// The result of a successful claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The right to run.
    pub claim: Claim,
    /// Retries so far.
    pub retries: u32,
    /// Claims lost so far, including the one that this claim took over.
    pub losses: u32,
    /// For how long the event has been postponed already, since it was for the first time.
    pub postponed: Duration,
    /// Somebody cancelled it while it ran before: its handler is not started again.
    pub is_cancelled: bool,
    /// What its emit asked for.
    pub asked: EventPolicy,
}

/// A claimed event with its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// The right to run.
    pub claim: Claim,
    /// Retries before this run.
    pub retries: u32,
    /// For how long the event has been postponed already.
    pub postponed: Duration,
    /// The handler's policy, or what the event's emit asked for in its place.
    pub policy: RetryPolicy,
    /// For how long after the claim another attempt may start; `None`: for ever.
    pub left: Option<Duration>,
    /// The deployment's longest delay.
    pub longest: Duration,
}

impl Running {
    /// Whether the policy has a retry left.
    pub(super) fn has_retry(&self) -> bool {
        self.retries < self.policy.retries
    }

    /// Whether a retry is left, and can start in time.
    pub(super) fn may_retry(&self, after: Option<Duration>) -> bool {
        self.has_retry() && self.is_in_time(self.delay(after))
    }

    /// Whether the event can wait this long, as its handler asks.
    pub(super) fn may_postpone(&self, delay: Duration) -> bool {
        self.is_in_time(self.postponed(delay))
    }

    /// Whether an attempt may start after such a wait. How long this one took does not count: the
    /// next claim decides about that.
    fn is_in_time(&self, wait: Duration) -> bool {
        self.left.is_none_or(|left| wait < left)
    }

    /// How long it waits for its retry, if its handler asks for this delay.
    pub(super) fn delay(&self, after: Option<Duration>) -> Duration {
        self.waits(self.policy.delay_after(self.retries).max(self.asked(after.unwrap_or_default())))
    }

    /// The delay that a handler gets for the one that it asks for.
    fn asked(&self, delay: Duration) -> Duration {
        delay.min(self.policy.delay_max.max(ASKED_ANYWAY))
    }

    fn waits(&self, delay: Duration) -> Duration {
        self.policy.spread(delay.min(self.longest), self.claim)
    }

    /// How long it waits if its handler says that it is this much too early.
    pub(super) fn postponed(&self, delay: Duration) -> Duration {
        let delay = if delay < POSTPONED_MIN {
            self.postponed.saturating_add(POSTPONED_MIN).min(POSTPONED_GROWN)
        } else {
            delay
        };
        self.waits(self.asked(delay))
    }
}
