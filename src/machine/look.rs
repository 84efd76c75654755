//! What a notification would find now, without asking anything: the checks alone.

use super::run::{delay_check, lock_check};
use super::{Outcome, Policy};
use crate::event::{RuleKind, Schedule};

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not due yet.
    Delayed,
    /// Somebody runs it.
    Running,
    /// A rule holds it.
    Held(RuleKind),
    /// Nothing speaks against running it.
    Ready,
}

impl Standing {
    /// The outcome at which a run would leave the checks.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Delayed => Outcome::DelayNotYet,
            Self::Running => Outcome::IsLocked,
            Self::Held(RuleKind::Pause) => Outcome::RulePaused,
            Self::Held(RuleKind::Block) => Outcome::RuleBlocked,
            Self::Ready => Outcome::RuleNone,
        }
    }
}

/// Applies the checks in the machine's order.
pub fn look(schedule: Schedule, policy: &Policy) -> Standing {
    if delay_check(schedule, policy).0 == Outcome::DelayNotYet {
        Standing::Delayed
    } else if lock_check(schedule, policy).0 == Outcome::IsLocked {
        Standing::Running
    } else {
        schedule.rule.map_or(Standing::Ready, Standing::Held)
    }
}
