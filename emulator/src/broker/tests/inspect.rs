//! Looking at messages, and acknowledging one without holding it.

use std::sync::Arc;

use super::*;
use crate::broker::{Holder, Message, MessagePage, MessageQuery, MessageState, MessageView, PageSize, Place};

/// Of the same names in another project.
const OTHER_TOPIC: &str = "projects/q/topics/orders";
const OTHER: &str = "projects/q/subscriptions/billing";

fn query(messages: usize, after: Option<Place>) -> MessageQuery {
    MessageQuery { after, acknowledged: false, size: PageSize { messages, bytes: 1 << 20 } }
}

fn look(world: &World, query: &MessageQuery) -> MessagePage {
    world.broker.messages(world.now, SUBSCRIPTION, query).unwrap().page
}

fn body_of(view: &MessageView) -> String {
    String::from_utf8(view.message.data.to_vec()).unwrap()
}

fn shown(page: &MessagePage) -> Vec<String> {
    page.messages.iter().map(body_of).collect()
}

fn states(world: &World, query: &MessageQuery) -> Vec<(MessageState, u32)> {
    look(world, query).messages.iter().map(|view| (view.state, view.attempts)).collect()
}

fn place(world: &World, body: &str) -> Place {
    let page = look(world, &query(100, None));
    page.messages.iter().find(|view| body_of(view) == body).unwrap().place
}

fn acknowledge(world: &mut World, subscription: &str, place: Place) -> Answer<()> {
    world.broker.acknowledge_message(world.now, subscription, place)
}

/// With a topic and a subscription of the same names in another project, and a message there.
fn world(subscription: pubsub::Subscription) -> World {
    let mut world = World::new();
    world.topic(TOPIC);
    world.subscribe(subscription);
    world.topic(OTHER_TOPIC);
    world.subscribe(pubsub::Subscription {
        name: OTHER.to_owned(),
        topic: OTHER_TOPIC.to_owned(),
        ..Default::default()
    });
    world.publish(OTHER_TOPIC, &["another's"]);
    world
}

#[test]
fn pages_follow_one_another_though_messages_come_and_go() {
    let mut world = world(subscription());
    world.publish(TOPIC, &["a", "b", "c", "d", "e"]);
    let first = look(&world, &query(2, None));
    assert_eq!(shown(&first), ["a", "b"]);
    let second = look(&world, &query(2, first.next));
    assert_eq!(shown(&second), ["c", "d"]);
    let last = look(&world, &query(2, second.next));
    assert_eq!((shown(&last), last.next), (vec!["e".to_owned()], None));

    let gone = place(&world, "b");
    acknowledge(&mut world, SUBSCRIPTION, gone).unwrap();
    world.publish(TOPIC, &["f"]);
    let taken = world.try_pull(SUBSCRIPTION, 1).unwrap();
    assert_eq!(bodies(&taken), ["a"]);
    assert_eq!(shown(&look(&world, &query(9, first.next))), ["c", "d", "e", "f"]);
    let next = first.next.unwrap();
    assert_eq!(Place::parse(&next.to_string()), Some(next));
    assert_eq!(world.drain(OTHER), ["another's"]);
}

#[test]
fn a_page_ends_with_the_message_that_reaches_its_size() {
    let mut world = world(subscription());
    world.publish(TOPIC, &["aaaa", "bbbb", "cccc"]);
    let bytes = |bytes| MessageQuery { size: PageSize { messages: 9, bytes }, ..query(9, None) };
    assert_eq!(shown(&look(&world, &bytes(8))), ["aaaa", "bbbb"]);
    let page = look(&world, &bytes(0));
    assert_eq!(shown(&page), ["aaaa"], "each page has one");
    assert_eq!(shown(&look(&world, &MessageQuery { after: page.next, ..bytes(0) })), ["bbbb"]);
}

