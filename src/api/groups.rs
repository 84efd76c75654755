//! Consumer groups: nodes, who has which source, how far they have come.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::admin;
use crate::event::{self, EventSource, InvalidSource};

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
        }
    }
}

impl From<admin::ResetGroup> for ResetGroup {
    fn from(reset: admin::ResetGroup) -> Self {
        Self { sources: reset.sources, position: reset.position }
    }
}
