//! The end of a batch: looking whether it is over, and emitting its event.
//!
//! Whoever has ended a member looks afterwards, in a statement with a snapshot of its own. A look
//! without locks comes first, since most members are not the last. The batch is then locked, which
//! waits for the transactions that emit into it, and looked at again.

use std::collections::BTreeSet;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::event::{
    BatchCounts, BatchName, CanvasId, EventId, HandlerAddress, Metadata, NewEvent, ended_value,
};
use crate::store::events::{InsertOutcome, add_one};
use crate::store::kernel::{Emission, Sql, StoreError, address};

/// Statements of the transaction that ends a batch: begin, lock, look, insert twice if the queues
/// have changed, with reading them, mark, and commit.
const STATEMENTS: usize = 8;
/// How many rows with ends one statement replaces or deletes.
const ENDS_PAGE: i64 = 10_000;
/// From how many rows on the ends of a batch are replaced by their sum.
const ENDS_MANY: i64 = 1_000;
/// Maximum number of batches that one page of the minute's pass looks at.
const LOOKED_AT: i64 = 500;

/// A batch of a canvas.
pub(crate) type BatchKey = (CanvasId, BatchName);

/// A batch that has ended: its event, which is inserted.
#[derive(Clone, Debug)]
pub(crate) struct EndedBatch {
    pub(crate) event: NewEvent,
    pub(crate) inserted: InsertOutcome,
}

/// What the minute's pass found.
#[derive(Clone, Debug, Default)]
pub(crate) struct LookedBatches {
    /// They are closed, and no member is left.
    pub(crate) over: Vec<BatchKey>,
    /// They have many rows with ends.
    pub(crate) long: Vec<BatchKey>,
    /// Whether there may be more batches to look at.
    pub(crate) more: bool,
}

struct LockedRow {
    event_id: Uuid,
    module: String,
    handler: String,
    modifier: String,
    value: String,
    traceparent: Option<String>,
}

impl Sql<'_> {
    pub(in crate::store) async fn are_over(&self, batches: &[BatchKey]) -> Result<Vec<bool>, StoreError> {
        let asked: BTreeSet<&BatchKey> = batches.iter().collect();
        let (canvases, names): (Vec<Uuid>, Vec<String>) =
            asked.iter().map(|(canvas, name)| (canvas.0, name.to_string())).unzip();
        let query = sqlx::query!(
            r#"select b.canvas_id as "canvas_id!", b.name::text as "name!"
                 from unnest($1::uuid[], $2::text[]) as asked (canvas_id, name)
                cross join lateral (
                      select * from wakeq.batches b
                       where b.canvas_id = asked.canvas_id and b.name = asked.name and b.closed_at is not null
                         and b.over_at is null offset 0) as b
                where not wakeq.has_members(b.canvas_id, b.name)"#,
            &canvases,
            &names
        );
        let rows = self.session().await?.all("look whether batches are over", query).await?;
        let over: BTreeSet<BatchKey> = rows
            .into_iter()
            .filter_map(|row| Some((CanvasId(row.canvas_id), row.name.parse().ok()?)))
            .collect();
        Ok(batches.iter().map(|batch| over.contains(batch)).collect())
    }

    pub(in crate::store) async fn end_batch(
        &self,
        (canvas, name): &BatchKey,
    ) -> Result<Option<EndedBatch>, StoreError> {
        let mut session = self.session().await?.for_statements(STATEMENTS);
        let emission = self.emission();
        let ended = session.limit(|connection| end(connection, *canvas, name, emission)).await;
        session.answered("end a batch", ended).await
    }

    pub(in crate::store) async fn look_at_batches(&self) -> Result<LookedBatches, StoreError> {
        let query = sqlx::query!(
            r#"with page as materialized (
                   select canvas_id, name from wakeq.batches where over_at is null
                    order by looked_at limit $1 for no key update skip locked
               ), looked as (
                   update wakeq.batches b set looked_at = clock_timestamp() from page
                    where b.canvas_id = any (array[page.canvas_id]) and b.name = page.name
                returning b.canvas_id, b.name, b.closed_at
               )
               select l.canvas_id as "canvas_id!", l.name::text as "name!",
                      l.closed_at is not null and not wakeq.has_members(l.canvas_id, l.name) as "is_over!",
                      exists (select from wakeq.batch_ends e
                               where e.canvas_id = l.canvas_id and e.batch = l.name offset $2) as "is_long!"
                 from looked l"#,
            LOOKED_AT,
            ENDS_MANY
        );
        let rows = self.session().await?.all("look at batches", query).await?;
        let mut looked = LookedBatches { more: rows.len() as i64 >= LOOKED_AT, ..LookedBatches::default() };
        for row in rows {
            let Ok(name) = row.name.parse::<BatchName>() else { continue };
            let batch = (CanvasId(row.canvas_id), name);
            if row.is_over {
                looked.over.push(batch);
            } else if row.is_long {
                looked.long.push(batch);
            }
        }
        Ok(looked)
    }

    /// Rows are only added and deleted here, so that a page is everything up to an id.
    pub(in crate::store) async fn sum_batch_ends(
        &self,
        (canvas, name): &BatchKey,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with gone as (
                   delete from wakeq.batch_ends
                    where canvas_id = $1 and batch = $2::text
                      and id <= coalesce((select e.id from wakeq.batch_ends e where e.canvas_id = $1 and e.batch = $2
                                           order by e.canvas_id, e.batch, e.id offset $3::bigint - 1 limit 1), 9223372036854775807)
                returning completed, dead, cancelled
               ), summed as (
                   insert into wakeq.batch_ends (canvas_id, batch, completed, dead, cancelled)
                   select $1, $2, sum(completed), sum(dead), sum(cancelled) from gone having count(*) > 0
               )
               select count(*) as "count!" from gone"#,
            canvas.0,
            name.as_str(),
            ENDS_PAGE
        );
        Ok(self.session().await?.one("sum the ends of a batch", query).await? >= ENDS_PAGE)
    }

    pub(in crate::store) async fn forget_batch_ends(
        &self,
        (canvas, name): &BatchKey,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.batch_ends
              where canvas_id = $1 and batch = $2::text
                and id <= coalesce((select e.id from wakeq.batch_ends e where e.canvas_id = $1 and e.batch = $2
                                     order by e.canvas_id, e.batch, e.id offset $3::bigint - 1 limit 1), 9223372036854775807)
                and exists (select from wakeq.batches b
                             where b.canvas_id = $1 and b.name = $2 and b.over_at is not null and not b.is_cancelled)",
            canvas.0,
            name.as_str(),
            ENDS_PAGE
        );
        let gone = self.session().await?.execute("forget the ends of a batch", query).await?;
        Ok(gone.rows_affected() >= ENDS_PAGE.cast_unsigned())
    }
}

