//! The claim of a run: what it takes before, and the event that it holds then.
//!
//! What a run can't have at once it does not wait for: the round ends, and says what it needs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::stage::{Candidate, HeldEvent, Stage};
use super::{NextStage, Run, claimed, place_of, target_of};
use crate::event::{HeldLimit, Notification};
use crate::machine::{Input, When};
use crate::store::{ClaimedEvent, LimitedClaim, StoreError};
use crate::worker::finished::RunEnd;
use crate::worker::permits::{PermitKind, Shortage};
use crate::worker::places::PlaceRequest;
use crate::worker::statements::{FreedLimits, LimitedAnswer, SoloClaim};
use crate::worker::subject::Subject;

/// The result of a claim.
enum Claiming {
    Held(HeldEvent),
    /// It failed.
    Failed,
    /// A limit was full, or lets the event start after this long.
    Limited(Option<Duration>),
}

impl Run<'_> {
    pub(super) async fn claim(&mut self, candidate: Candidate) -> NextStage {
        let tried = self.claim_with_permits(&candidate).await;
        match tried {
            Ok(Claiming::Held(held)) => claimed(held.ready(candidate.handler)),
            Ok(Claiming::Failed) => (Stage::Candidate(candidate), Ok(Input::Claimed(None))),
            Ok(Claiming::Limited(wait)) => (Stage::Candidate(candidate), Ok(Input::Limited(wait))),
            Err(end) => (Stage::Candidate(candidate), Err(end)),
        }
    }

    async fn claim_with_permits(&mut self, candidate: &Candidate) -> Result<Claiming, RunEnd> {
        let Candidate { row, handler } = candidate;
        // First, so that an event that waits for its target takes nothing from others.
        if self.runner.busy.is_any()
            && let Some(target) = target_of(handler, &row.address, row.queue.as_ref())
            && let Some(wait) = self.runner.busy.wait(&target, self.notification.id, Instant::now())
        {
            return Err(RunEnd::Wait(When::In(wait)));
        }
        // A suspect may wait long for its turn: it must not hold its handler's permit meanwhile.
        let suspect = row.losses >= self.runner.suspect_losses;
        if suspect {
            self.acquire(PermitKind::Suspect, &self.runner.suspects, 1)?;
        }
        if let Some(limit) = &handler.concurrency {
            self.acquire(PermitKind::Handler, limit, 1)?;
        }
        // Last, so that an event that waits for its handler takes nothing from the canvas's other
        // handlers.
        let request =
            PlaceRequest { address: place_of(&row.address, row.queue.as_ref()), kind: handler.kind() };
        let urgent = self.notification.urgent;
        if !self.permits.try_take_place(&self.runner.places, &request, urgent) {
            return Err(RunEnd::NeedsRoom(Shortage::Place(self.runner.places.clone(), request)));
        }
        // Nothing else is waited for once there is room for the value.
        let large = self.runner.values.permits_for(row.value_bytes);
        if let Some(count) = large {
            self.acquire(PermitKind::Value, &self.runner.values.semaphore, count)?;
        }
        let (notification, alone) = (self.notification, SoloClaim { suspect, large: large.is_some() });
        let sent = Instant::now();
        let key = candidate.key_of_target();
        let statements = &self.runner.statements;
        let claimed = match &row.queue {
            Some(queue) => statements.take_turn(queue, notification.id, alone).await,
            // Boxed, since it is rare, and each run would have room for it.
            None if row.is_limited => return Box::pin(self.claim_limited(key, alone)).await,
            None => statements.claim(notification, key, alone).await,
        };
        let event = claimed.map_err(RunEnd::Failed)?;
        Ok(event.map_or(Claiming::Failed, |event| Claiming::Held(self.hold(event, sent))))
    }

    /// Claims the event through its limits. What it has taken here is given back if they don't let
    /// it start.
    async fn claim_limited(&self, key: Option<String>, alone: SoloClaim) -> Result<Claiming, RunEnd> {
        let sent = Instant::now();
        let answer = self.runner.statements.claim_limited(self.notification, key, alone).await;
        Ok(self.claimed_through_limits(answer.map_err(RunEnd::Failed)?, sent).await)
    }

    /// Claims an event that was woken at a limit through its limits, before it is loaded; `None` if
    /// that fails.
    pub(super) async fn claim_woken(&self) -> Result<Option<HeldEvent>, StoreError> {
        let sent = Instant::now();
        let Some(answer) = self.runner.statements.claim_woken(self.notification).await? else {
            return Ok(None);
        };
        Ok(match self.claimed_through_limits(answer, sent).await {
            Claiming::Held(held) => Some(held),
            Claiming::Failed | Claiming::Limited(_) => None,
        })
    }

    async fn claimed_through_limits(&self, answer: LimitedAnswer, sent: Instant) -> Claiming {
        let LimitedAnswer { claim, room, cancels } = answer;
        // First of all, so that a claim that was made is renewed.
        let claiming = match claim {
            LimitedClaim::Claimed(event) => Claiming::Held(self.hold(event, sent)),
            LimitedClaim::Full(limit) => {
                tracing::debug!(limit, "the limit is full: the event waits for a place");
                Claiming::Limited(None)
            }
            LimitedClaim::Later(left) => Claiming::Limited(Some(left)),
            LimitedClaim::Not => Claiming::Failed,
        };
        if cancels {
            self.runner.waker.tell_cancelled().await;
        }
        if !room.is_empty() {
            self.wake_others_at(&room).await;
        }
        claiming
    }

    /// What follows for limits from a round that is over: what has room is woken, and returned as
    /// far as this worker has its handlers.
    pub(super) async fn leave_limits(&self, stage: &Stage, steps_aside: bool) -> Vec<Notification> {
        if let Some((canvas, held)) = stage.held_limits() {
            let freed = FreedLimits { canvas, held: held.into(), ended: Some(self.notification.id) };
            let next = self.room_in_limits(freed, stage.looks_end()).await;
            self.runner.woken.add(&next);
            return next;
        }
        if steps_aside {
            self.step_aside().await;
        }
        Vec::new()
    }

    /// Gives up the place that is kept for the event if it was woken at a limit: it waits for
    /// something else now, and comes back by itself, in the order of its due time.
    async fn step_aside(&self) {
        match self.runner.statements.steps_aside.call(self.notification.id).await {
            Ok(Some(limit)) => self.wake_others_at(&[limit]).await,
            Ok(None) => {}
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "the place of a limit is kept for an event that can't start");
            }
        }
    }

    /// Wakes those that wait for limits with room, which nobody has done: an event that was woken
    /// waits for another limit now, or whoever held a place has lost it.
    async fn wake_others_at(&self, room: &[HeldLimit]) {
        let freed = FreedLimits { canvas: self.notification.canvas, held: room.into(), ended: None };
        let next = self.room_in_limits(freed, None).await;
        if let Err(error) = self.runner.waker.publish(&next).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the next events at limits wait for their promises");
        }
    }

    fn acquire(&mut self, kind: PermitKind, semaphore: &Arc<Semaphore>, count: u32) -> Result<(), RunEnd> {
        if self.permits.try_acquire(kind, semaphore, count) {
            Ok(())
        } else {
            Err(RunEnd::NeedsRoom(Shortage::Permits(kind, Arc::clone(semaphore), count)))
        }
    }

    pub(super) fn hold(&self, event: Box<ClaimedEvent>, sent: Instant) -> HeldEvent {
        let subject = Arc::new(Subject::of(&event));
        let held_claim = self.runner.leases.hold(event.claim, sent, Arc::clone(&subject));
        HeldEvent { subject, held_claim, event }
    }
}
