//! Consumer groups as operators see them: nodes, subscribers, owners of sources, and positions.
//!
//! Groups span all canvases: callers check the authorization. Nothing here allocates a source.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{EntityType, GroupNode, NodeId, SubscriberId, SubscriberState, Subscription};
use crate::store::{self, FailingEvent, GroupDeadCursor, GroupDeadPage, GroupPosition, RemoveGroup};
use wakeq::control::{BULK_MAX, Bulk, LIST_MAX};
use wakeq::log::EventSource;
use wakeq::{Actor, Name, Store, StoreError, Timestamp};

/// The nodes that have subscribers, and the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupNodes {
    /// The nodes whose lease has not expired.
    pub nodes: Vec<GroupNode>,
    /// The coordinating node and its term; `None` if there is none at present.
    pub coordinator: Option<(NodeId, i64)>,
}

/// A consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// Its name.
    pub name: Name,
    /// Its subscribers.
    pub subscribers: Vec<SubscriberState>,
    /// Its sources: those that it requests, and those in which it has a position.
    pub sources: Vec<GroupSource>,
    /// The process that consumes the whole group [alone](crate::EventBroker::single), if one does.
    pub alone: Option<NodeId>,
    /// For processors of an entity type: the sequence number after which the log is kept, because
    /// their repository is needed.
    pub pin: Option<i64>,
}

/// A source of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupSource {
    /// The source.
    pub source: EventSource,
    /// The subscriber that owns it, and its node; `None` if it has no owner at present.
    pub owner: Option<(SubscriberId, NodeId)>,
    /// Whether it is being revoked from its owner.
    pub releasing: bool,
    /// The `seq` of the last event that is done, processed or given up; 0 before the first.
    pub position: i64,
    /// The epoch under which the position was last opened; 0 if it never was.
    pub epoch: i64,
    /// When the position was last moved or opened; `None` if it never was.
    pub moved_at: Option<Timestamp>,
    /// How many sequence numbers of the log are between the position and the last readable one.
    /// They include those of other sources.
    pub lag: u64,
    /// The failing event that the source waits for, if any.
    pub failing: Option<FailingEvent>,
}

impl Group {
    /// How many of its sources have no owner.
    pub fn idle(&self) -> usize {
        if self.alone.is_some() {
            return 0;
        }
        self.sources.iter().filter(|source| source.owner.is_none()).count()
    }

    /// The largest lag of its sources.
    pub fn lag(&self) -> u64 {
        self.sources.iter().map(|source| source.lag).max().unwrap_or_default()
    }
}

/// Where a group continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    /// At the first event of the log.
    Start,
    /// At the next event that is appended.
    End,
    /// After this `seq`.
    After(i64),
}

/// The result of resetting the positions of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetGroup {
    /// How many sources were reset.
    pub sources: u64,
    /// Their position now.
    pub position: i64,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// An argument is not valid.
    #[error("{0}")]
    Invalid(&'static str),
    /// No consumer group has this name.
    #[error("there is no consumer group {0}: `wakeq groups list` shows those with subscribers or positions")]
    NoGroup(Name),
    /// The group is in use.
    #[error(
        "the group {0} is in use, or was in use less than a lease ago: stop its members first, \
         then remove it"
    )]
    GroupInUse(Name),
    /// The group has no such source.
    #[error("the group {0} has no source {1}: `wakeq groups show {0}` lists its own")]
    NoSource(Name, Box<EventSource>),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Shows and changes the consumer groups of a deployment. Cheap to clone.
///
/// ```no_run
/// # async fn example(store: wakeq::Store) -> Result<(), wakeq_streams::GroupError> {
/// use wakeq_streams::Groups;
///
/// for group in Groups::new(store).groups().await? {
///     println!("{} is {} behind", group.name, group.lag());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Groups {
    store: store::Store,
}

impl Groups {
    /// The groups in a store.
    pub fn new(store: Store) -> Self {
        Self { store: store.into() }
    }

