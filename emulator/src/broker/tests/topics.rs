//! Topics, and what happens to the resources that refer to them.

use super::*;

fn get(world: &mut World, name: &str) -> Answer<pubsub::Topic> {
    world.broker.get_topic(world.now, pubsub::GetTopicRequest { topic: name.to_owned() })
}

fn update(world: &mut World, topic: pubsub::Topic, paths: &[&str]) -> Answer<pubsub::Topic> {
    let request = pubsub::UpdateTopicRequest { topic: Some(topic), update_mask: Some(mask(paths)) };
    world.broker.update_topic(world.now, request)
}

fn list(world: &mut World, project: &str, size: i32, token: &str) -> (Vec<String>, String) {
    let request = pubsub::ListTopicsRequest {
        project: project.to_owned(),
        page_size: size,
        page_token: token.to_owned(),
    };
    let response = world.broker.list_topics(world.now, request).unwrap();
    (response.topics.into_iter().map(|topic| topic.name).collect(), response.next_page_token)
}

fn subscriptions(world: &mut World, topic: &str) -> Answer<Vec<String>> {
    let request = pubsub::ListTopicSubscriptionsRequest { topic: topic.to_owned(), ..Default::default() };
    world.broker.list_topic_subscriptions(world.now, request).map(|response| response.subscriptions)
}

fn topic() -> pubsub::Topic {
    pubsub::Topic { name: TOPIC.to_owned(), ..Default::default() }
}

#[test]
fn what_is_created_can_be_got_and_not_created_again() {
    let mut world = World::new();
    let created =
        world.create_topic(pubsub::Topic { labels: attributes(&[("env", "test")]), ..topic() }).unwrap();
    assert_eq!(created.state, i32::from(pubsub::topic::State::Active));
    assert_eq!(created.labels, attributes(&[("env", "test")]));
    assert_eq!(get(&mut world, TOPIC), Ok(created));
    assert_eq!(
        refused(world.create_topic(topic())),
        "AlreadyExists: Resource already exists in the project (resource=orders)."
    );
    assert_eq!(
        refused(get(&mut world, "projects/q/topics/orders")),
        "NotFound: Resource not found (resource=orders)."
    );
    assert_eq!(code(get(&mut world, "orders")), Code::InvalidArgument);
}

#[test]
fn rejects_what_the_service_rejects() {
    let region = |regions: &[&str]| {
        let regions = regions.iter().map(ToString::to_string).collect();
        Some(pubsub::MessageStoragePolicy { allowed_persistence_regions: regions, enforce_in_transit: false })
    };
    let table: [(pubsub::Topic, &str); 9] = [
        (
            pubsub::Topic { name: "projects/p/topics/ab".to_owned(), ..topic() },
            "InvalidArgument: Invalid resource name",
        ),
        (
            pubsub::Topic { message_retention_duration: Some(seconds(599)), ..topic() },
            "InvalidArgument: The value for message retention duration is out of bounds. You passed 9m59s",
        ),
        (pubsub::Topic { labels: attributes(&[("No", "")]), ..topic() }, "InvalidArgument: You have passed"),
        (
            pubsub::Topic { message_storage_policy: region(&[]), ..topic() },
            "InvalidArgument: You have passed",
        ),
        (
            pubsub::Topic { kms_key_name: "k".to_owned(), ..topic() },
            "Unimplemented: This emulator does not support Topic.kms_key_name: ",
        ),
        (
            pubsub::Topic { schema_settings: Some(Default::default()), ..topic() },
            "InvalidArgument: Invalid resource name given (schema_settings.schema=)",
        ),
        (
            pubsub::Topic { ingestion_data_source_settings: Some(Default::default()), ..topic() },
            "Unimplemented: This emulator does not support Topic.ingestion_data_source_settings: ",
        ),
        (
            pubsub::Topic { message_transforms: vec![Default::default()], ..topic() },
            "Unimplemented: This emulator does not support Topic.message_transforms: ",
        ),
        (
            pubsub::Topic { tags: attributes(&[("1/a", "b")]), ..topic() },
            "Unimplemented: This emulator does not support Topic.tags: ",
        ),
    ];
    for (topic, words) in table {
        let mut world = World::new();
        let refusal = refused(world.create_topic(topic));
        assert!(refusal.starts_with(words), "{refusal}");
        assert_eq!(world.broker.overview(world.now).topics, [], "nothing was made");
    }
    let mut world = World::new();
    let stored =
        world.create_topic(pubsub::Topic { message_storage_policy: region(&["here"]), ..topic() }).unwrap();
    assert_eq!(stored.message_storage_policy, region(&["here"]));
}

