//! What an attempt leaves to the next attempt of its event, on the handler's side.
//!
//! A handler that stores nothing costs nothing: the store is asked when the handler does.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgConnection;

use super::checkpoints::CheckpointError;
use super::execution::Execution;
use crate::event::{Checkpoint, InvalidCheckpoint, JsonError};

impl Execution {
    /// Stores how far the handler has come, in place of what was stored before, so that the next
    /// attempt continues there: [`Execution::last_checkpoint`] returns it then, after a failure, a
    /// crash or a redrive. It is JSON of at most 64 KiB, and it is gone when the event has ended.
    ///
    /// An attempt that has lost its claim to another stores nothing and gets
    /// [`CheckpointError::ClaimLost`]: it has to stop. This is one statement, so store one after
    /// each page of the work and not after each row. While a transaction is open in which
    /// [`Execution::checkpoint_in`] was called, this waits for it. For an execution made by hand
    /// the value is only checked.
    ///
    /// ```
    /// use wakeq::{Execution, HandlerResult};
    ///
    /// async fn import(event: Execution) -> HandlerResult {
    ///     let mut page: u32 = event.last_checkpoint().await?.unwrap_or(0);
    ///     while fetch(page).await? {
    ///         page += 1;
    ///         event.checkpoint(&page).await?;
    ///     }
    ///     Ok(())
    /// }
    /// # async fn fetch(page: u32) -> Result<bool, std::io::Error> { Ok(page < 3) }
    /// ```
    pub async fn checkpoint<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), CheckpointError> {
        self.checkpoint_json(&written(value)?).await
    }

    /// Like [`Execution::checkpoint`], in the handler's own transaction: what the handler writes
    /// and how far it has come are one commit, and neither stands without the other.
    ///
    /// The event's row is locked until the transaction ends, and its lease can't be renewed
    /// meanwhile, so make this the last statement of a transaction that is shorter than the lease.
    /// The connection must lead to the queue's database, in a role that may call
    /// `wakeq.checkpoint`. In the test kit in memory, where there are no transactions, the
    /// checkpoint is stored at once.
    ///
    /// ```no_run
    /// use wakeq::{Execution, HandlerResult};
    ///
    /// async fn copy(event: Execution, pool: sqlx::PgPool) -> HandlerResult {
    ///     let first: i64 = event.last_checkpoint().await?.unwrap_or(0);
    ///     for page in first..100 {
    ///         let mut transaction = pool.begin().await?;
    ///         sqlx::query("insert into pages (number) values ($1)").bind(page).execute(&mut *transaction).await?;
    ///         event.checkpoint_in(&mut transaction, &(page + 1)).await?;
    ///         transaction.commit().await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn checkpoint_in<T: Serialize + ?Sized>(
        &self,
        transaction: &mut PgConnection,
        value: &T,
    ) -> Result<(), CheckpointError> {
        let json = written(value)?;
        match self.checkpoints() {
            Some((checkpoints, claim)) => {
                let canvas = self.address.scope.canvas;
                checkpoints.store_in(transaction, (canvas, claim), &json).await
            }
            None => Ok(()),
        }
    }

    /// What this attempt or one before it has stored last; `None` if there is nothing. The first
    /// attempt that starts asks nobody, and others read one row.
    ///
    /// ```
    /// # async fn example(event: wakeq::Execution) -> wakeq::HandlerResult {
    /// let cursor: Option<String> = event.last_checkpoint().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn last_checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, CheckpointError> {
        let Some(checkpoint) = self.last_checkpoint_json().await? else { return Ok(None) };
        serde_json::from_str(&checkpoint.json).map(Some).map_err(CheckpointError::Shape)
    }

    /// Like [`Execution::checkpoint`], for a value that is JSON text already.
    ///
    /// ```
    /// # async fn example(event: wakeq::Execution) -> wakeq::HandlerResult {
    /// event.checkpoint_json(r#"{"cursor": "b7"}"#).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn checkpoint_json(&self, json: &str) -> Result<(), CheckpointError> {
        Checkpoint::check(json)?;
        match self.checkpoints() {
            Some((checkpoints, claim)) => checkpoints.store(self.address.scope.canvas, claim, json).await,
            None => Ok(()),
        }
    }

    /// Like [`Execution::last_checkpoint`], as JSON text and with the time at which it was stored.
    ///
    /// ```
    /// # async fn example(event: wakeq::Execution) -> wakeq::HandlerResult {
    /// if let Some(checkpoint) = event.last_checkpoint_json().await? {
    ///     println!("continues after {}, stored at {}", checkpoint.json, checkpoint.stored_at);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn last_checkpoint_json(&self) -> Result<Option<Checkpoint>, CheckpointError> {
        match self.checkpoints() {
            Some((checkpoints, claim)) => checkpoints.last(self.address.scope.canvas, claim).await,
            None => Ok(None),
        }
    }
}

fn written<T: Serialize + ?Sized>(value: &T) -> Result<String, InvalidCheckpoint> {
    let json = serde_json::to_string(value).map_err(JsonError::Invalid)?;
    Checkpoint::check(&json)?;
    Ok(json)
}
