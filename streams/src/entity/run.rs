//! One entity: rebuilt from what is stored of it, and taken through the events of a batch. Pure,
//! except that it counts what the batch writes: no I/O, and no clock.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cache::Key;
use super::define::{Applied, Entity, FollowUp, stored_text};
use super::envelope::InboxEvent;
use crate::machine::{EntityDecision, decide_event};
use wakeq::internals::check_json;
use wakeq::{CanvasId, Name};

/// Estimated memory of an entity besides its name and its state: its place in the map, its key, its
/// numbers.
const OVERHEAD_BYTES: usize = 256;
/// How much larger a state is in memory than as JSON, by estimate.
const STATE_FACTOR: usize = 2;
/// Maximum number of events that may follow from one event.
const FOLLOW_UPS_MAX: usize = 100;
/// Maximum bytes that a [`Question`](super::Question) or an answer adds to its content.
pub(super) const AROUND_BYTES: usize = 6 * 1024;

/// The limits of an actor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) snapshot_every: i64,
    pub(super) state_bytes: usize,
    pub(super) payload_bytes: usize,
    pub(super) attempts: u32,
    /// The memory that its entities may take.
    pub(super) memory_bytes: usize,
}

/// The decision about an event.
#[derive(Debug)]
pub(super) enum Decision {
    /// It is to be stored, as this version of the entity.
    Stored { version: i64, result: Option<String>, follow_ups: Vec<FollowUp> },
    /// It is not valid.
    Rejected(String),
    /// It was sent again, and is the latest that was decided: its outcome is sent again.
    Again,
    /// It was sent again, and is stored already.
    Done,
    /// It was read and decided before: the position of the inbox was moved back.
    Passed,
    /// The entity is erased.
    Erased,
    /// It can never be processed.
    Dead { why: String, attempts: u32 },
}

/// Why a processor can't continue until a person acts: for instance, `apply` no longer does with
/// the stored events what it did before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct FatalError(pub(super) String);

/// The stored state of an entity that is taken into memory.
#[derive(Clone, Debug)]
pub(super) struct StoredState {
    pub(super) key: Key,
    pub(super) last: i64,
    /// Its snapshot, and the snapshot's version.
    pub(super) snapshot: Option<(String, i64)>,
}

/// An entity in memory.
#[derive(Clone, Debug)]
pub(super) struct CachedEntity<S> {
    pub(super) state: S,
    /// How many events of it are in the repository.
    pub(super) version: i64,
    /// The link of the last event that was decided: stored or rejected.
    pub(super) last: i64,
    /// The version of its snapshot; 0 if it has none.
    pub(super) snapshot: i64,
    /// The estimated memory that it takes.
    pub(super) bytes: usize,
}

/// Counts what the actors write for a batch (results, follow-ups, states), and notes which of its
/// events they are processing. Shared by all of them.
#[derive(Debug)]
pub(super) struct BatchProgress {
    bytes: AtomicUsize,
    limit_bytes: usize,
    /// The indices in the batch of the events that were started last, of entities that are not
    /// done.
    at: Mutex<BTreeSet<usize>>,
}

