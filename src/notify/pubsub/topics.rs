//! Creates the topic and the subscription, and compares what exists with what the queue wants.
//!
//! It never changes or deletes anything that exists: it says how to mend it.

use std::fmt;
use std::time::Duration;

use google_cloud_gax::options::RequestOptionsBuilder;
use google_cloud_pubsub::Error;
use google_cloud_pubsub::model::{ExpirationPolicy, RetryPolicy, Subscription};

use super::clients::{self, Admins};
use super::config::PubSubConfig;
use super::failure::{FailureKind, failed};
use crate::notify::NotifyError;

const SHORTEST_RETRY_S: u64 = 10;
const LONGEST_RETRY_S: u64 = 600;
const RETENTION_S: u64 = 7 * 24 * 60 * 60;

/// Longer than any pause of a healthy client between two extensions, and as long as a claim's lease, so that a dead
/// process's event and its notification become free together. A stream sets its own (`lease_extension`).
const ACK_DEADLINE_S: i32 = 60;

/// How long one request of this module may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// What [`create_topics`] or [`describe_topics`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicsReport {
    /// The topic's full name.
    pub topic: String,
    /// What became of the topic.
    pub topic_state: TopicState,
    /// The subscription's full name.
    pub subscription: String,
    /// What became of the subscription.
    pub subscription_state: TopicState,
    /// Settings of the existing subscription that are not as the queue wants them.
    pub differences: Vec<SettingDifference>,
}

/// Whether a topic or subscription exists, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicState {
    /// It did not exist and was created.
    Created,
    /// It existed before.
    AlreadyThere,
    /// It does not exist.
    Missing,
}

/// A setting that differs from the wanted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingDifference {
    /// The setting's name.
    pub setting: &'static str,
    /// Its value now.
    pub found: String,
    /// The value the queue wants.
    pub wanted: String,
    /// The command that mends it, or what else to do.
    pub mend: String,
}

impl fmt::Display for SettingDifference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is {}, wanted {}: {}", self.setting, self.found, self.wanted, self.mend)
    }
}

/// Creates the topic and the subscription with the settings of the queue, or finds them there and compares.
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

/// Looks at the topic and the subscription without creating anything.
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
    let topic_request =
        admins.topics.get_topic().set_topic(topic.clone()).with_attempt_timeout(REQUEST_TIMEOUT);
    let topic_state = match topic_request.send().await {
        Ok(_) => TopicState::AlreadyThere,
        Err(error) if FailureKind::of(&error) == FailureKind::Missing => TopicState::Missing,
        Err(error) => return Err(failed(&topic, config, error)),
    };
    let subscription = config.subscription_path();
    let (subscription_state, differences) = match find_subscription(&admins, config).await {
        Ok(found) => (TopicState::AlreadyThere, differences(&found, config)),
        Err(error) if FailureKind::of(&error) == FailureKind::Missing => (TopicState::Missing, Vec::new()),
        Err(error) => return Err(failed(&subscription, config, error)),
    };
    Ok(TopicsReport { topic, topic_state, subscription, subscription_state, differences })
}

/// Whether the topic is there. Who may publish need not be allowed to look: that is no fault.
pub(super) async fn check_topic(admins: &Admins, config: &PubSubConfig) -> Result<(), NotifyError> {
    let topic = config.topic_path();
    let request = admins.topics.get_topic().set_topic(topic.clone()).with_attempt_timeout(REQUEST_TIMEOUT);
    match request.send().await {
        Ok(_) => Ok(()),
        Err(error) if FailureKind::of(&error) == FailureKind::Denied => Ok(()),
        Err(error) => Err(failed(&topic, config, error)),
    }
}

/// As [`create_topics`], with clients that exist already.
pub(super) async fn create_with(admins: &Admins, config: &PubSubConfig) -> Result<TopicsReport, NotifyError> {
    let topic = config.topic_path();
    let topic_request =
        admins.topics.create_topic().set_name(topic.clone()).with_attempt_timeout(REQUEST_TIMEOUT);
    let topic_state = made(topic_request.send().await, &topic, config)?;
    let subscription = config.subscription_path();
    let wanted = wanted_subscription(config)?;
    let request =
        admins.subscriptions.create_subscription().with_request(wanted).with_attempt_timeout(REQUEST_TIMEOUT);
    let subscription_state = made(request.send().await, &subscription, config)?;
    let differences = match subscription_state {
        TopicState::Created | TopicState::Missing => Vec::new(),
        TopicState::AlreadyThere => {
            let found =
                find_subscription(admins, config).await.map_err(|e| failed(&subscription, config, e))?;
            differences(&found, config)
        }
    };
    Ok(TopicsReport { topic, topic_state, subscription, subscription_state, differences })
}

/// The subscription as it is now.
pub(super) async fn find_subscription(admins: &Admins, config: &PubSubConfig) -> Result<Subscription, Error> {
    let request = admins.subscriptions.get_subscription().set_subscription(config.subscription_path());
    request.with_attempt_timeout(REQUEST_TIMEOUT).send().await
}

fn made<T>(answer: Result<T, Error>, name: &str, config: &PubSubConfig) -> Result<TopicState, NotifyError> {
    match answer {
        Ok(_) => Ok(TopicState::Created),
        Err(error) if FailureKind::of(&error) == FailureKind::AlreadyThere => Ok(TopicState::AlreadyThere),
        Err(error) => Err(failed(name, config, error)),
    }
}

