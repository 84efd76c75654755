//! The settings that the queue needs of a subscription, whether workers pull from it or it pushes,
//! and how an existing one differs from them. It only compares.

use std::fmt;
use std::time::Duration;

use google_cloud_pubsub::model::push_config::OidcToken;
use google_cloud_pubsub::model::{ExpirationPolicy, PushConfig, RetryPolicy, Subscription};

use super::config::{Class, PubSubConfig, PushSettings};
use crate::notify::NotifyError;

const SHORTEST_RETRY_S: u64 = 10;
const LONGEST_RETRY_S: u64 = 600;
const RETENTION_S: u64 = 7 * 24 * 60 * 60;

/// Longer than any pause of a healthy client between two extensions, and as long as a claim's
/// lease, so that the event and the notification of a dead process become free at the same time. A
/// stream sets its own (`lease_extension`).
const ACK_DEADLINE_S: i32 = 60;
/// The longest that Pub/Sub waits for an answer. A shorter one also works if no handler takes
/// longer: an event that is pushed again meanwhile is found locked.
const PUSH_ACK_DEADLINE_S: i32 = 600;
/// The path of the API that receives pushes.
const PUSH_PATH: &str = "/v1/push";

/// A setting that differs from what the queue needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingDifference {
    /// The setting's name.
    pub setting: &'static str,
    /// Its value now.
    pub found: String,
    /// The value that the queue needs.
    pub wanted: String,
    /// The command that fixes it, or what else to do.
    pub advice: String,
}

impl fmt::Display for SettingDifference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is {}, wanted {}: {}", self.setting, self.found, self.wanted, self.advice)
    }
}

/// A setting: its name, its value, the value that it should have, and how to fix it.
type Compared = (&'static str, String, String, String);

/// No dead-letter policy, because the event's row counts the retries. No ordering, because the row
/// decides. Never expires.
pub(super) fn wanted_subscription(config: &PubSubConfig, class: Class) -> Result<Subscription, NotifyError> {
    let unfit = |_| NotifyError::new("a setting of the subscription is out of the range of a duration");
    let mut retry = RetryPolicy::new();
    retry.minimum_backoff = Some(Duration::from_secs(SHORTEST_RETRY_S).try_into().map_err(unfit)?);
    retry.maximum_backoff = Some(Duration::from_secs(LONGEST_RETRY_S).try_into().map_err(unfit)?);
    let mut wanted = Subscription::new()
        .set_name(config.subscription_path(class))
        .set_topic(config.topic_path())
        .set_filter(config.filter(class))
        .set_ack_deadline_seconds(if config.push.is_some() { PUSH_ACK_DEADLINE_S } else { ACK_DEADLINE_S })
        .set_expiration_policy(ExpirationPolicy::new())
        .set_retry_policy(retry);
    if let Some(push) = &config.push {
        let token = OidcToken::new().set_service_account_email(&push.account).set_audience(&push.audience);
        wanted.push_config = Some(PushConfig::new().set_push_endpoint(&push.endpoint).set_oidc_token(token));
    }
    wanted.message_retention_duration = Some(Duration::from_secs(RETENTION_S).try_into().map_err(unfit)?);
    Ok(wanted)
}

/// Whether a filter leaves notifications out that no other subscription of this configuration gets.
pub(super) fn leaves_some_out(found: &Subscription, config: &PubSubConfig) -> bool {
    config.urgent_subscription.is_none() && !found.filter.is_empty()
}

pub(super) fn differences(
    found: &Subscription,
    config: &PubSubConfig,
    class: Class,
) -> Vec<SettingDifference> {
    let name = &found.name;
    let update = |flags: String| update(found, &flags);
    let recreate = || format!("gcloud pubsub subscriptions delete {name}, then `wakeq topics create`");
    // What a subscription has not delivered yet goes with it, so a filter is had without a gap by
    // another one only.
    let another = || {
        format!(
            "a filter can't be changed: choose another name for the subscription, run `wakeq topics create`, restart \
             the workers, and delete {name}"
        )
    };
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
            "dead-letter policy",
            yes_no(found.dead_letter_policy.is_some()),
            yes_no(false),
            update("--clear-dead-letter-policy".to_owned()),
        ),
        ("order", yes_no(found.enable_message_ordering), yes_no(false), recreate()),
        ("filter", or_none(&found.filter), or_none(config.filter(class)), another()),
        ("export", yes_no(is_export(found)), yes_no(false), recreate()),
        ("detached", yes_no(found.detached), yes_no(false), recreate()),
    ];
    let delivery = match (push_endpoint(found), &config.push) {
        (None, None) => pull_settings(found),
        (_, Some(_)) | (Some(_), None) => push_settings(found, config.push.as_ref()),
    };
    compared
        .into_iter()
        .chain(delivery)
        .filter(|(_, found, wanted, _)| found != wanted)
        .map(|(setting, found, wanted, advice)| SettingDifference { setting, found, wanted, advice })
        .collect()
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "none".to_owned() } else { text.to_owned() }
}

