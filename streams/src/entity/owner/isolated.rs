//! What an owner does about isolated entities: an event of each hung, or crashed its process, so
//! what is sent to them is processed apart from the rest of the type, in order, one entity at a
//! time. Nothing here decides when, or waits for the author's code.
//!
//! The position of the inbox moves past their events; the row of an entity says up to where they
//! are done.

use std::sync::Arc;

use super::{FAREWELL, Owner, nothing_for};
use crate::entity::attempt::{Attempt, AttemptOutcome, IsolatedBatch};
use crate::entity::batch::batch;
use crate::entity::define::Entity;
use crate::entity::envelope::InboxEvent;
use crate::entity::halt::Halt;
use crate::event::{IsolatedEntity, IsolatedStep};
use crate::machine::{AttemptEnd, OwnerInput};
use crate::store::EntityBatch;

impl<E: Entity> Owner<E> {
    /// Reads from the database what is isolated, now that the position was opened here.
    pub(super) async fn read_isolated(&mut self, at: i64) -> Result<OwnerInput, Halt> {
        self.abort_attempt().await;
        let isolated = self.parts.store.isolated_entities(&self.parts.entity_type).await?;
        self.parts.metrics.isolated(isolated.len());
        self.announce_what_was_done(at, &isolated);
        Ok(OwnerInput::IsolatedRead(isolated))
    }

    /// Isolates the entity of an event with which this many owners were lost. Its events up to
    /// `single_through` are processed one at a time.
    pub(super) async fn isolate(
        &mut self,
        event: &InboxEvent,
        single_through: i64,
        losses: u32,
    ) -> Result<OwnerInput, Halt> {
        let parts = Arc::clone(&self.parts);
        let InboxEvent { canvas, entity, seq, .. } = event;
        let (held, id) = (self.held(&parts), parts.entity_id(*canvas, entity));
        if !parts.store.isolate_entity(&held, &id, single_through, (*seq, losses)).await? {
            return Err(Halt::Elsewhere);
        }
        tracing::warn!(
            entity_type = E::TYPE, %canvas, %entity, event = %event.id, losses,
            "an entity is isolated: its events are processed apart from the others, until the \
             event that hangs or crashes the process has completed or died"
        );
        let isolated =
            IsolatedEntity { canvas: *canvas, id: entity.clone(), after: held.from, single_through };
        self.residency.forget_isolated(&parts, &isolated).await?;
        parts.metrics.isolated(self.state.isolated().len() + 1);
        Ok(OwnerInput::Isolated(isolated))
    }

    pub(super) fn start_attempt(&mut self, most: usize, bytes: usize) -> Result<OwnerInput, Halt> {
        let through = self.state.position().known().ok_or_else(|| nothing_for("StartAttempt"))?;
        let (parts, entity) = (Arc::clone(&self.parts), self.first_isolated()?);
        let failure = self.state.isolated_failure().cloned();
        self.attempts.start(Attempt { parts, epoch: self.epoch, through, entity, most, bytes, failure });
        Ok(OwnerInput::Started)
    }

    pub(super) async fn take_outcome(&mut self) -> Result<OwnerInput, Halt> {
        let end = self.attempts.end().await?;
        if let Some(AttemptEnd::Hung { .. }) = end {
            self.parts.metrics.stalled();
        }
        Ok(OwnerInput::Outcome(end))
    }

    pub(super) async fn take_back(&mut self) -> Result<OwnerInput, Halt> {
        let (parts, IsolatedEntity { canvas, id, .. }) = (Arc::clone(&self.parts), self.first_isolated()?);
        let (held, entity) = (self.held(&parts), parts.entity_id(canvas, &id));
        let is_back = parts.store.take_entity_back(&held, &entity).await?;
        if is_back {
            tracing::info!(
                entity_type = E::TYPE, %canvas, entity = %id,
                "an entity that was isolated is processed with the others again"
            );
            parts.metrics.isolated(self.state.isolated().len().saturating_sub(1));
        }
        Ok(OwnerInput::TakenBack(is_back))
    }

    pub(super) async fn erase_isolated(&mut self) -> Result<OwnerInput, Halt> {
        let Some(AttemptOutcome::Erasure(erasure)) = self.attempts.take_outcome() else {
            return Err(nothing_for("EraseIsolated"));
        };
        let (worked, recorded) = self.carry_out(&erasure).await?;
        self.attempts.put(IsolatedBatch { events: vec![erasure], worked, recorded });
        Ok(OwnerInput::Erased)
    }

    pub(super) async fn commit_isolated(&mut self, through: i64) -> Result<OwnerInput, Halt> {
        let Some(AttemptOutcome::Processed(attempted)) = self.attempts.take_outcome() else {
            return Err(nothing_for("CommitIsolated"));
        };
        let IsolatedBatch { events, worked, recorded } = attempted;
        let (parts, IsolatedEntity { canvas, id, .. }) = (Arc::clone(&self.parts), self.first_isolated()?);
        let held = self.held(&parts);
        let made = batch::<E>(&parts.entity_type, held, &events, worked, recorded.as_ref(), &parts.queue);
        match made {
            Ok(made) => {
                let step = IsolatedStep { canvas, id, after: through };
                self.commit_batch(EntityBatch { isolated: Some(step), ..made }).await?;
                Ok(OwnerInput::Committed(held.to))
            }
            Err(unstorable) => {
                let first = unstorable.into_iter().next();
                let failure = first.and_then(|one| events.get(one.place).map(|event| (event.seq, one.why)));
                Ok(OwnerInput::IsolatedUnstorable(failure))
            }
        }
    }

    /// Aborts the attempt, which then does not count.
    pub(super) async fn abort_attempt(&mut self) {
        if self.attempts.abort() {
            self.uncount_isolated().await;
        }
    }

    pub(super) async fn uncount_isolated(&mut self) {
        let Some(IsolatedEntity { canvas, id, .. }) = self.state.isolated().first() else { return };
        let entity = self.parts.entity_id(*canvas, id);
        let uncounted = self.parts.store.uncount_isolated_attempt(&entity, self.epoch);
        let _ = tokio::time::timeout(FAREWELL, uncounted).await;
    }

    fn first_isolated(&self) -> Result<IsolatedEntity, Halt> {
        self.state.isolated().first().cloned().ok_or_else(|| nothing_for("an isolated entity"))
    }
}
