//! The turn of the isolated entities: what becomes of the attempt at the first one, and when the
//! next one begins. Nothing here waits for an attempt.

use std::time::Duration;

use super::phase::{AttemptPhase, Next, OwnerPhase, PageState};
use super::{AttemptEnd, OwnerEffect, OwnerInput, OwnerState};

impl OwnerState {
    pub(super) fn attempt_effect(&self, attempt: AttemptPhase) -> OwnerEffect {
        match attempt {
            AttemptPhase::Outcome => OwnerEffect::TakeOutcome,
            AttemptPhase::TakeBack => OwnerEffect::TakeBack,
            AttemptPhase::Erase { .. } => OwnerEffect::EraseIsolated,
            AttemptPhase::Commit { through } => OwnerEffect::CommitIsolated { through },
            AttemptPhase::Uncount => OwnerEffect::UncountIsolated,
            AttemptPhase::Start => OwnerEffect::StartAttempt {
                most: self.narrowing().part_of(self.isolation.most(self.limits.batch)),
                bytes: self.narrowing().part_of(self.limits.batch_bytes),
            },
        }
    }

    /// The first phase of the turn. An owner that does not know its position does nothing about
    /// them.
    pub(super) fn advance_isolated(&mut self, next: Next, now: Duration) -> OwnerPhase {
        if self.position().known().is_none() {
            self.after(next)
        } else if self.isolation.is_trying() {
            OwnerPhase::Attempt(AttemptPhase::Outcome, next)
        } else {
            self.try_first(next, now)
        }
    }

    pub(super) fn step_attempt(
        &mut self,
        attempt: AttemptPhase,
        next: Next,
        input: OwnerInput,
        now: Duration,
    ) -> Result<OwnerPhase, OwnerInput> {
        match (attempt, input) {
            (AttemptPhase::Outcome, OwnerInput::Outcome(None)) => {}
            (AttemptPhase::Outcome, OwnerInput::Outcome(Some(end))) => {
                self.isolation.end_attempt();
                if let Some(attempt) = self.ended(end, now) {
                    return Ok(OwnerPhase::Attempt(attempt, next));
                }
            }
            (AttemptPhase::TakeBack, OwnerInput::TakenBack(true)) => {
                self.isolation.take_back();
                // Its events after the position may have been dropped from the page.
                if let Next::InPage(PageState { passes: true, .. }) = next {
                    return Ok(OwnerPhase::Read);
                }
            }
            (AttemptPhase::TakeBack, OwnerInput::TakenBack(false)) => {
                // More was sent meanwhile, or the position was moved.
                self.inbox.doubt();
                self.isolation.begin_anew();
            }
            (AttemptPhase::Erase { seq }, OwnerInput::Erased) => {
                return Ok(OwnerPhase::Attempt(AttemptPhase::Commit { through: seq }, next));
            }
            (AttemptPhase::Commit { through }, OwnerInput::Committed(to)) => {
                self.inbox.commit(to);
                self.isolation.mark_done_through(through);
            }
            (AttemptPhase::Commit { .. }, OwnerInput::IsolatedUnstorable(failure)) => {
                self.isolation.fail(failure);
                return Ok(OwnerPhase::Attempt(AttemptPhase::Uncount, next));
            }
            (AttemptPhase::Uncount, OwnerInput::Uncounted) => {}
            (AttemptPhase::Start, OwnerInput::Started) => self.isolation.start_attempt(),
            (_, input) => return Err(input),
        }
        Ok(self.try_first(next, now))
    }

    /// What has to be done about the outcome of an attempt.
    fn ended(&mut self, end: AttemptEnd, now: Duration) -> Option<AttemptPhase> {
        match end {
            AttemptEnd::Nothing => Some(AttemptPhase::TakeBack),
            AttemptEnd::Processed { through } => Some(AttemptPhase::Commit { through }),
            AttemptEnd::Erasure { seq } => Some(AttemptPhase::Erase { seq }),
            AttemptEnd::TooMuch => {
                self.isolation.halve(self.limits.batch);
                None
            }
            AttemptEnd::Hung { last } => {
                self.isolation.hang(last, now);
                None
            }
        }
    }

    /// Begins the next attempt, if none is under way, and nothing else waits or the rest of the
    /// type has had its time. After a lost owner it must first be found out what has to be
    /// isolated.
    fn try_first(&mut self, next: Next, now: Duration) -> OwnerPhase {
        let Some(at) = self.position().known() else { return self.after(next) };
        let is_wary = at < self.caution.single_through();
        let has_turn = next.is_idle() || self.isolation.is_due(now, self.limits.stall) && !is_wary;
        if has_turn && self.isolation.can_try() {
            return OwnerPhase::Attempt(AttemptPhase::Start, next);
        }
        self.after(next)
    }
}
