//! Snapshots, and seeking.

use pubsub::seek_request::Target;

use super::*;

fn to_snapshot() -> Target {
    Target::Snapshot(SNAPSHOT.to_owned())
}

fn update(world: &mut World, snapshot: pubsub::Snapshot, paths: &[&str]) -> Answer<pubsub::Snapshot> {
    let request = pubsub::UpdateSnapshotRequest { snapshot: Some(snapshot), update_mask: Some(mask(paths)) };
    world.broker.update_snapshot(world.now, request)
}

fn get(world: &mut World) -> Answer<pubsub::Snapshot> {
    world.broker.get_snapshot(world.now, pubsub::GetSnapshotRequest { snapshot: SNAPSHOT.to_owned() })
}

#[test]
fn a_snapshot_keeps_what_was_unacknowledged_and_what_came_after() {
    let mut world = World::with_subscription();
    world.publish(TOPIC, &["settled"]);
    world.drain(SUBSCRIPTION);
    world.publish(TOPIC, &["open"]);
    let made = world.snapshot(SNAPSHOT, SUBSCRIPTION).unwrap();
    assert_eq!((made.name.as_str(), made.topic.as_str()), (SNAPSHOT, TOPIC));
    world.publish(TOPIC, &["after"]);
    assert_eq!(world.drain(SUBSCRIPTION), ["open", "after"]);
    for _ in 0..2 {
        world.seek(SUBSCRIPTION, to_snapshot()).unwrap();
        assert_eq!(world.drain(SUBSCRIPTION), ["open", "after"]);
    }
    assert_eq!(world.broker.overview(world.now).snapshots[0].messages, 2);
}

#[test]
fn another_subscription_of_the_topic_gets_what_its_filter_lets_through() {
    let mut world = World::with_subscription();
    world.subscribe(pubsub::Subscription { filter: "attributes:a".to_owned(), ..another("picky") });
    let marked = pubsub::PubsubMessage { attributes: attributes(&[("a", "")]), ..message("marked") };
    world.publish_messages(TOPIC, vec![message("plain"), marked]).unwrap();
    world.snapshot(SNAPSHOT, SUBSCRIPTION).unwrap();
    world.drain(&named("picky"));
    world.seek(&named("picky"), to_snapshot()).unwrap();
    assert_eq!(world.drain(&named("picky")), ["marked"]);
}

#[test]
fn it_expires_seven_days_after_its_oldest_message() {
    let mut world = World::with_subscription();
    let begin = world.now;
    world.publish(TOPIC, &["a"]);
    world.pass(3 * DAY);
    let made = world.snapshot(SNAPSHOT, SUBSCRIPTION).unwrap();
    assert_eq!(made.expire_time, Some((begin + Duration::from_secs(7 * DAY)).timestamp()));
    world.pass(4 * DAY - 1);
    assert!(get(&mut world).is_ok());
    world.pass(1);
    assert_eq!(code(get(&mut world)), Code::NotFound);
    let empty = world.snapshot(SNAPSHOT, SUBSCRIPTION).unwrap();
    assert_eq!(empty.expire_time, Some((world.now + Duration::from_secs(7 * DAY)).timestamp()));
}

#[test]
fn one_that_would_expire_within_the_hour_is_refused() {
    let mut world = World::with_subscription();
    world.publish(TOPIC, &["a"]);
    world.pass(7 * DAY - HOUR);
    world.snapshot(SNAPSHOT, SUBSCRIPTION).unwrap();
    world.pass(1);
    let refusal = refused(world.snapshot("projects/p/snapshots/late", SUBSCRIPTION));
    assert!(
        refusal.starts_with("FailedPrecondition: The backlog in the subscription is too old"),
        "{refusal}"
    );
}

#[test]
fn rejects_what_the_service_rejects() {
    let mut world = World::with_subscription();
    world.snapshot(SNAPSHOT, SUBSCRIPTION).unwrap();
    let table = [
        (SNAPSHOT, SUBSCRIPTION, "AlreadyExists: Resource already exists in the project (resource=friday)."),
        (
            "projects/p/snapshots/new",
            "projects/p/subscriptions/none",
            "NotFound: Resource not found (resource=none).",
        ),
        ("friday", SUBSCRIPTION, "InvalidArgument: Invalid resource name given (name=friday)."),
    ];
    for (name, subscription, words) in table {
        let refusal = refused(world.snapshot(name, subscription));
        assert!(refusal.starts_with(words), "{refusal}");
    }
    let assigned = world.snapshot("", SUBSCRIPTION).unwrap();
    assert!(assigned.name.starts_with("projects/p/snapshots/"), "{}", assigned.name);
    let request = pubsub::CreateSnapshotRequest {
        name: "projects/p/snapshots/new".to_owned(),
        subscription: SUBSCRIPTION.to_owned(),
        tags: attributes(&[("1/a", "b")]),
        ..Default::default()
    };
    assert_eq!(code(world.broker.create_snapshot(world.now, request)), Code::Unimplemented);
}

