//! Whose turn it is to lease from a queue: one call of this process at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::event::Name;
use crate::store::StoreError;

/// How long a call waits for its turn.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a lease is tried while another process has a lock that it needs.
const LOCK_TRIES: u32 = 5;

/// Leases of one queue wait for the same row. Those of one process wait here for each other, where
/// they hold no connection that others need.
#[derive(Debug, Default)]
pub(super) struct LeaseTurns(Mutex<HashMap<Name, Weak<Turn<()>>>>);

impl LeaseTurns {
    /// Waits for the turn of this call; it ends when the result is dropped.
    pub(super) async fn wait(&self, queue: &Name) -> Result<OwnedMutexGuard<()>, StoreError> {
        let turn = tokio::time::timeout(PATIENCE, self.of(queue).lock_owned()).await;
        turn.map_err(|_| StoreError::Overloaded)
    }

    fn of(&self, queue: &Name) -> Arc<Turn<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(queue).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        turns.insert(queue.clone(), Arc::downgrade(&turn));
        turn
    }
}

/// Leases again if a lock was refused: then nothing was leased.
pub(super) async fn past_locks<T, F>(lease: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut tries = 1;
    loop {
        match lease().await {
            Err(error) if error.is_contention() && tries < LOCK_TRIES => tries += 1,
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::admin::Admin;
    use crate::notify::LocalNotifier;
    use crate::store::StoreConfig;
    use crate::store::tests::Table;
    use crate::store::tests::coalescer::refused;
    use crate::store::tests::crowds::FEW;

    const MINUTE: Duration = Duration::from_secs(60);

    /// While somebody else has a queue, one call of this process waits for it in the database, and
    /// those of another queue are answered. In the end each call is.
    #[tokio::test]
    async fn leases_of_one_queue_wait_with_one_connection() {
        let table = Table::with(StoreConfig { max_connections: 4, ..StoreConfig::default() }).await;
        for queue in ["mails", "calls"] {
            table.pulled_copy(queue).await;
            table.pulled_copy_of(FEW, queue).await;
        }
        let admin = Admin::new(table.store.clone(), Arc::new(LocalNotifier::new()));
        let lease = |queue: &str| {
            let (admin, queue) = (admin.clone(), queue.parse().unwrap());
            tokio::spawn(async move { admin.lease_copies(&queue, 1, MINUTE, Duration::ZERO).await })
        };
        let held = table.hold_queue("mails").await;
        let calls: Vec<_> = (0..12).map(|_| lease("mails")).collect();
        table.until_waiting(1).await;
        for _ in 0..2 {
            assert_eq!(lease("calls").await.unwrap().unwrap().len(), 1);
            assert!(table.waiting().await <= 1, "the others wait without connections");
        }
        held.rollback().await.unwrap();
        let mut leased = 0;
        for call in calls {
            leased += call.await.unwrap().unwrap().len();
        }
        assert_eq!(leased, 2);
    }

    /// Who waits for too long is told so. Another queue's turn is free.
    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_end_is_not_waited_for_without_end() {
        let turns = LeaseTurns::default();
        let [mails, calls] = ["mails", "calls"].map(|name| name.parse::<Name>().unwrap());
        let held = turns.wait(&mails).await.unwrap();
        assert!(matches!(turns.wait(&mails).await, Err(StoreError::Overloaded)));
        turns.wait(&calls).await.unwrap();
        drop(held);
        turns.wait(&mails).await.unwrap();
    }

    /// What a lock has refused is tried again, but not for ever; other errors are the caller's.
    #[tokio::test]
    async fn a_lease_is_tried_again_past_locks() {
        let tries = &AtomicU32::new(0);
        let after = |refusals, code| {
            tries.store(0, Ordering::Relaxed);
            past_locks(move || {
                let before = tries.fetch_add(1, Ordering::Relaxed);
                ready(if before < refusals { Err(refused(code)) } else { Ok(before) })
            })
        };
        assert_eq!(after(LOCK_TRIES - 1, "55P03").await.unwrap(), LOCK_TRIES - 1);
        assert!(after(LOCK_TRIES, "55P03").await.unwrap_err().is_contention());
        assert!(!after(1, "42P01").await.unwrap_err().is_contention());
        assert_eq!(tries.load(Ordering::Relaxed), 1);
    }
}
