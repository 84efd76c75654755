//! Updates of parts of a subscription's fields.

use pubsub::push_config::{AuthenticationMethod, NoWrapper, OidcToken, PubsubWrapper, Wrapper};
use pubsub::{ExpirationPolicy, PushConfig, Subscription};

use super::subscriptions::{DEAD, backoff, dead_letters, push, ttl};
use super::*;

/// What a subscription is after an update of these paths to the values of a change.
fn after(before: &Subscription, change: Subscription, paths: &[&str]) -> Subscription {
    let mut world = World::with_subscription();
    world.topic(DEAD);
    let settings = ["push_config", "expiration_policy", "dead_letter_policy", "retry_policy"];
    world.update_subscription(before.clone(), &settings).unwrap();
    world.update_subscription(change, paths).unwrap()
}

#[test]
fn an_update_changes_parts_of_fields() {
    let plain = World::with_subscription().get_subscription(SUBSCRIPTION).unwrap();
    let before = Subscription {
        push_config: push("http://localhost/one"),
        expiration_policy: ttl(20 * DAY),
        dead_letter_policy: dead_letters(DEAD, 7),
        retry_policy: backoff(Some(1), Some(20)),
        ..plain.clone()
    };
    let change = Subscription {
        push_config: push("http://localhost/two"),
        expiration_policy: ttl(30 * DAY),
        dead_letter_policy: dead_letters("projects/p/topics/none", 9),
        retry_policy: backoff(Some(2), Some(30)),
        ..subscription()
    };
    let table: [(&[&str], Subscription); 5] = [
        (
            &["dead_letter_policy.max_delivery_attempts"],
            Subscription { dead_letter_policy: dead_letters(DEAD, 9), ..before.clone() },
        ),
        (&["expiration_policy.ttl"], Subscription { expiration_policy: ttl(30 * DAY), ..before.clone() }),
        (
            &["retry_policy.minimum_backoff"],
            Subscription { retry_policy: backoff(Some(2), Some(20)), ..before.clone() },
        ),
        (
            &["retry_policy.maximum_backoff"],
            Subscription { retry_policy: backoff(Some(1), Some(30)), ..before.clone() },
        ),
        (
            &["push_config.push_endpoint", "push_config.oidc_token"],
            Subscription { push_config: push("http://localhost/two"), ..before.clone() },
        ),
    ];
    for (paths, expected) in table {
        assert_eq!(after(&before, change.clone(), paths), expected, "{paths:?}");
    }
}

#[test]
fn parts_of_fields_that_are_unset_are_cleared_and_a_policy_without_content_is_none() {
    let plain = World::with_subscription().get_subscription(SUBSCRIPTION).unwrap();
    let before = Subscription {
        expiration_policy: ttl(20 * DAY),
        dead_letter_policy: dead_letters(DEAD, 7),
        retry_policy: backoff(Some(1), Some(20)),
        ..plain.clone()
    };
    let table: [(&[&str], Subscription); 4] = [
        (
            &["dead_letter_policy.dead_letter_topic", "dead_letter_policy.max_delivery_attempts"],
            Subscription { dead_letter_policy: None, ..before.clone() },
        ),
        (
            &["dead_letter_policy.max_delivery_attempts"],
            Subscription { dead_letter_policy: dead_letters(DEAD, 5), ..before.clone() },
        ),
        (
            &["retry_policy.minimum_backoff", "retry_policy.maximum_backoff"],
            Subscription { retry_policy: None, ..before.clone() },
        ),
        (
            &["expiration_policy.ttl"],
            Subscription { expiration_policy: Some(ExpirationPolicy { ttl: None }), ..before.clone() },
        ),
    ];
    for (paths, expected) in table {
        assert_eq!(after(&before, subscription(), paths), expected, "{paths:?}");
    }
}

#[test]
fn parts_of_a_push_configuration_change_alone() {
    let token = |email: &str, audience: &str| {
        let token = OidcToken { service_account_email: email.to_owned(), audience: audience.to_owned() };
        Some(AuthenticationMethod::OidcToken(token))
    };
    let plain = PushConfig { push_endpoint: "http://localhost/one".to_owned(), ..PushConfig::default() };
    let raw = |write_metadata| Some(Wrapper::NoWrapper(NoWrapper { write_metadata }));
    let before =
        PushConfig { authentication_method: token("a@p", "one"), wrapper: raw(false), ..plain.clone() };
    let change = PushConfig {
        attributes: attributes(&[("x-goog-version", "v1")]),
        authentication_method: token("b@p", "two"),
        wrapper: raw(true),
        ..plain.clone()
    };
    let table: [(&str, &PushConfig, PushConfig); 8] = [
        ("attributes", &change, PushConfig { attributes: change.attributes.clone(), ..before.clone() }),
        ("oidc_token", &plain, PushConfig { authentication_method: None, ..before.clone() }),
        (
            "oidc_token.audience",
            &change,
            PushConfig { authentication_method: token("a@p", "two"), ..before.clone() },
        ),
        (
            "oidc_token.service_account_email",
            &change,
            PushConfig { authentication_method: token("b@p", "one"), ..before.clone() },
        ),
        ("no_wrapper", &plain, PushConfig { wrapper: None, ..before.clone() }),
        ("no_wrapper.write_metadata", &change, PushConfig { wrapper: raw(true), ..before.clone() }),
        ("pubsub_wrapper", &plain, before.clone()),
        (
            "pubsub_wrapper",
            &PushConfig { wrapper: Some(Wrapper::PubsubWrapper(PubsubWrapper {})), ..plain.clone() },
            PushConfig { wrapper: Some(Wrapper::PubsubWrapper(PubsubWrapper {})), ..before.clone() },
        ),
    ];
    for (part, change, expected) in table {
        let of = |config: &PushConfig| Subscription { push_config: Some(config.clone()), ..subscription() };
        let path = format!("push_config.{part}");
        assert_eq!(after(&of(&before), of(change), &[&path]).push_config, Some(expected), "{path}");
    }
}