#[test]
fn an_update_changes_what_its_mask_names_and_nothing_else() {
    let mut world = World::with_subscription();
    let change = pubsub::Topic {
        labels: attributes(&[("a", "b")]),
        message_retention_duration: Some(seconds(HOUR)),
        ..topic()
    };
    let updated = update(&mut world, change.clone(), &["labels"]).unwrap();
    assert_eq!((updated.labels.len(), updated.message_retention_duration), (1, None));
    let updated = update(&mut world, change, &["message_retention_duration"]).unwrap();
    assert_eq!(updated.message_retention_duration, Some(seconds(HOUR)));
    let subscription = world.get_subscription(SUBSCRIPTION).unwrap();
    assert_eq!(subscription.topic_message_retention_duration, Some(seconds(HOUR)));
    let updated = update(&mut world, topic(), &["labels", "message_retention_duration"]).unwrap();
    assert_eq!((updated.labels.len(), updated.message_retention_duration), (0, None));
    assert_eq!(world.get_subscription(SUBSCRIPTION).unwrap().topic_message_retention_duration, None);
}

#[test]
fn an_update_that_is_refused_changes_nothing() {
    let mut world = World::with_subscription();
    let before = get(&mut world, TOPIC).unwrap();
    let change = pubsub::Topic {
        labels: attributes(&[("a", "b")]),
        message_retention_duration: Some(seconds(1)),
        kms_key_name: "k".to_owned(),
        ..topic()
    };
    let table: [(&[&str], &str); 6] = [
        (&[], "InvalidArgument: The update_mask in the UpdateTopicRequest must be set"),
        (
            &["labels", "nonsense"],
            "InvalidArgument: Invalid update_mask provided in the UpdateTopicRequest: 'nonsense'",
        ),
        (
            &["labels", "name"],
            "InvalidArgument: Invalid update_mask provided in the UpdateTopicRequest: the 'name'",
        ),
        (
            &["labels", "tags"],
            "InvalidArgument: Invalid update_mask provided in the UpdateTopicRequest: the 'tags'",
        ),
        (
            &["labels", "message_retention_duration"],
            "InvalidArgument: The value for message retention duration",
        ),
        (&["labels", "kms_key_name"], "Unimplemented: "),
    ];
    for (paths, words) in table {
        let refusal = refused(update(&mut world, change.clone(), paths));
        assert!(refusal.starts_with(words), "{refusal}");
        assert_eq!(get(&mut world, TOPIC).unwrap(), before);
    }
    assert_eq!(
        code(update(
            &mut world,
            pubsub::Topic { name: "projects/p/topics/none".to_owned(), ..topic() },
            &["labels"]
        )),
        Code::NotFound
    );
    assert_eq!(code(world.broker.update_topic(world.now, Default::default())), Code::InvalidArgument);
}

#[test]
fn a_project_s_topics_are_listed_a_page_at_a_time() {
    let mut world = World::new();
    for name in
        ["projects/p/topics/bbb", "projects/p/topics/aaa", "projects/pp/topics/ccc", "projects/p/topics/ccc"]
    {
        world.topic(name);
    }
    let (first, token) = list(&mut world, "projects/p", 2, "");
    assert_eq!(first, ["projects/p/topics/aaa", "projects/p/topics/bbb"]);
    world.topic("projects/p/topics/aab");
    world.delete_topic("projects/p/topics/bbb");
    let (second, token) = list(&mut world, "projects/p", 2, &token);
    assert_eq!((second, token.as_str()), (vec!["projects/p/topics/ccc".to_owned()], ""));
    assert_eq!(list(&mut world, "projects/none", 0, "").0, [""; 0]);
    let bad = |project: &str, token: &str| pubsub::ListTopicsRequest {
        project: project.to_owned(),
        page_token: token.to_owned(),
        ..Default::default()
    };
    for request in [bad("p", ""), bad("projects/p", "nonsense")] {
        assert_eq!(code(world.broker.list_topics(world.now, request)), Code::InvalidArgument);
    }
}

