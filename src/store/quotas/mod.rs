//! Quotas of what canvases keep: the check before something is added, what it remembers, and its
//! statements.
//!
//! What may be numerous is measured now and then, without a running count in the database: an emit
//! far from its quota sends no additional statement. The check refuses before anything is written,
//! and uses a clock of its own only to decide when to measure again.

mod headroom;
mod known;
mod limits;
mod measure;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::postgres::PgConnection;
use tokio::time::Instant;

use super::{Store, StoreError};
use crate::event::{CanvasId, NewEvent, ObjectKey, Quota, QuotaExceeded, StreamId};
use headroom::{Headroom, Measurement, Pair, Verdict};
pub use limits::QuotaUse;
pub use measure::default_quota;

/// Most measurements that are remembered at a time: one per canvas and pair of quotas.
const KNOWN_MAX: usize = 50_000;

/// Two quotas that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum QuotaPair {
    Waiting,
    Objects,
    Log,
    Entities,
}

impl QuotaPair {
    const ALL: [Self; 4] = [Self::Waiting, Self::Objects, Self::Log, Self::Entities];

    /// Objects have only one.
    pub(crate) fn quotas(self) -> [Option<Quota>; 2] {
        match self {
            Self::Waiting => [Some(Quota::Events), Some(Quota::EventBytes)],
            Self::Objects => [Some(Quota::Objects), None],
            Self::Log => [Some(Quota::LogStreams), Some(Quota::LogBytes)],
            Self::Entities => [Some(Quota::Entities), Some(Quota::EntityEvents)],
        }
    }

    /// What each process may add on a canvas before it measures for the first time.
    fn free(self) -> Pair {
        const MIB: u64 = 1024 * 1024;
        match self {
            Self::Waiting | Self::Log => [1_000, 16 * MIB],
            Self::Objects => [1_000, u64::MAX],
            Self::Entities => [1_000, 1_000],
        }
    }
}

/// What a call is about to add on one canvas.
#[derive(Debug, Default)]
pub struct Additions<'a> {
    events: u64,
    event_bytes: u64,
    objects: BTreeSet<&'a ObjectKey>,
    streams: BTreeSet<&'a StreamId>,
    log_bytes: u64,
    /// Pairs of type and id.
    entities: BTreeSet<(&'a str, &'a str)>,
    entity_events: u64,
}

impl<'a> Additions<'a> {
    /// What emitting these events adds, per canvas.
    pub(crate) fn by(events: &'a [NewEvent]) -> BTreeMap<CanvasId, Self> {
        let mut all: BTreeMap<CanvasId, Self> = BTreeMap::new();
        for event in events {
            let added = all.entry(event.address.scope.canvas).or_default();
            let bytes = bytes(event.value.len());
            added.events += 1;
            added.event_bytes += bytes;
            added.objects.extend(&event.object);
            if let Some(stream) = &event.logged {
                added.streams.insert(stream);
                added.log_bytes += bytes;
            }
        }
        all
    }

    /// Adds what a call appends to a stream of the log.
    pub(crate) fn append(&mut self, stream: &'a StreamId, size_bytes: usize) {
        self.streams.insert(stream);
        self.log_bytes += bytes(size_bytes);
    }

    /// Adds an event to an entity.
    pub fn send(&mut self, entity_type: &'a str, entity: &'a str, size_bytes: usize) {
        self.entities.insert((entity_type, entity));
        self.entity_events += 1;
        self.log_bytes += bytes(size_bytes);
    }

    fn pairs(&self) -> [(QuotaPair, Pair); 4] {
        let count = |set: usize| u64::try_from(set).unwrap_or(u64::MAX);
        [
            (QuotaPair::Waiting, [self.events, self.event_bytes]),
            (QuotaPair::Objects, [count(self.objects.len()), 0]),
            (QuotaPair::Log, [count(self.streams.len()), self.log_bytes]),
            (QuotaPair::Entities, [count(self.entities.len()), self.entity_events]),
        ]
    }
}

fn bytes(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// What this process knows of how much canvases keep.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    known: Mutex<HashMap<(CanvasId, QuotaPair), Arc<KnownUsage>>>,
}

#[derive(Debug, Default)]
struct KnownUsage {
    headroom: Mutex<Headroom>,
    /// Held while measuring.
    measuring: tokio::sync::Mutex<()>,
}

impl KnownUsage {
    fn with<T>(&self, act: impl FnOnce(&mut Headroom) -> T) -> T {
        act(&mut self.headroom.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Quotas {
    fn of(&self, canvas: CanvasId, measured: QuotaPair) -> Arc<KnownUsage> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&(canvas, measured)) {
            return Arc::clone(found);
        }
        if known.len() >= KNOWN_MAX {
            // Forgotten canvases are measured again once they have added something.
            known.clear();
        }
        Arc::clone(known.entry((canvas, measured)).or_default())
    }

    /// Makes sure that a canvas is measured again before anything is added.
    fn forget(&self, canvas: CanvasId) {
        for measured in QuotaPair::ALL {
            self.of(canvas, measured).with(Headroom::forget);
        }
    }
}

impl Store {
    /// Whether a canvas has room for all of this; if so, it counts as added. Errors:
    /// [`StoreError::Quota`].
    #[doc(hidden)]
    pub async fn admit(&self, canvas: CanvasId, added: &Additions<'_>) -> Result<(), StoreError> {
        #[cfg(feature = "testing")]
        if self.tables().is_some() {
            return Ok(());
        }
        for (measured, wanted) in added.pairs() {
            if wanted != [0, 0] {
                self.admit_pair(canvas, measured, wanted, added).await?;
            }
        }
        Ok(())
    }

