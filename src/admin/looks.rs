//! Looks for copies that became due in pulled queues: what can be leased is leased although a look
//! takes too long.

use uuid::Uuid;

use super::Admin;
use crate::event::Name;
use crate::store::StoreError;

impl Admin {
    /// Looks for copies that became due, whose canvases enter the rotation; returns whether there
    /// are any.
    pub(super) async fn enter_due(&self, queue: &Name) -> Result<bool, StoreError> {
        let entered = self.store.enter_due(queue, Uuid::new_v4()).await;
        Ok(self.looked(queue, entered)?.unwrap_or(false))
    }

    /// Whether a pulled queue may have something to lease now; `None` if no pulled queue has this
    /// name.
    pub(super) async fn has_turns(&self, queue: &Name) -> Result<Option<bool>, StoreError> {
        let looks = self.due_checks.is_due(queue, true);
        let found = self.store.has_turns(queue, Uuid::new_v4(), looks).await;
        if looks { Ok(self.looked(queue, found)?.unwrap_or(Some(false))) } else { found }
    }

    /// The answer to a look; `None`, and logged, if it took too long or the queue was locked. Then
    /// what is in the rotation is leased all the same.
    fn looked<T>(&self, queue: &Name, answer: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match answer {
            Ok(answer) => {
                self.due_checks.answered(queue);
                Ok(Some(answer))
            }
            Err(error) if error.is_too_long() => {
                self.due_checks.put_off(queue);
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    %queue,
                    "copies that became due are looked for in a minute: does a long transaction hold an old snapshot?"
                );
                Ok(None)
            }
            Err(error) if error.is_contention() => {
                let error = &error as &dyn std::error::Error;
                tracing::info!(error, %queue, "copies that became due are looked for at the next lease");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::notify::LocalNotifier;
    use crate::store::tests::Table;
    use crate::store::tests::crowds::{FEW, MANY};

    fn admin(table: &Table) -> Admin {
        Admin::new(table.store.clone(), Arc::new(LocalNotifier::new()))
    }

    /// While an old snapshot keeps the index entries of millions of completed copies, a look takes
    /// too long. What is in the rotation is leased all the same, of each canvas, and there is one
    /// look in a minute.
    #[tokio::test]
    async fn copies_are_leased_although_a_look_takes_too_long() {
        let table = Table::new().await;
        table.pulled_copy("mails").await;
        table.pulled_copy_of(FEW, "mails").await;
        let mails: Name = "mails".parse().unwrap();
        assert!(table.store.enter_due(&mails, Uuid::nil()).await.unwrap());
        table.look_for_too_long().await;
        let (admin, minute) = (admin(&table), Duration::from_secs(60));
        let mut canvases = HashSet::new();
        for _ in 0..2 {
            let leased = admin.lease_copies(&mails, 1, minute, Duration::ZERO).await.unwrap();
            canvases.extend(leased.iter().map(|copy| copy.address.scope.canvas));
        }
        assert_eq!(canvases, HashSet::from([MANY, FEW]));
        let nothing = admin.lease_copies(&mails, 1, minute, Duration::from_millis(300)).await.unwrap();
        assert!(nothing.is_empty());
        assert_eq!(table.looks().await, 1);
    }

    /// A call that waits for copies is not ended by a look that takes too long: it sees what enters
    /// the rotation afterwards.
    #[tokio::test]
    async fn a_look_that_takes_too_long_ends_no_waiting() {
        let table = Table::new().await;
        table.pulled_copy("mails").await;
        table.look_for_too_long().await;
        let (admin, mails) = (admin(&table), "mails".parse().unwrap());
        assert!(!admin.await_copies(&mails, Instant::now() + Duration::from_millis(300)).await.unwrap());
        assert_eq!(table.looks().await, 1);
        table.enter_rotation().await;
        assert!(admin.await_copies(&mails, Instant::now() + Duration::from_secs(20)).await.unwrap());
        assert_eq!(table.looks().await, 1);
    }
}
