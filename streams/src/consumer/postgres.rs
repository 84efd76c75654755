//! The position store in Postgres.

use async_trait::async_trait;

use super::{ConsumerError, DeadLetter, PositionKey, PositionStore};
use crate::store::{self, DeadEntry, FailureRecord, PositionMove};
use wakeq::{Store, StoreError};

/// Most characters of an error's text that are stored.
const ERROR_MAX: usize = 2_000;

fn failed(what: &'static str) -> impl FnOnce(StoreError) -> ConsumerError {
    move |error| ConsumerError::unavailable(what, error)
}

/// The same store, with the statements of positions.
fn of_positions(store: &Store) -> store::Store {
    store::Store::from(store)
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
        let answer = of_positions(self).move_position(&moved(key, epoch, from, to)).await;
        match answer.map_err(failed("a position can't be moved"))? {
            true => Ok(()),
            false => Err(fenced(self, key).await),
        }
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
        let answer = of_positions(self).move_to_dead(&moved(key, epoch, from, dead.event.seq), &entry).await;
        match answer.map_err(failed("an event can't be given up"))? {
            true => Ok(()),
            false => Err(fenced(self, key).await),
        }
    }

    async fn note(
        &self,
        key: &PositionKey,
        epoch: i64,
        failing: &DeadLetter<'_>,
    ) -> Result<(), ConsumerError> {
        let (error, attempts) = stored_form(failing);
        let noted = of_positions(self)
            .note_failing(
                &key.group,
                &key.source,
                epoch,
                &FailureRecord { seq: failing.event.seq, attempts, error: &error },
            )
            .await;
        match noted.map_err(failed("a failing event can't be recorded"))? {
            true => Ok(()),
            false => Err(fenced(self, key).await),
        }
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
        let noted = of_positions(self).redone(&key.group, &key.source, epoch, seq, error.as_deref()).await;
        match noted.map_err(failed("the outcome of a retry can't be recorded"))? {
            true => Ok(()),
            false => Err(fenced(self, key).await),
        }
    }
}
