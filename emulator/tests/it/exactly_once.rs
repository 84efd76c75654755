//! Exactly-once delivery: which acknowledgements count, and how a client learns that.

use tonic::{Code, Status};
use wakeq_emulator::proto::pubsub::{StreamingPullRequest, StreamingPullResponse};

use crate::stage::{Stage, ack_ids, message};
use crate::streams::{Stream, acks, deadlines, first};

const PERMANENT: &str = "PERMANENT_FAILURE_INVALID_ACK_ID";

async fn exact(stage: &Stage) -> (String, String) {
    stage.pair_with(|resource| resource.enable_exactly_once_delivery = true).await
}

/// The client libraries look for the ack id and its failure in the status details.
#[track_caller]
fn failed_for_good(answer: Result<(), Status>, ack_id: &str) {
    let status = answer.expect_err("an ack id that has lapsed was accepted");
    assert_eq!(status.code(), Code::InvalidArgument, "{}", status.message());
    let details = String::from_utf8_lossy(status.details());
    for expected in ["google.rpc.ErrorInfo", "EXACTLY_ONCE_ACKID_FAILURE", PERMANENT, ack_id] {
        assert!(details.contains(expected), "no {expected} in {details:?}");
    }
}

/// Whether a confirmation names any id.
fn acknowledged(response: &StreamingPullResponse) -> bool {
    let confirmation = response.acknowledge_confirmation.as_ref();
    confirmation.is_some_and(|named| !named.ack_ids.is_empty() || !named.invalid_ack_ids.is_empty())
}

/// Collects a stream's confirmations until this many ids are named: those that count, and those
/// that came too late. Publishes messages meanwhile, because Google's emulator only confirms along
/// with messages.
async fn confirmed(
    stage: &Stage,
    topic: &str,
    stream: &mut Stream,
    count: usize,
) -> (Vec<String>, Vec<String>) {
    let (mut valid, mut late) = (Vec::new(), Vec::new());
    while valid.len() + late.len() < count {
        stage.publish_texts(topic, &["next"]).await;
        let says = |response: &StreamingPullResponse| {
            acknowledged(response) || !response.received_messages.is_empty()
        };
        let confirmation = stream.response(says).await.acknowledge_confirmation.unwrap_or_default();
        valid.extend(confirmation.ack_ids);
        late.extend(confirmation.invalid_ack_ids);
    }
    (valid, late)
}

/// Two messages that a stream holds, and their topic.
async fn two_held(stage: &Stage) -> (String, Stream, Vec<String>, Vec<String>) {
    let (topic, subscription) = exact(stage).await;
    let mut stream = stage.stream(first(&subscription)).await;
    stage.publish_texts(&topic, &["one", "other"]).await;
    let mut held = ack_ids(&stream.take(2).await);
    let other = held.split_off(1);
    (topic, stream, held, other)
}

cases! {
    async fn an_acknowledgement_is_final(stage) {
        let (topic, subscription) = exact(&stage).await;
        stage.publish_texts(&topic, &["done"]).await;
        stage.acknowledge(&subscription, &stage.pull(&subscription, 1).await).await;
        stage.expect_only_new(&topic, &subscription).await;
    }

    async fn an_ack_id_that_was_given_back_fails_for_good(stage) {
        let (topic, subscription) = exact(&stage).await;
        stage.publish_texts(&topic, &["again"]).await;
        let old = stage.pull_one(&subscription).await;
        stage.nack(&subscription, std::slice::from_ref(&old)).await;
        let new = stage.pull_one(&subscription).await;
        assert_eq!(message(&new), message(&old));
        let ids = [old.ack_id.clone()];
        failed_for_good(stage.try_acknowledge(&subscription, &ids).await, &old.ack_id);
        failed_for_good(stage.try_modify(&subscription, &ids, 20).await, &old.ack_id);
        stage.acknowledge(&subscription, &[new]).await;
    }

    async fn the_deadline_of_an_acknowledged_message_is_not_changed(stage) {
        let (topic, subscription) = exact(&stage).await;
        stage.publish_texts(&topic, &["done"]).await;
        let done = stage.pull_one(&subscription).await;
        stage.acknowledge(&subscription, std::slice::from_ref(&done)).await;
        failed_for_good(stage.try_modify(&subscription, std::slice::from_ref(&done.ack_id), 20).await, &done.ack_id);
    }

    async fn a_stream_says_what_kind_of_subscription_it_is(stage) {
        let (topic, subscription) = stage
            .pair_with(|resource| {
                resource.enable_exactly_once_delivery = true;
                resource.enable_message_ordering = true;
            })
            .await;
        let mut stream = stage.stream(first(&subscription)).await;
        stage.publish_texts(&topic, &["any"]).await;
        let response = stream.response(|response| response.subscription_properties.is_some()).await;
        let properties = response.subscription_properties.unwrap();
        assert!(properties.exactly_once_delivery_enabled && properties.message_ordering_enabled);
    }

    async fn a_stream_confirms_acknowledgements(stage) {
        let (_, mut stream, done, _) = two_held(&stage).await;
        stream.send(acks(&done)).await;
        let confirmation = stream.response(acknowledged).await.acknowledge_confirmation.unwrap();
        assert_eq!((&confirmation.ack_ids, confirmation.invalid_ack_ids.len()), (&done, 0));
    }

    async fn a_stream_says_which_acknowledgements_came_too_late(stage) {
        let (topic, mut stream, old, other) = two_held(&stage).await;
        stream.send(deadlines(&old, 0)).await;
        assert_eq!(stream.take(1).await.len(), 1, "what was given back comes again");
        stream.send(acks(&[old.clone(), other.clone()].concat())).await;
        assert_eq!(confirmed(&stage, &topic, &mut stream, 2).await, (other, old));
    }

    async fn a_stream_confirms_what_its_first_request_acknowledges(stage) {
        let (topic, subscription) = exact(&stage).await;
        stage.publish_texts(&topic, &["done"]).await;
        let done = vec![stage.pull_one(&subscription).await.ack_id];
        let mut stream = stage.stream(StreamingPullRequest { ack_ids: done.clone(), ..first(&subscription) }).await;
        assert_eq!(stream.response(acknowledged).await.acknowledge_confirmation.unwrap().ack_ids, done);
    }

    async fn a_stream_confirms_changes_of_deadlines(stage) {
        let (_, mut stream, held, _) = two_held(&stage).await;
        stream.send(deadlines(&held, 60)).await;
        let named = |response: &StreamingPullResponse| {
            let confirmation = response.modify_ack_deadline_confirmation.as_ref();
            confirmation.is_some_and(|named| !named.ack_ids.is_empty())
        };
        let confirmation = stream.response(named).await.modify_ack_deadline_confirmation.unwrap();
        assert_eq!((&confirmation.ack_ids, confirmation.invalid_ack_ids.len()), (&held, 0));
    }
}
