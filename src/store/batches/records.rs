//! Batches as their callers see them: opened, closed, given up and listed.

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::event::{
    Actor, BatchCounts, BatchName, CanvasId, EventId, HandlerAddress, NewEvent, Quota, QuotaExceeded,
    Timestamp, Traceparent, displayed_as_text,
};
use crate::store::kernel::{Sql, Store, StoreError, address};
use crate::store::quotas::{default_quota, serialize_on_canvas};

/// Up to how many members that are left are counted.
const LEFT_MAX: i64 = 1_000_000;

/// A batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredBatch {
    /// Its name.
    pub name: BatchName,
    /// How far it has come.
    pub state: BatchState,
    /// The event that is emitted at its end.
    pub event: EventId,
    /// The handler of that event.
    pub address: HandlerAddress,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When it was closed.
    pub closed_at: Option<Timestamp>,
    /// When its event was emitted, or when it was given up.
    pub over_at: Option<Timestamp>,
    /// How its members have ended, if its event was emitted. [`BatchProgress`] has the same of
    /// every batch.
    pub counts: Option<BatchCounts>,
}

/// How far a batch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchState {
    /// Members can be emitted, and it is not closed.
    Open,
    /// It is closed, and members are left.
    Closed,
    /// The last member has ended, and its event was emitted.
    Ended,
    /// It was given up: its event is never emitted.
    Cancelled,
}

/// A batch, and its members.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchProgress {
    /// The batch.
    pub batch: RegisteredBatch,
    /// How members have ended so far.
    pub counts: BatchCounts,
    /// How many members are left: counted up to 1,000,000.
    pub left: u64,
}

/// The outcome of opening a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchOpening {
    /// It is new.
    Opened,
    /// It is open already, with the same handler and value: a repeat.
    Repeated,
    /// Another batch has the name.
    Taken,
}

/// The outcome of closing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchClosing {
    /// It was open.
    Closed,
    /// It was closed before.
    Repeated,
    /// There is none of this name.
    Missing,
}

struct OpenedRow {
    is_new: bool,
    is_same: Option<bool>,
}

struct BatchRow {
    name: String,
    event_id: Uuid,
    module: String,
    handler: String,
    modifier: String,
    opened_at: Timestamp,
    closed_at: Option<Timestamp>,
    over_at: Option<Timestamp>,
    is_cancelled: bool,
    completed: i64,
    dead: i64,
    cancelled: i64,
    left: Option<i64>,
}

impl BatchState {
    /// Its name in the API and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Ended => "ended",
            Self::Cancelled => "cancelled",
        }
    }

    /// Of a batch with these moments.
    pub(in crate::store) fn of(is_closed: bool, is_over: bool, is_cancelled: bool) -> Self {
        match (is_closed, is_over, is_cancelled) {
            (_, _, true) => Self::Cancelled,
            (_, true, false) => Self::Ended,
            (true, false, false) => Self::Closed,
            (false, false, false) => Self::Open,
        }
    }
}

displayed_as_text!(BatchState);

impl Sql<'_> {
    pub(in crate::store) async fn open_batch(
        &self,
        name: &BatchName,
        event: &NewEvent,
    ) -> Result<BatchOpening, StoreError> {
        let mut session = self.session().await?.for_statements(4);
        let opened = session.limit(|connection| open(connection, name, event)).await;
        let OpenedRow { is_new, is_same } = session.answered("open a batch", opened).await?;
        match (is_new, is_same) {
            (true, _) => Ok(BatchOpening::Opened),
            (false, Some(true)) => Ok(BatchOpening::Repeated),
            (false, Some(false)) => Ok(BatchOpening::Taken),
            (false, None) => {
                let canvas = event.address.scope.canvas;
                let limit = self.quota(canvas, Quota::Batches).await?;
                Err(QuotaExceeded { canvas, quota: Quota::Batches, limit, used: limit, wanted: 1 }.into())
            }
        }
    }

    pub(in crate::store) async fn close_batch(
        &self,
        canvas: CanvasId,
        name: &BatchName,
    ) -> Result<BatchClosing, StoreError> {
        let query = sqlx::query!(
            r#"with closed as (
                   update wakeq.batches set closed_at = clock_timestamp()
                    where canvas_id = $1 and name = $2::text and closed_at is null and over_at is null
                returning name
               )
               select exists (select from closed) as "closed!",
                      exists (select from wakeq.batches where canvas_id = $1 and name = $2) as "there!""#,
            canvas.0,
            name.as_str()
        );
        let row = self.session().await?.one("close a batch", query).await?;
        Ok(match (row.closed, row.there) {
            (true, _) => BatchClosing::Closed,
            (false, true) => BatchClosing::Repeated,
            (false, false) => BatchClosing::Missing,
        })
    }

    pub(in crate::store) async fn batch(
        &self,
        canvas: CanvasId,
        name: &BatchName,
    ) -> Result<Option<BatchProgress>, StoreError> {
        let query = sqlx::query_as!(
            BatchRow,
            r#"select b.name::text as "name!", b.event_id as "event_id!", b.module::text as "module!",
                      b.handler::text as "handler!", b.modifier::text as "modifier!", b.opened_at as "opened_at!",
                      b.closed_at, b.over_at, b.is_cancelled as "is_cancelled!",
                      coalesce(ends.completed, b.completed) as "completed!", coalesce(ends.dead, b.dead) as "dead!",
                      coalesce(ends.cancelled, b.cancelled) as "cancelled!", members.count as left
                 from wakeq.batches b
                 left join lateral (
                      select sum(e.completed)::bigint as completed, sum(e.dead)::bigint as dead,
                             sum(e.cancelled)::bigint as cancelled
                        from wakeq.batch_ends e where e.canvas_id = $1 and e.batch = b.name) as ends
                   on b.over_at is null or b.is_cancelled
                cross join lateral (
                      select count(*) as count from (
                          select from wakeq.events_v2 e
                           where e.canvas_id = $1 and e.options ->> 'batch' = $2::text limit $3) as counted) as members
                where b.canvas_id = $1 and b.name = $2"#,
            canvas.0,
            name.as_str(),
            LEFT_MAX
        );
        let row = self.session().await?.optional("look for a batch", query).await?;
        Ok(row.and_then(|row| row.into_progress(canvas)))
    }
}

