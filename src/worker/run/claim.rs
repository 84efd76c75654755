//! The claim of a run: what it takes before, and the event that it holds then.
//!
//! What a run can't have at once it does not wait for: the round ends, and says what it needs.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::stage::{Candidate, HeldEvent, Stage};
use super::{NextStage, Run, claimed, place_of, target_of};
use crate::machine::{Input, When};
use crate::store::ClaimedEvent;
use crate::worker::finished::RunEnd;
use crate::worker::permits::{PermitKind, Shortage};
use crate::worker::places::PlaceRequest;
use crate::worker::statements::SoloClaim;
use crate::worker::subject::Subject;

impl Run<'_> {
    pub(super) async fn claim(&mut self, candidate: Candidate) -> NextStage {
        let held = self.claim_with_permits(&candidate).await;
        match held {
            Ok(Some(held)) => claimed(held.ready(candidate.handler)),
            Ok(None) => (Stage::Candidate(candidate), Ok(Input::Claimed(None))),
            Err(end) => (Stage::Candidate(candidate), Err(end)),
        }
    }

    async fn claim_with_permits(&mut self, candidate: &Candidate) -> Result<Option<HeldEvent>, RunEnd> {
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
        if !self.permits.try_take_place(&self.runner.places, &request) {
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
            None => statements.claim(notification, key, alone).await,
        };
        let event = claimed.map_err(RunEnd::Failed)?;
        Ok(event.map(|event| self.hold(event, sent)))
    }

    fn acquire(&mut self, kind: PermitKind, semaphore: &Arc<Semaphore>, count: u32) -> Result<(), RunEnd> {
        if self.permits.try_acquire(kind, semaphore, count) {
            Ok(())
        } else {
            Err(RunEnd::NeedsRoom(Shortage::Permits(kind, Arc::clone(semaphore), count)))
        }
    }

    pub(super) fn hold(&self, event: ClaimedEvent, sent: Instant) -> HeldEvent {
        let subject = Arc::new(Subject::of(&event));
        let held_claim = self.runner.leases.hold(event.claim, sent, Arc::clone(&subject));
        HeldEvent { subject, held_claim, event: Box::new(event) }
    }
}
