//! Processes the batches of the owner of a type: fewer events at a time after trouble, and
//! suspected ones alone.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::batch::{Unstorable, batch};
use super::cache::Key;
use super::define::Entity;
use super::envelope::InboxEvent;
use super::halt::Halt;
use super::owner::{FAREWELL, Owner};
use super::parts::Parts;
use super::run::BatchProgress;
use super::shard::WorkOutput;
use crate::event::EntityId;
use crate::store::{PositionMove, RecordedOutcome};

/// The outcome of processing a batch.
enum BatchOutcome {
    Done(WorkOutput),
    /// It writes more than a batch may.
    TooMuch,
    /// Actors hung, and were replaced: the indices of the events that they were processing.
    Stalled(Vec<usize>),
}

impl<E: Entity> Owner<E> {
    /// Processes and commits events of the inbox, which go up to `through`: all of a batch or
    /// nothing. Returns how many. 0 if they have to be started again, fewer at a time or without
    /// those of entities that were set aside.
    pub(super) async fn process(&mut self, rest: &[InboxEvent], through: i64) -> Result<usize, Halt> {
        let mut part = first_part(rest, self.part_of(self.most));
        if let [erasure] = part
            && erasure.erases()
        {
            let to = if rest.len() == 1 { through } else { erasure.seq };
            self.erase(erasure, to, None).await?;
            return Ok(1);
        }
        let Some(first) = part.first().filter(|first| first.seq <= self.alone_through) else {
            part = &part[..self.load(part).await?];
            return self.process_part(Cow::Borrowed(part), rest.len(), through).await;
        };
        let (mut first, seq) = (first.clone(), first.seq);
        let losses = self.suspect(seq).await?;
        if losses > 1 && self.set_aside(&first, self.alone_through, losses - 1).await? {
            return Ok(0);
        }
        first.failure = failure_after_losses(losses, self.parts.config.attempts);
        let alone = async {
            self.load(std::slice::from_ref(&first)).await?;
            self.process_part(Cow::Owned(vec![first]), rest.len(), through).await
        };
        let ended = alone.await;
        if ended.is_err() {
            // Whatever failed, it was not the event.
            let Parts { store, entity_type, .. } = &*self.parts;
            let uncounted = store.uncount_attempt(entity_type, self.epoch, seq);
            let _ = tokio::time::timeout(FAREWELL, uncounted).await;
        }
        ended
    }

    /// Notes that an event is processed alone. Returns how many such attempts have had no outcome,
    /// this one included.
    async fn suspect(&self, seq: i64) -> Result<u32, Halt> {
        let Parts { store, entity_type, .. } = &*self.parts;
        let losses = store.suspect_entity_event(entity_type, self.epoch, seq).await?.ok_or(Halt::Fenced)?;
        Ok(losses.unsigned_abs())
    }

    /// Like `process`, for the first events of a page with `rest` events, whose entities are in
    /// memory.
    async fn process_part(
        &mut self,
        mut events: Cow<'_, [InboxEvent]>,
        rest: usize,
        through: i64,
    ) -> Result<usize, Halt> {
        let (parts, begun) = (Arc::clone(&self.parts), Instant::now());
        let recorded = parts.recorded(&events).await?;
        let stored = recorded.as_ref().is_some_and(|recorded| recorded.stored);
        if let Some(why) = events.first().and_then(|first| unless_erased(first, recorded.as_ref())) {
            fail_events(events.to_mut(), vec![Unstorable { place: 0, why }]);
        }
        let (from, epoch) = (self.committed.unwrap_or_default(), self.epoch);
        let (batch, done) = loop {
            let worked = match self.work(&events, stored).await? {
                BatchOutcome::Done(worked) => worked,
                BatchOutcome::TooMuch => {
                    self.most = (events.len() / 2).max(1);
                    truncate(&mut events, self.most);
                    continue;
                }
                BatchOutcome::Stalled(at) => {
                    self.after_a_stall(&events, &at).await?;
                    return Ok(0);
                }
            };
            let done = events.len();
            let to = if done == rest { through } else { events.last().map_or(through, |last| last.seq) };
            let position = PositionMove { group: &parts.group, source: &parts.source, epoch, from, to };
            let made =
                batch::<E>(&parts.entity_type, position, &events, worked, recorded.as_ref(), &parts.queue);
            match made {
                Ok(batch) => break (batch, done),
                // Everything is processed again without these, so the loop ends.
                Err(unstorable) => fail_events(events.to_mut(), unstorable),
            }
        };
        self.commit(batch).await?;
        parts.metrics.committed(begun);
        self.most = self.most.saturating_mul(2).min(parts.config.batch);
        Ok(done)
    }

