//! Messages within a process: those that wait, that are handed out, and that come back. All
//! notifiers without a broker are built on it.
//!
//! It is reliable: first in, first out, nothing is lost, and messages that are put back are
//! delivered again. Subscribers to urgent messages alone get those, whatever else waits. Where
//! there are none, urgent messages have their place among the others. Messages in reserve are
//! another process's to handle; they are handed out when nothing else is ready and they are still
//! there after a while. It runs on tokio's clock, and its state ends with the process.

mod messages;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::{AckHandle, Delivery, NotifyError, Subscription};
use crate::event::Notification;
pub(crate) use messages::{Content, Messages};

/// A place for messages. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    shared: Arc<SharedMessages>,
}

impl Mailbox {
    /// An empty mailbox. Messages that are put back are delivered again after the retry delay.
    pub(crate) fn new(retry_delay: Duration) -> Self {
        Self { shared: Arc::new(SharedMessages::of(Messages::put_back_after(retry_delay))) }
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&Messages) -> T) -> T {
        read(&self.shared.lock())
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Messages) -> T) -> T {
        self.shared.change(change)
    }

    /// Returns once no message waits and no delivery is unanswered.
    #[cfg(feature = "testing")]
    pub(crate) async fn drained(&self) {
        self.shared.until(|messages| (messages.waiting() + messages.unanswered() == 0).then_some(())).await;
    }

    pub(crate) fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        self.subscribed(max_outstanding, false)
    }

    /// A subscription to urgent messages alone, beside the others' turns.
    pub(crate) fn subscribe_urgent(
        &self,
        max_outstanding: usize,
    ) -> Result<Box<dyn Subscription>, NotifyError> {
        self.subscribed(max_outstanding, true)
    }

    fn subscribed(
        &self,
        max_outstanding: usize,
        only_urgent: bool,
    ) -> Result<Box<dyn Subscription>, NotifyError> {
        if max_outstanding == 0 {
            return Err(NotifyError::new("max_outstanding is 0; use at least 1"));
        }
        let subscriber = self.shared.change(|messages| {
            if only_urgent {
                messages.count_urgent_subscriber(true);
            }
            messages.new_number()
        });
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(MailboxSubscription { shared, subscriber, max_outstanding, only_urgent, stopped: false }))
    }
}

struct MailboxSubscription {
    shared: Arc<SharedMessages>,
    subscriber: u64,
    max_outstanding: usize,
    only_urgent: bool,
    stopped: bool,
}

#[async_trait]
impl Subscription for MailboxSubscription {
    async fn next(&mut self) -> Option<Delivery> {
        if self.stopped {
            return None;
        }
        let (subscriber, most) = (self.subscriber, self.max_outstanding);
        let (number, content) = if self.only_urgent {
            let urgent = &self.shared.urgent;
            self.shared.until_changed(urgent, |messages| messages.hand_out_urgent(subscriber, most)).await
        } else {
            let _turn = AskedTurn { shared: &self.shared, subscriber };
            self.shared.until(|messages| messages.hand_out(subscriber, most)).await
        };
        let ack = MailboxAck { shared: Arc::clone(&self.shared), subscriber: self.subscriber, number };
        let notification = match content {
            Content::Notification(notification) => Ok(notification),
            Content::Body(body) => Notification::parse(&body),
        };
        Some(Delivery { notification, ack: Some(Box::new(ack)) })
    }

    fn stop(&mut self) {
        if !std::mem::replace(&mut self.stopped, true) && self.only_urgent {
            self.shared.change(|messages| messages.count_urgent_subscriber(false));
        }
    }

    fn trouble(&self) -> Option<String> {
        self.shared.lock().broken.clone()
    }

    async fn close(self: Box<Self>, grace: Duration) {
        let answered = self.shared.until(|messages| (messages.held_by(self.subscriber) == 0).then_some(()));
        // The drop puts back what is unanswered.
        let _ = timeout(grace, answered).await;
    }
}

impl Drop for MailboxSubscription {
    fn drop(&mut self) {
        self.stop();
        self.shared.change(|messages| messages.give_back_all_of(self.subscriber));
    }
}

/// Gives up the turn of a subscriber that no longer asks.
struct AskedTurn<'a> {
    shared: &'a SharedMessages,
    subscriber: u64,
}

impl Drop for AskedTurn<'_> {
    fn drop(&mut self) {
        let is_next = self.shared.lock().leave_turn(self.subscriber);
        if is_next {
            self.shared.changed.notify_waiters();
        }
    }
}

struct MailboxAck {
    shared: Arc<SharedMessages>,
    subscriber: u64,
    number: u64,
}

impl fmt::Debug for MailboxAck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "MailboxAck({})", self.number)
    }
}

impl AckHandle for MailboxAck {
    fn acknowledge(self: Box<Self>) {
        self.shared.change(|messages| messages.acknowledge(self.subscriber, self.number));
    }

    fn put_back(self: Box<Self>) {
        self.shared.change(|messages| messages.put_back(self.subscriber, self.number));
    }
}

#[derive(Debug)]
struct SharedMessages {
    messages: Mutex<Messages>,
    changed: Notify,
    /// Told when an urgent message may be handed out: those that wait for nothing else sleep
    /// through all other changes.
    urgent: Notify,
}

impl SharedMessages {
    fn of(messages: Messages) -> Self {
        Self { messages: Mutex::new(messages), changed: Notify::new(), urgent: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Messages) -> T) -> T {
        let (changed, is_urgent) = {
            let mut messages = self.lock();
            (change(&mut messages), messages.concern_urgent())
        };
        self.changed.notify_waiters();
        if is_urgent {
            self.urgent.notify_waiters();
        }
        changed
    }

    /// Asks after every change, and whenever a delayed message is due, until there is an answer.
    async fn until<T>(&self, ask: impl FnMut(&mut Messages) -> Option<T>) -> T {
        self.until_changed(&self.changed, ask).await
    }

    /// Asks after these changes alone.
    async fn until_changed<T>(&self, changes: &Notify, mut ask: impl FnMut(&mut Messages) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(changes.notified());
            changed.as_mut().enable();
            let next_due = {
                let mut messages = self.lock();
                let now = Instant::now();
                messages.release_due(now);
                messages.release_reserve(now);
                let answer = ask(&mut messages);
                // One that was released here may be for a subscriber that sleeps.
                let is_urgent =
                    if answer.is_some() { messages.concern_urgent() } else { messages.take_urgent_came() };
                let next_due = messages.next_due(now);
                drop(messages);
                if is_urgent {
                    self.urgent.notify_waiters();
                }
                if let Some(answer) = answer {
                    self.changed.notify_waiters();
                    return answer;
                }
                next_due
            };
            let due = async {
                match next_due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = due => {}
            }
        }
    }
}
