//! A page of an operation: the events that it looked at are changed, and its row is moved past
//! them, in one transaction. A process that dies before the commit has done nothing, and one that
//! dies after it leaves a row that says where to continue, so nothing is done or counted twice.

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::acts::Act;
use super::look::{Looked, OperationEvents, OperationPosition};
use super::rows::OperationRow;
use crate::event::{Actor, CanvasId, EventId, Operation, Timestamp, Timing};
use crate::store::events::resume::ResumePage;
use crate::store::kernel::{Sql, StoreError};

/// Factor by which a page shrinks that takes too long, meets what others hold, or is refused.
const SHRINK: u64 = 32;
/// Statements of a page: begin, its turn, up to fourteen of a redrive, the row, commit.
const STATEMENTS: usize = 18;

/// An operation that has not ended, as a page begins with it.
struct OpenOperation {
    operation: Operation,
    /// The events that it names, if it has no filter.
    ids: Option<Vec<EventId>>,
    copies: bool,
    job: i64,
    /// How many pages were done: a page is only done after as many.
    pages: i64,
    after: Option<OperationPosition>,
}

impl OpenOperation {
    fn events(&self) -> OperationEvents<'_> {
        let Operation { canvas, kind, filter, before, .. } = &self.operation;
        let (ids, copies) = (self.ids.as_deref(), self.copies);
        OperationEvents { canvas: *canvas, kind, filter, ids, before: *before, copies }
    }

    /// In whose name its events are changed. The record says by which operation.
    fn actor(&self) -> Actor {
        Actor::user(&self.operation.author).credential(&format!("operation {}", self.operation.id))
    }
}

/// Whose turn a page is.
enum Turn {
    Ours,
    /// Another process is at it.
    Elsewhere,
    /// Another process has done it.
    Done,
    /// The operation has ended.
    Ended,
}

impl Sql<'_> {
    /// A page of the operation of this job; `None` if the job is of no open operation.
    pub(in crate::store) async fn operation_page(&self, job: i64) -> Result<Option<ResumePage>, StoreError> {
        let Some((canvas, id, open)) = self.open_operation(job).await? else {
            self.drop_job_of_none(job).await?;
            return Ok(None);
        };
        let Some(open) = open else {
            self.fail_operation(canvas, id, "this release can't read it: a newer one has begun it").await?;
            return Ok(Some(ResumePage::default()));
        };
        let mut limit = ResumePage::EVENTS_MAX.unsigned_abs();
        loop {
            match self.operation_step(&open, limit, false).await {
                Err(error) if limit > 1 && is_of_few(&error) => limit = (limit / SHRINK).max(1),
                // An event that others hold for long is passed over, and counted as such, and so is
                // one that can't be changed: it must not keep the operation from its end.
                Err(error) if is_of_few(&error) => {
                    return self.operation_step(&open, 1, true).await.map(Some);
                }
                page => return page.map(Some),
            }
        }
    }

    async fn operation_step(
        &self,
        open: &OpenOperation,
        limit: u64,
        passes_over: bool,
    ) -> Result<ResumePage, StoreError> {
        let looked = self.look_for_operation(open.events(), open.after.as_ref(), limit, true).await?;
        let mut session = self.session().await?.for_statements(STATEMENTS);
        let timing = self.timing();
        let done = session.limit(|connection| step(connection, open, &looked, passes_over, timing)).await;
        session.answered("do a page of an operation", done).await
    }

    /// The operation of a job, `None` inside if this release can't read it.
    async fn open_operation(
        &self,
        job: i64,
    ) -> Result<Option<(CanvasId, Uuid, Option<OpenOperation>)>, StoreError> {
        let query = sqlx::query!(
            r#"select canvas_id, id, kind, arguments::text as "arguments!", filter::text as "filter!", cut_off, state,
                      preview_count, preview_more, looked_at, matched, changed, skipped, author, started_at, updated_at,
                      ended_at, error, cardinality(ids) as named, ids, copies, pages, after_module, after_name, after_id,
                      nullif(after_at, '-infinity') as after_at
                 from wakeq.operations where job = $1 and job > 0 and ended_at is null"#,
            job
        );
        let row = self.session().await?.optional("look for the operation of a job", query).await?;
        Ok(row.map(|row| {
            let after = row.after_at.map(|at| OperationPosition {
                module: row.after_module,
                name: row.after_name,
                at,
                id: row.after_id,
            });
            let operation = OperationRow {
                canvas_id: row.canvas_id,
                id: row.id,
                kind: row.kind,
                arguments: row.arguments,
                filter: row.filter,
                cut_off: row.cut_off,
                state: row.state,
                preview_count: row.preview_count,
                preview_more: row.preview_more,
                looked_at: row.looked_at,
                matched: row.matched,
                changed: row.changed,
                skipped: row.skipped,
                author: row.author,
                started_at: row.started_at,
                updated_at: row.updated_at,
                ended_at: row.ended_at,
                error: row.error,
                named: row.named,
            };
            let ids = row.ids.map(|ids| ids.into_iter().map(EventId).collect());
            let open = operation.into_operation().map(|operation| OpenOperation {
                operation,
                ids,
                copies: row.copies,
                job,
                pages: row.pages,
                after,
            });
            (CanvasId(row.canvas_id), row.id, open)
        }))
    }
}

