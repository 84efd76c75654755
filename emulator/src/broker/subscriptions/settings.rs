//! Valid configurations of subscriptions, the defaults of missing fields, and the resulting
//! delivery settings.
//!
//! It does not know which topics exist.

use std::time::Duration;

use crate::broker::delivery::{RetryPolicy, Settings};
use crate::broker::filter::Filter;
use crate::broker::limits::{self, proto_duration, std_duration};
use crate::broker::names::{self, DELETED_TOPIC, Kind};
use crate::broker::{Answer, Refusal, unsupported};
use crate::proto::pubsub;

/// The attribute for the format of pushed messages, of which only `v1` (alias `v1beta2`) is
/// supported.
const PUSH_VERSION: &str = "x-goog-version";

/// Refuses what the service refuses and what is not supported, and fills in defaults.
pub(super) fn complete(config: &mut pubsub::Subscription, accepts_unsupported: bool) -> Answer<()> {
    unsupported::complete_subscription(config, accepts_unsupported)?;
    limits::check_labels(&config.labels)?;
    complete_ack_deadline(config)?;
    complete_lifetimes(config)?;
    complete_retry_policy(config)?;
    complete_dead_letter_policy(config)?;
    check_push(config)?;
    if config.push_config.is_none() {
        config.push_config = Some(pubsub::PushConfig::default());
    }
    config.state = pubsub::subscription::State::Active.into();
    Ok(())
}

/// Parses the filter of a configuration, if it has one.
pub(super) fn filter(text: &str) -> Answer<Option<Filter>> {
    if text.is_empty() {
        return Ok(None);
    }
    limits::at_most("filter length", text.len(), limits::LONGEST_FILTER)?;
    let filter = Filter::parse(text)
        .map_err(|error| Refusal::invalid(format!("Invalid filter given (filter={text}): {error}.")))?;
    Ok(Some(filter))
}

/// The delivery settings of a complete configuration.
pub(super) fn delivery(config: &pubsub::Subscription) -> Settings {
    let duration =
        |duration: Option<crate::proto::protobuf::Duration>| duration.as_ref().and_then(std_duration);
    let own = duration(config.message_retention_duration).unwrap_or(limits::DEFAULT_RETENTION);
    let of_topic = duration(config.topic_message_retention_duration).unwrap_or_default();
    let dead_letters = config.dead_letter_policy.as_ref();
    let dead_letters = dead_letters.filter(|policy| policy.dead_letter_topic != DELETED_TOPIC);
    Settings {
        ack_deadline: Duration::from_secs(u64::try_from(config.ack_deadline_seconds).unwrap_or_default()),
        ordering: config.enable_message_ordering,
        exactly_once: config.enable_exactly_once_delivery,
        retry: config.retry_policy.as_ref().map(|policy| RetryPolicy {
            minimum: duration(policy.minimum_backoff).unwrap_or(limits::DEFAULT_MINIMUM_BACKOFF),
            maximum: duration(policy.maximum_backoff).unwrap_or(limits::LONGEST_BACKOFF),
        }),
        dead_letter_after: dead_letters.and_then(|policy| u32::try_from(policy.max_delivery_attempts).ok()),
        retention: own.max(of_topic),
        retain_acked: config.retain_acked_messages,
    }
}

fn complete_ack_deadline(config: &mut pubsub::Subscription) -> Answer<()> {
    let (default, longest) = (limits::DEFAULT_ACK_DEADLINE, limits::LONGEST_ACK_DEADLINE);
    match config.ack_deadline_seconds {
        0 => config.ack_deadline_seconds = default,
        seconds if (default..=longest).contains(&seconds) => {}
        seconds => {
            return Err(Refusal::invalid(format!(
                "Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between {default} \
                 and {longest} seconds."
            )));
        }
    }
    Ok(())
}

/// Completes the message retention and the subscription's expiration, which is never shorter.
fn complete_lifetimes(config: &mut pubsub::Subscription) -> Answer<()> {
    let policy = *config.expiration_policy.get_or_insert_with(|| pubsub::ExpirationPolicy {
        ttl: Some(proto_duration(limits::DEFAULT_EXPIRATION)),
    });
    let expiration = policy.ttl.as_ref().map(expiration).transpose()?;
    let Some(retention) = &config.message_retention_duration else {
        let retention =
            expiration.map_or(limits::DEFAULT_RETENTION, |ttl| ttl.min(limits::DEFAULT_RETENTION));
        config.message_retention_duration = Some(proto_duration(retention));
        return Ok(());
    };
    let (shortest, longest) = (limits::SHORTEST_RETENTION, limits::LONGEST_RETENTION);
    let retention = limits::duration("message retention duration", retention, shortest, longest)?;
    match expiration {
        Some(ttl) if ttl < retention => Err(expires_before(ttl, retention)),
        Some(_) | None => Ok(()),
    }
}

