//! Why a handler should stop, and how it learns of it. What becomes of its event is not decided
//! here.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Why a handler should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// The claim could not be renewed in time, and another worker may have the event. The handler
    /// itself is dropped then: this is for what it has started beside itself.
    LeaseLost,
    /// The worker shuts down. A handler that has not ended when the grace is over is dropped, and
    /// its event runs again.
    Shutdown,
    /// Somebody has cancelled the event. A handler that has not ended when the grace is over is
    /// dropped, and the event is deleted, unless the handler returned `Ok` in time.
    Cancelled,
}

/// What has befallen a claim.
#[derive(Debug, Default)]
pub(super) struct ClaimFate {
    lost: AtomicBool,
    /// It was lost while its lease stood: the event has ended.
    ended: AtomicBool,
    cancelled: AtomicBool,
    /// A rule held the handler before it was called.
    held_back: AtomicBool,
    /// The handler has begun to complete the event in a transaction of its own.
    in_transaction: AtomicBool,
    /// It was told that the claim did not stand.
    refused: AtomicBool,
    /// The event has a checkpoint, or may have one.
    has_checkpoint: AtomicBool,
    changed: Notify,
}

impl ClaimFate {
    /// Another worker may have the event.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// The event has ended under this claim, whose lease stood.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.lose();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Somebody has cancelled the event.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// A rule holds the handler, which has not been called.
    pub(super) fn hold_back(&self) {
        self.held_back.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(super) fn is_held_back(&self) -> bool {
        self.held_back.load(Ordering::Acquire)
    }

    pub(super) fn begin_transaction(&self) {
        self.in_transaction.store(true, Ordering::Release);
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.in_transaction.load(Ordering::Acquire)
    }

    /// The claim did not stand in the handler's transaction: it can only be rolled back.
    pub(super) fn refuse(&self) {
        self.refused.store(true, Ordering::Release);
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    pub(super) fn leave_checkpoint(&self) {
        self.has_checkpoint.store(true, Ordering::Release);
    }

    pub(super) fn has_checkpoint(&self) -> bool {
        self.has_checkpoint.load(Ordering::Acquire)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Completes when the claim is lost.
    pub(super) async fn lost(&self) {
        self.until(Self::is_lost).await;
    }

    /// Completes when the claim is lost, or the event cancelled.
    pub(super) async fn lost_or_cancelled(&self) {
        self.until(|fate| fate.is_lost() || fate.is_cancelled()).await;
    }

    /// The same, or when a rule holds the handler back.
    pub(super) async fn stopped(&self) {
        self.until(|fate| fate.is_lost() || fate.is_cancelled() || fate.is_held_back()).await;
    }

    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        loop {
            // Made before the look: what changes after it is noticed.
            let changed = self.changed.notified();
            if is_so(self) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_claim_that_is_cancelled_is_not_lost() {
        let fate = Arc::new(ClaimFate::default());
        let waiting = tokio::spawn({
            let fate = Arc::clone(&fate);
            async move { fate.lost_or_cancelled().await }
        });
        tokio::task::yield_now().await;
        fate.cancel();
        waiting.await.unwrap();
        assert!(fate.is_cancelled() && !fate.is_lost());
        let mut losing = std::pin::pin!(fate.lost());
        assert!(futures_util::poll!(&mut losing).is_pending());
        fate.lose();
        losing.await;
    }

    #[tokio::test]
    async fn a_claim_that_is_held_back_stops_its_run_and_tells_no_handler() {
        let fate = ClaimFate::default();
        fate.hold_back();
        fate.stopped().await;
        let mut told = std::pin::pin!(fate.lost_or_cancelled());
        assert!(futures_util::poll!(&mut told).is_pending());
    }
}
