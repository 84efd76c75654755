//! Subscriptions: valid configurations, defaults, and what updates change.

use pubsub::{DeadLetterPolicy, ExpirationPolicy, PushConfig, RetryPolicy, Subscription};

use super::*;

pub(super) const DEAD: &str = "projects/p/topics/dead";

pub(super) fn dead_letters(topic: &str, attempts: i32) -> Option<DeadLetterPolicy> {
    Some(DeadLetterPolicy { dead_letter_topic: topic.to_owned(), max_delivery_attempts: attempts })
}

pub(super) fn backoff(minimum: Option<u64>, maximum: Option<u64>) -> Option<RetryPolicy> {
    Some(RetryPolicy { minimum_backoff: minimum.map(seconds), maximum_backoff: maximum.map(seconds) })
}

pub(super) fn ttl(seconds: u64) -> Option<ExpirationPolicy> {
    Some(ExpirationPolicy { ttl: Some(super::seconds(seconds)) })
}

pub(super) fn push(endpoint: &str) -> Option<PushConfig> {
    Some(PushConfig { push_endpoint: endpoint.to_owned(), ..Default::default() })
}

#[test]
fn omitted_settings_get_their_defaults() {
    let mut world = World::new();
    world.topic(TOPIC);
    world.topic(DEAD);
    let created = world.subscribe(Subscription {
        dead_letter_policy: dead_letters(DEAD, 0),
        retry_policy: backoff(None, None),
        ..subscription()
    });
    let expected = Subscription {
        push_config: Some(PushConfig::default()),
        ack_deadline_seconds: 10,
        message_retention_duration: Some(seconds(7 * DAY)),
        expiration_policy: ttl(31 * DAY),
        dead_letter_policy: dead_letters(DEAD, 5),
        retry_policy: backoff(Some(10), Some(600)),
        state: pubsub::subscription::State::Active.into(),
        ..subscription()
    };
    assert_eq!(created, expected);
    assert_eq!(world.get_subscription(SUBSCRIPTION), Ok(expected));
    let brief = world.subscribe(Subscription { expiration_policy: ttl(DAY), ..another("brief") });
    assert_eq!(
        brief.message_retention_duration,
        Some(seconds(DAY)),
        "never longer than the subscription itself"
    );
    let eternal = world.subscribe(Subscription {
        expiration_policy: Some(ExpirationPolicy { ttl: None }),
        ..another("eternal")
    });
    assert_eq!(eternal.expiration_policy, Some(ExpirationPolicy { ttl: None }));
}

#[test]
fn without_a_name_it_gets_one() {
    let mut world = World::new();
    world.topic("projects/q/topics/orders");
    let unnamed = || Subscription { topic: "projects/q/topics/orders".to_owned(), ..Default::default() };
    let (first, second) = (world.subscribe(unnamed()), world.subscribe(unnamed()));
    assert!(first.name.starts_with("projects/q/subscriptions/"), "{}", first.name);
    assert_ne!(first.name, second.name);
    assert_eq!(world.get_subscription(&first.name), Ok(first));
}

#[test]
fn rejects_missing_resources_and_existing_names() {
    let mut world = World::with_subscription();
    assert_eq!(
        refused(world.create_subscription(subscription())),
        "AlreadyExists: Resource already exists in the project (resource=billing)."
    );
    let orphan = Subscription { topic: "projects/p/topics/none".to_owned(), ..another("orphan") };
    assert_eq!(refused(world.create_subscription(orphan)), "NotFound: Resource not found (resource=none).");
    let policy =
        Subscription { dead_letter_policy: dead_letters("projects/p/topics/none", 5), ..another("orphan") };
    assert_eq!(refused(world.create_subscription(policy)), "NotFound: Resource not found (resource=none).");
    assert_eq!(code(world.get_subscription(&named("orphan"))), Code::NotFound);
    assert_eq!(code(world.get_subscription("orphan")), Code::InvalidArgument);
}