fn expiration(ttl: &crate::proto::protobuf::Duration) -> Answer<Duration> {
    let duration = std_duration(ttl).ok_or_else(|| limits::bad_argument("expiration_policy.ttl"))?;
    if duration < limits::SHORTEST_EXPIRATION {
        return Err(expires_before(duration, limits::SHORTEST_EXPIRATION));
    }
    Ok(duration)
}

fn expires_before(ttl: Duration, minimum: Duration) -> Refusal {
    limits::too_small("expiration duration", limits::words(ttl), limits::words(minimum))
}

fn complete_retry_policy(config: &mut pubsub::Subscription) -> Answer<()> {
    let Some(policy) = &mut config.retry_policy else { return Ok(()) };
    let minimum = policy.minimum_backoff.get_or_insert(proto_duration(limits::DEFAULT_MINIMUM_BACKOFF));
    let minimum = limits::backoff("minimum_backoff", minimum)?;
    let maximum = policy.maximum_backoff.get_or_insert(proto_duration(limits::LONGEST_BACKOFF));
    let maximum = limits::backoff("maximum_backoff", maximum)?;
    if maximum < minimum {
        let (maximum, minimum) = (limits::seconds(maximum), limits::seconds(minimum));
        return Err(limits::too_small("maximum_backoff", maximum, minimum));
    }
    Ok(())
}

fn complete_dead_letter_policy(config: &mut pubsub::Subscription) -> Answer<()> {
    let Some(policy) = &mut config.dead_letter_policy else { return Ok(()) };
    if policy.dead_letter_topic != DELETED_TOPIC {
        names::check(Kind::Topic, "dead_letter_topic", &policy.dead_letter_topic)?;
    }
    let (least, most) = (limits::DEFAULT_DELIVERY_ATTEMPTS, limits::MOST_DELIVERY_ATTEMPTS);
    let refusal = match policy.max_delivery_attempts {
        0 => {
            policy.max_delivery_attempts = least;
            return Ok(());
        }
        attempts if attempts < least => limits::too_small("max_delivery_attempts", attempts, least),
        attempts if attempts > most => limits::too_large("max_delivery_attempts", attempts, most),
        _ => return Ok(()),
    };
    // The one limit for which the service answers with this code.
    Err(Refusal { code: tonic::Code::OutOfRange, ..refusal })
}

fn check_push(config: &pubsub::Subscription) -> Answer<()> {
    let Some(push) = &config.push_config else { return Ok(()) };
    if push.push_endpoint.is_empty() {
        return Ok(());
    }
    if config.enable_exactly_once_delivery {
        return Err(Refusal::invalid(
            "Exactly-once delivery is for pull subscriptions: unset enable_exactly_once_delivery or push_endpoint.",
        ));
    }
    check_endpoint(&push.push_endpoint)?;
    match push.attributes.get(PUSH_VERSION).map(String::as_str) {
        None | Some("v1" | "v1beta2") => {}
        Some("v1beta1") => {
            return Err(Refusal::unsupported(
                "This emulator does not push in the format of v1beta1: use v1 as x-goog-version.",
            ));
        }
        Some(version) => {
            return Err(Refusal::invalid(format!(
                "Invalid push endpoint version given in push config (version={version})."
            )));
        }
    }
    check_token(push)
}

fn check_token(push: &pubsub::PushConfig) -> Answer<()> {
    use pubsub::push_config::AuthenticationMethod;
    match &push.authentication_method {
        Some(AuthenticationMethod::OidcToken(token)) if token.service_account_email.is_empty() => {
            Err(limits::bad_argument("PushConfig::oidc_token::service_account_email"))
        }
        Some(AuthenticationMethod::OidcToken(_)) | None => Ok(()),
    }
}

/// The service requires HTTPS and a public address; tests push to their own machine.
fn check_endpoint(endpoint: &str) -> Answer<()> {
    let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
    let host = host.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let sound = host.is_some_and(|host| !host.is_empty())
        && !endpoint.contains(|character: char| character.is_whitespace() || character.is_control());
    if sound {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "Invalid push endpoint given (endpoint={endpoint}). Refer to \
         https://cloud.google.com/pubsub/docs/push for more information."
    )))
}
