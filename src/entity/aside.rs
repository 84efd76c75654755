//! Entities that are set aside, because an event of each has stalled a batch or crashed its
//! process: what is sent to them is processed separately from the rest of the type, in order, on a
//! thread of their own, one entity at a time.
//!
//! The position of the inbox moves past their events; the row of an entity says up to where they
//! are done. Only the task of the owner commits, so no two batches conflict.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::batch::{Unmade, batch};
use super::define::Entity;
use super::envelope::Received;
use super::halt::Halt;
use super::owner::{FAREWELL, Owner};
use super::parts::Parts;
use super::run::Written;
use super::shard::{Broken, Key, Worked};
use super::warm::Stove;
use super::working::{doom, doom_of, first_part, unless_erased};
use crate::event::{EntityId, EventSource, PageLimit};
use crate::store::{ASIDES_MAX, AsideStep, EntityAside, EntityBatch, PositionMove, Recorded};

/// The entities that are set aside, and the attempt at one of them.
pub(super) struct Asides {
    /// The first one is tried next.
    kept: Vec<EntityAside>,
    trying: Option<JoinHandle<Result<Tried, Halt>>>,
    /// Whether the attempt has ended; `tried` is notified when it has.
    is_over: Arc<AtomicBool>,
    tried: Arc<Notify>,
    /// Since when the rest of the type has had precedence: since the owner started, an entity was
    /// set aside, or an attempt hung, whichever was last.
    since: Instant,
    /// Of the first one: the most events of a batch, and the event that must not be processed, and
    /// why.
    most: usize,
    doomed: Option<(i64, String)>,
}

/// The outcome of an attempt at the next events of an entity.
enum Tried {
    /// There are no events.
    Nothing,
    Worked(Vec<Received>, Worked, Option<Recorded>),
    Erasure(Received),
    /// They write more than a batch may.
    TooMuch,
    /// They hang; the `seq` of the last one of them.
    Hung(i64),
}

impl Asides {
    pub(super) fn new() -> Self {
        let (kept, is_over, tried) = Default::default();
        Self { kept, trying: None, is_over, tried, since: Instant::now(), most: usize::MAX, doomed: None }
    }

    pub(super) fn tried(&self) -> Arc<Notify> {
        Arc::clone(&self.tried)
    }

    /// Whether an entity has come as far as this step.
    pub(super) fn came_to(&self, step: &AsideStep) -> bool {
        self.kept.iter().any(|one| one.canvas == step.canvas && one.id == step.id && one.after >= step.after)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    fn has(&self, event: &Received) -> bool {
        self.kept.iter().any(|one| one.canvas == event.canvas && one.id == event.entity)
    }
}

impl<E: Entity> Owner<E> {
    /// Reads from the database what is set aside.
    pub(super) async fn read_asides(&mut self) -> Result<(), Halt> {
        self.drop_attempt().await;
        let Parts { store, entity_type, .. } = &*self.parts;
        self.asides.kept = store.entity_asides(entity_type).await?;
        self.parts.metrics.aside(self.asides.kept.len());
        Ok(())
    }

    /// Removes the entities that are set aside from the memory of the other actors.
    pub(super) async fn forget_asides(&self) -> Result<(), Broken> {
        for aside in &self.asides.kept {
            self.forget_aside(aside).await?;
        }
        Ok(())
    }

    async fn forget_aside(&self, EntityAside { canvas, id, .. }: &EntityAside) -> Result<(), Broken> {
        let (key, canvas) = (Key { canvas: *canvas, id: id.clone() }, *canvas);
        let actors = &self.parts.actors;
        let forgetting = actors.ask(actors.of(&key), move |shard| {
            shard.forget_one(&key);
            shard.is_part_of(Some(canvas));
        });
        forgetting.await
    }

    /// Removes the events of entities that are set aside from a page. Returns whether there were
    /// any.
    pub(super) fn pass_over(&self, events: &mut Vec<Received>) -> bool {
        let all = events.len();
        events.retain(|event| !self.asides.has(event));
        events.len() < all
    }

    /// Moves the position past events of entities that are set aside.
    pub(super) async fn move_over(&mut self, to: i64) -> Result<(), Halt> {
        let held = self.held();
        if held.from >= to {
            return Ok(());
        }
        if self.parts.store.move_position(&PositionMove { to, ..held }).await? {
            (self.committed, self.stood) = (Some(to), to);
            return Ok(());
        }
        self.committed = None;
        Err(self.refused().await)
    }

