//! The effects of time: expiry, retention, and that the broker reports when it is due.

use super::*;

fn expiring(days: u64) -> pubsub::Subscription {
    let policy = pubsub::ExpirationPolicy { ttl: Some(seconds(days * DAY)) };
    pubsub::Subscription { expiration_policy: Some(policy), ..subscription() }
}

#[test]
fn a_subscription_that_nobody_uses_expires() {
    let mut world = World::new();
    world.topic(TOPIC);
    world.subscribe(expiring(1));
    let never = pubsub::ExpirationPolicy { ttl: None };
    world.subscribe(pubsub::Subscription { expiration_policy: Some(never), ..another("eternal") });
    world.pass(DAY - 1);
    assert_eq!(world.bodies(SUBSCRIPTION), [""; 0], "a pull is a use");
    world.publish(TOPIC, &["a"]);
    world.pass(DAY - 1);
    assert_eq!(world.broker.overview(world.now).subscriptions.len(), 2);
    world.broker.take_woken();
    world.pass(1);
    assert_eq!(world.broker.take_woken(), [SUBSCRIPTION]);
    assert_eq!(code(world.get_subscription(SUBSCRIPTION)), Code::NotFound);
    world.pass(1_000 * DAY);
    assert!(world.get_subscription(&named("eternal")).is_ok());
}

#[test]
fn every_use_prolongs_its_life() {
    type Use = fn(&mut World);
    let uses: [(&str, Use); 5] = [
        ("get", |world| drop(world.get_subscription(SUBSCRIPTION).unwrap())),
        ("pull", |world| drop(world.pull(SUBSCRIPTION))),
        ("seek", |world| world.seek_to_time(SUBSCRIPTION, world.now)),
        ("snapshot", |world| drop(world.snapshot("", SUBSCRIPTION).unwrap())),
        ("update", |world| drop(world.update_subscription(subscription(), &["labels"]).unwrap())),
    ];
    for (name, r#use) in uses {
        let mut world = World::new();
        world.topic(TOPIC);
        world.subscribe(expiring(1));
        world.pass(DAY - 1);
        r#use(&mut world);
        world.pass(DAY - 1);
        assert_eq!(world.broker.overview(world.now).subscriptions.len(), 1, "{name}");
        world.pass(1);
        assert_eq!(world.broker.overview(world.now).subscriptions.len(), 0, "{name}");
    }
}

#[test]
fn an_open_stream_keeps_its_subscription() {
    let mut world = World::new();
    world.topic(TOPIC);
    world.subscribe(expiring(1));
    let request = pubsub::StreamingPullRequest {
        subscription: SUBSCRIPTION.to_owned(),
        stream_ack_deadline_seconds: 10,
        ..Default::default()
    };
    let (stream, _) = world.broker.open_stream(world.now, &request).unwrap();
    world.pass(10 * DAY);
    world.broker.close_stream(world.now, stream);
    assert_eq!(world.broker.overview(world.now).subscriptions.len(), 1);
    world.pass(DAY);
    assert_eq!(world.broker.overview(world.now).subscriptions.len(), 0);
}

#[test]
fn an_expiration_that_is_shortened_counts_at_once() {
    let mut world = World::with_subscription();
    world.pass(2 * DAY);
    let retention = pubsub::Subscription { message_retention_duration: Some(seconds(DAY)), ..expiring(1) };
    world.update_subscription(retention, &["expiration_policy", "message_retention_duration"]).unwrap();
    assert_eq!(world.broker.next_due(), Some(world.now + Duration::from_secs(DAY)));
    world.pass(DAY);
    assert_eq!(world.broker.overview(world.now).subscriptions.len(), 0);
}

#[test]
fn messages_are_kept_for_the_retention_and_no_longer() {
    let mut world = World::new();
    world.topic(TOPIC);
    let retention = Some(seconds(10 * MINUTE));
    world.subscribe(pubsub::Subscription { message_retention_duration: retention, ..subscription() });
    world.publish(TOPIC, &["a"]);
    world.pass(10 * MINUTE - 1);
    world.publish(TOPIC, &["b"]);
    world.pass(1);
    assert_eq!(world.drain(SUBSCRIPTION), ["b"]);
}

#[test]
fn overdue_work_is_done_as_of_its_due_time() {
    let mut world = World::new();
    world.topic(TOPIC);
    let policy = pubsub::RetryPolicy { minimum_backoff: Some(seconds(0)), maximum_backoff: Some(seconds(0)) };
    world.subscribe(pubsub::Subscription { retry_policy: Some(policy), ..expiring(30) });
    world.publish(TOPIC, &["a"]);
    assert_eq!(world.bodies(SUBSCRIPTION), ["a"]);
    world.snapshot(SNAPSHOT, SUBSCRIPTION).unwrap();
    let mut dues = 0;
    while let Some(due) = world.broker.next_due() {
        assert!(due > world.now, "what is done is not due any more");
        world.now = due;
        world.broker.advance(due);
        dues += 1;
    }
    assert!(dues < 10, "{dues} looks for a lease, a retention, a snapshot and an expiration");
    let left = world.broker.overview(world.now);
    assert_eq!((left.subscriptions.len(), left.snapshots.len(), left.topics.len()), (0, 0, 1));
}

#[test]
fn a_reset_removes_everything_except_the_faults() {
    let mut world = World::with_subscription();
    let faults = Faults { lose: 1.0, ..Faults::default() };
    world.publish(TOPIC, &["a"]);
    world.broker.set_faults(faults.clone());
    world.publish(TOPIC, &["b"]);
    world.broker.take_woken();
    world.broker.forget_everything();
    assert_eq!(world.broker.fault_counts().lost, 1);
    assert_eq!(world.broker.overview(world.now), Default::default());
    assert_eq!((world.broker.next_due(), world.broker.faults()), (None, &faults));
    assert_eq!(world.broker.take_woken(), [SUBSCRIPTION], "whoever waits learns of it");
    assert_eq!(code(world.try_pull(SUBSCRIPTION, 1)), Code::NotFound);
}
