//! Loads entities into memory: as many as fit when a type gets an owner, and those that are missing
//! when events for them arrive.
//!
//! An entity is in memory only if it is what the repository says: it has as many events as its
//! stream. Each statement and each page is bounded, however many entities there are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::actors::{Actors, died};
use super::batch::shape;
use super::cache::Key;
use super::define::Entity;
use super::run::{CachedEntity, FatalError, StoredState, measured, replay, thaw};
use crate::event::EntityType;
use crate::store::{EntityPosition, LoadedEntity, Store, TAIL_ROWS, WantedTail};
use wakeq::log::StreamName;
use wakeq::{CanvasId, Name, StoreError};

/// A start reads at most this many times what fits into memory, because later reads evict earlier
/// ones.
const READS_MAX: usize = 2;

/// Why entities could not be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    /// It may succeed later.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A person has to act first.
    #[error(transparent)]
    Fatal(#[from] FatalError),
}

/// The number of entities that were loaded, and of events that were replayed for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoadReport {
    pub(super) entities: usize,
    /// Events that were applied again, because they are in no snapshot.
    pub(super) replayed: u64,
}

/// How far loading a type's entities has come. After an error it continues from there.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadProgress {
    after: Option<EntityPosition>,
    read_bytes: usize,
    replayed: u64,
}

impl LoadProgress {
    /// Whether nothing is loaded yet.
    pub(super) fn begins(&self) -> bool {
        self.after.is_none()
    }
}

/// An entity whose last events are in no snapshot.
struct PendingReplay<S> {
    key: Key,
    cached: CachedEntity<S>,
    /// The `seq` of the last event that is in its state.
    after: i64,
    version: i64,
}

/// Where entities are loaded from, and where to.
pub(super) struct Loader<'a, E: Entity> {
    pub(super) store: &'a Store,
    pub(super) actors: &'a Actors<E>,
    pub(super) entity_type: &'a EntityType,
    /// Maximum bytes of states per read, and of events.
    pub(super) page_bytes: usize,
    /// How long one read of states, or applying events again, may take.
    pub(super) stall: Duration,
}

