//! Configuration files: what an emulator starts with, and its faults.
//!
//! The format is TOML, or JSON if the file's name ends in `.json`. Resources are written in the
//! API's JSON form, so that a file can create whatever the API can. This module only reads, and
//! creates nothing.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::broker::Faults;
use crate::proto::pubsub::{DeadLetterPolicy, Schema, Subscription, Topic};
use crate::provision::Provision;

/// The content of a configuration file.
///
/// ```
/// use std::path::Path;
/// use wakeq_emulator::Config;
///
/// let config = Config::parse(Path::new("emulator.toml"), r#"
///     project = "demo"
///
///     [[topics]]
///     name = "orders"
///     messageRetentionDuration = "600s"
///
///     [[subscriptions]]
///     name = "worker"
///     topic = "orders"
///     ackDeadlineSeconds = 30
///
///     [faults]
///     duplicate = 0.1
/// "#).unwrap();
/// assert_eq!(config.faults.unwrap().duplicate, 0.1);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Schemas, topics and subscriptions.
    pub provision: Provision,
    /// The faults, if the file has any.
    pub faults: Option<Faults>,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It does not exist, or is not readable.
    #[error("{}: can't be read", .0.display())]
    Unreadable(PathBuf, #[source] std::io::Error),
    /// It is not a valid configuration.
    #[error("{}: {words}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, and what is wrong with it.
        words: String,
    },
    /// A short name needs a project.
    #[error(
        "{origin}: `{name}` has no project: write its full name (projects/PROJECT/…), or project = \"…\" at the \
         top of the file"
    )]
    NoProject {
        /// The file and line.
        origin: String,
        /// The name.
        name: String,
    },
}

/// A file with resources of a type that may or may not record their position.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<D, T, S> {
    project: Option<String>,
    #[serde(default = "Vec::new")]
    schemas: Vec<D>,
    #[serde(default = "Vec::new")]
    topics: Vec<T>,
    #[serde(default = "Vec::new")]
    subscriptions: Vec<S>,
    faults: Option<Faults>,
}

type SpannedFile = File<toml::Spanned<Schema>, toml::Spanned<Topic>, toml::Spanned<Subscription>>;

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If the file does not exist, or something in it is unknown; the message says where.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &text(path)?)
    }

    /// Parses the text of such a file; `path` determines the format, and is named in errors.
    ///
    /// # Errors
    ///
    /// If something in it is unknown; the message says where.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut provision = Provision::default();
        if is_json(path) {
            let file: File<Schema, Topic, Subscription> = json(path, text)?;
            let project = file.project.as_deref();
            for (number, schema) in (1..).zip(file.schemas) {
                let origin = format!("{}, schema {number}", path.display());
                provision = with_schema(provision, project, origin, schema)?;
            }
            for (number, topic) in (1..).zip(file.topics) {
                let origin = format!("{}, topic {number}", path.display());
                provision = with_topic(provision, project, origin, topic)?;
            }
            for (number, subscription) in (1..).zip(file.subscriptions) {
                let origin = format!("{}, subscription {number}", path.display());
                provision = with_subscription(provision, project, origin, subscription)?;
            }
            return Ok(Self { provision, faults: file.faults });
        }
        let file: SpannedFile = toml(path, text)?;
        let project = file.project.as_deref();
        let line = |start: usize| {
            let before = text.as_bytes().iter().take(start);
            format!("{}:{}", path.display(), 1 + before.filter(|byte| **byte == b'\n').count())
        };
        for schema in file.schemas {
            let origin = line(schema.span().start);
            provision = with_schema(provision, project, origin, schema.into_inner())?;
        }
        for topic in file.topics {
            let origin = line(topic.span().start);
            provision = with_topic(provision, project, origin, topic.into_inner())?;
        }
        for subscription in file.subscriptions {
            let origin = line(subscription.span().start);
            provision = with_subscription(provision, project, origin, subscription.into_inner())?;
        }
        Ok(Self { provision, faults: file.faults })
    }
}

impl Faults {
    /// Reads a file with faults alone: TOML, or JSON if its name ends in `.json`.
    ///
    /// # Errors
    ///
    /// If the file does not exist, or something in it is not a fault; the message says where.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &text(path)?)
    }

    /// Parses the text of such a file; `path` determines the format, and is named in errors.
    ///
    /// ```
    /// use std::path::Path;
    /// use wakeq_emulator::Faults;
    ///
    /// let faults = Faults::parse(Path::new("faults.toml"), "seed = 7\nlose = 0.01").unwrap();
    /// assert_eq!((faults.seed, faults.lose), (7, 0.01));
    /// ```
    ///
    /// # Errors
    ///
    /// If something in it is not a fault; the message says where.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        if is_json(path) { json(path, text) } else { toml(path, text) }
    }
}

