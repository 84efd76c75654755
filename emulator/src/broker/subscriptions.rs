//! Subscriptions: create, get, list, update, delete, detach; and their expiry.
//!
//! Valid configurations are defined in `settings`, updates in `fields`; what happens to messages is
//! decided in
//! `delivery`.

mod fields;
mod settings;

use std::time::Duration;

use super::agenda::Entry;
use super::changes::Change;
use super::delivery::Delivery;
use super::filter::Filter;
use super::names::{self, DELETED_TOPIC, Kind};
use super::pages::Page;
use super::saved::SavedSubscription;
use super::{Answer, Broker, Name, Refusal, Time, limits, unsupported};
use crate::proto::pubsub;

/// A subscription and its messages.
pub(super) struct Subscription {
    pub(super) name: Name,
    /// The number of the topic that it was created for, which may have been deleted.
    pub(super) topic: u64,
    /// As returned to clients, with defaults filled in.
    pub(super) config: pubsub::Subscription,
    pub(super) filter: Option<Filter>,
    pub(super) delivery: Delivery,
    last_used: Time,
}

impl Subscription {
    /// What is noted of it, without its messages.
    pub(super) fn change(&self) -> Change {
        Change::Subscription {
            serial: self.delivery.serial(),
            topic: self.topic,
            config: Box::new(self.config.clone()),
        }
    }

    /// Records that it is in use, which postpones its expiry.
    pub(super) fn touch(&mut self, now: Time) {
        self.last_used = self.last_used.max(now);
    }

    /// Whether its filter admits a message.
    pub(super) fn admits(&self, message: &super::Message) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(&message.attributes))
    }

    /// Whether its messages are pushed to an endpoint.
    pub(super) fn pushes(&self) -> bool {
        self.push_endpoint().is_some()
    }

    pub(super) fn push_endpoint(&self) -> Option<&str> {
        let endpoint = self.config.push_config.as_ref().map(|config| config.push_endpoint.as_str());
        endpoint.filter(|endpoint| !endpoint.is_empty())
    }

    /// The topic for its dead letters; `None` if there is none, or it was deleted.
    pub(super) fn dead_letter_topic(&self) -> Option<String> {
        let policy = self.config.dead_letter_policy.as_ref()?;
        (policy.dead_letter_topic != DELETED_TOPIC).then(|| policy.dead_letter_topic.clone())
    }

    /// When it expires, unless it is used before.
    pub(super) fn expires(&self) -> Option<Time> {
        let ttl = self.config.expiration_policy.as_ref()?.ttl.as_ref().and_then(limits::std_duration)?;
        Some(self.last_used + ttl)
    }

    /// When it has to be attended to next.
    pub(super) fn next_due(&self) -> Option<Time> {
        [self.delivery.next_due(), self.expires()].into_iter().flatten().min()
    }

    /// Applies its configuration to its delivery.
    pub(super) fn configure(&mut self, now: Time) {
        self.delivery.configure(now, settings::delivery(&self.config));
    }

    /// How long its messages are leased.
    pub(super) fn ack_deadline(&self) -> Duration {
        self.delivery.settings().ack_deadline
    }
}

