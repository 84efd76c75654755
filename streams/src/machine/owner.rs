//! The owner of an inbox: what it does next, given the answers to what it did before.
//!
//! A look into the inbox opens the position, loads the entities, and reads page after page. Each
//! page is processed batch by batch; between batches it is the turn of the isolated entities. The
//! driver performs [`OwnerState::effect`] and passes the answer to [`OwnerState::step`], until the
//! effect is to wait, to retry later or to end.
//!
//! Time is how long ago the owner began. The events themselves stay with the driver: of a page this
//! knows how far it goes, and of a batch how many events it has.

mod attempt;
mod batch;
mod caution;
mod effect;
mod failures;
mod inbox;
mod input;
mod isolation;
mod phase;

use std::time::Duration;

use super::{FencedPosition, Narrowing};
use crate::event::IsolatedEntity;
use caution::Caution;
pub(crate) use caution::failure_after_losses;
pub(crate) use effect::{OwnerEffect, OwnerEnd};
use failures::Failures;
use inbox::Inbox;
pub(crate) use input::{AttemptEnd, FirstEvent, OwnerFailure, OwnerInput, WorkEnd};
use isolation::Isolation;
pub(crate) use phase::OwnerPhase;
use phase::{AttemptPhase, Attempted, BatchPhase, Next, PageState};

/// The limits and periods of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerLimits {
    /// Most events of a page, and of a batch.
    pub(crate) batch: usize,
    /// Most bytes of a page.
    pub(crate) batch_bytes: usize,
    /// How often the position follows what was read and was not for this type.
    pub(crate) poll_interval: Duration,
    /// How long the rest of the type has precedence over an entity that was isolated.
    pub(crate) stall: Duration,
}

/// The state of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerState {
    limits: OwnerLimits,
    phase: OwnerPhase,
    inbox: Inbox,
    caution: Caution,
    failures: Failures,
    isolation: Isolation,
}

/// An owner was passed an answer to a question that it did not ask: a bug in the driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{phase:?} did not ask for {input:?}")]
pub(crate) struct UnexpectedOwnerInput {
    /// The phase, unchanged.
    pub(crate) phase: Box<OwnerPhase>,
    /// The answer.
    pub(crate) input: Box<OwnerInput>,
}

impl OwnerState {
    /// The state of an owner that begins.
    pub(crate) fn new(limits: OwnerLimits) -> Self {
        Self {
            limits,
            phase: OwnerPhase::Wait { held: false },
            inbox: Inbox::new(),
            caution: Caution::new(limits.batch),
            failures: Failures::new(),
            isolation: Isolation::new(),
        }
    }

    /// The position of the inbox.
    pub(crate) fn position(&self) -> FencedPosition {
        self.inbox.position()
    }

    /// By how much limits are divided, because the database took too long.
    pub(crate) fn narrowing(&self) -> Narrowing {
        self.failures.narrowing()
    }

    /// The isolated entities; the first one is tried next.
    pub(crate) fn isolated(&self) -> &[IsolatedEntity] {
        self.isolation.entities()
    }

    /// The event of the first isolated entity that must not be stored, and why.
    pub(crate) fn isolated_failure(&self) -> Option<&(i64, String)> {
        self.isolation.failure()
    }

    /// How far it is, without what is only counted: the position, whether an attempt is under way,
    /// and whether none, one or more entities are isolated.
    #[cfg(test)]
    pub(crate) fn place(&self) -> (OwnerPhase, FencedPosition, bool, usize) {
        let isolated = self.isolated().len().min(2);
        (self.phase.clone(), self.position(), self.isolation.is_trying(), isolated)
    }

