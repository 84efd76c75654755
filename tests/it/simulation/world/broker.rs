//! A broker that keeps messages and hands them out on request: a plain one, or the emulator's with
//! its faults.

use std::collections::BTreeSet;
use std::time::Duration;

use wakeq::{EventId, Timestamp};

use super::emulated::{EmulatedBroker, MessageLease};

/// Delay before the plain broker redelivers a message that was put back.
const REDELIVERY: Duration = Duration::from_secs(10);
const ACKNOWLEDGE_DEADLINE: Duration = Duration::from_secs(60);

/// Undelivered messages.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    /// Messages of the plain broker.
    pub(crate) messages: Vec<Message>,
    /// Replaces the plain broker if set.
    pub(crate) emulated: Option<Box<EmulatedBroker>>,
    /// The urgent events, whose notifications have a stream of their own.
    pub(crate) urgent: BTreeSet<EventId>,
    /// Those of them whose next notification is published without their class.
    pub(crate) unmarked: BTreeSet<EventId>,
    /// How often a check has found messages that no worker had room for.
    pub(crate) backlogs: u32,
}

/// A notification in transit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) event: EventId,
    /// Not delivered before this time.
    pub(crate) at: Timestamp,
    /// Which of the two streams it is in.
    pub(crate) urgent: bool,
}

/// A notification that a worker holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldNotification {
    pub(crate) event: EventId,
    /// The lease by which the emulator's broker knows it.
    pub(crate) held: Option<MessageLease>,
    pub(crate) urgent: bool,
}

impl Broker {
    pub(crate) fn publish(&mut self, event: EventId, at: Timestamp) {
        let urgent = self.urgent.contains(&event) && !self.unmarked.remove(&event);
        match &mut self.emulated {
            Some(emulated) => emulated.publish(event, at),
            None => self.messages.push(Message { event, at, urgent }),
        }
    }

    /// The events of the messages that may be delivered now, oldest message first.
    pub(crate) fn deliverable(&mut self, now: Timestamp) -> Vec<EventId> {
        match &mut self.emulated {
            Some(emulated) => emulated.offers(now),
            None => self
                .messages
                .iter()
                .filter(|message| message.at <= now)
                .map(|message| message.event)
                .collect(),
        }
    }

    /// Removes the oldest deliverable message of an event.
    pub(crate) fn take(&mut self, event: EventId, now: Timestamp) -> Option<HeldNotification> {
        if let Some(emulated) = &mut self.emulated {
            let urgent = false;
            return emulated.take(event).map(|held| HeldNotification { event, held: Some(held), urgent });
        }
        let found = self.messages.iter().position(|message| message.event == event && message.at <= now);
        found.map(|at| self.hand_out(at))
    }

    /// Removes the oldest deliverable message of one of the two streams.
    pub(crate) fn take_next(&mut self, urgent: bool, now: Timestamp) -> Option<HeldNotification> {
        let is_next = |message: &Message| message.urgent == urgent && message.at <= now;
        self.messages.iter().position(is_next).map(|at| self.hand_out(at))
    }

    fn hand_out(&mut self, at: usize) -> HeldNotification {
        let Message { event, urgent, .. } = self.messages.remove(at);
        HeldNotification { event, held: None, urgent }
    }

    /// Keeps it in its stream until then.
    fn keep(&mut self, taken: &HeldNotification, at: Timestamp) {
        let HeldNotification { event, urgent, .. } = *taken;
        self.messages.push(Message { event, at, urgent });
    }

    pub(crate) fn acknowledge(&mut self, taken: &HeldNotification, now: Timestamp) {
        if let (Some(emulated), Some(held)) = (&mut self.emulated, &taken.held) {
            emulated.acknowledge(held, now);
        }
    }

    pub(crate) fn put_back(&mut self, taken: &HeldNotification, now: Timestamp) {
        match (&mut self.emulated, &taken.held) {
            (Some(emulated), Some(held)) => emulated.give_back(held, now),
            _ => self.keep(taken, now + REDELIVERY),
        }
    }

    /// Its holder is gone; the broker notices when the acknowledge deadline passes.
    pub(crate) fn abandon(&mut self, taken: &HeldNotification, now: Timestamp) {
        // The emulator's leases expire by themselves.
        if taken.held.is_none() {
            self.keep(taken, now + ACKNOWLEDGE_DEADLINE);
        }
    }

    /// Lets time pass while live processes keep holding these messages.
    pub(crate) fn pass(&mut self, from: Timestamp, to: Timestamp, held: &[MessageLease]) {
        if let Some(emulated) = &mut self.emulated {
            emulated.pass(from, to, held);
        }
    }

    /// Loses every message of an event.
    pub(crate) fn lose(&mut self, event: EventId) {
        self.messages.retain(|message| message.event != event);
    }
}
