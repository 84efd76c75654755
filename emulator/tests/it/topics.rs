//! Topics: created, named, listed, deleted.

use tonic::Code;
use wakeq_emulator::proto::pubsub::schema_service_client::SchemaServiceClient;
use wakeq_emulator::proto::pubsub::{
    CreateSchemaRequest, DeleteTopicRequest, GetSchemaRequest, GetTopicRequest, ListSchemasRequest,
    ListTopicSubscriptionsRequest, ListTopicsRequest, MessageStoragePolicy, Schema, Topic, schema,
};

use crate::stage::{Stage, map, refused, refused_as, seconds, text, texts};

fn list(stage: &Stage, page_size: i32, page_token: &str) -> ListTopicsRequest {
    let project = format!("projects/{}", stage.project);
    ListTopicsRequest { project, page_size, page_token: page_token.to_owned() }
}

fn get(name: &str) -> GetTopicRequest {
    GetTopicRequest { topic: name.to_owned() }
}

fn delete(name: &str) -> DeleteTopicRequest {
    DeleteTopicRequest { topic: name.to_owned() }
}

cases! {
    async fn a_topic_is_kept_as_it_was_created(mut stage) {
        let topic = Topic {
            name: stage.topic_name("orders"),
            labels: map(&[("team", "shop"), ("stage", "test")]),
            message_retention_duration: Some(seconds(3_600)),
            message_storage_policy: Some(MessageStoragePolicy {
                allowed_persistence_regions: vec!["europe-west1".to_owned()],
                enforce_in_transit: false,
            }),
            ..Topic::default()
        };
        let created = stage.publisher.create_topic(topic.clone()).await.unwrap().into_inner();
        let got = stage.publisher.get_topic(get(&topic.name)).await.unwrap().into_inner();
        assert_eq!(created, got);
        assert_eq!((&got.name, &got.labels), (&topic.name, &topic.labels));
        assert_eq!(got.message_retention_duration, topic.message_retention_duration);
        assert_eq!(got.message_storage_policy, topic.message_storage_policy);
    }

    async fn a_topic_is_created_once(stage) {
        let name = stage.topic("orders").await;
        let again = stage.publisher.clone().create_topic(Topic { name, ..Topic::default() }).await;
        refused(again, Code::AlreadyExists);
    }

    async fn a_topic_that_is_not_there_is_not_found(mut stage) {
        let name = stage.topic_name("nowhere");
        refused(stage.publisher.get_topic(get(&name)).await, Code::NotFound);
        refused(stage.publisher.delete_topic(delete(&name)).await, Code::NotFound);
        refused(stage.try_publish(&name, &[text("lost")]).await, Code::NotFound);
    }

    async fn a_topic_that_is_not_there_has_no_list_of_subscriptions(mut stage) {
        let topic = stage.topic_name("nowhere");
        let request = ListTopicSubscriptionsRequest { topic, ..Default::default() };
        refused(stage.publisher.list_topic_subscriptions(request).await, Code::NotFound);
    }

    async fn topic_names_follow_the_rules(mut stage) {
        for good in ["abc", "Orders.v1-x_y~z+1%25", "o".repeat(255).as_str()] {
            let topic = Topic { name: stage.topic_name(good), ..Topic::default() };
            stage.publisher.create_topic(topic).await.unwrap_or_else(|status| panic!("{good}: {status}"));
        }
        let too_long = "o".repeat(256);
        for bad in ["", "ab", "1abc", "-abc", "goog-abc", "a b c", "a/bc", "äbc", "abc!", too_long.as_str()] {
            let topic = Topic { name: stage.topic_name(bad), ..Topic::default() };
            refused_as(bad, stage.publisher.create_topic(topic).await, Code::InvalidArgument);
        }
    }

    async fn a_name_that_is_no_topics_name_is_refused(mut stage) {
        let project = stage.project.clone();
        for bad in ["orders", "topics/orders", &format!("projects/{project}/topic/orders")] {
            refused_as(bad, stage.publisher.get_topic(get(bad)).await, Code::InvalidArgument);
            let topic = Topic { name: (*bad).to_owned(), ..Topic::default() };
            refused_as(bad, stage.publisher.create_topic(topic).await, Code::InvalidArgument);
        }
    }

    async fn topics_are_listed_page_by_page(mut stage) {
        let mut created = Vec::new();
        for number in 0..5 {
            created.push(stage.topic(&format!("topic-{number}")).await);
        }
        let (mut listed, mut sizes, mut token) = (Vec::new(), Vec::new(), String::new());
        loop {
            let page = stage.publisher.list_topics(list(&stage, 2, &token)).await.unwrap().into_inner();
            sizes.push(page.topics.len());
            listed.extend(page.topics.into_iter().map(|topic| topic.name));
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        listed.sort();
        assert_eq!((listed, sizes), (created, vec![2, 2, 1]));
        let all = stage.publisher.list_topics(list(&stage, 0, "")).await.unwrap().into_inner();
        assert_eq!((all.topics.len(), all.next_page_token.as_str()), (5, ""));
    }

    async fn a_page_token_that_was_never_given_is_refused(mut stage) {
        stage.topic("orders").await;
        refused(stage.publisher.list_topics(list(&stage, 1, "no such token")).await, Code::InvalidArgument);
    }

    async fn a_negative_page_size_is_refused(mut stage) {
        refused(stage.publisher.list_topics(list(&stage, -1, "")).await, Code::InvalidArgument);
    }

    async fn a_topics_subscriptions_are_listed_by_name(mut stage) {
        let (topic, other) = (stage.topic("orders").await, stage.topic("other").await);
        let mut created = Vec::new();
        for id in ["first", "second", "third"] {
            created.push(stage.subscribe(stage.to(&topic, id)).await);
        }
        stage.subscribe(stage.to(&other, "fourth")).await;
        let request = ListTopicSubscriptionsRequest { topic, page_size: 2, page_token: String::new() };
        let page = stage.publisher.list_topic_subscriptions(request.clone()).await.unwrap().into_inner();
        assert_eq!(page.subscriptions.len(), 2);
        let request = ListTopicSubscriptionsRequest { page_token: page.next_page_token, ..request };
        let rest = stage.publisher.list_topic_subscriptions(request).await.unwrap().into_inner();
        let mut listed = [page.subscriptions, rest.subscriptions].concat();
        listed.sort();
        assert_eq!(listed, created);
    }

    async fn a_topic_keeps_messages_between_ten_minutes_and_31_days(mut stage) {
        for (bad, length) in [("9 min 59 s", 599), ("31 days and 1 s", 31 * 86_400 + 1)] {
            let name = stage.topic_name("bad");
            let topic = Topic { name, message_retention_duration: Some(seconds(length)), ..Topic::default() };
            refused_as(bad, stage.publisher.create_topic(topic).await, Code::InvalidArgument);
        }
        for length in [600, 31 * 86_400] {
            let name = stage.topic_name(&format!("kept-{length}"));
            let topic = Topic { name, message_retention_duration: Some(seconds(length)), ..Topic::default() };
            stage.publisher.create_topic(topic).await.unwrap();
        }
    }

    async fn a_deleted_topic_leaves_its_subscriptions_and_their_messages(mut stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["kept"]).await;
        stage.publisher.delete_topic(delete(&topic)).await.unwrap();
        refused(stage.publisher.get_topic(get(&topic)).await, Code::NotFound);
        refused(stage.publisher.delete_topic(delete(&topic)).await, Code::NotFound);
        assert_eq!(stage.subscription(&subscription).await.topic, "_deleted-topic_");
        assert_eq!(texts(&[stage.pull_one(&subscription).await]), ["kept"]);
    }

    async fn a_topic_of_a_deleted_ones_name_is_a_new_one(mut stage) {
        let (topic, old) = stage.pair().await;
        stage.publisher.delete_topic(delete(&topic)).await.unwrap();
        stage.topic("a-topic").await;
        let request = ListTopicSubscriptionsRequest { topic, ..Default::default() };
        let listed = stage.publisher.list_topic_subscriptions(request).await.unwrap().into_inner();
        assert_eq!(listed.subscriptions, Vec::<String>::new());
        assert_eq!(stage.subscription(&old).await.topic, "_deleted-topic_");
    }

    async fn without_schemas_the_list_is_empty_and_none_is_found(stage) {
        let mut schemas = SchemaServiceClient::new(stage.channel.clone());
        let request = ListSchemasRequest { parent: format!("projects/{}", stage.project), ..Default::default() };
        assert_eq!(schemas.list_schemas(request).await.unwrap().into_inner().schemas, []);
        let name = format!("projects/{}/schemas/orders", stage.project);
        let request = GetSchemaRequest { name, ..Default::default() };
        refused(schemas.get_schema(request).await, Code::NotFound);
    }

    async fn a_schema_is_kept_as_it_was_created(stage) {
        let channel = stage.channel.clone();
        let schema = Schema {
            r#type: schema::Type::Avro.into(),
            definition: r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}"#.to_owned(),
            ..Schema::default()
        };
        let request = CreateSchemaRequest {
            parent: format!("projects/{}", stage.project),
            schema: Some(schema.clone()),
            schema_id: "orders".to_owned(),
        };
        let created = SchemaServiceClient::new(channel).create_schema(request).await.unwrap().into_inner();
        assert_eq!((created.definition, created.r#type), (schema.definition, schema.r#type));
    }

    async fn the_service_words_what_is_missing_and_what_is_taken(mut stage) {
        let missing = refused(stage.publisher.get_topic(get(&stage.topic_name("nowhere"))).await, Code::NotFound);
        assert_eq!(missing.message(), "Resource not found (resource=nowhere).");
        let name = stage.topic("orders").await;
        let topic = Topic { name, ..Topic::default() };
        let taken = refused(stage.publisher.create_topic(topic).await, Code::AlreadyExists);
        assert_eq!(taken.message(), "Resource already exists in the project (resource=orders).");
    }
}
