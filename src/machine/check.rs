//! What a notification would find if it arrived now: the checks alone, without any effect.

use super::run::{delay_check, lock_check};
use super::{Outcome, Policy};
use crate::event::{EventState, RuleKind, Schedule, Turn};

/// The result of the checks for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// An earlier event of its lane is left.
    Behind,
    /// Its lane is halted, because an event in it died.
    Halted,
    /// Its canvas receives nothing from its queue at present.
    FacetHeld,
    /// Not due yet.
    Delayed,
    /// Another run has claimed it.
    Running,
    /// A rule on its handler holds it.
    Held(RuleKind),
    /// It waits for a place of a limit.
    Limited,
    /// Nothing prevents it from running.
    Ready,
}

impl CheckResult {
    /// The result as one word.
    ///
    /// ```
    /// use wakeq::control::RuleKind;
    /// use wakeq::machine::CheckResult;
    ///
    /// assert_eq!(CheckResult::Held(RuleKind::Pause).as_str(), "paused");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Behind => "behind",
            Self::Halted => "halted",
            Self::FacetHeld => "held",
            Self::Delayed => "delayed",
            Self::Running => "running",
            Self::Held(RuleKind::Pause) => "paused",
            Self::Held(RuleKind::Block) => "blocked",
            Self::Limited => "limited",
            Self::Ready => "ready",
        }
    }

    /// Parses what [`CheckResult::as_str`] returns.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [
            Self::Behind,
            Self::Halted,
            Self::FacetHeld,
            Self::Delayed,
            Self::Running,
            Self::Held(RuleKind::Pause),
            Self::Held(RuleKind::Block),
            Self::Limited,
            Self::Ready,
        ];
        all.into_iter().find(|result| result.as_str() == word)
    }

    /// The outcome with which a run would leave the checks.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Behind => Outcome::EarlierLeft,
            Self::Halted => Outcome::ObjectHalted,
            Self::FacetHeld => Outcome::FacetHeld,
            Self::Delayed => Outcome::DelayNotYet,
            Self::Running => Outcome::IsLocked,
            Self::Held(RuleKind::Pause) => Outcome::RulePaused,
            Self::Held(RuleKind::Block) => Outcome::RuleBlocked,
            Self::Limited => Outcome::LimitFull,
            Self::Ready => Outcome::RuleNone,
        }
    }

    /// The result for an event of which is known as well whether it waits for a place of a limit,
    /// which is the last check: the claim itself.
    ///
    /// ```
    /// use wakeq::machine::CheckResult;
    ///
    /// assert_eq!(CheckResult::Ready.at_limit(true), CheckResult::Limited);
    /// assert_eq!(CheckResult::Delayed.at_limit(true), CheckResult::Delayed);
    /// ```
    #[must_use]
    pub fn at_limit(self, waits: bool) -> Self {
        match self {
            Self::Ready if waits => Self::Limited,
            Self::Behind
            | Self::Halted
            | Self::FacetHeld
            | Self::Delayed
            | Self::Running
            | Self::Held(_)
            | Self::Limited
            | Self::Ready => self,
        }
    }
}

impl From<CheckResult> for EventState {
    fn from(result: CheckResult) -> Self {
        match result {
            CheckResult::Behind => Self::Behind,
            CheckResult::Halted => Self::Halted,
            CheckResult::FacetHeld => Self::Held,
            CheckResult::Delayed => Self::Delayed,
            CheckResult::Running => Self::Running,
            CheckResult::Held(RuleKind::Pause) => Self::Paused,
            CheckResult::Held(RuleKind::Block) => Self::Blocked,
            CheckResult::Limited => Self::Limited,
            CheckResult::Ready => Self::Ready,
        }
    }
}

/// Applies the checks in the machine's order, without an effect.
pub fn check_schedule(schedule: Schedule, policy: &Policy) -> CheckResult {
    match schedule.turn {
        Turn::Behind => return CheckResult::Behind,
        Turn::Halted => return CheckResult::Halted,
        Turn::Held | Turn::Passed => return CheckResult::FacetHeld,
        Turn::First => {}
    }
    if delay_check(schedule, policy).0 == Outcome::DelayNotYet {
        CheckResult::Delayed
    } else if lock_check(schedule, policy).0 == Outcome::IsLocked {
        CheckResult::Running
    } else {
        schedule.rule.map_or(CheckResult::Ready, CheckResult::Held)
    }
}
