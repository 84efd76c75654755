//! What an owner does with its inbox: opens and moves its position, reads pages, and has their
//! batches processed and committed. Nothing here decides what is next.

use std::sync::Arc;
use std::time::Instant;

use super::{FAREWELL, Owner, UnconfirmedCommit, nothing_for};
use crate::entity::batch::batch;
use crate::entity::define::Entity;
use crate::entity::envelope::InboxEvent;
use crate::entity::erase;
use crate::entity::halt::Halt;
use crate::entity::page::Page;
use crate::entity::parts::Parts;
use crate::entity::run::{BatchProgress, FatalError};
use crate::entity::shard::{Shard, WorkOutput};
use crate::event::IsolatedEntity;
use crate::machine::{OwnerInput, WorkEnd, failure_after_losses};
use crate::store::{BatchEnd, ERASED_MAX, EntityBatch, PositionMove, RecordedOutcome};
use wakeq::internals::InsertOutcome;
use wakeq::log::{LogPage, PageLimit};

impl<E: Entity> Owner<E> {
    pub(super) async fn look_again(&mut self) -> OwnerInput {
        let Parts { store, group, source, .. } = &*self.parts;
        match store.position(group, source).await {
            Ok(at) => OwnerInput::Seen(at),
            Err(_) => OwnerInput::NotSeen,
        }
    }

    pub(super) async fn open(&mut self) -> Result<OwnerInput, Halt> {
        let Parts { store, group, source, entity_type, .. } = &*self.parts;
        // From here on the previous owner can no longer commit; what it did commit is read below.
        let at = store.open_position(group, source, self.epoch).await?.ok_or(Halt::Fenced)?;
        if self.residency.is_warm() && at != self.state.position().last() {
            // A commit was carried out whose answer was lost: what is in memory is older.
            self.residency.forget(&self.parts);
        }
        let was_lost = store.own_entities(entity_type, self.epoch).await?;
        if was_lost {
            tracing::warn!(
                entity_type = E::TYPE,
                "the previous owner was lost; the events that it may have been processing are \
                 processed one at a time"
            );
        }
        Ok(OwnerInput::Opened { at, was_lost })
    }

    pub(super) async fn load(&mut self) -> Result<OwnerInput, Halt> {
        if !self.residency.is_warm() {
            let page_bytes = self.page_bytes();
            self.residency.load(&self.parts, self.epoch, page_bytes, self.state.isolated()).await?;
        }
        Ok(OwnerInput::Loaded)
    }

    pub(super) async fn read(
        &mut self,
        after: i64,
        limit: PageLimit,
        page: &mut Page,
    ) -> Result<OwnerInput, Halt> {
        if self.cancel.is_cancelled() {
            return Err(Halt::Withdrawn);
        }
        let read = self.parts.provider.read(&self.parts.source, after, limit).await?;
        let LogPage { events, through, more, held } = read;
        *page = Page::new(events, through);
        Ok(OwnerInput::Read { through, more, held })
    }

    pub(super) async fn erase(&mut self, page: &mut Page) -> Result<OwnerInput, Halt> {
        let erasure = page.batch().first().cloned().ok_or_else(|| nothing_for("Erase"))?;
        let (worked, recorded) = self.carry_out(&erasure).await?;
        page.put_erasure(worked, recorded);
        Ok(OwnerInput::Erased)
    }

    /// Carries out an erasure.
    pub(super) async fn carry_out(
        &mut self,
        erasure: &InboxEvent,
    ) -> Result<(WorkOutput, Option<RecordedOutcome>), Halt> {
        let parts = Arc::clone(&self.parts);
        let (held, most) = (self.held(&parts), self.state.narrowing().part_of(ERASED_MAX));
        erase::carry_out(&parts, &held, erasure, most, &self.cancel).await
    }

    /// Notes that an event is processed on its own.
    pub(super) async fn count_attempt(&mut self, seq: i64) -> Result<OwnerInput, Halt> {
        let Parts { store, entity_type, .. } = &*self.parts;
        let losses = store.suspect_entity_event(entity_type, self.epoch, seq).await?.ok_or(Halt::Fenced)?;
        Ok(OwnerInput::Counted(losses.unsigned_abs()))
    }

    pub(super) async fn uncount_attempt(&mut self, seq: i64) {
        let Parts { store, entity_type, .. } = &*self.parts;
        let uncounted = store.uncount_attempt(entity_type, self.epoch, seq);
        let _ = tokio::time::timeout(FAREWELL, uncounted).await;
    }

    /// Loads the entities of the batch, as far as a page goes, and marks what must not be
    /// processed.
    pub(super) async fn prepare(&mut self, losses: Option<u32>, page: &mut Page) -> Result<OwnerInput, Halt> {
        if losses.is_some() {
            page.cut(1);
        }
        let (parts, page_bytes) = (Arc::clone(&self.parts), self.page_bytes());
        let loaded = self.residency.load_missing(&parts, page_bytes, page.batch(), &self.cancel).await?;
        page.cut(loaded);
        let begun = Instant::now();
        let recorded = parts.recorded(page.batch()).await?;
        let failure = losses.and_then(|losses| failure_after_losses(losses, parts.config.attempts));
        page.begin(begun, recorded, failure);
        Ok(OwnerInput::Prepared)
    }

