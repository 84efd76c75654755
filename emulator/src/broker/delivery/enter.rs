//! How messages enter a subscription.

use std::sync::Arc;

use super::list::NONE;
use super::slot::{Lane, State};
use super::{Delivery, Fate, Message, Time, Timer};

impl Delivery {
    /// Adds a published message. With exactly-once delivery it is never duplicated, whatever its
    /// fate.
    pub(crate) fn enqueue(&mut self, now: Time, message: Arc<Message>, fate: Fate) {
        self.catch_up(now);
        match fate {
            Fate::OnTime => self.enter(message, false, self.latest, false),
            Fate::Late(delay) => self.enter(message, false, self.latest + delay, false),
            Fate::Twice if self.settings.exactly_once => self.enter(message, false, self.latest, false),
            Fate::Twice => {
                self.enter(Arc::clone(&message), false, self.latest, false);
                self.enter(message, true, self.latest, false);
            }
            Fate::Ahead => self.enter(message, false, self.latest, true),
        }
    }

    fn enter(&mut self, message: Arc<Message>, copy: bool, not_before: Time, ahead: bool) {
        let at = self.slots.occupy(message, copy);
        self.age_in(at);
        self.make_pending(at, not_before, ahead);
    }

    /// Makes a new or acknowledged message pending.
    pub(super) fn make_pending(&mut self, at: u32, not_before: Time, ahead: bool) {
        self.count(at);
        if self.settings.ordering && !self.slots[at].message.ordering_key.is_empty() {
            self.line_up(at, not_before, ahead);
        } else if not_before > self.latest {
            self.make_waiting(at, not_before);
        } else {
            self.make_ready(at, ahead);
        }
    }

    /// Makes a message without a key available now.
    pub(super) fn make_ready(&mut self, at: u32, ahead: bool) {
        self.slots[at].state = State::Ready { ahead };
        let list = if ahead { &mut self.ahead } else { &mut self.ready };
        list.push_back(&mut self.slots.items, Lane::Queue, at);
        self.wake();
    }

    /// Makes a message without a key available later.
    pub(super) fn make_waiting(&mut self, at: u32, until: Time) {
        self.slots[at].state = State::Waiting { until };
        self.timers.insert((until, Timer::Message(at)));
    }

    /// Inserts a message by age: a new one at the end, an older one where it belongs.
    fn age_in(&mut self, at: u32) {
        let order = self.slots[at].order();
        let mut follower = NONE;
        let mut before = self.age.tail;
        while before != NONE && self.slots[before].order() > order {
            follower = before;
            before = self.slots[before].before(Lane::Age);
        }
        self.age.insert_before(&mut self.slots.items, Lane::Age, at, follower);
    }
}
