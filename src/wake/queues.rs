//! Wakes copies in queues that may run again: their canvas was paused there, or was at its limit in
//! flight, or no process worked on the queue.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::{PAGE_PERIOD, Trouble, WakeError, Waker};
use crate::event::Name;

impl Waker {
    /// Publishes the notifications of the copies to wake in a queue, or in all queues, page by
    /// page; counts them as they are published. If the process dies in between, the minute's pass
    /// continues.
    pub(crate) async fn wake_queue(
        &self,
        queue: Option<&Name>,
        published: &AtomicUsize,
    ) -> Result<(), WakeError> {
        loop {
            let started = Instant::now();
            let Some(notifications) = self.store.wake_page(queue).await? else { return Ok(()) };
            self.publish(&notifications).await?;
            published.fetch_add(notifications.len(), Ordering::Relaxed);
            if self.is_over() {
                return Ok(());
            }
            tokio::time::sleep_until(started + PAGE_PERIOD).await;
        }
    }

    /// Removes queues that are drained, continues waking copies, and wakes those for which facets
    /// with a limit have room: the process that should have done it may have died.
    pub(super) async fn tidy_queues(&self, trouble: &mut Trouble) {
        trouble.look("queues that are drained", self.store.end_drained().await);
        trouble.look("copies to wake", self.wake_queue(None, &AtomicUsize::new(0)).await);
        trouble.look("room in facets", self.wake_rooms().await);
    }

    async fn wake_rooms(&self) -> Result<(), WakeError> {
        let mut after = None;
        loop {
            let started = Instant::now();
            let (room, last) = self.store.room_in_facets(after.as_ref()).await?;
            self.publish(&room).await?;
            after = last;
            if after.is_none() || self.is_over() {
                return Ok(());
            }
            tokio::time::sleep_until(started + PAGE_PERIOD).await;
        }
    }

    /// Deletes the copies in a queue that is being drained, page by page, and then the queue.
    /// Returns no count, since another process may be deleting at the same time.
    pub(crate) async fn drop_queue(&self, queue: &Name) -> Result<(), WakeError> {
        while self.store.drop_copies(queue).await? {
            tokio::task::yield_now().await;
        }
        self.store.end_drained().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::store::tests::Table;
    use crate::wake::backlog::tests::waker;

    /// A pulled queue whose lock another session holds delays its own copies only: the events of
    /// other canvases and the copies of other queues in the same page are announced, and the pass
    /// succeeds.
    #[tokio::test]
    async fn a_locked_queue_delays_only_its_own_copies() {
        let table = Table::new().await;
        table.crowd(4).await;
        for queue in ["held", "other"] {
            table.pulled_copy(queue).await;
        }
        let held = table.hold_queue("held").await;
        let (waker, broker) = waker(&table, 1_000);
        let pass = waker.pass(None).await.unwrap();
        assert_eq!((pass.woken, broker.events().len()), (9, 7));
        assert_eq!((table.announced("held").await, table.announced("other").await), ((0, 1), (1, 0)));
        held.rollback().await.unwrap();
        table.copies_due("held").await;
        waker.pass(None).await.unwrap();
        assert_eq!(table.announced("held").await.0, 1);
    }
}
