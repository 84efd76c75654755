//! Lines: the messages of an ordering key, and the key's availability.

use super::key::{Availability, Key};
use super::list::{List, NONE};
use super::slot::{Lane, State};
use super::{Delivery, Holder, StreamId, StreamLoad, Time, Timer};

impl Delivery {
    /// Inserts a message into its key's line.
    pub(super) fn line_up(&mut self, at: u32, not_before: Time, ahead: bool) {
        let key = self.keys.named(&self.slots[at].message.ordering_key);
        let order = self.slots[at].order();
        let line = &self.keys[key].line;
        // New ones come last; redelivered ones are older than all that are left.
        let newest = line.is_empty() || self.slots[line.tail].order() < order;
        let mut follower = if newest { NONE } else { line.head };
        while follower != NONE && self.slots[follower].order() < order {
            follower = self.slots[follower].after(Lane::Queue);
        }
        (self.slots[at].state, self.slots[at].key) = (State::Queued { not_before }, key);
        self.keys[key].line.insert_before(&mut self.slots.items, Lane::Queue, at, follower);
        self.point_at(key, at);
        self.requeue_after(key, at);
        if ahead && self.keys[key].availability == Availability::Idle {
            self.keys[key].availability = self.availability_of(key);
            self.attach(key, true);
        } else {
            self.refresh_key(key);
        }
    }

    /// Makes this queued message the next to hand out, unless an earlier one is.
    pub(super) fn point_at(&mut self, key: u32, at: u32) {
        let cursor = self.keys[key].cursor;
        if cursor == NONE || self.slots[at].order() < self.slots[cursor].order() {
            self.keys[key].cursor = at;
        }
    }

    /// The first queued message from here on.
    pub(super) fn next_queued(&self, mut at: u32) -> u32 {
        while at != NONE && !self.slots[at].is_queued() {
            at = self.slots[at].after(Lane::Queue);
        }
        at
    }

    /// Requeues what was handed out or acknowledged after a message that is redelivered.
    /// Exactly-once delivery forbids both.
    pub(super) fn requeue_after(&mut self, key: u32, at: u32) {
        if self.settings.exactly_once {
            return;
        }
        let mut later = self.slots[at].after(Lane::Queue);
        while later != NONE {
            match self.slots[later].state {
                State::Leased { .. } => self.end_lease(later),
                State::Done => self.count(later),
                State::Queued { .. } => break,
                State::Free | State::Ready { .. } | State::Waiting { .. } | State::Kept => {
                    unreachable!("in a line are only queued, leased and done messages")
                }
            }
            self.slots[later].state = State::Queued { not_before: self.latest };
            self.point_at(key, later);
            later = self.slots[later].after(Lane::Queue);
        }
    }

    /// Requeues, in every line, what has been handed out behind the next message to hand out, as
    /// delivery that is not exactly-once requires.
    pub(super) fn requeue_gaps(&mut self) {
        let keys: Vec<u32> = self.keys.in_use().collect();
        for key in keys {
            let mut queued = self.keys[key].cursor;
            while queued != NONE {
                self.requeue_after(key, queued);
                queued = self.slots[queued].after(Lane::Queue);
            }
            self.refresh_key(key);
        }
    }

    /// Removes a message from its key's line, and updates the key's availability.
    pub(super) fn leave_line(&mut self, at: u32) {
        let key = self.slots[at].key;
        if self.keys[key].cursor == at {
            self.keys[key].cursor = self.next_queued(self.slots[at].after(Lane::Queue));
        }
        self.keys[key].line.remove(&mut self.slots.items, Lane::Queue, at);
        self.slots[at].key = NONE;
        self.trim(key);
    }

    /// Retires acknowledged messages at the head of a line: nothing before them could bring them
    /// back.
    pub(super) fn trim(&mut self, key: u32) {
        loop {
            let head = self.keys[key].line.head;
            if head == NONE || self.slots[head].state != State::Done {
                break;
            }
            self.keys[key].line.remove(&mut self.slots.items, Lane::Queue, head);
            self.slots[head].key = NONE;
            self.retire(head);
        }
        self.refresh_key(key);
        if self.keys[key].line.is_empty() {
            self.keys.vacate(key);
        }
    }

    /// The wait for the key's next message is over.
    pub(super) fn time_is_up(&mut self, key: u32) {
        self.detach(key);
        self.refresh_key(key);
    }

    /// Recomputes the key's availability; a key that changes lists goes to the end of its new one.
    pub(super) fn refresh_key(&mut self, key: u32) {
        let availability = self.availability_of(key);
        if availability == self.keys[key].availability {
            return;
        }
        self.detach(key);
        self.keys[key].availability = availability;
        self.attach(key, false);
    }

