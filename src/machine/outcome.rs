//! The edges of the chart as values: what logs, metrics and `explain` call them.

use std::fmt;

/// Why a run left a state the way it did.
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
    /// An earlier event of the same object is left in the same queue.
    EarlierLeft,
    /// The event's object stands still in this queue: an event of it died.
    ObjectHalted,
    /// Its canvas gets nothing of its queue now: it is paused there, or has as many in flight as it may.
    FacetHeld,
    /// The same; it was recalled, so that whoever makes room finds it, and is looked at once more.
    FacetRecalled,
    /// Nobody holds a claim on the event.
    LockNone,
    /// Somebody held a claim and did not renew it in time.
    LockExpired,
    /// Somebody runs the event.
    IsLocked,
    /// No rule stands on the handler.
    RuleNone,
    /// The user paused the handler: the event is parked.
    RulePaused,
    /// An admin blocked the handler: the event is parked.
    RuleBlocked,
    /// The rule was lifted before the event could be parked.
    RuleLifted,
    /// This worker has the handler.
    HandlerKnown,
    /// This worker does not have the handler; another may.
    HandlerUnknown,
    /// The promise on the row was moved to a later time.
    Deferred,
    /// This run may start the handler.
    LockClaimed,
    /// Another run was faster, or the event is no longer runnable.
    LockClaimFailed,
    /// Too many owners of this event died.
    Poison,
    /// The handler returned; an error value counts as completion.
    ExecutesToCompletion,
    /// An operational error: of the handler in `Process`, of its pause in `Pause`, of the retry's own write in
    /// `RetryCheck`.
    Exception,
    /// The handler says that it is too early for the event.
    NotYet,
    /// The event waits until its handler wants it again, and nothing was counted.
    Postponed,
    /// The handler says that it is gone for good: it has to be paused.
    HandlerGone,
    /// The handler is paused, or another one has taken its place meanwhile.
    HandlerPaused,
    /// The claim could not be renewed in time; another worker may have the event.
    LeaseLost,
    /// This worker shuts down and the grace is over.
    ShutDown,
    /// The claim was given up without a trace in the row's counts.
    Released,
    /// The event is tried again later.
    RetryAllowed,
    /// The event was tried often enough.
    RetryTooMany,
    /// The row is gone, by this run.
    Deleted,
    /// The next event of the object was woken.
    HandedOver,
    /// The write found the row claimed by somebody else, or gone, or the database gave no answer.
    FencedOut,
}

impl Outcome {
    /// Every outcome, in the order of the chart; a metric has one series for each.
    ///
    /// ```
    /// use wakeq::Outcome;
    ///
    /// assert!(Outcome::ALL.iter().any(|outcome| outcome.as_str() == "LockClaimed"));
    /// ```
    pub const ALL: [Self; 35] = [
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
        Self::Poison,
        Self::ExecutesToCompletion,
        Self::Exception,
        Self::NotYet,
        Self::Postponed,
        Self::HandlerGone,
        Self::HandlerPaused,
        Self::LeaseLost,
        Self::ShutDown,
        Self::Released,
        Self::RetryAllowed,
        Self::RetryTooMany,
        Self::Deleted,
        Self::HandedOver,
        Self::FencedOut,
    ];

    /// The name in the chart.
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
            Self::Poison => "Poison",
            Self::ExecutesToCompletion => "ExecutesToCompletion",
            Self::Exception => "Exception",
            Self::NotYet => "NotYet",
            Self::Postponed => "Postponed",
            Self::HandlerGone => "HandlerGone",
            Self::HandlerPaused => "HandlerPaused",
            Self::LeaseLost => "LeaseLost",
            Self::ShutDown => "ShutDown",
            Self::Released => "Released",
            Self::RetryAllowed => "RetryAllowed",
            Self::RetryTooMany => "RetryTooMany",
            Self::Deleted => "Deleted",
            Self::HandedOver => "HandedOver",
            Self::FencedOut => "FencedOut",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}
