//! In-memory tables for the test kit: they do what the SQL does, each statement at one moment of a
//! clock that only a test moves. Nothing else may use them. Beside them its clock on Postgres.
//!
//! These tables and Postgres do not implement a common trait. A statement that tests of handlers
//! need has a function of the same name here, and the seam above chooses between the two; any other
//! statement fails. Both completions are one function. `tests/it/testing/agreement.rs` runs the
//! same steps on both.

mod batch_row;
mod batches;
mod checkpoints;
mod dead;
mod history;
mod inserts;
mod keys;
mod lanes;
mod limit_lists;
mod limit_rows;
mod limit_waking;
mod limits;
mod lists;
mod operations;
mod row;
mod rules;
mod runs;
mod shift;
mod targets;
mod unique;
mod waking;
mod workers;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use chrono::SubsecRound;

use crate::event::{
    CanvasId, EventId, HandlerAddress, HandlerScope, Lane, NewEvent, ObjectKey, Operation, OperationId,
    RuleKind, Timestamp, Timing,
};
use crate::store::batches::BatchKey;
use crate::store::events::{AttemptRecord, Rule};
use crate::store::kernel::{Double, Store, StoreError};
use crate::store::order::{HaltedLane, Object, Tombstone};
use batch_row::Batch;
use keys::Keys;
use limit_rows::Limits;
use row::{Dead, Ended, LiveRow};

/// How many of the most recently emitted events are remembered.
const EMITTED_MAX: usize = 100_000;
/// Maximum number of waiting events.
const EVENTS_MAX: usize = 1_000_000;

/// The test kit's part of a store, shared by all clones of the store.
#[derive(Debug, Default)]
struct Kit {
    /// Used instead of Postgres.
    memory: Option<Memory>,
    emitted: Mutex<VecDeque<Arc<NewEvent>>>,
}

impl Double for Kit {
    fn has_tables(&self) -> bool {
        self.memory.is_some()
    }
}

/// Tables that one statement at a time uses.
#[derive(Debug)]
pub(in crate::store) struct Memory(Mutex<Tables>);

impl Memory {
    /// Locks them, until the guard is dropped. It must not live across an `await`.
    pub(in crate::store) fn tables(&self) -> MutexGuard<'_, Tables> {
        locked(&self.0)
    }
}

/// The rows and the clock.
#[derive(Debug)]
pub(in crate::store) struct Tables {
    timing: Timing,
    now: Timestamp,
    events: BTreeMap<EventId, LiveRow>,
    rules: BTreeMap<(HandlerScope, RuleKind), Rule>,
    dead: BTreeMap<EventId, Dead>,
    attempts: BTreeMap<(CanvasId, EventId), Vec<AttemptRecord>>,
    ended: BTreeMap<EventId, Ended>,
    /// Ids that callers chose: for which handler, and since when.
    chosen: HashMap<EventId, ChosenId>,
    unknown: BTreeMap<HandlerAddress, UnknownHandler>,
    jobs: BTreeMap<i64, Job>,
    last_job: i64,
    operations: BTreeMap<OperationId, Operation>,
    /// The jobs of those that have not ended.
    operation_jobs: BTreeMap<i64, OperationJob>,
    keys: HashMap<(CanvasId, String, String), KeptAnswer>,
    unique: Keys,
    limits: Limits,
    batches: BTreeMap<BatchKey, Batch>,
    objects: BTreeMap<(CanvasId, ObjectKey), Object>,
    /// The last value of the sequence for links.
    last_seq: i64,
    halted: BTreeMap<Lane, HaltedLane>,
    tombstones: BTreeMap<(CanvasId, ObjectKey, i64), Tombstone>,
    next_pass_at: Timestamp,
}

#[derive(Clone, Debug)]
struct ChosenId {
    scope: HandlerScope,
    emitted_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct UnknownHandler {
    first_seen: Timestamp,
    last_seen: Timestamp,
}

/// Wakes a handler's events: the parked ones, or those that were deferred for lack of the handler.
#[derive(Clone, Debug)]
struct Job {
    scope: HandlerScope,
    lifted: bool,
    created_at: Timestamp,
}

/// Carries an operation on: does it, and then ends it.
#[derive(Clone, Debug)]
struct OperationJob {
    id: OperationId,
    /// The events that it names, if it has no filter.
    ids: Option<Vec<EventId>>,
    is_done: bool,
}

#[derive(Clone, Debug)]
struct KeptAnswer {
    fingerprint: Vec<u8>,
    answer: String,
    created_at: Timestamp,
}

impl Store {
    /// A store in memory. Its clock starts at the system's time, and moves only when it is
    /// advanced.
    pub(crate) fn in_memory(timing: Timing) -> Result<Self, StoreError> {
        timing.check()?;
        // In microseconds, as Postgres has times, and cursors.
        let now = Timestamp::from(SystemTime::now()).trunc_subsecs(6);
        let memory = Memory(Mutex::new(Tables::new(timing.clone(), now)));
        Ok(Self::nowhere(timing).with_double(Kit { memory: Some(memory), ..Kit::default() }))
    }

