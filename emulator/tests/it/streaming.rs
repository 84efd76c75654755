//! Streaming pulls: acknowledgements and deadlines in the stream, flow control, and how a stream
//! ends.

use tonic::Code;
use wakeq_emulator::proto::pubsub::{
    DeleteSubscriptionRequest, DetachSubscriptionRequest, PubsubMessage, StreamingPullRequest, Subscription,
};

use crate::stage::{Stage, ack_ids, message, sorted, texts};
use crate::streams::{acks, deadlines, first};

/// The first request of a stream has to be refused.
async fn refused(stage: &Stage, what: &str, request: StreamingPullRequest, code: Code) {
    let status = stage.stream(request).await.end().await;
    assert_eq!(status.code(), code, "{what}: {}", status.message());
}

/// A later request has to end the stream.
async fn ends(stage: &Stage, what: &str, change: impl FnOnce(&mut StreamingPullRequest, &[String])) {
    let topic = stage.topic_name("a-topic");
    let subscription = Subscription { name: String::new(), ..stage.to(&topic, "unused") };
    let subscription = stage.subscribe(subscription).await;
    let mut stream = stage.stream(first(&subscription)).await;
    stage.publish_texts(&topic, &["established"]).await;
    let held = ack_ids(&stream.take(1).await);
    let mut request = StreamingPullRequest::default();
    change(&mut request, &held);
    stream.send(request).await;
    let _ = stream.try_send(deadlines(&held, 0)).await; // returns if the stream continues
    let status = stream.end().await;
    assert_eq!(status.code(), Code::InvalidArgument, "{what}: {}", status.message());
}