impl Broker {
    /// Creates a subscription; without a name, it gets one in its topic's project.
    pub fn create_subscription(
        &mut self,
        now: Time,
        request: pubsub::Subscription,
    ) -> Answer<pubsub::Subscription> {
        let mut config = request;
        if !config.name.is_empty() {
            names::check(Kind::Subscription, "name", &config.name)?;
        }
        names::check(Kind::Topic, "topic", &config.topic)?;
        if config.detached {
            return Err(limits::bad_argument("detached"));
        }
        settings::complete(&mut config, self.accepts_unsupported)?;
        let filter = settings::filter(&config.filter)?;
        let topic =
            self.topics.get(config.topic.as_str()).ok_or_else(|| Refusal::not_found(&config.topic))?;
        limits::room_for("subscriptions", topic.subscriptions.len(), limits::MOST_SUBSCRIPTIONS_OF_A_TOPIC)?;
        let (topic_name, topic_number) = (topic.name.clone(), topic.number);
        config.topic_message_retention_duration = topic.retention.map(limits::proto_duration);
        self.check_dead_letter_topic(&config)?;
        if config.name.is_empty() {
            config.name = self.free_name(Kind::Subscription, &topic_name);
        }
        if self.subscriptions.contains_key(config.name.as_str()) {
            return Err(Refusal::already_exists(&config.name));
        }
        let name: Name = config.name.as_str().into();
        let mut delivery = Delivery::new(self.next_resource(), settings::delivery(&config));
        delivery.note_in(self.ledger.clone());
        let subscription = Subscription {
            name: name.clone(),
            topic: topic_number,
            filter,
            delivery,
            config: config.clone(),
            last_used: now,
        };
        if let Some(topic) = self.topics.get_mut(&topic_name) {
            topic.subscriptions.insert(name.clone());
        }
        if let Some(topic) = subscription.dead_letter_topic() {
            self.send_dead_letters(&name, &topic);
        }
        self.subscriptions.insert(name.clone(), subscription);
        self.note_subscription(&name);
        self.note_unsupported(&name, &[], &unsupported::of_subscription(&config));
        // A client that waits on an earlier one of that name learns that it is another.
        self.follow_push_config(&name);
        self.wake(&name);
        self.reschedule(now, &name);
        Ok(config)
    }

    /// Returns a subscription's configuration.
    pub fn get_subscription(
        &mut self,
        now: Time,
        request: pubsub::GetSubscriptionRequest,
    ) -> Answer<pubsub::Subscription> {
        let subscription = self.subscription_mut("subscription", &request.subscription)?;
        subscription.touch(now);
        Ok(subscription.config.clone())
    }

    /// Changes the fields of a subscription that the mask names.
    pub fn update_subscription(
        &mut self,
        now: Time,
        request: pubsub::UpdateSubscriptionRequest,
    ) -> Answer<pubsub::Subscription> {
        let Some(update) = request.subscription else {
            let words = "The subscription in the UpdateSubscriptionRequest must be set.";
            return Err(Refusal::invalid(words));
        };
        let paths = fields::FIELDS.paths(request.update_mask.as_ref())?;
        let current = self.subscription("subscription.name", &update.name)?;
        let name = current.name.clone();
        let mut config = current.config.clone();
        fields::apply(&mut config, &update, paths)?;
        settings::complete(&mut config, self.accepts_unsupported)?;
        if paths.iter().any(|path| path.starts_with("dead_letter_policy")) {
            self.check_dead_letter_topic(&config)?;
        }
        self.configure_subscription(now, &name, config.clone());
        Ok(config)
    }

    /// Lists a project's subscriptions, one page at a time.
    pub fn list_subscriptions(
        &mut self,
        _now: Time,
        request: pubsub::ListSubscriptionsRequest,
    ) -> Answer<pubsub::ListSubscriptionsResponse> {
        let prefix = Kind::Subscription.prefix(names::project(&request.project)?);
        let page = Page::of(&prefix, request.page_size, &request.page_token)?;
        let found = self.subscriptions.range::<str, _>(page.range(&prefix));
        let found = found.take_while(|(name, _)| name.starts_with(&prefix));
        let (subscriptions, next_page_token) =
            page.cut(found.map(|(name, subscription)| (name, subscription.config.clone())));
        Ok(pubsub::ListSubscriptionsResponse { subscriptions, next_page_token })
    }

    /// Deletes a subscription and its messages.
    pub fn delete_subscription(
        &mut self,
        _now: Time,
        request: pubsub::DeleteSubscriptionRequest,
    ) -> Answer<()> {
        let name = self.subscription("subscription", &request.subscription)?.name.clone();
        self.remove_subscription(&name);
        Ok(())
    }

    /// Detaches a subscription from its topic for good, and drops its messages.
    pub fn detach_subscription(
        &mut self,
        now: Time,
        request: pubsub::DetachSubscriptionRequest,
    ) -> Answer<pubsub::DetachSubscriptionResponse> {
        let subscription = self.subscription_mut("subscription", &request.subscription)?;
        subscription.config.detached = true;
        subscription.delivery = subscription.delivery.emptied(settings::delivery(&subscription.config));
        subscription.touch(now);
        let (name, topic) = (subscription.name.clone(), subscription.config.topic.clone());
        if let Some(topic) = self.topics.get_mut(topic.as_str())
            && topic.subscriptions.remove(&name)
        {
            topic.detached.insert(name.clone());
        }
        self.note_subscription(&name);
        self.follow_push_config(&name);
        self.wake(&name);
        Ok(pubsub::DetachSubscriptionResponse {})
    }

