//! Consistency after any sequence of requests: references between resources agree, and what is due
//! is scheduled.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::saved::loaded;
use super::*;
use crate::broker::Name;
use crate::broker::names::DELETED_TOPIC;

fn topic(number: u8) -> String {
    format!("projects/p/topics/topic-{}", number % 3)
}

fn subscribed(number: u8) -> String {
    named(&format!("sub-{}", number % 4))
}

fn snapped(number: u8) -> String {
    format!("projects/p/snapshots/snap-{}", number % 2)
}

/// Makes one call, which may be refused.
fn call(world: &mut World, kind: u8, a: u8, b: u8) {
    let now = world.now;
    match kind {
        0 => {
            let retention = b.is_multiple_of(2).then(|| seconds(HOUR));
            let topic =
                pubsub::Topic { name: topic(a), message_retention_duration: retention, ..Default::default() };
            drop(world.create_topic(topic));
        }
        1 => drop(world.broker.delete_topic(now, pubsub::DeleteTopicRequest { topic: topic(a) })),
        2 | 3 => {
            let policy =
                pubsub::DeadLetterPolicy { dead_letter_topic: topic(b / 3), max_delivery_attempts: 5 };
            let subscription = pubsub::Subscription {
                name: subscribed(a),
                topic: topic(b),
                retain_acked_messages: b.is_multiple_of(5),
                enable_message_ordering: b.is_multiple_of(7),
                dead_letter_policy: (kind == 2).then_some(policy),
                ..Default::default()
            };
            drop(world.create_subscription(subscription));
        }
        4 => {
            let request = pubsub::DeleteSubscriptionRequest { subscription: subscribed(a) };
            drop(world.broker.delete_subscription(now, request));
        }
        5 => {
            let request = pubsub::DetachSubscriptionRequest { subscription: subscribed(a) };
            drop(world.broker.detach_subscription(now, request));
        }
        6 => {
            let policy = pubsub::DeadLetterPolicy { dead_letter_topic: topic(b), max_delivery_attempts: 5 };
            let policy = (!b.is_multiple_of(4)).then_some(policy);
            let change = pubsub::Subscription {
                name: subscribed(a),
                dead_letter_policy: policy,
                ..Default::default()
            };
            drop(world.update_subscription(change, &["dead_letter_policy", "expiration_policy"]));
        }
        7 => drop(world.snapshot(&snapped(a), &subscribed(b))),
        8 => {
            drop(world.broker.delete_snapshot(now, pubsub::DeleteSnapshotRequest { snapshot: snapped(a) }));
        }
        9 => drop(world.seek(&subscribed(a), pubsub::seek_request::Target::Snapshot(snapped(b)))),
        10 => drop(world.publish_messages(&topic(a), vec![message("x"); usize::from(b % 4)])),
        11 | 12 => {
            let received = world.try_pull(&subscribed(a), 3).unwrap_or_default();
            let ids = ack_ids(&received);
            let seconds = if b.is_multiple_of(3) { 0 } else { 30 };
            drop(if kind == 11 {
                world.modify_ack_deadline(&subscribed(a), &ids, seconds)
            } else {
                world.acknowledge(&subscribed(a), &ids)
            });
        }
        _ => world.pass(u64::from(a) * u64::from(b) * u64::from(b)),
    }
}

fn check_topics(broker: &Broker) {
    for (name, topic) in &broker.topics {
        for subscription in topic.subscriptions.iter().chain(&topic.detached) {
            let subscription = &broker.subscriptions[subscription];
            assert_eq!((subscription.config.topic.as_str(), subscription.topic), (&**name, topic.number));
            assert_eq!(subscription.config.detached, topic.detached.contains(&subscription.name));
        }
        for snapshot in &topic.snapshots {
            let snapshot = &broker.snapshots[snapshot];
            assert_eq!((snapshot.config.topic.as_str(), snapshot.topic), (&**name, topic.number));
        }
    }
}

fn check_back_references(broker: &Broker) {
    let mut sources: BTreeMap<Name, BTreeSet<Name>> = BTreeMap::new();
    for (name, subscription) in &broker.subscriptions {
        if subscription.config.topic != DELETED_TOPIC {
            let topic = &broker.topics[subscription.config.topic.as_str()];
            assert!(topic.subscriptions.contains(name) || topic.detached.contains(name));
        }
        if let Some(topic) = subscription.dead_letter_topic() {
            assert!(broker.topics.contains_key(topic.as_str()), "dead letters go where there is a topic");
            sources.entry(topic.into()).or_default().insert(name.clone());
        }
    }
    assert_eq!(broker.dead_letter_sources, sources);
    for (name, snapshot) in &broker.snapshots {
        if snapshot.config.topic != DELETED_TOPIC {
            assert!(broker.topics[snapshot.config.topic.as_str()].snapshots.contains(name));
        }
    }
}

/// Checks that nothing is due without being scheduled, and that after `advance` nothing scheduled
/// is in the past.
fn check_plans(world: &World) {
    let broker = &world.broker;
    let dues = broker.subscriptions.values().filter_map(|subscription| subscription.next_due());
    let expiries = broker.snapshots.values().map(|snapshot| snapshot.expires);
    if let Some(first) = dues.chain(expiries).min() {
        assert!(broker.next_due().is_some_and(|planned| planned <= first));
    }
    assert!(broker.next_due().is_none_or(|planned| planned > world.now));
}

/// Checks that what was noted makes the same state, of which the same holds.
fn check_restart(world: &World) {
    let mut after = loaded(world.broker.take_changes(), world.now);
    let same = loaded(world.broker.state(), world.now);
    assert_eq!(after.broker.state()[1..], same.broker.state()[1..]);
    check_topics(&after.broker);
    check_back_references(&after.broker);
    after.pass(0);
    check_plans(&after);
}

proptest! {
    #[test]
    fn resources_agree_and_what_is_due_is_planned(
        calls in proptest::collection::vec((0_u8..14, any::<u8>(), any::<u8>()), 1..120),
    ) {
        let mut world = World::new();
        world.broker.note_changes();
        for (kind, a, b) in calls {
            call(&mut world, kind, a, b);
            check_topics(&world.broker);
            check_back_references(&world.broker);
            world.pass(0);
            check_plans(&world);
        }
        check_restart(&world);
    }
}
