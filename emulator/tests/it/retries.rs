//! The retry policy of a subscription.

use wakeq_emulator::proto::pubsub::RetryPolicy;

use crate::stage::{Stage, seconds, texts};
use crate::streams::{deadlines, first};

async fn patient(stage: &Stage, from: i64, to: i64) -> (String, String) {
    let retry_policy =
        Some(RetryPolicy { minimum_backoff: Some(seconds(from)), maximum_backoff: Some(seconds(to)) });
    stage.pair_with(|resource| resource.retry_policy = retry_policy).await
}

cases! {
    async fn the_first_nack_already_waits_for_the_back_off(stage) {
        let (topic, subscription) = patient(&stage, 300, 600).await;
        stage.publish_texts(&topic, &["waits"]).await;
        stage.nack(&subscription, &stage.pull(&subscription, 1).await).await;
        stage.expect_only_new(&topic, &subscription).await;
    }

    async fn a_nack_in_a_stream_waits_for_the_back_off(stage) {
        let (topic, subscription) = patient(&stage, 300, 600).await;
        let mut stream = stage.stream(first(&subscription)).await;
        stage.publish_texts(&topic, &["waits"]).await;
        let waits = stream.take(1).await.remove(0);
        stream.send(deadlines(&[waits.ack_id], 0)).await;
        stage.publish_texts(&topic, &["next"]).await;
        assert_eq!(texts(&stream.take(1).await), ["next"]);
    }

    async fn after_the_back_off_a_message_comes_back(stage) {
        let (topic, subscription) = patient(&stage, 1, 1).await;
        stage.publish_texts(&topic, &["again"]).await;
        for _ in 0..2 {
            let received = stage.pull(&subscription, 1).await;
            assert_eq!(texts(&received), ["again"]);
            stage.nack(&subscription, &received).await;
        }
    }
}
