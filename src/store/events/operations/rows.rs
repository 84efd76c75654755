//! The rows of operations: begun, listed, cancelled and forgotten.

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::event::{
    Actor, CanvasId, IdempotencyKey, NewOperation, Operation, OperationId, OperationKind, OperationPreview,
    Timestamp,
};
use crate::store::events::idempotency::{IdempotencyOutcome, keep, used};
use crate::store::kernel::{Sql, StoreError};
use crate::store::quotas::serialize_on_canvas;

/// Maximum number of operations of a canvas that have not ended.
pub(crate) const OPERATIONS_OPEN_MAX: usize = 10;

/// How many are read at least where some could not be.
const UNREAD_PAGE: i64 = 100;

/// An operation that was begun, and the job that carries it on.
#[derive(Clone, Debug)]
pub(crate) struct BegunOperation {
    pub(crate) operation: Operation,
    pub(crate) job: i64,
}

impl BegunOperation {
    /// Maximum number of operations that are kept of a canvas, with those that have not ended.
    pub(crate) const KEPT_MAX: usize = 1_000;
}

/// What came of beginning an operation under an idempotency key.
#[derive(Clone, Debug)]
pub(crate) enum KeyedBegin {
    Begun(Box<BegunOperation>),
    /// The same request has begun this one.
    Replayed(OperationId),
    /// As many are open as may be. The key is free.
    TooMany,
    /// The key was used for another request.
    Mismatch,
    /// Another call is using the key at this moment.
    InProgress,
}

impl KeyedBegin {
    /// What it means that the key was used.
    pub(in crate::store) fn of(used: IdempotencyOutcome) -> Self {
        match used {
            IdempotencyOutcome::Replayed(id) => id.parse().map_or(Self::Mismatch, Self::Replayed),
            IdempotencyOutcome::InProgress => Self::InProgress,
            IdempotencyOutcome::Mismatch | IdempotencyOutcome::First(_) => Self::Mismatch,
        }
    }
}

/// Where a page of the list ended: when the last operation was begun, and its id.
pub(crate) type OperationsAfter = (Timestamp, OperationId);

/// A row of the table.
pub(super) struct OperationRow {
    pub(super) canvas_id: Uuid,
    pub(super) id: Uuid,
    pub(super) kind: String,
    pub(super) arguments: String,
    pub(super) filter: String,
    pub(super) cut_off: Timestamp,
    pub(super) state: String,
    pub(super) preview_count: i64,
    pub(super) preview_more: bool,
    pub(super) looked_at: i64,
    pub(super) matched: i64,
    pub(super) changed: i64,
    pub(super) skipped: i64,
    pub(super) author: String,
    pub(super) started_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) error: Option<String>,
    pub(super) named: Option<i32>,
}

impl OperationRow {
    /// `None` for one that a newer release has begun, and that this one can't read.
    pub(super) fn into_operation(self) -> Option<Operation> {
        Some(Operation {
            id: OperationId(self.id),
            canvas: CanvasId(self.canvas_id),
            kind: OperationKind::of_row(&self.kind, &self.arguments)?,
            filter: serde_json::from_str(&self.filter).ok()?,
            named: self.named.map(|named| u64::from(named.unsigned_abs())),
            before: self.cut_off,
            state: self.state.parse().ok()?,
            preview_count: self.preview_count.unsigned_abs(),
            preview_more: self.preview_more,
            looked_at: self.looked_at.unsigned_abs(),
            matched: self.matched.unsigned_abs(),
            changed: self.changed.unsigned_abs(),
            skipped: self.skipped.unsigned_abs(),
            author: self.author,
            started_at: self.started_at,
            updated_at: self.updated_at,
            ended_at: self.ended_at,
            error: self.error,
        })
    }
}

/// A query for [`OperationRow`]s: those with this condition.
macro_rules! operation_rows {
    ($condition:literal, $($argument:tt)*) => {
        sqlx::query_as!(
            OperationRow,
            r#"select canvas_id, id, kind, arguments::text as "arguments!", filter::text as "filter!", cut_off, state,
                      preview_count, preview_more, looked_at, matched, changed, skipped, author, started_at, updated_at,
                      ended_at, error, cardinality(ids) as named
                 from wakeq.operations"# + $condition,
            $($argument)*
        )
    };
}

