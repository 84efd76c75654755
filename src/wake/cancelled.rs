//! Removes events that were cancelled while they ran, where neither their handler nor the next
//! claim could: they failed and wait, are held by a rule, or have lost their worker.

use super::{Trouble, WakeError, Waker};
use crate::event::Lane;
use crate::store::CANCELLED_PAGE;

/// Maximum number of pages that one pass removes; the next continues.
const PAGES: usize = 10;

impl Waker {
    /// A page that can't be removed is left to the next pass, and stops nothing else.
    pub(super) async fn remove_cancelled(&self, trouble: &mut Trouble) {
        for _ in 0..PAGES {
            let removed = self.store.remove_unclaimed_cancelled().await;
            let Some((count, lanes)) = trouble.look("cancelled events", removed) else { return };
            if count > 0 {
                tracing::info!(events = count, "removed events that were cancelled while they ran");
            }
            trouble.look("the next events of objects", self.wake_firsts(&lanes).await);
            if count < CANCELLED_PAGE || self.is_over() {
                return;
            }
        }
    }

    /// Wakes the events whose turn it is now.
    pub(super) async fn wake_firsts(&self, lanes: &[Lane]) -> Result<(), WakeError> {
        let firsts = self.store.arm_firsts(lanes).await?;
        self.publish(&firsts).await
    }
}

#[cfg(test)]
mod tests {
    use crate::store::tests::Table;
    use crate::wake::backlog::tests::waker;

    /// Where such an event can't be removed, everything else of the pass is done; and the event is
    /// removed once that is possible again.
    #[tokio::test]
    async fn a_removal_that_fails_stops_nothing_else() {
        let table = Table::new().await;
        let cancelled = table.add(1).await;
        table.mark_cancelled().await;
        table.add(2).await;
        table.limit_deletions().await;
        let (waker, broker) = waker(&table, 1_000);
        let error = waker.pass(None).await.unwrap_err();
        assert!(error.of_store().is_some_and(crate::store::StoreError::is_too_long), "{error:?}");
        assert!(!broker.events().contains(&cancelled[0]));
        assert_eq!((broker.events().len(), table.left().await), (2, 3));
        table.allow_deletions().await;
        waker.pass(None).await.unwrap();
        assert_eq!(table.left().await, 2);
    }

    /// However many there are, and the next event of each object is woken in the same pass.
    #[tokio::test]
    async fn a_pass_removes_several_pages_and_wakes_what_follows() {
        let table = Table::new().await;
        table.add_behind_cancelled(1_250).await;
        let (waker, broker) = waker(&table, 10_000);
        waker.pass(None).await.unwrap();
        assert_eq!((table.left().await, broker.events().len()), (1_250, 1_250));
    }
}
