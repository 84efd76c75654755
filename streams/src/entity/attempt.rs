//! Attempts at isolated entities: the next events of one are processed in a task and on a thread of
//! their own. Nothing here commits: only the task of the owner does, so no two batches conflict.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::batch::Unstorable;
use super::cache::Key;
use super::define::Entity;
use super::envelope::InboxEvent;
use super::halt::Halt;
use super::page::{fail_events, first_part, unless_erased};
use super::parts::Parts;
use super::run::{BatchProgress, FatalError};
use super::shard::WorkOutput;
use super::warm::Loader;
use crate::event::IsolatedEntity;
use crate::machine::{AttemptEnd, failure_after_losses};
use crate::store::RecordedOutcome;
use wakeq::log::{EventSource, PageLimit};

/// The attempt that is under way, if any, and the outcome of the last one until it was handled.
#[derive(Default)]
pub(super) struct Attempts {
    task: Option<JoinHandle<Result<AttemptOutcome, Halt>>>,
    /// Whether the attempt has ended; `ended` is notified when it has.
    is_over: Arc<AtomicBool>,
    ended: Arc<Notify>,
    outcome: Option<AttemptOutcome>,
}

/// The outcome of an attempt at the next events of an entity.
pub(super) enum AttemptOutcome {
    /// The entity has no further events.
    Nothing,
    Processed(IsolatedBatch),
    Erasure(InboxEvent),
    /// They write more than a batch may.
    TooMuch,
    /// They hang; the `seq` of the last one of them.
    Hung(i64),
}

/// What was made of events of an isolated entity.
pub(super) struct IsolatedBatch {
    pub(super) events: Vec<InboxEvent>,
    pub(super) worked: WorkOutput,
    pub(super) recorded: Option<RecordedOutcome>,
}

impl AttemptOutcome {
    fn end(&self) -> AttemptEnd {
        match self {
            Self::Nothing => AttemptEnd::Nothing,
            Self::Processed(IsolatedBatch { events, .. }) => {
                AttemptEnd::Processed { through: events.last().map_or(0, |last| last.seq) }
            }
            Self::Erasure(erasure) => AttemptEnd::Erasure { seq: erasure.seq },
            Self::TooMuch => AttemptEnd::TooMuch,
            Self::Hung(last) => AttemptEnd::Hung { last: *last },
        }
    }
}

impl Attempts {
    /// Notified when an attempt has ended.
    pub(super) fn ended(&self) -> Arc<Notify> {
        Arc::clone(&self.ended)
    }

    pub(super) fn start<E: Entity>(&mut self, attempt: Attempt<E>) {
        let (is_over, ended) = (Arc::new(AtomicBool::new(false)), self.ended());
        self.is_over = Arc::clone(&is_over);
        self.task = Some(tokio::spawn(async move {
            let outcome = attempt.run().await;
            is_over.store(true, Ordering::SeqCst);
            ended.notify_one();
            outcome
        }));
    }

    /// How the attempt ended; `None` if it has not. It is not waited for.
    pub(super) async fn end(&mut self) -> Result<Option<AttemptEnd>, Halt> {
        let is_over = self.is_over.load(Ordering::SeqCst);
        let Some(task) = self.task.take_if(|task| is_over || task.is_finished()) else {
            return Ok(None);
        };
        let outcome = task
            .await
            .map_err(|defect| Halt::Fatal(FatalError(format!("an attempt was cut short: {defect}"))))??;
        let end = outcome.end();
        self.outcome = Some(outcome);
        Ok(Some(end))
    }

    /// The outcome of the attempt that has ended.
    pub(super) fn take_outcome(&mut self) -> Option<AttemptOutcome> {
        self.outcome.take()
    }

    /// Keeps what is to be committed for an erasure.
    pub(super) fn put(&mut self, batch: IsolatedBatch) {
        self.outcome = Some(AttemptOutcome::Processed(batch));
    }

    /// Aborts the attempt. Returns whether there was one.
    pub(super) fn abort(&mut self) -> bool {
        let task = self.task.take();
        task.inspect(JoinHandle::abort).is_some()
    }
}

