//! Updates change the fields that the mask names, and nothing else.

use tonic::Code;
use wakeq_emulator::proto::protobuf::FieldMask;
use wakeq_emulator::proto::pubsub::{
    ModifyPushConfigRequest, PushConfig, RetryPolicy, Subscription, Topic, UpdateSubscriptionRequest,
    UpdateTopicRequest,
};

use crate::stage::{Stage, map, refused, refused_as, seconds};

fn mask(paths: &[&str]) -> Option<FieldMask> {
    Some(FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() })
}

fn topic(topic: Topic, paths: &[&str]) -> UpdateTopicRequest {
    UpdateTopicRequest { topic: Some(topic), update_mask: mask(paths) }
}

fn subscription(subscription: Subscription, paths: &[&str]) -> UpdateSubscriptionRequest {
    UpdateSubscriptionRequest { subscription: Some(subscription), update_mask: mask(paths) }
}

/// A subscription with a back-off.
async fn orders(stage: &Stage) -> Subscription {
    let retry_policy =
        Some(RetryPolicy { minimum_backoff: Some(seconds(11)), maximum_backoff: Some(seconds(22)) });
    let (_, name) = stage.pair_with(|resource| resource.retry_policy = retry_policy).await;
    stage.subscription(&name).await
}

cases! {
    async fn only_what_the_mask_names_of_a_topic_is_changed(mut stage) {
        let name = stage.topic("orders").await;
        let resource = Topic {
            name,
            labels: map(&[("team", "shop")]),
            message_retention_duration: Some(seconds(3_600)),
            ..Topic::default()
        };
        let update = topic(resource.clone(), &["labels"]);
        let updated = stage.publisher.update_topic(update).await.unwrap().into_inner();
        assert_eq!((&updated.labels, updated.message_retention_duration), (&resource.labels, None));
        let update = topic(resource, &["message_retention_duration"]);
        let updated = stage.publisher.update_topic(update).await.unwrap().into_inner();
        assert_eq!(updated.message_retention_duration, Some(seconds(3_600)));
    }

    async fn a_topics_update_needs_a_mask_of_known_fields(mut stage) {
        let resource = Topic { name: stage.topic("orders").await, ..Topic::default() };
        for (what, paths) in [("no path", &[][..]), ("no such field", &["colour"][..])] {
            let answer = stage.publisher.update_topic(topic(resource.clone(), paths)).await;
            refused_as(what, answer, Code::InvalidArgument);
        }
    }

    async fn a_topics_name_is_not_changed(mut stage) {
        let resource = Topic { name: stage.topic("orders").await, ..Topic::default() };
        refused(stage.publisher.update_topic(topic(resource, &["name"])).await, Code::InvalidArgument);
    }

    async fn a_topic_that_is_not_there_is_not_updated(mut stage) {
        let resource = Topic { name: stage.topic_name("nowhere"), ..Topic::default() };
        refused(stage.publisher.update_topic(topic(resource, &["labels"])).await, Code::NotFound);
    }

    async fn only_what_the_mask_names_of_a_subscription_is_changed(mut stage) {
        let before = orders(&stage).await;
        let resource = Subscription {
            name: before.name.clone(),
            ack_deadline_seconds: 99,
            labels: map(&[("team", "shop")]),
            retain_acked_messages: true,
            ..Subscription::default()
        };
        let update = subscription(resource, &["ack_deadline_seconds", "labels"]);
        let updated = stage.subscriber.update_subscription(update).await.unwrap().into_inner();
        let labels = map(&[("team", "shop")]);
        assert_eq!(updated, Subscription { ack_deadline_seconds: 99, labels, ..before });
        assert_eq!(stage.subscription(&updated.name).await, updated);
    }

    async fn what_the_mask_names_and_the_subscription_lacks_is_cleared(mut stage) {
        let before = orders(&stage).await;
        let resource = Subscription { name: before.name.clone(), ..Subscription::default() };
        let update = subscription(resource, &["retry_policy"]);
        let updated = stage.subscriber.update_subscription(update).await.unwrap().into_inner();
        assert_eq!(updated, Subscription { retry_policy: None, ..before });
    }

    async fn topic_filter_and_ordering_are_not_changed(mut stage) {
        let before = orders(&stage).await;
        for path in ["name", "topic", "filter", "enable_message_ordering"] {
            let resource = Subscription {
                name: before.name.clone(),
                topic: before.topic.clone(),
                filter: "attributes:colour".to_owned(),
                enable_message_ordering: true,
                ..Subscription::default()
            };
            let answer = stage.subscriber.update_subscription(subscription(resource, &[path])).await;
            refused_as(path, answer, Code::InvalidArgument);
        }
        assert_eq!(stage.subscription(&before.name).await, before);
    }

    async fn a_subscriptions_update_needs_a_mask_of_known_fields(mut stage) {
        let before = orders(&stage).await;
        for (what, paths) in [("no path", &[][..]), ("no such field", &["colour"][..])] {
            let answer = stage.subscriber.update_subscription(subscription(before.clone(), paths)).await;
            refused_as(what, answer, Code::InvalidArgument);
        }
    }

    async fn an_update_is_held_to_the_same_limits(mut stage) {
        let before = orders(&stage).await;
        let resource = Subscription { ack_deadline_seconds: 601, ..before.clone() };
        let update = subscription(resource, &["ack_deadline_seconds"]);
        refused(stage.subscriber.update_subscription(update).await, Code::InvalidArgument);
        assert_eq!(stage.subscription(&before.name).await, before);
    }

    async fn a_subscription_becomes_one_that_pushes_and_one_that_is_pulled_again(mut stage) {
        let name = orders(&stage).await.name;
        let push_config =
            PushConfig { push_endpoint: "http://127.0.0.1:9/".to_owned(), ..PushConfig::default() };
        let request = ModifyPushConfigRequest { subscription: name.clone(), push_config: Some(push_config) };
        stage.subscriber.modify_push_config(request.clone()).await.unwrap();
        let endpoint = stage.subscription(&name).await.push_config.unwrap_or_default().push_endpoint;
        assert_eq!(endpoint, "http://127.0.0.1:9/");
        let request = ModifyPushConfigRequest { push_config: Some(PushConfig::default()), ..request };
        stage.subscriber.modify_push_config(request).await.unwrap();
        let config = stage.subscription(&name).await.push_config.unwrap_or_default();
        assert_eq!(config.push_endpoint, "");
    }
}