/// What is refused at creation, with the beginning of the refusal.
fn refusals() -> Vec<(Subscription, &'static str)> {
    let s = subscription;
    vec![
        (
            Subscription { name: "billing".to_owned(), ..s() },
            "InvalidArgument: Invalid resource name given (name=billing).",
        ),
        (
            Subscription { topic: "_deleted-topic_".to_owned(), ..s() },
            "InvalidArgument: Invalid resource name given (topic=_deleted-topic_).",
        ),
        (
            Subscription { ack_deadline_seconds: 9, ..s() },
            "InvalidArgument: Invalid ack deadline given (ack_deadline=9). The ack deadline must be between 10 and 600 seconds.",
        ),
        (
            Subscription { ack_deadline_seconds: 601, ..s() },
            "InvalidArgument: Invalid ack deadline given (ack_deadline=601).",
        ),
        (
            Subscription { ack_deadline_seconds: -1, ..s() },
            "InvalidArgument: Invalid ack deadline given (ack_deadline=-1).",
        ),
        (
            Subscription { message_retention_duration: Some(seconds(31 * DAY + 1)), ..s() },
            "InvalidArgument: The value for message retention duration is out of bounds. You passed 744h1s",
        ),
        (
            Subscription { expiration_policy: ttl(HOUR), ..s() },
            "InvalidArgument: The value for expiration duration is too small. You passed 1h in the request, but the minimum value is 24h.",
        ),
        (
            Subscription {
                expiration_policy: ttl(DAY),
                message_retention_duration: Some(seconds(2 * DAY)),
                ..s()
            },
            "InvalidArgument: The value for expiration duration is too small. You passed 24h in the request, but the minimum value is 48h.",
        ),
        (
            Subscription { retry_policy: backoff(Some(700), None), ..s() },
            "InvalidArgument: The value for minimum_backoff is out of bounds. You passed 700s in the request, but the value must be between 0s and 600s.",
        ),
        (
            Subscription { retry_policy: backoff(Some(300), Some(20)), ..s() },
            "InvalidArgument: The value for maximum_backoff is too small. You passed 20s in the request, but the minimum value is 300s.",
        ),
    ]
}

/// More of them: about the topics they name, filters, and push endpoints.
fn further_refusals() -> Vec<(Subscription, &'static str)> {
    let s = subscription;
    vec![
        (
            Subscription { dead_letter_policy: dead_letters(TOPIC, 4), ..s() },
            "OutOfRange: The value for max_delivery_attempts is too small. You passed 4 in the request, but the minimum value is 5.",
        ),
        (
            Subscription { dead_letter_policy: dead_letters(TOPIC, 101), ..s() },
            "OutOfRange: The value for max_delivery_attempts is too large. You passed 101 in the request, but the maximum value is 100.",
        ),
        (
            Subscription { dead_letter_policy: dead_letters("", 5), ..s() },
            "InvalidArgument: Invalid resource name given (dead_letter_topic=).",
        ),
        (
            Subscription { filter: "attributes.a = b".to_owned(), ..s() },
            "InvalidArgument: Invalid filter given (filter=attributes.a = b): at byte 15: expected a value in quotation marks, found 'b'.",
        ),
        (
            Subscription { filter: format!("attributes:{}", "a".repeat(246)), ..s() },
            "InvalidArgument: The value for filter length is too large. You passed 257 in the request, but the maximum value is 256.",
        ),
        (
            Subscription { labels: attributes(&[("", "")]), ..s() },
            "InvalidArgument: You have passed an invalid argument",
        ),
        (
            Subscription { push_config: push("nonsense"), ..s() },
            "InvalidArgument: Invalid push endpoint given (endpoint=nonsense).",
        ),
        (
            Subscription { push_config: push("ftp://a.b/c"), ..s() },
            "InvalidArgument: Invalid push endpoint given",
        ),
        (
            Subscription { push_config: push("https:///c"), ..s() },
            "InvalidArgument: Invalid push endpoint given",
        ),
        (
            Subscription { push_config: push("https://a.b/c"), enable_exactly_once_delivery: true, ..s() },
            "InvalidArgument: Exactly-once delivery is for pull subscriptions",
        ),
        (
            Subscription { detached: true, ..s() },
            "InvalidArgument: You have passed an invalid argument to the service (argument=detached).",
        ),
    ]
}

/// What is not supported, by field.
fn unsupported() -> Vec<(Subscription, &'static str)> {
    let s = subscription;
    vec![
        (Subscription { bigquery_config: Some(Default::default()), ..s() }, "bigquery_config"),
        (Subscription { cloud_storage_config: Some(Default::default()), ..s() }, "cloud_storage_config"),
        (Subscription { bigtable_config: Some(Default::default()), ..s() }, "bigtable_config"),
        (Subscription { message_transforms: vec![Default::default()], ..s() }, "message_transforms"),
        (Subscription { tags: attributes(&[("1/a", "b")]), ..s() }, "tags"),
        (
            Subscription { analytics_hub_subscription_info: Some(Default::default()), ..s() },
            "analytics_hub_subscription_info",
        ),
    ]
}

#[test]
fn rejects_unsupported_settings_with_the_reason() {
    for (refusable, field) in unsupported() {
        let mut world = World::new();
        world.topic(TOPIC);
        let refusal = refused(world.create_subscription(refusable));
        let words = format!("Unimplemented: This emulator does not support Subscription.{field}: ");
        assert!(refusal.starts_with(&words), "{refusal}");
    }
}

