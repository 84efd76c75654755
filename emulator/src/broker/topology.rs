//! Which resources refer to which: a topic's subscriptions and snapshots, and the subscriptions
//! that send it their dead letters. Whatever named a deleted topic names `_deleted-topic_` instead.
//!
//! It moves no messages.

use super::names::{self, DELETED_TOPIC, Kind};
use super::snapshots::Snapshot;
use super::subscriptions::Subscription;
use super::topics::Topic;
use super::{Answer, Broker, Name, Refusal, Time};

impl Broker {
    /// Finds a topic by name, after checking the name.
    pub(super) fn topic(&self, field: &str, name: &str) -> Answer<&Topic> {
        names::check(Kind::Topic, field, name)?;
        self.topics.get(name).ok_or_else(|| Refusal::not_found(name))
    }

    /// Finds a subscription by name, after checking the name.
    pub(super) fn subscription(&self, field: &str, name: &str) -> Answer<&Subscription> {
        names::check(Kind::Subscription, field, name)?;
        self.subscriptions.get(name).ok_or_else(|| Refusal::not_found(name))
    }

    /// The same, mutably.
    pub(super) fn subscription_mut(&mut self, field: &str, name: &str) -> Answer<&mut Subscription> {
        names::check(Kind::Subscription, field, name)?;
        self.subscriptions.get_mut(name).ok_or_else(|| Refusal::not_found(name))
    }

    /// Finds a snapshot by name, after checking the name.
    pub(super) fn snapshot(&self, field: &str, name: &str) -> Answer<&Snapshot> {
        names::check(Kind::Snapshot, field, name)?;
        self.snapshots.get(name).ok_or_else(|| Refusal::not_found(name))
    }

    /// The topic that feeds a subscription, unless it was deleted or the subscription is detached.
    pub(super) fn feeding(&self, subscription: &Subscription) -> Option<&Topic> {
        if subscription.config.detached {
            return None;
        }
        self.topics.get(subscription.config.topic.as_str())
    }

    /// Removes a topic from everything that refers to it.
    pub(super) fn forget_topic(&mut self, now: Time, name: &str, topic: &Topic) {
        for source in topic.subscriptions.iter().chain(&topic.detached) {
            if let Some(subscription) = self.subscriptions.get_mut(source) {
                subscription.config.topic = DELETED_TOPIC.to_owned();
                subscription.config.topic_message_retention_duration = None;
                subscription.configure(now);
                self.ledger.note(|| subscription.change());
                self.reschedule(now, source);
            }
        }
        for snapshot in &topic.snapshots {
            if let Some(snapshot) = self.snapshots.get_mut(snapshot) {
                snapshot.config.topic = DELETED_TOPIC.to_owned();
                self.ledger.note(|| snapshot.change());
            }
        }
        self.forget_dead_letter_topic(now, name);
    }

    /// Subscriptions whose dead letters went to a topic that is deleted.
    fn forget_dead_letter_topic(&mut self, now: Time, name: &str) {
        for source in self.dead_letter_sources.remove(name).into_iter().flatten() {
            if let Some(subscription) = self.subscriptions.get_mut(&source) {
                if let Some(policy) = &mut subscription.config.dead_letter_policy {
                    policy.dead_letter_topic = DELETED_TOPIC.to_owned();
                }
                subscription.configure(now);
                self.note_subscription(&source);
                self.wake(&source);
                self.reschedule(now, &source);
            }
        }
    }

    /// Removes a subscription from everything that refers to it, with its policy and its entry in
    /// the agenda.
    pub(super) fn forget_subscription(&mut self, name: &Name, subscription: &Subscription) {
        if let Some(topic) = self.topics.get_mut(subscription.config.topic.as_str()) {
            topic.subscriptions.remove(name);
            topic.detached.remove(name);
        }
        if let Some(topic) = subscription.dead_letter_topic() {
            self.send_no_dead_letters(name, &topic);
        }
        self.agenda.forget(super::agenda::Entry::Subscription(name.clone()));
        self.policies.forget(name);
        self.follow_push_config(name);
        self.wake(name);
    }

    /// Sends this subscription's dead letters to that topic from now on.
    pub(super) fn send_dead_letters(&mut self, name: &Name, topic: &str) {
        self.dead_letter_sources.entry(topic.into()).or_default().insert(name.clone());
    }

    /// Stops sending them there.
    pub(super) fn send_no_dead_letters(&mut self, name: &Name, topic: &str) {
        if let Some(sources) = self.dead_letter_sources.get_mut(topic) {
            sources.remove(name);
            if sources.is_empty() {
                self.dead_letter_sources.remove(topic);
            }
        }
    }

    /// Wakes the waiters on a subscription.
    pub(super) fn wake(&mut self, name: &Name) {
        self.woken.insert(name.clone());
        self.pushes.stir(name);
    }
}
