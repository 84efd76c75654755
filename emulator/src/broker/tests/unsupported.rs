//! Settings that are stored and returned, and not carried out.

use super::*;
use crate::proto::pubsub::ingestion_data_source_settings::{AwsKinesis, Source, aws_kinesis};
use crate::proto::pubsub::message_transform::Transform;
use crate::proto::pubsub::{
    BigQueryConfig, BigtableConfig, CloudStorageConfig, IngestionDataSourceSettings, JavaScriptUdf,
    MessageTransform, PushConfig, Subscription, Topic, big_query_config,
};

const KEY: &str = "projects/p/locations/l/keyRings/r/cryptoKeys/k";

fn accepting() -> World {
    let mut world = World::new();
    world.broker.accept_unsupported();
    world
}

fn topic() -> Topic {
    Topic { name: TOPIC.to_owned(), ..Default::default() }
}

fn script(name: &str) -> MessageTransform {
    let udf = JavaScriptUdf { function_name: name.to_owned(), code: format!("function {name}(m) {{}}") };
    MessageTransform { transform: Some(Transform::JavascriptUdf(udf)), ..Default::default() }
}

fn bigquery(table: &str) -> Option<BigQueryConfig> {
    Some(BigQueryConfig { table: table.to_owned(), ..Default::default() })
}

fn storage(bucket: &str) -> CloudStorageConfig {
    CloudStorageConfig { bucket: bucket.to_owned(), ..Default::default() }
}

fn fields(world: &World) -> Vec<(String, &'static str)> {
    let stored = world.broker.overview(world.now).not_carried_out;
    stored.into_iter().map(|setting| (setting.resource, setting.field)).collect()
}

#[test]
fn accepted_settings_are_returned_as_the_service_returns_them() {
    let mut world = accepting();
    let kinesis = |state: aws_kinesis::State| {
        let source = Source::AwsKinesis(AwsKinesis {
            state: state.into(),
            stream_arn: "arn:aws:kinesis:a:1:stream/s".to_owned(),
            consumer_arn: "arn:aws:kinesis:a:1:stream/s/consumer/c".to_owned(),
            aws_role_arn: "arn:aws:iam::1:role/r".to_owned(),
            gcp_service_account: "a@b.c".to_owned(),
        });
        Some(IngestionDataSourceSettings { source: Some(source), ..Default::default() })
    };
    let wanted = Topic {
        kms_key_name: KEY.to_owned(),
        message_transforms: vec![script("first"), script("second")],
        ingestion_data_source_settings: kinesis(aws_kinesis::State::Unspecified),
        ..topic()
    };
    let created = world.create_topic(wanted.clone()).unwrap();
    let ingestion_data_source_settings = kinesis(aws_kinesis::State::Active);
    assert_eq!(created, Topic { ingestion_data_source_settings, state: created.state, ..wanted });
    let request = pubsub::GetTopicRequest { topic: TOPIC.to_owned() };
    assert_eq!(world.broker.get_topic(world.now, request), Ok(created));

    let written = world.subscribe(Subscription { bigquery_config: bigquery("p.d.t"), ..subscription() });
    let config = written.bigquery_config.clone().unwrap();
    assert_eq!((config.table.as_str(), config.state()), ("p.d.t", big_query_config::State::Active));
    assert_eq!(world.get_subscription(SUBSCRIPTION), Ok(written));
    let archive = Subscription { cloud_storage_config: Some(storage("abc")), ..another("archive") };
    let config = world.subscribe(archive).cloud_storage_config.unwrap();
    assert_eq!(config.max_duration, Some(seconds(5 * MINUTE)), "the default");
    world.publish(TOPIC, &["waits"]);
    assert_eq!(world.bodies(SUBSCRIPTION), ["waits"], "nothing was written anywhere");
    assert_eq!(
        fields(&world),
        [
            (TOPIC.to_owned(), "kms_key_name"),
            (TOPIC.to_owned(), "ingestion_data_source_settings"),
            (TOPIC.to_owned(), "message_transforms"),
            (named("archive"), "cloud_storage_config"),
            (SUBSCRIPTION.to_owned(), "bigquery_config"),
        ]
    );
}