/// An attempt at the next events of an entity, up to `through` in its inbox.
pub(super) struct Attempt<E: Entity> {
    pub(super) parts: Arc<Parts<E>>,
    pub(super) epoch: i64,
    pub(super) through: i64,
    pub(super) entity: IsolatedEntity,
    /// Most events, and most bytes of what is read.
    pub(super) most: usize,
    pub(super) bytes: usize,
    /// The event that must not be stored, and why.
    pub(super) failure: Option<(i64, String)>,
}

impl<E: Entity> Attempt<E> {
    async fn run(self) -> Result<AttemptOutcome, Halt> {
        let Parts { isolated_actor, config, .. } = &*self.parts;
        let mut events = self.events().await?;
        let Some(first) = events.first() else { return Ok(AttemptOutcome::Nothing) };
        if first.erases() {
            return Ok(AttemptOutcome::Erasure(first.clone()));
        }
        let most = if first.seq <= self.entity.single_through { 1 } else { self.most };
        events.truncate(first_part(&events, most));
        self.load().await?;
        let recorded = self.parts.recorded(&events).await?;
        self.mark_failed(&mut events, recorded.as_ref()).await?;
        let (last, stored) = (events.last().map_or(0, |last| last.seq), recorded.as_ref());
        let stored = stored.is_some_and(|recorded| recorded.stored);
        let written = BatchProgress::of(events.len(), config.batch_bytes);
        let Ok(worked) =
            tokio::time::timeout(config.stall, isolated_actor.work(&events, stored, &written)).await
        else {
            tracing::error!(
                entity_type = E::TYPE, canvas = %self.entity.canvas, entity = %self.entity.id, seq = last,
                "validate and apply have hung for more than {:?} on events of an isolated entity", config.stall
            );
            isolated_actor.replace_hanging().await?;
            return Ok(AttemptOutcome::Hung(last));
        };
        Ok(worked?.map_or(AttemptOutcome::TooMuch, |worked| {
            AttemptOutcome::Processed(IsolatedBatch { events, worked, recorded })
        }))
    }

    /// The events that were sent to the entity and are not done.
    async fn events(&self) -> Result<Vec<InboxEvent>, Halt> {
        let source = EventSource::Stream(self.parts.entity_id(self.entity.canvas, &self.entity.id).inbox());
        let limit = PageLimit { events: self.most, bytes: self.bytes };
        let page = self.parts.provider.read(&source, self.entity.after, limit).await?;
        let events = page.events.into_iter().filter(|event| event.seq <= self.through);
        Ok(events.map(InboxEvent::of).collect())
    }

    /// Loads the entity into memory, as it was committed.
    async fn load(&self) -> Result<(), Halt> {
        let Parts { store, isolated_actor, entity_type, config, .. } = &*self.parts;
        isolated_actor.replace_hanging().await?;
        isolated_actor.ask_all(|shard| shard.forget()).await?;
        let loader = Loader {
            store,
            actors: &**isolated_actor,
            entity_type,
            page_bytes: self.bytes,
            stall: config.stall,
        };
        let key = Key { canvas: self.entity.canvas, id: self.entity.id.clone() };
        loader.load(std::slice::from_ref(&key)).await?;
        Ok(())
    }

    /// Marks events that must not be processed. The attempt at an event that is processed on its
    /// own is recorded first.
    async fn mark_failed(
        &self,
        events: &mut [InboxEvent],
        recorded: Option<&RecordedOutcome>,
    ) -> Result<(), Halt> {
        let Parts { store, config, .. } = &*self.parts;
        let Some(first) = events.first_mut() else { return Ok(()) };
        if first.seq <= self.entity.single_through {
            let entity = self.parts.entity_id(self.entity.canvas, &self.entity.id);
            let losses = store.suspect_isolated(&entity, self.epoch, first.seq).await?;
            first.failure = failure_after_losses(losses.ok_or(Halt::Fenced)?, config.attempts);
        }
        if let Some(why) = unless_erased(first, recorded) {
            first.failure = Some((why, 1));
        }
        if let Some((seq, why)) = &self.failure {
            let place = events.iter().position(|event| event.seq == *seq);
            let unstorable = place.map(|place| Unstorable { place, why: why.clone() });
            fail_events(events, unstorable.into_iter().collect());
        }
        Ok(())
    }
}
