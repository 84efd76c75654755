//! Publishing: what is accepted, and what a published message looks like.

use std::collections::{BTreeMap, BTreeSet};

use tonic::Code;
use wakeq_emulator::proto::protobuf::Timestamp;
use wakeq_emulator::proto::pubsub::PubsubMessage;

use crate::stage::{keyed, message, refused, refused_as, text, with};

/// A message with this many attributes.
fn attributes(count: usize) -> PubsubMessage {
    let attributes: BTreeMap<_, _> = (0..count).map(|at| (format!("key-{at}"), String::new())).collect();
    PubsubMessage { attributes, ..text("data") }
}

cases! {
    async fn every_message_of_a_request_gets_an_id_of_its_own(stage) {
        let topic = stage.topic("a-topic").await;
        let mut ids = BTreeSet::new();
        for _ in 0..3 {
            ids.extend(stage.publish_texts(&topic, &["same", "same", "same"]).await);
        }
        assert_eq!(ids.len(), 9);
    }

    async fn a_request_without_messages_is_refused(stage) {
        refused(stage.try_publish(&stage.topic("a-topic").await, &[]).await, Code::InvalidArgument);
    }

    async fn a_message_has_data_or_attributes(stage) {
        let topic = stage.topic("a-topic").await;
        for (what, empty) in [("nothing", text("")), ("a key alone", keyed("key", ""))] {
            refused_as(what, stage.try_publish(&topic, &[empty]).await, Code::InvalidArgument);
        }
        stage.publish(&topic, &[with("", &[("only", "this")])]).await;
    }

    async fn a_request_with_one_bad_message_publishes_none(stage) {
        let (topic, subscription) = stage.pair().await;
        refused(stage.try_publish(&topic, &[text("good"), text("")]).await, Code::InvalidArgument);
        stage.expect_only_new(&topic, &subscription).await;
    }

    async fn a_request_holds_up_to_1000_messages(stage) {
        let topic = stage.topic("a-topic").await;
        assert_eq!(stage.publish(&topic, &vec![text("a"); 1_000]).await.len(), 1_000);
        refused(stage.try_publish(&topic, &vec![text("a"); 1_001]).await, Code::InvalidArgument);
    }

    async fn a_request_holds_up_to_ten_megabytes(stage) {
        let topic = stage.topic("a-topic").await;
        let of = |length: usize| PubsubMessage { data: vec![b'a'; length].into(), ..PubsubMessage::default() };
        stage.publish(&topic, &[of(9_900_000)]).await;
        refused_as("one", stage.try_publish(&topic, &[of(10_500_000)]).await, Code::InvalidArgument);
        let several = [of(5_300_000), of(5_300_000)];
        refused_as("two", stage.try_publish(&topic, &several).await, Code::InvalidArgument);
    }

    async fn a_message_holds_up_to_100_attributes(stage) {
        let topic = stage.topic("a-topic").await;
        stage.publish(&topic, &[attributes(100)]).await;
        refused(stage.try_publish(&topic, &[attributes(101)]).await, Code::InvalidArgument);
    }

    async fn an_attributes_key_and_value_are_limited(stage) {
        let topic = stage.topic("a-topic").await;
        let (key, value) = ("k".repeat(256), "v".repeat(1_024));
        stage.publish(&topic, &[with("data", &[(key.as_str(), value.as_str())])]).await;
        for (what, key, value) in [
            ("a key of 257 bytes", "k".repeat(257), "v".to_owned()),
            ("a value of 1,025 bytes", "k".to_owned(), "v".repeat(1_025)),
            ("an empty key", String::new(), "v".to_owned()),
        ] {
            let bad = with("data", &[(key.as_str(), value.as_str())]);
            refused_as(what, stage.try_publish(&topic, &[bad]).await, Code::InvalidArgument);
        }
    }

    async fn attributes_do_not_begin_with_goog(stage) {
        let topic = stage.topic("a-topic").await;
        for key in ["googclient", "Goog", "GOOGLE"] {
            let bad = with("data", &[(key, "x")]);
            refused_as(key, stage.try_publish(&topic, &[bad]).await, Code::InvalidArgument);
        }
    }

    async fn the_official_clients_traces_pass(stage) {
        let (topic, subscription) = stage.pair().await;
        let traced = with("data", &[("googclient_traceparent", "00-1-2-01"), ("googclient_tracestate", "a=b")]);
        stage.publish(&topic, &[traced]).await;
        let received = stage.pull_one(&subscription).await;
        assert_eq!(message(&received).attributes["googclient_traceparent"], "00-1-2-01");
    }

    async fn a_request_has_one_ordering_key(stage) {
        let topic = stage.topic("a-topic").await;
        let several = [keyed("one", "a"), keyed("other", "b")];
        refused(stage.try_publish(&topic, &several).await, Code::InvalidArgument);
    }

    async fn an_ordering_key_has_up_to_1024_bytes(stage) {
        let topic = stage.topic("a-topic").await;
        stage.publish(&topic, &[keyed(&"k".repeat(1_024), "data")]).await;
        let bad = keyed(&"k".repeat(1_025), "data");
        refused(stage.try_publish(&topic, &[bad]).await, Code::InvalidArgument);
    }

    async fn id_and_time_are_the_servers(stage) {
        let (topic, subscription) = stage.pair().await;
        let publish_time = Some(Timestamp { seconds: 1, nanos: 0 });
        let request = PubsubMessage { message_id: "mine".to_owned(), publish_time, ..text("data") };
        let ids = stage.publish(&topic, &[request]).await;
        let received = stage.pull_one(&subscription).await;
        let message = message(&received);
        assert_eq!(message.message_id, ids[0]);
        assert_ne!(message.message_id, "mine");
        let publish_time = message.publish_time.unwrap();
        assert!(publish_time.seconds > 1_700_000_000, "{message:?}");
        assert_eq!(publish_time.nanos % 1_000_000, 0, "in whole milliseconds");
    }
}