    /// Changes where a subscription pushes to; an empty configuration makes it a pull subscription.
    pub fn modify_push_config(&mut self, now: Time, request: pubsub::ModifyPushConfigRequest) -> Answer<()> {
        let subscription = self.subscription("subscription", &request.subscription)?;
        let name = subscription.name.clone();
        let mut config = subscription.config.clone();
        config.push_config = request.push_config;
        settings::complete(&mut config, self.accepts_unsupported)?;
        self.configure_subscription(now, &name, config);
        Ok(())
    }

    /// Removes a subscription that was deleted or has expired.
    pub(super) fn remove_subscription(&mut self, name: &Name) {
        if let Some(subscription) = self.subscriptions.remove(name) {
            self.note_gone(name);
            self.forget_subscription(name, &subscription);
        }
    }

    /// Takes over a subscription, after its topic and that of its dead letters. It counts as just
    /// used.
    pub(super) fn load_subscription(
        &mut self,
        now: Time,
        name: Name,
        saved: SavedSubscription,
    ) -> Answer<()> {
        let SavedSubscription { serial, topic, config, messages } = saved;
        let filter = settings::filter(&config.filter)?;
        let mut delivery = Delivery::new(serial, settings::delivery(&config));
        delivery.load(now, messages.into_values(), &self.ledger);
        delivery.note_in(self.ledger.clone());
        let subscription =
            Subscription { name: name.clone(), topic, filter, delivery, config, last_used: now };
        if let Some(topic) = self.topics.get_mut(subscription.config.topic.as_str()) {
            let of_topic =
                if subscription.config.detached { &mut topic.detached } else { &mut topic.subscriptions };
            of_topic.insert(name.clone());
        }
        if let Some(topic) = subscription.dead_letter_topic() {
            self.send_dead_letters(&name, &topic);
        }
        let stored = unsupported::of_subscription(&subscription.config);
        self.note_unsupported(&name, &[], &stored);
        self.subscriptions.insert(name.clone(), subscription);
        self.follow_push_config(&name);
        self.wake(&name);
        self.reschedule(now, &name);
        Ok(())
    }

    /// An unused name in the same project as another resource.
    pub(super) fn free_name(&mut self, kind: Kind, neighbour: &str) -> String {
        let prefix = kind.prefix(names::project_of(neighbour));
        loop {
            let name = format!("{prefix}assigned-{}", self.next_resource());
            if !self.subscriptions.contains_key(name.as_str()) && !self.snapshots.contains_key(name.as_str())
            {
                return name;
            }
        }
    }

    fn check_dead_letter_topic(&self, config: &pubsub::Subscription) -> Answer<()> {
        config
            .dead_letter_policy
            .as_ref()
            .map_or(Ok(()), |policy| self.topic("dead_letter_topic", &policy.dead_letter_topic).map(|_| ()))
    }

    fn configure_subscription(&mut self, now: Time, name: &Name, config: pubsub::Subscription) {
        let Some(subscription) = self.subscriptions.get_mut(name) else { return };
        let before = subscription.dead_letter_topic();
        let unsupported_before = unsupported::of_subscription(&subscription.config);
        let unsupported_now = unsupported::of_subscription(&config);
        subscription.config = config;
        subscription.touch(now);
        subscription.configure(now);
        let after = subscription.dead_letter_topic();
        if before != after {
            if let Some(topic) = before {
                self.send_no_dead_letters(name, &topic);
            }
            if let Some(topic) = after {
                self.send_dead_letters(name, &topic);
            }
        }
        self.note_subscription(name);
        self.note_unsupported(name, &unsupported_before, &unsupported_now);
        // Its expiry may be earlier now, and has to be rescheduled.
        self.agenda.forget(Entry::Subscription(name.clone()));
        self.follow_push_config(name);
        self.wake(name);
        self.reschedule(now, name);
    }
}
