//! Publishing: limits, fan-out, filters, dead letters, faults.

use super::*;

const DEAD: &str = "projects/p/topics/dead";

fn with_attributes(pairs: &[(&str, &str)]) -> pubsub::PubsubMessage {
    pubsub::PubsubMessage { attributes: attributes(pairs), ..Default::default() }
}

fn keyed(key: &str) -> pubsub::PubsubMessage {
    pubsub::PubsubMessage { ordering_key: key.to_owned(), ..message("x") }
}

/// Requests at a limit, and the first ones beyond it.
fn limits() -> Vec<(Vec<pubsub::PubsubMessage>, Option<&'static str>)> {
    let attributes = |count: usize| pubsub::PubsubMessage {
        attributes: (0..count).map(|i| (format!("a{i}"), String::new())).collect(),
        ..Default::default()
    };
    let too_large = |field: &str| -> Option<&'static str> {
        Some(format!("InvalidArgument: The value for {field} is too large. You passed ").leak())
    };
    vec![
        (
            vec![],
            Some(
                "InvalidArgument: The value for message_count is too small. You passed 0 in the request, but the minimum value is 1.",
            ),
        ),
        (vec![message("x"); 1_000], None),
        (vec![message("x"); 1_001], too_large("message_count")),
        (
            vec![message(""), message("x")],
            Some("InvalidArgument: One or more messages in the publish request is empty."),
        ),
        (vec![with_attributes(&[("a", "")])], None),
        (
            vec![with_attributes(&[("", "a")])],
            Some("InvalidArgument: The request contains an attribute key that is not valid (key=)."),
        ),
        (
            vec![with_attributes(&[("Googly", "a")])],
            Some("InvalidArgument: The request contains an attribute key that is not valid (key=Googly)."),
        ),
        (
            vec![with_attributes(&[("googclient_other", "a")])],
            Some("InvalidArgument: The request contains an attribute key that is not valid"),
        ),
        (vec![with_attributes(&[("googclient_traceparent", "a"), ("googclient_tracestate", "b")])], None),
        (vec![with_attributes(&[("gooö", "a"), ("go", "b")])], None),
        (vec![with_attributes(&[("a", &"v".repeat(1_024))])], None),
        (vec![with_attributes(&[("a", &"v".repeat(1_025))])], too_large("attribute_value_size")),
        (vec![with_attributes(&[(&"k".repeat(256), "v")])], None),
        (vec![with_attributes(&[(&"k".repeat(257), "v")])], too_large("attribute_key_size")),
        (vec![with_attributes(&[(&"goog".repeat(65), "v")])], too_large("attribute_key_size")),
        (vec![attributes(100)], None),
        (vec![attributes(101)], too_large("num_attributes")),
        (vec![keyed(&"k".repeat(1_024))], None),
        (vec![keyed(&"k".repeat(1_025))], too_large("ordering_key_size")),
        (vec![keyed("a"), keyed("a")], None),
        (
            vec![keyed("a"), keyed("b")],
            Some("InvalidArgument: In a single publish request, all messages must"),
        ),
        (
            vec![keyed("a"), keyed("")],
            Some("InvalidArgument: In a single publish request, all messages must"),
        ),
        (vec![message(&"x".repeat(9_999_900))], None),
        (vec![message(&"x".repeat(10_000_000))], too_large("request_size")),
        (vec![message(&"x".repeat(5_000_000)), message(&"x".repeat(5_000_000))], too_large("request_size")),
    ]
}

#[test]
fn the_service_s_limits_hold() {
    for (messages, refusal) in limits() {
        let mut world = World::with_subscription();
        let sizes: Vec<_> = messages.iter().map(|message| message.data.len()).take(3).collect();
        let answer = world.publish_messages(TOPIC, messages);
        let Some(words) = refusal else {
            assert!(answer.is_ok(), "{answer:?} {sizes:?}");
            continue;
        };
        let found = refused(answer);
        assert!(found.starts_with(words), "{found}\nis not\n{words}");
        assert_eq!(world.bodies(SUBSCRIPTION), [""; 0], "nothing of it was published");
    }
    let mut world = World::new();
    let refusal = refused(world.publish_messages(TOPIC, vec![message("x")]));
    assert_eq!(refusal, "NotFound: Resource not found (resource=orders).");
    assert_eq!(code(world.publish_messages("orders", vec![message("x")])), Code::InvalidArgument);
}