    /// Moves the key to the end of its list after its turn.
    pub(super) fn requeue_key(&mut self, key: u32) {
        self.detach(key);
        self.keys[key].availability = self.availability_of(key);
        self.attach(key, false);
    }

    fn availability_of(&self, at: u32) -> Availability {
        let key = &self.keys[at];
        if key.cursor == NONE {
            return Availability::Idle;
        }
        match self.slots[key.cursor].state {
            State::Queued { not_before } if not_before > self.latest => {
                return Availability::Waiting(not_before);
            }
            State::Queued { .. } => {}
            State::Free
            | State::Ready { .. }
            | State::Waiting { .. }
            | State::Leased { .. }
            | State::Done
            | State::Kept => unreachable!("a key's cursor is at a queued message"),
        }
        if key.mixed {
            return self.availability_among_several(key);
        }
        match key.holder {
            None => Availability::Ready,
            Some(Holder::Stream(stream)) if self.is_open(stream) => Availability::Stream(stream),
            Some(Holder::Pull) if self.pulling.is_some() => Availability::Session,
            // The leased ones are later ones.
            Some(_) if key.cursor == key.line.head => Availability::Ready,
            Some(Holder::Stream(_) | Holder::Pull | Holder::Push) => Availability::Blocked,
        }
    }

    /// The availability of a key with several holders, whose messages come before its next one or
    /// after it.
    fn availability_among_several(&self, key: &Key) -> Availability {
        // At most one of them is an open stream, and as long as that holds any, no other taker gets
        // the next.
        let (mut earlier, mut availability) = (true, Availability::Ready);
        let mut at = key.line.head;
        while at != NONE {
            earlier &= at != key.cursor;
            match self.slots[at].state {
                State::Leased { holder: Holder::Stream(stream), .. } if self.is_open(stream) => {
                    availability = Availability::Stream(stream);
                }
                State::Leased { holder: Holder::Pull, .. }
                    if earlier && self.pulling.is_some_and(|before| self.slots[at].lease > before) =>
                {
                    availability = Availability::Session;
                }
                State::Leased { .. } if earlier => return Availability::Blocked,
                State::Free
                | State::Ready { .. }
                | State::Waiting { .. }
                | State::Queued { .. }
                | State::Leased { .. }
                | State::Done
                | State::Kept => {}
            }
            at = self.slots[at].after(Lane::Queue);
        }
        availability
    }

    fn is_open(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|load| !load.closed)
    }

    fn attach(&mut self, key: u32, first: bool) {
        let list = match self.keys[key].availability {
            Availability::Idle => return,
            Availability::Blocked => {
                self.tally.blocked_keys += 1;
                return;
            }
            Availability::Waiting(until) => {
                self.tally.blocked_keys += 1;
                self.timers.insert((until, Timer::Key(key)));
                return;
            }
            Availability::Ready => &mut self.keys.ready,
            Availability::Session => &mut self.keys.session,
            Availability::Stream(stream) => match self.streams.get_mut(&stream) {
                Some(load) => &mut load.keys,
                None => unreachable!("a key is held only by a stream that holds something"),
            },
        };
        if first {
            list.push_front(&mut self.keys.items, (), key);
        } else {
            list.push_back(&mut self.keys.items, (), key);
        }
        self.awakened = true;
    }

    fn detach(&mut self, key: u32) {
        let availability = std::mem::replace(&mut self.keys[key].availability, Availability::Idle);
        match availability {
            Availability::Idle => {}
            Availability::Blocked => self.tally.blocked_keys -= 1,
            Availability::Waiting(until) => {
                self.tally.blocked_keys -= 1;
                self.forget_timer(until, Timer::Key(key));
            }
            Availability::Ready => self.keys.ready.remove(&mut self.keys.items, (), key),
            Availability::Session => self.keys.session.remove(&mut self.keys.items, (), key),
            Availability::Stream(stream) => {
                if let Some(load) = self.streams.get_mut(&stream) {
                    load.keys.remove(&mut self.keys.items, (), key);
                }
                self.forget_idle_stream(stream);
            }
        }
    }

    /// Ends the unary pull in progress: what it took of its keys has to be settled before more of
    /// them is handed out.
    pub(super) fn end_session(&mut self) {
        while self.keys.session.head != NONE {
            self.refresh_key(self.keys.session.head);
        }
    }

    /// Forgets a stream that holds nothing.
    pub(super) fn forget_idle_stream(&mut self, stream: StreamId) {
        let idle = |load: &StreamLoad| load.messages == 0 && load.keys.is_empty();
        if self.streams.get(&stream).is_some_and(idle) {
            self.streams.remove(&stream);
        }
    }

    /// The next message of the first of these keys.
    pub(super) fn first_of(&self, keys: &List) -> u32 {
        if keys.is_empty() { NONE } else { self.keys[keys.head].cursor }
    }
}
