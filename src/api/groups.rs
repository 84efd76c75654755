//! Consumer groups: nodes, who has which source, how far they have come.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::List;
use crate::admin;
use crate::event::{self, EventSource, InvalidSource};
use crate::store;

/// The nodes that have subscribers, and who coordinates.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupNodes {
    /// Those that were heard of within their lease.
    pub(crate) items: Vec<GroupNode>,
    /// The node that coordinates; null, if nobody does now.
    pub(crate) coordinator: Option<Uuid>,
    /// Its term: grows each time another takes over.
    pub(crate) term: Option<i64>,
}

/// A process that has subscribers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupNode {
    pub(crate) id: Uuid,
    /// When it was last heard of.
    pub(crate) heartbeat_at: DateTime<Utc>,
}

/// A consumer group in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupSummary {
    #[schema(example = "company-projection")]
    pub(crate) name: String,
    /// Subscribers that were heard of within their lease.
    #[schema(minimum = 0)]
    pub(crate) subscribers: usize,
    /// Those of them that can't work.
    #[schema(minimum = 0)]
    pub(crate) unhealthy: usize,
    /// One process works on all of it alone, without subscribers.
    #[serde(default)]
    pub(crate) alone: bool,
    #[schema(minimum = 0)]
    pub(crate) sources: usize,
    /// Sources that nobody works on.
    #[schema(minimum = 0)]
    pub(crate) idle: usize,
    /// The largest lag of its sources.
    #[schema(minimum = 0)]
    pub(crate) lag: u64,
}

/// A consumer group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Group {
    #[schema(example = "company-projection")]
    pub(crate) name: String,
    pub(crate) subscribers: Vec<GroupSubscriber>,
    pub(crate) sources: Vec<GroupSource>,
    /// The process that works on all of it alone, without subscribers; null: none does.
    pub(crate) alone: Option<Uuid>,
    /// Of the processors of a type of entities: the number of the log after which nothing is dropped because of them; null: nothing is
    /// kept for this group but what its positions need.
    #[schema(minimum = 0)]
    pub(crate) pin: Option<i64>,
}

/// An instance of a group's consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupSubscriber {
    pub(crate) id: Uuid,
    /// Where it runs.
    pub(crate) node: Uuid,
    /// Why it can't work; null, if it can.
    pub(crate) unhealthy: Option<String>,
    /// When it was last heard of.
    pub(crate) heartbeat_at: DateTime<Utc>,
    /// Its lease has run out: what it has is given to others.
    pub(crate) lapsed: bool,
}

/// A source of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupSource {
    #[schema(example = "category/companies/3-of-f")]
    pub(crate) source: String,
    /// Who works on it; null: nobody does now.
    pub(crate) subscriber: Option<Uuid>,
    /// Where that one runs.
    pub(crate) node: Option<Uuid>,
    /// It is being taken from its owner.
    pub(crate) releasing: bool,
    /// The number of the last event that is done with; 0 before the first.
    #[schema(minimum = 0)]
    pub(crate) position: i64,
    /// Under which epoch the position was opened last; 0 for never.
    #[schema(minimum = 0)]
    pub(crate) epoch: i64,
    /// Since when the position stands there; null: it was never opened.
    pub(crate) moved_at: Option<DateTime<Utc>>,
    /// How many numbers of the log lie between the position and the last one that can be read; those of other sources are
    /// among them.
    #[schema(minimum = 0)]
    pub(crate) lag: u64,
    /// The event for which it waits, because that fails and is tried again; null: none.
    pub(crate) failing: Option<FailingEvent>,
}

/// An event that fails, and is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FailingEvent {
    /// Its number in the log.
    #[schema(minimum = 1)]
    pub(crate) seq: i64,
    pub(crate) since: DateTime<Utc>,
    #[schema(minimum = 1)]
    pub(crate) attempts: u32,
    /// Why the last attempt failed.
    pub(crate) error: String,
}

/// An event that a group gave up.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupDead {
    pub(crate) source: String,
    /// Its number in the log.
    #[schema(minimum = 1)]
    pub(crate) seq: i64,
    pub(crate) id: Uuid,
    pub(crate) canvas: Uuid,
    pub(crate) category: String,
    pub(crate) stream: String,
    pub(crate) name: String,
    /// What it says.
    #[schema(value_type = Object)]
    pub(crate) payload: Box<RawValue>,
    #[schema(minimum = 1)]
    pub(crate) attempts: u32,
    /// Why the last attempt failed.
    pub(crate) error: String,
    pub(crate) died_at: DateTime<Utc>,
    /// It is to be tried again, and was not yet.
    pub(crate) redriven: bool,
}

/// Which of the dead of a group are to be tried again: one, or all.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedriveGroup {
    /// The one with this number in the log. Default: all, 10,000 at most in one request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub(crate) seq: Option<i64>,
    /// That died before this moment. Default: the moment of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<DateTime<Utc>>,
}

/// How many of the dead of a group will be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RedrivenGroup {
    #[schema(minimum = 0)]
    pub(crate) redriven: u64,
    /// Whether there may be more: ask again, with `before` from this answer.
    pub(crate) more: bool,
    /// All of them died before this moment of the database's clock. What fails again after it is left alone by a request that repeats it.
    pub(crate) before: Option<DateTime<Utc>>,
}

