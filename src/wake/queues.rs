//! Waking the copies in a queue that may go on: their canvas was paused there, or had as many in flight as it might, or
//! nobody worked the queue.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::{PAGE_PERIOD, WakeError, Waker};
use crate::event::{CanvasId, Name};

impl Waker {
    /// Publishes the notifications of all copies of a queue that are due, or of those of one canvas, page by page; counts
    /// them as they are published. Where a process dies in between, the rest comes at its own promises.
    pub(crate) async fn wake_queue(
        &self,
        queue: &Name,
        canvas: Option<CanvasId>,
        published: &AtomicUsize,
    ) -> Result<(), WakeError> {
        let mut after = None;
        loop {
            let started = Instant::now();
            let page = self.store.wake_facets(queue, canvas, after).await?;
            self.publish(&page.notifications).await?;
            published.fetch_add(page.notifications.len(), Ordering::Relaxed);
            after = page.next;
            if after.is_none() || self.is_over() {
                return Ok(());
            }
            tokio::time::sleep_until(started + PAGE_PERIOD).await;
        }
    }

    /// Ends queues that are drained, and wakes what has room in facets with a limit: whoever made that room may have died.
    pub(super) async fn tidy_queues(&self) -> Result<(), WakeError> {
        self.store.end_drained().await?;
        let room = self.store.room_in_facets().await?;
        Ok(self.publish(&room).await?)
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
