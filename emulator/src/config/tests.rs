//! What each format configures, and what is said of what is wrong.

use super::*;
use crate::broker::{Broker, Time};
use crate::proto::pubsub::{
    Encoding, ExpirationPolicy, GetTopicRequest, PushConfig, RetryPolicy, push_config,
};
use crate::provision::ProvisionCounts;

fn seconds(seconds: i64) -> Option<crate::proto::protobuf::Duration> {
    Some(crate::proto::protobuf::Duration { seconds, nanos: 0 })
}

fn refusal(name: &str, text: &str) -> String {
    Config::parse(Path::new(name), text).unwrap_err().to_string()
}

#[test]
fn every_kind_of_field_is_read_under_the_name_that_the_api_s_json_has() {
    let text = r#"
        project = "demo"
        [[topics]]
        name = "orders"
        messageRetentionDuration = "86400s"
        labels = { team = "shop" }
        [[topics]]
        name = "projects/other/topics/dead"
        [[subscriptions]]
        name = "hook"
        topic = "orders"
        ackDeadlineSeconds = 20
        retainAckedMessages = true
        messageRetentionDuration = "600s"
        enableMessageOrdering = true
        enableExactlyOnceDelivery = true
        filter = 'attributes.kind = "a"'
        expirationPolicy = {}
        retryPolicy = { minimumBackoff = "1.500s", maximumBackoff = "60s" }
        deadLetterPolicy = { deadLetterTopic = "dead", maxDeliveryAttempts = 7 }
        pushConfig.pushEndpoint = "http://localhost:8080/push"
        pushConfig.oidcToken.serviceAccountEmail = "push@demo.iam.gserviceaccount.com"
        pushConfig.noWrapper.writeMetadata = true
    "#;
    let orders = Topic {
        name: "projects/demo/topics/orders".into(),
        message_retention_duration: seconds(86400),
        labels: [("team".into(), "shop".into())].into(),
        ..Topic::default()
    };
    let oidc = push_config::OidcToken {
        service_account_email: "push@demo.iam.gserviceaccount.com".into(),
        audience: String::new(),
    };
    let hook = Subscription {
        name: "projects/demo/subscriptions/hook".into(),
        topic: "projects/demo/topics/orders".into(),
        ack_deadline_seconds: 20,
        retain_acked_messages: true,
        message_retention_duration: seconds(600),
        enable_message_ordering: true,
        enable_exactly_once_delivery: true,
        filter: "attributes.kind = \"a\"".into(),
        expiration_policy: Some(ExpirationPolicy { ttl: None }),
        retry_policy: Some(RetryPolicy {
            minimum_backoff: Some(crate::proto::protobuf::Duration { seconds: 1, nanos: 500_000_000 }),
            maximum_backoff: seconds(60),
        }),
        dead_letter_policy: Some(DeadLetterPolicy {
            dead_letter_topic: "projects/demo/topics/dead".into(),
            max_delivery_attempts: 7,
        }),
        push_config: Some(PushConfig {
            push_endpoint: "http://localhost:8080/push".into(),
            authentication_method: Some(push_config::AuthenticationMethod::OidcToken(oidc)),
            wrapper: Some(push_config::Wrapper::NoWrapper(push_config::NoWrapper { write_metadata: true })),
            ..PushConfig::default()
        }),
        ..Subscription::default()
    };
    let dead = Topic { name: "projects/other/topics/dead".into(), ..Topic::default() };
    let expected = Provision::default()
        .topic_from("emulator.toml:3", orders)
        .topic_from("emulator.toml:7", dead)
        .subscription_from("emulator.toml:9", hook);
    assert_eq!(Config::parse(Path::new("emulator.toml"), text).unwrap().provision, expected);
}

