//! Entities that are set aside, because an event of each has stalled a batch or crashed its
//! process. Their events are processed separately from the rest of the type, in order, on a thread
//! of their own, one entity at a time.
//!
//! The position of the inbox moves past their events; the row of an entity says up to where they
//! are done. Only the task of the owner commits, so no two batches conflict.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::batch::{Unstorable, batch};
use super::cache::Key;
use super::define::Entity;
use super::envelope::InboxEvent;
use super::halt::Halt;
use super::owner::{FAREWELL, Owner};
use super::parts::Parts;
use super::run::{BatchProgress, FatalError};
use super::shard::WorkOutput;
use super::warm::Loader;
use super::working::{fail_events, failure_after_losses, first_part, unless_erased};
use crate::event::EntityId;
use crate::store::{EntityBatch, ISOLATED_MAX, IsolatedEntity, IsolatedStep, PositionMove, RecordedOutcome};
use wakeq::log::{EventSource, PageLimit};

/// The entities that are set aside, and the attempt at one of them.
pub(super) struct Asides {
    /// The first one is tried next.
    entities: Vec<IsolatedEntity>,
    trying: Option<JoinHandle<Result<AttemptOutcome, Halt>>>,
    /// Whether the attempt has ended; `tried` is notified when it has.
    is_over: Arc<AtomicBool>,
    tried: Arc<Notify>,
    /// Since when the rest of the type has had precedence: since the owner started, an entity was
    /// set aside, or an attempt hung, whichever was last.
    since: Instant,
    /// Of the first one: the maximum number of events in a batch, and the event that must not be
    /// processed, and why.
    most: usize,
    failure: Option<(i64, String)>,
}

/// The outcome of an attempt at the next events of an entity.
enum AttemptOutcome {
    /// There are no events.
    Nothing,
    Processed(Vec<InboxEvent>, WorkOutput, Option<RecordedOutcome>),
    Erasure(InboxEvent),
    /// They write more than a batch may.
    TooMuch,
    /// They hang; the `seq` of the last one of them.
    Hung(i64),
}

impl Asides {
    pub(super) fn new() -> Self {
        let (entities, is_over, tried) = Default::default();
        Self {
            entities,
            trying: None,
            is_over,
            tried,
            since: Instant::now(),
            most: usize::MAX,
            failure: None,
        }
    }

    pub(super) fn tried(&self) -> Arc<Notify> {
        Arc::clone(&self.tried)
    }

    /// Whether an entity has come as far as this step.
    pub(super) fn came_to(&self, step: &IsolatedStep) -> bool {
        self.entities
            .iter()
            .any(|one| one.canvas == step.canvas && one.id == step.id && one.after >= step.after)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entities.is_empty()
    }

    fn has(&self, event: &InboxEvent) -> bool {
        self.entities.iter().any(|one| one.canvas == event.canvas && one.id == event.entity)
    }
}

impl<E: Entity> Owner<E> {
    /// Reads from the database what is set aside.
    pub(super) async fn read_asides(&mut self) -> Result<(), Halt> {
        self.drop_attempt().await;
        let Parts { store, entity_type, .. } = &*self.parts;
        self.asides.entities = store.isolated_entities(entity_type).await?;
        self.parts.metrics.aside(self.asides.entities.len());
        Ok(())
    }

    /// Removes the entities that are set aside from the memory of the other actors.
    pub(super) async fn forget_asides(&self) -> Result<(), FatalError> {
        for aside in &self.asides.entities {
            self.forget_aside(aside).await?;
        }
        Ok(())
    }

    async fn forget_aside(
        &self,
        IsolatedEntity { canvas, id, .. }: &IsolatedEntity,
    ) -> Result<(), FatalError> {
        let (key, canvas) = (Key { canvas: *canvas, id: id.clone() }, *canvas);
        let actors = &self.parts.actors;
        let forgetting = actors.ask(actors.of(&key), move |shard| {
            shard.forget_one(&key);
            shard.mark_partial(Some(canvas));
        });
        forgetting.await
    }

