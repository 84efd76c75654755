//! What is retained, for how long, and what can be restored: retention, seek, snapshots.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::list::{List, NONE};
use super::slot::{Lane, State};
use super::{Contents, Delivery, Message, Time, Timer};
use crate::broker::changes::Held;

impl Delivery {
    /// Acknowledges the messages published before that time; those published since, and still here,
    /// become available, acknowledged or leased.
    pub(crate) fn seek_to_time(&mut self, now: Time, time: Time) {
        self.catch_up(now);
        let (since, before): (Vec<u32>, Vec<u32>) =
            self.all().partition(|at| self.slots[*at].message.published >= time);
        // In this order: acknowledging an earlier message of a key would remove an acknowledged one
        // behind it for good.
        self.revive_all(since);
        self.acknowledge_all(before);
    }

    /// The content of a snapshot taken now.
    pub(crate) fn snapshot(&self, now: Time) -> Contents {
        let keeps = |at: &u32| {
            !self.slots[*at].copy && self.slots[*at].message.published + self.settings.retention > now
        };
        Contents::new(self.pending().filter(keeps).map(|at| Arc::clone(&self.slots[at].message)).collect())
    }

    /// Makes the snapshot's messages available, and acknowledges everything else.
    pub(crate) fn seek_to(&mut self, now: Time, contents: &Contents) {
        self.catch_up(now);
        let retained: HashSet<u64> = contents.messages().iter().map(|message| message.id).collect();
        let others = self.all().filter(|at| !retained.contains(&self.slots[*at].message.id)).collect();
        self.acknowledge_all(others);
        self.restore(now, contents.messages());
    }

    /// Makes messages available that a topic or a snapshot still has, adding the missing ones.
    /// Expired ones are skipped.
    pub(crate) fn restore(&mut self, now: Time, messages: &[Arc<Message>]) {
        self.catch_up(now);
        let mut here: HashMap<u64, Vec<u32>> = HashMap::new();
        for at in self.all() {
            here.entry(self.slots[at].message.id).or_default().push(at);
        }
        let mut restored = Vec::with_capacity(messages.len());
        for message in messages {
            if self.is_expired(message) {
                continue;
            }
            let copies = here.entry(message.id).or_insert_with(|| {
                let at = self.slots.occupy(Arc::clone(message), false);
                self.age.push_back(&mut self.slots.items, Lane::Age, at);
                vec![at]
            });
            if copies.iter().all(|at| self.slots[*at].copy)
                && let Some(first) = copies.first()
            {
                self.promote(*first);
            }
            restored.append(copies);
        }
        self.sort_by_age();
        restored.sort_by_key(|at| self.slots[*at].order());
        self.revive_all(restored);
    }

    /// Makes a second copy the message itself, which is not here any more: what becomes of it from
    /// now on is noted. It is about to be available.
    fn promote(&mut self, at: u32) {
        self.slots[at].copy = false;
        self.note_pending(at);
    }

    /// All messages, the oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        self.since(self.age.head)
    }

    /// This message and all after it by age; none if it is [`NONE`].
    pub(super) fn since(&self, at: u32) -> impl Iterator<Item = u32> {
        std::iter::successors((at != NONE).then_some(at), |at| {
            Some(self.slots[*at].after(Lane::Age)).filter(|after| *after != NONE)
        })
    }

    fn acknowledge_all(&mut self, slots: Vec<u32>) {
        for at in slots {
            // A message in a line may have gone with the one before it.
            if self.slots[at].is_pending() {
                self.mark_acknowledged(at);
            }
        }
    }

    /// Makes acknowledged and leased messages available, as if for the first time. They must be
    /// ordered from the oldest.
    fn revive_all(&mut self, slots: Vec<u32>) {
        let (lined, free): (Vec<u32>, Vec<u32>) =
            slots.into_iter().filter(|at| !self.slots[*at].is_to_come()).partition(|at| self.has_line(*at));
        for at in free {
            self.revive(at);
        }
        // The newest first, so that each is inserted at the head of its line.
        for at in lined.into_iter().rev() {
            self.revive(at);
        }
    }

    fn has_line(&self, at: u32) -> bool {
        self.settings.ordering && !self.slots[at].message.ordering_key.is_empty()
    }

    fn revive(&mut self, at: u32) {
        // A message before it may have requeued it already.
        if self.slots[at].is_to_come() {
            return;
        }
        self.withdraw(at);
        if self.slots[at].key != NONE {
            self.leave_line(at);
        }
        (self.slots[at].lease, self.slots[at].failures) = (0, 0);
        self.make_pending(at, self.latest, false);
    }

    /// Removes a message from its current state, but not from its key's line.
    pub(super) fn withdraw(&mut self, at: u32) {
        let state = self.slots[at].state;
        if self.slots[at].is_pending() {
            self.discount(at);
        }
        match state {
            State::Ready { ahead } => {
                let list = if ahead { &mut self.ahead } else { &mut self.ready };
                list.remove(&mut self.slots.items, Lane::Queue, at);
            }
            State::Waiting { until } => self.forget_timer(until, Timer::Message(at)),
            State::Leased { .. } => self.end_lease(at),
            State::Queued { .. } => {
                let key = self.slots[at].key;
                if self.keys[key].cursor == at {
                    self.keys[key].cursor = self.next_queued(self.slots[at].after(Lane::Queue));
                }
            }
            State::Kept => self.tally.kept -= 1,
            State::Done | State::Free => {}
        }
        self.slots[at].state = State::Free;
    }

    /// Retains an acknowledged message that is not in a line, or removes it.
    pub(super) fn retire(&mut self, at: u32) {
        if self.settings.retain_acked && !self.is_expired(&self.slots[at].message) {
            self.slots[at].state = State::Kept;
            self.tally.kept += 1;
            self.note(at, Held::Settled);
        } else {
            self.expunge(at);
        }
    }

    fn expunge(&mut self, at: u32) {
        self.note(at, Held::Gone);
        self.age.remove(&mut self.slots.items, Lane::Age, at);
        self.slots.vacate(at);
    }

    /// Removes the retained acknowledged messages.
    pub(super) fn drop_kept(&mut self) {
        let kept: Vec<u32> = self.all().filter(|at| self.slots[*at].state == State::Kept).collect();
        for at in kept {
            self.tally.kept -= 1;
            self.expunge(at);
        }
    }

    pub(super) fn is_expired(&self, message: &Message) -> bool {
        message.published + self.settings.retention <= self.latest
    }

    /// When the oldest message's retention ends.
    pub(super) fn oldest_ends(&self) -> Option<Time> {
        (!self.age.is_empty()).then(|| self.slots[self.age.head].message.published + self.settings.retention)
    }

    /// Drops messages whose retention has ended, whatever their state.
    pub(super) fn drop_expired(&mut self) {
        while self.oldest_ends().is_some_and(|end| end <= self.latest) {
            let at = self.age.head;
            self.withdraw(at);
            if self.slots[at].key != NONE {
                self.leave_line(at);
            }
            self.expunge(at);
        }
    }

    fn sort_by_age(&mut self) {
        let mut all: Vec<u32> = self.all().collect();
        all.sort_by_key(|at| self.slots[*at].order());
        self.age = List::EMPTY;
        for at in all {
            self.age.push_back(&mut self.slots.items, Lane::Age, at);
        }
    }
}