#[test]
fn a_message_goes_to_every_subscription_that_is_there_and_lets_it_through() {
    let mut world = World::with_subscription();
    world.topic("projects/p/topics/other");
    world.subscribe(pubsub::Subscription { topic: "projects/p/topics/other".to_owned(), ..another("other") });
    world.subscribe(pubsub::Subscription {
        filter: "attributes.lang = \"en\"".to_owned(),
        ..another("english")
    });
    world.broker.take_woken();
    let spoken =
        |lang, body| pubsub::PubsubMessage { attributes: attributes(&[("lang", lang)]), ..message(body) };
    let ids = world.publish_messages(TOPIC, vec![spoken("en", "hello"), spoken("fr", "salut")]).unwrap();
    assert_eq!(world.broker.take_woken(), [SUBSCRIPTION, &named("english")], "each once, and no other");
    let received = world.pull(SUBSCRIPTION);
    assert_eq!(bodies(&received), ["hello", "salut"]);
    let first = received[0].message.as_ref().unwrap();
    assert_eq!((&first.message_id, first.publish_time), (&ids[0], Some(world.now.timestamp())));
    assert_eq!((received[0].delivery_attempt, first.attributes["lang"].as_str()), (0, "en"));
    assert_eq!(world.bodies(&named("english")), ["hello"]);
    assert_eq!(world.bodies(&named("other")), [""; 0]);
    world.subscribe(another("late"));
    assert_eq!(world.bodies(&named("late")), [""; 0]);
    world.publish_messages(TOPIC, vec![spoken("fr", "adieu")]).unwrap();
    assert!(
        !world.broker.take_woken().contains(&named("english")),
        "nobody is woken for what it filters out"
    );
}

#[test]
fn the_time_of_publication_has_whole_milliseconds() {
    let mut world = World::with_subscription();
    world.now = world.now + std::time::Duration::from_nanos(7_999_999);
    world.publish(TOPIC, &["a"]);
    let published = world.pull(SUBSCRIPTION)[0].message.as_ref().unwrap().publish_time.unwrap();
    assert_eq!((published.seconds, published.nanos % 1_000_000), (world.now.timestamp().seconds, 0));
    assert!(published.nanos > 0, "{published:?}");
}

#[test]
fn another_broker_gives_other_message_and_ack_ids() {
    let ids = |seconds| {
        let mut world = World::new();
        world.broker.number_from(Time::from_secs(seconds));
        world.topic(TOPIC);
        world.subscribe(subscription());
        let ids = world.publish(TOPIC, &["a"]);
        (ids, world.pull(SUBSCRIPTION).remove(0).ack_id)
    };
    let (before, after) = (ids(1_700_000_000), ids(1_700_000_001));
    assert!(before.0[0].parse::<u64>().unwrap() < after.0[0].parse().unwrap(), "{before:?} {after:?}");
    assert_ne!(before.1, after.1);
}

#[test]
fn message_ids_are_never_given_twice() {
    let mut world = World::with_subscription();
    let mut ids = world.publish(TOPIC, &["a", "b"]);
    world.broker.forget_everything();
    world.topic(TOPIC);
    ids.extend(world.publish(TOPIC, &["c", "d"]));
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), 4, "{ids:?}");
}

fn with_dead_letters() -> World {
    let mut world = World::new();
    world.topic(TOPIC);
    world.topic(DEAD);
    let policy = pubsub::DeadLetterPolicy { dead_letter_topic: DEAD.to_owned(), max_delivery_attempts: 5 };
    world.subscribe(pubsub::Subscription { dead_letter_policy: Some(policy), ..subscription() });
    world.subscribe(pubsub::Subscription { topic: DEAD.to_owned(), ..another("undertaker") });
    world
}

/// Pulls and gives back repeatedly; returns the reported delivery attempts.
fn give_back(world: &mut World, times: usize) -> Vec<i32> {
    let mut attempts = Vec::new();
    for _ in 0..times {
        let received = world.pull(SUBSCRIPTION);
        attempts.extend(received.iter().map(|received| received.delivery_attempt));
        if !received.is_empty() {
            world.modify_ack_deadline(SUBSCRIPTION, &ack_ids(&received), 0).unwrap();
        }
    }
    attempts
}

