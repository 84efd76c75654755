//! Settings that need what the emulator does not have: refused, or stored, returned and not carried
//! out.

use serde_json::json;
use tonic::Code;
use wakeq_emulator::Options;
use wakeq_emulator::proto::protobuf::FieldMask;
use wakeq_emulator::proto::pubsub::message_transform::Transform;
use wakeq_emulator::proto::pubsub::{
    BigQueryConfig, CloudStorageConfig, GetTopicRequest, JavaScriptUdf, ListSubscriptionsRequest,
    ListTopicsRequest, MessageTransform, Subscription, Topic, UpdateTopicRequest,
};

use crate::inbox::ask;
use crate::limited::LimitedEmulator;
use crate::stage::{Stage, refused, texts};

const KEY: &str = "projects/keys/locations/global/keyRings/ring/cryptoKeys/key";

async fn emulator(accept_unsupported: bool) -> LimitedEmulator {
    LimitedEmulator::start(Options { accept_unsupported, ..Options::default() }).await
}

fn script() -> MessageTransform {
    let udf = JavaScriptUdf {
        function_name: "f".to_owned(),
        code: "function f(message, metadata) { return null; }".to_owned(),
    };
    MessageTransform { transform: Some(Transform::JavascriptUdf(udf)), ..MessageTransform::default() }
}

fn bigquery() -> Option<BigQueryConfig> {
    Some(BigQueryConfig { table: "demo.events.orders".to_owned(), ..BigQueryConfig::default() })
}

#[tokio::test]
async fn unsupported_settings_are_refused_with_the_option_that_stores_them() {
    let emulator = emulator(false).await;
    let mut stage = Stage::new(emulator.host(), "demo".to_owned()).await;
    let topic = Topic { name: stage.topic_name("orders"), kms_key_name: KEY.to_owned(), ..Topic::default() };
    let status = refused(stage.publisher.create_topic(topic).await, Code::Unimplemented);
    assert!(status.message().contains("--accept-unsupported"), "{status}");
    let topic = stage.topic("orders").await;
    let export = Subscription { bigquery_config: bigquery(), ..stage.to(&topic, "export") };
    let status = refused(stage.try_subscribe(export).await, Code::Unimplemented);
    assert!(status.message().contains("--accept-unsupported"), "{status}");
    emulator.stop().await;
}

#[tokio::test]
async fn accepted_settings_are_stored_listed_changed_and_not_carried_out() {
    let emulator = emulator(true).await;
    let mut stage = Stage::new(emulator.host(), "demo".to_owned()).await;
    let topic = Topic {
        name: stage.topic_name("orders"),
        kms_key_name: KEY.to_owned(),
        message_transforms: vec![script()],
        ..Topic::default()
    };
    let created = stage.publisher.create_topic(topic.clone()).await.unwrap().into_inner();
    assert_eq!((created.kms_key_name.as_str(), created.message_transforms.len()), (KEY, 1));
    assert_eq!(created.message_transforms, topic.message_transforms);
    let request = GetTopicRequest { topic: topic.name.clone() };
    assert_eq!(stage.publisher.get_topic(request).await.unwrap().into_inner(), created);
    let request = ListTopicsRequest { project: "projects/demo".to_owned(), ..Default::default() };
    assert_eq!(stage.publisher.list_topics(request).await.unwrap().into_inner().topics, [created]);

    let export = Subscription { bigquery_config: bigquery(), ..stage.to(&topic.name, "export") };
    let export = stage.try_subscribe(export).await.unwrap();
    assert_eq!(export.bigquery_config.as_ref().unwrap().table, "demo.events.orders");
    let config = CloudStorageConfig { bucket: "archive".to_owned(), ..CloudStorageConfig::default() };
    let archive = Subscription { cloud_storage_config: Some(config), ..stage.to(&topic.name, "archive") };
    let archive = stage.try_subscribe(archive).await.unwrap();
    let request = ListSubscriptionsRequest { project: "projects/demo".to_owned(), ..Default::default() };
    let listed = stage.subscriber.list_subscriptions(request).await.unwrap().into_inner().subscriptions;
    assert_eq!(listed, [archive, export.clone()]);

    stage.publish_texts(&topic.name, &["as it was"]).await;
    assert_eq!(texts(&stage.pull(&export.name, 10).await), ["as it was"]);

    let other = Stage::new(emulator.host(), "other".to_owned()).await;
    other.topic("orders").await;
    let request = UpdateTopicRequest {
        topic: Some(Topic { name: topic.name.clone(), ..Topic::default() }),
        update_mask: Some(FieldMask { paths: vec!["message_transforms".to_owned()] }),
    };
    let updated = stage.publisher.update_topic(request).await.unwrap().into_inner();
    assert_eq!((updated.kms_key_name.as_str(), updated.message_transforms), (KEY, Vec::new()));
    let overview = emulator.broker(|broker, now| broker.overview(now));
    let stored = overview.not_carried_out.iter();
    let stored: Vec<_> = stored.map(|setting| (setting.resource.as_str(), setting.field)).collect();
    assert_eq!(
        stored,
        [
            ("projects/demo/topics/orders", "kms_key_name"),
            ("projects/demo/subscriptions/archive", "cloud_storage_config"),
            ("projects/demo/subscriptions/export", "bigquery_config"),
        ]
    );
    emulator.stop().await;
}

#[tokio::test]
async fn accepted_settings_have_the_same_form_over_rest() {
    let emulator = emulator(true).await;
    let send = async |line: &str, body: serde_json::Value| {
        ask(emulator.address(), line, &[], &body.to_string()).await
    };
    let created = send("PUT /v1/projects/demo/topics/orders", json!({ "kmsKeyName": KEY })).await;
    assert_eq!((created.status(), &created.json()["kmsKeyName"]), (200, &json!(KEY)));
    let export = json!({
        "topic": "projects/demo/topics/orders",
        "bigqueryConfig": { "table": "demo.events.orders", "writeMetadata": true },
    });
    let created = send("PUT /v1/projects/demo/subscriptions/export", export).await;
    let config = json!({ "table": "demo.events.orders", "writeMetadata": true, "state": "ACTIVE" });
    assert_eq!((created.status(), &created.json()["bigqueryConfig"]), (200, &config));
    let wrong = json!({ "topic": "projects/demo/topics/orders", "bigqueryConfig": { "table": "orders" } });
    let refused = send("PUT /v1/projects/demo/subscriptions/wrong", wrong).await;
    assert_eq!((refused.status(), &refused.json()["error"]["status"]), (400, &json!("INVALID_ARGUMENT")));

    let state = ask(emulator.address(), "GET /admin/state", &[], "").await.json();
    let stored = state["not_carried_out"].as_array().unwrap();
    assert_eq!(stored.len(), 2, "{state}");
    assert_eq!(
        stored[1],
        json!({
            "resource": "projects/demo/subscriptions/export",
            "field": "bigquery_config",
            "reason": "there is no BigQuery to write to",
        })
    );
    emulator.stop().await;
}
