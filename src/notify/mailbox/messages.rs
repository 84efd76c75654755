//! The messages of a mailbox: those that are ready, in reserve, delayed, and handed out. Waits for
//! nothing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::event::{EventId, Notification};

/// How long a message stays in reserve at least; at most it is twice as long if nothing else is
/// ready, so that several become ready together.
pub(super) const RESERVED: Duration = Duration::from_millis(250);
/// How long a message is kept for the subscriber whose turn it is. Its future may be held without
/// being polled, and the others do not wait for that.
pub(super) const TURN: Duration = Duration::from_millis(50);
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

impl Content {
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Notification(Notification { urgent: true, .. }))
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
    /// Urgent messages that are ready.
    urgent: VecDeque<Message>,
    /// How many subscribers take urgent messages alone. Without any, all others take them in their
    /// order.
    urgent_subscribers: usize,
    /// Whether an urgent message is ready, or is delayed, that was not before.
    urgent_came: bool,
    /// Messages that another process is to handle, with the time of their arrival, the oldest
    /// first.
    reserve: VecDeque<(Instant, Message)>,
    /// Due time and number, so that equal times keep their order.
    delayed: BTreeMap<(Instant, u64), Content>,
    /// The unanswered messages, by subscriber and number.
    held: HashMap<u64, HashMap<u64, Content>>,
    /// How many waiting messages name each event.
    named: HashMap<EventId, u32>,
    /// How many waiting messages are urgent.
    urgent_waiting: usize,
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
    /// None; those that are put back are delivered again after this delay.
    pub(super) fn put_back_after(retry_delay: Duration) -> Self {
        Self { retry_delay, ..Self::default() }
    }

    /// How many messages wait to be delivered, now or later.
    pub(crate) fn waiting(&self) -> usize {
        self.own_waiting() + self.reserve.len()
    }

    /// How many of them are urgent, or are not.
    pub(crate) fn waiting_of(&self, urgent: bool) -> usize {
        if urgent { self.urgent_waiting } else { self.waiting() - self.urgent_waiting }
    }

    /// How many of them are not in reserve.
    pub(crate) fn own_waiting(&self) -> usize {
        self.urgent.len() + self.ready.len() + self.delayed.len()
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
        // Those that wait for it have to know when it is due.
        self.urgent_came |= content.is_urgent();
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
        let ready = self.urgent.drain(..).chain(self.ready.drain(..));
        let mut waiting: Vec<_> = ready.map(|message| (now, message)).chain(reserve).collect();
        waiting.sort_unstable_by_key(|(_, message)| message.number);
        for (since, message) in waiting {
            match &message.content {
                Content::Notification(notification) if !is_own(notification.id) => {
                    self.reserve.push_back((since, message));
                }
                Content::Notification(_) | Content::Body(_) => self.make_ready(message),
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
        self.urgent.iter().chain(&self.ready).filter_map(notification).collect()
    }

    /// Adds a message at this index of those that are ready.
    pub(crate) fn push_at(&mut self, place: usize, content: Content) {
        self.count(&content);
        let message = Message { number: self.new_number(), content };
        if message.content.is_urgent() {
            self.make_ready(message);
        } else {
            self.ready.insert(place.min(self.ready.len()), message);
        }
    }

    fn make_ready(&mut self, message: Message) {
        if message.content.is_urgent() {
            self.urgent_came = true;
            self.urgent.push_back(message);
        } else {
            self.ready.push_back(message);
        }
    }

    /// Whether subscribers to urgent messages have to look after a change.
    pub(super) fn concern_urgent(&mut self) -> bool {
        self.take_urgent_came() || !self.urgent.is_empty()
    }

    /// Whether there is an urgent message that was not there at the last call.
    pub(super) fn take_urgent_came(&mut self) -> bool {
        std::mem::take(&mut self.urgent_came)
    }

    /// Adds a message that is ready later.
    fn delay(&mut self, due: Instant, number: u64, content: Content) {
        self.count(&content);
        self.urgent_came |= content.is_urgent();
        self.delayed.insert((due, number), content);
    }

    /// Adds a message that is not handed out before this time.
    #[cfg(feature = "testing")]
    pub(crate) fn push_late(&mut self, due: Instant, content: Content) {
        let number = self.new_number();
        self.delay(due, number, content);
    }

    /// How many messages could be handed out now.
    #[cfg(feature = "testing")]
    pub(crate) fn ready(&self) -> usize {
        self.urgent.len() + self.ready.len()
    }

    /// Drops every message, delivered or not.
    #[cfg(feature = "testing")]
    pub(crate) fn clear(&mut self) {
        self.ready.clear();
        self.urgent.clear();
        self.reserve.clear();
        self.delayed.clear();
        self.held.clear();
        self.named.clear();
        self.urgent_waiting = 0;
        self.left_since = None;
    }

    pub(super) fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn count(&mut self, content: &Content) {
        if let Content::Notification(notification) = content {
            *self.named.entry(notification.id).or_default() += 1;
            self.urgent_waiting += usize::from(notification.urgent);
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
            self.urgent_waiting -= usize::from(notification.urgent);
        }
    }

    pub(super) fn held_by(&self, subscriber: u64) -> usize {
        self.held.get(&subscriber).map_or(0, HashMap::len)
    }

    pub(super) fn release_due(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let ((_, number), content) = entry.remove_entry();
            self.make_ready(Message { number, content });
        }
    }

    /// If nothing else is ready, messages that have been in reserve long enough are. The newest
    /// come first, as the other process begins with the oldest.
    pub(super) fn release_reserve(&mut self, now: Instant) {
        if !self.is_idle() || self.reserve.front().is_none_or(|(since, _)| *since + 2 * RESERVED > now) {
            return;
        }
        let end = self.reserve.partition_point(|(since, _)| *since + RESERVED <= now);
        let released: Vec<_> = self.reserve.drain(end.saturating_sub(RELEASED_MAX)..end).rev().collect();
        released.into_iter().for_each(|(_, message)| self.make_ready(message));
    }

    /// Whether nothing is ready.
    fn is_idle(&self) -> bool {
        self.urgent.is_empty() && self.ready.is_empty()
    }

    /// When a message becomes ready by itself, or may be taken out of turn.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let delayed = self.delayed.first_key_value().map(|((due, _), _)| *due);
        let reserve = self.reserve.front().filter(|_| self.is_idle());
        let reserve = reserve.map(|(since, _)| *since + 2 * RESERVED);
        // Once it is over, the next one that asks takes the message: nothing has to wake it.
        let turn = self.left_since.map(|since| since + TURN).filter(|end| *end > now);
        [delayed, reserve, turn].into_iter().flatten().min()
    }

    pub(super) fn hand_out(&mut self, subscriber: u64, max_outstanding: usize) -> Option<(u64, Content)> {
        if !self.may_hand_out(subscriber, max_outstanding) {
            return None;
        }
        if !self.turns.contains(&subscriber) {
            self.turns.push_back(subscriber);
        }
        if self.turns.front() != Some(&subscriber) && !self.is_out_of_turn() {
            return None;
        }
        let message = self.pop_for_all()?;
        // Subscribers that were passed over ask anew once they are polled.
        while self.turns.pop_front().is_some_and(|turn| turn != subscriber) {}
        self.left_since = None;
        Some(self.handed_out(subscriber, message))
    }

    /// Whether a message is ready that any subscriber may take.
    fn has_for_all(&self) -> bool {
        !self.ready.is_empty() || self.urgent_subscribers == 0 && !self.urgent.is_empty()
    }

    fn pop_for_all(&mut self) -> Option<Message> {
        let number = |queue: &VecDeque<Message>| queue.front().map_or(u64::MAX, |message| message.number);
        let is_urgent = self.urgent_subscribers == 0 && number(&self.urgent) < number(&self.ready);
        if is_urgent { self.urgent.pop_front() } else { self.ready.pop_front() }
    }

    /// A subscriber to urgent messages alone begins, or ends.
    pub(super) fn count_urgent_subscriber(&mut self, begins: bool) {
        self.urgent_subscribers = self.urgent_subscribers + usize::from(begins) - usize::from(!begins);
    }

    /// Hands out an urgent message, out of turn.
    pub(super) fn hand_out_urgent(
        &mut self,
        subscriber: u64,
        max_outstanding: usize,
    ) -> Option<(u64, Content)> {
        if !self.may_hand_out(subscriber, max_outstanding) {
            return None;
        }
        let message = self.urgent.pop_front()?;
        Some(self.handed_out(subscriber, message))
    }

    fn may_hand_out(&self, subscriber: u64, max_outstanding: usize) -> bool {
        let full = self.held_by(subscriber) >= max_outstanding;
        !full && self.broken.is_none() && self.deliveries_left != Some(0)
    }

    fn handed_out(&mut self, subscriber: u64, Message { number, content }: Message) -> (u64, Content) {
        self.uncount(&content);
        self.deliveries_left = self.deliveries_left.map(|left| left - 1);
        self.held.entry(subscriber).or_default().insert(number, content.clone());
        (number, content)
    }

    /// Whether a message has been left to the first subscriber for too long.
    fn is_out_of_turn(&mut self) -> bool {
        let now = Instant::now();
        self.has_for_all() && now >= *self.left_since.get_or_insert(now) + TURN
    }

    /// Returns whether another subscriber may now take a message that is ready.
    pub(super) fn leave_turn(&mut self, subscriber: u64) -> bool {
        let was_first = self.turns.front() == Some(&subscriber);
        self.turns.retain(|turn| *turn != subscriber);
        if was_first {
            self.left_since = None;
        }
        was_first && !self.turns.is_empty() && self.has_for_all()
    }

    /// An acknowledgement that arrives after the message was put back still counts, unless it was
    /// handed out again.
    pub(super) fn acknowledge(&mut self, subscriber: u64, number: u64) {
        if self.take_from(subscriber, number).is_some() {
            return;
        }
        let ready = self.ready.iter().position(|message| message.number == number);
        let urgent = self.urgent.iter().position(|message| message.number == number);
        let delayed = self.delayed.keys().find(|(_, waiting)| *waiting == number).copied();
        let late = match (ready, urgent, delayed) {
            (Some(place), ..) => self.ready.remove(place).map(|message| message.content),
            (None, Some(place), _) => self.urgent.remove(place).map(|message| message.content),
            (None, None, Some(key)) => self.delayed.remove(&key),
            (None, None, None) => None,
        };
        if let Some(content) = late {
            self.uncount(&content);
        }
    }

    pub(super) fn put_back(&mut self, subscriber: u64, number: u64) {
        if let Some(content) = self.take_from(subscriber, number) {
            self.delay(Instant::now() + self.retry_delay, number, content);
        }
    }

    fn take_from(&mut self, subscriber: u64, number: u64) -> Option<Content> {
        self.held.get_mut(&subscriber)?.remove(&number)
    }

    pub(super) fn give_back_all_of(&mut self, subscriber: u64) {
        let due = Instant::now() + self.retry_delay;
        for (number, content) in self.held.remove(&subscriber).unwrap_or_default() {
            self.delay(due, number, content);
        }
    }
}