/// Ends a batch, unless it is not over, or was ended by another process.
async fn end(
    connection: &mut PgConnection,
    canvas: CanvasId,
    name: &BatchName,
    emission: Emission<'_>,
) -> Result<Option<EndedBatch>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let locked = lock(&mut transaction, canvas, name).await?;
    let Some(address) = locked.as_ref().and_then(|row| row.address(canvas)) else {
        transaction.rollback().await?;
        return Ok(None);
    };
    // A statement of its own, which sees what was committed while the lock was waited for.
    let counts = final_counts(&mut transaction, canvas, name).await?;
    let (Some(locked), Some(counts)) = (locked, counts) else {
        transaction.rollback().await?;
        return Ok(None);
    };
    let event = NewEvent {
        id: EventId(locked.event_id),
        metadata: Metadata::of(locked.traceparent.as_deref()),
        ..NewEvent::new(address, ended_value(name, counts, &locked.value))
    };
    let inserted = add_one(&mut transaction, &event, false, emission).await?;
    mark_ended(&mut transaction, canvas, name, counts).await?;
    transaction.commit().await?;
    Ok(Some(EndedBatch { event, inserted }))
}

impl LockedRow {
    /// The handler of its event. A row that was not written by wakeq may name none.
    fn address(&self, canvas: CanvasId) -> Option<HandlerAddress> {
        address(canvas.0, &self.module, &self.handler, &self.modifier).ok()
    }
}

/// Locks a batch that is closed and not over. Only this lock waits for those who emit into it, and
/// makes those who come later wait: that of an update does neither.
async fn lock(
    connection: &mut PgConnection,
    canvas: CanvasId,
    name: &BatchName,
) -> Result<Option<LockedRow>, sqlx::Error> {
    sqlx::query_as!(
        LockedRow,
        r#"select event_id, module::text as "module!", handler::text as "handler!", modifier::text as "modifier!",
                  value::text as "value!", traceparent::text as traceparent
             from wakeq.batches
            where canvas_id = $1 and name = $2::text and closed_at is not null and over_at is null
              for update"#,
        canvas.0,
        name.as_str()
    )
    .fetch_optional(connection)
    .await
}

/// How the members have ended; `None` if one is left.
async fn final_counts(
    connection: &mut PgConnection,
    canvas: CanvasId,
    name: &BatchName,
) -> Result<Option<BatchCounts>, sqlx::Error> {
    let row = sqlx::query!(
        r#"select wakeq.has_members($1, $2::text) as "has_members!", coalesce(sum(completed), 0)::bigint as "completed!",
                  coalesce(sum(dead), 0)::bigint as "dead!", coalesce(sum(cancelled), 0)::bigint as "cancelled!"
             from wakeq.batch_ends where canvas_id = $1 and batch = $2"#,
        canvas.0,
        name.as_str()
    )
    .fetch_one(connection)
    .await?;
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    let counts = BatchCounts::of(count(row.completed), count(row.dead), count(row.cancelled));
    Ok((!row.has_members).then_some(counts))
}

async fn mark_ended(
    connection: &mut PgConnection,
    canvas: CanvasId,
    name: &BatchName,
    counts: BatchCounts,
) -> Result<(), sqlx::Error> {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    sqlx::query!(
        "update wakeq.batches
            set over_at = clock_timestamp(), value = 'null', completed = $3, dead = $4, cancelled = $5
          where canvas_id = $1 and name = $2::text and over_at is null",
        canvas.0,
        name.as_str(),
        number(counts.completed),
        number(counts.dead),
        number(counts.cancelled)
    )
    .execute(connection)
    .await
    .map(drop)
}
