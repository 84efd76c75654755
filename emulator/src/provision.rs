//! The schemas, topics and subscriptions that an emulator starts with, given in code, in a short
//! form on a command line, or in a file.
//!
//! It creates what is missing and leaves what exists. The broker enforces the rules for resources.

use std::str::FromStr;

use tonic::Code;

use crate::broker::{Broker, Refusal, Time};
use crate::proto::pubsub::{CreateSchemaRequest, PushConfig, Schema, Subscription, Topic};

/// Schemas, topics and subscriptions to start with; none by default.
///
/// ```
/// use wakeq_emulator::proto::pubsub::{Subscription, Topic};
/// use wakeq_emulator::Provision;
///
/// let provision = Provision::default()
///     .topic(Topic { name: "projects/demo/topics/orders".into(), ..Topic::default() })
///     .subscription(Subscription {
///         name: "projects/demo/subscriptions/worker".into(),
///         topic: "projects/demo/topics/orders".into(),
///         ack_deadline_seconds: 30,
///         ..Subscription::default()
///     });
///
/// // The same but for the deadline, as it is written on a command line.
/// let short: Provision = "demo,orders:worker".parse().unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provision {
    schemas: Vec<Requested<Schema>>,
    topics: Vec<Requested<Topic>>,
    subscriptions: Vec<Requested<Subscription>>,
}

/// A resource, and where it was requested.
#[derive(Clone, Debug, PartialEq)]
struct Requested<T> {
    resource: T,
    origin: String,
}

/// How many resources were created, not counting those that existed already.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProvisionCounts {
    /// Schemas.
    pub schemas: usize,
    /// Topics.
    pub topics: usize,
    /// Subscriptions.
    pub subscriptions: usize,
}

/// The broker refused to create a resource. Those before it were created.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{origin}: {name}: {reason}")]
pub struct ProvisionError {
    /// Where the resource was requested: a file and line, a flag, or `Provision`.
    pub origin: String,
    /// The resource's name.
    pub name: String,
    /// The broker's message.
    pub reason: String,
}

/// A malformed short form.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ShortFormError {
    /// The form of a whole project.
    #[error(
        "`{0}` is not valid: write PROJECT,TOPIC,TOPIC:SUBSCRIPTION:SUBSCRIPTION,… as in \
         `demo,orders:worker:audit,bills`"
    )]
    Project(String),
    /// The form of a topic.
    #[error("`{0}` is not a topic: write projects/PROJECT/topics/TOPIC")]
    Topic(String),
    /// The form of a subscription.
    #[error(
        "`{0}` is not a subscription: write projects/PROJECT/subscriptions/SUBSCRIPTION=TOPIC, and ,URL to push"
    )]
    Subscription(String),
}

impl Provision {
    /// Adds a schema by its full name, type and definition.
    #[must_use]
    pub fn schema(self, schema: Schema) -> Self {
        self.schema_from("Provision", schema)
    }

    /// Adds a topic. Its schema is created first if it is part of this provision too.
    #[must_use]
    pub fn topic(self, topic: Topic) -> Self {
        self.topic_from("Provision", topic)
    }

    /// Adds a subscription. Its topic is created first if it is part of this provision too.
    #[must_use]
    pub fn subscription(self, subscription: Subscription) -> Self {
        self.subscription_from("Provision", subscription)
    }