#[test]
fn a_page_passes_a_limited_number_of_messages() {
    let mut world = world(pubsub::Subscription { retain_acked_messages: true, ..subscription() });
    for _ in 0..25 {
        world.publish(TOPIC, &["settled"; 1_000]);
        assert_eq!(world.drain(SUBSCRIPTION).len(), 1_000);
    }
    world.publish(TOPIC, &["open"]);
    let passing = look(&world, &query(10, None));
    assert!(passing.messages.is_empty() && passing.next.is_some());
    let found = look(&world, &query(10, passing.next));
    assert_eq!((shown(&found), found.next), (vec!["open".to_owned()], None));
    let all = MessageQuery { acknowledged: true, ..query(10, None) };
    assert_eq!(shown(&look(&world, &all)), ["settled"; 10]);
}

#[test]
fn a_message_is_shown_in_the_state_that_a_taker_would_find() {
    let retry =
        pubsub::RetryPolicy { minimum_backoff: Some(seconds(30)), maximum_backoff: Some(seconds(60)) };
    let mut world = world(pubsub::Subscription {
        ack_deadline_seconds: 20,
        retain_acked_messages: true,
        retry_policy: Some(retry),
        ..subscription()
    });
    world.publish(TOPIC, &["settled", "failed", "held", "free"]);
    let ids = ack_ids(&world.try_pull(SUBSCRIPTION, 3).unwrap());
    world.acknowledge(SUBSCRIPTION, &ids[..1]).unwrap();
    world.modify_ack_deadline(SUBSCRIPTION, &ids[1..2], 0).unwrap();
    let after = |seconds| world.now + Duration::from_secs(seconds);
    let waiting = (MessageState::Waiting { until: after(30) }, 1);
    let held = (MessageState::Outstanding { until: after(20), holder: Holder::Pull }, 1);
    let pending = [waiting, held, (MessageState::Available, 0)];
    assert_eq!(states(&world, &query(10, None)), pending);
    let all = MessageQuery { acknowledged: true, ..query(10, None) };
    assert_eq!(states(&world, &all)[0], (MessageState::Acknowledged, 0));
    assert_eq!(states(&world, &all)[1..], pending);
}

#[test]
fn a_message_is_behind_the_earlier_ones_of_its_key() {
    let mut world = world(pubsub::Subscription { enable_message_ordering: true, ..subscription() });
    let keyed = |body| pubsub::PubsubMessage { ordering_key: "key".to_owned(), ..message(body) };
    world.publish_messages(TOPIC, vec![keyed("first"), keyed("second")]).unwrap();
    let behind = (MessageState::Behind, 0);
    assert_eq!(states(&world, &query(9, None)), [(MessageState::Available, 0), behind]);
    let taken = world.try_pull(SUBSCRIPTION, 1).unwrap();
    assert_eq!(states(&world, &query(9, None))[1], behind, "the first is held");
    world.acknowledge(SUBSCRIPTION, &ack_ids(&taken)).unwrap();
    assert_eq!(states(&world, &query(9, None)), [(MessageState::Available, 0)]);
}

#[test]
fn the_stream_that_holds_a_message_is_named() {
    let mut world = world(subscription());
    world.publish(TOPIC, &["held"]);
    let request = pubsub::StreamingPullRequest {
        subscription: SUBSCRIPTION.to_owned(),
        stream_ack_deadline_seconds: 10,
        client_id: "worker-7".to_owned(),
        ..Default::default()
    };
    let (stream, _) = world.broker.open_stream(world.now, &request).unwrap();
    world.broker.take_for_stream(world.now, stream, 10);
    let contents = world.broker.messages(world.now, SUBSCRIPTION, &query(10, None)).unwrap();
    assert_eq!(contents.clients.get(&stream).map(String::as_str), Some("worker-7"));
    let until = world.now + Duration::from_secs(10);
    let held = MessageState::Outstanding { until, holder: Holder::Stream(stream) };
    assert_eq!(contents.page.messages[0].state, held);
}