    /// Removes the events of entities that are set aside from a page. Returns whether there were
    /// any.
    pub(super) fn pass_over(&self, events: &mut Vec<InboxEvent>) -> bool {
        let all = events.len();
        events.retain(|event| !self.asides.has(event));
        events.len() < all
    }

    /// Moves the position past events of entities that are set aside.
    pub(super) async fn move_over(&mut self, to: i64) -> Result<(), Halt> {
        if self.held().from >= to { Ok(()) } else { self.move_to(to).await }
    }

    /// Sets aside the entity of an event with which this many owners were lost. Returns whether
    /// there was room for it. Its events up to `alone` are processed one at a time.
    pub(super) async fn set_aside(
        &mut self,
        event: &InboxEvent,
        alone: i64,
        losses: u32,
    ) -> Result<bool, Halt> {
        if self.asides.has(event) {
            return Ok(true);
        }
        if self.asides.entities.len() >= ISOLATED_MAX {
            return Ok(false);
        }
        let (held, entity) = (self.held(), self.parts.entity_of(event));
        let aside =
            IsolatedEntity { canvas: event.canvas, id: event.entity.clone(), after: held.from, alone };
        if !self.parts.store.isolate_entity(&held, &entity, alone, (event.seq, losses)).await? {
            self.committed = None;
            return Err(self.refused().await);
        }
        tracing::warn!(
            entity_type = E::TYPE, canvas = %event.canvas, entity = %event.entity, event = %event.id, losses,
            "an entity is set aside: its events are processed separately from the others, until the \
             event that hangs or crashes the process has completed or died"
        );
        self.forget_aside(&aside).await?;
        self.whole = false;
        self.asides.entities.push(aside);
        self.parts.metrics.aside(self.asides.entities.len());
        // The rest of the type comes first.
        self.asides.since = Instant::now();
        Ok(true)
    }

