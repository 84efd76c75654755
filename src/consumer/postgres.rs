//! Positions in Postgres.

use async_trait::async_trait;

use super::{ConsumerError, DeadLetter, PositionKey, PositionStore};
use crate::store::{Buried, PositionMove, Store, StoreError};

/// The most characters that are kept of an error.
const ERROR_MAX: usize = 2_000;

fn failed(what: &'static str) -> impl FnOnce(StoreError) -> ConsumerError {
    move |error| ConsumerError::unavailable(what, error)
}

/// Says why a position was not moved.
async fn fenced(store: &Store, key: &PositionKey) -> ConsumerError {
    match store.position_epoch(&key.group, &key.source).await {
        Ok(epoch) => ConsumerError::Fenced { source_key: key.source.to_string(), epoch },
        Err(error) => ConsumerError::unavailable("the epoch of a position can't be read", error),
    }
}

fn moved(key: &PositionKey, epoch: i64, from: i64, to: i64) -> PositionMove<'_> {
    PositionMove { group: &key.group, source: &key.source, epoch, from, to }
}

#[async_trait]
impl PositionStore for Store {
    async fn open(&self, key: &PositionKey, epoch: i64) -> Result<i64, ConsumerError> {
        let opened = self.open_position(&key.group, &key.source, epoch).await;
        match opened.map_err(failed("a position can't be opened"))? {
            Some(position) => Ok(position),
            None => Err(fenced(self, key).await),
        }
    }

    async fn commit(&self, key: &PositionKey, epoch: i64, from: i64, to: i64) -> Result<(), ConsumerError> {
        let answer = self.move_position(&moved(key, epoch, from, to)).await;
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
        let error: String = dead.error.chars().filter(|letter| *letter != '\0').take(ERROR_MAX).collect();
        let attempts = i32::try_from(dead.attempts).unwrap_or(i32::MAX);
        let buried = Buried { event: dead.event, attempts, error: &error };
        let answer = self.bury(&moved(key, epoch, from, dead.event.seq), &buried).await;
        match answer.map_err(failed("an event can't be given up"))? {
            true => Ok(()),
            false => Err(fenced(self, key).await),
        }
    }
}
