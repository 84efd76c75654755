//! Consumer groups: nodes, owners of sources, and positions.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::wire::{HIDDEN, List, wire_from};
use wakeq::log::{EventSource, InvalidSource};

/// The nodes with subscribers, and the coordinator.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = GroupNodes)]
pub(crate) struct GroupNodesJson {
    /// The nodes of this page whose lease has not expired, by id.
    pub(crate) items: Vec<GroupNodeJson>,
    /// The cursor of the next page. Null on the last page.
    #[serde(default)]
    pub(crate) next_cursor: Option<String>,
    /// The coordinating node; null if there is none at present.
    pub(crate) coordinator: Option<Uuid>,
    /// The coordinator's term, which grows each time another node takes over.
    pub(crate) term: Option<i64>,
}

/// A process with subscribers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = GroupNode)]
pub(crate) struct GroupNodeJson {
    pub(crate) id: Uuid,
    /// Time of the last heartbeat.
    pub(crate) heartbeat_at: DateTime<Utc>,
}

/// A consumer group in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupSummary {
    #[schema(example = "company-projection")]
    pub(crate) name: String,
    /// Number of subscribers, without healthy ones whose lease has expired.
    #[schema(minimum = 0)]
    pub(crate) subscribers: usize,
    /// Number of these that are unhealthy.
    #[schema(minimum = 0)]
    pub(crate) unhealthy: usize,
    /// Whether one process consumes the whole group alone, without subscribers.
    #[serde(default)]
    pub(crate) alone: bool,
    #[schema(minimum = 0)]
    pub(crate) sources: usize,
    /// Number of sources without an owner.
    #[schema(minimum = 0)]
    pub(crate) idle: usize,
    /// The largest lag of its sources.
    #[schema(minimum = 0)]
    pub(crate) lag: u64,
}

/// A consumer group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Group)]
pub(crate) struct GroupJson {
    #[schema(example = "company-projection")]
    pub(crate) name: String,
    pub(crate) subscribers: Vec<GroupSubscriber>,
    pub(crate) sources: Vec<GroupSourceJson>,
    /// The process that consumes the whole group alone, without subscribers; null if there is none.
    pub(crate) alone: Option<Uuid>,
    /// For processors of an entity type: the log number after which the log is kept for them. Null
    /// if nothing is kept for this group but what its positions need.
    #[schema(minimum = 0)]
    pub(crate) pin: Option<i64>,
}

/// An instance of a group's consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupSubscriber {
    pub(crate) id: Uuid,
    /// The node it runs on.
    pub(crate) node: Uuid,
    /// Why it is unhealthy; null if it is healthy.
    pub(crate) unhealthy: Option<String>,
    /// Time of the last heartbeat.
    pub(crate) heartbeat_at: DateTime<Utc>,
    /// Whether its lease has expired, so that its sources are given to others.
    pub(crate) lapsed: bool,
}

/// A source of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = GroupSource)]
pub(crate) struct GroupSourceJson {
    #[schema(example = "category/companies/3-of-f")]
    pub(crate) source: String,
    /// The subscriber that owns the source; null if there is none at present.
    pub(crate) subscriber: Option<Uuid>,
    /// The node of that subscriber.
    pub(crate) node: Option<Uuid>,
    /// Whether the source is being revoked from its owner.
    pub(crate) releasing: bool,
    /// The log number up to which the group is done with the source; 0 before the first event.
    #[schema(minimum = 0)]
    pub(crate) position: i64,
    /// The epoch under which the position was last opened; 0 if it never was.
    #[schema(minimum = 0)]
    pub(crate) epoch: i64,
    /// When the position last moved; null if it was never opened.
    pub(crate) moved_at: Option<DateTime<Utc>>,
    /// How many log numbers lie between the position and the last readable event, including those
    /// of other sources.
    #[schema(minimum = 0)]
    pub(crate) lag: u64,
    /// The failing event that the source waits for while it is retried; null if there is none.
    pub(crate) failing: Option<FailingEventJson>,
}

