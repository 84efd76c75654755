//! Messages within a process: those that wait, that are handed out, and that come back. All
//! notifiers without a broker are built on it.
//!
//! It is reliable: first in, first out, nothing is lost, and messages that are put back are
//! delivered again. Messages in reserve are another process's to handle; they are handed out when
//! nothing else is ready and they are still there after a while. It runs on tokio's clock, and its
//! state ends with the process.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::{AckHandle, Delivery, NotifyError, Subscription};
use crate::event::{EventId, Notification};

/// How long a message stays in reserve at least; at most it is twice as long if nothing else is
/// ready, so that several become ready together.
pub(crate) const RESERVED: Duration = Duration::from_millis(250);
/// How long a message is kept for the subscriber whose turn it is. Its future may be held without
/// being polled, and the others do not wait for that.
const TURN: Duration = Duration::from_millis(50);
/// Maximum number of messages that leave the reserve together.
const RELEASED_MAX: usize = 1_000;

/// The content of a message.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Notification(Notification),
    /// A body that does not come from a notification.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "only the test kit carries it"))]
    Body(Vec<u8>),
}

/// A place for messages. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    shared: Arc<SharedMessages>,
}

impl Mailbox {
    /// An empty mailbox. Messages that are put back are delivered again after the retry delay.
    pub(crate) fn new(retry_delay: Duration) -> Self {
        let messages = Messages { retry_delay, ..Messages::default() };
        Self { shared: Arc::new(SharedMessages { messages: Mutex::new(messages), changed: Notify::new() }) }
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
        if max_outstanding == 0 {
            return Err(NotifyError::new("max_outstanding is 0; use at least 1"));
        }
        let subscriber = self.shared.change(Messages::new_number);
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(MailboxSubscription { shared, subscriber, max_outstanding, stopped: false }))
    }
}

struct MailboxSubscription {
    shared: Arc<SharedMessages>,
    subscriber: u64,
    max_outstanding: usize,
    stopped: bool,
}

#[async_trait]
impl Subscription for MailboxSubscription {
    async fn next(&mut self) -> Option<Delivery> {
        if self.stopped {
            return None;
        }
        let _turn = AskedTurn { shared: &self.shared, subscriber: self.subscriber };
        let (number, content) =
            self.shared.until(|messages| messages.hand_out(self.subscriber, self.max_outstanding)).await;
        let ack = MailboxAck { shared: Arc::clone(&self.shared), subscriber: self.subscriber, number };
        let notification = match content {
            Content::Notification(notification) => Ok(notification),
            Content::Body(body) => Notification::parse(&body),
        };
        Some(Delivery { notification, ack: Some(Box::new(ack)) })
    }

