//! Pulling, acknowledging, deadlines: which requests are valid, and what they answer.

use super::*;

#[test]
fn rejects_pulls_and_acknowledgements_with_invalid_arguments() {
    let mut world = World::with_subscription();
    let bad = "InvalidArgument: You have passed an invalid argument to the service (argument=max_messages).";
    for most in [0, -1] {
        assert_eq!(refused(world.try_pull(SUBSCRIPTION, most)), bad);
    }
    let none = "InvalidArgument: You have not specified an ack ID in the request.";
    assert_eq!(refused(world.acknowledge(SUBSCRIPTION, &[])), none);
    assert_eq!(refused(world.modify_ack_deadline(SUBSCRIPTION, &[], 10)), none);
    let foreign = ["nonsense".to_owned()];
    let unknown = "InvalidArgument: You have passed an invalid ack ID to the service (ack_id=nonsense).";
    assert_eq!(refused(world.acknowledge(SUBSCRIPTION, &foreign)), unknown);
    assert_eq!(refused(world.modify_ack_deadline(SUBSCRIPTION, &foreign, 10)), unknown);
    for seconds in [-1, 601] {
        assert_eq!(
            refused(world.modify_ack_deadline(SUBSCRIPTION, &foreign, seconds)),
            format!(
                "InvalidArgument: Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between \
                 0 and 600 seconds."
            )
        );
    }
    let many = vec!["x".repeat(1_000); 525];
    let large = "InvalidArgument: Request payload size exceeds the limit: 524288 bytes.";
    assert_eq!(refused(world.acknowledge(SUBSCRIPTION, &many)), large);
    assert_eq!(refused(world.modify_ack_deadline(SUBSCRIPTION, &many, 10)), large);
    for name in [named("none"), "nonsense".to_owned()] {
        let expected = if name == "nonsense" { Code::InvalidArgument } else { Code::NotFound };
        assert_eq!(code(world.try_pull(&name, 1)), expected);
        assert_eq!(code(world.acknowledge(&name, &foreign)), expected);
        assert_eq!(code(world.modify_ack_deadline(&name, &foreign, 10)), expected);
    }
}

#[test]
fn what_is_pulled_is_leased_until_its_deadline() {
    let mut world = World::with_subscription();
    world.publish(TOPIC, &["a", "b", "c"]);
    let first = world.try_pull(SUBSCRIPTION, 2).unwrap();
    assert_eq!(bodies(&first), ["a", "b"]);
    assert_eq!(world.bodies(SUBSCRIPTION), ["c"]);
    world.modify_ack_deadline(SUBSCRIPTION, &ack_ids(&first)[..1], 60).unwrap();
    world.broker.take_woken();
    world.pass(9);
    assert_eq!(world.broker.take_woken(), [""; 0]);
    world.pass(1);
    assert_eq!(world.broker.take_woken(), [SUBSCRIPTION], "leases have run out");
    assert_eq!(world.drain(SUBSCRIPTION), ["b", "c"]);
    world.pass(50);
    assert_eq!(world.drain(SUBSCRIPTION), ["a"]);
    world.pass(DAY);
    assert_eq!(world.bodies(SUBSCRIPTION), [""; 0]);
}

#[test]
fn a_nack_wakes_waiting_pulls() {
    let mut world = World::with_subscription();
    world.publish(TOPIC, &["a"]);
    let received = world.pull(SUBSCRIPTION);
    world.broker.take_woken();
    world.modify_ack_deadline(SUBSCRIPTION, &ack_ids(&received), 0).unwrap();
    assert_eq!(world.broker.take_woken(), [SUBSCRIPTION]);
    assert_eq!(world.bodies(SUBSCRIPTION), ["a"]);
}

#[test]
fn a_retry_policy_makes_it_wait_and_the_broker_says_how_long() {
    let mut world = World::new();
    world.topic(TOPIC);
    let policy =
        pubsub::RetryPolicy { minimum_backoff: Some(seconds(20)), maximum_backoff: Some(seconds(600)) };
    world.subscribe(pubsub::Subscription { retry_policy: Some(policy), ..subscription() });
    world.publish(TOPIC, &["a"]);
    let received = world.pull(SUBSCRIPTION);
    world.modify_ack_deadline(SUBSCRIPTION, &ack_ids(&received), 0).unwrap();
    world.broker.take_woken();
    assert_eq!(world.bodies(SUBSCRIPTION), [""; 0]);
    world.pass(19);
    assert_eq!((world.bodies(SUBSCRIPTION), world.broker.take_woken()), (vec![], vec![]));
    let due = world.broker.next_due().unwrap();
    assert_eq!(due.since(world.now), Duration::from_secs(1));
    world.pass(1);
    assert_eq!(world.broker.take_woken(), [SUBSCRIPTION]);
    assert_eq!(world.bodies(SUBSCRIPTION), ["a"]);
}

#[test]
fn without_exactly_once_delivery_a_late_acknowledgement_is_no_error() {
    let mut world = World::with_subscription();
    world.publish(TOPIC, &["a"]);
    let first = world.pull(SUBSCRIPTION);
    world.pass(10);
    let second = world.pull(SUBSCRIPTION);
    assert_eq!(world.acknowledge(SUBSCRIPTION, &ack_ids(&first)), Ok(()));
    assert_eq!(world.acknowledge(SUBSCRIPTION, &ack_ids(&second)), Ok(()));
    assert_eq!(world.acknowledge(SUBSCRIPTION, &ack_ids(&second)), Ok(()));
}

#[test]
fn exactly_once_delivery_reports_the_outcome_of_each_ack_id() {
    let mut world = World::new();
    world.topic(TOPIC);
    world.subscribe(pubsub::Subscription { enable_exactly_once_delivery: true, ..subscription() });
    world.publish(TOPIC, &["a", "b"]);
    let first = ack_ids(&world.pull(SUBSCRIPTION));
    world.acknowledge(SUBSCRIPTION, &first[..1]).unwrap();
    world.pass(10);
    let ids = [first[0].clone(), first[1].clone(), "nonsense".to_owned()];
    for answer in
        [world.acknowledge(SUBSCRIPTION, &ids[1..]), world.modify_ack_deadline(SUBSCRIPTION, &ids[1..], 0)]
    {
        let refusal = answer.unwrap_err();
        assert_eq!(refusal.code, Code::InvalidArgument);
        let reason = refusal.reason.unwrap();
        assert_eq!(reason.reason, "EXACTLY_ONCE_ACKID_FAILURE");
        let failed = "PERMANENT_FAILURE_INVALID_ACK_ID";
        assert_eq!(reason.metadata, attributes(&[(&first[1], failed), ("nonsense", failed)]));
    }
    assert_eq!(world.acknowledge(SUBSCRIPTION, &ids[..1]), Ok(()), "asked again, the answer is the same");
    assert_eq!(world.drain(SUBSCRIPTION), ["b"]);
}
