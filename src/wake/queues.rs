//! Waking the copies in a queue that may go on: their canvas was paused there, or had as many in flight as it might, or
//! nobody worked the queue.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::{PAGE_PERIOD, WakeError, Waker};
use crate::event::Name;

impl Waker {
    /// Publishes the notifications of what is to be woken in a queue, or in all, page by page; counts them as they are
    /// published. Where a process dies in between, the minute's pass goes on.
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

    /// Ends queues that are drained, goes on with waking what may go on, and wakes what has room in facets with a limit: whoever
    /// was at it may have died.
    pub(super) async fn tidy_queues(&self) -> Result<(), WakeError> {
        self.store.end_drained().await?;
        self.wake_queue(None, &AtomicUsize::new(0)).await?;
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

    /// Deletes the copies of a queue that is being drained, page by page, and then the queue; counts nothing, since who
    /// is in the middle of it may be deleting beside another.
    pub(crate) async fn drop_queue(&self, queue: &Name) -> Result<(), WakeError> {
        while self.store.drop_copies(queue).await? {
            tokio::task::yield_now().await;
        }
        self.store.end_drained().await?;
        Ok(())
    }
}
