//! The history of events: their attempts, and those that are kept after they have ended. The
//! statements that retry and kill write attempts themselves (`claims.rs` and `rows.rs`).

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use uuid::Uuid;

use super::claims::{fences, happened, microseconds};
use crate::event::{
    CanvasId, Claim, EndedOutcome, EventId, EventOptions, HandlerAddress, Metadata, Name, Place, Timestamp,
};
use crate::store::kernel::{Sql, StoreError, address, interval};

/// Maximum number of attempts of an event that are read.
const ATTEMPTS_MAX: i64 = 100;

/// An attempt at an event that failed or was too early, or that ended it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// Its number, from 1. Those that are missing lost their worker or were shut down, completed
    /// the event, or are no longer kept.
    pub number: u32,
    /// What came of it: `retried`, `postponed` or `dead`.
    pub outcome: String,
    /// The worker that made it, or the program that leased the event; `None` for one that gave no
    /// name.
    pub worker: Option<Name>,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// Its error, or the first 1,000 characters of it.
    pub error: Option<String>,
}

/// An event that has ended and is kept. It is read without its value and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedEvent {
    /// Its id.
    pub id: EventId,
    /// Its handler.
    pub address: HandlerAddress,
    /// How it ended.
    pub outcome: EndedOutcome,
    /// Its error value, if it failed, or else the last error before it ended.
    pub error: Option<String>,
    /// Who cancelled it.
    pub ended_by: Option<String>,
    /// When it was emitted.
    pub enqueued_at: Timestamp,
    /// When the last attempt at it was due.
    pub due_at: Timestamp,
    /// When the attempt that ended it began, and how long that took. `None` if none did, or if its
    /// handler completed it by the SQL function `wakeq.complete`.
    pub ran: Option<(Timestamp, Duration)>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Until when it is kept.
    pub kept_until: Timestamp,
    /// The worker of the last attempt.
    pub worker: Option<Name>,
    /// How often it was claimed.
    pub claims: u32,
    /// Failed attempts since it was emitted or redriven.
    pub retries: i32,
    /// Claims that were lost because their workers died or stalled.
    pub losses: i32,
    /// Whether its handler has recorded a result.
    pub has_result: bool,
    /// Its metadata.
    pub metadata: Metadata,
    /// What its emit asked for beside it.
    pub options: Option<Box<EventOptions>>,
    /// The object that it was on, and its link there.
    pub place: Option<Place>,
}

/// How an attempt ended, for the history.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AttemptEnd {
    /// How long it took; `None` if none was made here.
    pub(crate) took: Option<Duration>,
    /// How long the event is kept if its emit asks for nothing else.
    pub(crate) keep: Duration,
    /// The error value.
    pub(crate) error: Option<String>,
    /// What the handler returned, as JSON.
    pub(crate) result: Option<String>,
}

/// The end of a claimed event that is kept.
#[derive(Clone, Debug)]
pub(crate) struct KeptEnd {
    pub(crate) claim: Claim,
    pub(crate) end: AttemptEnd,
}

impl AttemptEnd {
    pub(crate) fn outcome(&self) -> EndedOutcome {
        if self.error.is_some() { EndedOutcome::Failed } else { EndedOutcome::Completed }
    }

    pub(in crate::store) fn took_us(&self) -> Option<i64> {
        self.took.map(microseconds)
    }
}

