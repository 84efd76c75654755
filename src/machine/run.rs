//! The run of one notification: its states, the questions they ask and the answers they accept.
//!
//! Every state asks exactly one question ([`State::effect`]) and advances with the answer
//! ([`State::step`]). The worker's driver performs the effects; tests replay answers. States and
//! edges have the names of `docs/state_machine.md`.

use std::time::Duration;

use super::{Claimed, Outcome, Policy, RetryPolicy, Running};
use crate::event::{Cause, Claim, RuleKind, Schedule, Turn};

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Only the id is known.
    EventLoad,
    /// It is not the event's turn in its lane. Is the lane halted?
    LaneCheck {
        /// `false`: only an earlier event is left.
        is_halted: bool,
    },
    /// Its canvas receives nothing from its queue at present. Have turns passed over the event?
    FacetCheck {
        /// `true`: it is not found when its facet has room, unless it is recalled.
        is_passed: bool,
    },
    /// Is the event due?
    DelayCheck(Schedule),
    /// Is it claimed by another run?
    LockCheck(Schedule),
    /// May its handler run?
    RuleCheck(Schedule),
    /// Is its handler known here?
    HandlerCheck(Schedule),
    /// It has to wait for a worker that has its handler.
    Defer,
    /// All checks passed: claim it.
    LockClaim(RetryPolicy),
    /// The handler runs.
    Process(Running),
    /// The handler's target was removed: nothing more may be sent to it.
    Pause(Running),
    /// The handler failed. The duration is the least delay that it asked for, if any.
    RetryCheck(Running, Option<Duration>),
    /// The handler said that it is too early: the event waits this long, and nothing is counted.
    Postpone(Running, Duration),
    /// A shutdown cut the handler off, or the handler is paused now.
    Release(Claim),
    /// The event has ended.
    Delete(Claim, Removal),
    /// The event was on an object: it is the next event's turn.
    HandOver,
    /// The notification will be processed again.
    Queue(When),
    /// The notification is answered.
    End(Answer),
}

/// How an event ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removal {
    /// It completed.
    Completed,
    /// Its handler has removed it already, in a transaction of its own.
    Committed,
    /// Somebody cancelled it while it ran.
    Cancelled,
    /// It moves to the dead events.
    Dead(Cause),
}

/// When a notification is processed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After this long; never longer than the horizon or a lease.
    In(Duration),
    /// After the subscription's retry delay.
    Soon,
}

/// How a notification is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done: the row is gone, or another mechanism will wake it.
    Acknowledge,
    /// Deliver it again.
    PutBack,
}

/// The one thing a state needs done before it can advance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read the row, the rule on its handler and the clock, in one snapshot.
    LoadEvent,
    /// Nothing: the state decides from what it holds.
    Decide,
    /// Recall the event, which turns passed over, so that it is found when its facet has room.
    Recall,
    /// Clear the row's promise, but only while the rule still stands.
    Park,
    /// Look up the handler in this worker.
    FindHandler,
    /// Move the row's promise to when another worker may know the handler.
    Defer,
    /// Compare-and-set on the database's clock, with the delay, lock and rule conditions included.
    ClaimLock,
    /// Run the handler while renewing the lease.
    RunHandler,
    /// Hold the target that was removed, unless it was replaced in the meantime.
    PauseHandler,
    /// Save the retry count and the due time, and release the claim, unless it was lost.
    SaveRetry {
        /// The claim that must still stand.
        claim: Claim,
        /// The new count; unchanged if nothing is counted.
        retries: u32,
        /// How long the event waits.
        delay: Duration,
    },
    /// Release the claim without counting anything.
    Release(Claim),
    /// Delete the row, or move it to the dead events, unless the claim was lost. Nothing, if the
    /// handler has done it.
    Remove(Claim, Removal),
    /// Wake the next event of the lane, in a statement that begins after the removal was committed.
    HandOver,
    /// Nothing more: keep the notification.
    Wait(When),
    /// Nothing more: answer the notification.
    Answer(Answer),
}

