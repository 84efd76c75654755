//! What is noted of changes makes the same state again.

use proptest::prelude::*;
use pubsub::seek_request::Target;

use super::schemas::{LIKE_ONE, LIKE_TWO, ONE, SCHEMA, TWO, avro, marks, settings};
use super::*;
use crate::broker::{Change, Saved};
use crate::proto::pubsub::{Encoding, SchemaView};

const DEAD: &str = "projects/p/topics/dead";

fn after_five() -> Option<pubsub::DeadLetterPolicy> {
    Some(pubsub::DeadLetterPolicy { dead_letter_topic: DEAD.to_owned(), max_delivery_attempts: 5 })
}

/// A world whose changes are noted.
struct Noted {
    world: World,
    changes: Vec<Change>,
}

impl Noted {
    fn new() -> Self {
        let mut world = World::new();
        world.broker.note_changes();
        world.topic(TOPIC);
        world.subscribe(subscription());
        Self { world, changes: Vec::new() }
    }

    /// The broker that the notes make, after a break.
    fn restarted(&mut self) -> World {
        self.changes.append(&mut self.world.broker.take_changes());
        loaded(self.changes.clone(), self.world.now)
    }
}

/// The broker that changes make.
pub(super) fn loaded(changes: Vec<Change>, now: Time) -> World {
    load_into(Broker::new(Faults::default()), changes, now)
}

fn load_into(mut broker: Broker, changes: Vec<Change>, now: Time) -> World {
    let mut saved = Saved::default();
    for change in changes {
        saved.apply(change).unwrap();
    }
    broker.load(now, saved).unwrap();
    World { broker, now }
}

#[test]
fn after_a_restart_there_is_what_was_not_acknowledged() {
    let mut noted = Noted::new();
    noted.world.topic("projects/q/topics/orders");
    noted.world.publish(TOPIC, &["a", "b", "c"]);
    let received = noted.world.pull(SUBSCRIPTION);
    noted.world.acknowledge(SUBSCRIPTION, &ack_ids(&received)[1..2]).unwrap();
    let mut after = noted.restarted();
    assert_eq!(after.bodies(SUBSCRIPTION), ["a", "c"]);
    assert_eq!(after.broker.overview(after.now).topics.len(), 2);
    assert_eq!(after.drain(SUBSCRIPTION), [""; 0], "they are leased");
}

#[test]
fn an_ack_id_of_an_earlier_process_is_late_and_settles_nothing() {
    let mut noted = Noted::new();
    noted.world.publish(TOPIC, &["a", "b", "c"]);
    let old = noted.world.pull(SUBSCRIPTION);
    noted.world.acknowledge(SUBSCRIPTION, &ack_ids(&old)[..2]).unwrap();
    noted.world.pass(1);
    let mut after = noted.restarted();
    let new = after.pull(SUBSCRIPTION);
    after.acknowledge(SUBSCRIPTION, &ack_ids(&old)).unwrap();
    assert_eq!(after.broker.overview(after.now).subscriptions[0].messages.backlog, 1);
    after.acknowledge(SUBSCRIPTION, &ack_ids(&new)).unwrap();
    assert_eq!(after.broker.overview(after.now).subscriptions[0].messages.backlog, 0);
}

#[test]
fn failed_deliveries_are_counted_on() {
    let mut noted = Noted::new();
    noted.world.topic(DEAD);
    noted.world.subscribe(pubsub::Subscription { dead_letter_policy: after_five(), ..another("strict") });
    noted.world.publish(TOPIC, &["a"]);
    for _ in 0..2 {
        let received = noted.world.pull(&named("strict"));
        noted.world.modify_ack_deadline(&named("strict"), &ack_ids(&received), 0).unwrap();
    }
    assert_eq!(noted.restarted().pull(&named("strict"))[0].delivery_attempt, 3);
}

#[test]
fn a_message_that_dies_while_its_topic_is_deleted_is_not_lost() {
    let mut noted = Noted::new();
    let world = &mut noted.world;
    world.topic(DEAD);
    world.subscribe(pubsub::Subscription { topic: DEAD.to_owned(), ..another("letters") });
    world.subscribe(pubsub::Subscription { dead_letter_policy: after_five(), ..another("strict") });
    world.publish(TOPIC, &["a"]);
    for _ in 0..4 {
        let received = world.pull(&named("strict"));
        world.modify_ack_deadline(&named("strict"), &ack_ids(&received), 0).unwrap();
    }
    world.pull(&named("strict"));
    // The last lease has ended, and nothing has looked at it yet.
    world.now = world.now + Duration::from_secs(MINUTE);
    world.delete_topic(TOPIC);
    assert_eq!(noted.restarted().bodies(&named("letters")), ["a"]);
}

