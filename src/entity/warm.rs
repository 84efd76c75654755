//! Taking entities into memory: as many as there is room for when a type begins to be owned, and those that are missing when events
//! come for them.
//!
//! An entity is in memory when it is what the repository says: as many events as its stream has. Each statement and each page is
//! bounded, however many entities there are.

use uuid::Uuid;

use super::actors::Actors;
use super::batch::shape;
use super::define::Entity;
use super::run::{Kept, measured, replay, thaw};
use super::shard::{Broken, Key, Stored};
use crate::event::{CanvasId, EntityType, StreamName};
use crate::store::{EntityPosition, LoadedEntity, Store, StoreError};

/// A start reads this many times what fits into memory at the most: what is read beyond it pushes out what was read before.
const READS_MAX: usize = 2;

/// Why a processor did not get its entities into memory.
#[derive(Debug, thiserror::Error)]
pub(super) enum ColdError {
    /// It may work later.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It needs somebody to do something.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// What was taken into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Warm {
    pub(super) entities: usize,
    /// Events that were applied again, because they are in no snapshot.
    pub(super) replayed: u64,
}

/// Where entities come from, and where they go.
pub(super) struct Stove<'a, E: Entity> {
    pub(super) store: &'a Store,
    pub(super) actors: &'a Actors<E>,
    pub(super) entity_type: &'a EntityType,
    /// Most bytes of states that are read at a time, and of events.
    pub(super) page_bytes: usize,
}