#[test]
fn rejects_what_the_service_rejects() {
    for (refusable, words) in refusals().into_iter().chain(further_refusals()) {
        let mut world = World::new();
        world.topic(TOPIC);
        let refusal = refused(world.create_subscription(refusable));
        assert!(refusal.starts_with(words), "{refusal}\nis not\n{words}");
        assert_eq!(world.broker.overview(world.now).subscriptions, [], "nothing was made");
    }
}

#[test]
fn push_configurations_are_checked() {
    use pubsub::push_config::{AuthenticationMethod, OidcToken};
    let version = |version: &str| PushConfig {
        push_endpoint: "http://localhost:8080/push?token=a".to_owned(),
        attributes: attributes(&[("x-goog-version", version)]),
        ..Default::default()
    };
    let token = |account: &str| PushConfig {
        authentication_method: Some(AuthenticationMethod::OidcToken(OidcToken {
            service_account_email: account.to_owned(),
            audience: String::new(),
        })),
        ..version("v1")
    };
    let table = [
        (version("v1"), Code::Ok),
        (version("v1beta2"), Code::Ok),
        (version("v1beta1"), Code::Unimplemented),
        (version("v2"), Code::InvalidArgument),
        (token("a@b.c"), Code::Ok),
        (token(""), Code::InvalidArgument),
    ];
    for (config, expected) in table {
        let mut world = World::with_subscription();
        let request = pubsub::ModifyPushConfigRequest {
            subscription: SUBSCRIPTION.to_owned(),
            push_config: Some(config.clone()),
        };
        assert_eq!(code(world.broker.modify_push_config(world.now, request)), expected, "{config:?}");
        let pushes = world.get_subscription(SUBSCRIPTION).unwrap().push_config == Some(config);
        assert_eq!(pushes, expected == Code::Ok);
    }
}

#[test]
fn an_empty_push_configuration_makes_it_a_pull_subscription() {
    let mut world = World::new();
    world.topic(TOPIC);
    world.subscribe(Subscription { push_config: push("http://localhost:1/"), ..subscription() });
    world.publish(TOPIC, &["a"]);
    let refusal = "FailedPrecondition: This method is not supported for this subscription type.";
    assert_eq!(refused(world.try_pull(SUBSCRIPTION, 1)), refusal);
    for push_config in [None, Some(PushConfig::default())] {
        let request = pubsub::ModifyPushConfigRequest { subscription: SUBSCRIPTION.to_owned(), push_config };
        world.broker.modify_push_config(world.now, request).unwrap();
    }
    assert_eq!(world.get_subscription(SUBSCRIPTION).unwrap().push_config, Some(PushConfig::default()));
    assert_eq!(world.bodies(SUBSCRIPTION), ["a"]);
}

#[test]
fn an_update_changes_what_its_mask_names_and_nothing_else() {
    let mut world = World::with_subscription();
    world.topic(DEAD);
    let before = world.get_subscription(SUBSCRIPTION).unwrap();
    let change = Subscription {
        ack_deadline_seconds: 60,
        labels: attributes(&[("a", "b")]),
        retain_acked_messages: true,
        message_retention_duration: Some(seconds(HOUR)),
        expiration_policy: ttl(DAY),
        dead_letter_policy: dead_letters(DEAD, 7),
        retry_policy: backoff(Some(1), Some(2)),
        enable_exactly_once_delivery: true,
        filter: "attributes:a".to_owned(),
        ..subscription()
    };
    let updated = world.update_subscription(change.clone(), &["ack_deadline_seconds", "labels"]).unwrap();
    let expected =
        Subscription { ack_deadline_seconds: 60, labels: attributes(&[("a", "b")]), ..before.clone() };
    assert_eq!(updated, expected);
    let rest = [
        "retain_acked_messages",
        "message_retention_duration",
        "expiration_policy",
        "dead_letter_policy",
        "retry_policy",
        "enable_exactly_once_delivery",
    ];
    let updated = world.update_subscription(change.clone(), &rest).unwrap();
    let expected = Subscription {
        filter: String::new(),
        state: before.state,
        push_config: before.push_config.clone(),
        ..change
    };
    assert_eq!(updated, expected);
    assert_eq!(world.get_subscription(SUBSCRIPTION), Ok(updated));
    let all = [&["ack_deadline_seconds", "labels"], &rest[..]].concat();
    assert_eq!(world.update_subscription(subscription(), &all), Ok(before), "what is unset gets its default");
}