#[test]
fn messages_that_expired_during_a_break_stay_gone_with_a_longer_retention() {
    let mut noted = Noted::new();
    let retaining = |duration| pubsub::Subscription {
        message_retention_duration: Some(seconds(duration)),
        ..another("short")
    };
    noted.world.subscribe(retaining(HOUR));
    noted.world.publish(TOPIC, &["a"]);
    let mut changes = noted.world.broker.take_changes();
    let mut broker = Broker::new(Faults::default());
    broker.note_changes();
    noted.world.pass(HOUR);
    let mut after = load_into(broker, changes.clone(), noted.world.now);
    after.update_subscription(retaining(2 * HOUR), &["message_retention_duration"]).unwrap();
    changes.append(&mut after.broker.take_changes());
    let mut later = loaded(changes, after.now);
    assert_eq!(later.drain(&named("short")), [""; 0]);
    assert_eq!(later.drain(SUBSCRIPTION), ["a"]);
}

#[test]
fn snapshots_and_retained_messages_come_back() {
    let mut noted = Noted::new();
    let kept = pubsub::Topic {
        name: "projects/p/topics/kept".to_owned(),
        message_retention_duration: Some(seconds(HOUR)),
        ..Default::default()
    };
    noted.world.create_topic(kept).unwrap();
    noted.world.publish("projects/p/topics/kept", &["early"]);
    noted.world.publish(TOPIC, &["open"]);
    noted.world.snapshot(SNAPSHOT, SUBSCRIPTION).unwrap();
    noted.world.publish(TOPIC, &["after"]);
    noted.world.drain(SUBSCRIPTION);
    let mut after = noted.restarted();
    assert_eq!(after.drain(SUBSCRIPTION), [""; 0]);
    after.seek(SUBSCRIPTION, Target::Snapshot(SNAPSHOT.to_owned())).unwrap();
    assert_eq!(after.drain(SUBSCRIPTION), ["open", "after"]);
    let late = pubsub::Subscription { topic: "projects/p/topics/kept".to_owned(), ..another("late") };
    after.subscribe(late);
    after.seek_to_time(&named("late"), Time::default());
    assert_eq!(after.drain(&named("late")), ["early"]);
}

#[test]
fn a_message_that_is_restored_comes_back_even_if_only_its_second_copy_was_left() {
    let mut noted = Noted::new();
    let world = &mut noted.world;
    world.broker.set_faults(Faults { duplicate: 1.0, ..Faults::default() });
    world.publish(TOPIC, &["a"]);
    world.snapshot(SNAPSHOT, SUBSCRIPTION).unwrap();
    let both = world.pull(SUBSCRIPTION);
    assert_eq!(bodies(&both), ["a", "a"]);
    world.acknowledge(SUBSCRIPTION, &ack_ids(&both)[..1]).unwrap();
    world.seek(SUBSCRIPTION, Target::Snapshot(SNAPSHOT.to_owned())).unwrap();
    assert_eq!(noted.restarted().bodies(SUBSCRIPTION), ["a"]);
    let mut from_state = loaded(noted.world.broker.state(), noted.world.now);
    assert_eq!(from_state.bodies(SUBSCRIPTION), ["a"]);
}

/// The attributes of the messages that are available, which are given back.
fn attributes_of(world: &mut World) -> Vec<Vec<(String, String)>> {
    let received = world.pull(SUBSCRIPTION);
    world.modify_ack_deadline(SUBSCRIPTION, &ack_ids(&received), 0).unwrap();
    let attributes = |received: pubsub::ReceivedMessage| received.message.unwrap().attributes;
    received.into_iter().map(|received| attributes(received).into_iter().collect()).collect()
}

#[test]
fn schemas_come_back_with_what_topics_and_messages_say_of_them() {
    let mut noted = Noted::new();
    let world = &mut noted.world;
    let one = world.create_schema("order", avro(ONE)).unwrap();
    world.pass(1);
    let two = world.commit(TWO).unwrap();
    let from_one = settings(Encoding::Json, &one.revision_id, "");
    world.update_schema(from_one.clone(), &["schema_settings"]).unwrap();
    world.send(LIKE_ONE).unwrap();
    world.send(LIKE_TWO).unwrap();
    let first = format!("{SCHEMA}@{}", one.revision_id);
    let mut before = noted.restarted();
    assert_eq!(before.get_schema(&first, SchemaView::Full), Ok(one.clone()));
    noted.world.delete_revision(&first).unwrap();

    let mut after = noted.restarted();
    assert_eq!(code(after.get_schema(&first, SchemaView::Full)), Code::NotFound);
    assert_eq!(after.get_schema(SCHEMA, SchemaView::Full), Ok(two.clone()));
    let gone = marks(SCHEMA, "JSON", "_deleted-schema-revision_");
    assert_eq!(attributes_of(&mut after), [gone.clone(), marks(SCHEMA, "JSON", &two.revision_id)]);
    after.update_schema(from_one, &["schema_settings"]).unwrap();
    assert_eq!(code(after.send(LIKE_ONE)), Code::InvalidArgument);
    let three = after.rollback(&two.revision_id).unwrap();
    assert!(three.revision_id != one.revision_id && three.revision_id != two.revision_id);
    after.delete_revision(&format!("{SCHEMA}@{}", two.revision_id)).unwrap();
    assert_eq!(attributes_of(&mut after), [gone.clone(), gone], "a deletion shows in them as before");
    after.delete_schema(SCHEMA).unwrap();
    let gone = marks("_deleted-schema_", "JSON", "_deleted-schema-revision_");
    assert_eq!(attributes_of(&mut after), [gone.clone(), gone]);
}

