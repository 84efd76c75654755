//! The state of a round of a run: a struct for each part of the machine, with the fields that exist
//! at that point and no others. Never does I/O, never decides.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::event::{CanvasId, EndedOutcome, HandlerAddress, HeldLimit, Lane, Name, Notification};
use crate::machine::{Claimed, Effect, EventPolicy};
use crate::store::{AttemptEnd, BatchKey, ClaimedEvent, LoadedEvent};
use crate::worker::handlers::{Handler, canvas_key};
use crate::worker::leases::HeldClaim;
use crate::worker::subject::{CopyTurn, Subject};

/// How far a round has come. A claim is renewed for as long as a stage has it.
///
/// It is moved often, between futures as well, so its large fields are boxed.
pub(super) enum Stage {
    /// `EventLoad`: only the notification is known. A missing row adds nothing to that.
    Arrival,
    /// The checks and `Defer`: the row was read, and no claim made.
    Row(Box<LoadedRow>),
    /// `LockClaim`: the row can be claimed.
    Candidate(Candidate),
    /// The checks, if the event was claimed before the machine asked.
    EarlyClaim(HeldEvent),
    /// `Process`, `Delete` of a poison event, and `LockClaim` after an early claim.
    ReadyEvent(ReadyEvent),
    /// `Pause`, `RetryCheck`, `Postpone`, `Release`, `Delete`: the handler has ended.
    Attempt(Attempt),
    /// `HandOver`: the event was removed from a lane.
    HandOver(Box<HandOver>),
    /// After the last write, whatever its result.
    Ending(Ending),
}

/// The result of the load.
pub(super) struct LoadedRow {
    pub(super) address: HandlerAddress,
    /// The registered queue, if the event is a copy.
    pub(super) queue: Option<Name>,
    /// The queue is pulled: no function or target of this worker may run the copy.
    pub(super) is_pulled: bool,
    /// The event's losses, including the one that a claim would count.
    pub(super) losses: u32,
    /// The size of its value in bytes.
    pub(super) value_bytes: i32,
    /// Only a claim through limits can be made on it.
    pub(super) is_limited: bool,
}

impl LoadedRow {
    pub(super) fn of(event: LoadedEvent) -> Box<Self> {
        let losses = u32::try_from(event.losses).unwrap_or(0) + u32::from(event.schedule.locked_at.is_some());
        Box::new(Self {
            address: event.address,
            queue: event.copy_of.map(|copy| copy.queue),
            is_pulled: event.pulled,
            losses,
            value_bytes: event.value_bytes,
            is_limited: event.is_limited,
        })
    }
}

/// A row whose handler is known here.
pub(super) struct Candidate {
    pub(super) row: Box<LoadedRow>,
    pub(super) handler: Arc<Handler>,
}

/// A claimed event.
pub(super) struct HeldEvent {
    pub(super) subject: Arc<Subject>,
    pub(super) held_claim: HeldClaim,
    pub(super) event: Box<ClaimedEvent>,
}

/// A claimed event whose handler is known and has not started.
pub(super) struct ReadyEvent {
    pub(super) owner: Owner,
    pub(super) event: Box<ClaimedEvent>,
}

/// A handler that has ended, and the claim under which it ran.
pub(super) struct Attempt {
    pub(super) owner: Owner,
    pub(super) report: AttemptReport,
}

/// A removal from a lane, in which the next event has to be found.
pub(super) struct HandOver {
    pub(super) lane: Lane,
    pub(super) ending: Ending,
}

/// The rest of an event that this run no longer has.
pub(super) struct Ending {
    subject: Arc<Subject>,
    /// `None` if no handler was started.
    attempt: Option<AttemptReport>,
    /// `None` unless this run removed the event from a lane, or tried to.
    look: Option<LaneLook>,
}

/// The data that the last writes of a claimed event need.
pub(super) struct Owner {
    pub(super) subject: Arc<Subject>,
    pub(super) held_claim: HeldClaim,
    pub(super) handler: Arc<Handler>,
}

