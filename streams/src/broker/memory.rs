//! Groups in memory, for a process that works alone, and for tests. Time is the monotonic clock of
//! the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    BrokerError, EventSubscriberStateStore, EventSubscriptionSourceMappingStore, EventSubscriptionStateStore,
    LockManager, NodeHeartbeat,
};
use crate::event::{GroupNode, NewSubscription, NodeId, SubscriberId, SubscriberState, Subscription, Term};
use crate::machine::{GroupMember, MemberStanding, wanted_sources};
use crate::store::Store;
use wakeq::log::EventSource;
use wakeq::{Name, Timestamp};

/// The tables of consumer groups, in memory. Brokers that share them form a cluster in one process.
/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct MemoryGroups {
    tables: Arc<Mutex<Tables>>,
    /// The store of the positions, if they are not in this process: epochs come from there.
    positions: Option<Store>,
}

#[derive(Debug, Default)]
struct Tables {
    nodes: BTreeMap<NodeId, Beat>,
    subscribers: BTreeMap<(Name, SubscriberId), Subscriber>,
    subscriptions: BTreeMap<SubscriberId, Subscription>,
    locks: BTreeMap<Name, Lock>,
    opened: BTreeSet<(Name, EventSource)>,
    epoch: i64,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    at: Timestamp,
    until: Instant,
}

#[derive(Debug)]
struct Subscriber {
    node: NodeId,
    requests: Vec<EventSource>,
    unhealthy: Option<String>,
    confirmed_epoch: i64,
    beat: Beat,
}

#[derive(Debug)]
struct Lock {
    owner: Uuid,
    term: i64,
    /// `None` once it was released.
    until: Option<Instant>,
}

impl Beat {
    fn now(lease: Duration) -> Self {
        Self { at: Timestamp::from(SystemTime::now()), until: Instant::now() + lease }
    }

    fn lapsed(&self) -> bool {
        self.until < Instant::now()
    }
}

impl Lock {
    fn is_held(&self) -> bool {
        self.until.is_some_and(|until| until >= Instant::now())
    }
}

impl MemoryGroups {
    /// For a process that works alone and has its positions in Postgres: its epochs are higher than
    /// any from before its start.
    pub(super) fn with_positions_in(store: Store) -> Self {
        Self { positions: Some(store), ..Self::default() }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // No code panics half-way under this lock, so what a poisoned lock guards is consistent.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn leads(&self, lead: &Term) -> bool {
        let lock = self.locks.get(&lead.name);
        lock.is_some_and(|lock| lock.owner == lead.owner && lock.term == lead.term && lock.is_held())
    }

    fn lock(&mut self, lead: &Term) -> Option<&mut Lock> {
        self.locks.get_mut(&lead.name).filter(|lock| lock.owner == lead.owner && lock.term == lead.term)
    }

    fn subscriber(&mut self, id: SubscriberId) -> Option<&mut Subscriber> {
        self.subscribers.iter_mut().find(|((_, of), _)| *of == id).map(|(_, subscriber)| subscriber)
    }

    fn is_registered(&self, new: &NewSubscription) -> bool {
        let registered = self.subscribers.get(&(new.group.clone(), new.subscriber));
        registered.is_some_and(|subscriber| subscriber.node == new.node)
    }
}

#[async_trait]
impl NodeHeartbeat for MemoryGroups {
    async fn beat(&self, node: NodeId, lease: Duration) -> Result<(), BrokerError> {
        self.tables().nodes.insert(node, Beat::now(lease));
        Ok(())
    }

    async fn leave(&self, node: NodeId) -> Result<(), BrokerError> {
        self.tables().nodes.remove(&node);
        Ok(())
    }

    async fn all_nodes(&self) -> Result<Vec<GroupNode>, BrokerError> {
        let tables = self.tables();
        let nodes = tables.nodes.iter();
        Ok(nodes
            .map(|(id, beat)| GroupNode { id: *id, heartbeat_at: beat.at, lapsed: beat.lapsed() })
            .collect())
    }
}