#[test]
fn an_update_that_is_refused_changes_nothing() {
    let mut world = World::with_subscription();
    let before = world.get_subscription(SUBSCRIPTION).unwrap();
    let begins = "InvalidArgument: Invalid update_mask provided in the UpdateSubscriptionRequest: ";
    let change = Subscription {
        ack_deadline_seconds: 5,
        labels: attributes(&[("a", "b")]),
        dead_letter_policy: dead_letters("projects/p/topics/none", 5),
        bigquery_config: Some(Default::default()),
        ..subscription()
    };
    let immutable = ["filter", "enable_message_ordering", "topic", "name", "detached", "state", "tags"];
    for field in immutable {
        let words = format!("{begins}the '{field}' field in the Subscription is not mutable.");
        assert_eq!(refused(world.update_subscription(change.clone(), &["labels", field])), words);
    }
    let table = [
        ("pushConfig", begins),
        ("push_config.endpoint", begins),
        ("dead_letter_policy.dead_letter_topic", "NotFound: "),
        ("ack_deadline_seconds", "InvalidArgument: Invalid ack deadline"),
        ("dead_letter_policy", "NotFound: "),
        ("bigquery_config", "Unimplemented: "),
    ];
    for (field, words) in table {
        let refusal = refused(world.update_subscription(change.clone(), &["labels", field]));
        assert!(refusal.starts_with(words), "{refusal}");
    }
    assert_eq!(world.get_subscription(SUBSCRIPTION), Ok(before));
    let absent = Subscription { name: named("none"), ..subscription() };
    assert_eq!(code(world.update_subscription(absent, &["labels"])), Code::NotFound);
}

#[test]
fn a_project_s_subscriptions_are_listed_a_page_at_a_time() {
    let mut world = World::with_subscription();
    world.subscribe(another("aaa"));
    world.subscribe(Subscription { name: "projects/q/subscriptions/aaa".to_owned(), ..subscription() });
    let mut list = |token: &str| {
        let request = pubsub::ListSubscriptionsRequest {
            project: "projects/p".to_owned(),
            page_size: 1,
            page_token: token.to_owned(),
        };
        let response = world.broker.list_subscriptions(world.now, request).unwrap();
        (response.subscriptions[0].name.clone(), response.next_page_token)
    };
    let (first, token) = list("");
    assert_eq!((first, list(&token)), (named("aaa"), (SUBSCRIPTION.to_owned(), String::new())));
}

#[test]
fn a_deleted_subscription_is_gone_with_its_messages() {
    let mut world = World::with_subscription();
    world.publish(TOPIC, &["a"]);
    let request = pubsub::DeleteSubscriptionRequest { subscription: SUBSCRIPTION.to_owned() };
    world.broker.take_woken();
    world.broker.delete_subscription(world.now, request.clone()).unwrap();
    assert_eq!(world.broker.take_woken(), [SUBSCRIPTION], "whoever waits learns of it");
    assert_eq!(code(world.try_pull(SUBSCRIPTION, 1)), Code::NotFound);
    assert_eq!(code(world.broker.delete_subscription(world.now, request)), Code::NotFound);
    assert_eq!(world.broker.next_due(), None, "nothing is planned for it any more");
    world.subscribe(subscription());
    assert_eq!(world.bodies(SUBSCRIPTION), [""; 0]);
}

#[test]
fn a_detached_subscription_has_no_messages_and_gets_none() {
    let mut world = World::with_subscription();
    world.publish(TOPIC, &["a", "b"]);
    let held = world.try_pull(SUBSCRIPTION, 1).unwrap();
    world.detach(SUBSCRIPTION);
    assert!(world.broker.take_woken().contains(&SUBSCRIPTION.to_owned()));
    world.publish(TOPIC, &["c"]);
    let subscription = world.get_subscription(SUBSCRIPTION).unwrap();
    assert_eq!((subscription.detached, subscription.topic.as_str()), (true, TOPIC));
    let refusal = format!("FailedPrecondition: The subscription {SUBSCRIPTION} is detached from its topic.");
    assert_eq!(refused(world.try_pull(SUBSCRIPTION, 1)), refusal);
    assert_eq!(refused(world.snapshot(SNAPSHOT, SUBSCRIPTION)), refusal);
    let begin = pubsub::seek_request::Target::Time(Time::default().timestamp());
    assert_eq!(refused(world.seek(SUBSCRIPTION, begin)), refusal);
    assert_eq!(
        world.acknowledge(SUBSCRIPTION, &ack_ids(&held)),
        Ok(()),
        "what was held is dropped all the same"
    );
    assert_eq!(world.broker.overview(world.now).subscriptions[0].messages.backlog, 0);
    let request = pubsub::DetachSubscriptionRequest { subscription: named("none") };
    assert_eq!(code(world.broker.detach_subscription(world.now, request)), Code::NotFound);
}