#[test]
fn a_message_that_fails_too_often_is_published_as_a_dead_letter() {
    let mut world = with_dead_letters();
    let original = pubsub::PubsubMessage { attributes: attributes(&[("a", "b")]), ..keyed("k") };
    let ids = world.publish_messages(TOPIC, vec![original]).unwrap();
    world.pass(1);
    assert_eq!(give_back(&mut world, 6), [1, 2, 3, 4, 5]);
    assert!(world.broker.take_woken().contains(&named("undertaker")));
    let received = world.pull(&named("undertaker"));
    let letter = received[0].message.as_ref().unwrap();
    let expected = attributes(&[
        ("a", "b"),
        ("CloudPubSubDeadLetterSourceDeliveryCount", "5"),
        ("CloudPubSubDeadLetterSourceSubscription", "billing"),
        ("CloudPubSubDeadLetterSourceSubscriptionProject", "p"),
        ("CloudPubSubDeadLetterSourceTopicPublishTime", "2023-11-14T22:13:20.000+00:00"),
    ]);
    assert_eq!(letter.attributes, expected);
    assert_eq!((letter.data.as_ref(), letter.ordering_key.as_str()), (&b"x"[..], "k"));
    assert_ne!(letter.message_id, ids[0]);
    assert_eq!(letter.publish_time, Some(world.now.timestamp()));
    assert_eq!(world.broker.overview(world.now).subscriptions[0].messages.backlog, 0);
}

#[test]
fn leases_that_run_out_make_dead_letters_too() {
    let mut world = with_dead_letters();
    world.publish(TOPIC, &["a"]);
    for _ in 0..5 {
        assert_eq!(world.bodies(SUBSCRIPTION), ["a"]);
        world.pass(10);
    }
    assert_eq!(world.bodies(&named("undertaker")), ["a"]);
    assert_eq!(world.bodies(SUBSCRIPTION), [""; 0]);
}

#[test]
fn without_the_dead_letter_topic_messages_stay() {
    let mut world = with_dead_letters();
    world.publish(TOPIC, &["a"]);
    assert_eq!(give_back(&mut world, 4), [1, 2, 3, 4]);
    world.delete_topic(DEAD);
    let policy = world.get_subscription(SUBSCRIPTION).unwrap().dead_letter_policy.unwrap();
    assert_eq!(policy.dead_letter_topic, "_deleted-topic_");
    world.topic(DEAD);
    assert_eq!(give_back(&mut world, 3), [0, 0, 0], "they are not counted, whatever topic has that name now");
    assert_eq!(world.bodies(SUBSCRIPTION), ["a"]);
    assert_eq!(world.bodies(&named("undertaker")), [""; 0]);
    let change = pubsub::Subscription { labels: attributes(&[("a", "b")]), ..subscription() };
    world.update_subscription(change, &["labels"]).unwrap();
}

#[test]
fn faults_of_messages_repeat_with_the_same_seed() {
    let run = |seed| {
        let faults = Faults { seed, lose: 0.3, duplicate: 0.3, reorder: 0.3, ..Faults::default() };
        let mut world = World::with_subscription();
        world.broker.set_faults(faults);
        let bodies: Vec<String> = (0..50).map(|i| i.to_string()).collect();
        world.publish(TOPIC, &bodies.iter().map(String::as_str).collect::<Vec<_>>());
        (world.bodies(SUBSCRIPTION), world.broker.fault_counts())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let (found, counts) = run(1);
    let distinct: std::collections::BTreeSet<_> = found.iter().collect();
    assert_eq!(counts.lost as usize, 50 - distinct.len());
    assert_eq!(counts.duplicated as usize, found.len() - distinct.len());
    assert!(counts.reordered > 0 && counts.delayed == 0, "{counts:?}");
    assert!(distinct.len() < 50, "some are lost");
    assert!(distinct.len() < found.len(), "some come twice");
    assert!(!found.is_sorted_by_key(|body| body.parse::<u32>().unwrap()), "some overtake");
}

#[test]
fn exactly_once_delivery_is_never_doubled() {
    let mut world = World::new();
    world.topic(TOPIC);
    world.subscribe(pubsub::Subscription { enable_exactly_once_delivery: true, ..subscription() });
    world.broker.set_faults(Faults { duplicate: 1.0, ..Faults::default() });
    world.publish(TOPIC, &["a", "b"]);
    assert_eq!(world.broker.fault_counts().duplicated, 0);
    assert_eq!(world.bodies(SUBSCRIPTION), ["a", "b"]);
}
