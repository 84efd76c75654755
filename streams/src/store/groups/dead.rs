//! Events that groups gave up: which and why, and redriving them.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::store::Store;
use wakeq::log::{EventSource, StreamId};
use wakeq::{Actor, CanvasId, EventId, Name, StoreError, Timestamp};

/// Maximum number of events of a source that are redriven together.
pub(crate) const REDRIVEN_PAGE: usize = 100;
/// Maximum bytes of the payloads and errors on a page, unless a single event has more.
const PAGE_BYTES: i64 = 4 * 1024 * 1024;
/// Maximum number of events that are marked together.
const MARKED_PAGE: u64 = 10_000;

/// An event that a group gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupDead {
    /// The source that it belongs to.
    pub source: EventSource,
    /// Its `seq` in the log.
    pub seq: i64,
    /// Its id.
    pub id: EventId,
    /// Its stream.
    pub stream: StreamId,
    /// Its name.
    pub name: Name,
    /// Its payload, as JSON.
    pub payload: String,
    /// How often it was tried.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub error: String,
    /// When it was given up.
    pub died_at: Timestamp,
    /// Whether it is to be redriven, and was not yet.
    pub is_redriven: bool,
}

/// A page of the dead events of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupDeadPage {
    /// At most 4 MiB of them, or one event; so possibly fewer than requested.
    pub items: Vec<GroupDead>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<GroupDeadCursor>,
}

/// Where a page of the dead events of a group starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDeadCursor {
    /// The `seq` of the last event of the previous page.
    pub seq: i64,
    /// Its source.
    pub source: EventSource,
}

impl fmt::Display for GroupDeadCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.seq, self.source)
    }
}

impl FromStr for GroupDeadCursor {
    type Err = InvalidGroupDeadCursor;

    fn from_str(text: &str) -> Result<Self, InvalidGroupDeadCursor> {
        let (seq, source) = text.split_once(':').ok_or(InvalidGroupDeadCursor)?;
        let seq = seq.parse().map_err(|_| InvalidGroupDeadCursor)?;
        Ok(Self { seq, source: source.parse().map_err(|_| InvalidGroupDeadCursor)? })
    }
}

/// A text that is not a cursor of a list of dead events of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a cursor of this list: pass `next_cursor` of its last page unchanged, or start without one"
)]
pub struct InvalidGroupDeadCursor;

impl Store {
    /// The dead events of a group, latest in the log first, up to `limit` and [`PAGE_BYTES`]; no
    /// more are read.
    pub(crate) async fn group_dead(
        &self,
        group: &Name,
        after: Option<&GroupDeadCursor>,
        limit: i64,
    ) -> Result<GroupDeadPage, StoreError> {
        let query = sqlx::query!(
            r#"select source, seq, id, canvas_id, category::text as "category!", stream::text as "stream!",
                      name::text as "name!", payload::text as "payload!", attempts, last_error, died_at,
                      redrive_at is not null as "is_redriven!", more as "more!"
                 from (select d.*, row_number() over latest as number, sum(own) over latest as bytes,
                              lead(d.seq) over (order by d.seq desc, d.source desc) is not null as more
                         from (select c.*, octet_length(c.payload) + octet_length(c.last_error) as own
                                 from wakeq.consumer_dead c
                                where consumer_group = $1 and ($2::bigint is null or (seq, source) < ($2, $3::text))
                                order by seq desc, source desc limit $4::bigint + 1) as d
                       window latest as (order by d.seq desc, d.source desc rows unbounded preceding)) as looked
                where number <= $4 and (bytes <= $5 or number = 1)
                order by seq desc, source desc"#,
            group.as_str() as _,
            after.map(|after| after.seq),
            after.map(|after| after.source.to_string()),
            limit,
            PAGE_BYTES
        );
        let rows = self.session().await?.all("list the dead events of a group", query).await?;
        let more = rows.last().is_some_and(|last| last.more);
        let dead = rows.into_iter().filter_map(|row| {
            Some(GroupDead {
                source: row.source.parse().ok()?,
                seq: row.seq,
                id: EventId(row.id),
                stream: StreamId::new(CanvasId(row.canvas_id), &row.category, &row.stream).ok()?,
                name: row.name.parse().ok()?,
                payload: row.payload,
                attempts: row.attempts.unsigned_abs(),
                error: row.last_error,
                died_at: row.died_at,
                is_redriven: row.is_redriven,
            })
        });
        let items: Vec<_> = dead.collect();
        let cursor = |last: &GroupDead| GroupDeadCursor { seq: last.seq, source: last.source.clone() };
        let next = items.last().filter(|_| more).map(cursor);
        Ok(GroupDeadPage { items, next })
    }

    /// Marks a page of a group's dead events that died before this, or only those with this `seq`,
    /// to be redriven, and records that in the audit log; returns how many.
    pub(crate) async fn redrive_group(
        &self,
        group: &Name,
        seq: Option<i64>,
        before: Timestamp,
        actor: &Actor,
    ) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with page as (
                   select consumer_group, source, seq from wakeq.consumer_dead
                    where consumer_group = $1::text and ($2::bigint is null or seq = $2) and redrive_at is null
                      and died_at < $7
                    order by seq, source limit $8 for update
               ), redriven as (
                   update wakeq.consumer_dead d set redrive_at = now() from page p
                    where d.consumer_group = any (array[p.consumer_group]) and d.source = p.source and d.seq = p.seq
                returning d.seq
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select $3, $4, 'redrive-group', 'done', $5,
                          concat_ws('; ', $6::text, 'group ' || $1::text || ', ' || count(*) || ' events')
                     from redriven having count(*) > 0
               )
               select count(*) as "count!" from redriven"#,
            group.as_str(),
            seq,
            None::<Uuid>,
            actor.name(),
            actor.request_id(),
            actor.credential_id(),
            before,
            MARKED_PAGE.cast_signed()
        );
        Ok(self.session().await?.one("redrive dead events of a group", query).await?.unsigned_abs())
    }

    /// The `seq`s of the events of a source that are to be redriven, in the order of the log; at
    /// most [`REDRIVEN_PAGE`].
    pub(crate) async fn redriven(&self, group: &Name, source: &EventSource) -> Result<Vec<i64>, StoreError> {
        let query = sqlx::query_scalar!(
            "select seq from wakeq.consumer_dead
              where consumer_group = $1 and source = $2 and redrive_at is not null order by seq limit $3",
            group.as_str() as _,
            source.to_string(),
            REDRIVEN_PAGE as i64
        );
        self.session().await?.all("find events to be retried", query).await
    }

    /// Notes that a redriven event was handled, or has failed again for this reason; returns
    /// whether the position of its source is under this epoch.
    pub(crate) async fn redone(
        &self,
        group: &Name,
        source: &EventSource,
        epoch: i64,
        seq: i64,
        error: Option<&str>,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with own as (
                   select consumer_group, source from wakeq.consumer_positions
                    where consumer_group = $1 and source = $2 and epoch = $3 for share
               ), handled as (
                   delete from wakeq.consumer_dead d using own
                    where d.consumer_group = own.consumer_group and d.source = own.source and d.seq = $4 and $5::text is null
               ), failed as (
                   update wakeq.consumer_dead d
                      set redrive_at = null, attempts = attempts + 1, last_error = $5, died_at = now() from own
                    where d.consumer_group = own.consumer_group and d.source = own.source and d.seq = $4 and $5::text is not null
               )
               select exists (select from own) as "own!""#,
            group.as_str() as _,
            source.to_string(),
            epoch,
            seq,
            error
        );
        self.session().await?.one("record the outcome of a retry", query).await
    }
}