cases! {
    async fn a_stream_delivers_what_is_there_and_what_comes(stage) {
        let (topic, subscription) = stage.pair().await;
        let before = stage.publish_texts(&topic, &["before"]).await;
        let mut stream = stage.stream(first(&subscription)).await;
        assert_eq!(message(&stream.take(1).await[0]).message_id, before[0]);
        stage.publish_texts(&topic, &["after"]).await;
        assert_eq!(texts(&stream.take(1).await), ["after"]);
    }

    async fn a_ping_is_answered_at_once(stage) {
        let (topic, subscription) = stage.pair().await;
        let request = StreamingPullRequest { protocol_version: 1, ..first(&subscription) };
        let mut stream = stage.stream(request).await;
        stage.publish_texts(&topic, &["established"]).await;
        stream.take(1).await;
        stream.send(StreamingPullRequest::default()).await;
        stream.response(|response| response.received_messages.is_empty()).await;
    }

    async fn an_acknowledgement_in_the_stream_counts(stage) {
        let (topic, subscription) = stage.pair().await;
        let mut stream = stage.stream(first(&subscription)).await;
        stage.publish_texts(&topic, &["done"]).await;
        let done = ack_ids(&stream.take(1).await);
        stream.send(acks(&done)).await;
        stream.send(deadlines(&done, 0)).await; // too late
        stage.publish_texts(&topic, &["next"]).await;
        assert_eq!(texts(&stream.take(1).await), ["next"]);
    }

    async fn a_nack_in_the_stream_brings_a_message_back(stage) {
        let (topic, subscription) = stage.pair().await;
        let mut stream = stage.stream(first(&subscription)).await;
        stage.publish_texts(&topic, &["again"]).await;
        let first = stream.take(1).await;
        stream.send(deadlines(&ack_ids(&first), 0)).await;
        assert_eq!(message(&stream.take(1).await[0]), message(&first[0]));
    }

    async fn a_stream_acknowledges_what_was_pulled_without_it(stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["pulled"]).await;
        let pulled = ack_ids(&[stage.pull_one(&subscription).await]);
        let mut stream = stage.stream(StreamingPullRequest { ack_ids: pulled.clone(), ..first(&subscription) }).await;
        stream.send(deadlines(&pulled, 0)).await; // too late
        stage.publish_texts(&topic, &["next"]).await;
        assert_eq!(texts(&stream.take(1).await), ["next"]);
    }

    async fn streams_share_the_messages_of_a_subscription(stage) {
        let (topic, subscription) = stage.pair().await;
        let mut one = stage.stream(first(&subscription)).await;
        let mut other = stage.stream(first(&subscription)).await;
        let published: Vec<_> = (10..40).map(|number| number.to_string()).collect();
        let mut received = Vec::new();
        for text in &published {
            stage.publish_texts(&topic, &[text]).await;
        }
        while received.len() < published.len() {
            tokio::select! {
                messages = one.messages() => received.extend(messages),
                messages = other.messages() => received.extend(messages),
            }
        }
        assert_eq!(sorted(&received), published);
    }

    async fn a_stream_has_no_more_messages_outstanding_than_it_asked_for(stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["a", "b", "c", "d", "e"]).await;
        let limited = StreamingPullRequest { max_outstanding_messages: 2, ..first(&subscription) };
        let mut stream = stage.stream(limited).await;
        let two = stream.take(2).await;
        assert_eq!(two.len(), 2, "more than two messages are outstanding");
        let rest = stage.pull_all(&subscription, 3).await;
        assert_eq!(sorted(&[two.clone(), rest].concat()), ["a", "b", "c", "d", "e"]);
        stage.publish_texts(&topic, &["f", "g", "h"]).await;
        stream.send(acks(&ack_ids(&two[..1]))).await;
        assert_eq!(stream.take(1).await.len(), 1, "one acknowledgement makes room for one message");
        stream.send(deadlines(&ack_ids(&two[1..]), 0)).await;
        assert_eq!(stream.take(1).await.len(), 1, "one nack makes room for one message");
    }

    async fn a_stream_has_no_more_bytes_outstanding_than_it_asked_for(stage) {
        let (topic, subscription) = stage.pair().await;
        let large = PubsubMessage { data: vec![b'a'; 1_000].into(), ..PubsubMessage::default() };
        stage.publish(&topic, &vec![large; 5]).await;
        let limited = StreamingPullRequest { max_outstanding_bytes: 2_500, ..first(&subscription) };
        let mut stream = stage.stream(limited).await;
        let few = stream.messages().await;
        assert!(few.len() <= 3, "{} messages of 1,000 bytes within 2,500 bytes", few.len());
        assert_eq!(stage.pull_all(&subscription, 2).await.len(), 2);
    }

    async fn a_message_larger_than_the_limit_is_delivered_alone(stage) {
        let (topic, subscription) = stage.pair().await;
        let large = PubsubMessage { data: vec![b'a'; 1_000].into(), ..PubsubMessage::default() };
        stage.publish(&topic, &[large.clone(), large]).await;
        let limited = StreamingPullRequest { max_outstanding_bytes: 10, ..first(&subscription) };
        let mut stream = stage.stream(limited).await;
        let one = stream.take(1).await;
        assert_eq!(one.len(), 1, "more than one message is outstanding");
        stream.send(acks(&ack_ids(&one))).await;
        assert_eq!(stream.take(1).await.len(), 1);
    }

    async fn a_stream_needs_a_subscription_that_is_there(stage) {
        refused(&stage, "no subscription", first(""), Code::InvalidArgument).await;
        refused(&stage, "nowhere", first(&stage.subscription_name("nowhere")), Code::NotFound).await;
    }

    async fn a_streams_deadline_is_from_10_to_600_seconds(stage) {
        let (_, subscription) = stage.pair().await;
        for stream_ack_deadline_seconds in [0, 9, 601, -1] {
            let what = format!("{stream_ack_deadline_seconds} s");
            let request = StreamingPullRequest { stream_ack_deadline_seconds, ..first(&subscription) };
            refused(&stage, &what, request, Code::InvalidArgument).await;
        }
    }

    async fn what_the_first_request_alone_can_say_ends_the_stream_later(stage) {
        let (_, subscription) = stage.pair().await;
        ends(&stage, "subscription", |later, _| later.subscription = subscription).await;
    }

    async fn flow_control_is_said_in_the_first_request_only(stage) {
        stage.pair().await;
        ends(&stage, "messages", |later, _| later.max_outstanding_messages = 5).await;
        ends(&stage, "bytes", |later, _| later.max_outstanding_bytes = 5).await;
    }

    async fn deadlines_and_ids_in_different_numbers_end_the_stream(stage) {
        stage.pair().await;
        ends(&stage, "one deadline, no id", |later, _| later.modify_deadline_seconds = vec![10]).await;
    }

    async fn a_deadline_out_of_range_ends_the_stream(stage) {
        stage.pair().await;
        for bad in [-1, 601] {
            ends(&stage, &format!("{bad} s"), |later, held| *later = deadlines(held, bad)).await;
        }
    }

    async fn an_ack_id_that_was_never_given_ends_the_stream(stage) {
        stage.pair().await;
        ends(&stage, "no such id", |later, _| later.ack_ids = vec!["no such id".to_owned()]).await;
    }

    async fn a_streams_deadline_is_changed_by_a_later_request_within_its_range(stage) {
        stage.pair().await;
        ends(&stage, "601 s", |later, _| later.stream_ack_deadline_seconds = 601).await;
    }

    async fn a_stream_ends_with_its_subscription(mut stage) {
        let (topic, subscription) = stage.pair().await;
        let mut stream = stage.stream(first(&subscription)).await;
        stage.publish_texts(&topic, &["established"]).await;
        stream.take(1).await;
        stage.subscriber.delete_subscription(DeleteSubscriptionRequest { subscription }).await.unwrap();
        assert_eq!(stream.end().await.code(), Code::NotFound);
    }

    async fn a_stream_ends_when_its_subscription_is_detached(mut stage) {
        let (topic, subscription) = stage.pair().await;
        let mut stream = stage.stream(first(&subscription)).await;
        stage.publish_texts(&topic, &["established"]).await;
        stream.take(1).await;
        stage.publisher.detach_subscription(DetachSubscriptionRequest { subscription }).await.unwrap();
        assert_eq!(stream.end().await.code(), Code::FailedPrecondition);
    }
}
