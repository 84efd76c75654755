//! Runs of crons by hand: an event outside the rhythm, in one transaction with its line in the
//! audit log and, if there is one, the idempotency key. No tick is moved.

use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::ticks::{TickOutcome, due_soon};
use crate::event::{Actor, EventId, IdempotencyKey, NewEvent};
use crate::store::events::{IdempotencyOutcome, InsertOutcome, add_all, keep, used};
use crate::store::kernel::{Emission, Store, StoreError};

/// Statements of a transaction: begin, the key with the lookup of an earlier answer, the line, up
/// to two of the event, the answer, commit.
const STATEMENTS: usize = 9;

/// What came of running a cron.
#[derive(Clone, Debug)]
pub(crate) enum CronRun {
    /// Its event is committed.
    Emitted(TickOutcome),
    /// The same request has emitted this one.
    Replayed(EventId),
    /// The canvas has no such cron. The key is free.
    Missing,
    /// The key was used for another request.
    Mismatch,
    /// Another call is using the key at this moment.
    InProgress,
}

impl CronRun {
    /// What it means that the key was used.
    fn of(used: IdempotencyOutcome) -> Self {
        match used {
            IdempotencyOutcome::Replayed(id) => id.parse().map_or(Self::Mismatch, Self::Replayed),
            IdempotencyOutcome::InProgress => Self::InProgress,
            IdempotencyOutcome::Mismatch | IdempotencyOutcome::First(_) => Self::Mismatch,
        }
    }
}

impl Store {
    /// Emits an event of the cron that its address names, if there is one, and writes that down.
    /// With a key, once.
    pub(crate) async fn run_cron(
        &self,
        event: NewEvent,
        key: Option<&IdempotencyKey>,
        actor: &Actor,
    ) -> Result<CronRun, StoreError> {
        let mut session = self.session().await?.for_statements(STATEMENTS);
        let emission = self.emission().alone();
        let ran = session.limit(|connection| run(connection, event, key, actor, emission)).await;
        session.answered("run a cron", ran).await
    }
}

async fn run(
    connection: &mut PgConnection,
    event: NewEvent,
    key: Option<&IdempotencyKey>,
    actor: &Actor,
    emission: Emission<'_>,
) -> Result<CronRun, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    if let Some(key) = key
        && let Some(used) = used(&mut transaction, key).await?
    {
        transaction.rollback().await?;
        return Ok(CronRun::of(used));
    }
    if !note(&mut transaction, &event, actor).await? {
        transaction.rollback().await?;
        return Ok(CronRun::Missing);
    }
    if let Some(key) = key {
        keep(&mut transaction, key, &event.id.0.to_string()).await?;
    }
    let events = vec![event];
    let inserted = add_all(&mut transaction, &events, &[false], emission).await?;
    transaction.commit().await?;
    let notifications = due_soon(&events, &inserted);
    let copies = inserted.iter().flat_map(InsertOutcome::due_copies).copied().collect();
    Ok(CronRun::Emitted(TickOutcome { notifications, copies, events, ..TickOutcome::default() }))
}

/// Writes the line in the audit log; returns whether there is such a cron.
async fn note(connection: &mut PgConnection, event: &NewEvent, actor: &Actor) -> Result<bool, sqlx::Error> {
    let scope = &event.address.scope;
    let noted = sqlx::query!(
        r#"insert into wakeq.audit_log (canvas_id, actor, action, module, name, event_id, outcome, request_id, detail)
           select c.canvas_id, $3::text, 'run-cron', 'CRON', c.name::text, $4::uuid, 'done', $5::text, $6::text
             from wakeq.cron_records c where c.canvas_id = $1 and c.name = $2"#,
        scope.canvas.0,
        scope.name.as_str() as _,
        actor.name(),
        event.id.0,
        actor.request_id(),
        actor.credential_id()
    )
    .execute(connection)
    .await?;
    Ok(noted.rows_affected() > 0)
}
