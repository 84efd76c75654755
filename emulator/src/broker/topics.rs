//! Topics.

use super::{Answer, Broker, Refusal, Time};
use crate::proto::pubsub;

/// A topic.
#[derive(Debug)]
pub(super) struct Topic {
    config: pubsub::Topic,
}

impl Broker {
    /// Makes a topic.
    pub fn create_topic(&mut self, _now: Time, _request: pubsub::Topic) -> Answer<pubsub::Topic> {
        Err(Refusal::unsupported("under construction"))
    }

    /// Changes the fields that the mask names.
    pub fn update_topic(
        &mut self,
        _now: Time,
        _request: pubsub::UpdateTopicRequest,
    ) -> Answer<pubsub::Topic> {
        Err(Refusal::unsupported("under construction"))
    }

    /// How it is configured.
    pub fn get_topic(&mut self, _now: Time, _request: pubsub::GetTopicRequest) -> Answer<pubsub::Topic> {
        Err(Refusal::unsupported("under construction"))
    }

    /// A project's topics, a page at a time.
    pub fn list_topics(
        &mut self,
        _now: Time,
        _request: pubsub::ListTopicsRequest,
    ) -> Answer<pubsub::ListTopicsResponse> {
        Err(Refusal::unsupported("under construction"))
    }

    /// The names of a topic's subscriptions, a page at a time.
    pub fn list_topic_subscriptions(
        &mut self,
        _now: Time,
        _request: pubsub::ListTopicSubscriptionsRequest,
    ) -> Answer<pubsub::ListTopicSubscriptionsResponse> {
        Err(Refusal::unsupported("under construction"))
    }

    /// The names of a topic's snapshots, a page at a time.
    pub fn list_topic_snapshots(
        &mut self,
        _now: Time,
        _request: pubsub::ListTopicSnapshotsRequest,
    ) -> Answer<pubsub::ListTopicSnapshotsResponse> {
        Err(Refusal::unsupported("under construction"))
    }

    /// Deletes a topic; its subscriptions stay.
    pub fn delete_topic(&mut self, _now: Time, _request: pubsub::DeleteTopicRequest) -> Answer<()> {
        Err(Refusal::unsupported("under construction"))
    }
}
