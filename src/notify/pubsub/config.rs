//! The names of the topic and the subscription, and the client's periods and limits.
//!
//! Only [`PubSubConfig::from_environment`] reads the environment, and only when it is called.

use std::time::Duration;

use crate::notify::NotifyError;

/// The project that an emulator is given if none is set: any valid name will do.
pub const DEVELOPMENT_PROJECT: &str = "wakeq-dev";

/// Which topic and subscription carry the notifications, and how the client behaves.
///
/// ```
/// use wakeq::notify::PubSubConfig;
///
/// let mut config = PubSubConfig::new("my-project");
/// config.emulator_host = std::env::var("PUBSUB_EMULATOR_HOST").ok();
/// config.create_missing = config.emulator_host.is_some();
/// config.check().unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct PubSubConfig {
    /// The Google Cloud project. With an emulator any valid name will do. No default.
    pub project: String,
    /// The topic's id, without its project. Default `wakeq`.
    pub topic: String,
    /// The id of the subscription that all workers share, without its project. Default `wakeq`.
    pub subscription: String,
    /// The id of a second subscription that all workers share, which gets urgent notifications
    /// alone, so that they do not wait behind others. Its filter, and that of the first one, are
    /// those of [`create_topics`](crate::notify::create_topics). Default none: urgent notifications
    /// come over the first one, in their order.
    pub urgent_subscription: Option<String>,
    /// The id of the topic on which every emitted event is also broadcast, for listeners, such as
    /// `wakeq-broadcast`. Default none: nothing is broadcast.
    pub broadcast_topic: Option<String>,
    /// `host:port` of an emulator, which is used in plain text and without credentials. Default
    /// none: Google's service, with the application default credentials.
    pub emulator_host: Option<String>,
    /// Where a subscription that is created pushes to, and with whose token. Default none: workers
    /// pull from it.
    pub push: Option<PushSettings>,
    /// Whether to create the topic and the subscription when they are missing, for development.
    /// Otherwise their absence is reported, and receiving resumes once they exist. Default false.
    pub create_missing: bool,
    /// The time limit of one publish, including the client's retries. Longer than 0, default 5 s.
    pub publish_timeout: Duration,
    /// How long the client keeps an unanswered delivery. Default 1 h.
    pub max_lease: Duration,
    /// By how much a lease is extended at a time, and so how long it takes until the deliveries of
    /// a dead process go to another. 10 s to 600 s, default 60 s. At most 10 s with an emulator:
    /// Google's keeps sending messages to closed streams, where they are stuck for a lease.
    pub lease_extension: Duration,
    /// How often an open subscription is checked by a small separate request, because the client's
    /// stream does not distinguish an idle broker from an unreachable one. Longer than 0, default
    /// 15 s; at most 1 s with an emulator.
    pub check_period: Duration,
    /// The longest pause between two attempts to subscribe again. Default 5 s.
    pub longest_back_off: Duration,
}

/// The notifications that a subscription gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// All, or those that are not urgent if there is another subscription for urgent ones.
    Ordinary,
    Urgent,
}

/// How a push subscription reaches the service.
///
/// ```
/// let push = wakeq::notify::PushSettings {
///     endpoint: "https://queue.example/v1/push".into(),
///     audience: "my-project/wakeq/push".into(),
///     account: "wakeq-invoker@my-project.iam.gserviceaccount.com".into(),
/// };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushSettings {
    /// The URL of the service's `/v1/push`.
    pub endpoint: String,
    /// The audience of the tokens: what the service has in WAKEQ_PUSH_AUDIENCE.
    pub audience: String,
    /// The service account of the tokens: one of the service's WAKEQ_PUSH_ACCOUNTS.
    pub account: String,
}