impl Owner {
    /// How the event's history ends, where this is the last attempt at it. A copy is not kept.
    pub(super) fn end(&self, report: Option<&AttemptReport>, outcome: EndedOutcome) -> AttemptEnd {
        let asked = self.subject.keep.unwrap_or(self.handler.keep);
        let keep = if self.subject.copy.is_some() { Duration::ZERO } else { asked.time(outcome) };
        if keep.is_zero() {
            return AttemptEnd::default();
        }
        AttemptEnd {
            took: report.map(|report| report.took),
            keep,
            error: report.and_then(|report| report.error.clone()),
            result: report.and_then(|report| report.result.as_deref()).map(ToOwned::to_owned),
        }
    }
}

/// How an attempt ended.
pub(super) struct AttemptReport {
    /// Counted from 1.
    pub(super) number: u32,
    /// How long the event had been due when it was claimed.
    pub(super) waited: Duration,
    pub(super) took: Duration,
    pub(super) error: Option<String>,
    /// What went wrong, as one word for metrics.
    pub(super) fault: Option<&'static str>,
    /// What the handler returned, as JSON.
    pub(super) result: Option<Box<str>>,
}

/// A look for the first event of a lane.
pub(super) struct LaneLook {
    /// `None` if the lane is empty, or there was no answer.
    pub(super) next: Option<Notification>,
    /// Until when this run may look for the events that have their turn after it.
    pub(super) end: Instant,
}

/// The report's data about a round. Each part is there if the round has come that far.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) address: Option<HandlerAddress>,
    pub(super) queue: Option<Name>,
    pub(super) turn: Option<Notification>,
    pub(super) attempt: Option<AttemptReport>,
    pub(super) next: Option<Notification>,
}

/// The machine asked for something that is impossible at a stage: a bug in wakeq.
#[derive(Debug, thiserror::Error)]
#[error("{effect:?} is impossible at the stage {stage}")]
pub(super) struct UnexpectedEffect {
    pub(super) stage: &'static str,
    pub(super) effect: Effect,
}

impl Stage {
    /// The event that was claimed, if any.
    fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Arrival | Self::Row(_) | Self::Candidate(_) => None,
            Self::EarlyClaim(held) => Some(&held.subject),
            Self::ReadyEvent(ready) => Some(&ready.owner.subject),
            Self::Attempt(attempt) => Some(&attempt.owner.subject),
            Self::HandOver(hand_over) => Some(&hand_over.ending.subject),
            Self::Ending(ending) => Some(&ending.subject),
        }
    }

    /// The copy whose turn was taken, if any.
    pub(super) fn copy(&self) -> Option<&CopyTurn> {
        self.subject()?.copy.as_ref()
    }

    /// The limits whose places the event had, if any, and its canvas.
    pub(super) fn held_limits(&self) -> Option<(CanvasId, &[HeldLimit])> {
        let subject = self.subject()?;
        let held = subject.held.as_deref().filter(|held| !held.is_empty())?;
        Some((subject.address.scope.canvas, held))
    }

    /// Whether the event has limits and was not claimed.
    pub(super) fn waits_at_limits(&self) -> bool {
        match self {
            Self::Row(row) | Self::Candidate(Candidate { row, .. }) => row.is_limited,
            Self::Arrival
            | Self::EarlyClaim(_)
            | Self::ReadyEvent(_)
            | Self::Attempt(_)
            | Self::HandOver(_)
            | Self::Ending(_) => false,
        }
    }

    /// Until when the run may look for further events, if it has begun to.
    pub(super) fn looks_end(&self) -> Option<Instant> {
        let Self::Ending(ending) = self else { return None };
        ending.look.as_ref().map(|look| look.end)
    }

    /// The report's data about a round that ended here. Gives up the claim, if there is one.
    pub(super) fn summary(self) -> Summary {
        match self {
            Self::Arrival => Summary::default(),
            Self::Row(row) | Self::Candidate(Candidate { row, handler: _ }) => row.summary(),
            Self::EarlyClaim(held) => Ending::of(held.subject, None).summary(),
            Self::ReadyEvent(ready) => ready.into_ending().summary(),
            Self::Attempt(attempt) => attempt.into_ending().summary(),
            Self::HandOver(hand_over) => hand_over.ending.summary(),
            Self::Ending(ending) => ending.summary(),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Arrival => "Arrival",
            Self::Row(_) => "Row",
            Self::Candidate(_) => "Candidate",
            Self::EarlyClaim(_) => "EarlyClaim",
            Self::ReadyEvent(_) => "ReadyEvent",
            Self::Attempt(_) => "Attempt",
            Self::HandOver(_) => "HandOver",
            Self::Ending(_) => "Ending",
        }
    }
}

