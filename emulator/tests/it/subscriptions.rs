//! Subscriptions: created, named, listed, detached, deleted.

use std::fmt::Debug;

use tonic::{Code, Status};
use wakeq_emulator::proto::pubsub::subscription::State;
use wakeq_emulator::proto::pubsub::{
    DeadLetterPolicy, DeleteSubscriptionRequest, DetachSubscriptionRequest, ExpirationPolicy,
    GetSubscriptionRequest, ListSubscriptionsRequest, ListTopicSubscriptionsRequest, PushConfig, RetryPolicy,
    Subscription,
};

use crate::stage::{Stage, map, refused, refused_as, seconds, text, texts};

const DAY: i64 = 86_400;

fn delete(name: &str) -> DeleteSubscriptionRequest {
    DeleteSubscriptionRequest { subscription: name.to_owned() }
}

/// Creates a subscription with each value: those of the first list have to be refused, those of the
/// second accepted.
async fn ranges<T: Copy + Debug>(
    stage: &Stage,
    refused: &[T],
    accepted: &[T],
    change: fn(&mut Subscription, T),
) {
    let topic = stage.topic("a-topic").await;
    let all = refused.iter().map(|value| (value, true)).chain(accepted.iter().map(|value| (value, false)));
    for (at, (value, is_refused)) in all.enumerate() {
        let mut subscription = stage.to(&topic, &format!("subscription-{at}"));
        change(&mut subscription, *value);
        let answer = stage.try_subscribe(subscription).await;
        if is_refused {
            refused_as(&format!("{value:?}"), answer, Code::InvalidArgument);
        } else {
            answer.unwrap_or_else(|status| panic!("{value:?}: {status}"));
        }
    }
}

async fn with_attempts(stage: &Stage, id: &str, max_delivery_attempts: i32) -> Result<Subscription, Status> {
    let policy = DeadLetterPolicy { dead_letter_topic: stage.topic_name("dead"), max_delivery_attempts };
    let subscription = stage.to(&stage.topic_name("a-topic"), id);
    stage.try_subscribe(Subscription { dead_letter_policy: Some(policy), ..subscription }).await
}

fn backoff((from, to): (i64, i64)) -> Option<RetryPolicy> {
    Some(RetryPolicy { minimum_backoff: Some(seconds(from)), maximum_backoff: Some(seconds(to)) })
}

fn expires(after: i64) -> Option<ExpirationPolicy> {
    Some(ExpirationPolicy { ttl: Some(seconds(after)) })
}

