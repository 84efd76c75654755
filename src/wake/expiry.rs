//! Deletes what is too old to keep, and provides for the log: the part of a pass that nobody waits
//! for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Waker;
use crate::store::{GROUP_DEAD_PAGE, IdleRetention, Retention, StoreError, TOMBSTONES_PAGE};

/// Most pages of expired data that one pass deletes, so that none takes minutes; the next
/// continues.
const EXPIRE_PAGES: usize = 100;
/// Most pages of unused data that one process looks at in a row.
const IDLE_PAGES: usize = 20;

/// Most partitions of the log that one pass drops.
const LOG_PARTITIONS: usize = 10;

impl Waker {
    /// Creates partitions of the log for the next sequence numbers. Appenders create missing ones
    /// themselves, so a failure does not stop the pass.
    pub(super) async fn provide_for_log(&self) {
        if let Err(error) = self.store.add_log_partitions().await {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "no partitions of the log were created; retrying in ten passes");
        }
    }

    /// Drops partitions of the log that are older than this and no longer needed. If the log is in
    /// use, a later pass drops them.
    async fn expire_log(&self, kept: Duration) -> Result<(), StoreError> {
        for _ in 0..LOG_PARTITIONS {
            match self.store.drop_log_partition(kept).await {
                Ok(Some(partition)) => tracing::info!(partition, "an old partition of the log was dropped"),
                Ok(None) => break,
                Err(error) if error.is_contention() => {
                    let error = &error as &dyn std::error::Error;
                    tracing::info!(error, "the log is in use: its old partitions are dropped later");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Deletes expired data. If there is too much of it, the rest is left to the next pass, of this
    /// process or another. What can't be deleted is tried again within two hours, and holds up
    /// nothing else.
    pub(super) async fn expire(&self, retention: Retention) {
        if let Some(kept) = retention.log {
            note("partitions of the log", self.expire_log(kept).await);
        }
        note("unused rows", self.expire_idle(retention).await);
        if self.expire_pages(retention).await {
            self.passes.store(0, Ordering::Relaxed);
            note("the next expiry", self.store.hasten_expiry().await);
        }
    }

    /// Deletes what is too old, a page of each kind at a time; returns whether there is more.
    async fn expire_pages(&self, retention: Retention) -> bool {
        let kept = retention.dead_events;
        let (mut group_dead, mut tombstones, mut others) = (true, true, true);
        for page in 0..EXPIRE_PAGES {
            if group_dead {
                let deleted = note("dead events of groups", self.store.expire_group_dead(kept).await);
                group_dead = deleted.is_some_and(|deleted| deleted >= GROUP_DEAD_PAGE);
            }
            if tombstones {
                let deleted = note("tombstones", self.store.expire_tombstones(kept).await);
                tombstones = deleted.is_some_and(|deleted| deleted >= TOMBSTONES_PAGE);
            }
            if others {
                others = note("expired rows", self.store.expire(page > 0, retention).await).unwrap_or(false);
            }
            if !group_dead && !tombstones && !others {
                return false;
            }
            if self.is_over() {
                break;
            }
        }
        true
    }

    /// Deletes data that is no longer used, a part at a time: the next part an hour later.
    async fn expire_idle(&self, retention: Retention) -> Result<(), StoreError> {
        let Retention { idle, audit, .. } = retention;
        let kept = IdleRetention { objects: idle, entity_events: idle, keys: audit };
        for page in 0..IDLE_PAGES {
            if !self.store.expire_idle(page > 0, kept).await? || self.is_over() {
                break;
            }
        }
        Ok(())
    }
}

/// The result of a part; `None`, and logged, if it failed.
fn note<T>(part: &'static str, result: Result<T, StoreError>) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, part, "what has expired was not deleted; retrying within two hours");
            None
        }
    }
}
