//! What is noted of a subscription's messages, and how they come back after a restart.

use std::sync::Arc;

use super::slot::{Lane, State};
use super::{Delivery, Message, Settings, Time};
use crate::broker::changes::{Change, Held, Ledger, add_held};

impl Delivery {
    /// Notes there what becomes of messages from now on.
    pub(in crate::broker) fn note_in(&mut self, ledger: Ledger) {
        self.ledger = ledger;
    }

    /// One with this serial and these notes, without messages.
    pub(crate) fn emptied(&self, settings: Settings) -> Self {
        Self { ledger: self.ledger.clone(), ..Self::new(self.serial, settings) }
    }

    /// Notes how it has a message from now on. A second copy is not noted: it is a fault, and ends
    /// with the process.
    pub(super) fn note(&self, at: u32, held: Held) {
        let slot = &self.slots[at];
        if !slot.copy {
            self.ledger.note_message(self.serial, slot.message.id, held);
        }
    }

    /// Notes that a message is not acknowledged.
    pub(super) fn note_pending(&self, at: u32) {
        self.note(at, Held::Pending { failures: self.slots[at].failures });
    }

    /// Takes over messages, the oldest first, as if no one had ever held them. Leases that were
    /// granted before have ended: an ack id of theirs is late, and not unknown. It notes there
    /// which messages it does not take, or they would come back with another retention.
    pub(in crate::broker) fn load(
        &mut self,
        now: Time,
        messages: impl Iterator<Item = (Arc<Message>, Held)>,
        ledger: &Ledger,
    ) {
        self.catch_up(now);
        // In a process, there are fewer leases than microseconds.
        self.last_lease = now.micros();
        self.loaded_at_lease = self.last_lease;
        for (message, held) in messages {
            let stays = match held {
                Held::Pending { .. } => true,
                Held::Settled => self.settings.retain_acked,
                Held::Gone => false,
            };
            if !stays || self.is_expired(&message) {
                ledger.note_message(self.serial, message.id, Held::Gone);
                continue;
            }
            let at = self.slots.occupy(message, false);
            self.age.push_back(&mut self.slots.items, Lane::Age, at);
            if let Held::Pending { failures } = held {
                self.slots[at].failures = failures;
                self.make_pending(at, self.latest, false);
            } else {
                self.slots[at].state = State::Kept;
                self.tally.kept += 1;
            }
        }
    }

    /// Adds the changes that make its messages of none.
    pub(crate) fn state(&self, changes: &mut Vec<Change>) {
        let here = move || self.all().filter(move |at| !self.slots[*at].copy);
        changes.push(Change::Messages(here().map(|at| Arc::clone(&self.slots[at].message)).collect()));
        for at in here() {
            add_held(changes, self.serial, self.slots[at].message.id, self.held(at));
        }
    }

    fn held(&self, at: u32) -> Held {
        let slot = &self.slots[at];
        match slot.state {
            State::Ready { .. } | State::Waiting { .. } | State::Queued { .. } | State::Leased { .. } => {
                Held::Pending { failures: slot.failures }
            }
            State::Done | State::Kept => Held::Settled,
            State::Free => Held::Gone,
        }
    }
}