    async fn admit_pair(
        &self,
        canvas: CanvasId,
        measured: QuotaPair,
        wanted: Pair,
        added: &Additions<'_>,
    ) -> Result<(), StoreError> {
        let known = self.quotas.of(canvas, measured);
        let (mut wanted, mut exact) = (wanted, false);
        loop {
            match known.with(|headroom| headroom.ask(wanted, measured.free(), Instant::now())) {
                Verdict::Go => return Ok(()),
                Verdict::GoAndMeasure => {
                    self.measure_in_background(canvas, measured, &known);
                    return Ok(());
                }
                Verdict::Measure => self.remeasure(canvas, measured, &known).await,
                Verdict::Wait(until) => tokio::time::sleep_until(until).await,
                // What already exists needs no room; that is only looked up when room is short.
                Verdict::Full(0) if !exact && measured != QuotaPair::Waiting => {
                    wanted[0] = self.count_new(canvas, measured, added).await?;
                    exact = true;
                    if wanted == [0, 0] {
                        return Ok(());
                    }
                }
                Verdict::Full(which) => return refusal(canvas, measured, &known, wanted, which),
            }
        }
    }

    fn measure_in_background(&self, canvas: CanvasId, measured: QuotaPair, known: &Arc<KnownUsage>) {
        if known.measuring.try_lock().is_ok() {
            let (store, known) = (self.clone(), Arc::clone(known));
            tokio::spawn(async move { store.remeasure(canvas, measured, &known).await });
        }
    }

    /// Measures, unless another caller has just done so. If that fails, the last measurement stays
    /// valid for a while (if there is none, a default allowance): quotas must not stop anything for
    /// lack of an answer.
    async fn remeasure(&self, canvas: CanvasId, measured: QuotaPair, known: &KnownUsage) {
        let asked = Instant::now();
        let _measuring = known.measuring.lock().await;
        let (spent, before) = known.with(|headroom| (headroom.spent(), headroom.measurement().copied()));
        if before.is_some_and(|measurement| measurement.at >= asked) {
            return;
        }
        let at = Instant::now();
        let measuring = self.measure(canvas, measured).await;
        let took = at.elapsed();
        let measurement = match measuring {
            Ok((used, limits)) => Measurement { at, took, used, limits },
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, %canvas, "the usage of a canvas could not be measured: its \
                                                quotas wait for the next measurement");
                let unknown = Measurement {
                    at,
                    took,
                    used: [0, 0],
                    limits: measured.free().map(|free| 8 * free.min(1 << 40)),
                };
                before.map_or(unknown, |measurement| Measurement { at, took, ..measurement })
            }
        };
        known.with(|headroom| headroom.record(measurement, spent));
    }

    /// How much a canvas keeps of what is measured, and its limits.
    async fn measure(&self, canvas: CanvasId, measured: QuotaPair) -> Result<(Pair, Pair), StoreError> {
        match measured {
            QuotaPair::Waiting => self.measure_waiting(canvas).await,
            QuotaPair::Objects => self.measure_objects(canvas).await,
            QuotaPair::Log => self.measure_log(canvas).await,
            QuotaPair::Entities => self.measure_entities(canvas).await,
        }
    }

    /// How many of the objects, streams or entities do not exist yet.
    async fn count_new(
        &self,
        canvas: CanvasId,
        measured: QuotaPair,
        added: &Additions<'_>,
    ) -> Result<u64, StoreError> {
        match measured {
            QuotaPair::Waiting => Ok(added.events),
            QuotaPair::Objects => self.count_new_objects(canvas, &added.objects).await,
            QuotaPair::Log => self.count_new_streams(canvas, &added.streams).await,
            QuotaPair::Entities => self.count_new_entities(canvas, &added.entities).await,
        }
    }
}

fn refusal(
    canvas: CanvasId,
    measured: QuotaPair,
    known: &KnownUsage,
    wanted: Pair,
    which: usize,
) -> Result<(), StoreError> {
    // Only what has a quota can be full.
    let Some(quota) = measured.quotas()[which] else { return Ok(()) };
    let (used, limits) = known.with(|headroom| {
        (headroom.used(), headroom.measurement().map_or([0, 0], |measurement| measurement.limits))
    });
    let used = used.map_or(0, |used| used[which]);
    Err(QuotaExceeded { canvas, quota, limit: limits[which], used, wanted: wanted[which] }.into())
}

/// Serializes additions on a canvas until the transaction ends, so that together they exceed no
/// quota that is counted exactly.
pub async fn serialize_on_canvas(connection: &mut PgConnection, canvas: CanvasId) -> Result<(), sqlx::Error> {
    let query = sqlx::query!(
        "insert into wakeq.canvas_turns (canvas_id) values ($1)
             on conflict (canvas_id) do update set canvas_id = excluded.canvas_id",
        canvas.0
    );
    query.execute(connection).await.map(drop)
}

/// Whether this addition exceeds a quota that is counted exactly: what is used, what is added, and
/// the limit. An addition of nothing never does.
pub fn quota_exceeded(
    canvas: CanvasId,
    quota: Quota,
    (used, wanted, most): (i64, i64, i64),
) -> Option<QuotaExceeded> {
    let exceeds = wanted > 0 && used.saturating_add(wanted) > most;
    let [limit, used, wanted] = [most, used, wanted].map(measure::number);
    exceeds.then_some(QuotaExceeded { canvas, quota, limit, used, wanted })
}
