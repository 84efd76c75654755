//! Handles what is due: expired leases, dead letters, retention, and the expiry of subscriptions
//! and snapshots.
//!
//! Each is handled as of the time at which it was due, in order, however far the time has advanced
//! since.

use super::agenda::Entry;
use super::delivery::DeadLetter;
use super::limits::LONGEST_SNAPSHOT;
use super::names;
use super::{Broker, Message, Name, Time};

impl Broker {
    /// Handles everything that is due.
    pub fn advance(&mut self, now: Time) {
        let mut moment = Time::default();
        while let Some((due, entry)) = self.agenda.take(now) {
            // An entry that was due before it was scheduled is handled late, not in the past.
            moment = moment.max(due);
            match entry {
                Entry::Subscription(name) => self.process_due(moment, &name),
                Entry::Snapshot(name) => self.expire_snapshot(moment, &name),
                Entry::Topic(name) => self.prune_topic(moment, &name),
                Entry::Push(name) => self.wake(&name),
            }
        }
    }

    /// When `advance` should be called next, if ever. There may turn out to be nothing to do.
    pub fn next_due(&self) -> Option<Time> {
        self.agenda.next()
    }

    /// Must be called after any change that may affect what a subscription has to do and when:
    /// handles what is due at once, and schedules the rest.
    pub(super) fn reschedule(&mut self, now: Time, name: &str) {
        let Some(subscription) = self.subscriptions.get(name) else { return };
        match subscription.next_due() {
            Some(due) if due <= now => self.process_due(now, name),
            Some(due) => self.agenda.no_later(Entry::Subscription(subscription.name.clone()), due),
            None => {}
        }
    }

    fn process_due(&mut self, now: Time, name: &str) {
        let Some(subscription) = self.subscriptions.get_mut(name) else { return };
        let name = subscription.name.clone();
        if subscription.expires().is_some_and(|expires| expires <= now) {
            if !self.streams.any_on(&name) {
                self.remove_subscription(&name);
                return;
            }
            subscription.touch(now);
        }
        let advanced = subscription.delivery.advance(now);
        if advanced.deliverable {
            self.wake(&name);
        }
        self.publish_dead_letters(now, &name, advanced.dead);
        if let Some(due) = self.subscriptions.get(&name).and_then(super::Subscription::next_due) {
            self.agenda.no_later(Entry::Subscription(name), due);
        }
    }

    /// Publishes dead letters to the topic of their subscription's policy.
    fn publish_dead_letters(&mut self, now: Time, source: &Name, dead: Vec<DeadLetter>) {
        if dead.is_empty() {
            return;
        }
        let Some(topic) = self.subscriptions.get(source).and_then(super::Subscription::dead_letter_topic)
        else {
            return;
        };
        let letters: Vec<Message> =
            dead.into_iter().map(|letter| self.letter(now, source, &letter)).collect();
        self.fan_out(now, &topic, letters);
    }

    /// Copies a dead message, adding its origin.
    fn letter(&mut self, now: Time, source: &str, letter: &DeadLetter) -> Message {
        let message = &letter.message;
        let mut attributes = message.attributes.clone();
        let about = [
            ("DeliveryCount", letter.attempts.to_string()),
            ("Subscription", names::id_of(source).to_owned()),
            ("SubscriptionProject", names::project_of(source).to_owned()),
            ("TopicPublishTime", message.published.rfc3339()),
        ];
        attributes.extend(about.map(|(key, value)| (format!("CloudPubSubDeadLetterSource{key}"), value)));
        Message {
            id: self.next_message(),
            published: now.in_whole_millis(),
            data: message.data.clone(),
            attributes,
            ordering_key: message.ordering_key.clone(),
            schema: message.schema.clone(),
        }
    }

    fn expire_snapshot(&mut self, now: Time, name: &Name) {
        let Some(snapshot) = self.snapshots.get(name) else { return };
        if snapshot.expires <= now {
            self.remove_snapshot(name);
        } else {
            self.agenda.no_later(Entry::Snapshot(name.clone()), snapshot.expires);
        }
    }

    fn prune_topic(&mut self, now: Time, name: &Name) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        if let Some(due) = topic.prune(now) {
            self.agenda.no_later(Entry::Topic(name.clone()), due);
        }
    }
}

/// When a snapshot created now expires; `oldest` is the time of the backlog's oldest message.
pub(super) fn snapshot_expiry(now: Time, oldest: Option<Time>) -> Time {
    oldest.unwrap_or(now) + LONGEST_SNAPSHOT
}