#[test]
fn the_log_is_told_once_of_each_new_setting() {
    let mut world = accepting();
    world.create_topic(Topic { kms_key_name: KEY.to_owned(), ..topic() }).unwrap();
    let said = |name: &str, words: &str| vec![format!("{name}: stored, but not carried out: {words}")];
    let keys = "kms_key_name (messages are kept in memory only, and no keys are managed)";
    assert_eq!(world.broker.take_notices(), said(TOPIC, keys));
    world.subscribe(subscription());
    let change = Subscription { bigquery_config: bigquery("p.d.t"), ..subscription() };
    let words = "bigquery_config (there is no BigQuery to write to)";
    for expected in [said(SUBSCRIPTION, words), Vec::new()] {
        world.update_subscription(change.clone(), &["bigquery_config"]).unwrap();
        assert_eq!(world.broker.take_notices(), expected);
    }
    world.update_subscription(subscription(), &["bigquery_config"]).unwrap();
    assert_eq!(fields(&world), [(TOPIC.to_owned(), "kms_key_name")]);

    world.broker.forget_everything();
    world.create_topic(Topic { kms_key_name: KEY.to_owned(), ..topic() }).unwrap();
    assert_eq!(world.broker.take_notices().len(), 1, "they are still accepted");
}

#[test]
fn a_refusal_names_the_option_where_there_is_one() {
    let mut world = World::new();
    let refusal = refused(world.create_topic(Topic { kms_key_name: KEY.to_owned(), ..topic() }));
    assert!(refusal.contains("--accept-unsupported"), "{refusal}");
    world.topic(TOPIC);
    let refusal = refused(
        world.create_subscription(Subscription { bigquery_config: bigquery("p.d.t"), ..subscription() }),
    );
    assert!(refusal.contains("--accept-unsupported"), "{refusal}");

    let mut world = accepting();
    let tags = Topic { tags: attributes(&[("1/a", "b")]), ..topic() };
    let refusal = refused(world.create_topic(tags));
    assert!(refusal.starts_with("Unimplemented: "), "{refusal}");
    assert!(!refusal.contains("--accept-unsupported"), "{refusal}");
}

#[test]
fn accepted_settings_have_to_be_well_formed() {
    let topics = [
        Topic { kms_key_name: "k".to_owned(), ..topic() },
        Topic { message_transforms: vec![MessageTransform::default()], ..topic() },
        Topic { message_transforms: vec![script("twice"), script("twice")], ..topic() },
        Topic { message_transforms: vec![script("")], ..topic() },
        Topic {
            ingestion_data_source_settings: Some(IngestionDataSourceSettings {
                source: Some(Source::AwsKinesis(AwsKinesis::default())),
                ..Default::default()
            }),
            ..topic()
        },
    ];
    for refusable in topics {
        assert_eq!(code(accepting().create_topic(refusable.clone())), Code::InvalidArgument, "{refusable:?}");
    }
    let push_config =
        Some(PushConfig { push_endpoint: "http://localhost:1/".to_owned(), ..Default::default() });
    let s = subscription;
    let in_storage = |config: CloudStorageConfig| Subscription { cloud_storage_config: Some(config), ..s() };
    let both_schemas =
        BigQueryConfig { use_topic_schema: true, use_table_schema: true, ..bigquery("p.d.t").unwrap() };
    let subscriptions = [
        Subscription { bigquery_config: bigquery("t"), ..s() },
        Subscription { bigquery_config: Some(both_schemas), ..s() },
        Subscription { bigtable_config: Some(BigtableConfig::default()), ..s() },
        Subscription { bigquery_config: bigquery("p.d.t"), push_config, ..s() },
        Subscription { bigquery_config: bigquery("p.d.t"), ..in_storage(storage("abc")) },
        Subscription { bigquery_config: bigquery("p.d.t"), enable_exactly_once_delivery: true, ..s() },
        in_storage(storage("gs://bucket")),
        in_storage(CloudStorageConfig { filename_suffix: "a/".to_owned(), ..storage("abc") }),
        in_storage(CloudStorageConfig { max_duration: Some(seconds(MINUTE - 1)), ..storage("abc") }),
        in_storage(CloudStorageConfig { max_bytes: 999, ..storage("abc") }),
        in_storage(CloudStorageConfig { max_messages: 999, ..storage("abc") }),
    ];
    for refusable in subscriptions {
        let mut world = accepting();
        world.topic(TOPIC);
        let refusal = code(world.create_subscription(refusable.clone()));
        assert_eq!(refusal, Code::InvalidArgument, "{refusable:?}");
        assert_eq!((fields(&world), world.broker.take_notices()), (Vec::new(), Vec::new()));
    }
}