cases! {
    async fn a_subscription_has_the_documented_defaults(stage) {
        let (topic, name) = stage.pair().await;
        let created = stage.subscription(&name).await;
        assert_eq!((created.topic.as_str(), created.ack_deadline_seconds), (topic.as_str(), 10));
        assert_eq!(created.message_retention_duration, Some(seconds(7 * DAY)));
        assert!(!created.enable_message_ordering && !created.retain_acked_messages && !created.detached);
        assert_eq!((&created.retry_policy, &created.dead_letter_policy), (&None, &None));
    }

    async fn a_subscription_is_active(stage) {
        let (_, name) = stage.pair().await;
        assert_eq!(stage.subscription(&name).await.state(), State::Active);
    }

    async fn a_subscription_expires_after_31_days_by_default(stage) {
        let (_, name) = stage.pair().await;
        assert_eq!(stage.subscription(&name).await.expiration_policy, expires(31 * DAY));
    }

    async fn a_subscription_is_kept_as_it_was_created(stage) {
        let (topic, dead) = (stage.topic("a-topic").await, stage.topic("dead").await);
        let wished = Subscription {
            labels: map(&[("team", "shop")]),
            ack_deadline_seconds: 42,
            retain_acked_messages: true,
            message_retention_duration: Some(seconds(3_600)),
            enable_message_ordering: true,
            enable_exactly_once_delivery: true,
            filter: "attributes:colour".to_owned(),
            expiration_policy: expires(2 * DAY),
            retry_policy: backoff((11, 22)),
            dead_letter_policy: Some(DeadLetterPolicy { dead_letter_topic: dead, max_delivery_attempts: 7 }),
            ..stage.to(&topic, "orders")
        };
        let name = stage.subscribe(wished.clone()).await;
        let got = stage.subscription(&name).await;
        let expected = Subscription { state: 0, push_config: None, ..wished };
        assert_eq!(Subscription { state: 0, push_config: None, ..got }, expected);
    }

    async fn a_subscription_is_created_once_and_to_a_topic_that_is_there(stage) {
        let (topic, _) = stage.pair().await;
        refused(stage.try_subscribe(stage.to(&topic, "a-subscription")).await, Code::AlreadyExists);
        refused(stage.try_subscribe(stage.to(&stage.topic_name("nowhere"), "other")).await, Code::NotFound);
    }

    async fn a_subscription_without_a_name_is_given_one(stage) {
        let topic = stage.topic("a-topic").await;
        let nameless = Subscription { name: String::new(), ..stage.to(&topic, "unused") };
        let created = stage.try_subscribe(nameless).await.unwrap();
        assert!(created.name.starts_with(&stage.subscription_name("")), "{}", created.name);
        assert_eq!(stage.subscription(&created.name).await, created);
    }

    async fn subscription_names_follow_the_rules(stage) {
        let topic = stage.topic("a-topic").await;
        for good in ["abc", "Orders.v1-x_y~z+1%25", "o".repeat(255).as_str()] {
            stage.subscribe(stage.to(&topic, good)).await;
        }
        let too_long = "o".repeat(256);
        for bad in ["ab", "1abc", "goog-abc", "a b c", "a/bc", "abc!", too_long.as_str()] {
            refused_as(bad, stage.try_subscribe(stage.to(&topic, bad)).await, Code::InvalidArgument);
        }
    }

    async fn an_acknowledgement_deadline_is_from_10_to_600_seconds(stage) {
        let change = |resource: &mut Subscription, seconds| resource.ack_deadline_seconds = seconds;
        ranges(&stage, &[9, 601, -1], &[10, 600], change).await;
    }

    async fn a_subscription_keeps_messages_for_at_least_ten_minutes(stage) {
        let change = |resource: &mut Subscription, s| resource.message_retention_duration = Some(seconds(s));
        ranges(&stage, &[599], &[600, 7 * DAY], change).await;
    }

    async fn a_subscription_keeps_messages_for_up_to_31_days(stage) {
        let change = |resource: &mut Subscription, s| {
            resource.message_retention_duration = Some(seconds(s));
            resource.expiration_policy = Some(ExpirationPolicy { ttl: None });
        };
        ranges(&stage, &[31 * DAY + 1], &[31 * DAY], change).await;
    }

    async fn a_subscription_lives_for_at_least_a_day_or_for_ever(stage) {
        let change = |resource: &mut Subscription, ttl: Option<i64>| {
            resource.message_retention_duration = Some(seconds(600));
            resource.expiration_policy = Some(ExpirationPolicy { ttl: ttl.map(seconds) });
        };
        ranges(&stage, &[Some(DAY - 1)], &[Some(DAY), None], change).await;
    }

    async fn a_back_off_is_at_most_600_seconds(stage) {
        let change = |resource: &mut Subscription, range| resource.retry_policy = backoff(range);
        ranges(&stage, &[(601, 601), (10, 601), (-1, 10)], &[(0, 600)], change).await;
    }

    async fn a_back_off_does_not_begin_above_its_end(stage) {
        ranges(&stage, &[(20, 10)], &[], |resource, range| resource.retry_policy = backoff(range)).await;
    }

    async fn a_back_off_is_10_to_600_seconds_by_default(stage) {
        let (_, name) = stage.pair_with(|resource| resource.retry_policy = Some(RetryPolicy::default())).await;
        assert_eq!(stage.subscription(&name).await.retry_policy, backoff((10, 600)));
    }

    async fn delivery_is_tried_5_to_100_times(stage) {
        for id in ["a-topic", "dead"] {
            stage.topic(id).await;
        }
        for (id, attempts, kept) in [("zero", 0, 5), ("five", 5, 5), ("hundred", 100, 100)] {
            let policy = with_attempts(&stage, id, attempts).await.unwrap().dead_letter_policy.unwrap();
            assert_eq!(policy.max_delivery_attempts, kept);
        }
        for (id, attempts) in [("four", 4), ("hundred-one", 101), ("negative", -1)] {
            let status = with_attempts(&stage, id, attempts).await.expect_err(id);
            // The documentation does not say which of the two it is.
            assert!([Code::InvalidArgument, Code::OutOfRange].contains(&status.code()), "{id}: {status}");
        }
    }

    async fn a_dead_letter_topic_has_to_be_there(stage) {
        let topic = stage.topic("a-topic").await;
        let policy = DeadLetterPolicy { dead_letter_topic: stage.topic_name("nowhere"), max_delivery_attempts: 5 };
        let resource = Subscription { dead_letter_policy: Some(policy), ..stage.to(&topic, "orders") };
        refused(stage.try_subscribe(resource).await, Code::NotFound);
    }

    async fn exactly_once_is_for_pulling_only(stage) {
        let topic = stage.topic("a-topic").await;
        let push_endpoint = "http://127.0.0.1:9/".to_owned();
        let resource = Subscription {
            push_config: Some(PushConfig { push_endpoint, ..PushConfig::default() }),
            enable_exactly_once_delivery: true,
            ..stage.to(&topic, "orders")
        };
        refused(stage.try_subscribe(resource).await, Code::InvalidArgument);
    }

    async fn subscriptions_are_listed_page_by_page(mut stage) {
        let topic = stage.topic("a-topic").await;
        let mut created = Vec::new();
        for number in 0..5 {
            created.push(stage.subscribe(stage.to(&topic, &format!("subscription-{number}"))).await);
        }
        let project = format!("projects/{}", stage.project);
        let mut request = ListSubscriptionsRequest { project, page_size: 2, ..Default::default() };
        let (mut listed, mut sizes) = (Vec::new(), Vec::new());
        loop {
            let page = stage.subscriber.list_subscriptions(request.clone()).await.unwrap().into_inner();
            sizes.push(page.subscriptions.len());
            listed.extend(page.subscriptions.into_iter().map(|subscription| subscription.name));
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                break;
            }
        }
        listed.sort();
        assert_eq!((listed, sizes), (created, vec![2, 2, 1]));
    }

    async fn a_deleted_subscription_is_gone_with_its_messages(mut stage) {
        let (topic, name) = stage.pair().await;
        stage.publish_texts(&topic, &["dropped"]).await;
        stage.subscriber.delete_subscription(delete(&name)).await.unwrap();
        refused(stage.subscriber.delete_subscription(delete(&name)).await, Code::NotFound);
        let request = GetSubscriptionRequest { subscription: name.clone() };
        refused(stage.subscriber.get_subscription(request).await, Code::NotFound);
        refused(stage.pull_once(&name, 1, false).await, Code::NotFound);
        stage.subscribe(stage.to(&topic, "a-subscription")).await;
        stage.publish_texts(&topic, &["new"]).await;
        assert_eq!(texts(&stage.pull(&name, 10).await), ["new"]);
    }

    async fn a_detached_subscription_drops_its_messages_and_can_not_be_pulled(mut stage) {
        let (topic, name) = stage.pair().await;
        stage.publish(&topic, &[text("dropped")]).await;
        let request = DetachSubscriptionRequest { subscription: name.clone() };
        stage.publisher.detach_subscription(request).await.unwrap();
        assert!(stage.subscription(&name).await.detached);
        refused(stage.pull_once(&name, 1, false).await, Code::FailedPrecondition);
        let request = ListTopicSubscriptionsRequest { topic, ..Default::default() };
        let listed = stage.publisher.list_topic_subscriptions(request).await.unwrap().into_inner();
        assert_eq!(listed.subscriptions, Vec::<String>::new());
    }

    async fn detaching_what_is_not_there_is_refused(mut stage) {
        let request = DetachSubscriptionRequest { subscription: stage.subscription_name("nowhere") };
        refused(stage.publisher.detach_subscription(request).await, Code::NotFound);
    }
}