#[test]
fn json_configures_the_same_as_toml() {
    let text = r#"{"project": "demo", "topics": [{"name": "orders", "messageRetentionDuration": "600s"}],
        "faults": {"seed": 3, "slow": "0.5s"}}"#;
    let config = Config::parse(Path::new("emulator.json"), text).unwrap();
    let orders = Topic {
        name: "projects/demo/topics/orders".into(),
        message_retention_duration: seconds(600),
        ..Topic::default()
    };
    assert_eq!(config.provision, Provision::default().topic_from("emulator.json, topic 1", orders));
    assert_eq!(config.faults.unwrap().seed, 3);
}

#[test]
fn yaml_configures_the_same_as_toml() {
    let text = r#"
# What the tests need.
project: demo
topics:
  - name: orders
    messageRetentionDuration: 600s
    labels: {team: shop}
subscriptions:
- name: hook
  topic: orders
  ackDeadlineSeconds: 20
  filter: attributes.kind = "a"
  expirationPolicy: {}
  retryPolicy:
    minimumBackoff: 1.5s
  pushConfig:
    pushEndpoint: http://localhost:8080/push
faults:
  seed: 3
  slow: 0.5s
"#;
    let orders = Topic {
        name: "projects/demo/topics/orders".into(),
        message_retention_duration: seconds(600),
        labels: [("team".into(), "shop".into())].into(),
        ..Topic::default()
    };
    let hook = Subscription {
        name: "projects/demo/subscriptions/hook".into(),
        topic: orders.name.clone(),
        ack_deadline_seconds: 20,
        filter: "attributes.kind = \"a\"".into(),
        expiration_policy: Some(ExpirationPolicy { ttl: None }),
        retry_policy: Some(RetryPolicy {
            minimum_backoff: Some(crate::proto::protobuf::Duration { seconds: 1, nanos: 500_000_000 }),
            maximum_backoff: None,
        }),
        push_config: Some(PushConfig {
            push_endpoint: "http://localhost:8080/push".into(),
            ..PushConfig::default()
        }),
        ..Subscription::default()
    };
    for name in ["emulator.yaml", "emulator.YML"] {
        let config = Config::parse(Path::new(name), text).unwrap();
        let expected = Provision::default()
            .topic_from(format!("{name}:5"), orders.clone())
            .subscription_from(format!("{name}:9"), hook.clone());
        assert_eq!(config.provision, expected);
        let faults = Faults::parse(Path::new(name), "seed: 3\nslow: 0.5s").unwrap();
        assert_eq!(config.faults, Some(faults));
    }
    assert_eq!(Config::parse(Path::new("emulator.yaml"), "# nothing\n").unwrap(), Config::default());
}

#[test]
fn schemas_are_made_before_the_topics_that_name_them() {
    let toml = r#"
        project = "demo"
        [[topics]]
        name = "orders"
        schemaSettings = { schema = "order", encoding = "JSON" }
        [[schemas]]
        name = "order"
        type = "AVRO"
        definition = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
    "#;
    let json = r#"{"project": "demo",
        "topics": [{"name": "orders", "schemaSettings": {"schema": "order", "encoding": "JSON"}}],
        "schemas": [{"name": "order", "type": "PROTOCOL_BUFFER",
            "definition": "syntax = \"proto3\"; message Order { int32 id = 1; }"}]}"#;
    let name = "projects/demo/schemas/order";
    let yaml = r#"
project: demo
topics:
- name: orders
  schemaSettings: {schema: order, encoding: JSON}
schemas:
- name: order
  type: PROTOCOL_BUFFER
  definition: |
    syntax = "proto3"; // a comment
    message Order {
      int32 id = 1;
    }