impl From<(admin::Bulk, DateTime<Utc>)> for RedrivenGroup {
    fn from((bulk, before): (admin::Bulk, DateTime<Utc>)) -> Self {
        Self { redriven: bulk.count, more: bulk.more, before: Some(before) }
    }
}

/// What removing a group did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RemoveGroup {
    /// How many positions were removed.
    #[schema(minimum = 0)]
    pub(crate) positions: u64,
    /// How many pins that kept the log for a type of entities.
    #[schema(minimum = 0)]
    pub(crate) pins: u64,
}

/// Where a group is to go on.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResetRequest {
    /// `start`, `end`, or the number after which it goes on.
    #[schema(example = "start", max_length = 20)]
    pub(crate) to: String,
    /// Only in this source. Default: in all of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "category/companies/3-of-f", max_length = 700)]
    pub(crate) source: Option<String>,
}

/// What moving the positions of a group did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ResetGroup {
    /// How many sources it was done in.
    #[schema(minimum = 0)]
    pub(crate) sources: u64,
    /// Where they stand now.
    #[schema(minimum = 0)]
    pub(crate) position: i64,
}

/// A request that says no place to go on at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidReset {
    #[error("{0:?} is no place to go on at: use start, end, or the number of the event after which to go on")]
    To(String),
    #[error(transparent)]
    Source(#[from] InvalidSource),
}

impl ResetRequest {
    /// As the admin takes it.
    pub(crate) fn read(&self) -> Result<(Option<EventSource>, admin::ResetTo), InvalidReset> {
        let to = match self.to.as_str() {
            "start" => admin::ResetTo::Start,
            "end" => admin::ResetTo::End,
            number => {
                let invalid = |_| InvalidReset::To(number.chars().take(128).collect());
                admin::ResetTo::After(number.parse().map_err(invalid)?)
            }
        };
        let source = self.source.as_deref().map(str::parse).transpose()?;
        Ok((source, to))
    }
}

impl From<admin::GroupNodes> for GroupNodes {
    fn from(nodes: admin::GroupNodes) -> Self {
        let node = |node: event::GroupNode| GroupNode { id: node.id.0, heartbeat_at: node.heartbeat_at };
        Self {
            items: nodes.nodes.into_iter().map(node).collect(),
            coordinator: nodes.coordinator.map(|(node, _)| node.0),
            term: nodes.coordinator.map(|(_, term)| term),
        }
    }
}

impl From<admin::Group> for GroupSummary {
    fn from(group: admin::Group) -> Self {
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

impl From<admin::Group> for Group {
    fn from(group: admin::Group) -> Self {
        let subscriber = |one: event::SubscriberState| GroupSubscriber {
            id: one.id.0,
            node: one.node.0,
            unhealthy: one.unhealthy,
            heartbeat_at: one.heartbeat_at,
            lapsed: one.lapsed,
        };
        Self {
            name: group.name.to_string(),
            subscribers: group.subscribers.into_iter().map(subscriber).collect(),
            sources: group.sources.into_iter().map(GroupSource::from).collect(),
            alone: group.alone.map(|node| node.0),
            pin: group.pin,
        }
    }
}

impl From<admin::GroupSource> for GroupSource {
    fn from(source: admin::GroupSource) -> Self {
        Self {
            source: source.source.to_string(),
            subscriber: source.owner.map(|(subscriber, _)| subscriber.0),
            node: source.owner.map(|(_, node)| node.0),
            releasing: source.releasing,
            position: source.position,
            epoch: source.epoch,
            moved_at: source.moved_at,
            lag: source.lag,
            failing: source.failing.map(|failing| FailingEvent {
                seq: failing.seq,
                since: failing.since,
                attempts: failing.attempts,
                error: failing.error,
            }),
        }
    }
}

impl From<store::GroupDead> for GroupDead {
    fn from(dead: store::GroupDead) -> Self {
        let payload = RawValue::from_string(dead.payload).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self {
            source: dead.source.to_string(),
            seq: dead.seq,
            id: dead.id.0,
            canvas: dead.stream.canvas.0,
            category: dead.stream.category.to_string(),
            stream: dead.stream.name.to_string(),
            name: dead.name.to_string(),
            payload,
            attempts: dead.attempts,
            error: dead.error,
            died_at: dead.died_at,
            redriven: dead.is_redriven,
        }
    }
}

impl From<store::GroupDeadPage> for List<GroupDead> {
    fn from(page: store::GroupDeadPage) -> Self {
        let next_cursor = page.next.map(|cursor| cursor.to_string());
        Self { items: page.items.into_iter().map(GroupDead::from).collect(), next_cursor }
    }
}

impl From<admin::RemoveGroup> for RemoveGroup {
    fn from(removed: admin::RemoveGroup) -> Self {
        Self { positions: removed.positions, pins: removed.pins }
    }
}

impl From<admin::ResetGroup> for ResetGroup {
    fn from(reset: admin::ResetGroup) -> Self {
        Self { sources: reset.sources, position: reset.position }
    }
}
