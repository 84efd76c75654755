//! The position store in Postgres.

use async_trait::async_trait;

use super::{ConsumerError, DeadLetter, PositionKey, PositionStore};
use crate::store::{self, DeadEntry, PositionMove};
use wakeq::{Store, StoreError};

/// Maximum number of characters of an error's text that are stored.
const ERROR_MAX: usize = 2_000;

fn failed(what: &'static str) -> impl FnOnce(StoreError) -> ConsumerError {
    move |error| ConsumerError::unavailable(what, error)
}

/// The same store, with the statements of positions.
fn of_positions(store: &Store) -> store::Store {
    store::Store::from(store)
}

/// The end of a write, which says whether the position is under the caller's epoch.
async fn written(
    store: &Store,
    key: &PositionKey,
    what: &'static str,
    write: impl Future<Output = Result<bool, StoreError>>,
) -> Result<(), ConsumerError> {
    if write.await.map_err(failed(what))? { Ok(()) } else { Err(fenced(store, key).await) }
}

/// The error for a position that was not moved.
async fn fenced(store: &Store, key: &PositionKey) -> ConsumerError {
    match of_positions(store).position_epoch(&key.group, &key.source).await {
        Ok(epoch) => ConsumerError::Fenced { source_key: key.source.to_string(), epoch },
        Err(error) => ConsumerError::unavailable("the epoch of a position can't be read", error),
    }
}

fn moved(key: &PositionKey, epoch: i64, from: i64, to: i64) -> PositionMove<'_> {
    PositionMove { group: &key.group, source: &key.source, epoch, from, to }
}

fn cleaned(error: &str) -> String {
    error.chars().filter(|letter| *letter != '\0').take(ERROR_MAX).collect()
}

/// The error's text and the number of attempts, as they are stored.
fn stored_form(dead: &DeadLetter<'_>) -> (String, i32) {
    (cleaned(dead.error), i32::try_from(dead.attempts).unwrap_or(i32::MAX))
}

#[async_trait]
impl PositionStore for Store {
    async fn open(&self, key: &PositionKey, epoch: i64) -> Result<i64, ConsumerError> {
        let opened = of_positions(self).open_position(&key.group, &key.source, epoch).await;
        match opened.map_err(failed("a position can't be opened"))? {
            Some(position) => Ok(position),
            None => Err(fenced(self, key).await),
        }
    }

    async fn commit(&self, key: &PositionKey, epoch: i64, from: i64, to: i64) -> Result<(), ConsumerError> {
        let (store, to) = (of_positions(self), moved(key, epoch, from, to));
        written(self, key, "a position can't be moved", store.move_position(&to)).await
    }

    async fn skip(
        &self,
        key: &PositionKey,
        epoch: i64,
        from: i64,
        dead: &DeadLetter<'_>,
    ) -> Result<(), ConsumerError> {
        let (error, attempts) = stored_form(dead);
        let entry = DeadEntry { event: dead.event, attempts, error: &error };
        let (store, to) = (of_positions(self), moved(key, epoch, from, dead.event.seq));
        written(self, key, "an event can't be given up", store.move_to_dead(&to, &entry)).await
    }

    async fn note(
        &self,
        key: &PositionKey,
        epoch: i64,
        failing: &DeadLetter<'_>,
    ) -> Result<(), ConsumerError> {
        let (error, attempts) = stored_form(failing);
        let entry = DeadEntry { event: failing.event, attempts, error: &error };
        let store = of_positions(self);
        let noting = store.note_failing(&key.group, &key.source, epoch, &entry);
        written(self, key, "a failing event can't be recorded", noting).await
    }

    async fn redriven(&self, key: &PositionKey) -> Result<Vec<i64>, ConsumerError> {
        let seqs = of_positions(self).redriven(&key.group, &key.source).await;
        seqs.map_err(failed("the events to be retried can't be read"))
    }

    async fn redone(
        &self,
        key: &PositionKey,
        epoch: i64,
        seq: i64,
        error: Option<&str>,
    ) -> Result<(), ConsumerError> {
        let error = error.map(cleaned);
        let store = of_positions(self);
        let noting = store.redone(&key.group, &key.source, epoch, seq, error.as_deref());
        written(self, key, "the outcome of a retry can't be recorded", noting).await
    }
}
