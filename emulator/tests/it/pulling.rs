//! Unary pulls, acknowledgements and deadlines.

use std::time::Duration;

use tonic::{Code, Request};
use wakeq_emulator::proto::pubsub::PullRequest;

use crate::stage::{ack_ids, message, refused, refused_as, soon, sorted, texts, with};

cases! {
    async fn a_message_arrives_as_it_was_published(stage) {
        let (topic, subscription) = stage.pair().await;
        let mut published = with("data", &[("colour", "red"), ("empty", "")]);
        published.ordering_key = "key".to_owned();
        let ids = stage.publish(&topic, &[published.clone()]).await;
        let received = stage.pull_one(&subscription).await;
        assert_eq!(received.delivery_attempt, 0);
        let message = message(&received);
        assert_eq!((&message.data, &message.attributes), (&published.data, &published.attributes));
        assert_eq!((message.message_id.as_str(), message.ordering_key.as_str()), (ids[0].as_str(), "key"));
        assert!(message.publish_time.is_some());
    }

    async fn every_subscription_gets_every_message(stage) {
        let (topic, one) = stage.pair().await;
        let other = stage.subscribe(stage.to(&topic, "other")).await;
        stage.publish_texts(&topic, &["a", "b", "c"]).await;
        for subscription in [one, other] {
            assert_eq!(sorted(&stage.pull_all(&subscription, 3).await), ["a", "b", "c"]);
        }
    }

    async fn a_subscription_gets_what_is_published_after_it_was_created(stage) {
        let topic = stage.topic("a-topic").await;
        stage.publish_texts(&topic, &["before"]).await;
        let subscription = stage.subscribe(stage.to(&topic, "late")).await;
        stage.publish_texts(&topic, &["after"]).await;
        assert_eq!(texts(&stage.pull(&subscription, 10).await), ["after"]);
    }

    async fn a_pull_waits_for_a_message(stage) {
        let (topic, subscription) = stage.pair().await;
        let (pulled, _) = tokio::join!(stage.pull(&subscription, 1), stage.publish_texts(&topic, &["awaited"]));
        assert_eq!(texts(&pulled), ["awaited"]);
    }

    async fn a_pull_that_does_not_wait_answers_at_once(stage) {
        let (_, subscription) = stage.pair().await;
        let received = soon("a pull that does not wait", stage.pull_once(&subscription, 1, true)).await.unwrap();
        assert_eq!(received, []);
    }

    async fn a_pull_that_nothing_comes_for_is_answered_before_its_callers_deadline(mut stage) {
        let (_, subscription) = stage.pair().await;
        let mut request = Request::new(PullRequest { subscription, max_messages: 1, ..PullRequest::default() });
        request.set_timeout(Duration::from_secs(5));
        assert_eq!(stage.subscriber.pull(request).await.unwrap().into_inner().received_messages, []);
    }

    async fn a_pull_answers_with_no_more_than_it_was_asked_for(stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["a", "b", "c"]).await;
        let two = stage.pull(&subscription, 2).await;
        assert!(two.len() <= 2, "{two:?}");
        let rest = stage.pull_all(&subscription, 3 - two.len()).await;
        assert_eq!(sorted(&[two, rest].concat()), ["a", "b", "c"]);
    }

    async fn a_pull_asks_for_at_least_one_message(stage) {
        let (_, subscription) = stage.pair().await;
        for bad in [0, -1] {
            let answer = stage.pull_once(&subscription, bad, true).await;
            refused_as(&bad.to_string(), answer, Code::InvalidArgument);
        }
    }

    async fn an_outstanding_message_is_not_delivered_again(stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["held"]).await;
        let _held = stage.pull_one(&subscription).await;
        stage.expect_only_new(&topic, &subscription).await;
    }

    async fn a_nack_makes_a_message_available_at_once(stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["again"]).await;
        let first = stage.pull_one(&subscription).await;
        stage.nack(&subscription, std::slice::from_ref(&first)).await;
        let second = stage.pull_one(&subscription).await;
        assert_eq!(message(&second), message(&first));
        assert_ne!(second.ack_id, first.ack_id);
    }

    async fn an_acknowledged_message_does_not_come_back(stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["done"]).await;
        let done = stage.pull(&subscription, 1).await;
        stage.acknowledge(&subscription, &done).await;
        stage.nack(&subscription, &done).await; // too late
        stage.expect_only_new(&topic, &subscription).await;
    }

    async fn acknowledging_twice_is_no_error(stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["done"]).await;
        let done = stage.pull(&subscription, 1).await;
        stage.acknowledge(&subscription, &done).await;
        stage.acknowledge(&subscription, &done).await;
    }

    async fn one_of_two_subscriptions_acknowledges_for_itself_only(stage) {
        let (topic, one) = stage.pair().await;
        let other = stage.subscribe(stage.to(&topic, "other")).await;
        stage.publish_texts(&topic, &["a"]).await;
        stage.acknowledge(&one, &stage.pull(&one, 1).await).await;
        assert_eq!(texts(&stage.pull(&other, 10).await), ["a"]);
    }

    async fn an_ack_id_that_was_never_given_is_refused(stage) {
        let (_, subscription) = stage.pair().await;
        let ids = ["no such id".to_owned()];
        refused(stage.try_acknowledge(&subscription, &ids).await, Code::InvalidArgument);
        refused(stage.try_modify(&subscription, &ids, 10).await, Code::InvalidArgument);
    }

    async fn acknowledging_nothing_is_refused(stage) {
        let (_, subscription) = stage.pair().await;
        refused(stage.try_acknowledge(&subscription, &[]).await, Code::InvalidArgument);
        refused(stage.try_modify(&subscription, &[], 10).await, Code::InvalidArgument);
    }

    async fn a_deadline_is_from_0_to_600_seconds(stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["held"]).await;
        let held = ack_ids(&[stage.pull_one(&subscription).await]);
        for bad in [-1, 601] {
            let answer = stage.try_modify(&subscription, &held, bad).await;
            refused_as(&bad.to_string(), answer, Code::InvalidArgument);
        }
        stage.try_modify(&subscription, &held, 600).await.unwrap();
    }

    async fn a_message_comes_back_when_its_deadline_has_passed(stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["slow"]).await;
        let slow = stage.pull_one(&subscription).await;
        stage.try_modify(&subscription, std::slice::from_ref(&slow.ack_id), 1).await.unwrap();
        assert_eq!(message(&stage.pull_one(&subscription).await), message(&slow));
    }

    async fn a_subscription_that_is_not_there_is_not_found(stage) {
        let nowhere = stage.subscription_name("nowhere");
        let ids = ["any".to_owned()];
        refused(stage.pull_once(&nowhere, 1, true).await, Code::NotFound);
        refused(stage.try_acknowledge(&nowhere, &ids).await, Code::NotFound);
        refused(stage.try_modify(&nowhere, &ids, 10).await, Code::NotFound);
    }
}