#[test]
fn a_deleted_topic_leaves_its_subscriptions_and_a_new_one_of_its_name_is_another() {
    let mut world = World::with_subscription();
    world.publish(TOPIC, &["before"]);
    world.snapshot(SNAPSHOT, SUBSCRIPTION).unwrap();
    world.delete_topic(TOPIC);
    assert_eq!(code(get(&mut world, TOPIC)), Code::NotFound);
    assert_eq!(code(world.publish_messages(TOPIC, vec![message("x")])), Code::NotFound);
    assert_eq!(world.get_subscription(SUBSCRIPTION).unwrap().topic, "_deleted-topic_");
    let snapshot = pubsub::GetSnapshotRequest { snapshot: SNAPSHOT.to_owned() };
    assert_eq!(world.broker.get_snapshot(world.now, snapshot).unwrap().topic, "_deleted-topic_");

    world.topic(TOPIC);
    assert_eq!(subscriptions(&mut world, TOPIC), Ok(Vec::new()));
    world.publish(TOPIC, &["after"]);
    assert_eq!(world.drain(SUBSCRIPTION), ["before"], "what it had stays, and nothing comes");
    world.subscribe(another("other"));
    let to_snapshot = pubsub::seek_request::Target::Snapshot(SNAPSHOT.to_owned());
    assert_eq!(code(world.seek(&named("other"), to_snapshot.clone())), Code::FailedPrecondition);
    world.seek(SUBSCRIPTION, to_snapshot).unwrap();
    assert_eq!(world.bodies(SUBSCRIPTION), ["before"]);
}

#[test]
fn a_topic_s_subscriptions_are_those_that_are_attached() {
    let mut world = World::with_subscription();
    world.subscribe(another("aaa"));
    world.subscribe(pubsub::Subscription {
        name: "projects/q/subscriptions/aaa".to_owned(),
        ..subscription()
    });
    let all = ["projects/p/subscriptions/aaa", SUBSCRIPTION, "projects/q/subscriptions/aaa"];
    assert_eq!(subscriptions(&mut world, TOPIC).unwrap(), all);
    world.detach(SUBSCRIPTION);
    let request = pubsub::DeleteSubscriptionRequest { subscription: named("aaa") };
    world.broker.delete_subscription(world.now, request).unwrap();
    assert_eq!(subscriptions(&mut world, TOPIC).unwrap(), ["projects/q/subscriptions/aaa"]);
    assert_eq!(code(subscriptions(&mut world, "projects/p/topics/none")), Code::NotFound);
    world.delete_topic(TOPIC);
    assert_eq!(world.get_subscription(SUBSCRIPTION).unwrap().topic, "_deleted-topic_", "detached ones too");
}

#[test]
fn a_retention_of_the_topic_brings_messages_to_a_subscription_that_seeks_back() {
    let mut world = World::new();
    world.create_topic(pubsub::Topic { message_retention_duration: Some(seconds(HOUR)), ..topic() }).unwrap();
    let begin = world.now;
    world.publish(TOPIC, &["one"]);
    world.pass(30 * MINUTE);
    world
        .publish_messages(
            TOPIC,
            vec![pubsub::PubsubMessage { attributes: attributes(&[("a", "b")]), ..message("two") }],
        )
        .unwrap();
    let late = world.subscribe(subscription());
    assert_eq!(late.topic_message_retention_duration, Some(seconds(HOUR)));
    world.subscribe(pubsub::Subscription { filter: "attributes:a".to_owned(), ..another("picky") });
    assert_eq!(world.drain(SUBSCRIPTION), [""; 0], "a new subscription has nothing of before");

    world.seek_to_time(SUBSCRIPTION, begin);
    world.seek_to_time(&named("picky"), begin);
    assert_eq!(world.drain(SUBSCRIPTION), ["one", "two"]);
    assert_eq!(world.drain(&named("picky")), ["two"]);
    world.pass(31 * MINUTE);
    world.seek_to_time(SUBSCRIPTION, begin);
    assert_eq!(
        world.drain(SUBSCRIPTION),
        ["two"],
        "acknowledged ones come back too, while the topic has them"
    );
    world.pass(30 * MINUTE);
    world.seek_to_time(SUBSCRIPTION, begin);
    assert_eq!(world.drain(SUBSCRIPTION), [""; 0]);
    assert_eq!(world.broker.overview(world.now).topics[0].retained, 0, "and nothing is kept longer");
}
