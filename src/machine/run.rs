//! The run of one notification: states, the questions they ask, the answers they take.
//!
//! Every state asks the world exactly one question ([`State::effect`]) and moves on with the answer ([`State::step`]).
//! The worker's driver performs effects; tests replay answers. State and edge names are those of
//! `docs/state_machine.md`.

use std::time::Duration;

use super::{Outcome, Policy, RetryPolicy};
use crate::event::{Cause, Claim, RuleKind, Schedule, Turn};

/// The shortest delay of an event that is not counted: a handler that asks for less would be asked without a pause.
const POSTPONED_MIN: Duration = Duration::from_millis(100);

/// What a successful claim returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The right to run.
    pub claim: Claim,
    /// Retries so far.
    pub retries: u32,
    /// Claims lost so far, this takeover included.
    pub losses: u32,
}

/// A claimed event on its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// The right to run.
    pub claim: Claim,
    /// Retries before this run.
    pub retries: u32,
    /// The handler's policy.
    pub policy: RetryPolicy,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is known but the id.
    EventLoad,
    /// Is it due, and its turn?
    DelayCheck(Schedule),
    /// Does somebody run it?
    LockCheck(Schedule),
    /// May its handler run?
    RuleCheck(Schedule),
    /// Is its handler here?
    HandlerCheck(Schedule),
    /// It has to wait for a worker with its handler.
    Defer,
    /// Nothing speaks against it: claim it.
    LockClaim(RetryPolicy),
    /// The handler runs.
    Process(Running),
    /// The handler is gone: nothing of it is to be started any more.
    Pause(Running),
    /// The handler failed.
    RetryCheck(Running, Option<Duration>),
    /// The handler said: not yet. It waits that long, and nothing is counted.
    Postpone(Running, Duration),
    /// The handler was cut short by a shutdown, or is paused now.
    Release(Claim),
    /// The event is over.
    Delete(Claim, Removal),
    /// It was on an object: the next event there has its turn.
    HandOver,
    /// The notification comes back.
    Queue(When),
    /// The notification is answered.
    End(Answer),
}

/// How an event ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removal {
    /// It completed.
    Completed,
    /// It goes to the dead events.
    Dead(Cause),
}

/// When a notification comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This long from now; never longer than the horizon, or than a lease.
    In(Duration),
    /// After the subscription's retry delay.
    Soon,
}

/// What the broker is told of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done with: the row is gone, or somebody else has promised to wake it.
    Acknowledge,
    /// Deliver it again.
    PutBack,
}

/// The one thing a state needs done before it can move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read the row, the rule on its handler and the clock, in one snapshot.
    LoadEvent,
    /// Nothing: the state decides by what it holds.
    Decide,
    /// Let those who make room in its facet find the event, which turns have passed over.
    Recall,
    /// Clear the promise on the row, only while the rule still stands.
    Park,
    /// Look the handler up in this worker.
    FindHandler,
    /// Move the promise on the row to when another worker may know the handler.
    Defer,
    /// Compare-and-set on the database's clock, with the delay, lock and rule conditions inside the statement.
    ClaimLock,
    /// Run the handler, renewing the lease.
    RunHandler,
    /// Pause the handler that says it is gone, unless another one has taken its place.
    PauseHandler,
    /// Write down the retries and when it is due, and release the claim, unless it was lost.
    SaveRetry {
        /// The claim that must still stand.
        claim: Claim,
        /// The new count, which is the old one where nothing counts.
        retries: u32,
        /// How long to wait.
        delay: Duration,
    },
    /// Release the claim without counting anything.
    Release(Claim),
    /// Delete the row, or move it to the dead events, unless the claim was lost.
    Remove(Claim, Removal),
    /// Wake the event whose turn it is now, in a statement that begins after the removal was committed.
    HandOver,
    /// Nothing more: keep the notification.
    Wait(When),
    /// Nothing more: answer the notification.
    Answer(Answer),
}