/// An event that fails and is retried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FailingEvent)]
pub(crate) struct FailingEventJson {
    /// The event's log number.
    #[schema(minimum = 1)]
    pub(crate) seq: i64,
    pub(crate) since: DateTime<Utc>,
    #[schema(minimum = 1)]
    pub(crate) attempts: u32,
    /// The error of the last attempt.
    pub(crate) error: String,
}

/// A dead event of a group.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = GroupDead)]
pub(crate) struct GroupDeadJson {
    pub(crate) source: String,
    /// The event's log number.
    #[schema(minimum = 1)]
    pub(crate) seq: i64,
    pub(crate) id: Uuid,
    pub(crate) canvas: Uuid,
    pub(crate) category: String,
    pub(crate) stream: String,
    pub(crate) name: String,
    /// The event's payload.
    #[schema(value_type = Option<Object>)]
    pub(crate) payload: Option<Box<RawValue>>,
    /// Says that the payload is hidden, and which scope shows it; omitted if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "hidden: this needs the scope `values`")]
    pub(crate) hidden: Option<String>,
    #[schema(minimum = 1)]
    pub(crate) attempts: u32,
    /// The error of the last attempt.
    pub(crate) error: String,
    pub(crate) died_at: DateTime<Utc>,
    /// Whether the event is to be retried, and has not been yet.
    pub(crate) redriven: bool,
}

/// Which of a group's dead events to redrive: one, or all.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedriveGroup {
    /// Only the event with this log number. Default: all, at most 10,000 per request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub(crate) seq: Option<i64>,
    /// Only events that died before this time. Default: the time of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<DateTime<Utc>>,
}

/// How many of a group's dead events will be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RedrivenGroup {
    #[schema(minimum = 0)]
    pub(crate) redriven: u64,
    /// Whether there may be more. To continue, repeat the request with `before` from this response.
    pub(crate) more: bool,
    /// Time on the database's clock before which all of these events died. Repeating the request
    /// with it leaves alone events that fail again later.
    pub(crate) before: Option<DateTime<Utc>>,
}

impl From<(wakeq::control::Bulk, DateTime<Utc>)> for RedrivenGroup {
    fn from((bulk, before): (wakeq::control::Bulk, DateTime<Utc>)) -> Self {
        Self { redriven: bulk.count, more: bulk.more, before: Some(before) }
    }
}

/// The result of removing a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RemoveGroup)]
pub(crate) struct RemoveGroupJson {
    /// Number of positions removed.
    #[schema(minimum = 0)]
    pub(crate) positions: u64,
    /// Number of pins removed, which kept the log for an entity type.
    #[schema(minimum = 0)]
    pub(crate) pins: u64,
}

/// The new position of a group.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResetRequest {
    /// The new position: `start`, `end`, or the log number of the event to resume after.
    #[schema(example = "start", max_length = 20)]
    pub(crate) to: String,
    /// Only this source. Default: all sources of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "category/companies/3-of-f", max_length = 700)]
    pub(crate) source: Option<String>,
}

/// The result of resetting the positions of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ResetGroup)]
pub(crate) struct ResetGroupJson {
    /// Number of sources that were reset.
    #[schema(minimum = 0)]
    pub(crate) sources: u64,
    /// Their position now.
    #[schema(minimum = 0)]
    pub(crate) position: i64,
}

/// Why a request does not describe a reset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidReset {
    #[error(
        "{0:?} is not a position to resume at: use start, end, or the number of the event after \
             which to resume"
    )]
    To(String),
    #[error(transparent)]
    Source(#[from] InvalidSource),
}

impl ResetRequest {
    /// The source to reset, or all of them, and the new position.
    pub(crate) fn read(
        &self,
    ) -> Result<(Option<EventSource>, wakeq_streams::control::ResetTo), InvalidReset> {
        let to = match self.to.as_str() {
            "start" => wakeq_streams::control::ResetTo::Start,
            "end" => wakeq_streams::control::ResetTo::End,
            number => {
                let invalid = |_| InvalidReset::To(number.chars().take(128).collect());
                wakeq_streams::control::ResetTo::After(number.parse().map_err(invalid)?)
            }
        };
        let source = self.source.as_deref().map(str::parse).transpose()?;
        Ok((source, to))
    }
}

