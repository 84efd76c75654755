//! An event that its handler completes in a transaction of its own.

use std::time::Duration;

use sqlx::postgres::PgConnection;

use crate::event::Claim;
use crate::store::kernel::{Store, StoreError};

/// What `wakeq.complete` and `wakeq.checkpoint` raise if the claim does not stand.
const CLAIM_LOST: &str = "55000";

/// What became of a claim whose handler has tried to complete the event itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The row is gone.
    Gone,
    /// The claim stands: the handler's transaction was rolled back.
    Stands,
    /// Another claim was made, or this one released.
    Lost,
}

impl Store {
    /// Waits for the transaction in which a claimed row was written, and says what it did. Never
    /// asked in memory, where there are no transactions.
    pub(crate) async fn standing(&self, claim: Claim) -> Result<Standing, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query_scalar!(
            r#"select claims::bigint << 32 | nonce = $2 and locked_at is not null as "stands!"
                 from wakeq.events_v2 where id = $1 for update"#,
            claim.id.0,
            claim.fence()
        );
        let found = session.limit(|connection| query.fetch_optional(connection)).await;
        Ok(match session.answered("look whether an event was completed", found).await? {
            None => Standing::Gone,
            Some(true) => Standing::Stands,
            Some(false) => Standing::Lost,
        })
    }
}

/// Completes an event on its handler's connection; whether the claim stood. It is kept as long as
/// its emit asks for, or else for this time.
pub(crate) async fn complete_in(
    connection: &mut PgConnection,
    claim: Claim,
    result: Option<&str>,
    keep: Duration,
) -> Result<bool, StoreError> {
    let query = sqlx::query!(
        "select wakeq.complete($1, $2, $3, $4)",
        claim.id.0,
        claim.token(),
        result,
        keep.as_secs_f64()
    );
    match query.execute(connection).await {
        Ok(_) => Ok(true),
        Err(error) if is_lost(&error) => Ok(false),
        Err(error) => Err(StoreError::from_sqlx("complete an event in a transaction", error)),
    }
}

/// Whether the claim that was passed to `wakeq.complete` or `wakeq.checkpoint` did not stand.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some(CLAIM_LOST))
}