impl BatchProgress {
    /// For a batch of this many events. A single event may write any amount.
    pub(super) fn of(events: usize, limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self::new(if events > 1 { limit_bytes } else { usize::MAX }))
    }

    fn new(limit_bytes: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), limit_bytes, at: Mutex::default() }
    }

    /// The events that actors are processing.
    pub(super) fn at(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entity moves from one of its events to the next; `None` before the first, and after the
    /// last.
    pub(super) fn goes_on(&self, from: Option<usize>, to: Option<usize>) {
        let mut at = self.at();
        at.retain(|place| Some(*place) != from);
        at.extend(to);
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn is_too_much(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.limit_bytes
    }
}

/// An entity as of its snapshot. A snapshot that this program can't read counts as none.
pub(super) fn thaw<E: Entity>(stored: &StoredState) -> CachedEntity<E::State> {
    let snapshot = stored.snapshot.as_ref().and_then(|(state, version)| {
        let read = catch_unwind(|| serde_json::from_str::<E::State>(state).ok()).ok().flatten();
        read.map(|read| (read, *version, state.len()))
    });
    let (state, version, length) = snapshot.unwrap_or_default();
    CachedEntity {
        state,
        version,
        last: stored.last,
        snapshot: version,
        bytes: memory_bytes(&stored.key, length),
    }
}

/// Applies events of the repository to an entity.
pub(super) fn replay<E: Entity>(
    key: &Key,
    mut cached: CachedEntity<E::State>,
    events: &[(Name, String)],
) -> Result<CachedEntity<E::State>, FatalError> {
    for (name, payload) in events {
        cached.state = refold::<E>(cached.state, name, payload).map_err(|why| {
            FatalError(format!(
                "event {} ({name}) of {} {}/{} can no longer be applied: {why}",
                cached.version,
                key.canvas,
                E::TYPE,
                key.id
            ))
        })?;
        cached.version += 1;
    }
    Ok(cached)
}

/// Estimates an entity's memory again, after a replay.
pub(super) fn measured<E: Entity>(key: &Key, mut cached: CachedEntity<E::State>) -> CachedEntity<E::State> {
    let length = serde_json::to_string(&cached.state).map_or(0, |state| state.len());
    cached.bytes = memory_bytes(key, length);
    cached
}

/// The estimated memory of an entity.
fn memory_bytes(key: &Key, state_bytes: usize) -> usize {
    OVERHEAD_BYTES + key.id.as_str().len() + STATE_FACTOR * state_bytes
}

/// Reads an event as an enum of `serde`: `{"name": payload}`.
fn decode<E: Entity>(name: &Name, payload: &str) -> Result<E::Event, String> {
    // A name needs no escapes.
    let text = format!("{{\"{name}\":{payload}}}");
    match catch_unwind(|| serde_json::from_str::<E::Event>(&text).map_err(|error| error.to_string())) {
        Ok(read) => read,
        Err(panic) => Err(format!("reading it panicked: {}", words(panic.as_ref()))),
    }
}

/// Applies an event that was valid before.
fn refold<E: Entity>(state: E::State, name: &Name, payload: &str) -> Result<E::State, String> {
    let event = decode::<E>(name, payload)?;
    catch_unwind(AssertUnwindSafe(|| E::apply(state, &event).state))
        .map_err(|panic| format!("apply panicked: {}", words(panic.as_ref())))
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    stored_text(text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message"))
}

/// The way of one entity through a batch.
pub(super) struct Run<'a, E: Entity> {
    before: Option<&'a CachedEntity<E::State>>,
    limits: Limits,
    written: &'a BatchProgress,
    /// Whether the state is measured after each event.
    measures: bool,
    cached: CachedEntity<E::State>,
    /// The events that were applied since `before`.
    applied: Vec<(Name, String)>,
}

impl<'a, E: Entity> Run<'a, E> {
    pub(super) fn new(
        before: Option<&'a CachedEntity<E::State>>,
        limits: Limits,
        written: &'a BatchProgress,
        measures: bool,
    ) -> Self {
        let new = || CachedEntity { state: E::State::default(), version: 0, last: 0, snapshot: 0, bytes: 0 };
        let cached = before.cloned().unwrap_or_else(new);
        Self { before, limits, written, measures, cached, applied: Vec::new() }
    }

    /// Processes the events; `None` if the batch writes too much by now.
    pub(super) fn all(
        &mut self,
        events: &[(usize, InboxEvent)],
        stored: bool,
    ) -> Result<Option<Vec<(usize, Decision)>>, FatalError> {
        let mut decisions = Vec::with_capacity(events.len());
        let mut before = None;
        for (place, event) in events {
            self.written.goes_on(before, Some(*place));
            before = Some(*place);
            decisions.push((*place, self.one(event, stored)?));
            if self.written.is_too_much() {
                return Ok(None);
            }
        }
        Ok(Some(decisions))
    }

    fn one(&mut self, event: &InboxEvent, stored: bool) -> Result<Decision, FatalError> {
        let dead = |why: &str| Decision::Dead { why: why.to_owned(), attempts: 1 };
        match decide_event(self.cached.last, event.seq - 1, event.link, stored) {
            EntityDecision::Process => self.process(event),
            EntityDecision::AnswerAgain | EntityDecision::Done | EntityDecision::Refuse
                if !event.is_repost() =>
            {
                Ok(Decision::Passed)
            }
            EntityDecision::AnswerAgain => Ok(Decision::Again),
            EntityDecision::Done => Ok(Decision::Done),
            EntityDecision::Delay => {
                Ok(dead("the event before it never arrived: its link was not assigned by a send"))
            }
            EntityDecision::Refuse => Ok(dead(
                "it is older than the latest event of the entity, and not in the repository: send it as a new event",
            )),
        }
    }

    fn process(&mut self, event: &InboxEvent) -> Result<Decision, FatalError> {
        if let Some((why, attempts)) = &event.failure {
            return Ok(Decision::Dead { why: why.clone(), attempts: *attempts });
        }
        let read = match decode::<E>(&event.name, &event.payload) {
            Ok(read) => read,
            Err(why) => {
                return Ok(self.rejected(
                    event,
                    format!("{:?} is not an event of {}: {why}", event.name.as_str(), E::TYPE),
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

    /// Validates and applies. Returns the reason of a rejection, or the message of a panic, after
    /// which the state is gone.
    fn attempt(&mut self, event: &E::Event) -> Result<Result<Applied<E::State>, String>, String> {
        let valid = catch_unwind(AssertUnwindSafe(|| E::validate(&self.cached.state, event)));
        match valid.map_err(|panic| format!("validate panicked: {}", words(panic.as_ref())))? {
            Err(rejection) => Ok(Err(rejection.reason().to_owned())),
            Ok(()) => {
                let state = std::mem::take(&mut self.cached.state);
                let applied = catch_unwind(AssertUnwindSafe(|| E::apply(state, event)));
                applied.map(Ok).map_err(|panic| format!("apply panicked: {}", words(panic.as_ref())))
            }
        }
    }

    /// Why the outcome can't be stored.
    fn fault(&mut self, applied: &Applied<E::State>) -> Option<String> {
        let limit = self.limits.payload_bytes.saturating_sub(AROUND_BYTES);
        if let Some(fault) = &applied.fault {
            return Some(stored_text(fault));
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
            let fields = event.fields();
            let length = fields.value.len();
            if length > limit {
                return Some(format!(
                    "a value that follows from it has {length} bytes, the limit is {limit}"
                ));
            }
            if fields.id.is_some() || fields.canvas.is_some() {
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

    fn stored(&mut self, event: &InboxEvent, applied: Applied<E::State>) -> Decision {
        let Applied { state, result, follow_ups, .. } = applied;
        let values: usize = follow_ups.iter().map(|follow_up| follow_up.event().fields().value.len()).sum();
        self.written.add(values + result.as_ref().map_or(0, String::len));
        self.cached.state = state;
        self.cached.version += 1;
        self.cached.last = event.link.id;
        self.applied.push((event.name.clone(), event.payload.clone()));
        Decision::Stored { version: self.cached.version, result, follow_ups }
    }

    fn rejected(&mut self, event: &InboxEvent, reason: String) -> Decision {
        self.cached.last = event.link.id;
        Decision::Rejected(stored_text(&reason))
    }

    /// Rebuilds the state that was lost in a panic.
    fn undo(&mut self) -> Result<(), FatalError> {
        let mut state = self.before.map(|before| before.state.clone()).unwrap_or_default();
        for (name, payload) in &self.applied {
            state = refold::<E>(state, name, payload).map_err(|why| {
                FatalError(format!("applying {} again did not give the same state: {why}", E::TYPE))
            })?;
        }
        self.cached.state = state;
        Ok(())
    }

    /// The state as JSON, if anything was applied.
    pub(super) fn state(&self, key: &Key) -> Result<Option<String>, FatalError> {
        if self.applied.is_empty() {
            return Ok(None);
        }
        let state = serde_json::to_string(&self.cached.state).map_err(|error| {
            FatalError(format!("the state of {}/{} is not JSON: {error}", E::TYPE, key.id))
        })?;
        self.written.add(state.len());
        Ok(Some(state))
    }

    /// The entity as it is now, and its state if that is to be written.
    pub(super) fn end(
        mut self,
        key: &Key,
        state: Option<String>,
    ) -> (CachedEntity<E::State>, Option<String>) {
        if let Some(state) = &state {
            self.cached.bytes = memory_bytes(key, state.len());
        }
        let is_due = self.cached.version - self.cached.snapshot >= self.limits.snapshot_every;
        let snapshot = state.filter(|_| is_due);
        if snapshot.is_some() {
            self.cached.snapshot = self.cached.version;
        }
        (self.cached, snapshot)
    }
}