    /// The nodes whose lease has not expired, and the coordinator. A node is a process, and at most
    /// 10,000 nodes are read.
    pub async fn group_nodes(&self) -> Result<GroupNodes, GroupError> {
        let nodes = self.store.nodes().await?.into_iter().filter(|node| !node.lapsed).collect();
        let holder = self.store.lock_holder(&Name::coordinator()).await?;
        Ok(GroupNodes { nodes, coordinator: holder.map(|(owner, term)| (NodeId(owner), term)) })
    }

    /// All groups with subscribers, positions or pins, by name. They are not paged: there are as
    /// many as programs declare, and tenants make none. At most 100,000 subscribers and 100,000
    /// positions are read.
    pub async fn groups(&self) -> Result<Vec<Group>, GroupError> {
        self.groups_of(None).await
    }

    /// The group of this name. Errors: [`GroupError::NoGroup`].
    pub async fn group(&self, name: &Name) -> Result<Group, GroupError> {
        self.groups_of(Some(name)).await?.pop().ok_or_else(|| GroupError::NoGroup(name.clone()))
    }

    async fn groups_of(&self, name: Option<&Name>) -> Result<Vec<Group>, GroupError> {
        let mut groups = BTreeMap::<Name, GroupParts>::new();
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
        for (group, node) in self.store.single_groups(name).await? {
            groups.entry(group).or_default().alone = Some(node);
        }
        for (group, seq) in self.store.repository_pins(name).await? {
            groups.entry(group).or_default().pin = Some(seq);
        }
        let readable = self.store.log_horizon().await?.readable;
        Ok(groups.into_iter().map(|(name, parts)| parts.group(name, readable)).collect())
    }

    /// Resets the position of a group in one of its sources or in all. The owners of the sources
    /// notice. The change is recorded.
    ///
    /// Errors: [`GroupError::NoGroup`]; [`GroupError::NoSource`]; [`GroupError::Invalid`] for a
    /// number outside the log.
    pub async fn reset_group(
        &self,
        name: &Name,
        source: Option<&EventSource>,
        to: ResetTo,
        actor: &Actor,
    ) -> Result<ResetGroup, GroupError> {
        checked(actor)?;
        let group = self.group(name).await?;
        let all: Vec<EventSource> = group.sources.into_iter().map(|source| source.source).collect();
        let sources = match source {
            Some(one) if all.contains(one) => vec![one.clone()],
            Some(one) => return Err(GroupError::NoSource(name.clone(), Box::new(one.clone()))),
            None => all,
        };
        let readable = self.store.log_horizon().await?.readable;
        let position = match to {
            ResetTo::Start => 0,
            ResetTo::End => readable,
            ResetTo::After(seq) if (0..=readable).contains(&seq) => seq,
            ResetTo::After(_) => {
                return Err(GroupError::Invalid(
                    "a group can resume after a number from 0 to the last one of the log that can \
                     be read: `wakeq log` shows them",
                ));
            }
        };
        let sources = self.store.reset_positions(name, &sources, position, actor).await?;
        Ok(ResetGroup { sources, position })
    }
}

impl Groups {
    /// Has the members of a group retry what failed: unhealthy members, and sources that wait for
    /// an event. They notice with their next heartbeat. The change is recorded.
    ///
    /// Errors: [`GroupError::NoGroup`].
    pub async fn recover_group(&self, name: &Name, actor: &Actor) -> Result<(), GroupError> {
        checked(actor)?;
        self.group(name).await?;
        Ok(self.store.ask_recovery(name, actor).await?)
    }

    /// A page of the events that a group gave up, the latest in the log first: up to `limit`, 1 to
    /// [`LIST_MAX`], and up to 4 MiB of payloads and errors, or one event.
    pub async fn group_dead(
        &self,
        name: &Name,
        after: Option<&GroupDeadCursor>,
        limit: u32,
    ) -> Result<GroupDeadPage, GroupError> {
        Ok(self.store.group_dead(name, after, i64::from(limit.clamp(1, LIST_MAX))).await?)
    }