"#;
    for (file, text) in [("emulator.toml", toml), ("emulator.json", json), ("emulator.yaml", yaml)] {
        let provision = Config::parse(Path::new(file), text).unwrap().provision;
        let mut broker = Broker::new(Faults::default());
        let made = provision.apply(&mut broker, Time::default()).unwrap();
        assert_eq!((made.schemas, made.topics), (1, 1), "{file}");
        let request = GetTopicRequest { topic: "projects/demo/topics/orders".into() };
        let topic = broker.get_topic(Time::default(), request).unwrap();
        let settings = topic.schema_settings.unwrap();
        assert_eq!((settings.schema.as_str(), settings.encoding()), (name, Encoding::Json));
        let made = provision.apply(&mut broker, Time::default()).unwrap();
        assert_eq!(made, ProvisionCounts::default(), "{file}");
    }
    let text = "[[schemas]]\nname = \"projects/demo/schemas/order\"\ntype = \"AVRO\"\n";
    let provision = Config::parse(Path::new("emulator.toml"), text).unwrap().provision;
    let refusal = provision.apply(&mut Broker::new(Faults::default()), Time::default()).unwrap_err();
    let expected = "emulator.toml:1: projects/demo/schemas/order: Invalid schema definition: it is empty.";
    assert_eq!(refusal.to_string(), expected);
}

#[test]
fn rejects_unknown_fields_with_their_line() {
    let unknown = refusal("emulator.toml", "project = \"demo\"\n\n[[topics]]\nname = \"orders\"\nnmae = 1\n");
    assert!(unknown.starts_with("emulator.toml: TOML parse error at line 5"), "{unknown}");
    assert!(unknown.contains("unknown field `nmae`"), "{unknown}");
    let unknown = refusal("emulator.toml", "[faults]\nloose = 0.1\n");
    assert!(unknown.contains("line 2") && unknown.contains("`lose`"), "{unknown}");
    let unknown = refusal("emulator.json", "{\n\"topic\": []}");
    assert!(unknown.contains("unknown field `topic`") && unknown.contains("line 2"), "{unknown}");
    for (text, words) in [
        ("project: demo\n\ntopics:\n- name: orders\n  nmae: 1\n", "unknown field `nmae`"),
        ("\n\n\n\ntopic:\n  - name: orders\n", "unknown field `topic`"),
        ("faults:\n\n\n\n  loose: 0.1\n", "unknown field `loose`"),
        ("\n\n\n\n- name: orders\n", "expected mapping start"),
        ("\n\n\ntopics:\n  name: orders\n", "expected sequence start"),
        ("project: a\n\n\n\nproject: b\n", "duplicate mapping key"),
    ] {
        let said = refusal("emulator.yaml", text);
        assert!(said.contains(words) && said.contains("at line 5, column"), "{text}: {said}");
    }
    let list = refusal("emulator.json", "[]");
    assert_eq!(list, "emulator.json: an object is expected, as in {\"seed\": 7}");
    let wrong = refusal("emulator.toml", "[[subscriptions]]\nretryPolicy.minimumBackoff = \"soon\"\n");
    assert!(wrong.contains("line 2"), "{wrong}");
}

#[test]
fn a_short_name_needs_a_project() {
    let yaml = refusal("emulator.yaml", "topics:\n- name: orders\n");
    assert!(yaml.starts_with("emulator.yaml:2: `orders` has no project"), "{yaml}");
    let refusal = refusal("emulator.toml", "\n[[topics]]\nname = \"orders\"\n");
    assert!(refusal.starts_with("emulator.toml:2: `orders` has no project"), "{refusal}");
}

#[test]
fn a_file_of_faults_has_nothing_else() {
    let text = "unavailable = 0.2\nmethods = [\"Publish\"]\n[[next]]\ntimes = 3\ncode = \"ABORTED\"\n";
    let faults = Faults::parse(Path::new("faults.toml"), text).unwrap();
    assert_eq!((faults.unavailable, faults.next[0].times), (0.2, 3));
    let refusal = Faults::parse(Path::new("faults.toml"), "[faults]\n").unwrap_err().to_string();
    assert!(refusal.contains("unknown field `faults`"), "{refusal}");
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::read(Path::new("no/such/emulator.toml")).unwrap_err();
    assert_eq!(error.to_string(), "no/such/emulator.toml: can't be read");
}
