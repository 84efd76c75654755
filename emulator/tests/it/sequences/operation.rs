//! What a generated sequence consists of, and what is seen of each operation.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tonic::Code;

/// A topic, subscription or snapshot of the sequence's project.
pub(super) type Id = u8;

/// A sequence has so many of each.
pub(super) const IDS: Id = 2;
/// Most messages in a request.
const MESSAGES_MAX: usize = 3;
const KEYS: u8 = 2;
const LENGTH_MAX: usize = 30;

/// One or a few calls. Its subscriptions have long leases, so that nothing depends on time.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    CreateTopic(Id),
    DeleteTopic(Id),
    GetTopic(Id),
    ListTopics,
    Subscribe {
        subscription: Id,
        topic: Id,
        ordered: bool,
        keeps_acknowledged: bool,
    },
    DeleteSubscription(Id),
    GetSubscription(Id),
    ListSubscriptions,
    ListSubscriptionsOf(Id),
    Publish {
        topic: Id,
        messages: usize,
        key: Option<u8>,
    },
    /// Takes everything that there is, and acknowledges it if the subscription is ordered.
    Pull(Id),
    /// Of the outstanding messages, those whose place is in this mask.
    Acknowledge {
        subscription: Id,
        mask: u8,
    },
    Nack {
        subscription: Id,
        mask: u8,
    },
    Extend {
        subscription: Id,
        mask: u8,
    },
    Snapshot {
        snapshot: Id,
        subscription: Id,
    },
    DeleteSnapshot(Id),
    ListSnapshots,
    /// After everything outstanding was acknowledged: what a seek makes of that is asked in
    /// `seeking`.
    SeekToSnapshot {
        subscription: Id,
        snapshot: Id,
    },
    /// An hour back or ahead, likewise.
    SeekByAnHour {
        subscription: Id,
        back: bool,
    },
}

/// What a client sees of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seen {
    Done,
    Refused(Code),
    /// In their order.
    Names(Vec<String>),
    Messages {
        /// In any order.
        bodies: Vec<String>,
        /// Of an ordered subscription, by their keys and in their order.
        keys: BTreeMap<String, Vec<String>>,
    },
}

impl Operation {
    /// How many messages it publishes.
    pub(super) fn messages(&self) -> usize {
        if let Self::Publish { messages, .. } = self { *messages } else { 0 }
    }
}

impl Seen {
    /// How many messages came.
    pub(super) fn count(&self) -> usize {
        if let Self::Messages { bodies, .. } = self { bodies.len() } else { 0 }
    }
}

/// Sequences of all kinds of operations.
pub(super) fn sequences() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(operations(), 1..=LENGTH_MAX)
}

fn operations() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => messages(),
        3 => seeks(),
        2 => resources(),
        1 => lists(),
    ]
}

fn messages() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (id(), 1..=MESSAGES_MAX, prop::option::of(0..KEYS))
            .prop_map(|(topic, messages, key)| Operation::Publish { topic, messages, key }),
        4 => id().prop_map(Operation::Pull),
        2 => (id(), mask()).prop_map(|(subscription, mask)| Operation::Acknowledge { subscription, mask }),
        1 => (id(), mask()).prop_map(|(subscription, mask)| Operation::Nack { subscription, mask }),
        1 => (id(), mask()).prop_map(|(subscription, mask)| Operation::Extend { subscription, mask }),
    ]
}

fn seeks() -> impl Strategy<Value = Operation> {
    prop_oneof![
        2 => (id(), id()).prop_map(|(snapshot, subscription)| Operation::Snapshot { snapshot, subscription }),
        2 => (id(), id())
            .prop_map(|(subscription, snapshot)| Operation::SeekToSnapshot { subscription, snapshot }),
        2 => (id(), any::<bool>())
            .prop_map(|(subscription, back)| Operation::SeekByAnHour { subscription, back }),
        1 => id().prop_map(Operation::DeleteSnapshot),
        1 => Just(Operation::ListSnapshots),
    ]
}

fn resources() -> impl Strategy<Value = Operation> {
    prop_oneof![
        2 => id().prop_map(Operation::CreateTopic),
        1 => id().prop_map(Operation::DeleteTopic),
        3 => (id(), id(), any::<bool>(), any::<bool>()).prop_map(
            |(subscription, topic, ordered, keeps_acknowledged)| Operation::Subscribe {
                subscription,
                topic,
                ordered,
                keeps_acknowledged,
            }
        ),
        1 => id().prop_map(Operation::DeleteSubscription),
    ]
}

fn lists() -> impl Strategy<Value = Operation> {
    prop_oneof![
        id().prop_map(Operation::GetTopic),
        id().prop_map(Operation::GetSubscription),
        Just(Operation::ListTopics),
        Just(Operation::ListSubscriptions),
        id().prop_map(Operation::ListSubscriptionsOf),
    ]
}

fn id() -> impl Strategy<Value = Id> {
    0..IDS
}

fn mask() -> impl Strategy<Value = u8> {
    any::<u8>()
}