impl<E: Entity> Loader<'_, E> {
    /// Loads a type's entities, as far as there is room, after those that were loaded before. The
    /// rest of a canvas that evicts its own entities is skipped.
    pub(super) async fn warm_up(
        &self,
        limit_bytes: usize,
        so_far: &mut LoadProgress,
    ) -> Result<LoadReport, LoadError> {
        loop {
            let (page, more) = self
                .store
                .entities_after(self.entity_type, so_far.after.as_ref(), shape::<E>(), self.page_bytes)
                .await?;
            let last =
                page.last().map(|last| EntityPosition { canvas: last.canvas, id: Some(last.id.clone()) });
            let bytes: usize = page.iter().map(LoadedEntity::state_bytes).sum();
            so_far.replayed += self.take(page).await?;
            so_far.read_bytes = so_far.read_bytes.saturating_add(bytes);
            let sizes = self.actors.ask_all(|shard| shard.trim()).await?;
            let Some(last) = last.filter(|_| more) else { break };
            if so_far.read_bytes / READS_MAX > limit_bytes {
                self.mark_partial(None).await?;
                break;
            }
            so_far.after = Some(if sizes.iter().any(|size| size.evicted.last == Some(last.canvas)) {
                self.mark_partial(Some(last.canvas)).await?;
                match next(last.canvas) {
                    Some(canvas) => EntityPosition { canvas, id: None },
                    None => break,
                }
            } else {
                last
            });
        }
        let sizes = self.actors.ask_all(|shard| shard.size()).await?;
        Ok(LoadReport { entities: sizes.iter().map(|size| size.entities).sum(), replayed: so_far.replayed })
    }

    /// Loads these entities, as far as a page goes. Returns how many of them were looked up, at
    /// least one.
    pub(super) async fn load(&self, keys: &[Key]) -> Result<usize, LoadError> {
        let keys: Vec<(CanvasId, &StreamName)> = keys.iter().map(|key| (key.canvas, &key.id)).collect();
        let found = self.store.entities_of(self.entity_type, &keys, shape::<E>(), self.page_bytes).await?;
        let looked_up = found.len();
        self.take(found).await?;
        Ok(looked_up)
    }

    /// An entity as it was committed, without taking it into memory; `None` if it does not exist.
    pub(super) async fn show(&self, key: &Key) -> Result<Option<(E::State, i64)>, LoadError> {
        let keys = [(key.canvas, &key.id)];
        let mut found =
            self.store.entities_of(self.entity_type, &keys, shape::<E>(), self.page_bytes).await?;
        let Some(entity) = found.pop().filter(|found| found.version > 0) else { return Ok(None) };
        self.check_version(&entity)?;
        let stored = stored(&entity);
        let cached =
            self.within(key, self.actors.ask(self.actors.of(key), move |_| thaw::<E>(&stored))).await?;
        let (mut whole, _) = self.replay(vec![pending_replay(cached, &entity)]).await?;
        Ok(whole.pop().map(|(_, cached)| (cached.state, cached.version)))
    }

    async fn mark_partial(&self, canvas: Option<CanvasId>) -> Result<(), FatalError> {
        self.actors.ask_all(move |shard| shard.mark_partial(canvas)).await.map(drop)
    }

    /// Takes entities into memory. Returns how many events were applied for them.
    async fn take(&self, found: Vec<LoadedEntity>) -> Result<u64, LoadError> {
        let mut parts: Vec<Vec<LoadedEntity>> = Vec::new();
        parts.resize_with(self.actors.count(), Vec::new);
        for entity in found {
            self.check_version(&entity)?;
            if entity.version > 0 {
                parts[self.actors.of(&key(&entity))].push(entity);
            }
        }
        let mut late = Vec::new();
        for (actor, part) in parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            let at = Arc::new(Mutex::new(part.first().map(key)));
            let now = Arc::clone(&at);
            let taken = self.actors.ask(actor, move |shard| {
                let mut late = Vec::new();
                for entity in part {
                    *now.lock().unwrap_or_else(PoisonError::into_inner) = Some(key(&entity));
                    let cached = thaw::<E>(&stored(&entity));
                    if cached.version == entity.version {
                        shard.keep(key(&entity), cached);
                    } else {
                        late.push(pending_replay(cached, &entity));
                    }
                }
                late
            });
            let Ok(taken) = tokio::time::timeout(self.stall, taken).await else {
                let at = at.lock().unwrap_or_else(PoisonError::into_inner).clone();
                return Err(at.map_or_else(died, |key| self.hang_error(&key)).into());
            };
            late.append(&mut taken?);
        }
        let (whole, replayed) = self.replay(late).await?;
        for (key, cached) in whole {
            self.actors.ask(self.actors.of(&key), move |shard| shard.keep(key, cached)).await?;
        }
        Ok(replayed)
    }

    /// Applies the events that are in no snapshot, for all these entities together. Returns the
    /// entities and the number of events.
    async fn replay(
        &self,
        late: Vec<PendingReplay<E::State>>,
    ) -> Result<(Vec<(Key, CachedEntity<E::State>)>, u64), LoadError> {
        let (mut late, mut whole, mut replayed) = (VecDeque::from(late), Vec::new(), 0);
        loop {
            while let Some(one) = late.pop_front_if(|one| one.cached.version == one.version) {
                let PendingReplay { key, cached, .. } = one;
                let of = key.clone();
                let measuring = self.actors.ask(self.actors.of(&key), move |_| measured::<E>(&of, cached));
                let cached = self.within(&key, measuring).await?;
                whole.push((key, cached));
            }
            if late.is_empty() {
                return Ok((whole, replayed));
            }
            let mut tails = self.tails(wanted(&late)).await?;
            replayed += tails.iter().map(|tail| u64::try_from(tail.len()).unwrap_or_default()).sum::<u64>();
            let first = tails.first().is_none_or(Vec::is_empty);
            if let Some(one) = late.front().filter(|_| first) {
                return Err(self.missing_events_error(one).into());
            }
            for tail in tails.iter_mut().map(std::mem::take) {
                let Some(one) = late.pop_front() else { break };
                late.push_back(self.refold(one, tail).await?);
            }
        }
    }

    /// These events, by their entities, in one statement.
    async fn tails(&self, wanted: Vec<WantedTail>) -> Result<Vec<Tail>, LoadError> {
        let mut tails: Vec<Tail> = vec![Vec::new(); wanted.len()];
        for (place, event) in self.store.entity_tails(self.entity_type, &wanted, self.page_bytes).await? {
            if let Some(tail) = tails.get_mut(place) {
                tail.push((event.seq, event.name, event.payload));
            }
        }
        Ok(tails)
    }

    async fn refold(
        &self,
        one: PendingReplay<E::State>,
        tail: Tail,
    ) -> Result<PendingReplay<E::State>, LoadError> {
        let PendingReplay { key, cached, after, version } = one;
        let Some((last, ..)) = tail.last() else { return Ok(PendingReplay { key, cached, after, version }) };
        let after = *last;
        // If the events crash the process, the last of these lines names the entity.
        tracing::debug!(
            entity_type = E::TYPE, canvas = %key.canvas, entity = %key.id, events = tail.len(),
            "stored events of an entity are applied again"
        );
        let events: Vec<_> = tail.into_iter().map(|(_, name, payload)| (name, payload)).collect();
        let of = key.clone();
        let replaying = self.actors.ask(self.actors.of(&key), move |_| replay::<E>(&of, cached, &events));
        let cached = self.within(&key, replaying).await??;
        Ok(PendingReplay { key, cached, after, version })
    }

    /// The answer of an actor that runs the author's code for an entity; an error if that hangs.
    async fn within<T>(
        &self,
        key: &Key,
        asked: impl Future<Output = Result<T, FatalError>>,
    ) -> Result<T, FatalError> {
        tokio::time::timeout(self.stall, asked).await.unwrap_or_else(|_| Err(self.hang_error(key)))
    }

    fn hang_error(&self, key: &Key) -> FatalError {
        FatalError(format!(
            "rebuilding {}/{}/{} from what is stored of it has not ended within {:?}: `apply`, or \
             the code that reads its state, hangs; deploy a program in which it does not, then \
             `wakeq groups recover entities.{}`",
            key.canvas, self.entity_type, key.id, self.stall, self.entity_type
        ))
    }

    fn missing_events_error(
        &self,
        PendingReplay { key, cached, version, .. }: &PendingReplay<E::State>,
    ) -> FatalError {
        FatalError(format!(
            "{}/{}/{} has {version} events, and the repository gives {}: the log was changed or \
             dropped by something other than its processor",
            key.canvas, self.entity_type, key.id, cached.version
        ))
    }

    /// Checks that no one but its processor has appended to its repository.
    fn check_version(&self, entity: &LoadedEntity) -> Result<(), FatalError> {
        let LoadedEntity { canvas, id, version, stored, .. } = entity;
        if version == stored {
            return Ok(());
        }
        Err(FatalError(format!(
            "the repository has {stored} events of {canvas}/{}/{id}, and {version} were stored by \
             its processor: only the processor may append to the category {}",
            self.entity_type,
            self.entity_type.repository()
        )))
    }
}