    /// Has the event with this number, or all that a group gave up, retried once by the owners of
    /// their sources, behind later events: up to 10,000 of those that died before `before`, or
    /// before this call. Returns how many these are, whether there may be more, and the `before`
    /// for subsequent calls, so that events that fail again in the meantime are not marked twice.
    /// The change is recorded.
    ///
    /// Errors: [`GroupError::Invalid`] for processors of entities: send those events again as new
    /// ones, because later events have been decided.
    pub async fn redrive_group(
        &self,
        name: &Name,
        seq: Option<i64>,
        before: Option<Timestamp>,
        actor: &Actor,
    ) -> Result<(Bulk, Timestamp), GroupError> {
        checked(actor)?;
        if name.as_str().starts_with("entities.") {
            return Err(GroupError::Invalid(
                "a dead event of an entity can't be redriven, because later events of the entity \
                 have been processed: send it to the entity again, as a new event",
            ));
        }
        let now = self.store.clock().await?;
        let before = before.map_or(now, |before| before.min(now));
        let count = self.store.redrive_group(name, seq, before, actor).await?;
        Ok((Bulk { count, more: count >= BULK_MAX }, before))
    }

    /// Removes a group that no process works on: its positions and, for processors of entities, the
    /// pin that keeps the log for them. With `source`, removes only the position in a source that
    /// none of the members requests; processors of entities have one source, so this removes all of
    /// it. Parts of the log that nothing else needs may be dropped afterwards. The change is
    /// recorded.
    ///
    /// Errors: [`GroupError::NoGroup`]; [`GroupError::NoSource`]; [`GroupError::GroupInUse`].
    pub async fn remove_group(
        &self,
        name: &Name,
        source: Option<&EventSource>,
        actor: &Actor,
    ) -> Result<RemoveGroup, GroupError> {
        checked(actor)?;
        let group = self.group(name).await?;
        if let Some(source) = source.filter(|source| group.sources.iter().all(|one| one.source != **source)) {
            return Err(GroupError::NoSource(name.clone(), Box::new(source.clone())));
        }
        let entity_type =
            name.as_str().strip_prefix("entities.").and_then(|name| name.parse::<EntityType>().ok());
        let part =
            source.filter(|one| entity_type.as_ref().is_none_or(|entity_type| entity_type.source() != **one));
        let removed = self.store.remove_group(name, part, entity_type.as_ref(), actor).await?;
        removed.ok_or_else(|| GroupError::GroupInUse(name.clone()))
    }
}

fn checked(actor: &Actor) -> Result<(), GroupError> {
    actor.check().map_err(GroupError::Invalid)
}

/// The facts about a group.
#[derive(Default)]
struct GroupParts {
    subscribers: Vec<SubscriberState>,
    subscriptions: Vec<Subscription>,
    sources: BTreeSet<EventSource>,
    positions: Vec<GroupPosition>,
    alone: Option<NodeId>,
    pin: Option<i64>,
}

impl GroupParts {
    fn group(mut self, name: Name, readable: i64) -> Group {
        let had = self.subscriptions.iter().flat_map(|one| one.sources.iter().chain(&one.releasing));
        self.sources.extend(had.cloned());
        self.sources.extend(self.positions.iter().map(|position| position.source.clone()));
        let source = |source: &EventSource| self.source(source, readable);
        let sources = self.sources.iter().map(source).collect();
        Group { name, sources, subscribers: self.subscribers, alone: self.alone, pin: self.pin }
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
            failing: position.and_then(|position| position.failing.clone()),
        }
    }

    /// Whether the subscriber's lease is still running: otherwise its sources have no owner.
    fn is_there(&self, with: &Subscription) -> bool {
        self.subscribers.iter().any(|state| state.id == with.subscriber && !state.lapsed)
    }

    fn has_ended(&self, with: &Subscription) -> bool {
        let state = self.subscribers.iter().find(|state| state.id == with.subscriber);
        state.is_none_or(|state| state.confirmed_epoch >= with.epoch)
    }
}