impl PubSubConfig {
    /// The default configuration for a project.
    pub fn new(project: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            topic: "wakeq".to_owned(),
            subscription: "wakeq".to_owned(),
            urgent_subscription: None,
            broadcast_topic: None,
            emulator_host: None,
            push: None,
            create_missing: false,
            publish_timeout: Duration::from_secs(5),
            max_lease: Duration::from_secs(60 * 60),
            lease_extension: Duration::from_secs(60),
            check_period: Duration::from_secs(15),
            longest_back_off: Duration::from_secs(5),
        }
    }

    /// The configuration from the environment: `GOOGLE_CLOUD_PROJECT`, which is optional with an
    /// emulator, `PUBSUB_EMULATOR_HOST`, `WAKEQ_TOPIC`, `WAKEQ_SUBSCRIPTION` and
    /// `WAKEQ_URGENT_SUBSCRIPTION`, `WAKEQ_BROADCAST` and `WAKEQ_BROADCAST_TOPIC`. A variable that
    /// is not set has its default.
    ///
    /// ```no_run
    /// # async fn connect() -> Result<wakeq::notify::PubSub, wakeq::notify::NotifyError> {
    /// wakeq::notify::PubSub::connect(wakeq::notify::PubSubConfig::from_environment()?).await
    /// # }
    /// ```
    pub fn from_environment() -> Result<Self, NotifyError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, NotifyError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let emulator_host = set("PUBSUB_EMULATOR_HOST");
        let project = match (set("GOOGLE_CLOUD_PROJECT"), &emulator_host) {
            (Some(project), _) => project,
            (None, Some(_)) => DEVELOPMENT_PROJECT.to_owned(),
            (None, None) => {
                return Err(NotifyError::new(
                    "GOOGLE_CLOUD_PROJECT is not set: set it to your project, or PUBSUB_EMULATOR_HOST to the host:port of \
                     an emulator",
                ));
            }
        };
        let defaults = Self::new(project);
        let topic = set("WAKEQ_TOPIC").unwrap_or_else(|| defaults.topic.clone());
        let broadcasts = match set("WAKEQ_BROADCAST").as_deref() {
            Some("1" | "true" | "yes" | "on") => true,
            None | Some("0" | "false" | "no" | "off") => false,
            Some(_) => return Err(NotifyError::new("WAKEQ_BROADCAST is 1, to broadcast events, or 0")),
        };
        let broadcast_topic =
            set("WAKEQ_BROADCAST_TOPIC").unwrap_or_else(|| Self::broadcast_topic_of(&topic));
        Ok(Self {
            topic,
            broadcast_topic: broadcasts.then_some(broadcast_topic),
            subscription: set("WAKEQ_SUBSCRIPTION").unwrap_or_else(|| defaults.subscription.clone()),
            urgent_subscription: set("WAKEQ_URGENT_SUBSCRIPTION"),
            emulator_host,
            ..defaults
        })
    }

    /// The default id of the topic of broadcasts: that of the topic, followed by `-broadcast`.
    ///
    /// ```
    /// assert_eq!(wakeq::notify::PubSubConfig::broadcast_topic_of("wakeq"), "wakeq-broadcast");
    /// ```
    pub fn broadcast_topic_of(topic: &str) -> String {
        format!("{topic}-broadcast")
    }

    /// Refuses what Pub/Sub would refuse later, with what to change.
    pub fn check(&self) -> Result<(), NotifyError> {
        check_project(&self.project)?;
        check_id("topic", &self.topic)?;
        check_id("subscription", &self.subscription)?;
        if let Some(urgent) = &self.urgent_subscription {
            check_id("subscription", urgent)?;
            if *urgent == self.subscription {
                return Err(NotifyError::new(format!(
                    "the subscription {urgent} is that of ordinary notifications: urgent ones need another \
                     (WAKEQ_URGENT_SUBSCRIPTION), or none"
                )));
            }
        }
        if let Some(topic) = &self.broadcast_topic {
            check_id("topic", topic)?;
            if *topic == self.topic {
                return Err(NotifyError::new(format!(
                    "the topic {topic} is that of notifications: broadcasts need another (WAKEQ_BROADCAST_TOPIC)"
                )));
            }
        }
        if let Some(host) = &self.emulator_host
            && (host.contains("://") || host.contains('/') || host.rsplit_once(':').is_none())
        {
            return Err(NotifyError::new(format!(
                "the emulator's host {host:?} is not of the form host:port; set PUBSUB_EMULATOR_HOST to, for example, localhost:8085"
            )));
        }
        if self.publish_timeout.is_zero() || self.check_period.is_zero() {
            return Err(NotifyError::new("publish_timeout and check_period must be longer than zero"));
        }
        let extension_s = self.lease_extension.as_secs();
        if !(10..=600).contains(&extension_s) {
            return Err(NotifyError::new(format!(
                "lease_extension is {extension_s} s; Pub/Sub allows 10 s to 600 s"
            )));
        }
        Ok(())
    }

    pub(super) fn topic_path(&self) -> String {
        format!("projects/{}/topics/{}", self.project, self.topic)
    }

    pub(super) fn broadcast_path(&self) -> Option<String> {
        self.broadcast_topic.as_ref().map(|topic| format!("projects/{}/topics/{topic}", self.project))
    }

    /// The classes that have a subscription.
    pub(super) fn classes(&self) -> impl Iterator<Item = Class> {
        let urgent = self.urgent_subscription.is_some().then_some(Class::Urgent);
        std::iter::once(Class::Ordinary).chain(urgent)
    }

    /// The full name of the subscription of this class. The ordinary one stands for an urgent one
    /// that is not configured.
    pub(super) fn subscription_path(&self, class: Class) -> String {
        let urgent = self.urgent_subscription.as_ref().filter(|_| class == Class::Urgent);
        format!("projects/{}/subscriptions/{}", self.project, urgent.unwrap_or(&self.subscription))
    }

    /// The filter that the subscription of this class needs, in Pub/Sub's syntax; empty for none.
    pub(super) fn filter(&self, class: Class) -> &'static str {
        match (class, &self.urgent_subscription) {
            (_, None) => "",
            (Class::Ordinary, Some(_)) => r#"NOT attributes.urgent = "true""#,
            (Class::Urgent, Some(_)) => r#"attributes.urgent = "true""#,
        }
    }

    pub(super) fn endpoint(&self) -> Option<String> {
        self.emulator_host.as_ref().map(|host| format!("http://{host}"))
    }

    pub(super) fn effective_lease_extension(&self) -> Duration {
        match self.emulator_host {
            Some(_) => self.lease_extension.min(Duration::from_secs(10)),
            None => self.lease_extension,
        }
    }

    pub(super) fn effective_check_period(&self) -> Duration {
        match self.emulator_host {
            Some(_) => self.check_period.min(Duration::from_secs(1)),
            None => self.check_period,
        }
    }
}

