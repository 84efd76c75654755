//! A broker that keeps messages and hands them out on request: a plain one, or the emulator's with
//! its faults.

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
}

/// A notification in transit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) event: EventId,
    /// Not delivered before this time.
    pub(crate) at: Timestamp,
}

/// A notification that a worker holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldNotification {
    pub(crate) event: EventId,
    /// The lease by which the emulator's broker knows it.
    pub(crate) held: Option<MessageLease>,
}

impl Broker {
    pub(crate) fn publish(&mut self, event: EventId, at: Timestamp) {
        match &mut self.emulated {
            Some(emulated) => emulated.publish(event, at),
            None => self.messages.push(Message { event, at }),
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
            return emulated.take(event).map(|held| HeldNotification { event, held: Some(held) });
        }
        let found = self.messages.iter().position(|message| message.event == event && message.at <= now);
        found.map(|at| HeldNotification { event: self.messages.remove(at).event, held: None })
    }

    pub(crate) fn acknowledge(&mut self, taken: &HeldNotification, now: Timestamp) {
        if let (Some(emulated), Some(held)) = (&mut self.emulated, &taken.held) {
            emulated.acknowledge(held, now);
        }
    }

    pub(crate) fn put_back(&mut self, taken: &HeldNotification, now: Timestamp) {
        match (&mut self.emulated, &taken.held) {
            (Some(emulated), Some(held)) => emulated.give_back(held, now),
            _ => self.publish(taken.event, now + REDELIVERY),
        }
    }

    /// Its holder is gone; the broker notices when the acknowledge deadline passes.
    pub(crate) fn abandon(&mut self, taken: &HeldNotification, now: Timestamp) {
        // The emulator's leases expire by themselves.
        if taken.held.is_none() {
            self.publish(taken.event, now + ACKNOWLEDGE_DEADLINE);
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