/// The answer to an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// To [`Effect::LoadEvent`]. `None` if the row is gone.
    Loaded(Option<Schedule>),
    /// To [`Effect::Decide`].
    Decide,
    /// To [`Effect::Recall`].
    Recalled,
    /// To [`Effect::Park`]: whether the rule still stood.
    Parked(bool),
    /// To [`Effect::FindHandler`]. `None` if this worker does not have it.
    Handler(Option<RetryPolicy>),
    /// To [`Effect::Defer`].
    Deferred,
    /// To [`Effect::ClaimLock`]. `None` if the claim failed.
    Claimed(Option<Claimed>),
    /// To [`Effect::ClaimLock`]: a limit does not let it start now. `None` if it waits for a place,
    /// and otherwise how long until its rates let it start.
    Limited(Option<Duration>),
    /// To [`Effect::RunHandler`].
    Ran(HandlerEnd),
    /// To [`Effect::PauseHandler`]: whether the database answered.
    HandlerPaused(bool),
    /// To [`Effect::SaveRetry`]: whether the claim still stood; also `false` without an answer.
    RetrySaved(bool),
    /// To [`Effect::Release`].
    Released,
    /// To [`Effect::Remove`]: whether the claim still stood; also `false` without an answer.
    Removed(bool),
    /// To [`Effect::Remove`]: the claim stood, and the event was on an object.
    LinkRemoved,
    /// To [`Effect::HandOver`], even if the database did not answer: the removal has renewed the
    /// promise of the next event.
    HandedOver,
}

/// How a handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerEnd {
    /// It returned.
    Completed,
    /// It completed the event in a transaction of its own, which was committed.
    Committed,
    /// An error that no retry can mend: the event dies.
    Rejected,
    /// An operational error. The handler may ask for a longer delay than its policy's next one, up
    /// to the policy's longest.
    Failed(Option<Duration>),
    /// It is too early for this event: it runs again after this delay, up to the longest delay of
    /// the policy, as if it had not run. A delay below a second grows with each such run.
    NotYet(Duration),
    /// The handler is permanently gone and wants no more events: not a failure of this event.
    Gone,
    /// The lease expired while it ran.
    LeaseLost,
    /// The worker shut down while it ran.
    ShutDown,
    /// Somebody cancelled the event while it ran, and it has not completed the event.
    Cancelled,
}

/// One step of a run: the edge taken and the state reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The edge's name in the chart.
    pub outcome: Outcome,
    /// The new state.
    pub next: State,
}

/// A state was passed an answer to a question it did not ask: a bug in the driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{state:?} did not ask for {input:?}")]
pub struct UnexpectedInput {
    /// The state, unchanged.
    pub state: State,
    /// The answer.
    pub input: Input,
}

impl State {
    /// The question that this state asks.
    pub fn effect(&self) -> Effect {
        match self {
            Self::EventLoad => Effect::LoadEvent,
            Self::FacetCheck { is_passed: true } => Effect::Recall,
            Self::LaneCheck { .. } | Self::FacetCheck { is_passed: false } => Effect::Decide,
            Self::DelayCheck(_) | Self::LockCheck(_) => Effect::Decide,
            Self::RuleCheck(schedule) if schedule.rule.is_some() => Effect::Park,
            Self::RuleCheck(_) => Effect::Decide,
            Self::HandlerCheck(_) => Effect::FindHandler,
            Self::Defer => Effect::Defer,
            Self::LockClaim(_) => Effect::ClaimLock,
            Self::Process(_) => Effect::RunHandler,
            Self::Pause(_) => Effect::PauseHandler,
            Self::RetryCheck(running, after) if running.may_retry(*after) => Effect::SaveRetry {
                claim: running.claim,
                retries: running.retries + 1,
                delay: running.delay(*after),
            },
            Self::Postpone(running, delay) if running.may_postpone(*delay) => Effect::SaveRetry {
                claim: running.claim,
                retries: running.retries,
                delay: running.postponed(*delay),
            },
            Self::RetryCheck(..) | Self::Postpone(..) => Effect::Decide,
            Self::Release(claim) => Effect::Release(*claim),
            Self::Delete(claim, removal) => Effect::Remove(*claim, *removal),
            Self::HandOver => Effect::HandOver,
            Self::Queue(when) => Effect::Wait(*when),
            Self::End(answer) => Effect::Answer(*answer),
        }
    }

