//! The entities of one actor: their states in memory, and what events make of them.
//!
//! A batch is worked on copies, which take the place of what is cached when the batch was committed, and are dropped when it was
//! not. No I/O, and no clock.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::define::{Applied, Entity, FollowUp, as_kept};
use super::envelope::Received;
use crate::event::{CanvasId, Name, StreamName, check_json};
use crate::machine::{Repost, repost};

/// Memory that an entity takes beside its name and its state, by estimate: its place in the map, its key, its numbers.
const OVERHEAD_BYTES: usize = 256;
/// How much larger a state is in memory than as JSON, by estimate.
const STATE_FACTOR: usize = 2;
/// Most events that may follow from one.
const FOLLOW_UPS_MAX: usize = 100;
/// What an [`Asked`](super::Asked) and an answer add to what is in them, at most.
pub(super) const AROUND_BYTES: usize = 6 * 1024;

/// An entity of a type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) canvas: CanvasId,
    pub(super) id: StreamName,
}

/// What an actor may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) snapshot_every: i64,
    pub(super) state_bytes: usize,
    pub(super) payload_bytes: usize,
    pub(super) attempts: u32,
}

/// An entity in memory.
#[derive(Clone, Debug)]
struct Kept<S> {
    state: S,
    /// How many events of it are in the repository.
    version: i64,
    /// The link of the last event that was decided upon.
    last: i64,
    /// The version of its snapshot; 0, if it has none.
    snapshot: i64,
    /// The memory that it takes, by estimate.
    bytes: usize,
}

/// What was decided about an event.
#[derive(Debug)]
pub(super) enum Decision {
    /// It is to be stored; the entity has this version with it.
    Stored { version: i64, result: Option<String>, follow_ups: Vec<FollowUp> },
    /// It is not valid.
    Rejected(String),
    /// It was decided upon before, and is the latest: its result is sent again.
    Again,
    /// It was sent again, and is stored already.
    Done,
    /// It came by before, and was decided upon then: the position of the inbox was moved back.
    Passed,
    /// It can't be processed, now or ever.
    Dead { why: String, attempts: u32 },
}

/// An entity that a batch has changed.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) key: Key,
    pub(super) version: i64,
    pub(super) last: i64,
    /// Its state as JSON, when it is to be written.
    pub(super) snapshot: Option<String>,
}

/// What an actor made of its part of a batch: decisions by their places in the batch.
#[derive(Debug, Default)]
pub(super) struct Worked {
    pub(super) decisions: Vec<(usize, Decision)>,
    pub(super) changed: Vec<Changed>,
}

/// An entity whose state can't be made of its events any more: `apply` has come to something else than before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Broken(pub(super) String);

/// What is known of an entity that is taken into memory.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) key: Key,
    pub(super) last: i64,
    /// Its snapshot, and the version of it.
    pub(super) snapshot: Option<(String, i64)>,
}

pub(super) struct Shard<E: Entity> {
    limits: Limits,
    cache: HashMap<Key, Kept<E::State>>,
    pending: HashMap<Key, Kept<E::State>>,
    bytes: usize,
    /// What is left of it for new entities.
    room_bytes: usize,
}