    /// Adds everything from another provision.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.schemas.extend(other.schemas);
        self.topics.extend(other.topics);
        self.subscriptions.extend(other.subscriptions);
        self
    }

    /// Parses a topic's full name.
    ///
    /// # Errors
    ///
    /// If `text` does not have that form.
    pub fn parse_topic(text: &str) -> Result<Self, ShortFormError> {
        let name = full(text, "topics").ok_or_else(|| ShortFormError::Topic(text.to_owned()))?;
        Ok(Self::default().topic_from("--topic", bare_topic(name)))
    }

    /// Parses a subscription: `projects/PROJECT/subscriptions/SUBSCRIPTION=TOPIC`, followed by a
    /// comma and a URL for a push subscription. The topic, an id in the same project or a full
    /// name, is created if it is missing.
    ///
    /// ```
    /// use wakeq_emulator::Provision;
    ///
    /// Provision::parse_subscription("projects/demo/subscriptions/worker=orders").unwrap();
    /// Provision::parse_subscription("projects/demo/subscriptions/hook=orders,http://localhost:8080/push").unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If `text` does not have that form.
    pub fn parse_subscription(text: &str) -> Result<Self, ShortFormError> {
        let refused = || ShortFormError::Subscription(text.to_owned());
        let (name, rest) = text.split_once('=').ok_or_else(refused)?;
        let (topic, url) = match rest.split_once(',') {
            Some((topic, url)) => (topic, Some(url)),
            None => (rest, None),
        };
        let name = full(name, "subscriptions").ok_or_else(refused)?;
        let project = name.split('/').nth(1).unwrap_or_default();
        let topic = if topic.contains('/') {
            full(topic, "topics").ok_or_else(refused)?.to_owned()
        } else {
            id(topic).map(|topic| format!("projects/{project}/topics/{topic}")).ok_or_else(refused)?
        };
        let push_config = match url {
            Some("") => return Err(refused()),
            Some(url) => Some(PushConfig { push_endpoint: url.to_owned(), ..PushConfig::default() }),
            None => None,
        };
        let subscription = Subscription { push_config, ..bare_subscription(name, &topic) };
        Ok(Self::default()
            .topic_from("--subscription", bare_topic(&topic))
            .subscription_from("--subscription", subscription))
    }

    pub(crate) fn schema_from(mut self, origin: impl Into<String>, resource: Schema) -> Self {
        self.schemas.push(Requested { resource, origin: origin.into() });
        self
    }

    pub(crate) fn topic_from(mut self, origin: impl Into<String>, resource: Topic) -> Self {
        self.topics.push(Requested { resource, origin: origin.into() });
        self
    }

    pub(crate) fn subscription_from(mut self, origin: impl Into<String>, resource: Subscription) -> Self {
        self.subscriptions.push(Requested { resource, origin: origin.into() });
        self
    }

    /// Creates what is missing: schemas, then topics, then subscriptions.
    ///
    /// # Errors
    ///
    /// For the first resource that the broker refuses; those before it have been created.
    pub fn apply(&self, broker: &mut Broker, now: Time) -> Result<ProvisionCounts, ProvisionError> {
        let mut made = ProvisionCounts::default();
        for Requested { resource, origin } in &self.schemas {
            let answer = broker.create_schema(now, creation(resource)).map(drop);
            made.schemas += usize::from(is_new(answer, origin, &resource.name)?);
        }
        for Requested { resource, origin } in &self.topics {
            let answer = broker.create_topic(now, resource.clone()).map(drop);
            made.topics += usize::from(is_new(answer, origin, &resource.name)?);
        }
        for Requested { resource, origin } in &self.subscriptions {
            let answer = broker.create_subscription(now, resource.clone()).map(drop);
            made.subscriptions += usize::from(is_new(answer, origin, &resource.name)?);
        }
        Ok(made)
    }
}

/// Parses a project's topics with their subscriptions:
/// `PROJECT,TOPIC,TOPIC:SUBSCRIPTION:SUBSCRIPTION,…`, the format of `PUBSUB_PROJECT1` in the
/// popular images of Google's emulator.
impl FromStr for Provision {
    type Err = ShortFormError;

    fn from_str(text: &str) -> Result<Self, ShortFormError> {
        let refused = || ShortFormError::Project(text.to_owned());
        let mut parts = text.trim().split(',').map(str::trim);
        let project = parts.next().and_then(id).ok_or_else(refused)?;
        let mut provision = Self::default();
        for part in parts {
            let mut names = part.split(':').map(id);
            let topic = names.next().flatten().ok_or_else(refused)?;
            let topic = format!("projects/{project}/topics/{topic}");
            provision = provision.topic_from(text, bare_topic(&topic));
            for subscription in names {
                let subscription = subscription.ok_or_else(refused)?;
                let name = format!("projects/{project}/subscriptions/{subscription}");
                provision = provision.subscription_from(text, bare_subscription(&name, &topic));
            }
        }
        Ok(provision)
    }
}

