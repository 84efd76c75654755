//! Outgoing broadcasts: a bounded queue beside the emits, which never blocks an emit and never
//! makes it fail.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::channel::{Channel, ListenError, PublishOutcome};
use crate::event::Broadcast;
use crate::telemetry::BroadcastMetrics;

/// Maximum number of broadcasts that wait to be published.
const WAITING_MAX: usize = 10_000;
/// Maximum bytes of these broadcasts.
const WAITING_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of broadcasts of a batch.
const BATCH_MAX: usize = 500;
/// Maximum bytes of a batch; a single larger broadcast is published alone.
const BATCH_BYTES: usize = 2 * 1024 * 1024;
/// How often lost broadcasts are logged.
const COMPLAINT: Duration = Duration::from_secs(10);

/// The broadcasts that wait to be published.
pub(super) struct Outbox {
    channel: Arc<dyn Channel>,
    waiting: Mutex<OutboxState>,
    idle: Notify,
    metrics: BroadcastMetrics,
}

#[derive(Default)]
struct OutboxState {
    broadcasts: VecDeque<Broadcast>,
    bytes: usize,
    /// Whether a task is publishing them.
    sending: bool,
    /// When lost broadcasts were last logged, and how many were lost since.
    complained: Option<Instant>,
    lost: usize,
}

impl Outbox {
    pub(super) fn new(channel: Arc<dyn Channel>) -> Self {
        let metrics = BroadcastMetrics::new();
        Self { channel, waiting: Mutex::default(), idle: Notify::new(), metrics }
    }

    /// Queues a broadcast, or drops it if there is no room. Must be called inside a tokio runtime.
    pub(super) fn put(self: &Arc<Self>, broadcast: Broadcast) {
        let mut waiting = self.waiting();
        let size = broadcast.size_bytes();
        if waiting.broadcasts.len() >= WAITING_MAX || waiting.bytes + size > WAITING_BYTES {
            drop(waiting);
            self.metrics.broadcast("dropped", 1);
            self.complain(1, None);
            return;
        }
        waiting.bytes += size;
        waiting.broadcasts.push_back(broadcast);
        if !std::mem::replace(&mut waiting.sending, true) {
            drop(waiting);
            tokio::spawn(Sender { outbox: Arc::clone(self), is_done: false }.run());
        }
    }

    /// Waits until nothing is left to publish.
    pub(super) async fn flush(&self, within: Duration) {
        let empty = async {
            loop {
                let mut idle = std::pin::pin!(self.idle.notified());
                idle.as_mut().enable();
                if !self.waiting().sending {
                    return;
                }
                idle.await;
            }
        };
        if tokio::time::timeout(within, empty).await.is_err() {
            let left = self.waiting().broadcasts.len();
            tracing::warn!(left, "listeners do not receive the events that were not broadcast in time");
        }
    }

    /// The next batch. `None` if there is none: the next broadcast then starts another task.
    fn batch(&self) -> Option<Vec<Broadcast>> {
        let mut waiting = self.waiting();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(next) = waiting.broadcasts.front() {
            let size = next.size_bytes();
            if batch.len() == BATCH_MAX || (bytes + size > BATCH_BYTES && !batch.is_empty()) {
                break;
            }
            bytes += size;
            batch.extend(waiting.broadcasts.pop_front());
        }
        waiting.bytes -= bytes;
        waiting.sending = !batch.is_empty();
        (!batch.is_empty()).then_some(batch)
    }

    async fn publish(&self, batch: Vec<Broadcast>) {
        let PublishOutcome { lost, error } = self.channel.publish(&batch).await;
        self.metrics.broadcast("sent", batch.len().saturating_sub(lost));
        self.metrics.broadcast("failed", lost);
        if lost > 0 {
            self.complain(lost, error.as_ref());
        }
    }