    /// Loads the entities that events are about. Returns for how many of the events that is done,
    /// at least one. Costs nothing while all entities fit into memory.
    async fn load(&self, events: &[InboxEvent]) -> Result<usize, Halt> {
        if self.whole {
            return Ok(events.len());
        }
        let mut known = HashSet::new();
        let key = |event: &InboxEvent| Key { canvas: event.canvas, id: event.entity.clone() };
        let keys = events.iter().map(key).filter(|key| known.insert(key.clone())).collect();
        let cold = self.parts.actors.cold(keys).await?;
        if cold.is_empty() {
            return Ok(events.len());
        }
        let loader = self.loader();
        let loaded = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(Halt::Withdrawn),
            loaded = loader.load(&cold) => loaded?,
        };
        self.parts.metrics.loaded(loaded);
        let missing =
            cold.get(loaded).and_then(|missing| events.iter().position(|event| key(event) == *missing));
        Ok(missing.unwrap_or(events.len()).max(1))
    }

    /// Sets aside the entities whose events have held up a batch. If that is not possible, the
    /// events of the batch are processed one at a time.
    async fn after_a_stall(&mut self, events: &[InboxEvent], at: &[usize]) -> Result<(), Halt> {
        // It may have been the sum of all of them.
        self.most = (events.len() / 2).max(1);
        let last = events.last().map_or(0, |last| last.seq);
        let mut are_aside = !at.is_empty();
        for event in at.iter().filter_map(|place| events.get(*place)) {
            // An event that was alone is the cause.
            are_aside &= self.set_aside(event, last, u32::from(events.len() == 1)).await?;
        }
        if are_aside {
            return Ok(());
        }
        if let [one] = events
            && one.seq > self.alone_through
        {
            // It was alone by chance: that counts, too.
            self.suspect(one.seq).await?;
        }
        self.alone_through = self.alone_through.max(last);
        Ok(())
    }

    /// Makes the actors process events. `stored` says whether an event that was sent before is in
    /// the repository. Returns as soon as the inbox is withdrawn, or the actors hang: nothing takes
    /// effect before the commit.
    async fn work(&mut self, events: &[InboxEvent], stored: bool) -> Result<BatchOutcome, Halt> {
        let parts = Arc::clone(&self.parts);
        let stall = parts.config.stall;
        let written = BatchProgress::of(events.len(), parts.config.batch_bytes);
        tokio::select! {
            biased;
            worked = parts.actors.work(events, stored, &written) => {
                return Ok(worked?.map_or(BatchOutcome::TooMuch, BatchOutcome::Done));
            }
            () = self.cancel.cancelled() => return Err(Halt::Withdrawn),
            () = tokio::time::sleep(stall) => {}
        }
        let at: Vec<usize> = written.at().iter().copied().collect();
        tracing::error!(
            entity_type = E::TYPE,
            events = events.len(),
            seq = events.first().map(|first| first.seq),
            "validate and apply hold up a batch for more than {stall:?}: the entities whose events hang are set aside, and those events die \
             if they hang again"
        );
        parts.metrics.stalled();
        parts.actors.replace_hanging().await?;
        self.whole = false;
        Ok(BatchOutcome::Stalled(at))
    }
}

impl<E: Entity> Parts<E> {
    /// The entity that an event was sent to.
    pub(super) fn entity_of(&self, event: &InboxEvent) -> EntityId {
        EntityId { canvas: event.canvas, entity_type: self.entity_type.clone(), id: event.entity.clone() }
    }

    /// The record of an event that was sent before, and so is alone in its batch.
    pub(super) async fn recorded(&self, events: &[InboxEvent]) -> Result<Option<RecordedOutcome>, Halt> {
        let [event] = events else { return Ok(None) };
        if !event.is_repost() {
            return Ok(None);
        }
        Ok(Some(self.store.entity_recorded(&self.entity_of(event), event.id, event.link).await?))
    }
}

/// Why an event from before an erasure of its entity must not be processed.
pub(super) fn unless_erased(event: &InboxEvent, recorded: Option<&RecordedOutcome>) -> Option<String> {
    let is_before = recorded.is_some_and(|recorded| event.link.id < recorded.first);
    is_before.then(|| "it is from before the entity was erased: send it as a new event".to_owned())
}

/// Why an event dies with which this many owners were lost, this time included; `None` if it is to
/// be tried.
pub(super) fn failure_after_losses(losses: u32, attempts: u32) -> Option<(String, u32)> {
    let times = losses.saturating_sub(1);
    let why = format!("its processor hung, or its process ended, {times} times while it was processed alone");
    (losses > attempts).then_some((why, times))
}

/// Marks events that must not be processed.
pub(super) fn fail_events(events: &mut [InboxEvent], unstorable: Vec<Unstorable>) {
    for Unstorable { place, why } in unstorable {
        if let Some(event) = events.get_mut(place) {
            event.failure = Some((why, 1));
        }
    }
}

fn truncate(events: &mut Cow<'_, [InboxEvent]>, count: usize) {
    match events {
        Cow::Borrowed(all) => *all = &all[..count.min(all.len())],
        Cow::Owned(all) => all.truncate(count),
    }
}

/// The first batch of a page: events that were not sent before, or a single one that was, or an
/// erasure.
pub(super) fn first_part(events: &[InboxEvent], most: usize) -> &[InboxEvent] {
    let is_fresh = |event: &&InboxEvent| !event.is_repost() && !event.erases();
    let fresh = events.iter().take(most).take_while(is_fresh).count();
    &events[..fresh.max(1)]
}
