//! Creates the topic and the subscription, and compares existing ones with what the queue needs.
//!
//! It never changes or deletes anything that exists: it reports how to fix it.

use std::time::Duration;

use google_cloud_gax::options::RequestOptionsBuilder;
use google_cloud_pubsub::Error;
use google_cloud_pubsub::model::Subscription;

use super::clients::{self, Admins};
use super::config::{Class, PubSubConfig};
use super::failure::{FailureKind, failed};
use super::settings::{SettingDifference, differences, push_endpoint, wanted_subscription};
use crate::notify::NotifyError;

/// The time limit of one request of this module.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// What [`create_topics`] or [`describe_topics`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicsReport {
    /// The topic's full name.
    pub topic: String,
    /// The state of the topic.
    pub topic_state: TopicState,
    /// The subscription's full name.
    pub subscription: String,
    /// The state of the subscription.
    pub subscription_state: TopicState,
    /// Where the subscription pushes to, if it is a push subscription.
    pub push_endpoint: Option<String>,
    /// Settings of the existing subscription that differ from what the queue needs.
    pub differences: Vec<SettingDifference>,
    /// The subscription to urgent notifications; `None` if none is configured.
    pub urgent: Option<SubscriptionReport>,
    /// The full name of the topic of broadcasts, and its state; `None` if nothing is broadcast.
    pub broadcast_topic: Option<(String, TopicState)>,
}

/// What was found of the subscription to urgent notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionReport {
    /// Its full name.
    pub name: String,
    /// Its state.
    pub state: TopicState,
    /// Where it pushes to, if it is a push subscription.
    pub push_endpoint: Option<String>,
    /// Settings that differ from what the queue needs.
    pub differences: Vec<SettingDifference>,
}

/// Whether a topic or a subscription exists, and whether it did before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicState {
    /// It did not exist and was created.
    Created,
    /// It existed before.
    AlreadyThere,
    /// It does not exist.
    Missing,
    /// Not known: this account may not look at it. Publishing does not need that.
    Unknown,
}

/// Creates the topic and the subscription with the settings that the queue needs, or compares the
/// existing ones.
///
/// ```no_run
/// # async fn create() -> Result<(), wakeq::notify::NotifyError> {
/// let config = wakeq::notify::PubSubConfig::new("my-project");
/// let report = wakeq::notify::create_topics(&config).await?;
/// assert!(report.differences.is_empty(), "{:?}", report.differences);
/// # Ok(())
/// # }
/// ```
pub async fn create_topics(config: &PubSubConfig) -> Result<TopicsReport, NotifyError> {
    config.check()?;
    create_with(&clients::admins(config).await?, config).await
}

/// Describes the topic and the subscription without creating anything.
///
/// ```no_run
/// # async fn describe() -> Result<(), wakeq::notify::NotifyError> {
/// let config = wakeq::notify::PubSubConfig::new("my-project");
/// let report = wakeq::notify::describe_topics(&config).await?;
/// report.differences.iter().for_each(|difference| tracing::warn!(%difference));
/// # Ok(())
/// # }
/// ```
pub async fn describe_topics(config: &PubSubConfig) -> Result<TopicsReport, NotifyError> {
    config.check()?;
    let admins = clients::admins(config).await?;
    let topic = config.topic_path();
    let topic_state = find_topic(&admins, config, &topic).await?;
    let broadcast_topic = match config.broadcast_path() {
        Some(topic) => Some((topic.clone(), find_topic(&admins, config, &topic).await?)),
        None => None,
    };
    let ordinary = describe_subscription(&admins, config, Class::Ordinary).await?;
    let urgent = match config.urgent_subscription {
        Some(_) => Some(describe_subscription(&admins, config, Class::Urgent).await?),
        None => None,
    };
    Ok(report((topic, topic_state), ordinary, urgent, broadcast_topic))
}

fn report(
    (topic, topic_state): (String, TopicState),
    ordinary: SubscriptionReport,
    urgent: Option<SubscriptionReport>,
    broadcast_topic: Option<(String, TopicState)>,
) -> TopicsReport {
    TopicsReport {
        topic,
        topic_state,
        subscription: ordinary.name,
        subscription_state: ordinary.state,
        push_endpoint: ordinary.push_endpoint,
        differences: ordinary.differences,
        urgent,
        broadcast_topic,
    }
}

async fn describe_subscription(
    admins: &Admins,
    config: &PubSubConfig,
    class: Class,
) -> Result<SubscriptionReport, NotifyError> {
    let name = config.subscription_path(class);
    match find_subscription(admins, config, class).await {
        Ok(found) => {
            let push_endpoint = push_endpoint(&found).map(str::to_owned);
            let differences = differences(&found, config, class);
            Ok(SubscriptionReport { name, state: TopicState::AlreadyThere, push_endpoint, differences })
        }
        Err(error) if FailureKind::of(&error) == FailureKind::Missing => Ok(SubscriptionReport {
            name,
            state: TopicState::Missing,
            push_endpoint: None,
            differences: Vec::new(),
        }),
        Err(error) => Err(failed(&name, config, error)),
    }
}

