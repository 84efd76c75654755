//! Updates change the fields that the mask names, and nothing else.

use tonic::{Code, Response, Status};
use wakeq_emulator::proto::protobuf::FieldMask;
use wakeq_emulator::proto::pubsub::{
    ModifyPushConfigRequest, PushConfig, RetryPolicy, Subscription, Topic, UpdateSubscriptionRequest,
    UpdateTopicRequest,
};

use crate::stage::{Stage, map, refused, refused_as, seconds};

fn mask(paths: &[&str]) -> Option<FieldMask> {
    Some(FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() })
}

async fn update_topic(stage: &Stage, topic: &Topic, paths: &[&str]) -> Result<Topic, Status> {
    let request = UpdateTopicRequest { topic: Some(topic.clone()), update_mask: mask(paths) };
    stage.publisher.clone().update_topic(request).await.map(Response::into_inner)
}

async fn update(stage: &Stage, resource: &Subscription, paths: &[&str]) -> Result<Subscription, Status> {
    let request =
        UpdateSubscriptionRequest { subscription: Some(resource.clone()), update_mask: mask(paths) };
    stage.subscriber.clone().update_subscription(request).await.map(Response::into_inner)
}

/// A subscription with a back-off.
async fn orders(stage: &Stage) -> Subscription {
    let retry_policy =
        Some(RetryPolicy { minimum_backoff: Some(seconds(11)), maximum_backoff: Some(seconds(22)) });
    let (_, name) = stage.pair_with(|resource| resource.retry_policy = retry_policy).await;
    stage.subscription(&name).await
}

cases! {
    async fn only_what_the_mask_names_of_a_topic_is_changed(stage) {
        let name = stage.topic("orders").await;
        let resource = Topic {
            name,
            labels: map(&[("team", "shop")]),
            message_retention_duration: Some(seconds(3_600)),
            ..Topic::default()
        };
        let updated = update_topic(&stage, &resource, &["labels"]).await.unwrap();
        assert_eq!((&updated.labels, updated.message_retention_duration), (&resource.labels, None));
        let updated = update_topic(&stage, &resource, &["message_retention_duration"]).await.unwrap();
        assert_eq!(updated.message_retention_duration, Some(seconds(3_600)));
    }

    async fn a_topics_update_needs_a_mask_of_known_fields(stage) {
        let resource = Topic { name: stage.topic("orders").await, ..Topic::default() };
        for (what, paths) in [("no path", &[][..]), ("no such field", &["colour"][..])] {
            refused_as(what, update_topic(&stage, &resource, paths).await, Code::InvalidArgument);
        }
    }

    async fn a_topics_name_is_not_changed(stage) {
        let resource = Topic { name: stage.topic("orders").await, ..Topic::default() };
        refused(update_topic(&stage, &resource, &["name"]).await, Code::InvalidArgument);
    }

    async fn a_topic_that_is_not_there_is_not_updated(stage) {
        let resource = Topic { name: stage.topic_name("nowhere"), ..Topic::default() };
        refused(update_topic(&stage, &resource, &["labels"]).await, Code::NotFound);
    }

    async fn only_what_the_mask_names_of_a_subscription_is_changed(stage) {
        let before = orders(&stage).await;
        let resource = Subscription {
            name: before.name.clone(),
            ack_deadline_seconds: 99,
            labels: map(&[("team", "shop")]),
            retain_acked_messages: true,
            ..Subscription::default()
        };
        let updated = update(&stage, &resource, &["ack_deadline_seconds", "labels"]).await.unwrap();
        let labels = map(&[("team", "shop")]);
        assert_eq!(updated, Subscription { ack_deadline_seconds: 99, labels, ..before });
        assert_eq!(stage.subscription(&updated.name).await, updated);
    }

    async fn parts_of_fields_are_changed(stage) {
        let before = orders(&stage).await;
        let retry_policy =
            Some(RetryPolicy { minimum_backoff: Some(seconds(12)), maximum_backoff: Some(seconds(99)) });
        let resource = Subscription { name: before.name.clone(), retry_policy, ..Subscription::default() };
        let updated = update(&stage, &resource, &["retry_policy.minimum_backoff"]).await.unwrap();
        let retry_policy =
            Some(RetryPolicy { minimum_backoff: Some(seconds(12)), maximum_backoff: Some(seconds(22)) });
        assert_eq!(updated, Subscription { retry_policy, ..before });
        refused(update(&stage, &resource, &["retry_policy.colour"]).await, Code::InvalidArgument);
    }

    async fn what_the_mask_names_and_the_subscription_lacks_is_cleared(stage) {
        let before = orders(&stage).await;
        let resource = Subscription { name: before.name.clone(), ..Subscription::default() };
        let updated = update(&stage, &resource, &["retry_policy"]).await.unwrap();
        assert_eq!(updated, Subscription { retry_policy: None, ..before });
    }

    async fn topic_filter_and_ordering_are_not_changed(stage) {
        let before = orders(&stage).await;
        for path in ["name", "topic", "filter", "enable_message_ordering"] {
            let resource = Subscription {
                name: before.name.clone(),
                topic: before.topic.clone(),
                filter: "attributes:colour".to_owned(),
                enable_message_ordering: true,
                ..Subscription::default()
            };
            refused_as(path, update(&stage, &resource, &[path]).await, Code::InvalidArgument);
        }
        assert_eq!(stage.subscription(&before.name).await, before);
    }

    async fn a_subscriptions_update_needs_a_mask_of_known_fields(stage) {
        let before = orders(&stage).await;
        for (what, paths) in [("no path", &[][..]), ("no such field", &["colour"][..])] {
            refused_as(what, update(&stage, &before, paths).await, Code::InvalidArgument);
        }
    }

    async fn an_update_is_held_to_the_same_limits(stage) {
        let before = orders(&stage).await;
        let resource = Subscription { ack_deadline_seconds: 601, ..before.clone() };
        refused(update(&stage, &resource, &["ack_deadline_seconds"]).await, Code::InvalidArgument);
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
        assert_eq!(stage.subscription(&name).await.push_config.unwrap_or_default().push_endpoint, "");
    }
}
