//! A state that is made of changes, one after another, and the way from a broker to changes and
//! back.
//!
//! It knows nothing of files.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::changes::{Change, Held};
use super::schemas::SavedSchema;
use super::{Broker, Message, Name, RevisionRange, Schema, Time};
use crate::proto::{iam, pubsub};

/// Everything that a broker had.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    topics: BTreeMap<Name, SavedTopic>,
    subscriptions: BTreeMap<Name, SavedSubscription>,
    /// The subscriptions' names, by their serials.
    serials: HashMap<u64, Name>,
    snapshots: BTreeMap<Name, SavedSnapshot>,
    schemas: BTreeMap<Name, SavedSchema>,
    policies: BTreeMap<Name, iam::Policy>,
    /// All messages so far, by id, whether or not anything has them still.
    messages: HashMap<u64, Arc<Message>>,
    last_message: u64,
    last_resource: u64,
    last_policy: u64,
}

#[derive(Debug)]
pub(super) struct SavedTopic {
    pub(super) number: u64,
    pub(super) revisions: RevisionRange,
    pub(super) config: pubsub::Topic,
    pub(super) kept: VecDeque<Arc<Message>>,
}

#[derive(Debug)]
pub(super) struct SavedSubscription {
    pub(super) serial: u64,
    pub(super) topic: u64,
    pub(super) config: pubsub::Subscription,
    /// By id, so in the order of publication.
    pub(super) messages: BTreeMap<u64, (Arc<Message>, Held)>,
}

#[derive(Debug)]
pub(super) struct SavedSnapshot {
    pub(super) topic: u64,
    pub(super) made: Time,
    pub(super) config: pubsub::Snapshot,
    pub(super) contents: Vec<Arc<Message>>,
}

/// A change that does not fit to those before it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("it refers to {0}, which it does not have")]
pub(crate) struct Misfit(String);

impl Saved {
    /// Applies a change.
    pub(crate) fn apply(&mut self, change: Change) -> Result<(), Misfit> {
        match change {
            Change::Topic { number, first_kept, revisions, config } => {
                self.put_topic(number, first_kept, revisions, *config);
            }
            Change::Subscription { serial, topic, config } => self.put_subscription(serial, topic, *config),
            Change::Snapshot { topic, made, config } => self.put_snapshot(topic, made, *config),
            Change::Contents { snapshot, messages } => {
                let messages = self.all(&messages)?;
                self.snapshot(&snapshot)?.contents = messages;
            }
            Change::Revision { schema, number, config } => self.put_revision(schema, number, *config),
            Change::RevisionGone { schema, number } => {
                let found = self.schemas.get_mut(&schema);
                found.ok_or_else(|| Misfit(schema.to_string()))?.remove(number);
            }
            Change::Policy { resource, policy } => {
                self.policies.insert(resource, *policy);
            }
            Change::Gone(name) => self.remove(&name),
            Change::Published { topic, kept, snapshots, messages } => {
                let messages = self.add(messages);
                for name in &snapshots {
                    self.snapshot(name)?.contents.extend(messages.iter().cloned());
                }
                if kept {
                    self.topic(&topic)?.kept.extend(messages);
                }
            }
            Change::Messages(messages) => {
                self.add(messages);
            }
            Change::Kept { topic, messages } => {
                let messages = self.all(&messages)?;
                self.topic(&topic)?.kept.extend(messages);
            }
            Change::Held { subscription, messages, held } => self.hold(subscription, &messages, held)?,
            Change::Numbers { message, resource, policy } => {
                self.last_message = self.last_message.max(message);
                self.last_resource = self.last_resource.max(resource);
                self.last_policy = self.last_policy.max(policy);
            }
            Change::Emptied => {
                let Self { last_message, last_resource, last_policy, .. } = *self;
                *self = Self { last_message, last_resource, last_policy, ..Self::default() };
            }
        }
        Ok(())
    }

    fn put_topic(&mut self, number: u64, first_kept: u64, revisions: RevisionRange, config: pubsub::Topic) {
        self.last_resource = self.last_resource.max(number);
        let name: Name = config.name.as_str().into();
        let kept = self.topics.remove(&name).map(|topic| topic.kept).unwrap_or_default();
        let kept = kept.into_iter().filter(|message| message.id >= first_kept).collect();
        self.topics.insert(name, SavedTopic { number, revisions, config, kept });
    }

    fn put_subscription(&mut self, serial: u64, topic: u64, config: pubsub::Subscription) {
        self.last_resource = self.last_resource.max(serial);
        let name: Name = config.name.as_str().into();
        let before = self.subscriptions.remove(&name);
        let messages = before.filter(|_| !config.detached).map(|before| before.messages).unwrap_or_default();
        self.serials.insert(serial, name.clone());
        self.subscriptions.insert(name, SavedSubscription { serial, topic, config, messages });
    }

    fn put_snapshot(&mut self, topic: u64, made: Time, config: pubsub::Snapshot) {
        let name: Name = config.name.as_str().into();
        let contents = self.snapshots.remove(&name).map(|before| before.contents).unwrap_or_default();
        self.snapshots.insert(name, SavedSnapshot { topic, made, config, contents });
    }

