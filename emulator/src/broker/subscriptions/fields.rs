//! The fields of a subscription in updates: what a mask may name, down to the parts of a field, and
//! how each is applied.
//!
//! It checks no values: `settings` does.

use crate::broker::Answer;
use crate::broker::mask::{self, Fields};
use crate::proto::pubsub::push_config::{AuthenticationMethod, NoWrapper, OidcToken, Wrapper};
use crate::proto::pubsub::{DeadLetterPolicy, ExpirationPolicy, PushConfig, RetryPolicy, Subscription};

pub(super) const FIELDS: Fields = Fields {
    resource: "Subscription",
    example: ("push_config", "pushConfig"),
    mutable: &[
        "push_config",
        "push_config.push_endpoint",
        "push_config.attributes",
        "push_config.oidc_token",
        "push_config.oidc_token.service_account_email",
        "push_config.oidc_token.audience",
        "push_config.pubsub_wrapper",
        "push_config.no_wrapper",
        "push_config.no_wrapper.write_metadata",
        "bigquery_config",
        "cloud_storage_config",
        "bigtable_config",
        "ack_deadline_seconds",
        "retain_acked_messages",
        "message_retention_duration",
        "labels",
        "expiration_policy",
        "expiration_policy.ttl",
        "dead_letter_policy",
        "dead_letter_policy.dead_letter_topic",
        "dead_letter_policy.max_delivery_attempts",
        "retry_policy",
        "retry_policy.minimum_backoff",
        "retry_policy.maximum_backoff",
        "enable_exactly_once_delivery",
        "message_transforms",
    ],
    immutable: &[
        "name",
        "topic",
        "enable_message_ordering",
        "filter",
        "detached",
        "topic_message_retention_duration",
        "state",
        "analytics_hub_subscription_info",
        "tags",
    ],
};

/// Takes what the paths name from the update.
pub(super) fn apply(config: &mut Subscription, update: &Subscription, paths: &[String]) -> Answer<()> {
    for path in paths {
        match path.split_once('.') {
            None => apply_field(config, update, path)?,
            Some(("push_config", part)) => apply_push(config, update, part)?,
            Some((field, part)) => apply_policy(config, update, field, part)?,
        }
    }
    Ok(())
}

fn apply_field(config: &mut Subscription, update: &Subscription, field: &str) -> Answer<()> {
    match field {
        "push_config" => config.push_config.clone_from(&update.push_config),
        "bigquery_config" => config.bigquery_config.clone_from(&update.bigquery_config),
        "cloud_storage_config" => config.cloud_storage_config.clone_from(&update.cloud_storage_config),
        "bigtable_config" => config.bigtable_config.clone_from(&update.bigtable_config),
        "ack_deadline_seconds" => config.ack_deadline_seconds = update.ack_deadline_seconds,
        "retain_acked_messages" => config.retain_acked_messages = update.retain_acked_messages,
        "message_retention_duration" => config.message_retention_duration = update.message_retention_duration,
        "labels" => config.labels.clone_from(&update.labels),
        "expiration_policy" => config.expiration_policy = update.expiration_policy,
        "dead_letter_policy" => config.dead_letter_policy.clone_from(&update.dead_letter_policy),
        "retry_policy" => config.retry_policy = update.retry_policy,
        "enable_exactly_once_delivery" => {
            config.enable_exactly_once_delivery = update.enable_exactly_once_delivery;
        }
        "message_transforms" => config.message_transforms.clone_from(&update.message_transforms),
        other => return Err(mask::unapplied(other)),
    }
    Ok(())
}

/// A policy without any content is none, except that an expiration policy without a duration means
/// that the subscription never expires.
fn apply_policy(config: &mut Subscription, update: &Subscription, field: &str, part: &str) -> Answer<()> {
    match (field, part) {
        ("expiration_policy", "ttl") => {
            let ttl = update.expiration_policy.and_then(|policy| policy.ttl);
            config.expiration_policy = Some(ExpirationPolicy { ttl });
        }
        ("dead_letter_policy", "dead_letter_topic" | "max_delivery_attempts") => {
            let new = update.dead_letter_policy.clone().unwrap_or_default();
            let policy = config.dead_letter_policy.get_or_insert_default();
            if part == "dead_letter_topic" {
                policy.dead_letter_topic = new.dead_letter_topic;
            } else {
                policy.max_delivery_attempts = new.max_delivery_attempts;
            }
            config.dead_letter_policy.take_if(|policy| *policy == DeadLetterPolicy::default());
        }
        ("retry_policy", "minimum_backoff" | "maximum_backoff") => {
            let new = update.retry_policy.unwrap_or_default();
            let policy = config.retry_policy.get_or_insert_default();
            if part == "minimum_backoff" {
                policy.minimum_backoff = new.minimum_backoff;
            } else {
                policy.maximum_backoff = new.maximum_backoff;
            }
            config.retry_policy.take_if(|policy| *policy == RetryPolicy::default());
        }
        _ => return Err(mask::unapplied(&format!("{field}.{part}"))),
    }
    Ok(())
}

/// A part of one of the alternatives of a push configuration takes the place of the other.
fn apply_push(config: &mut Subscription, update: &Subscription, part: &str) -> Answer<()> {
    let none = PushConfig::default();
    let new = update.push_config.as_ref().unwrap_or(&none);
    let config = config.push_config.get_or_insert_default();
    match part {
        "push_endpoint" => config.push_endpoint.clone_from(&new.push_endpoint),
        "attributes" => config.attributes.clone_from(&new.attributes),
        "oidc_token" => config.authentication_method.clone_from(&new.authentication_method),
        "oidc_token.service_account_email" | "oidc_token.audience" => {
            let (mut token, new) = (token_of(config), token_of(new));
            if part == "oidc_token.audience" {
                token.audience = new.audience;
            } else {
                token.service_account_email = new.service_account_email;
            }
            config.authentication_method =
                (token != OidcToken::default()).then_some(AuthenticationMethod::OidcToken(token));
        }
        "pubsub_wrapper" => set_wrapper(config, new, |wrapper| matches!(wrapper, Wrapper::PubsubWrapper(_))),
        "no_wrapper" => set_wrapper(config, new, |wrapper| matches!(wrapper, Wrapper::NoWrapper(_))),
        "no_wrapper.write_metadata" => {
            let write_metadata =
                matches!(new.wrapper, Some(Wrapper::NoWrapper(wrapper)) if wrapper.write_metadata);
            config.wrapper = Some(Wrapper::NoWrapper(NoWrapper { write_metadata }));
        }
        other => return Err(mask::unapplied(&format!("push_config.{other}"))),
    }
    Ok(())
}

fn token_of(config: &PushConfig) -> OidcToken {
    match &config.authentication_method {
        Some(AuthenticationMethod::OidcToken(token)) => token.clone(),
        None => OidcToken::default(),
    }
}

/// Sets the alternative, or clears it. The other one is left alone if this one is not set.
fn set_wrapper(config: &mut PushConfig, new: &PushConfig, is_named: fn(&Wrapper) -> bool) {
    if new.wrapper.as_ref().is_some_and(is_named) {
        config.wrapper = new.wrapper;
    } else {
        config.wrapper.take_if(|wrapper| is_named(wrapper));
    }
}