fn is_export(found: &Subscription) -> bool {
    found.bigquery_config.is_some() || found.cloud_storage_config.is_some()
}

/// Where a subscription pushes to, if it does.
pub(super) fn push_endpoint(found: &Subscription) -> Option<&str> {
    let push = found.push_config.as_ref()?;
    Some(push.push_endpoint.as_str()).filter(|endpoint| !endpoint.is_empty())
}

fn update(found: &Subscription, flags: &str) -> String {
    format!("gcloud pubsub subscriptions update {} {flags}", found.name)
}

fn pull_settings(found: &Subscription) -> Vec<Compared> {
    let deadline = |seconds: i32| format!("{seconds} s");
    let advice = update(found, &format!("--ack-deadline={ACK_DEADLINE_S}"));
    vec![("ack deadline", deadline(found.ack_deadline_seconds), deadline(ACK_DEADLINE_S), advice)]
}

/// If no endpoint is configured, any subscription that pushes to a path like ours with some token
/// is accepted: the service knows which token it needs.
fn push_settings(found: &Subscription, wanted: Option<&PushSettings>) -> Vec<Compared> {
    let endpoint = push_endpoint(found).unwrap_or_default();
    let token = found.push_config.as_ref().and_then(PushConfig::oidc_token);
    let account = token.map_or("", |token| token.service_account_email.as_str());
    let audience = token.map_or("", |token| token.audience.as_str());
    let or_found = |wanted: Option<&String>, found: &str, sound: bool, otherwise: &str| match wanted {
        Some(wanted) => wanted.clone(),
        None if sound => found.to_owned(),
        None => otherwise.to_owned(),
    };
    let (is_ours, has_account, has_audience) =
        (endpoint.ends_with(PUSH_PATH), !account.is_empty(), !audience.is_empty());
    let to = or_found(wanted.map(|push| &push.endpoint), endpoint, is_ours, "https://…/v1/push");
    let of = or_found(wanted.map(|push| &push.account), account, has_account, "that of WAKEQ_PUSH_ACCOUNTS");
    let to_whom =
        or_found(wanted.map(|push| &push.audience), audience, has_audience, "that of WAKEQ_PUSH_AUDIENCE");
    let advice = update(
        found,
        "--push-endpoint=URL/v1/push --push-auth-service-account=ACCOUNT --push-auth-token-audience=AUDIENCE",
    );
    let found_s = found.ack_deadline_seconds;
    let long_enough = (ACK_DEADLINE_S..=PUSH_ACK_DEADLINE_S).contains(&found_s);
    let wanted_s = if long_enough { found_s } else { PUSH_ACK_DEADLINE_S };
    let is_wrapped = found.push_config.as_ref().is_none_or(|push| push.no_wrapper().is_none());
    let payload = |wrapped: bool| if wrapped { "wrapped" } else { "unwrapped" }.to_owned();
    vec![
        ("push endpoint", or_none(endpoint), to, advice.clone()),
        ("push account", or_none(account), of, advice.clone()),
        ("push audience", or_none(audience), to_whom, advice),
        ("push payload", payload(is_wrapped), payload(true), update(found, "--clear-push-no-wrapper-config")),
        (
            "ack deadline",
            format!("{found_s} s"),
            format!("{wanted_s} s"),
            update(found, &format!("--ack-deadline={PUSH_ACK_DEADLINE_S}")),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use google_cloud_pubsub::model::push_config::NoWrapper;

    use super::*;

    #[test]
    fn our_own_subscription_shows_no_differences() {
        let config = PubSubConfig::new("local");
        assert_eq!(
            differences(&wanted_subscription(&config, Class::Ordinary).unwrap(), &config, Class::Ordinary),
            []
        );
    }

    #[test]
    fn reports_a_foreign_subscription_with_the_command_to_fix_it() {
        let config = PubSubConfig::new("local");
        let foreign = Subscription::new()
            .set_topic("_deleted-topic_")
            .set_enable_message_ordering(true)
            .set_filter("x");
        let settings: Vec<_> = differences(&foreign, &config, Class::Ordinary)
            .iter()
            .map(|difference| difference.setting)
            .collect();
        assert_eq!(
            settings,
            ["topic", "retry policy", "retention", "expiration", "order", "filter", "ack deadline"]
        );
        let shown = differences(&foreign, &config, Class::Ordinary)[3].to_string();
        assert!(shown.contains("wanted never") && shown.contains("--expiration-period=never"), "{shown}");
    }

    /// A lone subscription has no filter. Of two, each has its own, and is not taken for the other.
    #[test]
    fn each_of_two_subscriptions_has_its_filter() {
        let one = PubSubConfig::new("local");
        let two = PubSubConfig { urgent_subscription: Some("fast".into()), ..PubSubConfig::new("local") };
        let made = |config, class| wanted_subscription(config, class).unwrap();
        for class in [Class::Ordinary, Class::Urgent] {
            assert_eq!(differences(&made(&two, class), &two, class), []);
        }
        let found = differences(&made(&one, Class::Ordinary), &two, Class::Ordinary);
        let [filter] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((filter.setting, filter.found.as_str()), ("filter", "none"));
        assert_eq!(filter.wanted, r#"NOT attributes.urgent = "true""#);
        for (made, config, class) in [
            (made(&two, Class::Ordinary), &one, Class::Ordinary),
            (made(&two, Class::Ordinary), &two, Class::Urgent),
            (made(&two, Class::Urgent), &two, Class::Ordinary),
        ] {
            let found = differences(&made, config, class);
            assert_eq!(found.iter().map(|found| found.setting).collect::<Vec<_>>(), ["filter"]);
        }
    }

    fn pushing() -> PubSubConfig {
        let push = PushSettings {
            endpoint: "https://queue.example/v1/push".into(),
            audience: "project/wakeq/push".into(),
            account: "invoker@project.iam.gserviceaccount.com".into(),
        };
        PubSubConfig { push: Some(push), ..PubSubConfig::new("local") }
    }

    fn settings(found: &Subscription, config: &PubSubConfig) -> Vec<&'static str> {
        differences(found, config, Class::Ordinary).iter().map(|difference| difference.setting).collect()
    }

    #[test]
    fn a_push_subscription_is_known_without_being_told_of() {
        let made = wanted_subscription(&pushing(), Class::Ordinary).unwrap();
        assert_eq!(made.ack_deadline_seconds, 600);
        for config in [pushing(), PubSubConfig::new("local")] {
            assert_eq!(settings(&made, &config), [""; 0]);
            assert_eq!(settings(&made.clone().set_ack_deadline_seconds(320), &config), [""; 0]);
            assert_eq!(settings(&made.clone().set_ack_deadline_seconds(10), &config), ["ack deadline"]);
        }
    }

    // Shows: PUSH-16
    #[test]
    fn a_push_subscription_needs_our_path_and_a_token() {
        let made = wanted_subscription(&pushing(), Class::Ordinary).unwrap();
        let to = |push: PushConfig| made.clone().set_push_config(push);
        let bare = PushConfig::new().set_push_endpoint("https://queue.example/events");
        let token = ["push endpoint", "push account", "push audience"];
        for config in [pushing(), PubSubConfig::new("local")] {
            assert_eq!(settings(&to(bare.clone()), &config), token);
        }
        let unwrapped = made.push_config.clone().unwrap().set_no_wrapper(NoWrapper::new());
        assert_eq!(settings(&to(unwrapped), &pushing()), ["push payload"]);
        let other = OidcToken::new().set_service_account_email("other").set_audience("other");
        let other = made.push_config.clone().unwrap().set_oidc_token(other);
        assert_eq!(settings(&to(other.clone()), &pushing()), ["push account", "push audience"]);
        assert_eq!(settings(&to(other), &PubSubConfig::new("local")), [""; 0]);
        let pulled = wanted_subscription(&PubSubConfig::new("local"), Class::Ordinary).unwrap();
        assert_eq!(settings(&pulled, &pushing()), token, "told to push, it has to");
    }
}