#[async_trait]
impl EventSubscriberStateStore for MemoryGroups {
    async fn register(
        &self,
        group: &Name,
        id: SubscriberId,
        node: NodeId,
        requests: &[EventSource],
        lease: Duration,
    ) -> Result<(), BrokerError> {
        let mut tables = self.tables();
        let others = tables
            .subscribers
            .iter()
            .filter(|((of, other), subscriber)| of == group && *other != id && !subscriber.beat.lapsed());
        for (_, other) in others {
            if let Some((known, asked)) = EventSource::incomparable(&other.requests, requests) {
                return Err(BrokerError::differs(group, known, asked));
            }
        }
        let key = (group.clone(), id);
        let confirmed_epoch = tables.subscribers.get(&key).map_or(0, |subscriber| subscriber.confirmed_epoch);
        let requests = requests.to_vec();
        let beat = Beat::now(lease);
        tables.subscribers.insert(key, Subscriber { node, requests, unhealthy: None, confirmed_epoch, beat });
        Ok(())
    }

    async fn record_heartbeats(
        &self,
        beats: &[(SubscriberId, i64)],
        lease: Duration,
    ) -> Result<Vec<SubscriberId>, BrokerError> {
        let mut tables = self.tables();
        let mut live = Vec::new();
        for (id, epoch) in beats {
            let registered = tables.subscriber(*id);
            let Some(subscriber) = registered.filter(|one| one.unhealthy.is_none() && !one.beat.lapsed())
            else {
                continue;
            };
            subscriber.beat = Beat::now(lease);
            subscriber.confirmed_epoch = subscriber.confirmed_epoch.max(*epoch);
            live.push(*id);
        }
        Ok(live)
    }

    async fn confirm(&self, id: SubscriberId, epoch: i64) -> Result<(), BrokerError> {
        if let Some(subscriber) = self.tables().subscriber(id) {
            subscriber.confirmed_epoch = subscriber.confirmed_epoch.max(epoch);
        }
        Ok(())
    }

    async fn unhealthy(&self, id: SubscriberId, why: &str) -> Result<(), BrokerError> {
        if let Some(subscriber) = self.tables().subscriber(id) {
            subscriber.unhealthy = Some(why.to_owned());
        }
        Ok(())
    }

    async fn unregister(&self, ids: &[SubscriberId]) -> Result<(), BrokerError> {
        let mut tables = self.tables();
        tables.subscribers.retain(|(_, id), _| !ids.contains(id));
        tables.subscriptions.retain(|id, _| !ids.contains(id));
        Ok(())
    }

    async fn states(&self) -> Result<Vec<SubscriberState>, BrokerError> {
        let tables = self.tables();
        let states = tables.subscribers.iter().map(|((group, id), subscriber)| SubscriberState {
            group: group.clone(),
            id: *id,
            node: subscriber.node,
            requests: subscriber.requests.clone(),
            unhealthy: subscriber.unhealthy.clone(),
            confirmed_epoch: subscriber.confirmed_epoch,
            heartbeat_at: subscriber.beat.at,
            lapsed: subscriber.beat.lapsed(),
        });
        Ok(states.collect())
    }
}

#[async_trait]
impl EventSubscriptionStateStore for MemoryGroups {
    async fn remove_lapsed(&self, lead: &Term) -> Result<Option<Vec<SubscriberId>>, BrokerError> {
        let mut tables = self.tables();
        if !tables.leads(lead) {
            return Ok(None);
        }
        let Tables { nodes, subscribers, subscriptions, .. } = &mut *tables;
        nodes.retain(|_, beat| !beat.lapsed());
        let mut removed = Vec::new();
        subscribers.retain(|(_, id), subscriber| {
            let shown = subscriber.unhealthy.is_some() && nodes.contains_key(&subscriber.node);
            let lapsed = subscriber.beat.lapsed();
            let had = lapsed && subscriptions.remove(id).is_some();
            if had || (lapsed && !shown) {
                removed.push(*id);
            }
            !lapsed || shown
        });
        Ok(Some(removed))
    }