    fn stop(&mut self) {
        self.stopped = true;
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
}

impl SharedMessages {
    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Messages) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_waiters();
        changed
    }

    /// Asks after every change, and whenever a delayed message is due, until there is an answer.
    async fn until<T>(&self, mut ask: impl FnMut(&mut Messages) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let next_due = {
                let mut messages = self.lock();
                let now = Instant::now();
                messages.release_due(now);
                messages.release_reserve(now);
                if let Some(answer) = ask(&mut messages) {
                    drop(messages);
                    self.changed.notify_waiters();
                    return answer;
                }
                messages.next_due(now)
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

#[derive(Debug)]
struct Message {
    number: u64,
    content: Content,
}

/// The messages of a mailbox.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    ready: VecDeque<Message>,
    /// Messages that another process is to handle, with the time of their arrival, the oldest
    /// first.
    reserve: VecDeque<(Instant, Message)>,
    /// Due time and number, so that equal times keep their order.
    delayed: BTreeMap<(Instant, u64), Content>,
    /// The unanswered messages, by subscriber and number.
    held: HashMap<u64, HashMap<u64, Content>>,
    /// How many waiting messages name each event.
    named: HashMap<EventId, u32>,
    last_number: u64,
    /// The subscribers that ask and have room, the longest first: one that takes message after
    /// message leaves the next to others.
    turns: VecDeque<u64>,
    /// Since when a message is left to the first of them, while another one waits for it.
    left_since: Option<Instant>,
    /// The delay before a message that was put back is delivered again.
    pub(crate) retry_delay: Duration,
    /// How many more messages are handed out; `None` for no limit.
    pub(crate) deliveries_left: Option<usize>,
    /// Why nothing is handed out, if that is so.
    pub(crate) broken: Option<String>,
}

impl Messages {
    /// How many messages wait to be delivered, now or later.
    pub(crate) fn waiting(&self) -> usize {
        self.ready.len() + self.reserve.len() + self.delayed.len()
    }

    /// How many of them are not in reserve.
    pub(crate) fn own_waiting(&self) -> usize {
        self.ready.len() + self.delayed.len()
    }

    /// How many deliveries are unanswered.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn unanswered(&self) -> usize {
        self.held.values().map(HashMap::len).sum()
    }

    /// Whether a waiting message names the event.
    pub(crate) fn names(&self, event: EventId) -> bool {
        self.named.contains_key(&event)
    }

    /// Adds a message at the end.
    pub(crate) fn push(&mut self, content: Content) {
        self.push_at(self.ready.len(), content);
    }

    /// Adds a message to the reserve.
    pub(crate) fn push_reserve(&mut self, content: Content) {
        self.count(&content);
        let number = self.new_number();
        self.reserve.push_back((Instant::now(), Message { number, content }));
    }

    /// Drops the message that has been in reserve longest. Returns whether there was one.
    pub(crate) fn drop_reserve(&mut self) -> bool {
        let dropped = self.reserve.pop_front();
        if let Some((_, message)) = &dropped {
            self.uncount(&message.content);
        }
        dropped.is_some()
    }

    /// Divides the waiting notifications anew: those that are not this process's to handle are its
    /// reserve.
    pub(crate) fn divide(&mut self, is_own: impl Fn(EventId) -> bool) {
        let now = Instant::now();
        let reserve = self.reserve.drain(..);
        let mut waiting: Vec<_> = self.ready.drain(..).map(|message| (now, message)).chain(reserve).collect();
        waiting.sort_unstable_by_key(|(_, message)| message.number);
        for (since, message) in waiting {
            match &message.content {
                Content::Notification(notification) if !is_own(notification.id) => {
                    self.reserve.push_back((since, message));
                }
                Content::Notification(_) | Content::Body(_) => self.ready.push_back(message),
            }
        }
        // Searched by time.
        self.reserve.make_contiguous().sort_by_key(|(since, _)| *since);
    }

    /// The notifications that are ready.
    pub(crate) fn ready_notifications(&self) -> Vec<Notification> {
        let notification = |message: &Message| match &message.content {
            Content::Notification(notification) => Some(*notification),
            Content::Body(_) => None,
        };
        self.ready.iter().filter_map(notification).collect()
    }

    /// Adds a message at this index of those that are ready.
    pub(crate) fn push_at(&mut self, place: usize, content: Content) {
        self.count(&content);
        let number = self.new_number();
        self.ready.insert(place.min(self.ready.len()), Message { number, content });
    }

    /// Adds a message that is not handed out before this time.
    #[cfg(feature = "testing")]
    pub(crate) fn push_late(&mut self, due: Instant, content: Content) {
        self.count(&content);
        let number = self.new_number();
        self.delayed.insert((due, number), content);
    }

    /// How many messages could be handed out now.
    #[cfg(feature = "testing")]
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Drops every message, delivered or not.
    #[cfg(feature = "testing")]
    pub(crate) fn clear(&mut self) {
        self.ready.clear();
        self.reserve.clear();
        self.delayed.clear();
        self.held.clear();
        self.named.clear();
        self.left_since = None;
    }

    fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn count(&mut self, content: &Content) {
        if let Content::Notification(notification) = content {
            *self.named.entry(notification.id).or_default() += 1;
        }
    }

    fn uncount(&mut self, content: &Content) {
        if let Content::Notification(notification) = content
            && let Some(count) = self.named.get_mut(&notification.id)
        {
            *count -= 1;
            if *count == 0 {
                self.named.remove(&notification.id);
            }
        }
    }

    fn held_by(&self, subscriber: u64) -> usize {
        self.held.get(&subscriber).map_or(0, HashMap::len)
    }

    fn release_due(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let ((_, number), content) = entry.remove_entry();
            self.ready.push_back(Message { number, content });
        }
    }

    /// If nothing else is ready, messages that have been in reserve long enough are. The newest
    /// come first, as the other process begins with the oldest.
    fn release_reserve(&mut self, now: Instant) {
        if !self.ready.is_empty() || self.reserve.front().is_none_or(|(since, _)| *since + 2 * RESERVED > now)
        {
            return;
        }
        let end = self.reserve.partition_point(|(since, _)| *since + RESERVED <= now);
        let released = self.reserve.drain(end.saturating_sub(RELEASED_MAX)..end).rev();
        self.ready.extend(released.map(|(_, message)| message));
    }

    /// When a message becomes ready by itself, or may be taken out of turn.
    fn next_due(&self, now: Instant) -> Option<Instant> {
        let delayed = self.delayed.first_key_value().map(|((due, _), _)| *due);
        let reserve = self.reserve.front().filter(|_| self.ready.is_empty());
        let reserve = reserve.map(|(since, _)| *since + 2 * RESERVED);
        // Once it is over, the next one that asks takes the message: nothing has to wake it.
        let turn = self.left_since.map(|since| since + TURN).filter(|end| *end > now);
        [delayed, reserve, turn].into_iter().flatten().min()
    }

    fn hand_out(&mut self, subscriber: u64, max_outstanding: usize) -> Option<(u64, Content)> {
        let full = self.held_by(subscriber) >= max_outstanding;
        if full || self.broken.is_some() || self.deliveries_left == Some(0) {
            return None;
        }
        if !self.turns.contains(&subscriber) {
            self.turns.push_back(subscriber);
        }
        if self.turns.front() != Some(&subscriber) && !self.is_out_of_turn() {
            return None;
        }
        let Message { number, content } = self.ready.pop_front()?;
        // Subscribers that were passed over ask anew once they are polled.
        while self.turns.pop_front().is_some_and(|turn| turn != subscriber) {}
        self.left_since = None;
        self.uncount(&content);
        self.deliveries_left = self.deliveries_left.map(|left| left - 1);
        self.held.entry(subscriber).or_default().insert(number, content.clone());
        Some((number, content))
    }

    /// Whether a message has been left to the first subscriber for too long.
    fn is_out_of_turn(&mut self) -> bool {
        let now = Instant::now();
        !self.ready.is_empty() && now >= *self.left_since.get_or_insert(now) + TURN
    }

    /// Returns whether another subscriber may now take a message that is ready.
    fn leave_turn(&mut self, subscriber: u64) -> bool {
        let was_first = self.turns.front() == Some(&subscriber);
        self.turns.retain(|turn| *turn != subscriber);
        if was_first {
            self.left_since = None;
        }
        was_first && !self.turns.is_empty() && !self.ready.is_empty()
    }

    /// An acknowledgement that arrives after the message was put back still counts, unless it was
    /// handed out again.
    fn acknowledge(&mut self, subscriber: u64, number: u64) {
        if self.take_from(subscriber, number).is_some() {
            return;
        }
        let ready = self.ready.iter().position(|message| message.number == number);
        let delayed = self.delayed.keys().find(|(_, waiting)| *waiting == number).copied();
        let late = match (ready, delayed) {
            (Some(place), _) => self.ready.remove(place).map(|message| message.content),
            (None, Some(key)) => self.delayed.remove(&key),
            (None, None) => None,
        };
        if let Some(content) = late {
            self.uncount(&content);
        }
    }

    fn put_back(&mut self, subscriber: u64, number: u64) {
        if let Some(content) = self.take_from(subscriber, number) {
            self.count(&content);
            self.delayed.insert((Instant::now() + self.retry_delay, number), content);
        }
    }

    fn take_from(&mut self, subscriber: u64, number: u64) -> Option<Content> {
        self.held.get_mut(&subscriber)?.remove(&number)
    }

    fn give_back_all_of(&mut self, subscriber: u64) {
        let due = Instant::now() + self.retry_delay;
        for (number, content) in self.held.remove(&subscriber).unwrap_or_default() {
            self.count(&content);
            self.delayed.insert((due, number), content);
        }
    }
}
