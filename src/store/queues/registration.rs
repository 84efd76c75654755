//! The registration of a queue: its row, its patterns and its target, in one transaction.

use std::time::Duration;

use sqlx::{Connection, PgConnection, Postgres, Transaction};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::admin::{FacetSettings, QUEUES_MAX, integer};
use crate::event::{Actor, CanvasId, Name, PullPolicy, QueuePattern};
use crate::store::kernel::{Patterns, Store, StoreError, compiled, patterns_of};
use crate::store::targets::{NewTargetRow, PutOutcome, put_within};

/// A process compiles the patterns of one registration at a time: each takes tens of megabytes for
/// a moment. Emits do not wait for that, as they compile their own.
static COMPILING: Semaphore = Semaphore::const_new(1);

/// A queue to register.
#[derive(Debug)]
pub(crate) struct NewQueueRow<'a> {
    pub(crate) name: &'a Name,
    pub(crate) patterns: &'a [QueuePattern],
    pub(crate) facets: FacetSettings,
    pub(crate) tenant_visible: bool,
    /// The retry policy of its copies, if they are pulled.
    pub(crate) pull: Option<&'a PullPolicy>,
    /// Whether its waiting copies may now run, and have to be woken.
    pub(crate) wakes: bool,
    pub(crate) actor: &'a Actor,
}

/// The outcome of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueuePut {
    /// There was none of this name.
    New,
    /// It replaced a registration, possibly the same.
    Replaced,
    /// There are [`QUEUES_MAX`] others.
    TooMany,
    /// All patterns together need more memory than emitters allow.
    TooCostly,
    /// The registered queues changed each time after the patterns had been compiled.
    Stale,
}

impl QueuePut {
    fn is_done(self) -> bool {
        match self {
            Self::New | Self::Replaced => true,
            Self::TooMany | Self::TooCostly | Self::Stale => false,
        }
    }
}

/// How often a registration is repeated because another one was made meanwhile.
const PUT_TRIES: usize = 100;

impl Store {
    /// Registers a queue, or replaces its registration. From the commit on, each matching emit
    /// makes a copy. Its copies are run by functions, pulled, or sent to an HTTP target, which is
    /// stored at [`target_of_queue`](crate::event::target_of_queue).
    pub(crate) async fn put_queue(
        &self,
        new: &NewQueueRow<'_>,
        target: Option<&NewTargetRow<'_>>,
    ) -> Result<(QueuePut, Option<PutOutcome>), StoreError> {
        let detail = match (target, new.pull) {
            (Some(target), _) => format!("{}, sent to {}", new.name, target.url.origin()),
            (None, Some(_)) => format!("{}, pulled over HTTP", new.name),
            (None, None) => new.name.to_string(),
        };
        for _ in 0..PUT_TRIES {
            let Some(version) = self.can_hold(new).await? else { return Ok((QueuePut::TooCostly, None)) };
            let mut session = self.session().await?.for_statements(12);
            let put = session
                .limit(async |connection| {
                    let mut transaction = connection.begin().await?;
                    let put = put(&mut transaction, new, version, &detail).await?;
                    let outcome = match target {
                        _ if !put.is_done() => None,
                        Some(target) => put_within(&mut transaction, target).await?,
                        None => {
                            delete_target(&mut transaction, new.name).await?;
                            None
                        }
                    };
                    end(transaction, put.is_done()).await?;
                    Ok((put, outcome))
                })
                .await;
            let (put, outcome) = session.answered("register a queue", put).await?;
            if put != QueuePut::Stale {
                return Ok((put, outcome));
            }
        }
        Ok((QueuePut::Stale, None))
    }

    /// The version of the patterns with which emitters can hold those of this queue; `None` if all
    /// together need too much memory, so that emits would fail. Compiling takes long, so no
    /// transaction is open meanwhile.
    async fn can_hold(&self, new: &NewQueueRow<'_>) -> Result<Option<i64>, StoreError> {
        let _compiling = COMPILING.acquire().await;
        let statement = "read the registered patterns";
        let mut session = self.session().await?;
        let read = session.limit(patterns_of).await;
        let Patterns { version, mut of_queues, .. } = session.answered(statement, read).await?;
        of_queues.retain(|(queue, _)| queue != new.name);
        let own = new.patterns.iter().map(|pattern| (new.name.clone(), pattern.as_str().to_owned()));
        of_queues.extend(own);
        let compiled = compiled(of_queues).await.map_err(|error| StoreError::from_sqlx(statement, error))?;
        Ok(compiled.is_ok().then_some(version))
    }
}

async fn end(transaction: Transaction<'_, Postgres>, commits: bool) -> Result<(), sqlx::Error> {
    if commits { transaction.commit().await } else { transaction.rollback().await }
}