impl Sql<'_> {
    /// As [`Sql::complete_links`] beside keeping the events. It is for events on objects and for
    /// others.
    pub(in crate::store) async fn complete_kept(
        &self,
        ends: &[Arc<KeptEnd>],
    ) -> Result<Vec<bool>, StoreError> {
        let claims: Vec<Claim> = ends.iter().map(|kept| kept.claim).collect();
        let (ids, fences) = fences(&claims);
        let ends: Vec<&AttemptEnd> = ids
            .iter()
            .zip(&fences)
            .filter_map(|(id, fence)| {
                let is_meant = |kept: &&Arc<KeptEnd>| (kept.claim.id.0, kept.claim.fence()) == (*id, *fence);
                ends.iter().find(is_meant).map(|kept| &kept.end)
            })
            .collect();
        let keeps_s: Vec<f64> = ends.iter().map(|end| end.keep.as_secs_f64()).collect();
        let outcomes: Vec<&str> = ends.iter().map(|end| end.outcome().as_str()).collect();
        let took_us: Vec<Option<i64>> = ends.iter().map(|end| end.took_us()).collect();
        let errors: Vec<Option<&str>> = ends.iter().map(|end| end.error.as_deref()).collect();
        let results: Vec<Option<&str>> = ends.iter().map(|end| end.result.as_deref()).collect();
        let query = sqlx::query_scalar!(
            r#"with gone as (
                   delete from wakeq.events_v2 e
                    where e.id = any ((select $1::uuid[])::uuid[])
                      and e.claims::bigint << 32 | e.nonce = ($2::bigint[])[width_bucket(e.id, $1::uuid[])]
                      and e.locked_at is not null
                returning e as event
               ), kept as (
                   select wakeq.keep_ended(
                              event, wakeq.keep_of(event, ($3::float8[])[at], ($4::text[])[at]), ($4::text[])[at],
                              ($5::bigint[])[at], ($6::text[])[at], ($7::text[])[at], null)
                     from gone cross join lateral width_bucket((event).id, $1::uuid[]) as at
               ), armed as (
                   update wakeq.events_v2 e
                      set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $8, $9), probes = 0
                    where e.id = any (array(
                        select x.id from wakeq.events_v2 x
                         where x.id = any (array(
                             select wakeq.next_in_lane(
                                        (event).canvas_id, (event).object, (event).queue, (event).module, (event).name,
                                        (event).seq)
                               from gone where (event).object is not null))
                           for update skip locked))
               )
               select (event).id as "id!" from gone where (select count(*) from kept) > 0"#,
            &ids,
            &fences,
            &keeps_s,
            outcomes.as_slice() as &[&str],
            took_us.as_slice() as &[Option<i64>],
            errors.as_slice() as &[Option<&str>],
            results.as_slice() as &[Option<&str>],
            interval(self.timing().horizon),
            interval(self.timing().grace)
        );
        Ok(happened(&claims, self.session().await?.all("complete events that are kept", query).await?))
    }

    pub(in crate::store) async fn attempts(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Vec<AttemptRecord>, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select coalesce(
                          (select d.attempts from wakeq.ended_events d
                            where d.canvas_id = $1 and d.id = $2 and d.kept_until > now()
                              and not exists (select from wakeq.events_v2 e where e.id = $2 and e.canvas_id = $1)
                            order by d.ended_at desc limit 1),
                          wakeq.attempts_at($1, $2))::text as attempts"#,
            canvas.0,
            id.0
        );
        let found = self.session().await?.one("read the attempts at an event", query).await?;
        let rows: Vec<AttemptJson> =
            found.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let mut attempts: Vec<_> = rows.into_iter().map(AttemptJson::into_record).collect();
        let beyond = attempts.len().saturating_sub(usize::try_from(ATTEMPTS_MAX).unwrap_or(usize::MAX));
        attempts.drain(..beyond);
        Ok(attempts)
    }

    /// If an id was emitted again, the event that ended last.
    pub(in crate::store) async fn ended_event(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<EndedEvent>, StoreError> {
        let query = sqlx::query_as!(
            EndedRow,
            r#"select id as "id!", canvas_id as "canvas_id!", module::text as "module!", name::text as "name!",
                      modifier::text as "modifier!", outcome as "outcome!", error, ended_by,
                      enqueued_at as "enqueued_at!", due_at as "due_at!", started_at, took_us, ended_at as "ended_at!",
                      kept_until as "kept_until!", worker, claims as "claims!", retries as "retries!", losses as "losses!",
                      result is not null as "has_result!", traceparent::text as traceparent, options::text as options,
                      object::text as object, seq, prev, true as "is_meant!", 1::bigint as "number!", true as last
                 from wakeq.ended_events
                where canvas_id = $1 and id = $2 and kept_until > now() order by ended_at desc limit 1"#,
            canvas.0,
            id.0
        );
        let row = self.session().await?.optional("look for an ended event", query).await?;
        Ok(row.and_then(EndedRow::into_event))
    }

    /// The value of an ended event, and what its handler returned.
    pub(in crate::store) async fn ended_value(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<(String, Option<String>)>, StoreError> {
        let query = sqlx::query!(
            r#"select value::text as "value!", result from wakeq.ended_events
                where canvas_id = $1 and id = $2 and kept_until > now() order by ended_at desc limit 1"#,
            canvas.0,
            id.0
        );
        let row = self.session().await?.optional("read the value of an ended event", query).await?;
        Ok(row.map(|row| (row.value, row.result)))
    }
}

/// An attempt as `wakeq.attempts_at` returns it.
#[derive(Deserialize)]
struct AttemptJson {
    number: u32,
    outcome: String,
    worker: Option<String>,
    started_at: Timestamp,
    took_us: u64,
    error: Option<String>,
}

impl AttemptJson {
    fn into_record(self) -> AttemptRecord {
        let Self { number, outcome, worker, started_at, took_us, error } = self;
        let worker = worker.and_then(|name| name.parse().ok());
        AttemptRecord { number, outcome, worker, started_at, took: Duration::from_micros(took_us), error }
    }
}

/// The row of an ended event, and what a search says of it.
pub(super) struct EndedRow {
    pub(super) id: Uuid,
    pub(super) canvas_id: Uuid,
    pub(super) module: String,
    pub(super) name: String,
    pub(super) modifier: String,
    pub(super) outcome: String,
    pub(super) error: Option<String>,
    pub(super) ended_by: Option<String>,
    pub(super) enqueued_at: Timestamp,
    pub(super) due_at: Timestamp,
    pub(super) started_at: Option<Timestamp>,
    pub(super) took_us: Option<i64>,
    pub(super) ended_at: Timestamp,
    pub(super) kept_until: Timestamp,
    pub(super) worker: Option<String>,
    pub(super) claims: i32,
    pub(super) retries: i32,
    pub(super) losses: i32,
    pub(super) has_result: bool,
    pub(super) traceparent: Option<String>,
    pub(super) options: Option<String>,
    pub(super) object: Option<String>,
    pub(super) seq: Option<i64>,
    pub(super) prev: Option<i64>,
    pub(super) is_meant: bool,
    pub(super) number: i64,
    pub(super) last: Option<bool>,
}

impl EndedRow {
    pub(super) fn into_event(self) -> Option<EndedEvent> {
        let took = self.took_us.map(|took| Duration::from_micros(took.unsigned_abs()));
        Some(EndedEvent {
            id: EventId(self.id),
            address: address(self.canvas_id, &self.module, &self.name, &self.modifier).ok()?,
            outcome: EndedOutcome::parse(&self.outcome)?,
            error: self.error,
            ended_by: self.ended_by,
            enqueued_at: self.enqueued_at,
            due_at: self.due_at,
            ran: self.started_at.zip(took),
            ended_at: self.ended_at,
            kept_until: self.kept_until,
            worker: self.worker.and_then(|name| name.parse().ok()),
            claims: self.claims.unsigned_abs(),
            retries: self.retries,
            losses: self.losses,
            has_result: self.has_result,
            metadata: Metadata::of(self.traceparent.as_deref()),
            options: EventOptions::of(self.options.as_deref()),
            place: Place::of(self.object.as_deref(), self.seq, self.prev),
        })
    }
}