impl<E: Entity> Shard<E> {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, cache: HashMap::new(), pending: HashMap::new(), bytes: 0, room_bytes: 0 }
    }

    /// The memory that its entities take, by estimate.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.cache.len()
    }

    /// The state of an entity, as it was committed, and its version.
    pub(super) fn read(&self, key: &Key) -> Option<(E::State, i64)> {
        self.cache.get(key).map(|kept| (kept.state.clone(), kept.version))
    }

    /// Works through events of a batch, each entity's in their order. Nothing of it is seen before [`Self::commit`]. New
    /// entities may take `room_bytes` together; events of one that finds no room fail.
    pub(super) fn work(
        &mut self,
        events: Vec<(usize, Received)>,
        stored: bool,
        room_bytes: usize,
    ) -> Result<Worked, Broken> {
        self.pending.clear();
        self.room_bytes = room_bytes;
        let mut by_entity: BTreeMap<Key, Vec<(usize, Received)>> = BTreeMap::new();
        for (place, event) in events {
            let key = Key { canvas: event.canvas, id: event.entity.clone() };
            by_entity.entry(key).or_default().push((place, event));
        }
        let mut worked = Worked::default();
        for (key, events) in by_entity {
            self.work_entity(key, &events, stored, &mut worked)?;
        }
        Ok(worked)
    }

    /// What was worked is committed.
    pub(super) fn commit(&mut self) {
        for (key, kept) in self.pending.drain() {
            let bytes = kept.bytes;
            let before = self.cache.insert(key, kept).map_or(0, |before| before.bytes);
            self.bytes = (self.bytes + bytes).saturating_sub(before);
        }
    }

    /// What was worked is not committed.
    pub(super) fn roll_back(&mut self) {
        self.pending.clear();
    }

    pub(super) fn forget(&mut self) {
        *self = Self::new(self.limits);
    }

    fn work_entity(
        &mut self,
        key: Key,
        events: &[(usize, Received)],
        stored: bool,
        worked: &mut Worked,
    ) -> Result<(), Broken> {
        let before = self.cache.get(&key);
        let mut run = Run::<E>::new(before, self.limits, false);
        let mut decisions = run.all(events, stored)?;
        let mut state = run.state(&key)?;
        if state.as_ref().is_some_and(|state| state.len() > self.limits.state_bytes) {
            // One of them made it too large: which one, is found by measuring after each.
            run = Run::new(before, self.limits, true);
            decisions = run.all(events, stored)?;
            state = run.state(&key)?;
        }
        if before.is_none() && !has_room(&mut self.room_bytes, &key, state.as_deref()) {
            worked.decisions.extend(events.iter().map(|(place, _)| (*place, no_room())));
            return Ok(());
        }
        worked.decisions.append(&mut decisions);
        let (kept, snapshot) = run.end(&key, state);
        // Of an entity that was never valid nothing is kept.
        if kept.version > 0 && before.is_none_or(|before| before.last != kept.last) {
            worked.changed.push(Changed {
                key: key.clone(),
                version: kept.version,
                last: kept.last,
                snapshot,
            });
            self.pending.insert(key, kept);
        }
        Ok(())
    }

    /// Takes an entity into memory, as far as its snapshot goes; the version to which that is. A snapshot that this program
    /// can't read is none.
    pub(super) fn take(&mut self, stored: &Stored) -> i64 {
        let snapshot = stored.snapshot.as_ref().and_then(|(state, version)| {
            let read = catch_unwind(|| serde_json::from_str::<E::State>(state).ok()).ok().flatten();
            read.map(|read| (read, *version, state.len()))
        });
        let (state, version, length) = snapshot.unwrap_or_default();
        let bytes = memory_bytes(&stored.key, length);
        self.bytes += bytes;
        let kept = Kept { state, version, last: stored.last, snapshot: version, bytes };
        self.cache.insert(stored.key.clone(), kept);
        version
    }

    /// Applies events of the repository to an entity that was taken into memory.
    pub(super) fn replay(&mut self, key: &Key, events: &[(Name, String)]) -> Result<i64, Broken> {
        let Some(kept) = self.cache.get_mut(key) else {
            return Err(Broken(format!("{} is not in memory", key.id)));
        };
        for (name, payload) in events {
            let state = std::mem::take(&mut kept.state);
            kept.state = refold::<E>(state, name, payload).map_err(|why| {
                Broken(format!(
                    "event {} ({name}) of {} {}/{} can't be applied any more: {why}",
                    kept.version,
                    key.canvas,
                    E::TYPE,
                    key.id
                ))
            })?;
            kept.version += 1;
        }
        Ok(kept.version)
    }

    /// Estimates an entity's memory again, after a replay.
    pub(super) fn measure(&mut self, key: &Key) {
        if let Some(kept) = self.cache.get_mut(key) {
            let length = serde_json::to_string(&kept.state).map_or(0, |state| state.len());
            let bytes = memory_bytes(key, length);
            self.bytes = (self.bytes + bytes).saturating_sub(kept.bytes);
            kept.bytes = bytes;
        }
    }
}

/// Takes the room of a new entity, if there is enough.
fn has_room(room_bytes: &mut usize, key: &Key, state: Option<&str>) -> bool {
    // Of an entity that was never valid nothing is kept.
    let bytes = state.map_or(0, |state| memory_bytes(key, state.len()));
    let left = room_bytes.checked_sub(bytes);
    *room_bytes = left.unwrap_or(*room_bytes);
    left.is_some()
}