#[test]
fn one_message_is_acknowledged_whoever_holds_it() {
    let mut world = world(subscription());
    world.publish(TOPIC, &["held", "free", "left"]);
    let ids = ack_ids(&world.try_pull(SUBSCRIPTION, 1).unwrap());
    for body in ["held", "free"] {
        let place = place(&world, body);
        assert_eq!(code(acknowledge(&mut world, OTHER, place)), Code::NotFound, "it is another's");
        acknowledge(&mut world, SUBSCRIPTION, place).unwrap();
        assert_eq!(code(acknowledge(&mut world, SUBSCRIPTION, place)), Code::NotFound, "it is gone");
    }
    world.acknowledge(SUBSCRIPTION, &ids).unwrap();
    world.pass(MINUTE);
    assert_eq!(world.drain(SUBSCRIPTION), ["left"]);
    assert_eq!(world.drain(OTHER), ["another's"]);
}

#[test]
fn with_exactly_once_delivery_a_key_is_acknowledged_in_order() {
    let mut world = world(pubsub::Subscription {
        enable_message_ordering: true,
        enable_exactly_once_delivery: true,
        ..subscription()
    });
    let keyed = |body| pubsub::PubsubMessage { ordering_key: "key".to_owned(), ..message(body) };
    world.publish_messages(TOPIC, vec![keyed("first"), keyed("second"), keyed("third")]).unwrap();
    let ids = ack_ids(&world.try_pull(SUBSCRIPTION, 1).unwrap());
    let (first, second) = (place(&world, "first"), place(&world, "second"));
    assert_eq!(code(acknowledge(&mut world, SUBSCRIPTION, second)), Code::FailedPrecondition);
    acknowledge(&mut world, SUBSCRIPTION, first).unwrap();
    world.acknowledge(SUBSCRIPTION, &ids).unwrap();
    acknowledge(&mut world, SUBSCRIPTION, second).unwrap();
    assert_eq!(world.drain(SUBSCRIPTION), ["third"]);
}

#[test]
fn a_topic_shows_what_it_keeps_page_by_page() {
    let mut world = world(subscription());
    let kept = "projects/p/topics/kept";
    let retention = Some(seconds(HOUR));
    let topic =
        pubsub::Topic { name: kept.to_owned(), message_retention_duration: retention, ..Default::default() };
    world.create_topic(topic).unwrap();
    world.publish(kept, &["a", "b", "c"]);
    let size = PageSize { messages: 2, bytes: 1_000 };
    let look = |after| world.broker.topic_contents(world.now, kept, after, size).unwrap();
    let texts = |messages: &[Arc<Message>]| -> Vec<Vec<u8>> {
        messages.iter().map(|message| message.data.to_vec()).collect()
    };
    let first = look(0);
    assert_eq!((first.retained, texts(&first.messages)), (3, vec![b"a".to_vec(), b"b".to_vec()]));
    let last = look(first.next.unwrap());
    assert_eq!((texts(&last.messages), last.next), (vec![b"c".to_vec()], None));
    let other = world.broker.topic_contents(world.now, OTHER_TOPIC, 0, size).unwrap();
    assert_eq!((other.retained, other.subscriptions.len()), (0, 1));
    assert_eq!(other.subscriptions[0].name, OTHER);
}

#[test]
fn unlisted_subscriptions_of_a_topic_are_counted() {
    let mut world = world(subscription());
    for number in 0..600 {
        world.subscribe(another(&format!("more-{number}")));
        world.snapshot(&format!("projects/p/snapshots/at-{number}"), SUBSCRIPTION).unwrap();
    }
    let contents = world.broker.messages(world.now, SUBSCRIPTION, &query(10, None)).unwrap();
    assert_eq!((contents.snapshots.len(), contents.snapshot_count), (500, 600));
    let size = PageSize { messages: 2, bytes: 1_000 };
    let topic = world.broker.topic_contents(world.now, TOPIC, 0, size).unwrap();
    assert_eq!((topic.snapshots.len(), topic.snapshot_count), (500, 600));
    assert_eq!((topic.subscriptions.len(), topic.subscription_count), (500, 601));
    let other = world.broker.topic_contents(world.now, OTHER_TOPIC, 0, size).unwrap();
    assert_eq!((other.snapshot_count, other.subscription_count), (0, 1));
}
