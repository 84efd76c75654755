//! Dead-letter topics and the count of delivery attempts.

use wakeq_emulator::proto::pubsub::{DeadLetterPolicy, ReceivedMessage};

use crate::stage::{Stage, message, with};

struct DeadLetterSetup {
    topic: String,
    subscription: String,
    /// The subscription to the dead-letter topic.
    letters: String,
}

async fn dead(stage: &Stage, max_delivery_attempts: i32) -> DeadLetterSetup {
    let dead_letter_topic = stage.topic("dead").await;
    let letters = stage.subscribe(stage.to(&dead_letter_topic, "letters")).await;
    let policy = DeadLetterPolicy { dead_letter_topic, max_delivery_attempts };
    let (topic, subscription) = stage.pair_with(|resource| resource.dead_letter_policy = Some(policy)).await;
    DeadLetterSetup { topic, subscription, letters }
}

/// Gives the only message back five times; returns what arrives at the dead-letter topic.
async fn fail(stage: &Stage, subscription: &str, letters: &str) -> ReceivedMessage {
    for attempt in 1..=5 {
        let received = stage.pull_one(subscription).await;
        assert_eq!(received.delivery_attempt, attempt);
        stage.nack(subscription, &[received]).await;
    }
    // Google's emulator forwards a message only at the next pull.
    assert_eq!(stage.pull_once(subscription, 1, true).await.unwrap(), []);
    stage.pull_one(letters).await
}

cases! {
    async fn delivery_attempts_are_counted_from_one(stage) {
        let DeadLetterSetup { topic, subscription, .. } = dead(&stage, 10).await;
        stage.publish_texts(&topic, &["counted"]).await;
        for attempt in 1..=3 {
            let received = stage.pull_one(&subscription).await;
            assert_eq!(received.delivery_attempt, attempt);
            stage.nack(&subscription, &[received]).await;
        }
    }

    async fn after_its_last_attempt_a_message_goes_to_the_dead_letter_topic(stage) {
        let DeadLetterSetup { topic, subscription, letters } = dead(&stage, 5).await;
        stage.publish(&topic, &[with("poison", &[("colour", "red")])]).await;
        let letter = fail(&stage, &subscription, &letters).await;
        let letter = message(&letter);
        assert_eq!((&letter.data[..], letter.attributes["colour"].as_str()), (&b"poison"[..], "red"));
        stage.expect_only_new(&topic, &subscription).await;
    }

    async fn a_dead_letter_says_where_it_came_from(stage) {
        let DeadLetterSetup { topic, subscription, letters } = dead(&stage, 5).await;
        stage.publish_texts(&topic, &["poison"]).await;
        let letter = fail(&stage, &subscription, &letters).await;
        let attributes = &message(&letter).attributes;
        let of = |key: &str| attributes.get(key).cloned().unwrap_or_else(|| panic!("no {key} in {attributes:?}"));
        assert_eq!(of("CloudPubSubDeadLetterSourceSubscription"), "a-subscription");
        assert_eq!(of("CloudPubSubDeadLetterSourceSubscriptionProject"), stage.project);
        assert_eq!(of("CloudPubSubDeadLetterSourceDeliveryCount"), "5");
        assert!(!of("CloudPubSubDeadLetterSourceTopicPublishTime").is_empty());
    }
}