    async fn allocate(
        &self,
        lead: &Term,
        new: &[NewSubscription],
    ) -> Result<Option<Vec<SubscriberId>>, BrokerError> {
        let mut epochs = Vec::with_capacity(new.len());
        if let Some(store) = &self.positions {
            let taken = store.next_epochs(new.len()).await;
            epochs = taken.map_err(BrokerError::unavailable("epochs can't be taken"))?;
        }
        let mut epochs = epochs.into_iter();
        let mut tables = self.tables();
        if !tables.leads(lead) {
            return Ok(None);
        }
        let mut written = Vec::new();
        for one in new {
            let standing = tables.subscriptions.get(&one.subscriber).map(|standing| standing.epoch);
            if !tables.is_registered(one) || standing.is_some_and(|epoch| epoch != one.seen_epoch) {
                continue;
            }
            tables.epoch = epochs.next().unwrap_or(tables.epoch + 1);
            let subscription = Subscription {
                group: one.group.clone(),
                subscriber: one.subscriber,
                node: one.node,
                sources: one.sources.clone(),
                releasing: one.releasing.clone(),
                epoch: tables.epoch,
                term: lead.term,
            };
            tables.subscriptions.insert(one.subscriber, subscription);
            let opened = one.sources.iter().map(|source| (one.group.clone(), source.clone()));
            tables.opened.extend(opened);
            written.push(one.subscriber);
        }
        Ok(Some(written))
    }

    async fn allocations(&self) -> Result<Vec<Subscription>, BrokerError> {
        let mut all: Vec<Subscription> = self.tables().subscriptions.values().cloned().collect();
        all.sort_by(|one, other| (&one.group, one.subscriber).cmp(&(&other.group, other.subscriber)));
        Ok(all)
    }

    async fn allocations_of(&self, node: NodeId) -> Result<Vec<Subscription>, BrokerError> {
        let tables = self.tables();
        Ok(tables.subscriptions.values().filter(|one| one.node == node).cloned().collect())
    }
}

#[async_trait]
impl EventSubscriptionSourceMappingStore for MemoryGroups {
    async fn sources(&self) -> Result<Vec<(Name, Vec<EventSource>)>, BrokerError> {
        let mut groups = BTreeMap::<Name, Vec<GroupMember>>::new();
        for state in
            self.states().await?.into_iter().filter(|state| !state.lapsed && state.unhealthy.is_none())
        {
            groups.entry(state.group).or_default().push(GroupMember {
                id: state.id,
                node: state.node,
                standing: MemberStanding::Working,
                requests: state.requests,
                holds: Vec::new(),
                releasing: Vec::new(),
            });
        }
        Ok(groups.into_iter().map(|(group, members)| (group, wanted_sources(&members))).collect())
    }

    async fn opened(&self, group: &Name) -> Result<Vec<EventSource>, BrokerError> {
        if let Some(store) = &self.positions {
            return store.opened(group).await;
        }
        let tables = self.tables();
        let of_group = tables.opened.iter().filter(|(of, _)| of == group);
        Ok(of_group.map(|(_, source)| source.clone()).collect())
    }
}

#[async_trait]
impl LockManager for MemoryGroups {
    async fn try_lock(&self, name: &Name, owner: Uuid, lease: Duration) -> Result<Option<Term>, BrokerError> {
        let mut tables = self.tables();
        let standing = tables.locks.get(name);
        if standing.is_some_and(|lock| lock.is_held() && lock.owner != owner) {
            return Ok(None);
        }
        let term = standing.map_or(1, |lock| lock.term + 1);
        let until = Some(Instant::now() + lease);
        tables.locks.insert(name.clone(), Lock { owner, term, until });
        Ok(Some(Term { name: name.clone(), owner, term }))
    }

    async fn renew(&self, lead: &Term, lease: Duration) -> Result<bool, BrokerError> {
        let mut tables = self.tables();
        let Some(lock) = tables.lock(lead) else { return Ok(false) };
        lock.until = Some(Instant::now() + lease);
        Ok(true)
    }

    async fn release(&self, lead: &Term) -> Result<bool, BrokerError> {
        let mut tables = self.tables();
        let Some(lock) = tables.lock(lead) else { return Ok(false) };
        lock.until = None;
        Ok(true)
    }

    async fn holder(&self, name: &Name) -> Result<Option<Term>, BrokerError> {
        let tables = self.tables();
        let held = tables.locks.get(name).filter(|lock| lock.is_held());
        Ok(held.map(|lock| Term { name: name.clone(), owner: lock.owner, term: lock.term }))
    }
}
