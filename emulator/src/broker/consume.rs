//! Pulling, acknowledging and deadlines, by name.

use super::{Answer, Broker, Refusal, Time};
use crate::proto::pubsub;

impl Broker {
    /// What is there at once; nothing if nothing is. The caller waits, and asks again.
    pub fn pull(&mut self, _now: Time, _request: &pubsub::PullRequest) -> Answer<pubsub::PullResponse> {
        Err(Refusal::unsupported("under construction"))
    }

    /// Settles messages.
    pub fn acknowledge(&mut self, _now: Time, _request: &pubsub::AcknowledgeRequest) -> Answer<()> {
        Err(Refusal::unsupported("under construction"))
    }

    /// Gives leases more time, or gives them back.
    pub fn modify_ack_deadline(
        &mut self,
        _now: Time,
        _request: &pubsub::ModifyAckDeadlineRequest,
    ) -> Answer<()> {
        Err(Refusal::unsupported("under construction"))
    }
}