    /// Logs now and then that listeners miss events.
    fn complain(&self, more: usize, error: Option<&ListenError>) {
        let mut waiting = self.waiting();
        waiting.lost += more;
        if waiting.complained.is_some_and(|at| at.elapsed() < COMPLAINT) {
            return;
        }
        waiting.complained = Some(Instant::now());
        let events = std::mem::take(&mut waiting.lost);
        drop(waiting);
        match error {
            Some(error) => tracing::warn!(
                events,
                error = error as &dyn std::error::Error,
                "events were not broadcast: listeners miss them; nothing else is affected"
            ),
            None => tracing::warn!(
                events,
                "events were not broadcast, because more are emitted than the broker accepts: \
                 listeners miss them; nothing else is affected"
            ),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, OutboxState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that publishes. However it ends, another one can be started.
struct Sender {
    outbox: Arc<Outbox>,
    /// Whether it found nothing left. Then another task may already be running.
    is_done: bool,
}

impl Sender {
    async fn run(mut self) {
        while let Some(batch) = self.outbox.batch() {
            self.outbox.publish(batch).await;
        }
        self.is_done = true;
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.is_done {
            self.outbox.waiting().sending = false;
        }
        self.outbox.idle.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use async_trait::async_trait;
    use futures_util::future::BoxFuture;
    use tokio::sync::Semaphore;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::broadcast::inbox::Inbox;
    use crate::broadcast::tests::broadcast;

    /// A channel that publishes as much as it is allowed to, and fails if it is told to.
    struct Slow {
        leave: Semaphore,
        fails: bool,
        published: Mutex<Vec<usize>>,
    }

    #[async_trait]
    impl Channel for Slow {
        async fn publish(&self, broadcasts: &[Broadcast]) -> PublishOutcome {
            self.leave.acquire().await.unwrap().forget();
            self.published.lock().unwrap().push(broadcasts.len());
            let error = self.fails.then_some(ListenError::Off);
            PublishOutcome { lost: if self.fails { broadcasts.len() } else { 0 }, error }
        }

        async fn open(
            &self,
            _: Arc<Inbox>,
            _: CancellationToken,
        ) -> Result<BoxFuture<'static, ()>, ListenError> {
            Ok(Box::pin(pending()))
        }
    }

    fn outbox(fails: bool) -> (Arc<Outbox>, Arc<Slow>) {
        let slow = Arc::new(Slow { leave: Semaphore::new(0), fails, published: Mutex::default() });
        (Arc::new(Outbox::new(slow.clone())), slow)
    }

    #[tokio::test]
    async fn a_stalled_broker_drops_what_exceeds_the_outbox_without_waiting() {
        let (outbox, slow) = outbox(false);
        for _ in 0..WAITING_MAX + BATCH_MAX + 20 {
            outbox.put(broadcast("n", "1"));
            // Lets the sender take its first batch.
            tokio::task::yield_now().await;
        }
        assert_eq!(outbox.waiting().broadcasts.len(), WAITING_MAX);
        slow.leave.add_permits(1000);
        outbox.flush(Duration::from_secs(30)).await;
        let published: usize = slow.published.lock().unwrap().iter().sum();
        assert!((WAITING_MAX..WAITING_MAX + BATCH_MAX + 20).contains(&published), "{published}");
        assert_eq!(outbox.waiting().bytes, 0);
    }

    #[tokio::test]
    async fn a_failed_broadcast_is_not_retried_and_the_next_is_sent() {
        let (outbox, slow) = outbox(true);
        slow.leave.add_permits(2);
        for _ in 0..2 {
            outbox.put(broadcast("n", "1"));
            outbox.flush(Duration::from_secs(30)).await;
        }
        assert_eq!(*slow.published.lock().unwrap(), [1, 1]);
    }

    #[tokio::test]
    async fn values_are_bounded_by_their_bytes() {
        let (outbox, slow) = outbox(false);
        let large = format!("\"{}\"", "x".repeat(WAITING_BYTES / 4));
        for _ in 0..6 {
            outbox.put(broadcast("n", &large));
        }
        assert_eq!(outbox.waiting().broadcasts.len(), 3);
        slow.leave.add_permits(6);
        outbox.flush(Duration::from_secs(30)).await;
        assert_eq!(*slow.published.lock().unwrap(), [1, 1, 1]);
    }

    /// The task may be dropped with the runtime of the first emit.
    #[test]
    fn a_sender_that_is_cut_off_is_followed_by_another() {
        let (outbox, slow) = outbox(false);
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime().block_on(async {
            outbox.put(broadcast("cut-off", "1"));
            tokio::task::yield_now().await;
        });
        assert!(slow.published.lock().unwrap().is_empty());
        slow.leave.add_permits(1);
        runtime().block_on(async {
            outbox.put(broadcast("n", "1"));
            outbox.flush(Duration::from_secs(30)).await;
        });
        assert_eq!(slow.published.lock().unwrap().len(), 1);
    }
}