    /// What has to be done next.
    pub(crate) fn effect(&self) -> OwnerEffect {
        match &self.phase {
            OwnerPhase::Wait { held } => OwnerEffect::Wait { held: *held },
            OwnerPhase::Retry => OwnerEffect::Retry,
            OwnerPhase::LookAgain => OwnerEffect::LookAgain,
            OwnerPhase::Open => OwnerEffect::Open,
            OwnerPhase::ReadIsolated { at } => OwnerEffect::ReadIsolated { at: *at },
            OwnerPhase::Load => OwnerEffect::Load,
            OwnerPhase::Read => OwnerEffect::Read {
                after: self.inbox.read_through(),
                events: self.narrowing().part_of(self.limits.batch),
                bytes: self.narrowing().part_of(self.limits.batch_bytes),
            },
            OwnerPhase::Batch(_, batch) => self.batch_effect(batch),
            OwnerPhase::PassOver(page) => OwnerEffect::Move { to: page.through },
            OwnerPhase::CatchUp(_) => OwnerEffect::Move { to: self.inbox.read_through() },
            OwnerPhase::Attempt(attempt, _) => self.attempt_effect(*attempt),
            OwnerPhase::Uncount(Attempted::Single { seq }, _) => OwnerEffect::UncountAttempt { seq: *seq },
            OwnerPhase::Uncount(Attempted::Isolated, _) => OwnerEffect::UncountIsolated,
            OwnerPhase::CheckEpoch { .. } => OwnerEffect::CheckEpoch,
            OwnerPhase::End(end) => OwnerEffect::End(end.clone()),
        }
    }

    /// Advances with the answer to [`OwnerState::effect`].
    pub(crate) fn step(&mut self, input: OwnerInput, now: Duration) -> Result<(), UnexpectedOwnerInput> {
        let next = match (self.phase.clone(), input) {
            (OwnerPhase::Wait { .. } | OwnerPhase::Retry, OwnerInput::Woken { is_due }) => {
                Ok(if is_due && self.position().known().is_some() {
                    OwnerPhase::LookAgain
                } else {
                    self.begin()
                })
            }
            (OwnerPhase::LookAgain, OwnerInput::Seen(at)) => {
                if at != self.position().known() {
                    self.inbox.doubt();
                }
                Ok(self.begin())
            }
            (OwnerPhase::LookAgain, OwnerInput::NotSeen) => Ok(self.begin()),
            (OwnerPhase::Open, OwnerInput::Opened { at, was_lost }) => {
                self.caution.open(was_lost);
                Ok(OwnerPhase::ReadIsolated { at })
            }
            (OwnerPhase::ReadIsolated { at }, OwnerInput::IsolatedRead(entities)) => {
                self.inbox.open(at);
                self.isolation.open(entities);
                Ok(OwnerPhase::Load)
            }
            (OwnerPhase::Load, OwnerInput::Loaded) => Ok(OwnerPhase::Read),
            (OwnerPhase::Read, OwnerInput::Read { through, more, held }) => {
                self.caution.read(through);
                Ok(OwnerPhase::Batch(PageState { through, more, held, passes: false }, BatchPhase::Choose))
            }
            (OwnerPhase::PassOver(page), OwnerInput::Moved) => {
                self.inbox.read(page.through);
                self.inbox.move_to(page.through);
                Ok(self.catch_up(page, now))
            }
            (OwnerPhase::CatchUp(page), OwnerInput::Moved) => {
                self.inbox.move_to(self.inbox.read_through());
                Ok(self.end_page(page, now))
            }
            (OwnerPhase::Uncount(_, failure), OwnerInput::Uncounted) => Ok(self.judge(failure)),
            (OwnerPhase::CheckEpoch { is_fatal }, OwnerInput::Epoch { is_own }) => {
                Ok(checked_epoch(is_fatal, is_own))
            }
            (phase, OwnerInput::Failed(failure)) => self.fail(&phase, failure),
            (OwnerPhase::Batch(page, batch), input) => self.step_batch(page, batch, input, now),
            (OwnerPhase::Attempt(attempt, next), input) => self.step_attempt(attempt, next, input, now),
            (_, input) => Err(input),
        };
        match next {
            Ok(phase) => {
                self.phase = phase;
                Ok(())
            }
            Err(input) => {
                let phase = Box::new(self.phase.clone());
                Err(UnexpectedOwnerInput { phase, input: Box::new(input) })
            }
        }
    }

    /// The first phase of a look.
    fn begin(&self) -> OwnerPhase {
        if self.position().known().is_some() { OwnerPhase::Load } else { OwnerPhase::Open }
    }

