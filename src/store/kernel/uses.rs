//! Whether this process uses the database, for a process that lets it sleep.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Counts uses.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    count: AtomicU64,
    added: Notify,
}

impl Uses {
    pub(super) fn add(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.added.notify_waiters();
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Returns once there have been more.
    pub(crate) async fn more_than(&self, count: u64) {
        loop {
            let added = self.added.notified();
            if self.count() > count {
                return;
            }
            added.await;
        }
    }
}
