//! Deletes data that is too old to keep, and provides for the log. No caller waits for this part of
//! a pass.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Waker;
use crate::store::{ExpiryPart, IdleRetention, Retention, StoreError};

/// Maximum number of pages of each part of expired data that one pass deletes, so that none takes
/// minutes; the next continues.
const EXPIRE_PAGES: usize = 100;
/// How long a pass goes on deleting: meanwhile this process wakes nothing.
const EXPIRE_TIME: Duration = Duration::from_secs(20);
/// Maximum number of pages of unused data that one process looks at in a row.
const IDLE_PAGES: usize = 20;

/// Maximum number of partitions of the log that one pass drops.
const LOG_PARTITIONS: usize = 10;
/// The same of the history.
const HISTORY_PARTITIONS: usize = 20;
/// Shortest time for which attempts are kept: their partitions are for days.
const HISTORY_MIN: Duration = Duration::from_secs(24 * 3600);

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

    /// Creates the next partitions of the history, and drops those of which nothing is kept. If the
    /// history is in use, a later pass does it. Where old ones can't be dropped, the next ones are
    /// created all the same: without them everything would come to the rest.
    async fn turn_history_over(&self, kept: Duration) -> Result<(), StoreError> {
        let dropped = self.drop_history(kept).await;
        match self.store.add_history_partitions().await {
            Ok(_) => dropped,
            Err(error) if error.is_contention() => {
                let error = &error as &dyn std::error::Error;
                tracing::info!(error, "the history is in use: its next partitions are created later");
                dropped
            }
            Err(error) => Err(error),
        }
    }

    async fn drop_history(&self, kept: Duration) -> Result<(), StoreError> {
        for _ in 0..HISTORY_PARTITIONS {
            match self.store.drop_history_partition(kept.max(HISTORY_MIN)).await {
                Ok(Some(partition)) => tracing::info!(partition, "an old part of the history was deleted"),
                Ok(None) => break,
                Err(error) if error.is_contention() => {
                    let error = &error as &dyn std::error::Error;
                    tracing::info!(error, "the history is in use: its old partitions are dropped later");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Deletes expired data. If there is too much of it, the rest is left to the next pass, of this
    /// process or another. A part that can't be deleted is tried again within two hours, and holds
    /// up nothing else.
    pub(super) async fn expire(&self, retention: Retention) {
        if let Some(kept) = retention.log {
            note("partitions of the log", self.expire_log(kept).await);
        }
        note("partitions of the history", self.turn_history_over(retention.attempts).await);
        note("unused rows", self.expire_idle(retention).await);
        let is_ours = note("all that is old", self.store.begin_expiry().await);
        if is_ours != Some(true) {
            return;
        }
        let next = if self.expire_pages(retention).await {
            self.passes.store(0, Ordering::Relaxed);
            self.store.hasten_expiry().await
        } else {
            self.store.end_expiry().await
        };
        note("the next expiry", next);
    }

    /// Deletes data that is too old, a page of each part at a time; returns whether there is more.
    /// A part that fails is left to the next expiry, and stops no other. Where time runs out, this
    /// process begins the next time with the parts that it did not reach. It looks at one part at
    /// least.
    async fn expire_pages(&self, retention: Retention) -> bool {
        let until = Instant::now() + EXPIRE_TIME;
        let is_over = || until <= Instant::now() || self.is_over();
        let mut parts = ExpiryPart::ALL.to_vec();
        parts.rotate_left(self.first_part.load(Ordering::Relaxed));
        for _ in 0..EXPIRE_PAGES {
            let (mut left, mut unfinished) = (parts.into_iter(), Vec::new());
            for part in left.by_ref() {
                if note(part.name(), self.store.expire(part, retention).await) == Some(true) {
                    unfinished.push(part);
                }
                if is_over() {
                    break;
                }
            }
            parts = left.chain(unfinished).collect();
            if parts.is_empty() || is_over() {
                break;
            }
        }
        let first = ExpiryPart::ALL.iter().position(|part| parts.first() == Some(part));
        self.first_part.store(first.unwrap_or(0), Ordering::Relaxed);
        !parts.is_empty()
    }

    /// Deletes unused data, up to [`IDLE_PAGES`] pages of it in an hour.
    async fn expire_idle(&self, retention: Retention) -> Result<(), StoreError> {
        let Retention { idle, audit, .. } = retention;
        let kept = IdleRetention { objects: idle, entity_events: idle, keys: audit };
        let until = Instant::now() + EXPIRE_TIME;
        for page in 0..IDLE_PAGES {
            let has_more = self.store.expire_idle(page > 0, kept).await?;
            if !has_more || until <= Instant::now() || self.is_over() {
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
            tracing::error!(error, part, "expired data was not deleted; retrying within two hours");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::notify::LocalNotifier;
    use crate::store::tests::Table;
    use crate::store::tests::crowds::{FEW, MANY};

    /// Where remembered ids can't be deleted in the time of a statement, here those of one canvas,
    /// everything else that is old is, on every canvas; and the ids once that is possible again.
    #[tokio::test]
    async fn a_part_that_takes_too_long_stops_no_other() {
        let table = Table::new().await;
        table.remember_old(MANY, 2).await;
        table.add_old_rows(FEW).await;
        assert_eq!(table.old_rows().await, 15);
        table
            .run(
                "create function public.take_long() returns trigger language plpgsql as $$
                 begin raise query_canceled using message = 'canceling statement due to statement timeout'; end $$",
            )
            .await;
        table
            .run(
                "create trigger take_long before delete on wakeq.emitted_ids
                 for each row execute function public.take_long()",
            )
            .await;
        let waker = Waker::new(table.store.clone(), Arc::new(LocalNotifier::new()));
        waker.expire(Retention::default()).await;
        assert_eq!(table.old_rows().await, 0);
        assert_eq!(table.remembered(MANY).await, (2, 2));
        table.run("drop trigger take_long on wakeq.emitted_ids").await;
        table.store.hasten_expiry().await.unwrap();
        waker.expire(Retention::default()).await;
        assert_eq!(table.remembered(MANY).await, (0, 0));
    }

    /// The next partitions of the history are created although old rows can't be deleted.
    #[tokio::test]
    async fn old_attempts_hold_up_no_partition() {
        let table = Table::new().await;
        table.hold_up_old_attempts().await;
        let waker = Waker::new(table.store.clone(), Arc::new(LocalNotifier::new()));
        assert!(waker.turn_history_over(Retention::default().attempts).await.is_err());
        assert_eq!(table.store.add_history_partitions().await.unwrap(), 0, "they are there");
    }
}