/// What the world answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// To [`Effect::LoadEvent`].
    Loaded(Option<Schedule>),
    /// To [`Effect::Decide`].
    Decide,
    /// To [`Effect::Recall`].
    Recalled,
    /// To [`Effect::Park`]: whether the rule still stood.
    Parked(bool),
    /// To [`Effect::FindHandler`].
    Handler(Option<RetryPolicy>),
    /// To [`Effect::Defer`].
    Deferred,
    /// To [`Effect::ClaimLock`].
    Claimed(Option<Claimed>),
    /// To [`Effect::RunHandler`].
    Ran(Ran),
    /// To [`Effect::PauseHandler`]: whether it was answered.
    HandlerPaused(bool),
    /// To [`Effect::SaveRetry`]: whether the claim still stood; `false` without an answer, too.
    RetrySaved(bool),
    /// To [`Effect::Release`].
    Released,
    /// To [`Effect::Remove`]: whether the claim still stood; `false` without an answer, too.
    Removed(bool),
    /// To [`Effect::Remove`]: the claim stood, and the event was on an object.
    LinkRemoved,
    /// To [`Effect::HandOver`]; without an answer, too: the removal has made the promise of the next event.
    HandedOver,
}

/// How a handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It returned.
    Completed,
    /// An operational error; the handler may say when to try again, within the longest delay of its policy.
    Failed(Option<Duration>),
    /// It is too early for this event: it comes again after so long, within the longest delay of the policy, as if it had
    /// not run.
    NotYet(Duration),
    /// It is gone for good, and wants no more events: that is nothing the event can be blamed for.
    Gone,
    /// The lease ran out under it.
    LeaseLost,
    /// The worker shut down under it.
    ShutDown,
}

/// A step of a run: the edge taken and the state reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The edge's name in the chart.
    pub outcome: Outcome,
    /// The new state.
    pub next: State,
}

/// A state was handed an answer to a question it did not ask: a bug in the driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{state:?} did not ask for {input:?}")]
pub struct UnexpectedInput {
    /// The state, unchanged.
    pub state: State,
    /// The answer.
    pub input: Input,
}

impl State {
    /// The question this state asks.
    pub fn effect(&self) -> Effect {
        match self {
            Self::EventLoad => Effect::LoadEvent,
            Self::DelayCheck(Schedule { turn: Turn::Passed, .. }) => Effect::Recall,
            Self::DelayCheck(_) | Self::LockCheck(_) => Effect::Decide,
            Self::RuleCheck(schedule) if schedule.rule.is_some() => Effect::Park,
            Self::RuleCheck(_) => Effect::Decide,
            Self::HandlerCheck(_) => Effect::FindHandler,
            Self::Defer => Effect::Defer,
            Self::LockClaim(_) => Effect::ClaimLock,
            Self::Process(_) => Effect::RunHandler,
            Self::Pause(_) => Effect::PauseHandler,
            Self::RetryCheck(running, after) if running.may_retry() => running.save_retry(*after),
            Self::RetryCheck(..) => Effect::Decide,
            Self::Postpone(running, delay) => running.save_postponed(*delay),
            Self::Release(claim) => Effect::Release(*claim),
            Self::Delete(claim, removal) => Effect::Remove(*claim, *removal),
            Self::HandOver => Effect::HandOver,
            Self::Queue(when) => Effect::Wait(*when),
            Self::End(answer) => Effect::Answer(*answer),
        }
    }

