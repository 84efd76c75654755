//! Consumer groups as operators see them: who is there, who has which source, how far they have come.
//!
//! They are about the events of all canvases: who may do any of this is asked before. Nothing here gives a source to anybody.

use std::collections::{BTreeMap, BTreeSet};

use super::{Admin, AdminError, checked};
use crate::event::{
    Actor, EventSource, GroupNode, Name, NodeId, SubscriberId, SubscriberState, Subscription, Timestamp,
};
use crate::store::GroupPosition;

/// The nodes that have subscribers, and who coordinates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNodes {
    /// Those that were heard of within their lease.
    pub nodes: Vec<GroupNode>,
    /// The node that coordinates, and its term; none, if nobody does now.
    pub coordinator: Option<(NodeId, i64)>,
}

/// A consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: Name,
    /// Its subscribers.
    pub subscribers: Vec<SubscriberState>,
    /// Its sources: those that it works on, and those in which it has come somewhere.
    pub sources: Vec<GroupSource>,
}

/// A source of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSource {
    /// The source.
    pub source: EventSource,
    /// Who works on it, and where; none: nobody does now.
    pub owner: Option<(SubscriberId, NodeId)>,
    /// Whether it is being taken from its owner.
    pub releasing: bool,
    /// The `seq` of the last event that is done with; 0 before the first.
    pub position: i64,
    /// Under which epoch the position was opened last; 0 for never.
    pub epoch: i64,
    /// Since when the position stands there; none: it was never opened.
    pub moved_at: Option<Timestamp>,
    /// How many numbers of the log lie between the position and the last one that can be read. Those of other sources
    /// are among them.
    pub lag: u64,
}

impl Group {
    /// How many of its sources nobody works on.
    pub fn idle(&self) -> usize {
        self.sources.iter().filter(|source| source.owner.is_none()).count()
    }

    /// The largest lag of its sources.
    pub fn lag(&self) -> u64 {
        self.sources.iter().map(|source| source.lag).max().unwrap_or_default()
    }
}

/// Where a group goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    /// With the first event of the log.
    Start,
    /// With the next one that is appended.
    End,
    /// After this `seq`.
    After(i64),
}

/// What moving the positions of a group did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetGroup {
    /// How many sources it was done in.
    pub sources: u64,
    /// Where they stand now.
    pub position: i64,
}

impl Admin {
    /// The nodes that are there.
    pub async fn group_nodes(&self) -> Result<GroupNodes, AdminError> {
        let nodes = self.store.nodes().await?.into_iter().filter(|node| !node.lapsed).collect();
        let holder = self.store.lock_holder(&Name::coordinator()).await?;
        Ok(GroupNodes { nodes, coordinator: holder.map(|(owner, term)| (NodeId(owner), term)) })
    }

    /// All groups with subscribers or positions, by name.
    pub async fn groups(&self) -> Result<Vec<Group>, AdminError> {
        self.groups_of(None).await
    }

    /// The group of this name. Errors: [`AdminError::NoGroup`].
    pub async fn group(&self, name: &Name) -> Result<Group, AdminError> {
        self.groups_of(Some(name)).await?.pop().ok_or_else(|| AdminError::NoGroup(name.clone()))
    }

    async fn groups_of(&self, name: Option<&Name>) -> Result<Vec<Group>, AdminError> {
        let mut groups = BTreeMap::<Name, Parts>::new();
        for state in self.store.subscribers(name).await? {
            groups.entry(state.group.clone()).or_default().subscribers.push(state);
        }
        for subscription in self.store.subscriptions(name).await? {
            groups.entry(subscription.group.clone()).or_default().subscriptions.push(subscription);
        }
        for (group, sources) in self.store.group_sources(name).await? {
            groups.entry(group).or_default().sources.extend(sources);
        }
        for position in self.store.group_positions(name).await? {
            groups.entry(position.group.clone()).or_default().positions.push(position);
        }
        let readable = self.store.log_horizon().await?.readable;
        Ok(groups.into_iter().map(|(name, parts)| parts.group(name, readable)).collect())
    }

    /// Lets a group go on elsewhere, in one of its sources or in all; whoever works on them notices. It is recorded.
    ///
    /// Errors: [`AdminError::NoGroup`]; [`AdminError::NoSource`]; [`AdminError::Invalid`] for a number outside the log.
    pub async fn reset_group(
        &self,
        name: &Name,
        source: Option<&EventSource>,
        to: ResetTo,
        actor: &Actor,
    ) -> Result<ResetGroup, AdminError> {
        checked(actor)?;
        let group = self.group(name).await?;
        let all: Vec<EventSource> = group.sources.into_iter().map(|source| source.source).collect();
        let sources = match source {
            Some(one) if all.contains(one) => vec![one.clone()],
            Some(one) => return Err(AdminError::NoSource(name.clone(), Box::new(one.clone()))),
            None => all,
        };
        let readable = self.store.log_horizon().await?.readable;
        let position = match to {
            ResetTo::Start => 0,
            ResetTo::End => readable,
            ResetTo::After(seq) if (0..=readable).contains(&seq) => seq,
            ResetTo::After(_) => {
                return Err(AdminError::Invalid(
                    "a group can go on after a number from 0 to the last one of the log that can be read: `wakeq log` has them",
                ));
            }
        };
        let sources = self.store.reset_positions(name, &sources, position, actor).await?;
        Ok(ResetGroup { sources, position })
    }
}

/// What is known of a group.
#[derive(Default)]
struct Parts {
    subscribers: Vec<SubscriberState>,
    subscriptions: Vec<Subscription>,
    sources: BTreeSet<EventSource>,
    positions: Vec<GroupPosition>,
}

impl Parts {
    fn group(mut self, name: Name, readable: i64) -> Group {
        let had = self.subscriptions.iter().flat_map(|one| one.sources.iter().chain(&one.releasing));
        self.sources.extend(had.cloned());
        self.sources.extend(self.positions.iter().map(|position| position.source.clone()));
        let source = |source: &EventSource| self.source(source, readable);
        let sources = self.sources.iter().map(source).collect();
        Group { name, sources, subscribers: self.subscribers }
    }

    fn source(&self, source: &EventSource, readable: i64) -> GroupSource {
        let mut counted_on = self.subscriptions.iter().filter(|one| self.is_there(one));
        let owner = counted_on.clone().find(|one| one.sources.contains(source));
        let former = counted_on.find(|one| one.releasing.contains(source) && !self.has_ended(one));
        let position = self.positions.iter().find(|position| position.source == *source);
        let stands = position.map_or(0, |position| position.position);
        GroupSource {
            source: source.clone(),
            owner: owner.or(former).map(|one| (one.subscriber, one.node)),
            releasing: owner.is_none() && former.is_some(),
            position: stands,
            epoch: position.map_or(0, |position| position.epoch),
            moved_at: position.map(|position| position.updated_at),
            lag: u64::try_from(readable.saturating_sub(stands)).unwrap_or_default(),
        }
    }

    /// Whether its subscriber's lease still runs: what one has that is gone has nobody.
    fn is_there(&self, with: &Subscription) -> bool {
        self.subscribers.iter().any(|state| state.id == with.subscriber && !state.lapsed)
    }

    fn has_ended(&self, with: &Subscription) -> bool {
        let state = self.subscribers.iter().find(|state| state.id == with.subscriber);
        state.is_none_or(|state| state.confirmed_epoch >= with.epoch)
    }
}