    /// Sets aside the entity of an event with which this many owners were lost. Returns whether
    /// there was room for it. Its events up to `alone` are processed one at a time.
    pub(super) async fn set_aside(
        &mut self,
        event: &Received,
        alone: i64,
        losses: u32,
    ) -> Result<bool, Halt> {
        if self.asides.has(event) {
            return Ok(true);
        }
        if self.asides.kept.len() >= ASIDES_MAX {
            return Ok(false);
        }
        let (held, entity) = (self.held(), self.parts.entity_of(event));
        let aside = EntityAside { canvas: event.canvas, id: event.entity.clone(), after: held.from, alone };
        if !self.parts.store.set_entity_aside(&held, &entity, alone, (event.seq, losses)).await? {
            self.committed = None;
            return Err(self.refused().await);
        }
        tracing::warn!(
            entity_type = E::TYPE, canvas = %event.canvas, entity = %event.entity, event = %event.id, losses,
            "an entity is set aside: its events are processed apart from the others, until the \
             event that hangs or crashes the process has completed or died"
        );
        self.forget_aside(&aside).await?;
        self.whole = false;
        self.asides.kept.push(aside);
        self.parts.metrics.aside(self.asides.kept.len());
        // The rest of the type comes first.
        self.asides.since = Instant::now();
        Ok(true)
    }