/// The request for a schema. With a name of another form, the broker refuses it.
fn creation(schema: &Schema) -> CreateSchemaRequest {
    let (parent, id) = schema.name.split_once("/schemas/").unwrap_or((schema.name.as_str(), ""));
    CreateSchemaRequest { parent: parent.to_owned(), schema_id: id.to_owned(), schema: Some(schema.clone()) }
}

fn is_new(answer: Result<(), Refusal>, origin: &str, name: &str) -> Result<bool, ProvisionError> {
    match answer {
        Ok(()) => Ok(true),
        Err(refusal) if refusal.code == Code::AlreadyExists => Ok(false),
        Err(refusal) => Err(ProvisionError {
            origin: origin.to_owned(),
            name: if name.is_empty() { "a resource without a name".to_owned() } else { name.to_owned() },
            reason: refusal.message,
        }),
    }
}

fn bare_topic(name: &str) -> Topic {
    Topic { name: name.to_owned(), ..Topic::default() }
}

fn bare_subscription(name: &str, topic: &str) -> Subscription {
    Subscription { name: name.to_owned(), topic: topic.to_owned(), ..Subscription::default() }
}

/// A bare id; the broker checks its details.
fn id(text: &str) -> Option<&str> {
    (!text.is_empty() && !text.contains(['/', '=', ',', ':', ' '])).then_some(text)
}

/// Checks for the form `projects/PROJECT/COLLECTION/ID`.
fn full<'a>(name: &'a str, collection: &str) -> Option<&'a str> {
    let parts: Vec<&str> = name.split('/').collect();
    let [projects, project, kind, resource] = parts[..] else { return None };
    // Project ids may be prefixed with a domain and a colon.
    let sound = projects == "projects" && kind == collection && !project.is_empty();
    (sound && id(resource).is_some()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn names(provision: &Provision) -> (Vec<&str>, Vec<(&str, &str)>) {
        let topics = provision.topics.iter().map(|requested| requested.resource.name.as_str()).collect();
        let subscriptions = provision
            .subscriptions
            .iter()
            .map(|requested| (requested.resource.name.as_str(), requested.resource.topic.as_str()))
            .collect();
        (topics, subscriptions)
    }

    #[test]
    fn a_project_is_read_as_the_popular_images_read_it() {
        let provision: Provision = "demo,orders:worker:audit, bills".parse().unwrap();
        let orders = "projects/demo/topics/orders";
        assert_eq!(
            names(&provision),
            (
                vec![orders, "projects/demo/topics/bills"],
                vec![
                    ("projects/demo/subscriptions/worker", orders),
                    ("projects/demo/subscriptions/audit", orders)
                ]
            )
        );
        assert_eq!("demo".parse(), Ok(Provision::default()));
    }

    #[test]
    fn rejects_invalid_short_forms() {
        for text in ["", ",orders", "demo,", "demo,orders:", "demo,:worker", "demo,a/b"] {
            let error = text.parse::<Provision>().unwrap_err();
            assert_eq!(error, ShortFormError::Project(text.into()));
        }
        for text in ["orders", "projects/demo/topics/", "projects/demo/subscriptions/a", "projects//topics/a"]
        {
            assert_eq!(Provision::parse_topic(text), Err(ShortFormError::Topic(text.into())));
        }
        for text in [
            "projects/demo/subscriptions/worker",
            "worker=orders",
            "projects/demo/subscriptions/worker=",
            "projects/demo/subscriptions/worker=projects/demo/orders",
            "projects/demo/subscriptions/worker=orders,",
        ] {
            let error = Provision::parse_subscription(text).unwrap_err();
            assert_eq!(error, ShortFormError::Subscription(text.into()));
        }
    }

    #[test]
    fn a_subscription_brings_its_topic_and_where_it_pushes() {
        let name = "projects/demo/subscriptions/hook";
        for topic in ["orders", "projects/demo/topics/orders"] {
            let text = format!("{name}={topic},http://localhost:8080/push?a=b,c");
            let provision = Provision::parse_subscription(&text).unwrap();
            let topic = "projects/demo/topics/orders";
            assert_eq!(names(&provision), (vec![topic], vec![(name, topic)]));
            let push = provision.subscriptions[0].resource.push_config.clone().unwrap();
            assert_eq!(push.push_endpoint, "http://localhost:8080/push?a=b,c");
        }
    }
}