/// Whether the topic exists. An account that may publish need not be allowed to see it: that is not
/// an error.
pub(super) async fn check_topic(admins: &Admins, config: &PubSubConfig) -> Result<(), NotifyError> {
    let topic = config.topic_path();
    let request = admins.topics.get_topic().set_topic(topic.clone()).with_attempt_timeout(REQUEST_TIMEOUT);
    match request.send().await {
        Ok(_) => Ok(()),
        Err(error) if FailureKind::of(&error) == FailureKind::Denied => Ok(()),
        Err(error) => Err(failed(&topic, config, error)),
    }
}

/// Whether the subscription exists, and is one of the topic. An account that may consume need not
/// be allowed to see it: that is not an error.
pub(super) async fn check_subscription(
    admins: &Admins,
    config: &PubSubConfig,
    class: Class,
) -> Result<(), NotifyError> {
    let (subscription, topic) = (config.subscription_path(class), config.topic_path());
    match find_subscription(admins, config, class).await {
        Ok(found) if found.topic == topic => Ok(()),
        Ok(found) => {
            let what = format!(
                "{subscription} is one of {}, and not of {topic}, so it receives nothing: delete it, and create it \
                 anew with `wakeq topics create`",
                found.topic
            );
            Err(NotifyError { what, source: None })
        }
        Err(error) if FailureKind::of(&error) == FailureKind::Denied => Ok(()),
        Err(error) => Err(failed(&subscription, config, error)),
    }
}

/// Like [`create_topics`], with existing clients.
pub(super) async fn create_with(admins: &Admins, config: &PubSubConfig) -> Result<TopicsReport, NotifyError> {
    let topic = config.topic_path();
    let topic_state = create_topic(admins, config, &topic).await?;
    let broadcast_topic = match config.broadcast_path() {
        Some(topic) => Some((topic.clone(), create_topic(admins, config, &topic).await?)),
        None => None,
    };
    // The urgent one first: without it, the filter of the other would lose what is urgent.
    let urgent = match config.urgent_subscription {
        Some(_) => Some(create_subscription(admins, config, Class::Urgent).await?),
        None => None,
    };
    let ordinary = create_subscription(admins, config, Class::Ordinary).await?;
    Ok(report((topic, topic_state), ordinary, urgent, broadcast_topic))
}

async fn create_subscription(
    admins: &Admins,
    config: &PubSubConfig,
    class: Class,
) -> Result<SubscriptionReport, NotifyError> {
    let name = config.subscription_path(class);
    let wanted = wanted_subscription(config, class)?;
    let request =
        admins.subscriptions.create_subscription().with_request(wanted).with_attempt_timeout(REQUEST_TIMEOUT);
    let state = made(request.send().await, &name, config)?;
    if state == TopicState::AlreadyThere {
        return describe_subscription(admins, config, class).await;
    }
    let push_endpoint = config.push.as_ref().map(|push| push.endpoint.clone());
    Ok(SubscriptionReport { name, state, push_endpoint, differences: Vec::new() })
}

/// The state of a topic. An account that may publish need not be allowed to see it.
async fn find_topic(admins: &Admins, config: &PubSubConfig, topic: &str) -> Result<TopicState, NotifyError> {
    let request = admins.topics.get_topic().set_topic(topic).with_attempt_timeout(REQUEST_TIMEOUT);
    match request.send().await {
        Ok(_) => Ok(TopicState::AlreadyThere),
        Err(error) => match FailureKind::of(&error) {
            FailureKind::Missing => Ok(TopicState::Missing),
            FailureKind::Denied => Ok(TopicState::Unknown),
            FailureKind::AlreadyThere | FailureKind::Unreachable | FailureKind::Other => {
                Err(failed(topic, config, error))
            }
        },
    }
}

/// Creates a topic, or finds that it exists.
pub(super) async fn create_topic(
    admins: &Admins,
    config: &PubSubConfig,
    topic: &str,
) -> Result<TopicState, NotifyError> {
    let request = admins.topics.create_topic().set_name(topic).with_attempt_timeout(REQUEST_TIMEOUT);
    made(request.send().await, topic, config)
}

/// The subscription as it is now.
pub(super) async fn find_subscription(
    admins: &Admins,
    config: &PubSubConfig,
    class: Class,
) -> Result<Subscription, Error> {
    let request = admins.subscriptions.get_subscription().set_subscription(config.subscription_path(class));
    request.with_attempt_timeout(REQUEST_TIMEOUT).send().await
}

fn made<T>(answer: Result<T, Error>, name: &str, config: &PubSubConfig) -> Result<TopicState, NotifyError> {
    match answer {
        Ok(_) => Ok(TopicState::Created),
        Err(error) if FailureKind::of(&error) == FailureKind::AlreadyThere => Ok(TopicState::AlreadyThere),
        Err(error) => Err(failed(name, config, error)),
    }
}