    /// Advances with the answer to [`State::effect`].
    #[expect(
        clippy::result_large_err,
        reason = "it hands back what it was given, and a correct driver never sees it"
    )]
    pub fn step(self, input: Input, policy: &Policy) -> Result<Transition, UnexpectedInput> {
        let (outcome, next) = match (self, input) {
            (Self::EventLoad, Input::Loaded(None)) => (Outcome::EventMissing, Self::End(Answer::Acknowledge)),
            (Self::EventLoad, Input::Loaded(Some(schedule))) => {
                (Outcome::EventPresent, first_check(schedule))
            }
            // The event is woken when the object is resumed.
            (Self::LaneCheck { is_halted: true }, Input::Decide) => {
                (Outcome::ObjectHalted, Self::End(Answer::Acknowledge))
            }
            // The event is woken when the earlier one is removed.
            (Self::LaneCheck { is_halted: false }, Input::Decide) => {
                (Outcome::EarlierLeft, Self::End(Answer::Acknowledge))
            }
            // The event is found when a slot in its facet is freed, or when its canvas is resumed.
            (Self::FacetCheck { is_passed: false }, Input::Decide) => {
                (Outcome::FacetHeld, Self::End(Answer::Acknowledge))
            }
            // A slot may have been freed before the recall, when this event could not be found.
            (Self::FacetCheck { is_passed: true }, Input::Recalled) => {
                (Outcome::FacetRecalled, Self::Queue(When::Soon))
            }
            (Self::DelayCheck(schedule), Input::Decide) => delay_check(schedule, policy),
            (Self::LockCheck(schedule), Input::Decide) => lock_check(schedule, policy),
            (Self::RuleCheck(Schedule { rule: Some(kind), .. }), Input::Parked(stood)) => parked(kind, stood),
            (Self::RuleCheck(schedule @ Schedule { rule: None, .. }), Input::Decide) => {
                (Outcome::RuleNone, Self::HandlerCheck(schedule))
            }
            (Self::HandlerCheck(_), Input::Handler(Some(retry))) => {
                (Outcome::HandlerKnown, Self::LockClaim(retry.within(policy)))
            }
            (Self::HandlerCheck(_), Input::Handler(None)) => (Outcome::HandlerUnknown, Self::Defer),
            (Self::Defer, Input::Deferred) => (Outcome::Deferred, Self::End(Answer::Acknowledge)),
            (Self::LockClaim(retry), Input::Claimed(Some(claimed))) => lock_claim(claimed, retry, policy),
            (Self::LockClaim(_), Input::Claimed(None)) => (Outcome::LockClaimFailed, Self::Queue(When::Soon)),
            // The event is woken when a place is free.
            (Self::LockClaim(_), Input::Limited(None)) => {
                (Outcome::LimitFull, Self::End(Answer::Acknowledge))
            }
            (Self::LockClaim(_), Input::Limited(Some(left))) => (Outcome::LimitRate, wait(left, policy)),
            (Self::Process(running), Input::Ran(ran)) => processed(running, ran),
            (Self::Pause(running), Input::HandlerPaused(true)) => {
                (Outcome::HandlerPaused, Self::Release(running.claim))
            }
            (Self::Pause(running), Input::HandlerPaused(false)) => {
                (Outcome::Exception, Self::RetryCheck(running, None))
            }
            (Self::RetryCheck(running, after), Input::RetrySaved(saved)) if running.may_retry(after) => {
                saved_until(running.delay(after), saved, Outcome::RetryAllowed, policy)
            }
            (Self::RetryCheck(running, after), Input::Decide) if !running.may_retry(after) => {
                if running.has_retry() { expired(running.claim) } else { retried_enough(running.claim) }
            }
            (Self::Postpone(running, delay), Input::RetrySaved(saved)) if running.may_postpone(delay) => {
                saved_until(running.postponed(delay), saved, Outcome::Postponed, policy)
            }
            (Self::Postpone(running, delay), Input::Decide) if !running.may_postpone(delay) => {
                expired(running.claim)
            }
            (Self::Release(_), Input::Released) => (Outcome::Released, Self::End(Answer::PutBack)),
            (Self::Delete(..), Input::Removed(true)) => (Outcome::Deleted, Self::End(Answer::Acknowledge)),
            (Self::Delete(..), Input::Removed(false)) => (Outcome::FencedOut, Self::End(Answer::PutBack)),
            (Self::Delete(..), Input::LinkRemoved) => (Outcome::Deleted, Self::HandOver),
            (Self::HandOver, Input::HandedOver) => (Outcome::HandedOver, Self::End(Answer::Acknowledge)),
            (state, input) => return Err(UnexpectedInput { state, input }),
        };
        Ok(Transition { outcome, next })
    }

    /// The state's name in the chart.
    pub fn name(&self) -> &'static str {
        match self {
            Self::EventLoad => "EventLoad",
            Self::LaneCheck { .. } => "LaneCheck",
            Self::FacetCheck { .. } => "FacetCheck",
            Self::DelayCheck(_) => "DelayCheck",
            Self::LockCheck(_) => "LockCheck",
            Self::RuleCheck(_) => "RuleCheck",
            Self::HandlerCheck(_) => "HandlerCheck",
            Self::Defer => "Defer",
            Self::LockClaim(_) => "LockClaim",
            Self::Process(_) => "Process",
            Self::Pause(_) => "Pause",
            Self::RetryCheck(..) => "RetryCheck",
            Self::Postpone(..) => "Postpone",
            Self::Release(_) => "Release",
            Self::Delete(..) => "Delete",
            Self::HandOver => "HandOver",
            Self::Queue(_) => "Queue",
            Self::End(_) => "End",
        }
    }
}

