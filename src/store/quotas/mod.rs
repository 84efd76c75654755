//! Quotas of what canvases keep: the check before something is added, and its statements. What it
//! remembers is in `kernel/usage/`.
//!
//! What may be numerous is measured now and then, without a running count in the database: an emit
//! far from its quota sends no additional statement. The check refuses before anything is written,
//! and uses a clock of its own only to decide when to measure again.

mod attempts;
mod known;
mod limits;
mod look;
mod measure;
mod sample;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sqlx::postgres::PgConnection;
use tokio::time::Instant;

use crate::event::{
    CanvasId, EventOptions, LimitKey, NewEvent, ObjectKey, Quota, QuotaExceeded, StreamId, Unique,
};
pub use crate::store::kernel::usage::ATTEMPTS_MAX;
use crate::store::kernel::usage::{KnownUsage, Measurement, Pair, QuotaPair, Verdict};
use crate::store::kernel::{Sql, Store, StoreError};
pub use limits::QuotaUse;
use measure::LOG_ROW_BYTES;
pub use measure::default_quota;

impl QuotaPair {
    /// The record has only one, and attempts have none.
    pub(crate) fn quotas(self) -> [Option<Quota>; 2] {
        match self {
            Self::Waiting => [Some(Quota::Events), Some(Quota::EventBytes)],
            Self::Objects => [Some(Quota::Objects), Some(Quota::ObjectBytes)],
            Self::Remembered => [Some(Quota::ChosenIds), Some(Quota::IdempotencyKeys)],
            Self::Log => [Some(Quota::LogStreams), Some(Quota::LogBytes)],
            Self::Entities => [Some(Quota::Entities), Some(Quota::EntityEvents)],
            Self::Record => [Some(Quota::AuditLines), None],
            Self::Attempts => [None, None],
        }
    }

    /// Whether what is counted first, or second, has names: then some of it may exist already.
    fn names_things(self, which: usize) -> bool {
        match self {
            Self::Waiting | Self::Record | Self::Attempts => false,
            Self::Objects => true,
            // Only keys of limits.
            Self::Remembered => which == 1,
            Self::Log | Self::Entities => which == 0,
        }
    }

    /// What each process may add on a canvas before it measures for the first time.
    fn free(self) -> Pair {
        const MIB: u64 = 1024 * 1024;
        match self {
            Self::Waiting | Self::Objects | Self::Log => [1_000, 16 * MIB],
            Self::Remembered | Self::Entities | Self::Record | Self::Attempts => [1_000, 1_000],
        }
    }
}

/// What a call is about to add on one canvas.
#[derive(Debug, Default)]
pub struct Additions<'a> {
    events: u64,
    event_bytes: u64,
    objects: BTreeSet<&'a ObjectKey>,
    /// An object's new state, and its bytes.
    state: Option<(&'a ObjectKey, u64)>,
    chosen_ids: u64,
    /// Idempotency keys, unique keys that outlive their events, and names of batches.
    remembered_keys: u64,
    /// Keys of limits, each of which may get a row of use.
    limit_keys: BTreeSet<&'a str>,
    streams: BTreeSet<&'a StreamId>,
    log_bytes: u64,
    /// Pairs of type and id.
    entities: BTreeSet<(&'a str, &'a str)>,
    entity_events: u64,
    audit_lines: u64,
}

impl<'a> Additions<'a> {
    /// What emitting these events adds, per canvas.
    pub(crate) fn by(events: &'a [NewEvent]) -> BTreeMap<CanvasId, Self> {
        let mut all: BTreeMap<CanvasId, Self> = BTreeMap::new();
        for event in events {
            let added = all.entry(event.address.scope.canvas).or_default();
            let asked_bytes = event.options.as_deref().map_or(0, |options| options.json().len());
            added.events += 1;
            added.event_bytes += bytes(event.value.len() + asked_bytes);
            added.chosen_ids += u64::from(event.id.is_chosen());
            let unique = event.unique.as_deref();
            added.remembered_keys += u64::from(unique.is_some_and(Unique::is_remembered));
            let limits = event.options.as_deref().map_or(&[][..], EventOptions::limits);
            added.limit_keys.extend(limits.iter().map(LimitKey::as_str));
            added.objects.extend(&event.object);
            if let Some(stream) = &event.logged {
                added.append(stream, event.value.len());
            }
        }
        all
    }

    /// Adds the new state of an object.
    pub(crate) fn set_state(&mut self, object: &'a ObjectKey, size_bytes: usize) {
        self.state = Some((object, bytes(size_bytes)));
    }

    /// What recording this many lines adds.
    pub(crate) fn recording(lines: u64) -> Self {
        Self { audit_lines: lines, ..Self::default() }
    }