    /// The current position, for statements that do not move it.
    fn held(&self) -> PositionMove<'_> {
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
                Ok(Ok(tried)) => self.tried(tried).await,
                Ok(Err(halt)) => Err(halt),
                Err(defect) => Err(Halt::Broken(Broken(format!("an attempt was cut short: {defect}")))),
            };
            if ended.is_err() {
                // Whatever failed, it was not the event.
                self.acquit_aside().await;
            }
            ended?;
        }
        // After a lost owner it must first be found out what has to be set aside.
        let is_wary = self.committed.is_none_or(|at| at < self.alone_through);
        if is_idle || self.asides.since.elapsed() >= self.parts.config.stall && !is_wary {
            self.try_first();
        }
        Ok(())
    }

    /// Starts an attempt at the first one, unless one is running.
    fn try_first(&mut self) {
        let (Some(next), None, Some(through)) =
            (self.asides.kept.first(), &self.asides.trying, self.committed)
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
            doomed: self.asides.doomed.clone(),
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
    async fn tried(&mut self, tried: Tried) -> Result<(), Halt> {
        let Some(aside) = self.asides.kept.first().cloned() else { return Ok(()) };
        let EntityAside { canvas, id, .. } = aside.clone();
        let position = self.committed.unwrap_or_default();
        let step = |after| AsideStep { canvas, id, after };
        match tried {
            Tried::Nothing => {
                let entity = self.aside_id(&aside);
                if self.parts.store.take_entity_back(&self.held(), &entity).await? {
                    tracing::info!(
                        entity_type = E::TYPE, canvas = %aside.canvas, entity = %aside.id,
                        "an entity that was set aside is processed with the others again"
                    );
                    self.asides.kept.remove(0);
                    self.parts.metrics.aside(self.asides.kept.len());
                } else {
                    // More was sent meanwhile, or the position was moved.
                    self.committed = None;
                }
                (self.asides.most, self.asides.doomed) = (usize::MAX, None);
                return Ok(());
            }
            Tried::TooMuch => {
                self.asides.most = (self.asides.most.min(self.parts.config.batch) / 2).max(1);
                return Ok(());
            }
            Tried::Hung(last) => {
                self.parts.metrics.stalled();
                self.asides.since = Instant::now();
                if let Some(first) = self.asides.kept.first_mut() {
                    first.alone = first.alone.max(last);
                }
                // The other entities that are set aside need not wait for this one.
                self.asides.kept.rotate_left(1);
                (self.asides.most, self.asides.doomed) = (usize::MAX, None);
                return Ok(());
            }
            Tried::Erasure(erasure) => {
                let seq = erasure.seq;
                self.erase(&erasure, position, Some(step(seq))).await?;
                self.came_to(seq);
            }
            Tried::Worked(events, worked, recorded) => {
                let last = events.last().map_or(aside.after, |last| last.seq);
                let parts = Arc::clone(&self.parts);
                let Parts { entity_type, group, source, queue, .. } = &*parts;
                let held = PositionMove { group, source, epoch: self.epoch, from: position, to: position };
                match batch::<E>(entity_type, held, &events, worked, recorded.as_ref(), queue) {
                    Ok(made) => {
                        self.commit(EntityBatch { aside: Some(step(last)), ..made }).await?;
                        self.came_to(last);
                    }
                    Err(unmade) => {
                        let first = unmade.into_iter().next();
                        let doomed =
                            first.and_then(|one| events.get(one.place).map(|event| (event.seq, one.why)));
                        (self.asides.doomed, self.asides.most) = (doomed, 1);
                        self.acquit_aside().await;
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes that the first one is done up to this `seq`.
    fn came_to(&mut self, seq: i64) {
        if let Some(first) = self.asides.kept.first_mut() {
            first.after = first.after.max(seq);
        }
        self.asides.most = self.asides.most.saturating_mul(2);
    }

    fn aside_id(&self, EntityAside { canvas, id, .. }: &EntityAside) -> EntityId {
        EntityId { canvas: *canvas, entity_type: self.parts.entity_type.clone(), id: id.clone() }
    }

    /// Aborts the attempt, which then does not count.
    pub(super) async fn drop_attempt(&mut self) {
        if let Some(trying) = self.asides.trying.take() {
            trying.abort();
            self.acquit_aside().await;
        }
    }

    async fn acquit_aside(&self) {
        let Some(first) = self.asides.kept.first() else { return };
        let entity = self.aside_id(first);
        let acquitted = self.parts.store.acquit_aside(&entity, self.epoch);
        let _ = tokio::time::timeout(FAREWELL, acquitted).await;
    }
}

/// An attempt at the next events of an entity, up to `through` in its inbox.
struct Attempt<E: Entity> {
    parts: Arc<Parts<E>>,
    epoch: i64,
    through: i64,
    aside: EntityAside,
    most: usize,
    bytes: usize,
    doomed: Option<(i64, String)>,
}

impl<E: Entity> Attempt<E> {
    async fn run(self) -> Result<Tried, Halt> {
        let Parts { beside, config, .. } = &*self.parts;
        let events = self.events().await?;
        let Some(first) = events.first() else { return Ok(Tried::Nothing) };
        if first.erases() {
            return Ok(Tried::Erasure(first.clone()));
        }
        let most = if first.seq <= self.aside.alone { 1 } else { self.most };
        let mut events = first_part(&events, most).to_vec();
        self.load().await?;
        let recorded = self.parts.recorded(&events).await?;
        self.doom(&mut events, recorded.as_ref()).await?;
        let (last, stored) = (events.last().map_or(0, |last| last.seq), recorded.as_ref());
        let stored = stored.is_some_and(|recorded| recorded.stored);
        let written = Written::of(events.len(), config.batch_bytes);
        let Ok(worked) = tokio::time::timeout(config.stall, beside.work(&events, stored, &written)).await
        else {
            tracing::error!(
                entity_type = E::TYPE, canvas = %self.aside.canvas, entity = %self.aside.id, seq = last,
                "validate and apply have hung for more than {:?} on events of an entity that is set aside", config.stall
            );
            beside.replace_hanging().await?;
            return Ok(Tried::Hung(last));
        };
        Ok(worked?.map_or(Tried::TooMuch, |worked| Tried::Worked(events, worked, recorded)))
    }

    /// The events that were sent to the entity and are not done.
    async fn events(&self) -> Result<Vec<Received>, Halt> {
        let source = EventSource::Stream(self.entity().inbox());
        let limit = PageLimit { events: self.most, bytes: self.bytes };
        let page = self.parts.provider.read(&source, self.aside.after, limit).await?;
        let events = page.events.into_iter().filter(|event| event.seq <= self.through);
        Ok(events.map(Received::of).collect())
    }

    /// Loads the entity into memory, as it was committed.
    async fn load(&self) -> Result<(), Halt> {
        let Parts { store, beside, entity_type, config, .. } = &*self.parts;
        beside.replace_hanging().await?;
        beside.ask_all(|shard| shard.forget()).await?;
        let stove =
            Stove { store, actors: &**beside, entity_type, page_bytes: self.bytes, stall: config.stall };
        let key = Key { canvas: self.aside.canvas, id: self.aside.id.clone() };
        stove.load(std::slice::from_ref(&key)).await?;
        Ok(())
    }

    /// Marks events that must not be processed. The attempt at an event that is processed alone is
    /// recorded first.
    async fn doom(&self, events: &mut [Received], recorded: Option<&Recorded>) -> Result<(), Halt> {
        let Parts { store, config, .. } = &*self.parts;
        let Some(first) = events.first_mut() else { return Ok(()) };
        if first.seq <= self.aside.alone {
            let losses = store.suspect_aside(&self.entity(), self.epoch, first.seq).await?;
            first.doomed = doom_of(losses.ok_or(Halt::Fenced)?, config.attempts);
        }
        if let Some(why) = unless_erased(first, recorded) {
            first.doomed = Some((why, 1));
        }
        if let Some((seq, why)) = &self.doomed {
            let place = events.iter().position(|event| event.seq == *seq);
            let unmade = place.map(|place| Unmade { place, why: why.clone() });
            doom(events, unmade.into_iter().collect());
        }
        Ok(())
    }

    fn entity(&self) -> EntityId {
        let EntityAside { canvas, id, .. } = &self.aside;
        EntityId { canvas: *canvas, entity_type: self.parts.entity_type.clone(), id: id.clone() }
    }
}