fn no_room() -> Decision {
    let why = "there is no room for another entity: memory_limit_bytes is reached; give the process more memory and raise it";
    Decision::Dead { why: why.to_owned(), attempts: 1 }
}

/// Memory that an entity takes, by estimate.
pub(super) fn memory_bytes(key: &Key, state_bytes: usize) -> usize {
    OVERHEAD_BYTES + key.id.as_str().len() + STATE_FACTOR * state_bytes
}

/// The same for many, of which the sums are known.
pub(super) fn memory_of_all(entities: usize, id_bytes: usize, state_bytes: usize) -> usize {
    entities * OVERHEAD_BYTES + id_bytes + STATE_FACTOR * state_bytes
}

/// An event as `serde` reads an enum: `{"name": payload}`.
fn decode<E: Entity>(name: &Name, payload: &str) -> Result<E::Event, String> {
    // A name needs no escapes.
    let text = format!("{{\"{name}\":{payload}}}");
    match catch_unwind(|| serde_json::from_str::<E::Event>(&text).map_err(|error| error.to_string())) {
        Ok(read) => read,
        Err(panic) => Err(format!("reading it panicked: {}", words(panic.as_ref()))),
    }
}

/// Applies an event that was valid once.
fn refold<E: Entity>(state: E::State, name: &Name, payload: &str) -> Result<E::State, String> {
    let event = decode::<E>(name, payload)?;
    catch_unwind(AssertUnwindSafe(|| E::apply(state, &event).state))
        .map_err(|panic| format!("apply panicked: {}", words(panic.as_ref())))
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    as_kept(text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message"))
}

/// One entity's way through a batch.
struct Run<'a, E: Entity> {
    before: Option<&'a Kept<E::State>>,
    limits: Limits,
    /// Whether the state is measured after each event.
    measures: bool,
    kept: Kept<E::State>,
    /// What was applied since `before`.
    applied: Vec<(Name, String)>,
}

impl<'a, E: Entity> Run<'a, E> {
    fn new(before: Option<&'a Kept<E::State>>, limits: Limits, measures: bool) -> Self {
        let new = || Kept { state: E::State::default(), version: 0, last: 0, snapshot: 0, bytes: 0 };
        let kept = before.cloned().unwrap_or_else(new);
        Self { before, limits, measures, kept, applied: Vec::new() }
    }

    fn all(&mut self, events: &[(usize, Received)], stored: bool) -> Result<Vec<(usize, Decision)>, Broken> {
        events.iter().map(|(place, event)| Ok((*place, self.one(event, stored)?))).collect()
    }

    fn one(&mut self, event: &Received, stored: bool) -> Result<Decision, Broken> {
        let dead = |why: &str| Decision::Dead { why: why.to_owned(), attempts: 1 };
        match repost(self.kept.last, event.seq - 1, event.link, stored) {
            Repost::Process => self.process(event),
            Repost::AnswerAgain | Repost::Done | Repost::Refuse if !event.is_repost() => Ok(Decision::Passed),
            Repost::AnswerAgain => Ok(Decision::Again),
            Repost::Done => Ok(Decision::Done),
            Repost::Delay => {
                Ok(dead("the event before it never came by: its link is not one that sending it has given"))
            }
            Repost::Refuse => Ok(dead(
                "it is older than the latest event of the entity, and not in the repository: send it as a new event",
            )),
        }
    }

    fn process(&mut self, event: &Received) -> Result<Decision, Broken> {
        if let Some(why) = &event.doomed {
            return Ok(Decision::Dead { why: why.clone(), attempts: 1 });
        }
        let read = match decode::<E>(&event.name, &event.payload) {
            Ok(read) => read,
            Err(why) => {
                return Ok(self.rejected(
                    event,
                    format!("{:?} is no event of {}: {why}", event.name.as_str(), E::TYPE),
                ));
            }
        };
        let mut last_words = String::new();
        for _ in 0..self.limits.attempts {
            match self.attempt(&read) {
                Ok(Ok(applied)) => match self.fault(&applied) {
                    None => return Ok(self.stored(event, applied)),
                    Some(why) => {
                        self.undo()?;
                        return Ok(Decision::Dead { why, attempts: 1 });
                    }
                },
                Ok(Err(reason)) => return Ok(self.rejected(event, reason)),
                Err(panicked) => {
                    last_words = panicked;
                    self.undo()?;
                }
            }
        }
        Ok(Decision::Dead { why: last_words, attempts: self.limits.attempts })
    }