impl LoadedRow {
    /// The stage after the look for the handler.
    pub(super) fn with(self: Box<Self>, handler: Option<Arc<Handler>>) -> Stage {
        match handler {
            Some(handler) => Stage::Candidate(Candidate { row: self, handler }),
            None => Stage::Row(self),
        }
    }

    fn summary(self) -> Summary {
        Summary { address: Some(self.address), queue: self.queue, ..Summary::default() }
    }
}

impl Candidate {
    /// The key that the claim needs for a handler that is not registered in this worker.
    pub(super) fn key_of_target(&self) -> Option<String> {
        self.handler.revision?;
        Some(canvas_key(&self.row.address))
    }
}

impl HeldEvent {
    /// The stage after the look for the handler.
    pub(super) fn with(self, handler: Option<Arc<Handler>>) -> Stage {
        match handler {
            Some(handler) => Stage::ReadyEvent(self.ready(handler)),
            None => Stage::EarlyClaim(self),
        }
    }

    pub(super) fn ready(self, handler: Arc<Handler>) -> ReadyEvent {
        let Self { subject, held_claim, event } = self;
        ReadyEvent { owner: Owner { subject, held_claim, handler }, event }
    }
}

impl ReadyEvent {
    /// The claim, as far as the machine has to know it.
    pub(super) fn claimed(&self) -> Claimed {
        Claimed {
            claim: self.event.claim,
            retries: u32::try_from(self.event.retries).unwrap_or(0),
            losses: u32::try_from(self.event.losses).unwrap_or(0),
            postponed: self.postponed(),
            is_cancelled: self.event.is_cancelled,
            asked: self.asked(),
        }
    }

    /// What its emit asked for, as far as this attempt needs it.
    fn asked(&self) -> EventPolicy {
        let retries = u32::try_from(self.event.retries).unwrap_or(0);
        EventPolicy::of(self.event.options.as_deref(), retries, self.event.locked_at)
    }

    /// For how long the event has been postponed already.
    pub(super) fn postponed(&self) -> Duration {
        let ClaimedEvent { locked_at, postponed_since, .. } = *self.event;
        postponed_since.and_then(|since| (locked_at - since).to_std().ok()).unwrap_or_default()
    }

    /// How long the event had been due when it was claimed.
    pub(super) fn waited(&self) -> Duration {
        (self.event.locked_at - self.event.delay_until).to_std().unwrap_or_default()
    }

    /// Gives up the claim.
    pub(super) fn into_ending(self) -> Ending {
        Ending::of(self.owner.subject, None)
    }
}

impl Attempt {
    /// Gives up the claim, as if its handler had not been asked for.
    pub(super) fn into_unstarted(self) -> Ending {
        Ending::of(self.owner.subject, None)
    }

    /// Gives up the claim.
    pub(super) fn into_ending(self) -> Ending {
        Ending::of(self.owner.subject, Some(self.report))
    }
}

impl Ending {
    fn of(subject: Arc<Subject>, attempt: Option<AttemptReport>) -> Self {
        Self { subject, attempt, look: None }
    }

    /// The lane that the event was in, if it was on an object.
    pub(super) fn lane(&self) -> Option<Lane> {
        let Subject { address, place, .. } = self.subject.as_ref();
        let queue = self.subject.queue().cloned();
        place.as_ref().map(|place| Lane { scope: address.scope.clone(), object: place.object.clone(), queue })
    }

    /// The batch that the event was a member of.
    pub(super) fn batch(&self) -> Option<BatchKey> {
        let Subject { address, batch, .. } = self.subject.as_ref();
        batch.clone().map(|name| (address.scope.canvas, name))
    }

    pub(super) fn after(self, look: LaneLook) -> Self {
        Self { look: Some(look), ..self }
    }

    fn summary(self) -> Summary {
        let Subject { address, copy, .. } = Arc::unwrap_or_clone(self.subject);
        let (queue, turn) = copy.map(|copy| (copy.queue, copy.turn)).unzip();
        let next = self.look.and_then(|look| look.next);
        Summary { address: Some(address), queue, turn, attempt: self.attempt, next }
    }
}