#[test]
fn it_is_listed_updated_and_deleted() {
    let mut world = World::with_subscription();
    let made = world.snapshot(SNAPSHOT, SUBSCRIPTION).unwrap();
    world.snapshot("projects/q/snapshots/friday", SUBSCRIPTION).unwrap();
    let list = pubsub::ListSnapshotsRequest { project: "projects/p".to_owned(), ..Default::default() };
    assert_eq!(world.broker.list_snapshots(world.now, list).unwrap().snapshots, std::slice::from_ref(&made));
    let of_topic =
        pubsub::ListTopicSnapshotsRequest { topic: TOPIC.to_owned(), page_size: 1, ..Default::default() };
    let page = world.broker.list_topic_snapshots(world.now, of_topic.clone()).unwrap();
    assert_eq!(page.snapshots, [SNAPSHOT]);
    let next = pubsub::ListTopicSnapshotsRequest { page_token: page.next_page_token, ..of_topic };
    let page = world.broker.list_topic_snapshots(world.now, next).unwrap();
    assert_eq!(
        (page.snapshots, page.next_page_token),
        (vec!["projects/q/snapshots/friday".to_owned()], String::new())
    );

    let soon = world.now + Duration::from_secs(HOUR);
    let change = pubsub::Snapshot {
        labels: attributes(&[("a", "b")]),
        expire_time: Some(soon.timestamp()),
        ..made.clone()
    };
    assert_eq!(update(&mut world, change.clone(), &["labels"]).unwrap().expire_time, made.expire_time);
    assert_eq!(update(&mut world, change.clone(), &["expire_time"]), Ok(change.clone()));
    let past = pubsub::Snapshot { expire_time: Some(world.now.timestamp()), ..made.clone() };
    for (snapshot, paths) in
        [(past, vec!["expire_time"]), (made.clone(), vec![]), (made.clone(), vec!["topic"])]
    {
        assert_eq!(code(update(&mut world, snapshot, &paths)), Code::InvalidArgument, "{paths:?}");
    }
    world.pass(HOUR);
    assert_eq!(code(get(&mut world)), Code::NotFound, "it expired when the update said");
    let request = pubsub::DeleteSnapshotRequest { snapshot: "projects/q/snapshots/friday".to_owned() };
    world.broker.delete_snapshot(world.now, request.clone()).unwrap();
    assert_eq!(code(world.broker.delete_snapshot(world.now, request)), Code::NotFound);
    assert_eq!(world.broker.overview(world.now).topics[0].snapshots, 0);
}

#[test]
fn seeking_to_a_time_settles_what_is_older_and_reopens_what_is_retained() {
    let mut world = World::new();
    world.topic(TOPIC);
    world.subscribe(pubsub::Subscription { retain_acked_messages: true, ..subscription() });
    world.subscribe(another("forgetful"));
    world.publish(TOPIC, &["a"]);
    world.pass(60);
    let middle = world.now;
    world.publish(TOPIC, &["b"]);
    assert_eq!(world.drain(SUBSCRIPTION), ["a", "b"]);
    assert_eq!(world.drain(&named("forgetful")), ["a", "b"]);
    world.broker.take_woken();
    world.seek_to_time(SUBSCRIPTION, middle);
    assert!(world.broker.take_woken().contains(&SUBSCRIPTION.to_owned()));
    world.seek_to_time(&named("forgetful"), Time::default());
    assert_eq!(world.drain(SUBSCRIPTION), ["b"]);
    assert_eq!(world.drain(&named("forgetful")), [""; 0], "it retained nothing");
    world.publish(TOPIC, &["c"]);
    world.pass(60);
    world.seek_to_time(SUBSCRIPTION, world.now);
    assert_eq!(world.drain(SUBSCRIPTION), [""; 0], "all of it is older");
}

#[test]
fn rejects_invalid_seek_targets() {
    let mut world = World::with_subscription();
    world.topic("projects/p/topics/other");
    world.subscribe(pubsub::Subscription { topic: "projects/p/topics/other".to_owned(), ..another("other") });
    world.snapshot(SNAPSHOT, &named("other")).unwrap();
    let target = |name: &str| Target::Snapshot(name.to_owned());
    assert_eq!(code(world.seek(SUBSCRIPTION, target("projects/p/snapshots/none"))), Code::NotFound);
    assert_eq!(code(world.seek(SUBSCRIPTION, target("nonsense"))), Code::InvalidArgument);
    assert_eq!(code(world.seek(&named("none"), to_snapshot())), Code::NotFound);
    let refusal = refused(world.seek(SUBSCRIPTION, to_snapshot()));
    assert!(
        refusal.starts_with(
            "FailedPrecondition: The subscription's topic projects/p/topics/orders is different"
        )
    );
    let nowhere = pubsub::SeekRequest { subscription: SUBSCRIPTION.to_owned(), target: None };
    assert_eq!(code(world.broker.seek(world.now, nowhere)), Code::InvalidArgument);
    let malformed = Target::Time(crate::proto::protobuf::Timestamp { seconds: 1, nanos: -1 });
    assert_eq!(code(world.seek(SUBSCRIPTION, malformed)), Code::InvalidArgument);
}