    /// The phase after the last batch of a page. A page with events of isolated entities is read
    /// only once the position has passed them: until then an entity that is taken back needs them
    /// to be read again.
    fn pass_over(&mut self, page: PageState, now: Duration) -> OwnerPhase {
        if page.passes && self.inbox.is_behind(page.through) {
            return OwnerPhase::PassOver(page);
        }
        self.inbox.read(page.through);
        self.catch_up(page, now)
    }

    fn catch_up(&mut self, page: PageState, now: Duration) -> OwnerPhase {
        if self.inbox.catches_up(now, self.limits.poll_interval) {
            return OwnerPhase::CatchUp(page);
        }
        self.end_page(page, now)
    }

    fn end_page(&mut self, page: PageState, now: Duration) -> OwnerPhase {
        self.failures.end_page();
        self.advance_isolated(Next::AfterPage(page), now)
    }

    /// The phase after the turn of the isolated entities. Nothing is processed at a position that
    /// is in doubt.
    fn after(&mut self, next: Next) -> OwnerPhase {
        if self.position().known().is_none() && !next.is_idle() {
            return OwnerPhase::Open;
        }
        match next {
            Next::InPage(page) => OwnerPhase::Batch(page, BatchPhase::Choose),
            Next::AfterPage(PageState { more: true, .. }) => OwnerPhase::Read,
            Next::AfterPage(PageState { more: false, held, .. }) => {
                self.failures.end_look();
                OwnerPhase::Wait { held }
            }
        }
    }

    /// The phase after a failure. If that was during an attempt, the attempt does not count.
    fn fail(&mut self, phase: &OwnerPhase, failure: OwnerFailure) -> Result<OwnerPhase, OwnerInput> {
        if let OwnerPhase::End(_) = phase {
            return Err(OwnerInput::Failed(failure));
        }
        if let OwnerPhase::CheckEpoch { is_fatal: true } = phase {
            return Ok(OwnerPhase::End(OwnerEnd::Fatal));
        }
        match &failure {
            OwnerFailure::Elsewhere => self.inbox.doubt(),
            OwnerFailure::TimedOut | OwnerFailure::Refused(_) | OwnerFailure::Unavailable => {
                if phase.is_commit() {
                    self.inbox.lose_answer();
                }
            }
            OwnerFailure::Fenced | OwnerFailure::Withdrawn | OwnerFailure::Fatal => {}
        }
        if let OwnerPhase::Attempt(AttemptPhase::Outcome, _) = phase {
            self.isolation.end_attempt();
        }
        Ok(match phase.attempted() {
            Some(attempted) => OwnerPhase::Uncount(attempted, failure),
            None => self.judge(failure),
        })
    }

    /// What a failure leads to.
    fn judge(&mut self, failure: OwnerFailure) -> OwnerPhase {
        match failure {
            OwnerFailure::Unavailable => OwnerPhase::Retry,
            OwnerFailure::TimedOut => match self.failures.time_out() {
                Some(times) => OwnerPhase::End(OwnerEnd::TimedOut { times }),
                None => OwnerPhase::Retry,
            },
            OwnerFailure::Refused(why) => match self.failures.refuse(&why) {
                Some(times) => OwnerPhase::End(OwnerEnd::Refused { why, times }),
                None => OwnerPhase::Retry,
            },
            OwnerFailure::Elsewhere => OwnerPhase::CheckEpoch { is_fatal: false },
            // A new owner may be erasing what this one reads: an inconsistency then is not a
            // defect.
            OwnerFailure::Fatal => OwnerPhase::CheckEpoch { is_fatal: true },
            OwnerFailure::Fenced => OwnerPhase::End(OwnerEnd::Fenced),
            OwnerFailure::Withdrawn => OwnerPhase::End(OwnerEnd::Withdrawn),
        }
    }
}

fn checked_epoch(is_fatal: bool, is_own: bool) -> OwnerPhase {
    match (is_own, is_fatal) {
        (false, _) => OwnerPhase::End(OwnerEnd::Fenced),
        // The position was moved from outside, or the answer to an earlier move was lost: it is
        // opened again.
        (true, false) => OwnerPhase::Retry,
        (true, true) => OwnerPhase::End(OwnerEnd::Fatal),
    }
}