    /// Validates and applies; the words of a rejection, or of a panic, after which the state is gone.
    fn attempt(&mut self, event: &E::Event) -> Result<Result<Applied<E::State>, String>, String> {
        let valid = catch_unwind(AssertUnwindSafe(|| E::validate(&self.kept.state, event)));
        match valid.map_err(|panic| format!("validate panicked: {}", words(panic.as_ref())))? {
            Err(rejection) => Ok(Err(rejection.reason().to_owned())),
            Ok(()) => {
                let state = std::mem::take(&mut self.kept.state);
                let applied = catch_unwind(AssertUnwindSafe(|| E::apply(state, event)));
                applied.map(Ok).map_err(|panic| format!("apply panicked: {}", words(panic.as_ref())))
            }
        }
    }

    /// Why what was applied can't be kept.
    fn fault(&mut self, applied: &Applied<E::State>) -> Option<String> {
        let limit = self.limits.payload_bytes.saturating_sub(AROUND_BYTES);
        if let Some(fault) = &applied.fault {
            return Some(as_kept(fault));
        }
        if applied.follow_ups.len() > FOLLOW_UPS_MAX {
            return Some(format!(
                "{} events follow from it, the limit is {FOLLOW_UPS_MAX}",
                applied.follow_ups.len()
            ));
        }
        if let Some(result) = &applied.result {
            if let Err(error) = check_json(result) {
                return Some(format!("its result can't be kept: {error}"));
            }
            if result.len() > limit {
                return Some(format!("its result has {} bytes, the limit is {limit}", result.len()));
            }
        }
        for event in applied.follow_ups.iter().map(FollowUp::event) {
            if event.value.len() > limit {
                return Some(format!(
                    "a value that follows from it has {} bytes, the limit is {limit}",
                    event.value.len()
                ));
            }
            if event.id.is_some() || event.canvas.is_some() {
                return Some(
                    "an event that follows from another has no id and no canvas of its own".to_owned(),
                );
            }
            if let Err(error) = event.log_stream(CanvasId::DEFAULT) {
                return Some(format!("an event that follows from it can't be logged: {error}"));
            }
        }
        if self.measures {
            let length = serde_json::to_string(&applied.state).map_or(usize::MAX, |state| state.len());
            let limit = self.limits.state_bytes;
            return (length > limit)
                .then(|| format!("the state would have {length} bytes, the limit is {limit}"));
        }
        None
    }

    fn stored(&mut self, event: &Received, applied: Applied<E::State>) -> Decision {
        let Applied { state, result, follow_ups, .. } = applied;
        self.kept.state = state;
        self.kept.version += 1;
        self.kept.last = event.link.id;
        self.applied.push((event.name.clone(), event.payload.clone()));
        Decision::Stored { version: self.kept.version, result, follow_ups }
    }

    fn rejected(&mut self, event: &Received, reason: String) -> Decision {
        self.kept.last = event.link.id;
        Decision::Rejected(as_kept(&reason))
    }

    /// Makes the state again that a panic has taken away.
    fn undo(&mut self) -> Result<(), Broken> {
        let mut state = self.before.map(|before| before.state.clone()).unwrap_or_default();
        for (name, payload) in &self.applied {
            state = refold::<E>(state, name, payload)
                .map_err(|why| Broken(format!("{} is not applied twice to the same: {why}", E::TYPE)))?;
        }
        self.kept.state = state;
        Ok(())
    }

    /// The state as JSON, if anything was applied.
    fn state(&self, key: &Key) -> Result<Option<String>, Broken> {
        if self.applied.is_empty() {
            return Ok(None);
        }
        let state = serde_json::to_string(&self.kept.state);
        state
            .map(Some)
            .map_err(|error| Broken(format!("the state of {}/{} is no JSON: {error}", E::TYPE, key.id)))
    }

    /// The entity as it is now, and its state, if that is to be written.
    fn end(mut self, key: &Key, state: Option<String>) -> (Kept<E::State>, Option<String>) {
        if let Some(state) = &state {
            self.kept.bytes = memory_bytes(key, state.len());
        }
        let is_due = self.kept.version - self.kept.snapshot >= self.limits.snapshot_every;
        let snapshot = state.filter(|_| is_due);
        if snapshot.is_some() {
            self.kept.snapshot = self.kept.version;
        }
        (self.kept, snapshot)
    }
}