#[test]
fn messages_of_a_deleted_schema_are_not_those_of_the_next_one() {
    let mut noted = Noted::new();
    let world = &mut noted.world;
    world.create_schema("order", avro(ONE)).unwrap();
    world.update_schema(settings(Encoding::Json, "", ""), &["schema_settings"]).unwrap();
    world.send(LIKE_ONE).unwrap();
    world.delete_schema(SCHEMA).unwrap();
    world.create_schema("order", avro(ONE)).unwrap();
    let mut after = noted.restarted();
    let gone = marks("_deleted-schema_", "JSON", "_deleted-schema-revision_");
    assert_eq!(attributes_of(&mut after), [gone]);
    assert_eq!(code(after.send(LIKE_ONE)), Code::FailedPrecondition);
}

#[test]
fn numbers_go_on_even_if_the_clock_was_set_back() {
    let mut noted = Noted::new();
    let last: u64 = noted.world.publish(TOPIC, &["a", "b"])[1].parse().unwrap();
    noted.world.drain(SUBSCRIPTION);
    let from_notes = noted.restarted();
    let mut again = loaded(from_notes.broker.state(), Time::from_secs(1));
    let next: u64 = again.publish(TOPIC, &["c"])[0].parse().unwrap();
    assert!(next > last, "{next}");
}

#[test]
fn everything_that_was_forgotten_stays_so() {
    let mut noted = Noted::new();
    noted.world.publish(TOPIC, &["a"]);
    noted.world.broker.forget_everything();
    noted.world.topic("projects/p/topics/next");
    let overview = noted.restarted().broker.overview(Time::default());
    assert_eq!((overview.topics.len(), overview.subscriptions.len()), (1, 0));
}

#[test]
fn nothing_is_noted_unless_it_is_asked_for() {
    let mut world = World::with_subscription();
    world.publish(TOPIC, &["a"]);
    assert_eq!(world.broker.take_changes(), []);
}

