//! What is published: its limits, and into which subscriptions it goes.

use super::{Answer, Broker, Refusal, Time};
use crate::proto::pubsub;

impl Broker {
    /// Publishes messages into all the topic's subscriptions whose filters let them through.
    pub fn publish(
        &mut self,
        _now: Time,
        _request: pubsub::PublishRequest,
    ) -> Answer<pubsub::PublishResponse> {
        Err(Refusal::unsupported("under construction"))
    }
}