    /// Moves on with the answer to [`State::effect`].
    #[expect(
        clippy::result_large_err,
        reason = "it hands back what it was given, and a correct driver never sees it"
    )]
    pub fn step(self, input: Input, policy: &Policy) -> Result<Transition, UnexpectedInput> {
        let (outcome, next) = match (self, input) {
            (Self::EventLoad, Input::Loaded(None)) => (Outcome::EventMissing, Self::End(Answer::Acknowledge)),
            (Self::EventLoad, Input::Loaded(Some(schedule))) => {
                (Outcome::EventPresent, Self::DelayCheck(schedule))
            }
            // Room may have been made meanwhile, and nobody found it then.
            (Self::DelayCheck(Schedule { turn: Turn::Passed, .. }), Input::Recalled) => {
                (Outcome::FacetRecalled, Self::Queue(When::Soon))
            }
            (Self::DelayCheck(schedule), Input::Decide) if schedule.turn != Turn::Passed => {
                delay_check(schedule, policy)
            }
            (Self::LockCheck(schedule), Input::Decide) => lock_check(schedule, policy),
            (Self::RuleCheck(Schedule { rule: Some(kind), .. }), Input::Parked(stood)) => parked(kind, stood),
            (Self::RuleCheck(schedule @ Schedule { rule: None, .. }), Input::Decide) => {
                (Outcome::RuleNone, Self::HandlerCheck(schedule))
            }
            (Self::HandlerCheck(_), Input::Handler(Some(retry))) => {
                (Outcome::HandlerKnown, Self::LockClaim(retry))
            }
            (Self::HandlerCheck(_), Input::Handler(None)) => (Outcome::HandlerUnknown, Self::Defer),
            (Self::Defer, Input::Deferred) => (Outcome::Deferred, Self::End(Answer::Acknowledge)),
            (Self::LockClaim(retry), Input::Claimed(Some(claimed))) => lock_claim(claimed, retry, policy),
            (Self::LockClaim(_), Input::Claimed(None)) => (Outcome::LockClaimFailed, Self::Queue(When::Soon)),
            (Self::Process(running), Input::Ran(ran)) => processed(running, ran),
            (Self::Pause(running), Input::HandlerPaused(true)) => {
                (Outcome::HandlerPaused, Self::Release(running.claim))
            }
            (Self::Pause(running), Input::HandlerPaused(false)) => {
                (Outcome::Exception, Self::RetryCheck(running, None))
            }
            (Self::RetryCheck(running, after), Input::RetrySaved(saved)) if running.may_retry() => {
                saved_until(running.delay(after), saved, Outcome::RetryAllowed, policy)
            }
            (Self::RetryCheck(running, _), Input::Decide) if !running.may_retry() => {
                (Outcome::RetryTooMany, Self::Delete(running.claim, Removal::Dead(Cause::Retries)))
            }
            (Self::Postpone(running, delay), Input::RetrySaved(saved)) => {
                saved_until(running.postponed(delay), saved, Outcome::Postponed, policy)
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

    /// The node's name in the chart.
    pub fn name(&self) -> &'static str {
        match self {
            Self::EventLoad => "EventLoad",
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

impl Running {
    fn may_retry(&self) -> bool {
        self.retries < self.policy.retries
    }

    fn delay(&self, after: Option<Duration>) -> Duration {
        let delay = after.unwrap_or_else(|| self.policy.delay_after(self.retries));
        delay.min(self.policy.delay_max)
    }

    fn save_retry(&self, after: Option<Duration>) -> Effect {
        Effect::SaveRetry { claim: self.claim, retries: self.retries + 1, delay: self.delay(after) }
    }

    fn postponed(&self, delay: Duration) -> Duration {
        self.delay(Some(delay.max(POSTPONED_MIN)))
    }

    fn save_postponed(&self, delay: Duration) -> Effect {
        Effect::SaveRetry { claim: self.claim, retries: self.retries, delay: self.postponed(delay) }
    }
}

pub(super) fn delay_check(schedule: Schedule, policy: &Policy) -> (Outcome, State) {
    match schedule.turn {
        Turn::First => {}
        // Whoever removes the earlier one wakes it, or whoever lets the object go on.
        Turn::Behind => return (Outcome::EarlierLeft, State::End(Answer::Acknowledge)),
        Turn::Halted => return (Outcome::ObjectHalted, State::End(Answer::Acknowledge)),
        // Whoever makes room in its facet takes the next of it, or whoever lets its canvas go on.
        Turn::Held | Turn::Passed => return (Outcome::FacetHeld, State::End(Answer::Acknowledge)),
    }
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
        // A claim from the future (the clock was set back) is looked at again after one lease.
        Ok(left) => (Outcome::IsLocked, State::Queue(When::In(left.min(policy.lease)))),
        Err(_) => (Outcome::LockExpired, State::RuleCheck(schedule)),
    }
}

/// Keeps the notification until then, or, beyond the horizon, leaves the waking to the promise on the row.
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
    let Claimed { claim, retries, losses } = claimed;
    if losses >= limits.losses_max {
        (Outcome::Poison, State::Delete(claim, Removal::Dead(Cause::Poison)))
    } else {
        (Outcome::LockClaimed, State::Process(Running { claim, retries, policy }))
    }
}

fn processed(running: Running, ran: Ran) -> (Outcome, State) {
    match ran {
        Ran::Completed => (Outcome::ExecutesToCompletion, State::Delete(running.claim, Removal::Completed)),
        Ran::Failed(after) => (Outcome::Exception, State::RetryCheck(running, after)),
        Ran::NotYet(delay) => (Outcome::NotYet, State::Postpone(running, delay)),
        Ran::Gone => (Outcome::HandlerGone, State::Pause(running)),
        Ran::LeaseLost => (Outcome::LeaseLost, State::End(Answer::PutBack)),
        Ran::ShutDown => (Outcome::ShutDown, State::Release(running.claim)),
    }
}

fn saved_until(delay: Duration, saved: bool, outcome: Outcome, policy: &Policy) -> (Outcome, State) {
    if saved { (outcome, wait(delay, policy)) } else { (Outcome::Exception, State::Queue(When::Soon)) }
}
