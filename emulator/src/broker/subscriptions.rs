//! Subscriptions.

use super::{Answer, Broker, Refusal, Time};
use crate::proto::pubsub;

/// A subscription.
#[derive(Debug)]
pub(super) struct Subscription {
    config: pubsub::Subscription,
    delivery: super::delivery::Delivery,
}

impl Broker {
    /// Makes a subscription.
    pub fn create_subscription(
        &mut self,
        _now: Time,
        _request: pubsub::Subscription,
    ) -> Answer<pubsub::Subscription> {
        Err(Refusal::unsupported("under construction"))
    }

    /// How it is configured.
    pub fn get_subscription(
        &mut self,
        _now: Time,
        _request: pubsub::GetSubscriptionRequest,
    ) -> Answer<pubsub::Subscription> {
        Err(Refusal::unsupported("under construction"))
    }

    /// Changes the fields that the mask names.
    pub fn update_subscription(
        &mut self,
        _now: Time,
        _request: pubsub::UpdateSubscriptionRequest,
    ) -> Answer<pubsub::Subscription> {
        Err(Refusal::unsupported("under construction"))
    }

    /// A project's subscriptions, a page at a time.
    pub fn list_subscriptions(
        &mut self,
        _now: Time,
        _request: pubsub::ListSubscriptionsRequest,
    ) -> Answer<pubsub::ListSubscriptionsResponse> {
        Err(Refusal::unsupported("under construction"))
    }

    /// Deletes a subscription and its messages.
    pub fn delete_subscription(
        &mut self,
        _now: Time,
        _request: pubsub::DeleteSubscriptionRequest,
    ) -> Answer<()> {
        Err(Refusal::unsupported("under construction"))
    }

    /// Detaches a subscription from its topic and drops its messages.
    pub fn detach_subscription(
        &mut self,
        _now: Time,
        _request: pubsub::DetachSubscriptionRequest,
    ) -> Answer<pubsub::DetachSubscriptionResponse> {
        Err(Refusal::unsupported("under construction"))
    }

    /// Changes where it pushes to; an empty configuration makes it a pull subscription.
    pub fn modify_push_config(
        &mut self,
        _now: Time,
        _request: pubsub::ModifyPushConfigRequest,
    ) -> Answer<()> {
        Err(Refusal::unsupported("under construction"))
    }
}
