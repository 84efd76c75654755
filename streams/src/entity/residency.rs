//! What of a type's entities is in memory: whether it matches the repository, how far loading has
//! come, and whether it is all of them. Nothing here knows the position, or decides when memory has
//! to be loaded or forgotten.

use std::collections::HashSet;

use tokio_util::sync::CancellationToken;

use super::cache::Key;
use super::define::Entity;
use super::envelope::InboxEvent;
use super::halt::Halt;
use super::parts::Parts;
use super::run::FatalError;
use super::shard::Size;
use super::warm::{LoadProgress, Loader};
use crate::event::IsolatedEntity;

/// The residency of a type's entities in the memory of its owner.
#[derive(Debug, Default)]
pub(super) struct Residency {
    /// Whether memory matches the repository.
    is_warm: bool,
    /// How far loading has come: after an error it continues there.
    progress: LoadProgress,
    /// Whether all existing entities are in memory.
    is_whole: bool,
    /// Whether it was logged that they are not.
    has_warned: bool,
}

impl Residency {
    /// Whether memory matches the repository.
    pub(super) fn is_warm(&self) -> bool {
        self.is_warm
    }

    /// Loads the entities, as far as they fit, and continues where it was interrupted. Isolated
    /// ones do not stay in memory.
    pub(super) async fn load<E: Entity>(
        &mut self,
        parts: &Parts<E>,
        epoch: i64,
        page_bytes: usize,
        isolated: &[IsolatedEntity],
    ) -> Result<(), Halt> {
        let Parts { store, actors, entity_type, config, .. } = parts;
        if self.progress.begins() {
            actors.replace_hanging().await?;
            actors.ask_all(|shard| shard.forget()).await?;
            store.pin_repository(entity_type).await?;
        }
        let timed = parts.metrics.warms_up();
        let loader = Loader { page_bytes, ..parts.loader() };
        let warm = loader.warm_up(config.memory_limit_bytes, &mut self.progress).await?;
        timed.done();
        for entity in isolated {
            self.forget_isolated(parts, entity).await?;
        }
        let sizes = actors.ask_all(|shard| shard.size()).await?;
        tracing::info!(
            entity_type = E::TYPE,
            epoch,
            entities = warm.entities,
            replayed = warm.replayed,
            "the entities are in memory"
        );
        self.is_warm = true;
        self.record_memory(parts, &sizes, !isolated.is_empty());
        parts.ready.send_replace(Some(warm));
        Ok(())
    }

    /// Loads the entities that events are about. Returns for how many of the events that is done,
    /// at least one. Costs nothing while all entities fit into memory.
    pub(super) async fn load_missing<E: Entity>(
        &self,
        parts: &Parts<E>,
        page_bytes: usize,
        events: &[InboxEvent],
        cancel: &CancellationToken,
    ) -> Result<usize, Halt> {
        if self.is_whole {
            return Ok(events.len());
        }
        let mut known = HashSet::new();
        let key = |event: &InboxEvent| Key { canvas: event.canvas, id: event.entity.clone() };
        let keys = events.iter().map(key).filter(|key| known.insert(key.clone())).collect();
        let cold = parts.actors.cold(keys).await?;
        if cold.is_empty() {
            return Ok(events.len());
        }
        let loader = Loader { page_bytes, ..parts.loader() };
        let loaded = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Halt::Withdrawn),
            loaded = loader.load(&cold) => loaded?,
        };
        parts.metrics.loaded(loaded);
        let missing =
            cold.get(loaded).and_then(|missing| events.iter().position(|event| key(event) == *missing));
        Ok(missing.unwrap_or(events.len()).max(1))
    }

    /// Forgets everything, to be loaded again.
    pub(super) fn forget<E: Entity>(&mut self, parts: &Parts<E>) {
        (self.is_warm, self.progress) = (false, LoadProgress::default());
        parts.ready.send_replace(None);
        // Without waiting: an actor may be in the middle of an event, of which nothing is kept.
        parts.actors.tell_all(|shard| shard.forget());
    }

    /// Removes an isolated entity from the memory of the type's actors.
    pub(super) async fn forget_isolated<E: Entity>(
        &mut self,
        parts: &Parts<E>,
        IsolatedEntity { canvas, id, .. }: &IsolatedEntity,
    ) -> Result<(), FatalError> {
        let (key, canvas) = (Key { canvas: *canvas, id: id.clone() }, *canvas);
        self.mark_partial();
        let forgetting = parts.actors.ask(parts.actors.of(&key), move |shard| {
            shard.forget_one(&key);
            shard.mark_partial(Some(canvas));
        });
        forgetting.await
    }

    /// Notes that entities may exist that are not in memory.
    pub(super) fn mark_partial(&mut self) {
        self.is_whole = false;
    }

    /// Notes the memory that the entities take, and logs once that some were evicted.
    pub(super) fn record_memory<E: Entity>(&mut self, parts: &Parts<E>, sizes: &[Size], has_isolated: bool) {
        self.is_whole = sizes.iter().all(|size| size.is_whole);
        let evicted: usize = sizes.iter().map(|size| size.evicted.entities).sum();
        parts.metrics.record_memory(sizes.iter().map(|size| size.bytes).sum(), evicted);
        // Isolated entities, and those of an actor that hung, are not missing for lack of memory.
        let starts = !has_isolated && parts.ready.borrow().is_none();
        if self.is_whole || self.has_warned || evicted == 0 && !starts {
            return;
        }
        self.has_warned = true;
        let canvas = sizes.iter().find_map(|size| size.evicted.last).map(|canvas| canvas.to_string());
        tracing::warn!(
            entity_type = E::TYPE,
            canvas,
            limit_bytes = parts.config.memory_limit_bytes,
            "not all entities fit into memory: the least recently used leave it, and are loaded \
             again when events arrive for them; if wakeq.entity.loaded stays high, give the process \
             more memory and raise memory_limit_bytes"
        );
    }
}