impl GroupNodesJson {
    /// The page of nodes after the one with this id.
    pub(crate) fn page(nodes: wakeq_streams::control::GroupNodes, limit: u32, after: Option<Uuid>) -> Self {
        let after = after.map(|node| node.to_string());
        let List { items, next_cursor, .. } =
            List::part(nodes.nodes, limit, after.as_deref(), |node| node.id.0.to_string());
        Self {
            items,
            next_cursor,
            coordinator: nodes.coordinator.map(|(node, _)| node.0),
            term: nodes.coordinator.map(|(_, term)| term),
        }
    }
}

impl From<wakeq_streams::brokers::GroupNode> for GroupNodeJson {
    fn from(node: wakeq_streams::brokers::GroupNode) -> Self {
        Self { id: node.id.0, heartbeat_at: node.heartbeat_at }
    }
}

impl From<wakeq_streams::control::Group> for GroupSummary {
    fn from(group: wakeq_streams::control::Group) -> Self {
        let there = group.subscribers.iter().filter(|one| !one.lapsed || one.unhealthy.is_some());
        Self {
            subscribers: there.count(),
            unhealthy: group.subscribers.iter().filter(|one| one.unhealthy.is_some()).count(),
            alone: group.alone.is_some(),
            sources: group.sources.len(),
            idle: group.idle(),
            lag: group.lag(),
            name: group.name.to_string(),
        }
    }
}

impl From<wakeq_streams::control::Group> for GroupJson {
    fn from(group: wakeq_streams::control::Group) -> Self {
        let subscriber = |one: wakeq_streams::brokers::SubscriberState| GroupSubscriber {
            id: one.id.0,
            node: one.node.0,
            unhealthy: one.unhealthy,
            heartbeat_at: one.heartbeat_at,
            lapsed: one.lapsed,
        };
        Self {
            name: group.name.to_string(),
            subscribers: group.subscribers.into_iter().map(subscriber).collect(),
            sources: group.sources.into_iter().map(GroupSourceJson::from).collect(),
            alone: group.alone.map(|node| node.0),
            pin: group.pin,
        }
    }
}

wire_from! { wakeq_streams::control::GroupSource => GroupSourceJson, |source| {
    releasing, position, epoch, moved_at, lag;
    source: source.source.to_string(),
    subscriber: source.owner.map(|(subscriber, _)| subscriber.0),
    node: source.owner.map(|(_, node)| node.0),
    failing: source.failing.map(|failing| FailingEventJson {
        seq: failing.seq,
        since: failing.since,
        attempts: failing.attempts,
        error: failing.error,
    }),
} }

impl From<wakeq_streams::control::GroupDead> for GroupDeadJson {
    fn from(dead: wakeq_streams::control::GroupDead) -> Self {
        let payload = RawValue::from_string(dead.payload).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self {
            source: dead.source.to_string(),
            seq: dead.seq,
            id: dead.id.0,
            canvas: dead.stream.canvas.0,
            category: dead.stream.category.to_string(),
            stream: dead.stream.name.to_string(),
            name: dead.name.to_string(),
            payload: Some(payload),
            hidden: None,
            attempts: dead.attempts,
            error: dead.error,
            died_at: dead.died_at,
            redriven: dead.is_redriven,
        }
    }
}

impl GroupDeadJson {
    /// For callers that may not see values.
    pub(crate) fn hidden(self) -> Self {
        Self { payload: None, hidden: Some(HIDDEN.to_owned()), ..self }
    }
}

impl From<wakeq_streams::control::GroupDeadPage> for List<GroupDeadJson> {
    fn from(page: wakeq_streams::control::GroupDeadPage) -> Self {
        let next_cursor = page.next.map(|cursor| cursor.to_string());
        Self {
            items: page.items.into_iter().map(GroupDeadJson::from).collect(),
            next_cursor,
            looked_at: None,
        }
    }
}

wire_from! { wakeq_streams::control::RemoveGroup => RemoveGroupJson, |removed| { positions, pins; } }

wire_from! { wakeq_streams::control::ResetGroup => ResetGroupJson, |reset| { sources, position; } }