impl<E: Entity> Stove<'_, E> {
    /// Takes a type's entities into memory, as far as there is room. Of a canvas that pushes out its own, the rest is passed over.
    pub(super) async fn warm_up(&self, limit_bytes: usize) -> Result<Warm, ColdError> {
        let (mut after, mut read_bytes, mut replayed) = (None, 0_usize, 0);
        loop {
            let (page, more) = self
                .store
                .entities_after(self.entity_type, after.as_ref(), shape::<E>(), self.page_bytes)
                .await?;
            let last =
                page.last().map(|last| EntityPosition { canvas: last.canvas, id: Some(last.id.clone()) });
            read_bytes = page.iter().fold(read_bytes, |all, one| all.saturating_add(one.state_bytes()));
            replayed += self.take(page).await?;
            let sizes = self.actors.ask_all(|shard| shard.trim()).await?;
            let Some(last) = last.filter(|_| more) else { break };
            if read_bytes / READS_MAX > limit_bytes {
                self.is_part_of(None).await?;
                break;
            }
            after = Some(if sizes.iter().any(|size| size.left.last == Some(last.canvas)) {
                self.is_part_of(Some(last.canvas)).await?;
                match next(last.canvas) {
                    Some(canvas) => EntityPosition { canvas, id: None },
                    None => break,
                }
            } else {
                last
            });
        }
        let sizes = self.actors.ask_all(|shard| shard.size()).await?;
        Ok(Warm { entities: sizes.iter().map(|size| size.entities).sum(), replayed })
    }

    /// Takes these into memory as far as a page goes: how many of them were looked for, one at least.
    pub(super) async fn load(&self, keys: &[Key]) -> Result<usize, ColdError> {
        let keys: Vec<(CanvasId, &StreamName)> = keys.iter().map(|key| (key.canvas, &key.id)).collect();
        let found = self.store.entities_of(self.entity_type, &keys, shape::<E>(), self.page_bytes).await?;
        let looked = found.len();
        self.take(found).await?;
        Ok(looked)
    }

    /// An entity as it was committed, which is not taken into memory; none, if there is none.
    pub(super) async fn show(&self, key: &Key) -> Result<Option<(E::State, i64)>, ColdError> {
        let keys = [(key.canvas, &key.id)];
        let mut found =
            self.store.entities_of(self.entity_type, &keys, shape::<E>(), self.page_bytes).await?;
        let Some(entity) = found.pop().filter(|found| found.version > 0) else { return Ok(None) };
        self.is_own(&entity)?;
        let stored = stored(&entity);
        let kept = self.actors.ask(self.actors.of(key), move |_| thaw::<E>(&stored)).await?;
        let (kept, _) = self.replay(kept, entity).await?;
        Ok(Some((kept.state, kept.version)))
    }

    async fn is_part_of(&self, canvas: Option<CanvasId>) -> Result<(), Broken> {
        self.actors.ask_all(move |shard| shard.is_part_of(canvas)).await.map(drop)
    }

    /// Takes entities into memory; how many events were applied for them.
    async fn take(&self, found: Vec<LoadedEntity>) -> Result<u64, ColdError> {
        let mut parts: Vec<Vec<LoadedEntity>> = Vec::new();
        parts.resize_with(self.actors.count(), Vec::new);
        for entity in found {
            self.is_own(&entity)?;
            if entity.version > 0 {
                parts[self.actors.of(&key(&entity))].push(entity);
            }
        }
        let mut replayed = 0;
        for (actor, part) in parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            let behind = self.actors.ask(actor, move |shard| {
                let mut behind = Vec::new();
                for entity in part {
                    let kept = thaw::<E>(&stored(&entity));
                    if kept.version == entity.version {
                        shard.keep(key(&entity), kept);
                    } else {
                        behind.push((kept, entity));
                    }
                }
                behind
            });
            for (kept, entity) in behind.await? {
                let key = key(&entity);
                let (kept, events) = self.replay(kept, entity).await?;
                replayed += events;
                self.actors.ask(actor, move |shard| shard.keep(key, kept)).await?;
            }
        }
        Ok(replayed)
    }

    /// Applies the events of an entity that are not in its snapshot; how many.
    async fn replay(
        &self,
        mut kept: Kept<E::State>,
        entity: LoadedEntity,
    ) -> Result<(Kept<E::State>, u64), ColdError> {
        let key = key(&entity);
        let (actor, mut replayed) = (self.actors.of(&key), 0);
        // A snapshot that could not be read is made again from the first event on.
        let mut after =
            entity.snapshot.as_ref().filter(|_| kept.version > 0).map_or(0, |snapshot| snapshot.seq);
        while kept.version < entity.version {
            let tail =
                self.store.entity_tail(self.entity_type, key.canvas, &key.id, after, self.page_bytes).await?;
            let Some(last) = tail.last() else { break };
            after = last.seq;
            replayed += u64::try_from(tail.len()).unwrap_or_default();
            let events: Vec<_> = tail.into_iter().map(|event| (event.name, event.payload)).collect();
            let own = key.clone();
            kept = self.actors.ask(actor, move |_| replay::<E>(&own, kept, &events)).await??;
        }
        if kept.version != entity.version {
            return Err(Broken(format!(
                "{}/{}/{} has {} events, and the repository gives {}: the log was changed or dropped behind the back of its \
                 processor",
                key.canvas, self.entity_type, key.id, entity.version, kept.version
            ))
            .into());
        }
        let kept = self.actors.ask(actor, move |_| measured::<E>(&key, kept)).await?;
        Ok((kept, replayed))
    }

    /// Nobody but its processor has appended to its repository.
    fn is_own(&self, entity: &LoadedEntity) -> Result<(), Broken> {
        let LoadedEntity { canvas, id, version, stored, .. } = entity;
        if version == stored {
            return Ok(());
        }
        Err(Broken(format!(
            "the repository has {stored} events of {canvas}/{}/{id}, and {version} were stored by its processor: nobody else \
             may append to the category {}",
            self.entity_type,
            self.entity_type.repository()
        )))
    }
}

/// The canvas after one, in the order in which they are read.
fn next(canvas: CanvasId) -> Option<CanvasId> {
    canvas.0.as_u128().checked_add(1).map(|next| CanvasId(Uuid::from_u128(next)))
}

fn key(entity: &LoadedEntity) -> Key {
    Key { canvas: entity.canvas, id: entity.id.clone() }
}

fn stored(entity: &LoadedEntity) -> Stored {
    let snapshot = entity.snapshot.as_ref().map(|snapshot| (snapshot.state.clone(), snapshot.version));
    Stored { key: key(entity), last: entity.last_link, snapshot }
}
