//! Sends one NOTIFY at a time. Messages that arrive meanwhile, or within a few milliseconds of the
//! last one, go out together. Notifying transactions wait for each other's commits, so there should
//! be few.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::message::News;
use super::outlet::Outlet;
use crate::event::Notification;
use crate::store::StoreError;

/// From one NOTIFY to the next at least.
const SPACING: Duration = Duration::from_millis(5);
/// Maximum number of waiting calls.
const WAITING_MAX: usize = 20_000;
/// Maximum number of calls whose notifications go out together.
const TOGETHER_MAX: usize = 1_000;
/// A message to send.
#[derive(Debug)]
enum Outgoing {
    News(News),
    Notifications(Vec<Notification>, oneshot::Sender<Result<(), StoreError>>),
}

/// Sends on the channel, in the order of the calls. Its task ends with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    queue: mpsc::Sender<Outgoing>,
}

impl Sender {
    /// Must be called inside a tokio runtime.
    pub(super) fn new(outlet: Arc<Outlet>) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        tokio::spawn(send_all(outlet, waiting));
        Self { queue }
    }

    /// Returns when the server has committed them.
    pub(super) async fn wake(&self, notifications: Vec<Notification>) -> Result<(), StoreError> {
        let (sender, answer) = oneshot::channel();
        self.put(Outgoing::Notifications(notifications, sender))?;
        answer.await.map_err(|_| StoreError::Overloaded)?
    }

    /// Does not wait, and does not report a failure.
    pub(super) fn say(&self, news: News) {
        if let Err(error) = self.put(Outgoing::News(news)) {
            tracing::debug!(error = &error as &dyn std::error::Error, "other workers were not told");
        }
    }

    fn put(&self, outgoing: Outgoing) -> Result<(), StoreError> {
        self.queue.try_send(outgoing).map_err(|_| StoreError::Overloaded)
    }
}

async fn send_all(outlet: Arc<Outlet>, mut waiting: mpsc::Receiver<Outgoing>) {
    let mut together = Vec::new();
    let mut next = Instant::now();
    while waiting.recv_many(&mut together, TOGETHER_MAX).await > 0 {
        sleep_until(next).await;
        while together.len() < TOGETHER_MAX
            && let Ok(outgoing) = waiting.try_recv()
        {
            together.push(outgoing);
        }
        let (mut contents, mut notifications, mut callers) = (Vec::new(), Vec::new(), Vec::new());
        for outgoing in together.drain(..) {
            match outgoing {
                Outgoing::News(news) => contents.extend(news.contents()),
                Outgoing::Notifications(more, caller) => {
                    notifications.extend(more);
                    callers.push(caller);
                }
            }
        }
        // Whatever a crowd of processes asks at once is answered once.
        contents.dedup();
        contents.extend(News::Wake(notifications).contents());
        let result = outlet.send(&contents).await;
        if let Err(error) = &result {
            tracing::debug!(error = error as &dyn std::error::Error, "other processes were not notified");
        }
        for caller in callers {
            // A caller that has left needs no answer.
            let _ = caller.send(result.clone());
        }
        next = Instant::now() + SPACING;
    }
}