/// Whether it may be because of a few events, so that a page of others succeeds.
fn is_of_few(error: &StoreError) -> bool {
    error.is_contention() || error.is_too_long() || error.is_data()
}

/// The page, in one transaction.
async fn step(
    connection: &mut PgConnection,
    open: &OpenOperation,
    looked: &Looked,
    passes_over: bool,
    timing: &Timing,
) -> Result<ResumePage, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    match turn(&mut transaction, open).await? {
        Turn::Ours => {}
        Turn::Elsewhere => return Ok(ResumePage { elsewhere: true, ..ResumePage::default() }),
        Turn::Done => return Ok(ResumePage { more: true, ..ResumePage::default() }),
        Turn::Ended => return Ok(ResumePage::default()),
    }
    let act = if passes_over || looked.ids.is_empty() {
        Act::default()
    } else {
        Act::of(&mut transaction, open.events(), &looked.ids, &open.actor(), timing).await?
    };
    // An empty page ends it, once what the pages before have made due is published: a command that
    // waits for the end may then exit.
    let is_last = looked.looked_at == 0;
    move_on(&mut transaction, open, looked, act.changed, is_last).await?;
    transaction.commit().await?;
    Ok(ResumePage {
        notifications: act.notifications,
        lanes: act.lanes,
        limits: act.limits,
        stops: act.stops,
        quiet: !open.operation.kind.publishes(),
        more: !is_last,
        ..ResumePage::default()
    })
}

/// Takes the operation's row, unless another process has it or has come further.
async fn turn(transaction: &mut PgConnection, open: &OpenOperation) -> Result<Turn, sqlx::Error> {
    let row = sqlx::query!(
        r#"with mine as (
               select pages from wakeq.operations
                where canvas_id = $1 and id = $2 and ended_at is null for update skip locked
           )
           select (select pages from mine) as pages,
                  exists (select from wakeq.operations where canvas_id = $1 and id = $2 and ended_at is null) as "open!""#,
        open.operation.canvas.0,
        open.operation.id.0
    )
    .fetch_one(transaction)
    .await?;
    Ok(match row.pages {
        Some(pages) if pages == open.pages => Turn::Ours,
        Some(_) => Turn::Done,
        None if row.open => Turn::Elsewhere,
        None => Turn::Ended,
    })
}

/// Moves the operation past the events that were looked at; after the last ones, it has ended.
async fn move_on(
    transaction: &mut PgConnection,
    open: &OpenOperation,
    looked: &Looked,
    changed: u64,
    is_last: bool,
) -> Result<(), sqlx::Error> {
    let last: Option<(&str, &str, Timestamp, Uuid)> =
        looked.last.as_ref().map(|last| (last.module.as_str(), last.name.as_str(), last.at, last.id));
    sqlx::query!(
        "with moved as (
             update wakeq.operations
                set pages = pages + 1, after_module = coalesce($3::text, after_module), after_name = coalesce($4::text, after_name),
                    after_at = coalesce($5::timestamptz, after_at), after_id = coalesce($6::uuid, after_id),
                    looked_at = looked_at + $7, matched = matched + $8, changed = changed + $9, skipped = skipped + $8 - $9,
                    updated_at = clock_timestamp(), state = case when $10 then 'done' else state end,
                    ended_at = case when $10 then clock_timestamp() end
              where canvas_id = $1 and id = $2
         )
         delete from wakeq.resume_jobs where $10 and id = $11 and kind = 'operation'",
        open.operation.canvas.0,
        open.operation.id.0,
        last.map(|last| last.0),
        last.map(|last| last.1),
        last.map(|last| last.2),
        last.map(|last| last.3),
        looked.looked_at.cast_signed(),
        looked.matched.cast_signed(),
        changed.cast_signed(),
        is_last,
        open.job
    )
    .execute(transaction)
    .await
    .map(drop)
}