#[derive(Clone, Debug)]
enum Step {
    Publish { key: u8 },
    Pull { subscription: u8, most: u8 },
    Acknowledge(u8),
    Nack(u8),
    Snapshot,
    SeekToSnapshot(u8),
    SeekBack { subscription: u8, seconds: u8 },
    Detach,
    RecreateTopic,
    Retain { subscription: u8, acked: bool },
    RetainInTopic(bool),
    Schema { kind: u8, which: u8 },
    Pass(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let subscription = || 0_u8..3;
    prop_oneof![
        6 => (0_u8..3).prop_map(|key| Step::Publish { key }),
        5 => (subscription(), 1_u8..5).prop_map(|(subscription, most)| Step::Pull { subscription, most }),
        5 => any::<u8>().prop_map(Step::Acknowledge),
        2 => any::<u8>().prop_map(Step::Nack),
        1 => Just(Step::Snapshot),
        1 => subscription().prop_map(Step::SeekToSnapshot),
        1 => (subscription(), any::<u8>())
            .prop_map(|(subscription, seconds)| Step::SeekBack { subscription, seconds }),
        1 => Just(Step::Detach),
        1 => Just(Step::RecreateTopic),
        1 => (subscription(), any::<bool>())
            .prop_map(|(subscription, acked)| Step::Retain { subscription, acked }),
        1 => any::<bool>().prop_map(Step::RetainInTopic),
        3 => (0_u8..7, any::<u8>()).prop_map(|(kind, which)| Step::Schema { kind, which }),
        2 => any::<u8>().prop_map(Step::Pass),
    ]
}

fn of(subscription: u8) -> String {
    named(["plain", "ordered", "strict"][usize::from(subscription)])
}

/// Carries out a step; what is refused has no effect.
fn carry_out(world: &mut World, held: &mut Vec<(String, String)>, step: Step) {
    let retain = |acked| pubsub::Subscription { retain_acked_messages: acked, ..Default::default() };
    match step {
        Step::Publish { key } => {
            let ordering_key = ["", "k", "l"][usize::from(key)].to_owned();
            let body = message(if key == 2 { LIKE_TWO } else { LIKE_ONE });
            let _refused =
                world.publish_messages(TOPIC, vec![pubsub::PubsubMessage { ordering_key, ..body }]);
        }
        Step::Pull { subscription, most } => {
            let name = of(subscription);
            let pulled = world.try_pull(&name, most.into()).unwrap_or_default();
            held.extend(ack_ids(&pulled).into_iter().map(|id| (name.clone(), id)));
        }
        Step::Acknowledge(which) | Step::Nack(which) if !held.is_empty() => {
            let (name, id) = held.swap_remove(usize::from(which) % held.len());
            let _refused = if matches!(step, Step::Nack(_)) {
                world.modify_ack_deadline(&name, &[id], 0)
            } else {
                world.acknowledge(&name, &[id])
            };
        }
        Step::Acknowledge(_) | Step::Nack(_) => {}
        Step::Snapshot => drop(world.snapshot(SNAPSHOT, &of(0))),
        Step::SeekToSnapshot(subscription) => {
            drop(world.seek(&of(subscription), Target::Snapshot(SNAPSHOT.to_owned())));
        }
        Step::SeekBack { subscription, seconds } => {
            let time = world.now.before(Duration::from_secs(seconds.into()));
            drop(world.seek(&of(subscription), Target::Time(time.timestamp())));
        }
        Step::Detach => world.detach(&of(2)),
        Step::RecreateTopic => {
            world.delete_topic(TOPIC);
            world.topic(TOPIC);
        }
        Step::Retain { subscription, acked } => {
            let update = pubsub::Subscription { name: of(subscription), ..retain(acked) };
            world.update_subscription(update, &["retain_acked_messages"]).unwrap();
        }
        Step::RetainInTopic(retains) => {
            let topic = pubsub::Topic {
                name: TOPIC.to_owned(),
                message_retention_duration: retains.then(|| seconds(HOUR)),
                ..Default::default()
            };
            let update_mask = Some(mask(&["message_retention_duration"]));
            let request = pubsub::UpdateTopicRequest { topic: Some(topic), update_mask };
            world.broker.update_topic(world.now, request).unwrap();
        }
        Step::Schema { kind, which } => change_schema(world, kind, which),
        Step::Pass(seconds) => world.pass(seconds.into()),
    }
}

/// Changes the schema, or what the topic makes of it.
fn change_schema(world: &mut World, kind: u8, which: u8) {
    let schema = world.broker.schemas.get(SCHEMA);
    let ids: Vec<String> = schema.into_iter().flat_map(|it| it.revision_ids().map(str::to_owned)).collect();
    let id = ids.get(usize::from(which) % ids.len().max(1)).cloned().unwrap_or_default();
    drop(match kind {
        0 => world.create_schema("order", avro(ONE)).map(drop),
        1 => world.commit(if which.is_multiple_of(2) { ONE } else { TWO }).map(drop),
        2 => world.rollback(&id).map(drop),
        3 => world.delete_revision(&format!("{SCHEMA}@{id}")).map(drop),
        4 => world.delete_schema(SCHEMA),
        5 => world.update_schema(settings(Encoding::Json, &id, ""), &["schema_settings"]).map(drop),
        _ => world.update_schema(None, &["schema_settings"]).map(drop),
    });
}

/// All subscriptions are there from the beginning: a topic that was made again feeds none of them.
fn begun() -> Noted {
    let mut noted = Noted::new();
    noted.world.topic(DEAD);
    for subscription in [
        another("plain"),
        pubsub::Subscription { enable_message_ordering: true, ..another("ordered") },
        pubsub::Subscription {
            enable_message_ordering: true,
            enable_exactly_once_delivery: true,
            dead_letter_policy: after_five(),
            ..another("strict")
        },
    ] {
        noted.world.subscribe(subscription);
    }
    noted
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// The notes make the state that the broker is in, and its state makes it, too.
    #[test]
    fn notes_and_state_agree(steps in prop::collection::vec(step(), 1..80)) {
        let mut noted = begun();
        let mut held = Vec::new();
        for step in steps {
            carry_out(&mut noted.world, &mut held, step);
        }
        let from_notes = noted.restarted();
        let from_state = loaded(noted.world.broker.state(), noted.world.now);
        // The numbers come first; one that was given to a message that nothing has is not noted.
        prop_assert_eq!(&from_notes.broker.state()[1..], &from_state.broker.state()[1..]);
    }
}