fn check_project(project: &str) -> Result<(), NotifyError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-.:_".contains(c);
    if project.is_empty() || project.len() > 100 || !project.chars().all(allowed) {
        return Err(NotifyError::new(format!("{project:?} is not the id of a Google Cloud project")));
    }
    Ok(())
}

fn check_id(kind: &str, id: &str) -> Result<(), NotifyError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.~+%".contains(c);
    let starts_well = id.starts_with(|c: char| c.is_ascii_alphabetic()) && !id.starts_with("goog");
    if !(3..=255).contains(&id.len()) || !starts_well || !id.chars().all(allowed) {
        return Err(NotifyError::new(format!(
            "{id:?} is not a valid {kind} id: use 3 to 255 letters, digits and -_.~+%, beginning \
             with a letter, not with \"goog\""
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        PubSubConfig::new("local").check().unwrap();
    }

    #[test]
    fn the_environment_is_read_as_google_s_tools_read_it() {
        let read = |variables: &[(&str, &str)]| {
            PubSubConfig::from_variables(|name| {
                variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let missing = read(&[("GOOGLE_CLOUD_PROJECT", "")]).unwrap_err().to_string();
        assert!(missing.contains("GOOGLE_CLOUD_PROJECT is not set"), "{missing}");
        let emulator = read(&[("PUBSUB_EMULATOR_HOST", "localhost:8085")]).unwrap();
        assert_eq!(emulator.project, DEVELOPMENT_PROJECT);
        assert_eq!(emulator.emulator_host.as_deref(), Some("localhost:8085"));
        let real = read(&[("GOOGLE_CLOUD_PROJECT", "shop"), ("WAKEQ_TOPIC", "orders")]).unwrap();
        assert_eq!(real.topic_path(), "projects/shop/topics/orders");
        assert_eq!(real.subscription_path(Class::Ordinary), "projects/shop/subscriptions/wakeq");
        assert_eq!((real.urgent_subscription.as_deref(), real.filter(Class::Ordinary)), (None, ""));
        let urgent = [("GOOGLE_CLOUD_PROJECT", "shop"), ("WAKEQ_URGENT_SUBSCRIPTION", "fast")];
        let urgent = read(&urgent).unwrap();
        assert_eq!(urgent.subscription_path(Class::Urgent), "projects/shop/subscriptions/fast");
        assert_eq!(urgent.subscription_path(Class::Ordinary), "projects/shop/subscriptions/wakeq");
        assert_ne!(urgent.filter(Class::Urgent), urgent.filter(Class::Ordinary));
        assert_eq!((real.emulator_host.as_deref(), real.broadcast_path()), (None, None));
        let broadcasts = |variables: &[(&str, &str)]| read(variables).unwrap().broadcast_path();
        let (project, on) = (("GOOGLE_CLOUD_PROJECT", "shop"), ("WAKEQ_BROADCAST", "1"));
        assert_eq!(broadcasts(&[project, on]).as_deref(), Some("projects/shop/topics/wakeq-broadcast"));
        let named = broadcasts(&[project, on, ("WAKEQ_BROADCAST_TOPIC", "heard")]);
        assert_eq!(named.as_deref(), Some("projects/shop/topics/heard"));
        assert_eq!(
            broadcasts(&[project, ("WAKEQ_BROADCAST_TOPIC", "heard")]),
            None,
            "a name alone is not on"
        );
        assert!(read(&[project, ("WAKEQ_BROADCAST", "maybe")]).is_err());
    }

    #[test]
    fn bad_ids_and_hosts_are_refused_with_words() {
        let refused = |change: fn(&mut PubSubConfig), expected: &str| {
            let mut config = PubSubConfig::new("local");
            change(&mut config);
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused(|config| config.topic = "ab".into(), "topic id");
        refused(|config| config.subscription = "goog-things".into(), "subscription id");
        refused(|config| config.topic = "projects/p/topics/t".into(), "topic id");
        refused(|config| config.project = String::new(), "project");
        refused(|config| config.emulator_host = Some("http://localhost:8085".into()), "host:port");
        refused(|config| config.lease_extension = Duration::from_secs(5), "10 s to 600 s");
        refused(|config| config.publish_timeout = Duration::ZERO, "longer than zero");
        refused(|config| config.broadcast_topic = Some("wakeq".into()), "another");
        refused(|config| config.broadcast_topic = Some("a/b".into()), "topic id");
        refused(|config| config.urgent_subscription = Some("wakeq".into()), "another");
        refused(|config| config.urgent_subscription = Some("a/b".into()), "subscription id");
    }
}