/// Events of one entity, with their `seq`s.
type Tail = Vec<(i64, Name, String)>;

/// The next events of the first of these entities, as many as one statement reads.
fn wanted<S>(late: &VecDeque<PendingReplay<S>>) -> Vec<WantedTail> {
    let (mut room, mut wanted) = (TAIL_ROWS, Vec::new());
    for PendingReplay { key, cached, after, version } in late {
        let most = usize::try_from(version - cached.version).unwrap_or_default().min(room);
        if most == 0 {
            break;
        }
        room -= most;
        wanted.push(WantedTail { canvas: key.canvas, id: key.id.clone(), after: *after, most });
    }
    wanted
}

/// An entity as of its snapshot. If that could not be read, the entity is rebuilt from the first
/// event on.
fn pending_replay<S>(cached: CachedEntity<S>, entity: &LoadedEntity) -> PendingReplay<S> {
    let after = entity.snapshot.as_ref().filter(|_| cached.version > 0).map_or(0, |snapshot| snapshot.seq);
    PendingReplay { key: key(entity), cached, after, version: entity.version }
}

/// The next canvas, in the order in which they are read.
fn next(canvas: CanvasId) -> Option<CanvasId> {
    canvas.0.as_u128().checked_add(1).map(|next| CanvasId(Uuid::from_u128(next)))
}