    /// Makes the actors process the batch. Returns as soon as the inbox is withdrawn, or the actors
    /// hang: nothing takes effect before the commit.
    pub(super) async fn work(&mut self, most: usize, page: &mut Page) -> Result<OwnerInput, Halt> {
        page.cut(most);
        let parts = Arc::clone(&self.parts);
        let (stall, events) = (parts.config.stall, page.batch().len());
        // Whether an event that was sent before is in the repository.
        let stored = page.recorded().is_some_and(|recorded| recorded.stored);
        let written = BatchProgress::of(events, parts.config.batch_bytes);
        let worked = tokio::select! {
            biased;
            worked = parts.actors.work(page.batch(), stored, &written) => Some(worked?),
            () = self.cancel.cancelled() => return Err(Halt::Withdrawn),
            () = tokio::time::sleep(stall) => None,
        };
        let end = match worked {
            Some(Some(worked)) => {
                page.put(worked);
                WorkEnd::Done
            }
            Some(None) => WorkEnd::TooMuch { events },
            None => self.stalled(&written, page).await?,
        };
        Ok(OwnerInput::Worked(end))
    }

    /// Replaces the actors that hang.
    async fn stalled(&mut self, written: &BatchProgress, page: &mut Page) -> Result<WorkEnd, Halt> {
        let places: Vec<usize> = written.at().iter().copied().collect();
        let (events, stall) = (page.batch().len(), self.parts.config.stall);
        tracing::error!(
            entity_type = E::TYPE,
            events,
            seq = page.batch().first().map(|first| first.seq),
            "validate and apply hold up a batch for more than {stall:?}: the entities whose events hang are isolated, and those events die \
             if they hang again"
        );
        self.parts.metrics.stalled();
        self.parts.actors.replace_hanging().await?;
        self.residency.mark_partial();
        let last = page.batch().last().map_or(0, |last| last.seq);
        Ok(WorkEnd::Stalled { events, last, hanging: page.one_of_each_entity(&places) })
    }

    pub(super) async fn commit(&mut self, page: &mut Page) -> Result<OwnerInput, Halt> {
        let (parts, to) = (Arc::clone(&self.parts), page.position_after());
        let position = PositionMove { to, ..self.held(&parts) };
        let worked = page.take_worked();
        let made =
            batch::<E>(&parts.entity_type, position, page.batch(), worked, page.recorded(), &parts.queue);
        match made {
            Ok(batch) => self.commit_batch(batch).await?,
            Err(unstorable) => {
                page.fail(unstorable);
                return Ok(OwnerInput::Unstorable);
            }
        }
        if let Some(begun) = page.begun() {
            parts.metrics.committed(begun);
        }
        page.finish();
        Ok(OwnerInput::Committed(to))
    }

    /// Commits a batch; memory follows.
    pub(super) async fn commit_batch(&mut self, batch: EntityBatch<'_>) -> Result<(), Halt> {
        if self.cancel.is_cancelled() {
            return Err(Halt::Withdrawn);
        }
        let parts = Arc::clone(&self.parts);
        let _committing = parts.committing.write().await;
        let ended = parts.store.commit_entities(&batch).await;
        if let Ok(BatchEnd::Committed(inserted, answers)) = ended {
            wakeq::internals::fault::point("entity.committed");
            self.unconfirmed = None;
            let sizes = parts.actors.ask_all(Shard::commit).await?;
            self.residency.record_memory(&parts, &sizes, !self.state.isolated().is_empty());
            let dead = batch.decided.iter().filter(|one| one.dead.is_some()).count();
            let stored = batch.decided.iter().filter(|one| one.stored).count();
            parts.metrics.decided(stored, batch.decided.len().saturating_sub(stored + dead), dead);
            parts.queue.announce_inserted(batch.events, inserted);
            let (answers, inserted) = answers.into_iter().unzip();
            parts.queue.announce_inserted(answers, inserted);
            return Ok(());
        }
        parts.actors.ask_all(|shard| shard.roll_back()).await?;
        if ended.is_err() {
            // The position shows whether it was committed.
            let (to, isolated, events) = (batch.position.to, batch.isolated, batch.events);
            self.unconfirmed = Some(UnconfirmedCommit { to, isolated, events });
        }
        match ended? {
            BatchEnd::Committed(..) => Ok(()),
            BatchEnd::Refused => Err(Halt::Elsewhere),
            BatchEnd::ForeignAppend(entity) => Err(Halt::Fatal(FatalError(format!(
                "the repository of {}/{entity} was appended to by something other than its \
                 processor, which is not allowed",
                E::TYPE
            )))),
        }
    }

    /// Announces what a commit whose answer was lost has emitted, if the position, and the isolated
    /// entities, say that it was carried out.
    pub(super) fn announce_what_was_done(&mut self, at: i64, isolated: &[IsolatedEntity]) {
        let was_done = |commit: &mut UnconfirmedCommit| {
            let reached = |step| isolated.iter().any(|one| one.has_reached(step));
            commit.to == at && commit.isolated.as_ref().is_none_or(reached)
        };
        if let Some(commit) = self.unconfirmed.take_if(was_done) {
            let inserted = vec![InsertOutcome::unanswered(); commit.events.len()];
            self.parts.queue.announce_inserted(commit.events, inserted);
        }
    }

    /// Moves the position without a commit.
    pub(super) async fn move_to(&mut self, to: i64) -> Result<OwnerInput, Halt> {
        let parts = Arc::clone(&self.parts);
        let position = PositionMove { to, ..self.held(&parts) };
        if parts.store.move_position(&position).await? {
            return Ok(OwnerInput::Moved);
        }
        Err(Halt::Elsewhere)
    }

    /// Whether a refusal has another reason than a new owner.
    pub(super) async fn check_epoch(&mut self) -> Result<OwnerInput, Halt> {
        let Parts { store, group, source, .. } = &*self.parts;
        let epoch = store.position_epoch(group, source).await?;
        Ok(OwnerInput::Epoch { is_own: epoch == self.epoch })
    }
}