/// The check after the load: `DelayCheck` only if it is the event's turn.
fn first_check(schedule: Schedule) -> State {
    match schedule.turn {
        Turn::First => State::DelayCheck(schedule),
        Turn::Behind => State::LaneCheck { is_halted: false },
        Turn::Halted => State::LaneCheck { is_halted: true },
        Turn::Held => State::FacetCheck { is_passed: false },
        Turn::Passed => State::FacetCheck { is_passed: true },
    }
}

pub(super) fn delay_check(schedule: Schedule, policy: &Policy) -> (Outcome, State) {
    match (schedule.delay_until - schedule.now).to_std() {
        Ok(left) if !left.is_zero() => (Outcome::DelayNotYet, wait(left, policy)),
        Ok(_) | Err(_) => (Outcome::DelayNone, State::LockCheck(schedule)),
    }
}

pub(super) fn lock_check(schedule: Schedule, policy: &Policy) -> (Outcome, State) {
    let Some(locked_at) = schedule.locked_at else {
        return (Outcome::LockNone, State::RuleCheck(schedule));
    };
    match (locked_at + policy.lease - schedule.now).to_std() {
        // A claim from the future (the clock was set back) is checked again after one lease.
        Ok(left) => (Outcome::IsLocked, State::Queue(When::In(left.min(policy.lease)))),
        Err(_) => (Outcome::LockExpired, State::RuleCheck(schedule)),
    }
}

/// Keeps the notification for this long; beyond the horizon, waking is left to the row's promise.
fn wait(left: Duration, policy: &Policy) -> State {
    if left <= policy.horizon { State::Queue(When::In(left)) } else { State::End(Answer::Acknowledge) }
}

fn parked(kind: RuleKind, stood: bool) -> (Outcome, State) {
    match (kind, stood) {
        (RuleKind::Pause, true) => (Outcome::RulePaused, State::End(Answer::Acknowledge)),
        (RuleKind::Block, true) => (Outcome::RuleBlocked, State::End(Answer::Acknowledge)),
        (RuleKind::Pause | RuleKind::Block, false) => (Outcome::RuleLifted, State::Queue(When::Soon)),
    }
}

fn lock_claim(claimed: Claimed, policy: RetryPolicy, limits: &Policy) -> (Outcome, State) {
    let Claimed { claim, retries, losses, postponed, is_cancelled, asked } = claimed;
    if is_cancelled {
        (Outcome::Cancelled, State::Delete(claim, Removal::Cancelled))
    } else if losses >= limits.losses_max {
        (Outcome::Poison, State::Delete(claim, Removal::Dead(Cause::Poison)))
    } else if asked.left == Some(Duration::ZERO) {
        expired(claim)
    } else {
        let (policy, left, longest) = (policy.for_event(asked), asked.left, limits.retry_delay_max);
        (Outcome::LockClaimed, State::Process(Running { claim, retries, postponed, policy, left, longest }))
    }
}

fn expired(claim: Claim) -> (Outcome, State) {
    (Outcome::Expired, State::Delete(claim, Removal::Dead(Cause::Expired)))
}

fn retried_enough(claim: Claim) -> (Outcome, State) {
    (Outcome::RetryTooMany, State::Delete(claim, Removal::Dead(Cause::Retries)))
}

fn processed(running: Running, ran: HandlerEnd) -> (Outcome, State) {
    match ran {
        HandlerEnd::Completed => {
            (Outcome::ExecutesToCompletion, State::Delete(running.claim, Removal::Completed))
        }
        HandlerEnd::Committed => {
            (Outcome::ExecutesToCompletion, State::Delete(running.claim, Removal::Committed))
        }
        HandlerEnd::Rejected => {
            (Outcome::Rejected, State::Delete(running.claim, Removal::Dead(Cause::Rejected)))
        }
        HandlerEnd::Failed(after) => (Outcome::Exception, State::RetryCheck(running, after)),
        HandlerEnd::NotYet(delay) => (Outcome::NotYet, State::Postpone(running, delay)),
        HandlerEnd::Gone => (Outcome::HandlerGone, State::Pause(running)),
        HandlerEnd::LeaseLost => (Outcome::LeaseLost, State::End(Answer::PutBack)),
        HandlerEnd::ShutDown => (Outcome::ShutDown, State::Release(running.claim)),
        HandlerEnd::Cancelled => (Outcome::Cancelled, State::Delete(running.claim, Removal::Cancelled)),
    }
}

fn saved_until(delay: Duration, saved: bool, outcome: Outcome, policy: &Policy) -> (Outcome, State) {
    if saved { (outcome, wait(delay, policy)) } else { (Outcome::Exception, State::Queue(When::Soon)) }
}