/// No dead-letter policy: retries are counted in the event's row. No order: the row decides. Never expires.
fn wanted_subscription(config: &PubSubConfig) -> Result<Subscription, NotifyError> {
    let unfit = |_| NotifyError::new("a setting of the subscription is out of the range of a duration");
    let mut retry = RetryPolicy::new();
    retry.minimum_backoff = Some(Duration::from_secs(SHORTEST_RETRY_S).try_into().map_err(unfit)?);
    retry.maximum_backoff = Some(Duration::from_secs(LONGEST_RETRY_S).try_into().map_err(unfit)?);
    let mut wanted = Subscription::new()
        .set_name(config.subscription_path())
        .set_topic(config.topic_path())
        .set_ack_deadline_seconds(ACK_DEADLINE_S)
        .set_expiration_policy(ExpirationPolicy::new())
        .set_retry_policy(retry);
    wanted.message_retention_duration = Some(Duration::from_secs(RETENTION_S).try_into().map_err(unfit)?);
    Ok(wanted)
}

fn differences(found: &Subscription, config: &PubSubConfig) -> Vec<SettingDifference> {
    let name = &found.name;
    let update = |flags: String| format!("gcloud pubsub subscriptions update {name} {flags}");
    let recreate = || format!("gcloud pubsub subscriptions delete {name}, then `wakeq topics create`");
    let seconds =
        |duration: Option<i64>| duration.map_or("unset".to_owned(), |seconds| format!("{seconds} s"));
    let retry = found.retry_policy.as_ref();
    let shortest = retry.and_then(|policy| policy.minimum_backoff.as_ref()).map(|backoff| backoff.seconds());
    let longest = retry.and_then(|policy| policy.maximum_backoff.as_ref()).map(|backoff| backoff.seconds());
    let retention = found.message_retention_duration.as_ref().map(|retention| retention.seconds());
    let ttl = found.expiration_policy.as_ref().map(|policy| policy.ttl.as_ref().map(|ttl| ttl.seconds()));
    let yes_no = |yes: bool| if yes { "on" } else { "off" }.to_owned();
    let compared = [
        ("topic", found.topic.clone(), config.topic_path(), recreate()),
        (
            "retry policy",
            format!("{} to {}", seconds(shortest), seconds(longest)),
            format!("{SHORTEST_RETRY_S} s to {LONGEST_RETRY_S} s"),
            update(format!("--min-retry-delay={SHORTEST_RETRY_S}s --max-retry-delay={LONGEST_RETRY_S}s")),
        ),
        (
            "retention",
            seconds(retention),
            seconds(Some(RETENTION_S as i64)),
            update(format!("--message-retention-duration={RETENTION_S}s")),
        ),
        (
            "expiration",
            ttl.map_or("after 31 days".to_owned(), |ttl| {
                ttl.map_or("never".to_owned(), |ttl| seconds(Some(ttl)))
            }),
            "never".to_owned(),
            update("--expiration-period=never".to_owned()),
        ),
        (
            "ack deadline",
            format!("{} s", found.ack_deadline_seconds),
            format!("{ACK_DEADLINE_S} s"),
            update(format!("--ack-deadline={ACK_DEADLINE_S}")),
        ),
        (
            "dead-letter policy",
            yes_no(found.dead_letter_policy.is_some()),
            yes_no(false),
            update("--clear-dead-letter-policy".to_owned()),
        ),
        ("order", yes_no(found.enable_message_ordering), yes_no(false), recreate()),
        ("push", yes_no(is_push(found)), yes_no(false), update("--push-endpoint=\"\"".to_owned())),
        ("filter", or_none(&found.filter), or_none(""), recreate()),
        ("export", yes_no(is_export(found)), yes_no(false), recreate()),
        ("detached", yes_no(found.detached), yes_no(false), recreate()),
    ];
    compared
        .into_iter()
        .filter(|(_, found, wanted, _)| found != wanted)
        .map(|(setting, found, wanted, mend)| SettingDifference { setting, found, wanted, mend })
        .collect()
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "none".to_owned() } else { text.to_owned() }
}

fn is_export(found: &Subscription) -> bool {
    found.bigquery_config.is_some() || found.cloud_storage_config.is_some()
}

fn is_push(found: &Subscription) -> bool {
    found.push_config.as_ref().is_some_and(|push| !push.push_endpoint.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_create_has_no_difference() {
        let config = PubSubConfig::new("local");
        assert_eq!(differences(&wanted_subscription(&config).unwrap(), &config), []);
    }

    #[test]
    fn a_foreign_subscription_is_told_apart_with_a_command() {
        let config = PubSubConfig::new("local");
        let foreign = Subscription::new()
            .set_topic("_deleted-topic_")
            .set_enable_message_ordering(true)
            .set_filter("x");
        let settings: Vec<_> =
            differences(&foreign, &config).iter().map(|difference| difference.setting).collect();
        assert_eq!(
            settings,
            ["topic", "retry policy", "retention", "expiration", "ack deadline", "order", "filter"]
        );
        let shown = differences(&foreign, &config)[3].to_string();
        assert!(shown.contains("wanted never") && shown.contains("--expiration-period=never"), "{shown}");
    }
}
