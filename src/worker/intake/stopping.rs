//! Stops a worker: leaves notifications that have not started to others, and lets runs end.

use super::*;

impl<R: NotificationRunner> Intake<R> {
    /// Stops receiving, leaves notifications that have not started to others, lets runs end within
    /// the grace, and cuts off the rest.
    pub(super) async fn stop(
        mut self,
        (subscription, urgent): (Box<dyn Subscription>, Option<Box<dyn Subscription>>),
        kill: CancellationToken,
    ) {
        self.stopping = true;
        let deadline = Instant::now() + self.shutdown_grace;
        tracing::info!(running = self.running.len(), grace = ?self.shutdown_grace, "shutting down");
        self.acquiring.shutdown().await;
        self.lot.clear();
        while let Some(pending) = self.next_left() {
            self.republish(pending);
        }
        let grace = self.shutdown_grace + CLOSE_WAIT;
        let mut streams = self.ahead.close(self.republisher.sender());
        for subscription in std::iter::once(subscription).chain(urgent) {
            streams.spawn(republisher::close(subscription, self.republisher.sender(), grace));
        }
        let closing = tokio::spawn(tokio::time::timeout(grace, streams.join_all()));
        self.drain(deadline).await;
        if !self.running.is_empty() {
            tracing::warn!(
                running = self.running.len(),
                "the grace is over: handlers are cut off, their claims released"
            );
            kill.cancel();
            self.drain(Instant::now() + CLOSE_WAIT).await;
        }
        // Not awaited indefinitely: a handler that blocks its thread can't be cut off.
        self.running.abort_all();
        self.drain(Instant::now() + ABORT_WAIT).await;
        let Self { running, republisher, .. } = self;
        drop(running);
        let last = deadline + CLOSE_WAIT;
        republisher.close(last.saturating_duration_since(Instant::now()).max(ABORT_WAIT)).await;
        if closing.await.is_err() {
            tracing::error!("closing the subscription failed");
        }
    }

    async fn drain(&mut self, deadline: Instant) {
        while let Ok(Some(ended)) = tokio::time::timeout_at(deadline, self.running.join_next_with_id()).await
        {
            self.ended(ended);
        }
    }
}
