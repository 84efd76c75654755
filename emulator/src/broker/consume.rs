//! Pulling, acknowledging and deadlines, by the subscription's name: checks the requests and
//! reports their results. What happens to the messages is decided in `delivery`.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message as _;
use tonic::Code;

use super::delivery::{AckResult, Holder, LeasedMessage};
use super::snapshots::check_attached;
use super::subscriptions::Subscription;
use super::{Answer, Broker, Reason, Refusal, Time, limits};
use crate::proto::pubsub;

const INVALID_ACK_ID: &str = "PERMANENT_FAILURE_INVALID_ACK_ID";
const UNORDERED_ACK_ID: &str = "TRANSIENT_FAILURE_UNORDERED_ACK_ID";

impl Broker {
    /// Returns what is available at once, which may be nothing. The caller waits, and calls again.
    pub fn pull(&mut self, now: Time, request: &pubsub::PullRequest) -> Answer<pubsub::PullResponse> {
        let subscription = self.subscription_mut("subscription", &request.subscription)?;
        check_consumable(subscription)?;
        let most = usize::try_from(request.max_messages).ok().filter(|most| *most > 0);
        let most = most.ok_or_else(|| limits::bad_argument("max_messages"))?.min(limits::LARGEST_PULL);
        subscription.touch(now);
        let deadline = subscription.ack_deadline();
        let taken = subscription.delivery.take(now, Holder::Pull, most, limits::LARGEST_PULL_BYTES, deadline);
        if taken.is_empty() {
            // What is left is for other takers only: waking the waiters would make this pull retry
            // at once, forever.
            self.reschedule(now, &request.subscription);
        } else {
            self.settled(now, &request.subscription);
        }
        Ok(pubsub::PullResponse { received_messages: taken.into_iter().map(received).collect() })
    }

    /// Acknowledges messages.
    pub fn acknowledge(&mut self, now: Time, request: &pubsub::AcknowledgeRequest) -> Answer<()> {
        let subscription = self.subscription_mut("subscription", &request.subscription)?;
        check_ack_ids(&request.ack_ids, request.encoded_len())?;
        subscription.touch(now);
        if subscription.config.detached {
            // Its messages have been dropped, even those that were leased.
            return Ok(());
        }
        let acked = subscription.delivery.acknowledge(now, &request.ack_ids);
        let answer = ack_response(subscription, acked);
        self.settled(now, &request.subscription);
        answer
    }

    /// Extends leases, or gives them back.
    pub fn modify_ack_deadline(
        &mut self,
        now: Time,
        request: &pubsub::ModifyAckDeadlineRequest,
    ) -> Answer<()> {
        let subscription = self.subscription_mut("subscription", &request.subscription)?;
        check_ack_ids(&request.ack_ids, request.encoded_len())?;
        let deadline = ack_deadline(request.ack_deadline_seconds)?;
        subscription.touch(now);
        if subscription.config.detached {
            return Ok(());
        }
        let deadlines: Vec<_> = request.ack_ids.iter().map(|ack_id| (ack_id.clone(), deadline)).collect();
        let acked = subscription.delivery.modify_deadline(now, &deadlines);
        let answer = ack_response(subscription, acked);
        self.settled(now, &request.subscription);
        answer
    }

    /// A response did not reach its client: its messages are available again, without a failed
    /// delivery.
    pub(crate) fn give_back(&mut self, now: Time, subscription: &str, ack_ids: &[String]) {
        // If the subscription has been deleted meanwhile, so have its messages.
        let Some(found) = self.subscriptions.get_mut(subscription) else { return };
        found.delivery.give_back(now, ack_ids);
        self.settled(now, subscription);
    }

    /// Called after leases were granted, settled, given back or expired: other takers may get
    /// messages now.
    pub(super) fn settled(&mut self, now: Time, name: &str) {
        if let Some(subscription) = self.subscriptions.get(name)
            && subscription.delivery.deliverable()
        {
            let name = subscription.name.clone();
            self.wake(&name);
        }
        self.reschedule(now, name);
    }
}

/// Refuses to hand out messages of a subscription that is detached or pushes them.
pub(super) fn check_consumable(subscription: &Subscription) -> Answer<()> {
    check_attached(subscription)?;
    if subscription.pushes() {
        return Err(Refusal::new(
            Code::FailedPrecondition,
            "This method is not supported for this subscription type.",
        ));
    }
    Ok(())
}

/// Checks a deadline in a request: up to ten minutes, or zero to give the lease back.
pub(super) fn ack_deadline(seconds: i32) -> Answer<Duration> {
    let longest = limits::LONGEST_ACK_DEADLINE;
    u64::try_from(seconds).ok().filter(|_| seconds <= longest).map(Duration::from_secs).ok_or_else(|| {
        Refusal::invalid(format!(
            "Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between 0 and {longest} \
             seconds."
        ))
    })
}

/// The refusal of an ack id that no subscription ever issued.
pub(super) fn invalid_ack_id(ack_id: &str) -> Refusal {
    Refusal::invalid(format!("You have passed an invalid ack ID to the service (ack_id={ack_id})."))
}

/// A message in the form in which it is received.
pub(super) fn received(delivered: LeasedMessage) -> pubsub::ReceivedMessage {
    let attempt = delivered.attempt.unwrap_or_default();
    pubsub::ReceivedMessage {
        ack_id: delivered.ack_id,
        message: Some(delivered.message.to_proto()),
        delivery_attempt: i32::try_from(attempt).unwrap_or(i32::MAX),
    }
}

fn check_ack_ids(ack_ids: &[String], size: usize) -> Answer<()> {
    if ack_ids.is_empty() {
        return Err(Refusal::invalid("You have not specified an ack ID in the request."));
    }
    if size > limits::LARGEST_ACKNOWLEDGEMENT {
        return Err(Refusal::invalid(format!(
            "Request payload size exceeds the limit: {} bytes.",
            limits::LARGEST_ACKNOWLEDGEMENT
        )));
    }
    Ok(())
}

/// Reports the results. With exactly-once delivery, each failed id is named with the reason;
/// without, only ids that were never issued are refused.
fn ack_response(subscription: &Subscription, acked: AckResult) -> Answer<()> {
    if !subscription.delivery.settings().exactly_once {
        return acked.invalid.first().map_or(Ok(()), |ack_id| Err(invalid_ack_id(ack_id)));
    }
    let permanent = acked.invalid.into_iter().chain(acked.lapsed).map(|ack_id| (ack_id, INVALID_ACK_ID));
    let transient = acked.unordered.into_iter().map(|ack_id| (ack_id, UNORDERED_ACK_ID));
    let metadata: BTreeMap<String, String> =
        permanent.chain(transient).map(|(ack_id, failure)| (ack_id, failure.to_owned())).collect();
    if metadata.is_empty() {
        return Ok(());
    }
    Err(Refusal {
        code: Code::InvalidArgument,
        message: "Some acknowledgement ids in the request were invalid. This could be because the acknowledgement ids \
                  have expired or the acknowledgement ids were malformed."
            .to_owned(),
        reason: Some(Reason { reason: "EXACTLY_ONCE_ACKID_FAILURE".to_owned(), metadata }),
    })
}
