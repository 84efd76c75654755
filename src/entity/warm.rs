//! Warm-up: the entities of a type are taken into memory, before any event is accepted for them.
//!
//! It is done when what is in memory is what the repository says: as many events of every entity, and no stream beside them.

use std::sync::Arc;

use super::actors::Actors;
use super::batch::shape;
use super::define::Entity;
use super::shard::{Broken, Key, Stored, memory_of_all};
use crate::event::EntityType;
use crate::store::{EntityPosition, EntitySize, LoadedEntity, Store, StoreError};

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

/// Takes all of a type's entities into memory.
pub(super) async fn warm_up<E: Entity>(
    store: &Store,
    actors: &Arc<Actors<E>>,
    entity_type: &EntityType,
    limit_bytes: usize,
) -> Result<Warm, ColdError> {
    let EntitySize { entities, id_bytes, state_bytes } = store.entities_size(entity_type).await?;
    within(entity_type, entities, memory_of_all(entities, id_bytes, state_bytes), limit_bytes)?;
    let (mut after, mut warm): (Option<EntityPosition>, Warm) = (None, Warm::default());
    loop {
        let (page, more) = store.entities_after(entity_type, after.as_ref(), shape::<E>()).await?;
        after = page.last().map(|last| EntityPosition { canvas: last.canvas, id: last.id.clone() });
        warm.entities += page.len();
        warm.replayed += take(store, actors, entity_type, page).await?;
        let bytes = actors.ask_all(|shard| shard.bytes()).await?.iter().sum();
        within(entity_type, warm.entities, bytes, limit_bytes)?;
        if !more {
            break;
        }
    }
    if let Some((at, stored, known)) = store.entity_stranger(entity_type).await? {
        return Err(Broken(format!(
            "the repository has {stored} events of {}/{entity_type}/{}, and {known} were stored by its processor: nobody else \
             may append to the category {}",
            at.canvas, at.id, entity_type.repository()
        )).into());
    }
    Ok(warm)
}

fn within(entity_type: &EntityType, entities: usize, bytes: usize, limit_bytes: usize) -> Result<(), Broken> {
    if bytes <= limit_bytes {
        return Ok(());
    }
    let mib = |bytes: usize| bytes.div_ceil(1024 * 1024);
    Err(Broken(format!(
        "the {entities} entities of {entity_type} need about {} MiB, the limit is {} MiB: give the process more memory and \
         raise memory_limit_bytes, or keep less in their states",
        mib(bytes),
        mib(limit_bytes)
    )))
}

/// Takes entities into memory; how many events were applied for them.
async fn take<E: Entity>(
    store: &Store,
    actors: &Arc<Actors<E>>,
    entity_type: &EntityType,
    page: Vec<LoadedEntity>,
) -> Result<u64, ColdError> {
    let mut parts: Vec<Vec<LoadedEntity>> = Vec::new();
    parts.resize_with(actors.count(), Vec::new);
    for entity in page {
        let key = Key { canvas: entity.canvas, id: entity.id.clone() };
        parts[actors.of(&key)].push(entity);
    }
    let mut replayed = 0;
    for (actor, part) in parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty()) {
        let taken = actors.ask(actor, move |shard| {
            let reached = |entity: LoadedEntity| (shard.take(&stored(&entity)), entity);
            part.into_iter().map(reached).collect::<Vec<_>>()
        });
        for (reached, entity) in taken.await? {
            if reached < entity.version {
                replayed += replay(store, actors, entity_type, reached, entity).await?;
            }
        }
    }
    Ok(replayed)
}

fn stored(entity: &LoadedEntity) -> Stored {
    let snapshot = entity.snapshot.as_ref().map(|snapshot| (snapshot.state.clone(), snapshot.version));
    let key = Key { canvas: entity.canvas, id: entity.id.clone() };
    Stored { key, last: entity.last_link, snapshot }
}

/// Applies the events of an entity that are not in its snapshot; how many.
async fn replay<E: Entity>(
    store: &Store,
    actors: &Arc<Actors<E>>,
    entity_type: &EntityType,
    mut reached: i64,
    entity: LoadedEntity,
) -> Result<u64, ColdError> {
    let LoadedEntity { canvas, id, version, snapshot, .. } = entity;
    let (key, at) = (Key { canvas, id: id.clone() }, EntityPosition { canvas, id });
    let (actor, mut replayed) = (actors.of(&key), 0);
    // A snapshot that could not be read is made again from the first event on.
    let mut after = snapshot.filter(|_| reached > 0).map_or(0, |snapshot| snapshot.seq);
    while reached < version {
        let tail = store.entity_tail(entity_type, &at, after).await?;
        let Some(last) = tail.last() else { break };
        after = last.seq;
        replayed += u64::try_from(tail.len()).unwrap_or_default();
        let events: Vec<_> = tail.into_iter().map(|event| (event.name, event.payload)).collect();
        let key = key.clone();
        reached = actors.ask(actor, move |shard| shard.replay(&key, &events)).await??;
    }
    if reached != version {
        return Err(Broken(format!(
            "{canvas}/{entity_type}/{} has {version} events, and the repository gives {reached}: the log was changed or dropped \
             behind the back of its processor",
            key.id
        ))
        .into());
    }
    actors.ask(actor, move |shard| shard.measure(&key)).await?;
    Ok(replayed)
}
