//! What changes in the broker, in order: enough to make the same state again, except for leases,
//! back-offs, streams and faults.
//!
//! Nothing is noted unless somebody asked for it. Notes never decide anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Broker, Message, Name, RevisionRange, Time};
use crate::proto::{iam, pubsub};

/// A change, or one of the facts that a state consists of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A topic is like this from now on. Of the messages that it retains, those before `first_kept`
    /// are gone.
    Topic { number: u64, first_kept: u64, revisions: RevisionRange, config: Box<pubsub::Topic> },
    /// A subscription is like this from now on. A detached one has no messages.
    Subscription { serial: u64, topic: u64, config: Box<pubsub::Subscription> },
    /// A snapshot is like this from now on; its contents stay.
    Snapshot { topic: u64, made: Time, config: Box<pubsub::Snapshot> },
    /// What a snapshot has, by the messages' ids.
    Contents { snapshot: Name, messages: Vec<u64> },
    /// The schema with the number `schema` has this revision after all others.
    Revision { schema: u64, number: u64, config: Box<pubsub::Schema> },
    /// A revision of a schema is gone.
    RevisionGone { schema: Name, number: u64 },
    /// A resource has this policy from now on.
    Policy { resource: Name, policy: Box<iam::Policy> },
    /// A topic, subscription, snapshot or schema is gone, and its policy and messages with it.
    Gone(Name),
    /// A topic got messages: it retains them itself, or does not, and these snapshots have them.
    Published { topic: Name, kept: bool, snapshots: Vec<Name>, messages: Vec<Arc<Message>> },
    /// Messages that others refer to.
    Messages(Vec<Arc<Message>>),
    /// What a topic retains, by the messages' ids.
    Kept { topic: Name, messages: Vec<u64> },
    /// What became of messages in the subscription with this serial.
    Held { subscription: u64, messages: Vec<u64>, held: Held },
    /// The last numbers that were given.
    Numbers { message: u64, resource: u64, policy: u64 },
    /// Everything is gone, except for the numbers.
    Emptied,
}

/// How a subscription has a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Held {
    /// It is not acknowledged.
    Pending { failures: u32 },
    /// It is acknowledged, and still here.
    Settled,
    /// It is not here.
    Gone,
}

/// Where changes are noted, if somebody asked for them. Its clones share the notes, so that those
/// of a broker and of its subscriptions are in one order.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger(Option<Arc<Mutex<Vec<Change>>>>);

impl Ledger {
    /// One that notes.
    pub(super) fn open() -> Self {
        Self(Some(Arc::default()))
    }

    pub(super) fn note(&self, change: impl FnOnce() -> Change) {
        if let Some(changes) = &self.0 {
            let change = change();
            lock(changes).push(change);
        }
    }

    pub(super) fn note_message(&self, subscription: u64, message: u64, held: Held) {
        if let Some(changes) = &self.0 {
            add_held(&mut lock(changes), subscription, message, held);
        }
    }

    fn take(&self) -> Vec<Change> {
        self.0.as_ref().map(|changes| std::mem::take(&mut *lock(changes))).unwrap_or_default()
    }
}

/// It is locked only under the broker's lock, so nobody waits here.
fn lock(changes: &Mutex<Vec<Change>>) -> MutexGuard<'_, Vec<Change>> {
    changes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a message to the last change, if that says the same of others.
pub(super) fn add_held(changes: &mut Vec<Change>, subscription: u64, message: u64, held: Held) {
    if let Some(Change::Held { subscription: of, messages, held: same }) = changes.last_mut()
        && (*of, *same) == (subscription, held)
    {
        messages.push(message);
    } else {
        changes.push(Change::Held { subscription, messages: vec![message], held });
    }
}

impl Broker {
    /// Notes changes from now on, for [`Broker::take_changes`].
    pub(crate) fn note_changes(&mut self) {
        self.ledger = Ledger::open();
        for subscription in self.subscriptions.values_mut() {
            subscription.delivery.note_in(self.ledger.clone());
        }
    }

    /// Takes the changes since the last call.
    pub(crate) fn take_changes(&self) -> Vec<Change> {
        self.ledger.take()
    }

    /// Notes how a topic is now.
    pub(super) fn note_topic(&self, name: &str) {
        if let Some(topic) = self.topics.get(name) {
            self.ledger.note(|| topic.change());
        }
    }

    /// Notes how a subscription is now, without its messages.
    pub(super) fn note_subscription(&self, name: &str) {
        if let Some(subscription) = self.subscriptions.get(name) {
            self.ledger.note(|| subscription.change());
        }
    }

    /// Notes how a snapshot is now, without its messages.
    pub(super) fn note_snapshot(&self, name: &str) {
        if let Some(snapshot) = self.snapshots.get(name) {
            self.ledger.note(|| snapshot.change());
        }
    }

    /// Notes that a topic, subscription, snapshot or schema is gone.
    pub(super) fn note_gone(&self, name: &Name) {
        self.ledger.note(|| Change::Gone(name.clone()));
    }
}
