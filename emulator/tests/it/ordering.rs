//! Ordering keys.

use wakeq_emulator::proto::pubsub::Subscription;

use crate::stage::{Stage, ack_ids, keyed, sorted, texts};
use crate::streams::{acks, deadlines, first};

async fn ordered(stage: &Stage) -> (String, String) {
    stage.pair_with(|resource| resource.enable_message_ordering = true).await
}

cases! {
    async fn messages_of_a_key_arrive_in_their_order(stage) {
        let (topic, subscription) = ordered(&stage).await;
        let mut published = Vec::new();
        for request in 0..4 {
            let messages: Vec<_> = (0..5).map(|at| keyed("key", &format!("{request}-{at}"))).collect();
            published.extend((0..5).map(|at| format!("{request}-{at}")));
            stage.publish(&topic, &messages).await;
        }
        let mut arrived = Vec::new();
        while arrived.len() < published.len() {
            let received = stage.pull(&subscription, 3).await;
            stage.acknowledge(&subscription, &received).await;
            arrived.extend(texts(&received));
        }
        assert_eq!(arrived, published);
    }

    async fn what_follows_a_redelivered_message_is_redelivered_though_acknowledged(stage) {
        let (topic, subscription) = ordered(&stage).await;
        let mut stream = stage.stream(first(&subscription)).await;
        stage.publish(&topic, &["a", "b", "c"].map(|data| keyed("key", data))).await;
        let received = stream.take(3).await;
        assert_eq!(texts(&received), ["a", "b", "c"]);
        stream.send(acks(&ack_ids(&received[1..]))).await;
        stream.send(deadlines(&ack_ids(&received[..1]), 0)).await;
        stage.publish(&topic, &[keyed("key", "d")]).await;
        let mut arrived = Vec::new();
        while !arrived.contains(&"a".to_owned()) || !arrived.contains(&"d".to_owned()) {
            let received = stream.messages().await;
            stream.send(acks(&ack_ids(&received))).await;
            arrived.extend(texts(&received));
        }
        let again = arrived.iter().position(|data| data == "a").unwrap();
        assert_eq!(arrived[again..], ["a", "b", "c", "d"]);
    }

    async fn what_follows_a_nacked_message_of_its_key_comes_again_after_it(stage) {
        let (topic, subscription) = ordered(&stage).await;
        stage.publish(&topic, &["a", "b", "c"].map(|data| keyed("key", data))).await;
        let first = stage.pull(&subscription, 1).await;
        assert_eq!(texts(&first), ["a"]);
        stage.nack(&subscription, &first).await;
        let mut arrived = Vec::new();
        while arrived.len() < 3 {
            let received = stage.pull(&subscription, 1).await;
            stage.acknowledge(&subscription, &received).await;
            arrived.extend(texts(&received));
        }
        assert_eq!(arrived, ["a", "b", "c"]);
    }

    async fn a_key_does_not_hold_another_up(stage) {
        let (topic, subscription) = ordered(&stage).await;
        stage.publish(&topic, &[keyed("one", "a")]).await;
        let held = stage.pull(&subscription, 1).await;
        stage.publish(&topic, &[keyed("other", "b")]).await;
        assert_eq!(texts(&stage.pull(&subscription, 10).await), ["b"]);
        stage.acknowledge(&subscription, &held).await;
    }

    async fn messages_without_a_key_are_delivered_beside(stage) {
        let (topic, subscription) = ordered(&stage).await;
        stage.publish(&topic, &[keyed("key", "a")]).await;
        stage.publish_texts(&topic, &["b", "c"]).await;
        assert_eq!(sorted(&stage.pull_all(&subscription, 3).await), ["a", "b", "c"]);
    }

    async fn without_ordering_a_key_is_just_delivered(stage) {
        let (topic, subscription) = stage.pair().await;
        let other = Subscription { enable_message_ordering: true, ..stage.to(&topic, "other") };
        let other = stage.subscribe(other).await;
        stage.publish(&topic, &[keyed("key", "a"), keyed("key", "b")]).await;
        assert_eq!(stage.pull_all(&subscription, 2).await[0].message.as_ref().unwrap().ordering_key, "key");
        assert_eq!(texts(&stage.pull_all(&other, 2).await), ["a", "b"]);
    }
}
