//! Emits that are answered once: the key, the events and the answer are one transaction.

use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::insert::{NewState, add_with_state, statements};
use super::outcome::InsertOutcome;
use crate::event::{IdempotencyKey, NewEvent};
use crate::store::kernel::{Emission, Sql, Store, StoreError, interval};
use crate::store::minute::IDEMPOTENCY_KEPT;

/// The outcome of an emit under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IdempotencyOutcome {
    /// The events and the answer are committed.
    First(Vec<InsertOutcome>),
    /// The key was used for the same request; this was its answer.
    Replayed(String),
    /// The key was used for another request.
    Mismatch,
    /// Another call is using the key at this moment.
    InProgress,
}

impl Sql<'_> {
    pub(in crate::store) async fn insert_once(
        &self,
        key: &IdempotencyKey,
        events: &[NewEvent],
        chosen: &[bool],
        state: Option<NewState<'_>>,
        answer: impl FnOnce(&[InsertOutcome]) -> String + Send,
    ) -> Result<IdempotencyOutcome, StoreError> {
        // Statements besides those of the events: the key, the lookup of an earlier answer, the
        // answer.
        let mut session = self.session().await?.for_statements(3 + statements(events));
        let emission = self.emission().alone();
        let change = (events, chosen, state);
        let keyed = session.limit(|connection| once(connection, key, change, emission, answer)).await;
        session.answered("insert events under an idempotency key", keyed).await
    }
}

impl Store {
    /// The answer that is stored under a key, if the request is the same.
    pub(crate) async fn replayed(&self, key: &IdempotencyKey) -> Result<Option<String>, StoreError> {
        let mut session = self.session().await?;
        let earlier = session.limit(|connection| earlier(connection, key)).await;
        let earlier = session.answered("look for the answer under an idempotency key", earlier).await?;
        Ok(match earlier {
            IdempotencyOutcome::Replayed(answer) => Some(answer),
            IdempotencyOutcome::First(_) | IdempotencyOutcome::Mismatch | IdempotencyOutcome::InProgress => {
                None
            }
        })
    }
}

async fn once(
    connection: &mut PgConnection,
    key: &IdempotencyKey,
    (events, chosen, state): (&[NewEvent], &[bool], Option<NewState<'_>>),
    emission: Emission<'_>,
    answer: impl FnOnce(&[InsertOutcome]) -> String + Send,
) -> Result<IdempotencyOutcome, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    if let Some(used) = used(&mut transaction, key).await? {
        transaction.rollback().await?;
        return Ok(used);
    }
    let inserted = add_with_state(&mut transaction, events, chosen, state, emission).await?;
    keep(&mut transaction, key, &answer(&inserted)).await?;
    transaction.commit().await?;
    Ok(IdempotencyOutcome::First(inserted))
}

/// Takes the key in this transaction; `None` if it was free. Otherwise the transaction has to be
/// rolled back.
pub(in crate::store) async fn used(
    connection: &mut PgConnection,
    key: &IdempotencyKey,
) -> Result<Option<IdempotencyOutcome>, sqlx::Error> {
    match take(connection, key).await {
        Ok(true) => Ok(None),
        Ok(false) => earlier(connection, key).await.map(Some),
        Err(error) if is_locked(&error) || StoreError::is_ended(&error) => {
            Ok(Some(IdempotencyOutcome::InProgress))
        }
        Err(error) => Err(error),
    }
}

/// Writes the key; returns whether it was free. Waits for a transaction that has written it and not
/// committed yet. A key that is too old to count is taken over, whether or not the hourly chore has
/// deleted it.
async fn take(connection: &mut PgConnection, key: &IdempotencyKey) -> Result<bool, sqlx::Error> {
    let taken = sqlx::query!(
        "insert into wakeq.idempotency_keys as k (canvas_id, holder, key, fingerprint, answer)
         values ($1, $2, $3, $4, '')
             on conflict (canvas_id, holder, key)
             do update set fingerprint = excluded.fingerprint, answer = '', created_at = now()
                     where k.created_at < now() - $5::interval",
        key.canvas.0,
        key.holder,
        key.key,
        key.fingerprint,
        interval(IDEMPOTENCY_KEPT)
    )
    .execute(connection)
    .await?;
    Ok(taken.rows_affected() > 0)
}

/// The answer to the request that used the key first.
async fn earlier(
    connection: &mut PgConnection,
    key: &IdempotencyKey,
) -> Result<IdempotencyOutcome, sqlx::Error> {
    let row = sqlx::query!(
        "select fingerprint, answer from wakeq.idempotency_keys where canvas_id = $1 and holder = $2 and key = $3",
        key.canvas.0,
        key.holder,
        key.key
    )
    .fetch_optional(connection)
    .await?;
    Ok(match row {
        Some(row) if row.fingerprint == key.fingerprint => IdempotencyOutcome::Replayed(row.answer),
        Some(_) => IdempotencyOutcome::Mismatch,
        // It expired and was deleted between the two statements.
        None => IdempotencyOutcome::InProgress,
    })
}

/// Stores the answer under a key that this transaction has taken.
pub(in crate::store) async fn keep(
    connection: &mut PgConnection,
    key: &IdempotencyKey,
    answer: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "update wakeq.idempotency_keys set answer = $4 where canvas_id = $1 and holder = $2 and key = $3",
        key.canvas.0,
        key.holder,
        key.key,
        answer
    )
    .execute(connection)
    .await
    .map(drop)
}

fn is_locked(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "55P03")
}