impl Store {
    /// The batches of a canvas by name, after a name; at most `limit`.
    pub(crate) async fn batches(
        &self,
        canvas: CanvasId,
        after: Option<&BatchName>,
        limit: i64,
    ) -> Result<Vec<RegisteredBatch>, StoreError> {
        let query = sqlx::query_as!(
            BatchRow,
            r#"select name::text as "name!", event_id, module::text as "module!", handler::text as "handler!",
                      modifier::text as "modifier!", opened_at, closed_at, over_at, is_cancelled, completed, dead,
                      cancelled, null::bigint as left
                 from wakeq.batches
                where canvas_id = $1 and name > $2::text
                order by name limit $3"#,
            canvas.0,
            after.map_or("", BatchName::as_str),
            limit
        );
        let rows = self.session().await?.all("list batches", query).await?;
        Ok(rows.into_iter().filter_map(|row| row.into_batch(canvas)).collect())
    }

    /// Gives a batch up: its event is never emitted, and no member can be emitted any longer. Its
    /// members stay as they are. Returns whether it was not over; `None` if there is none of this
    /// name.
    pub(crate) async fn cancel_batch(
        &self,
        canvas: CanvasId,
        name: &BatchName,
        actor: &Actor,
    ) -> Result<Option<bool>, StoreError> {
        let query = sqlx::query!(
            r#"with gone as (
                   update wakeq.batches set over_at = clock_timestamp(), is_cancelled = true, value = 'null'
                    where canvas_id = $1 and name = $2::text and over_at is null
                returning canvas_id, name, module, handler
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, detail, request_id)
                   select canvas_id, $3, 'cancel-batch', module, handler, 'done',
                          concat_ws('; ', $4::text, 'batch ' || name), $5 from gone
               )
               select exists (select from gone) as "done!",
                      exists (select from wakeq.batches where canvas_id = $1 and name = $2) as "there!""#,
            canvas.0,
            name.as_str(),
            actor.name(),
            actor.credential_id(),
            actor.request_id()
        );
        let row = self.session().await?.one("give a batch up", query).await?;
        Ok(row.there.then_some(row.done))
    }
}

/// Those of a canvas are opened one by one, so that together they exceed no quota.
async fn open(
    connection: &mut PgConnection,
    name: &BatchName,
    event: &NewEvent,
) -> Result<OpenedRow, sqlx::Error> {
    let HandlerAddress { scope, modifier } = &event.address;
    let mut transaction = connection.begin().await?;
    serialize_on_canvas(&mut transaction, scope.canvas).await?;
    let row = sqlx::query_as!(
        OpenedRow,
        r#"with others as (
               select count(*) as count from (
                   select from wakeq.batches where canvas_id = $1 and over_at is null
                    limit wakeq.quota_of($1, 'batches', $3)) as counted
           ), opened as (
               insert into wakeq.batches (canvas_id, name, event_id, module, handler, modifier, value, traceparent)
               select $1, $2::text, $4::uuid, $5::text, $6::text, $7::text, $8::text, $9::text
                 from others where count < wakeq.quota_of($1, 'batches', $3)
                   on conflict (canvas_id, name) do nothing
            returning name
           )
           select exists (select from opened) as "is_new!",
                  (select b.closed_at is null and b.over_at is null and b.module = $5 and b.handler = $6
                      and b.modifier = $7 and b.value = $8
                     from wakeq.batches b where b.canvas_id = $1 and b.name = $2) as is_same"#,
        scope.canvas.0,
        name.as_str(),
        default_quota(Quota::Batches),
        event.id.0,
        scope.module.as_str(),
        scope.name.as_str(),
        modifier.as_str(),
        event.value,
        event.metadata.traceparent.as_ref().map(Traceparent::as_str)
    )
    .fetch_one(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(row)
}

impl BatchRow {
    fn counts(&self) -> BatchCounts {
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        BatchCounts::of(count(self.completed), count(self.dead), count(self.cancelled))
    }

    /// A row that was not written by wakeq and is not a batch counts as none.
    fn into_batch(self, canvas: CanvasId) -> Option<RegisteredBatch> {
        let state = BatchState::of(self.closed_at.is_some(), self.over_at.is_some(), self.is_cancelled);
        let counts = (state == BatchState::Ended).then(|| self.counts());
        Some(RegisteredBatch {
            name: self.name.parse().ok()?,
            state,
            event: EventId(self.event_id),
            address: address(canvas.0, &self.module, &self.handler, &self.modifier).ok()?,
            opened_at: self.opened_at,
            closed_at: self.closed_at,
            over_at: self.over_at,
            counts,
        })
    }

    fn into_progress(self, canvas: CanvasId) -> Option<BatchProgress> {
        let counts = self.counts();
        let left = self.left.map_or(0, |left| u64::try_from(left).unwrap_or(0));
        Some(BatchProgress { batch: self.into_batch(canvas)?, counts, left })
    }
}