    fn put_revision(&mut self, schema: u64, number: u64, config: pubsub::Schema) {
        self.last_resource = self.last_resource.max(number);
        let name: Name = config.name.as_str().into();
        let new = || SavedSchema::new(name.clone(), config.r#type(), schema);
        self.schemas.entry(name.clone()).or_insert_with(new).add(number, config);
    }

    fn remove(&mut self, name: &Name) {
        self.topics.remove(name);
        self.snapshots.remove(name);
        self.policies.remove(name);
        if let Some(schema) = self.schemas.remove(name) {
            schema.delete();
        }
        if let Some(subscription) = self.subscriptions.remove(name) {
            self.serials.remove(&subscription.serial);
        }
    }

    /// Adds messages, and returns them as they are here.
    fn add(&mut self, mut messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
        for message in &mut messages {
            self.last_message = self.last_message.max(message.id);
            if let Some(mark) = &message.schema {
                let schema = self.schemas.get(&mark.schema);
                let mark = schema.map_or_else(|| Arc::new(mark.without_schema()), |schema| schema.mark(mark));
                *message = Arc::new(Message { schema: Some(mark), ..Message::clone(message) });
            }
            self.messages.insert(message.id, Arc::clone(message));
        }
        messages
    }

    fn hold(&mut self, serial: u64, ids: &[u64], held: Held) -> Result<(), Misfit> {
        let Self { serials, subscriptions, messages, .. } = self;
        let subscription = serials.get(&serial).and_then(|name| subscriptions.get_mut(name));
        let subscription =
            subscription.ok_or_else(|| Misfit(format!("the subscription with the number {serial}")))?;
        for id in ids {
            if held == Held::Gone {
                subscription.messages.remove(id);
            } else {
                let message = messages.get(id).ok_or_else(|| missing(*id))?;
                subscription.messages.insert(*id, (Arc::clone(message), held));
            }
        }
        Ok(())
    }

    fn all(&self, ids: &[u64]) -> Result<Vec<Arc<Message>>, Misfit> {
        ids.iter().map(|id| self.messages.get(id).cloned().ok_or_else(|| missing(*id))).collect()
    }

    fn topic(&mut self, name: &Name) -> Result<&mut SavedTopic, Misfit> {
        self.topics.get_mut(name).ok_or_else(|| Misfit(name.to_string()))
    }

    fn snapshot(&mut self, name: &Name) -> Result<&mut SavedSnapshot, Misfit> {
        self.snapshots.get_mut(name).ok_or_else(|| Misfit(name.to_string()))
    }
}

fn missing(message: u64) -> Misfit {
    Misfit(format!("the message {message}"))
}

impl Broker {
    /// Takes over everything that another broker had, and notes only what it does not take of that.
    /// Leases and back-offs have ended, and all subscriptions count as just used. This one must be
    /// empty.
    ///
    /// # Errors
    ///
    /// If a schema's definition or a subscription's filter is not valid; the refusal names it.
    pub(crate) fn load(&mut self, now: Time, saved: Saved) -> super::Answer<()> {
        self.last_message = self.last_message.max(saved.last_message);
        self.last_resource = self.last_resource.max(saved.last_resource);
        for (name, schema) in saved.schemas {
            self.load_schema(name, schema)?;
        }
        for (name, topic) in saved.topics {
            self.load_topic(now, name, topic);
        }
        for (name, snapshot) in saved.snapshots {
            self.load_snapshot(name, snapshot);
        }
        for (name, subscription) in saved.subscriptions {
            self.load_subscription(now, name, subscription)?;
        }
        self.policies.load(saved.policies, saved.last_policy);
        Ok(())
    }

    /// The changes that make this state of an empty one. It clones configurations and counts
    /// references: messages are not copied. Some are named several times.
    pub(crate) fn state(&self) -> Vec<Change> {
        let mut changes = vec![Change::Numbers {
            message: self.last_message,
            resource: self.last_resource,
            policy: self.policies.last(),
        }];
        // Before the messages that have their marks.
        changes.extend(self.schemas.values().flat_map(Schema::changes));
        for topic in self.topics.values() {
            changes.push(topic.change());
            let kept: Vec<Arc<Message>> = topic.kept_after(0).cloned().collect();
            let messages = ids(&kept);
            changes.push(Change::Messages(kept));
            changes.push(Change::Kept { topic: topic.name.clone(), messages });
        }
        for subscription in self.subscriptions.values() {
            changes.push(subscription.change());
            subscription.delivery.state(&mut changes);
        }
        for snapshot in self.snapshots.values() {
            changes.push(snapshot.change());
            changes.push(Change::Messages(snapshot.contents.messages().to_vec()));
            changes.push(snapshot.contents_change());
        }
        changes.extend(self.policies.changes());
        changes
    }
}

pub(super) fn ids(messages: &[Arc<Message>]) -> Vec<u64> {
    messages.iter().map(|message| message.id).collect()
}