    /// The current position, for statements that do not move it.
    pub(super) fn held(&self) -> PositionMove<'_> {
        let Parts { group, source, .. } = &*self.parts;
        let from = self.committed.unwrap_or_default();
        PositionMove { group, source, epoch: self.epoch, from, to: from }
    }

    /// Commits the outcome of an attempt, and starts the next one: if nothing else waits, or the
    /// rest of the type has had its time. Nothing here waits for the author's code.
    pub(super) async fn tend(&mut self, is_idle: bool) -> Result<(), Halt> {
        let is_over = self.asides.is_over.load(Ordering::SeqCst);
        if self.committed.is_none() {
            return Ok(());
        }
        if let Some(trying) = self.asides.trying.take_if(|trying| is_over || trying.is_finished()) {
            let ended = match trying.await {
                Ok(Ok(outcome)) => self.finish_attempt(outcome).await,
                Ok(Err(halt)) => Err(halt),
                Err(defect) => Err(Halt::Fatal(FatalError(format!("an attempt was cut short: {defect}")))),
            };
            if ended.is_err() {
                // Whatever failed, it was not the event.
                self.uncount_isolated_attempt().await;
            }
            ended?;
        }
        // After a lost owner it must first be found out which entities have to be set aside.
        let is_wary = self.committed.is_none_or(|at| at < self.alone_through);
        if is_idle || self.asides.since.elapsed() >= self.parts.config.stall && !is_wary {
            self.try_first();
        }
        Ok(())
    }

    /// Starts an attempt at the first one, unless one is running.
    fn try_first(&mut self) {
        let (Some(next), None, Some(through)) =
            (self.asides.entities.first(), &self.asides.trying, self.committed)
        else {
            return;
        };
        let attempt = Attempt {
            parts: Arc::clone(&self.parts),
            epoch: self.epoch,
            through,
            aside: next.clone(),
            most: self.part_of(self.asides.most.min(self.parts.config.batch)),
            bytes: self.part_of(self.parts.config.batch_bytes),
            failure: self.asides.failure.clone(),
        };
        let (is_over, over) = (Arc::new(AtomicBool::new(false)), self.asides.tried());
        self.asides.is_over = Arc::clone(&is_over);
        self.asides.trying = Some(tokio::spawn(async move {
            let tried = attempt.run().await;
            is_over.store(true, Ordering::SeqCst);
            over.notify_one();
            tried
        }));
    }

    /// Handles the outcome of an attempt at the first one.
    async fn finish_attempt(&mut self, outcome: AttemptOutcome) -> Result<(), Halt> {
        let Some(aside) = self.asides.entities.first().cloned() else { return Ok(()) };
        let IsolatedEntity { canvas, id, .. } = aside.clone();
        let position = self.committed.unwrap_or_default();
        let step = |after| IsolatedStep { canvas, id, after };
        match outcome {
            AttemptOutcome::Nothing => {
                let entity = self.parts.aside_id(&aside);
                if self.parts.store.take_entity_back(&self.held(), &entity).await? {
                    tracing::info!(
                        entity_type = E::TYPE, canvas = %aside.canvas, entity = %aside.id,
                        "an entity that was set aside is processed with the others again"
                    );
                    self.asides.entities.remove(0);
                    self.parts.metrics.aside(self.asides.entities.len());
                } else {
                    // More was sent meanwhile, or the position was moved.
                    self.committed = None;
                }
                (self.asides.most, self.asides.failure) = (usize::MAX, None);
                return Ok(());
            }
            AttemptOutcome::TooMuch => {
                self.asides.most = (self.asides.most.min(self.parts.config.batch) / 2).max(1);
                return Ok(());
            }
            AttemptOutcome::Hung(last) => {
                self.parts.metrics.stalled();
                self.asides.since = Instant::now();
                if let Some(first) = self.asides.entities.first_mut() {
                    first.alone = first.alone.max(last);
                }
                // The other entities that are set aside need not wait for this one.
                self.asides.entities.rotate_left(1);
                (self.asides.most, self.asides.failure) = (usize::MAX, None);
                return Ok(());
            }
            AttemptOutcome::Erasure(erasure) => {
                let seq = erasure.seq;
                self.erase(&erasure, position, Some(step(seq))).await?;
                self.came_to(seq);
            }
            AttemptOutcome::Processed(events, worked, recorded) => {
                let last = events.last().map_or(aside.after, |last| last.seq);
                let parts = Arc::clone(&self.parts);
                let Parts { entity_type, group, source, queue, .. } = &*parts;
                let held = PositionMove { group, source, epoch: self.epoch, from: position, to: position };
                match batch::<E>(entity_type, held, &events, worked, recorded.as_ref(), queue) {
                    Ok(made) => {
                        self.commit(EntityBatch { aside: Some(step(last)), ..made }).await?;
                        self.came_to(last);
                    }
                    Err(unstorable) => {
                        let first = unstorable.into_iter().next();
                        let failure =
                            first.and_then(|one| events.get(one.place).map(|event| (event.seq, one.why)));
                        (self.asides.failure, self.asides.most) = (failure, 1);
                        self.uncount_isolated_attempt().await;
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes that the first one is done up to this `seq`.
    fn came_to(&mut self, seq: i64) {
        if let Some(first) = self.asides.entities.first_mut() {
            first.after = first.after.max(seq);
        }
        self.asides.most = self.asides.most.saturating_mul(2);
    }

    /// Aborts the attempt, which then does not count.
    pub(super) async fn drop_attempt(&mut self) {
        if let Some(trying) = self.asides.trying.take() {
            trying.abort();
            self.uncount_isolated_attempt().await;
        }
    }

    async fn uncount_isolated_attempt(&self) {
        let Some(first) = self.asides.entities.first() else { return };
        let entity = self.parts.aside_id(first);
        let uncounted = self.parts.store.uncount_isolated_attempt(&entity, self.epoch);
        let _ = tokio::time::timeout(FAREWELL, uncounted).await;
    }
}

/// An attempt at the next events of an entity, up to `through` in its inbox.
struct Attempt<E: Entity> {
    parts: Arc<Parts<E>>,
    epoch: i64,
    through: i64,
    aside: IsolatedEntity,
    most: usize,
    bytes: usize,
    failure: Option<(i64, String)>,
}

impl<E: Entity> Attempt<E> {
    async fn run(self) -> Result<AttemptOutcome, Halt> {
        let Parts { aside_actor, config, .. } = &*self.parts;
        let events = self.events().await?;
        let Some(first) = events.first() else { return Ok(AttemptOutcome::Nothing) };
        if first.erases() {
            return Ok(AttemptOutcome::Erasure(first.clone()));
        }
        let most = if first.seq <= self.aside.alone { 1 } else { self.most };
        let mut events = first_part(&events, most).to_vec();
        self.load().await?;
        let recorded = self.parts.recorded(&events).await?;
        self.mark_failed(&mut events, recorded.as_ref()).await?;
        let (last, stored) = (events.last().map_or(0, |last| last.seq), recorded.as_ref());
        let stored = stored.is_some_and(|recorded| recorded.stored);
        let written = BatchProgress::of(events.len(), config.batch_bytes);
        let Ok(worked) =
            tokio::time::timeout(config.stall, aside_actor.work(&events, stored, &written)).await
        else {
            tracing::error!(
                entity_type = E::TYPE, canvas = %self.aside.canvas, entity = %self.aside.id, seq = last,
                "validate and apply have hung for more than {:?} on events of an entity that is set aside", config.stall
            );
            aside_actor.replace_hanging().await?;
            return Ok(AttemptOutcome::Hung(last));
        };
        Ok(worked?
            .map_or(AttemptOutcome::TooMuch, |worked| AttemptOutcome::Processed(events, worked, recorded)))
    }

    /// The events that were sent to the entity and are not done.
    async fn events(&self) -> Result<Vec<InboxEvent>, Halt> {
        let source = EventSource::Stream(self.parts.aside_id(&self.aside).inbox());
        let limit = PageLimit { events: self.most, bytes: self.bytes };
        let page = self.parts.provider.read(&source, self.aside.after, limit).await?;
        let events = page.events.into_iter().filter(|event| event.seq <= self.through);
        Ok(events.map(InboxEvent::of).collect())
    }

    /// Loads the entity into memory, as it was committed.
    async fn load(&self) -> Result<(), Halt> {
        let Parts { store, aside_actor, entity_type, config, .. } = &*self.parts;
        aside_actor.replace_hanging().await?;
        aside_actor.ask_all(|shard| shard.forget()).await?;
        let loader = Loader {
            store,
            actors: &**aside_actor,
            entity_type,
            page_bytes: self.bytes,
            stall: config.stall,
        };
        let key = Key { canvas: self.aside.canvas, id: self.aside.id.clone() };
        loader.load(std::slice::from_ref(&key)).await?;
        Ok(())
    }

    /// Marks events that must not be processed. The attempt at an event that is processed alone is
    /// recorded first.
    async fn mark_failed(
        &self,
        events: &mut [InboxEvent],
        recorded: Option<&RecordedOutcome>,
    ) -> Result<(), Halt> {
        let Parts { store, config, .. } = &*self.parts;
        let Some(first) = events.first_mut() else { return Ok(()) };
        if first.seq <= self.aside.alone {
            let entity = self.parts.aside_id(&self.aside);
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

impl<E: Entity> Parts<E> {
    fn aside_id(&self, IsolatedEntity { canvas, id, .. }: &IsolatedEntity) -> EntityId {
        EntityId { canvas: *canvas, entity_type: self.entity_type.clone(), id: id.clone() }
    }
}