impl Sql<'_> {
    pub(in crate::store) async fn begin_operation(
        &self,
        canvas: CanvasId,
        new: &NewOperation,
        (preview, copies): (&OperationPreview, bool),
        actor: &Actor,
    ) -> Result<Option<BegunOperation>, StoreError> {
        let mut session = self.session().await?.for_statements(6);
        let begun =
            session.limit(|connection| begin(connection, canvas, new, (preview, copies), actor)).await;
        let Some((id, job)) = session.answered("begin an operation", begun).await? else { return Ok(None) };
        let operation = self.operation(canvas, id).await?;
        Ok(operation.map(|operation| BegunOperation { operation, job }))
    }

    pub(in crate::store) async fn begin_operation_once(
        &self,
        key: &IdempotencyKey,
        new: &NewOperation,
        (preview, copies): (&OperationPreview, bool),
        actor: &Actor,
    ) -> Result<KeyedBegin, StoreError> {
        let mut session = self.session().await?.for_statements(9);
        let begun =
            session.limit(|connection| begin_once(connection, key, new, (preview, copies), actor)).await;
        let (id, job) = match session.answered("begin an operation under a key", begun).await? {
            Ok(begun) => begun,
            Err(not_begun) => return Ok(not_begun),
        };
        let operation = self.operation(key.canvas, id).await?;
        Ok(operation.map_or(KeyedBegin::Replayed(id), |operation| {
            KeyedBegin::Begun(Box::new(BegunOperation { operation, job }))
        }))
    }

    pub(in crate::store) async fn operation(
        &self,
        canvas: CanvasId,
        id: OperationId,
    ) -> Result<Option<Operation>, StoreError> {
        let query = operation_rows!(" where canvas_id = $1 and id = $2", canvas.0, id.0);
        let row = self.session().await?.optional("look for an operation", query).await?;
        Ok(row.and_then(OperationRow::into_operation))
    }

    pub(in crate::store) async fn operations(
        &self,
        canvas: CanvasId,
        after: Option<OperationsAfter>,
        limit: i64,
    ) -> Result<Vec<Operation>, StoreError> {
        let (mut found, mut after, mut look) = (Vec::new(), after, limit);
        loop {
            let query = operation_rows!(
                "
                  where canvas_id = $1
                    and (started_at, id) < (coalesce($2::timestamptz, 'infinity'), coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
                  order by started_at desc, id desc limit $4",
                canvas.0,
                after.map(|(started_at, _)| started_at),
                after.map(|(_, id)| id.0),
                look
            );
            let rows = self.session().await?.all("list operations", query).await?;
            let has_more = rows.len() as i64 >= look;
            after = rows.last().map(|row| (row.started_at, OperationId(row.id)));
            found.extend(rows.into_iter().filter_map(OperationRow::into_operation));
            if found.len() as i64 >= limit || !has_more {
                found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
                return Ok(found);
            }
            // Some can't be read here, as a newer release has begun them: they must not look like
            // the end of the list.
            look = limit.max(UNREAD_PAGE);
        }
    }

    /// Waits for the page that is being done, if any: no other begins after it. One that can't be
    /// read here goes on, since its caller could not be told that it was cancelled.
    pub(in crate::store) async fn cancel_operation(
        &self,
        canvas: CanvasId,
        id: OperationId,
        actor: &Actor,
    ) -> Result<Option<Operation>, StoreError> {
        if self.operation(canvas, id).await?.is_none() {
            return Ok(None);
        }
        let query = sqlx::query!(
            r#"with cancelled as (
                   update wakeq.operations
                      set state = 'cancelled', ended_at = clock_timestamp(), updated_at = clock_timestamp()
                    where canvas_id = $1 and id = $2 and ended_at is null
                returning id, job, changed
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select $1, $3, 'cancel-operation', 'done', $4,
                          concat_ws('; ', $5::text, 'operation ' || id || ', which had changed ' || changed || ' events')
                     from cancelled
               )
               delete from wakeq.resume_jobs where id = (select job from cancelled) and kind = 'operation'"#,
            canvas.0,
            id.0,
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        self.session().await?.execute("cancel an operation", query).await?;
        self.operation(canvas, id).await
    }

    /// Deletes a job whose operation somebody has deleted; no other job.
    pub(super) async fn drop_job_of_none(&self, job: i64) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.resume_jobs j where j.id = $1 and j.kind = 'operation'
                and not exists (select from wakeq.operations o
                                 where o.job = j.id and o.job > 0 and o.ended_at is null)",
            job
        );
        self.session().await?.execute("delete the job of no operation", query).await.map(drop)
    }

    /// Ends one that can't be carried on.
    pub(super) async fn fail_operation(
        &self,
        canvas: CanvasId,
        id: Uuid,
        error: &str,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "with failed as (
                 update wakeq.operations
                    set state = 'failed', error = $3, ended_at = clock_timestamp(), updated_at = clock_timestamp()
                  where canvas_id = $1 and id = $2 and ended_at is null
              returning job
             )
             delete from wakeq.resume_jobs where id = (select job from failed) and kind = 'operation'",
            canvas.0,
            id,
            error
        );
        self.session().await?.execute("end an operation that can't be read", query).await.map(drop)
    }
}

