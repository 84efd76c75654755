//! The content of a frame: changes, as protobuf. Resources and messages have the form that the API
//! gives them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use prost::Message as _;

use crate::broker::{Change, Held, Message, RevisionRange, SchemaMark, Time};
use crate::proto::protobuf::Timestamp;
use crate::proto::{iam, pubsub};

/// The changes of one frame, all of which happened, or none.
#[derive(Clone, PartialEq, prost::Message)]
struct Records {
    #[prost(message, repeated, tag = "1")]
    records: Vec<Record>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Record {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Topic(Box<TopicRecord>),
    #[prost(message, tag = "2")]
    Subscription(Box<SubscriptionRecord>),
    #[prost(message, tag = "3")]
    Snapshot(Box<SnapshotRecord>),
    #[prost(message, tag = "4")]
    Contents(NamedIds),
    #[prost(message, tag = "5")]
    Policy(Box<PolicyRecord>),
    #[prost(string, tag = "6")]
    Gone(String),
    #[prost(message, tag = "7")]
    Published(PublishedRecord),
    #[prost(message, tag = "8")]
    Messages(MessagesRecord),
    #[prost(message, tag = "9")]
    Kept(NamedIds),
    #[prost(message, tag = "10")]
    Held(HeldRecord),
    #[prost(message, tag = "11")]
    Numbers(NumbersRecord),
    #[prost(bool, tag = "12")]
    Emptied(bool),
    #[prost(message, tag = "13")]
    Revision(Box<RevisionRecord>),
    #[prost(message, tag = "14")]
    RevisionGone(RevisionGoneRecord),
}

#[derive(Clone, PartialEq, prost::Message)]
struct TopicRecord {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(uint64, tag = "2")]
    first_kept: u64,
    #[prost(message, optional, tag = "3")]
    config: Option<pubsub::Topic>,
    /// The numbers of the first and the last revision that it takes, or 0 without such a bound.
    #[prost(uint64, tag = "4")]
    first_revision: u64,
    #[prost(uint64, tag = "5")]
    last_revision: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SubscriptionRecord {
    #[prost(uint64, tag = "1")]
    serial: u64,
    #[prost(uint64, tag = "2")]
    topic: u64,
    #[prost(message, optional, tag = "3")]
    config: Option<pubsub::Subscription>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SnapshotRecord {
    #[prost(uint64, tag = "1")]
    topic: u64,
    #[prost(message, optional, tag = "2")]
    made: Option<Timestamp>,
    #[prost(message, optional, tag = "3")]
    config: Option<pubsub::Snapshot>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RevisionRecord {
    #[prost(uint64, tag = "1")]
    schema: u64,
    #[prost(uint64, tag = "2")]
    number: u64,
    #[prost(message, optional, tag = "3")]
    config: Option<pubsub::Schema>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RevisionGoneRecord {
    #[prost(string, tag = "1")]
    schema: String,
    #[prost(uint64, tag = "2")]
    number: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PolicyRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(message, optional, tag = "2")]
    policy: Option<iam::Policy>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NamedIds {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, repeated, tag = "2")]
    messages: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PublishedRecord {
    #[prost(string, tag = "1")]
    topic: String,
    #[prost(bool, tag = "2")]
    kept: bool,
    #[prost(string, repeated, tag = "3")]
    snapshots: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    messages: Vec<pubsub::PubsubMessage>,
    #[prost(message, repeated, tag = "5")]
    marks: Vec<MarkRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MessagesRecord {
    #[prost(message, repeated, tag = "1")]
    messages: Vec<pubsub::PubsubMessage>,
    #[prost(message, repeated, tag = "2")]
    marks: Vec<MarkRecord>,
}

/// Which messages were validated with this revision in this encoding.
#[derive(Clone, PartialEq, prost::Message)]
struct MarkRecord {
    #[prost(string, tag = "1")]
    schema: String,
    #[prost(string, tag = "2")]
    revision: String,
    #[prost(uint64, tag = "3")]
    number: u64,
    #[prost(int32, tag = "4")]
    encoding: i32,
    #[prost(uint64, repeated, tag = "5")]
    messages: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HeldRecord {
    #[prost(uint64, tag = "1")]
    subscription: u64,
    #[prost(uint64, repeated, tag = "2")]
    messages: Vec<u64>,
    /// 0: not acknowledged, 1: acknowledged and here, 2: not here.
    #[prost(uint32, tag = "3")]
    held: u32,
    #[prost(uint32, tag = "4")]
    failures: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NumbersRecord {
    #[prost(uint64, tag = "1")]
    message: u64,
    #[prost(uint64, tag = "2")]
    resource: u64,
    #[prost(uint64, tag = "3")]
    policy: u64,
}

/// A frame that was written whole, and has something else than changes.
#[derive(Debug, thiserror::Error)]
#[error("it has records that this version does not know")]
pub(super) struct UnknownRecord;

/// Appends the content of a frame.
pub(super) fn encode(bytes: &mut Vec<u8>, changes: Vec<Change>) {
    let records = changes.into_iter().map(|change| Record { kind: Some(kind(change)) }).collect();
    let records = Records { records };
    bytes.reserve(records.encoded_len());
    // A vector has room for everything.
    let _fits = records.encode(bytes);
}

/// Reads the content of a frame.
pub(super) fn decode(content: &[u8]) -> Result<Vec<Change>, UnknownRecord> {
    let records = Records::decode(content).map_err(|_| UnknownRecord)?;
    records.records.into_iter().map(|record| record.kind.and_then(change).ok_or(UnknownRecord)).collect()
}

/// At most about so many bytes of a state are in one frame.
const PART: usize = 1 << 20;
/// What a message takes in a file besides its content, and an id, at most.
const PER_MESSAGE: usize = 48;
const PER_ID: usize = 10;
/// What a resource, or a mark of messages, takes in a file besides its configuration, roughly.
const PER_RESOURCE: usize = 256;

/// What a message takes in a file, at most.
fn bytes_of(message: &Message) -> usize {
    message.size() + PER_MESSAGE + if message.schema.is_some() { PER_ID } else { 0 }
}

/// About how many bytes a state takes in a file. It leaves out messages that were named before.
pub(super) fn size(state: &[Change]) -> u64 {
    let mut seen = HashSet::new();
    state.iter().map(|change| bytes_with(change, |message| seen.insert(message.id))).sum()
}

/// About how many bytes the changes of a turn take in a file.
pub(super) fn weight(changes: &[Change]) -> u64 {
    changes.iter().map(|change| bytes_with(change, |_| true)).sum()
}

/// About how many bytes a change takes in a file, with those of its messages that count.
fn bytes_with(change: &Change, counts: impl FnMut(&&Arc<Message>) -> bool) -> u64 {
    let bytes = match change {
        Change::Messages(messages) => bytes_of_all(messages, counts),
        Change::Published { messages, .. } => bytes_of_all(messages, counts) + PER_RESOURCE,
        Change::Held { messages, .. } | Change::Kept { messages, .. } | Change::Contents { messages, .. } => {
            (messages.len() + 1) * PER_ID
        }
        Change::Topic { config, .. } => config.encoded_len() + PER_RESOURCE,
        Change::Subscription { config, .. } => config.encoded_len() + PER_RESOURCE,
        Change::Snapshot { config, .. } => config.encoded_len() + PER_RESOURCE,
        Change::Revision { config, .. } => config.encoded_len() + PER_RESOURCE,
        Change::Policy { policy, .. } => policy.encoded_len() + PER_RESOURCE,
        Change::RevisionGone { .. } | Change::Gone(_) | Change::Numbers { .. } | Change::Emptied => {
            PER_RESOURCE
        }
    };
    bytes as u64
}

fn bytes_of_all(messages: &[Arc<Message>], counts: impl FnMut(&&Arc<Message>) -> bool) -> usize {
    let marks = messages.iter().any(|message| message.schema.is_some());
    let counted = messages.iter().filter(counts);
    counted.map(|message| bytes_of(message)).sum::<usize>() + usize::from(marks) * PER_RESOURCE
}

/// The parts of a state, each for a frame, with every message once.
pub(super) fn parts(state: Vec<Change>) -> impl Iterator<Item = Vec<Change>> {
    let mut seen = HashSet::new();
    state.into_iter().flat_map(move |change| match change {
        Change::Messages(mut messages) => {
            messages.retain(|message| seen.insert(message.id));
            let parts = split(messages, |message| bytes_of(message));
            parts.into_iter().map(|messages| vec![Change::Messages(messages)]).collect()
        }
        Change::Held { subscription, messages, held } => {
            let part = |messages| vec![Change::Held { subscription, messages, held }];
            split(messages, |_| PER_ID).into_iter().map(part).collect()
        }
        Change::Kept { topic, messages } => {
            let part = |messages| vec![Change::Kept { topic: topic.clone(), messages }];
            split(messages, |_| PER_ID).into_iter().map(part).collect()
        }
        other @ (Change::Contents { .. }
        | Change::Topic { .. }
        | Change::Subscription { .. }
        | Change::Snapshot { .. }
        | Change::Revision { .. }
        | Change::RevisionGone { .. }
        | Change::Policy { .. }
        | Change::Gone(_)
        | Change::Published { .. }
        | Change::Numbers { .. }
        | Change::Emptied) => vec![vec![other]],
    })
}

/// Splits items into lists of about [`PART`] bytes.
fn split<T>(items: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut parts = Vec::new();
    let (mut part, mut bytes) = (Vec::new(), 0);
    for item in items {
        bytes += size(&item);
        part.push(item);
        if bytes >= PART {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

fn kind(change: Change) -> Kind {
    match change {
        Change::Topic { number, first_kept, revisions, config } => Kind::Topic(Box::new(TopicRecord {
            number,
            first_kept,
            config: Some(*config),
            first_revision: revisions.first.unwrap_or_default(),
            last_revision: revisions.last.unwrap_or_default(),
        })),
        Change::Subscription { serial, topic, config } => {
            Kind::Subscription(Box::new(SubscriptionRecord { serial, topic, config: Some(*config) }))
        }
        Change::Snapshot { topic, made, config } => {
            let made = Some(made.timestamp());
            Kind::Snapshot(Box::new(SnapshotRecord { topic, made, config: Some(*config) }))
        }
        Change::Contents { snapshot, messages } => {
            Kind::Contents(NamedIds { name: snapshot.to_string(), messages })
        }
        Change::Revision { schema, number, config } => {
            Kind::Revision(Box::new(RevisionRecord { schema, number, config: Some(*config) }))
        }
        Change::RevisionGone { schema, number } => {
            Kind::RevisionGone(RevisionGoneRecord { schema: schema.to_string(), number })
        }
        Change::Policy { resource, policy } => {
            Kind::Policy(Box::new(PolicyRecord { resource: resource.to_string(), policy: Some(*policy) }))
        }
        Change::Gone(name) => Kind::Gone(name.to_string()),
        Change::Published { topic, kept, snapshots, messages } => Kind::Published(PublishedRecord {
            topic: topic.to_string(),
            kept,
            snapshots: snapshots.iter().map(ToString::to_string).collect(),
            messages: protos(&messages),
            marks: marks(&messages),
        }),
        Change::Messages(messages) => {
            Kind::Messages(MessagesRecord { messages: protos(&messages), marks: marks(&messages) })
        }
        Change::Kept { topic, messages } => Kind::Kept(NamedIds { name: topic.to_string(), messages }),
        Change::Held { subscription, messages, held } => {
            let (held, failures) = match held {
                Held::Pending { failures } => (0, failures),
                Held::Settled => (1, 0),
                Held::Gone => (2, 0),
            };
            Kind::Held(HeldRecord { subscription, messages, held, failures })
        }
        Change::Numbers { message, resource, policy } => {
            Kind::Numbers(NumbersRecord { message, resource, policy })
        }
        Change::Emptied => Kind::Emptied(true),
    }
}

/// `None` if something that belongs to it is missing.
fn change(kind: Kind) -> Option<Change> {
    Some(match kind {
        Kind::Topic(record) => {
            let TopicRecord { number, first_kept, config, first_revision, last_revision } = *record;
            let bound = |number: u64| (number != 0).then_some(number);
            let revisions = RevisionRange { first: bound(first_revision), last: bound(last_revision) };
            Change::Topic { number, first_kept, revisions, config: Box::new(config?) }
        }
        Kind::Subscription(record) => {
            let SubscriptionRecord { serial, topic, config } = *record;
            Change::Subscription { serial, topic, config: Box::new(config?) }
        }
        Kind::Snapshot(record) => {
            let SnapshotRecord { topic, made, config } = *record;
            let made = Time::from_timestamp(&made?)?;
            Change::Snapshot { topic, made, config: Box::new(config?) }
        }
        Kind::Contents(NamedIds { name, messages }) => Change::Contents { snapshot: name.into(), messages },
        Kind::Revision(record) => {
            let RevisionRecord { schema, number, config } = *record;
            Change::Revision { schema, number, config: Box::new(config?) }
        }
        Kind::RevisionGone(RevisionGoneRecord { schema, number }) => {
            Change::RevisionGone { schema: schema.into(), number }
        }
        Kind::Policy(record) => {
            let PolicyRecord { resource, policy } = *record;
            Change::Policy { resource: resource.into(), policy: Box::new(policy?) }
        }
        Kind::Gone(name) => Change::Gone(name.into()),
        Kind::Published(PublishedRecord { topic, kept, snapshots, messages, marks }) => Change::Published {
            topic: topic.into(),
            kept,
            snapshots: snapshots.into_iter().map(Into::into).collect(),
            messages: messages_of(messages, marks)?,
        },
        Kind::Messages(MessagesRecord { messages, marks }) => Change::Messages(messages_of(messages, marks)?),
        Kind::Kept(NamedIds { name, messages }) => Change::Kept { topic: name.into(), messages },
        Kind::Held(HeldRecord { subscription, messages, held, failures }) => {
            let held = match held {
                0 => Held::Pending { failures },
                1 => Held::Settled,
                2 => Held::Gone,
                _ => return None,
            };
            Change::Held { subscription, messages, held }
        }
        Kind::Numbers(NumbersRecord { message, resource, policy }) => {
            Change::Numbers { message, resource, policy }
        }
        Kind::Emptied(_) => Change::Emptied,
    })
}

/// Messages as they were published, without the attributes of their schemas.
fn protos(messages: &[Arc<Message>]) -> Vec<pubsub::PubsubMessage> {
    let proto = |message: &Arc<Message>| pubsub::PubsubMessage {
        data: message.data.clone(),
        attributes: message.attributes.clone(),
        message_id: message.id.to_string(),
        publish_time: Some(message.published.timestamp()),
        ordering_key: message.ordering_key.clone(),
    };
    messages.iter().map(proto).collect()
}

fn marks(messages: &[Arc<Message>]) -> Vec<MarkRecord> {
    let mut marks: BTreeMap<(u64, i32), MarkRecord> = BTreeMap::new();
    for message in messages {
        let Some(mark) = &message.schema else { continue };
        let (number, encoding) = (mark.number, i32::from(mark.encoding));
        let new = || MarkRecord {
            schema: mark.schema.to_string(),
            revision: mark.revision.to_string(),
            number,
            encoding,
            messages: Vec::new(),
        };
        marks.entry((number, encoding)).or_insert_with(new).messages.push(message.id);
    }
    marks.into_values().collect()
}

fn messages_of(messages: Vec<pubsub::PubsubMessage>, marks: Vec<MarkRecord>) -> Option<Vec<Arc<Message>>> {
    let mut marked = HashMap::new();
    for MarkRecord { schema, revision, number, encoding, messages } in marks {
        let encoding = pubsub::Encoding::try_from(encoding).ok()?;
        let mark = Arc::new(SchemaMark::new(schema.into(), revision.into(), number, encoding));
        marked.extend(messages.into_iter().map(|id| (id, Arc::clone(&mark))));
    }
    let message = |message: pubsub::PubsubMessage| {
        let id: u64 = message.message_id.parse().ok()?;
        let attributes: BTreeMap<String, String> = message.attributes;
        Some(Arc::new(Message {
            id,
            published: Time::from_timestamp(&message.publish_time?)?,
            data: message.data,
            attributes,
            ordering_key: message.ordering_key,
            schema: marked.get(&id).cloned(),
        }))
    };
    messages.into_iter().map(message).collect()
}