/// Serializes registrations. Raises the version in any case, so that emitters read the patterns
/// again, and returns the version before.
async fn raise_version(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    let grow = sqlx::query_scalar!(
        r#"with before as materialized (select version from wakeq.queue_registry for update)
           update wakeq.queue_registry r
              set version = greatest(before.version + 1, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
             from before
        returning before.version as "before!""#
    );
    grow.fetch_one(connection).await
}

async fn put(
    connection: &mut PgConnection,
    new: &NewQueueRow<'_>,
    version: i64,
    detail: &str,
) -> Result<QueuePut, sqlx::Error> {
    let patterns: Vec<String> = new.patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect();
    if raise_version(&mut *connection).await? != version {
        return Ok(QueuePut::Stale);
    }
    let was_visible = sqlx::query_scalar!(
        r#"select exists (select from wakeq.queues where name = $1 and tenant_visible) as "visible!""#,
        new.name.as_str() as _
    )
    .fetch_one(&mut *connection)
    .await?;
    let put = write(&mut *connection, new).await?;
    let Some(is_new) = put else { return Ok(QueuePut::TooMany) };
    if was_visible && !new.tenant_visible {
        wake_parked(&mut *connection, new.name).await?;
    }
    if new.wakes {
        let wakes = sqlx::query!("insert into wakeq.queue_wakes (queue) values ($1)", new.name.as_str() as _);
        wakes.execute(&mut *connection).await?;
    }
    sqlx::query!(
        "with gone as (delete from wakeq.queue_patterns where queue = $1 and pattern <> all ($2))
         insert into wakeq.queue_patterns (queue, pattern) select $1, * from unnest($2::text[]) on conflict do nothing",
        new.name.as_str() as _,
        &patterns
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
         values ($1, $2, 'put-queue', 'done', $3, concat_ws('; ', $4::text, left('queue ' || $5::text, 800)))",
        None::<Uuid>,
        new.actor.name(),
        new.actor.request_id(),
        new.actor.credential_id(),
        detail
    )
    .execute(&mut *connection)
    .await?;
    Ok(if is_new { QueuePut::New } else { QueuePut::Replaced })
}

/// Writes the row; returns whether it is new, or `None` if there are too many.
async fn write(connection: &mut PgConnection, new: &NewQueueRow<'_>) -> Result<Option<bool>, sqlx::Error> {
    let pull = new.pull.cloned().unwrap_or_default();
    sqlx::query_scalar!(
        r#"insert into wakeq.queues as q (name, weight, in_flight_max, tenant_visible, created_by, updated_by,
                                          pulled, pull_retries, pull_delay_ms, pull_factor, pull_delay_max_ms, pull_halts)
           select $1::text, coalesce($2, 1), $3, $6, $4, $4, $7, $8, $9, $10, $11, $12
            where (select count(*) from wakeq.queues where name <> $1::text) < $5
               on conflict (name) do update
              set draining = false, weight = excluded.weight, in_flight_max = excluded.in_flight_max,
                  tenant_visible = excluded.tenant_visible, pulled = excluded.pulled,
                  pull_retries = excluded.pull_retries, pull_delay_ms = excluded.pull_delay_ms,
                  pull_factor = excluded.pull_factor, pull_delay_max_ms = excluded.pull_delay_max_ms,
                  pull_halts = excluded.pull_halts, updated_by = excluded.updated_by, updated_at = now()
        returning xmax = 0 as "new!""#,
        new.name.as_str(),
        integer(new.facets.weight),
        integer(new.facets.in_flight_max),
        new.actor.name(),
        QUEUES_MAX,
        new.tenant_visible,
        new.pull.is_some(),
        integer(Some(pull.retries)),
        in_milliseconds(pull.delay),
        integer(Some(pull.factor)),
        in_milliseconds(pull.delay_max),
        pull.halts
    )
    .fetch_optional(connection)
    .await
}

fn in_milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Rules no longer apply to these copies. A worker that parks a copy locks the row of its queue,
/// which has been written by now, so the next statement sees all that are parked.
async fn wake_parked(connection: &mut PgConnection, queue: &Name) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into wakeq.resume_jobs (kind, canvas_id, module, name)
         select distinct 'lifted', e.canvas_id, e.module, e.name from wakeq.events_v2 e
          where e.queue = $1 and e.notify_at is null",
        queue.as_str() as _
    )
    .execute(connection)
    .await
    .map(drop)
}

async fn delete_target(connection: &mut PgConnection, queue: &Name) -> Result<(), sqlx::Error> {
    let (canvas, module) = (CanvasId::OF_QUEUES.0, Name::queue());
    sqlx::query!(
        "delete from wakeq.http_targets where canvas_id = $1 and module = $2 and name = $3",
        canvas,
        module.as_str() as _,
        queue.as_str() as _
    )
    .execute(connection)
    .await
    .map(drop)
}