    /// This store, remembering what is emitted through it.
    pub(crate) fn remembering(self) -> Self {
        self.with_double(Kit::default())
    }

    /// The last 100,000 events that were emitted through this store and its clones.
    pub(crate) fn emitted(&self) -> Vec<Arc<NewEvent>> {
        self.kit().map(|kit| locked(&kit.emitted).iter().cloned().collect()).unwrap_or_default()
    }

    /// Remembers an event whose row is committed.
    pub(crate) fn remember(&self, event: &NewEvent) {
        let Some(kit) = self.kit() else { return };
        let mut emitted = locked(&kit.emitted);
        if emitted.len() == EMITTED_MAX {
            emitted.pop_front();
        }
        emitted.push_back(Arc::new(event.clone()));
    }

    /// The tables in memory, if they are used instead of Postgres.
    pub(in crate::store) fn memory(&self) -> Option<&Memory> {
        self.kit()?.memory.as_ref()
    }

    fn kit(&self) -> Option<&Kit> {
        self.double()?.downcast_ref()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tables {
    fn new(timing: Timing, now: Timestamp) -> Self {
        Self {
            timing,
            now,
            events: BTreeMap::new(),
            rules: BTreeMap::new(),
            dead: BTreeMap::new(),
            attempts: BTreeMap::new(),
            ended: BTreeMap::new(),
            chosen: HashMap::new(),
            unknown: BTreeMap::new(),
            jobs: BTreeMap::new(),
            last_job: 0,
            operations: BTreeMap::new(),
            operation_jobs: BTreeMap::new(),
            keys: HashMap::new(),
            unique: Keys::default(),
            limits: Limits::default(),
            batches: BTreeMap::new(),
            objects: BTreeMap::new(),
            last_seq: 0,
            halted: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            next_pass_at: now,
        }
    }

    pub(super) fn clock(&self) -> Result<Timestamp, StoreError> {
        Ok(self.now)
    }

    /// Moves the clock.
    pub(super) fn advance(&mut self, by: Duration) -> Result<(), StoreError> {
        let too_far = StoreError::Config("the clock would pass the year 9999: advance it by less");
        let by = chrono::TimeDelta::from_std(by).map_err(|_| too_far.clone())?;
        let now = self.now.checked_add_signed(by).filter(|now| crate::event::is_storable(*now));
        self.now = now.ok_or(too_far)?;
        Ok(())
    }

    /// As [`Store::next_moment`].
    pub(super) fn next_moment(&self, after: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let rows = self.events.values().map(|row| match row.locked_at {
            // A lease is over after its last moment, not at it.
            Some(locked_at) => locked_at + self.timing.lease + Duration::from_micros(1),
            None => row.delay_until,
        });
        let ends = self.rules.values().filter_map(|rule| rule.until);
        Ok(rows.chain(ends).chain(self.limit_moments()).filter(|moment| *moment > after).min())
    }

    pub(super) fn count(&self) -> Result<u64, StoreError> {
        Ok(self.events.len() as u64)
    }

    /// When an event has to be woken: `wakeq.wake_at`.
    fn wake_at(&self, due: Timestamp, wait: Duration) -> Timestamp {
        let horizon = self.timing.horizon;
        if due > self.now + horizon { due - horizon } else { due.max(self.now) + wait }
    }

    /// Whether the event is not running.
    fn is_free(&self, row: &LiveRow) -> bool {
        row.locked_at.is_none_or(|locked_at| locked_at < self.now - self.timing.lease)
    }

    fn is_due_soon(&self, row: &LiveRow) -> bool {
        row.delay_until <= self.now + self.timing.horizon
    }

    fn make_job(&mut self, scope: HandlerScope, lifted: bool) -> i64 {
        self.last_job += 1;
        self.jobs.insert(self.last_job, Job { scope, lifted, created_at: self.now });
        self.last_job
    }
}