fn text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable(path.to_owned(), error))
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

fn json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    // Otherwise a list would be read as the fields in order.
    if !text.trim_start().starts_with('{') {
        let words = "an object is expected, as in {\"seed\": 7}".to_owned();
        return Err(ConfigError::Invalid { path: path.to_owned(), words });
    }
    serde_json::from_str(text).map_err(|error| invalid(path, &error))
}

fn toml<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| invalid(path, &error))
}

fn invalid(path: &Path, error: &dyn std::error::Error) -> ConfigError {
    ConfigError::Invalid { path: path.to_owned(), words: error.to_string().trim_end().to_owned() }
}

fn with_schema(
    provision: Provision,
    project: Option<&str>,
    origin: String,
    mut schema: Schema,
) -> Result<Provision, ConfigError> {
    complete(&mut schema.name, "schemas", project, &origin)?;
    Ok(provision.schema_from(origin, schema))
}

fn with_topic(
    provision: Provision,
    project: Option<&str>,
    origin: String,
    mut topic: Topic,
) -> Result<Provision, ConfigError> {
    complete(&mut topic.name, "topics", project, &origin)?;
    if let Some(settings) = &mut topic.schema_settings {
        complete(&mut settings.schema, "schemas", project, &origin)?;
    }
    Ok(provision.topic_from(origin, topic))
}

fn with_subscription(
    provision: Provision,
    project: Option<&str>,
    origin: String,
    mut subscription: Subscription,
) -> Result<Provision, ConfigError> {
    complete(&mut subscription.name, "subscriptions", project, &origin)?;
    complete(&mut subscription.topic, "topics", project, &origin)?;
    if let Some(DeadLetterPolicy { dead_letter_topic, .. }) = &mut subscription.dead_letter_policy {
        complete(dead_letter_topic, "topics", project, &origin)?;
    }
    Ok(provision.subscription_from(origin, subscription))
}

/// Turns an id into a full name in the file's project. Leaves an empty name: the broker reports
/// what it requires.
fn complete(
    name: &mut String,
    collection: &str,
    project: Option<&str>,
    origin: &str,
) -> Result<(), ConfigError> {
    if name.is_empty() || name.contains('/') {
        return Ok(());
    }
    let Some(project) = project else {
        return Err(ConfigError::NoProject { origin: origin.to_owned(), name: name.clone() });
    };
    *name = format!("projects/{project}/{collection}/{name}");
    Ok(())
}

#[cfg(test)]
mod tests {
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
                wrapper: Some(push_config::Wrapper::NoWrapper(push_config::NoWrapper {
                    write_metadata: true,
                })),
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
        for (file, text) in [("emulator.toml", toml), ("emulator.json", json)] {
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
        let expected =
            "emulator.toml:1: projects/demo/schemas/order: Invalid schema definition: it is empty.";
        assert_eq!(refusal.to_string(), expected);
    }

    #[test]
    fn rejects_unknown_fields_with_their_line() {
        let unknown =
            refusal("emulator.toml", "project = \"demo\"\n\n[[topics]]\nname = \"orders\"\nnmae = 1\n");
        assert!(unknown.starts_with("emulator.toml: TOML parse error at line 5"), "{unknown}");
        assert!(unknown.contains("unknown field `nmae`"), "{unknown}");
        let unknown = refusal("emulator.toml", "[faults]\nloose = 0.1\n");
        assert!(unknown.contains("line 2") && unknown.contains("`lose`"), "{unknown}");
        let unknown = refusal("emulator.json", "{\n\"topic\": []}");
        assert!(unknown.contains("unknown field `topic`") && unknown.contains("line 2"), "{unknown}");
        let list = refusal("emulator.json", "[]");
        assert_eq!(list, "emulator.json: an object is expected, as in {\"seed\": 7}");
        let wrong = refusal("emulator.toml", "[[subscriptions]]\nretryPolicy.minimumBackoff = \"soon\"\n");
        assert!(wrong.contains("line 2"), "{wrong}");
    }

    #[test]
    fn a_short_name_needs_a_project() {
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
}
