//! How far waking has come, for a person who waits. Nothing decides by it.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Progress {
    due: AtomicU64,
    woken: AtomicU64,
}

impl Progress {
    /// Counts events that were made due.
    pub(crate) fn made_due(&self, count: u64) {
        self.due.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts published notifications.
    pub(super) fn woke(&self, count: usize) {
        self.woken.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// How many events were made due, and how many woken.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        (self.due.load(Ordering::Relaxed), self.woken.load(Ordering::Relaxed))
    }
}
