//! The edges of the chart as values, with the names used by logs, metrics and `explain`.

use crate::event::displayed_as_text;

/// Why a run left a state as it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The row is gone: the event completed, died, or never existed.
    EventMissing,
    /// The row is there.
    EventPresent,
    /// The event is due.
    DelayNone,
    /// The event is not due yet.
    DelayNotYet,
    /// An earlier event of the same lane is left.
    EarlierLeft,
    /// The event's lane is halted: an event in it died.
    ObjectHalted,
    /// Its canvas receives nothing from its queue: it is paused or at its limit in flight there.
    FacetHeld,
    /// Like `FacetHeld`; the event was recalled, so that it is found when a slot is freed, and is
    /// checked once more.
    FacetRecalled,
    /// No claim stands on the event.
    LockNone,
    /// A claim was not renewed in time.
    LockExpired,
    /// Another run has claimed the event.
    IsLocked,
    /// No rule stands on the handler.
    RuleNone,
    /// A user paused the handler: the event is parked.
    RulePaused,
    /// An admin blocked the handler: the event is parked.
    RuleBlocked,
    /// The rule was lifted before the event could be parked.
    RuleLifted,
    /// This worker has the handler.
    HandlerKnown,
    /// This worker does not have the handler, but another may.
    HandlerUnknown,
    /// The event's promise was moved to a later time.
    Deferred,
    /// This run may start the handler.
    LockClaimed,
    /// Another run claimed it first, or the event is no longer runnable.
    LockClaimFailed,
    /// All places of one of its limits are taken: it waits for one of them.
    LimitFull,
    /// The rates of its limits let it start later, at a time of its own.
    LimitRate,
    /// Too many workers died while they ran this event.
    Poison,
    /// No attempt may start any more, or none could before that: the event dies.
    Expired,
    /// The handler returned; an error value counts as completion.
    ExecutesToCompletion,
    /// An operational error: of the handler in `Process`, of pausing it in `Pause`, of the write
    /// that saves the retry in `RetryCheck`.
    Exception,
    /// The handler says that no retry can help: the event dies.
    Rejected,
    /// The handler says that it is too early for the event.
    NotYet,
    /// The event is delayed as its handler asked, and nothing was counted.
    Postponed,
    /// The handler says that it is permanently gone: its target has to be held.
    HandlerGone,
    /// The target is held, or was replaced in the meantime.
    HandlerPaused,
    /// The claim could not be renewed in time; another worker may have the event.
    LeaseLost,
    /// This worker shuts down and the grace is over.
    ShutDown,
    /// Somebody cancelled the event while it ran, and its handler did not complete it: the event is
    /// deleted.
    Cancelled,
    /// The claim was released, and the row's counts are unchanged.
    Released,
    /// The event will be retried later.
    RetryAllowed,
    /// No retry is left.
    RetryTooMany,
    /// This run removed the row.
    Deleted,
    /// The next event of the object was woken.
    HandedOver,
    /// The row was claimed by another run, or gone, or the database did not answer.
    FencedOut,
}

impl Outcome {
    /// Every outcome, in the order of the chart; a metric has one series for each.
    ///
    /// ```
    /// use wakeq::machine::Outcome;
    ///
    /// assert!(Outcome::ALL.iter().any(|outcome| outcome.as_str() == "LockClaimed"));
    /// ```
    pub const ALL: [Self; 40] = [
        Self::EventMissing,
        Self::EventPresent,
        Self::DelayNone,
        Self::DelayNotYet,
        Self::EarlierLeft,
        Self::ObjectHalted,
        Self::FacetHeld,
        Self::FacetRecalled,
        Self::LockNone,
        Self::LockExpired,
        Self::IsLocked,
        Self::RuleNone,
        Self::RulePaused,
        Self::RuleBlocked,
        Self::RuleLifted,
        Self::HandlerKnown,
        Self::HandlerUnknown,
        Self::Deferred,
        Self::LockClaimed,
        Self::LockClaimFailed,
        Self::LimitFull,
        Self::LimitRate,
        Self::Poison,
        Self::Expired,
        Self::ExecutesToCompletion,
        Self::Exception,
        Self::Rejected,
        Self::NotYet,
        Self::Postponed,
        Self::HandlerGone,
        Self::HandlerPaused,
        Self::LeaseLost,
        Self::ShutDown,
        Self::Cancelled,
        Self::Released,
        Self::RetryAllowed,
        Self::RetryTooMany,
        Self::Deleted,
        Self::HandedOver,
        Self::FencedOut,
    ];

    /// The outcome's name in the chart.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EventMissing => "EventMissing",
            Self::EventPresent => "EventPresent",
            Self::DelayNone => "DelayNone",
            Self::DelayNotYet => "DelayNotYet",
            Self::EarlierLeft => "EarlierLeft",
            Self::ObjectHalted => "ObjectHalted",
            Self::FacetHeld => "FacetHeld",
            Self::FacetRecalled => "FacetRecalled",
            Self::LockNone => "LockNone",
            Self::LockExpired => "LockExpired",
            Self::IsLocked => "IsLocked",
            Self::RuleNone => "RuleNone",
            Self::RulePaused => "RulePaused",
            Self::RuleBlocked => "RuleBlocked",
            Self::RuleLifted => "RuleLifted",
            Self::HandlerKnown => "HandlerKnown",
            Self::HandlerUnknown => "HandlerUnknown",
            Self::Deferred => "Deferred",
            Self::LockClaimed => "LockClaimed",
            Self::LockClaimFailed => "LockClaimFailed",
            Self::LimitFull => "LimitFull",
            Self::LimitRate => "LimitRate",
            Self::Poison => "Poison",
            Self::Expired => "Expired",
            Self::ExecutesToCompletion => "ExecutesToCompletion",
            Self::Exception => "Exception",
            Self::Rejected => "Rejected",
            Self::NotYet => "NotYet",
            Self::Postponed => "Postponed",
            Self::HandlerGone => "HandlerGone",
            Self::HandlerPaused => "HandlerPaused",
            Self::LeaseLost => "LeaseLost",
            Self::ShutDown => "ShutDown",
            Self::Cancelled => "Cancelled",
            Self::Released => "Released",
            Self::RetryAllowed => "RetryAllowed",
            Self::RetryTooMany => "RetryTooMany",
            Self::Deleted => "Deleted",
            Self::HandedOver => "HandedOver",
            Self::FencedOut => "FencedOut",
        }
    }
}

displayed_as_text!(Outcome);