    /// Adds an idempotency key, or the name of a batch.
    pub(crate) fn remember_key(&mut self) {
        self.remembered_keys += 1;
    }

    /// Adds what a call appends to a stream of the log.
    pub(crate) fn append(&mut self, stream: &'a StreamId, size_bytes: usize) {
        self.streams.insert(stream);
        self.log_bytes += bytes(size_bytes) + LOG_ROW_BYTES;
    }

    /// Adds an event to an entity.
    pub fn send(&mut self, entity_type: &'a str, entity: &'a str, size_bytes: usize) {
        self.entities.insert((entity_type, entity));
        self.entity_events += 1;
        self.log_bytes += bytes(size_bytes) + LOG_ROW_BYTES;
    }

    fn pairs(&self) -> [(QuotaPair, Pair); 6] {
        let count = |set: usize| u64::try_from(set).unwrap_or(u64::MAX);
        [
            (QuotaPair::Waiting, [self.events, self.event_bytes]),
            (
                QuotaPair::Objects,
                [count(self.objects.len()), self.state.map_or(0, |(_, size_bytes)| size_bytes)],
            ),
            (
                QuotaPair::Remembered,
                [self.chosen_ids, self.remembered_keys.saturating_add(count(self.limit_keys.len()))],
            ),
            (QuotaPair::Log, [count(self.streams.len()), self.log_bytes]),
            (QuotaPair::Entities, [count(self.entities.len()), self.entity_events]),
            (QuotaPair::Record, [self.audit_lines, 0]),
        ]
    }
}

fn bytes(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

impl Sql<'_> {
    pub(in crate::store) async fn admit(
        &self,
        canvas: CanvasId,
        added: &Additions<'_>,
    ) -> Result<(), StoreError> {
        for (measured, wanted) in added.pairs() {
            if wanted != [0, 0] {
                self.admit_pair(canvas, measured, wanted, added).await?;
            }
        }
        Ok(())
    }
}

impl Store {
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
                Verdict::Full(which) if !exact && measured.names_things(which) => {
                    wanted = self.count_new(canvas, measured, wanted, added).await?;
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
        if known.method.try_lock().is_ok() {
            let (store, known) = (self.clone(), Arc::clone(known));
            tokio::spawn(async move { store.remeasure(canvas, measured, &known).await });
        }
    }

    /// Measures, unless another caller has just done so. If neither a count nor a sample succeeds,
    /// the last measurement stays valid (if there is none, a default allowance), until what is
    /// added since has used up its room: quotas must not stop anything for lack of an answer, nor
    /// let everything pass.
    async fn remeasure(&self, canvas: CanvasId, measured: QuotaPair, known: &Arc<KnownUsage>) {
        let asked = Instant::now();
        let mut method = known.method.lock().await;
        if known.with(|headroom| headroom.measurement().is_some_and(|last| last.at >= asked)) {
            return;
        }
        let at = Instant::now();
        if let Err(error) = self.look(canvas, measured, known, &mut method).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, %canvas, "the usage of a canvas could not be measured: its \
                                            quotas wait for the next measurement");
            let unknown = Measurement {
                at,
                took: at.elapsed(),
                used: [0, 0],
                limits: measured.free().map(|free| 8 * free.min(1 << 40)),
            };
            known.with(|headroom| headroom.keep(unknown));
        }
    }

    /// What is wanted, without the objects, streams, entities and rows of limits that exist, and
    /// without the bytes of the state that a new one replaces.
    async fn count_new(
        &self,
        canvas: CanvasId,
        measured: QuotaPair,
        [things, bytes]: Pair,
        added: &Additions<'_>,
    ) -> Result<Pair, StoreError> {
        Ok(match measured {
            QuotaPair::Waiting | QuotaPair::Record | QuotaPair::Attempts => [things, bytes],
            QuotaPair::Remembered if added.limit_keys.is_empty() => [things, bytes],
            QuotaPair::Remembered => {
                let new = self.count_new_limit_keys(canvas, &added.limit_keys).await?;
                [things, added.remembered_keys.saturating_add(new)]
            }
            QuotaPair::Objects => {
                let replaced = match added.state {
                    Some((object, _)) => self.state_bytes(canvas, object).await?,
                    None => 0,
                };
                let new = self.count_new_objects(canvas, &added.objects).await?;
                [new, bytes.saturating_sub(replaced)]
            }
            QuotaPair::Log => [self.count_new_streams(canvas, &added.streams).await?, bytes],
            QuotaPair::Entities => [self.count_new_entities(canvas, &added.entities).await?, bytes],
        })
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
