//! A broker that keeps messages and hands them out when asked.

use wakeq::{EventId, Timestamp};

/// Undelivered messages.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    pub(crate) messages: Vec<Message>,
}

/// A notification on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) event: EventId,
    /// It is not delivered before this.
    pub(crate) at: Timestamp,
}

impl Broker {
    pub(crate) fn publish(&mut self, event: EventId, at: Timestamp) {
        self.messages.push(Message { event, at });
    }

    /// The events of the messages that may be delivered now, oldest message first.
    pub(crate) fn deliverable(&self, now: Timestamp) -> impl Iterator<Item = EventId> {
        self.messages.iter().filter(move |message| message.at <= now).map(|message| message.event)
    }

    /// Takes the oldest deliverable message of an event out; says whether there was one.
    pub(crate) fn take(&mut self, event: EventId, now: Timestamp) -> bool {
        let found = self.messages.iter().position(|message| message.event == event && message.at <= now);
        found.map(|at| self.messages.remove(at)).is_some()
    }

    /// Loses every message of an event.
    pub(crate) fn lose(&mut self, event: EventId) {
        self.messages.retain(|message| message.event != event);
    }
}