fn key(entity: &LoadedEntity) -> Key {
    Key { canvas: entity.canvas, id: entity.id.clone() }
}

fn stored(entity: &LoadedEntity) -> StoredState {
    let snapshot = entity.snapshot.as_ref().map(|snapshot| (snapshot.state.clone(), snapshot.version));
    StoredState { key: key(entity), last: entity.last_link, snapshot }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity::define::{Applied, Rejection};
    use crate::entity::run::Limits;
    use crate::entity::shard::CacheLookup;
    use crate::store::tests::Table;

    const OTHER: CanvasId = CanvasId(Uuid::from_u128(7));

    struct Adder;

    impl Entity for Adder {
        const TYPE: &'static str = "adder";
        type State = i64;
        type Event = Step;

        fn validate(_: &i64, _: &Step) -> Result<(), Rejection> {
            Ok(())
        }

        fn apply(sum: i64, Step::Adds(number): &Step) -> Applied<i64> {
            Applied::new(sum + number)
        }
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Step {
        Adds(i64),
    }

    fn actors() -> Actors<Adder> {
        let (memory_bytes, state_bytes, payload_bytes) = (1 << 30, 1 << 20, 1 << 20);
        let limits = Limits { snapshot_every: 100, state_bytes, payload_bytes, attempts: 1, memory_bytes };
        Actors::start(2, limits).unwrap()
    }

    async fn sum(actors: &Actors<Adder>, canvas: CanvasId, n: i64) -> Option<(i64, i64)> {
        let key = Key { canvas, id: format!("e{n:04}").parse().unwrap() };
        match actors.ask(actors.of(&key), move |shard| shard.read(&key)).await.unwrap() {
            CacheLookup::Cached(sum, version) => Some((sum, version)),
            CacheLookup::Cold | CacheLookup::Absent => None,
        }
    }

    /// The events that are in no snapshot are read for many entities together, and a start that was
    /// interrupted by an error continues where it was: entities in memory are not read again.
    // Shows: ENT-X3
    #[tokio::test]
    async fn an_interrupted_load_resumes_where_it_stopped() {
        let table = Table::new().await;
        table.add_adders().await;
        let (actors, entity_type) = (actors(), "adder".parse().unwrap());
        let stall = Duration::from_secs(30);
        let (store, page_bytes) = (&table.store, 2_000);
        let loader = Loader { store, actors: &actors, entity_type: &entity_type, page_bytes, stall };
        let mut so_far = LoadProgress::default();
        // At first nothing can be read.
        let away = table.without_streams().await;
        assert!(loader.warm_up(usize::MAX, &mut so_far).await.is_err());
        assert!(so_far.begins());
        away.rollback().await.unwrap();
        // One on the last page does not match its repository.
        table.add_to_version(OTHER, "e0299", 1).await;
        assert!(matches!(loader.warm_up(usize::MAX, &mut so_far).await, Err(LoadError::Fatal(_))));
        assert!(!so_far.begins());
        table.add_to_version(OTHER, "e0299", -1).await;
        // If the first page were read again, this one would be missing.
        table.remove_adder(CanvasId::DEFAULT, "e0006").await;
        let warm = loader.warm_up(usize::MAX, &mut so_far).await.unwrap();
        assert_eq!(warm.entities, 600);
        for n in 1..=300 {
            assert_eq!(sum(&actors, CanvasId::DEFAULT, n).await, Some((100 + n % 7, 1 + n % 7)), "{n}");
            let second = sum(&actors, OTHER, n).await;
            assert_eq!(second, Some((200 + 2 * (n % 7), 1 + n % 7)), "{n} of the other canvas");
        }
    }
}