async fn begin(
    connection: &mut PgConnection,
    canvas: CanvasId,
    new: &NewOperation,
    (preview, copies): (&OperationPreview, bool),
    actor: &Actor,
) -> Result<Option<(OperationId, i64)>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let begun = add(&mut transaction, canvas, new, (preview, copies), actor).await?;
    transaction.commit().await?;
    Ok(begun)
}

/// The same, unless the key was used; the key and the operation are one transaction.
async fn begin_once(
    connection: &mut PgConnection,
    key: &IdempotencyKey,
    new: &NewOperation,
    (preview, copies): (&OperationPreview, bool),
    actor: &Actor,
) -> Result<Result<(OperationId, i64), KeyedBegin>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    if let Some(used) = used(&mut transaction, key).await? {
        transaction.rollback().await?;
        return Ok(Err(KeyedBegin::of(used)));
    }
    let Some((id, job)) = add(&mut transaction, key.canvas, new, (preview, copies), actor).await? else {
        transaction.rollback().await?;
        return Ok(Err(KeyedBegin::TooMany));
    };
    keep(&mut transaction, key, &id.to_string()).await?;
    transaction.commit().await?;
    Ok(Ok((id, job)))
}

/// Adds the row and its job, one after another per canvas. Returns the id and the job, `None` if as
/// many are open as may be.
async fn add(
    transaction: &mut PgConnection,
    canvas: CanvasId,
    new: &NewOperation,
    (preview, copies): (&OperationPreview, bool),
    actor: &Actor,
) -> Result<Option<(OperationId, i64)>, sqlx::Error> {
    serialize_on_canvas(&mut *transaction, canvas).await?;
    let open = sqlx::query_scalar!(
        r#"select count(*) as "open!" from wakeq.operations where canvas_id = $1 and ended_at is null"#,
        canvas.0
    )
    .fetch_one(&mut *transaction)
    .await?;
    if open.unsigned_abs() as usize >= OPERATIONS_OPEN_MAX {
        return Ok(None);
    }
    // However many are open, this leaves room for the new one.
    sqlx::query!(
        "delete from wakeq.operations
          where canvas_id = $1 and id = any (array(
                select id from wakeq.operations where canvas_id = $1 and ended_at is not null
                 order by started_at desc offset $2))",
        canvas.0,
        (BegunOperation::KEPT_MAX - OPERATIONS_OPEN_MAX) as i64
    )
    .execute(&mut *transaction)
    .await?;
    let id = OperationId::new();
    let ids: Option<Vec<Uuid>> = new.ids().map(|ids| ids.iter().map(|id| id.0).collect());
    let job = sqlx::query_scalar!(
        r#"with job as (
               insert into wakeq.resume_jobs (kind, canvas_id, module, name) values ('operation', $1, 'OPERATION', $2::uuid::text)
            returning id
           ), begun as (
               insert into wakeq.operations
                   (canvas_id, id, kind, arguments, filter, copies, cut_off, preview_count, preview_more, author, job, ids)
               select $1, $2, $3::text, $4::text::jsonb, $5::text::jsonb, $6::boolean, $7::timestamptz, $8::bigint, $9::boolean, $10::text,
                      job.id, $13::uuid[]
                 from job
           ), logged as (
               insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
               values ($1, $10, 'begin-operation', 'done', $11,
                       left(concat_ws('; ', $12::text, 'operation ' || $2::uuid || ': ' || $3::text || ' '
                              || coalesce(cardinality($13::uuid[]) || ' named events',
                                          ($5::text::jsonb - '{value,value_text}'::text[])::text)), 1000))
           )
           select id as "id!" from job"#,
        canvas.0,
        id.0,
        new.kind.as_str(),
        new.kind.arguments(),
        new.filter.json(),
        copies,
        preview.before,
        preview.count.cast_signed(),
        preview.more,
        actor.name(),
        actor.request_id(),
        actor.credential_id(),
        ids.as_deref()
    )
    .fetch_one(&mut *transaction)
    .await?;
    Ok(Some((id, job)))
}
