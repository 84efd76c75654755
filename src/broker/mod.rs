//! Brokers: which subscriber of a group works on which source, over all processes, at most one on each.
//!
//! A broker is many small parts. The [`NodeHeartbeat`] says which processes are there; the [`EventSubscriberStateStore`] who
//! could work, and how they are; the coordinator, one at a time, chosen by a [`LeaderElector`], decides who has what, and
//! writes it into the [`EventSubscriptionStateStore`]; the observers, one on each node, read it from there and let their
//! subscribers begin and end. What to give to whom is planned by [`allocate`](crate::machine::allocate).
//!
//! Nothing here handles an event. Nothing relies on a clock of another machine, nor on everybody having heard of everything:
//! what a subscriber commits is fenced by the epoch of its subscription, and what the coordinator writes by its term.

mod config;
mod coordinator;
mod elector;
mod error;
mod local;
mod memory;
mod node;
mod observer;
mod postgres;
mod session;
mod single;
mod stores;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use config::BrokerConfig;
use coordinator::EventSubscriptionCoordinator;
pub use elector::{LeaderElector, Led, LockElector};
pub use error::BrokerError;
use local::{EventSubscriberStore, Local};
pub use memory::MemoryGroups;
use node::Node;
use observer::EventSubscriptionObserver;
use session::Session;
use single::Single;
pub use stores::{
    EventSubscriberStateStore, EventSubscriptionSourceMappingStore, EventSubscriptionStateStore, LockManager,
    NodeHeartbeat,
};

use crate::broadcast::Signals;
use crate::consumer::{EventSubscriber, Health};
use crate::event::{EntityType, EventSource, Name, NodeId, SubscriberState};
use crate::store::Store;

/// The most sources of a subscriber.
const REQUESTS_MAX: usize = 1_024;

/// Where a broker keeps what it knows.
#[derive(Clone, Debug)]
pub enum BrokerBacking {
    /// In this process: for tests, and for work whose positions are not kept either.
    Memory(MemoryGroups),
    /// In Postgres.
    Postgres(Store),
}

/// What a broker asks of Postgres, whatever its groups are in.
enum Postgres {
    None,
    /// What operators say.
    Shared(Store),
    /// That, and whether the groups are worked on here.
    Single(Store),
}

/// The name of the coordinator's lock.
pub(crate) fn coordinator_lock() -> Name {
    Name::coordinator()
}

/// Gives the subscribers of this process their sources.
///
/// ```no_run
/// use std::sync::Arc;
/// use wakeq::{BrokerBacking, BrokerConfig, EventBroker, EventSubscriber, Signals, Store};
///
/// # async fn example(store: Store, signals: Signals, consumer: Arc<dyn EventSubscriber>) -> Result<(), Box<dyn std::error::Error>> {
/// let broker = EventBroker::distributed(BrokerBacking::Postgres(store), signals, BrokerConfig::default())?;
/// broker.register(consumer).await?;
/// let (signal, stop) = (wakeq::shutdown_signal()?, broker.stop_token());
/// tokio::spawn(async move {
///     signal.await;
///     stop.cancel();
/// });
/// broker.run().await?;
/// # Ok(())
/// # }
/// ```
pub struct EventBroker {
    node: Arc<Node>,
    mapping: Arc<dyn EventSubscriptionSourceMappingStore>,
    stop: CancellationToken,
    /// It runs, or has.
    begun: AtomicBool,
}

impl EventBroker {
    /// For processes that share their groups: each source is worked on in one of them at a time.
    ///
    /// Errors: [`BrokerError::Config`].
    pub fn distributed(
        backing: BrokerBacking,
        signals: Signals,
        config: BrokerConfig,
    ) -> Result<Self, BrokerError> {
        match backing {
            BrokerBacking::Memory(groups) => Self::on(Arc::new(groups), signals, config, Postgres::None),
            BrokerBacking::Postgres(store) => {
                Self::on(Arc::new(store.clone()), signals, config, Postgres::Shared(store))
            }
        }
    }

    /// For one process that is alone: all sources are worked on here, and nothing has to be heard of by others. With
    /// Postgres, what it commits is fenced all the same, and of two that work on the same group the one that was started later works: the
    /// other one waits, [says so](Self::health), and goes on when nobody else is heard of, within a lease and a heartbeat. It waits for
    /// members of a [distributed](Self::distributed) group, too.
    ///
    /// Errors: [`BrokerError::Config`].
    pub fn single(backing: BrokerBacking, config: BrokerConfig) -> Result<Self, BrokerError> {
        let (groups, store) = match backing {
            BrokerBacking::Memory(groups) => (groups, Postgres::None),
            BrokerBacking::Postgres(store) => {
                (MemoryGroups::with_positions_in(store.clone()), Postgres::Single(store))
            }
        };
        Self::on(Arc::new(groups), Signals::alone(), config, store)
    }

    fn on<Groups>(
        groups: Arc<Groups>,
        signals: Signals,
        config: BrokerConfig,
        postgres: Postgres,
    ) -> Result<Self, BrokerError>
    where
        Groups: NodeHeartbeat
            + EventSubscriberStateStore
            + EventSubscriptionStateStore
            + EventSubscriptionSourceMappingStore
            + LockManager,
    {
        config.check()?;
        let id = NodeId::new();
        let (store, single) = match postgres {
            Postgres::None => (None, None),
            Postgres::Shared(store) => (Some(store), None),
            Postgres::Single(store) => (Some(store.clone()), Some(Single::new(store, id))),
        };
        let locals = Arc::new(EventSubscriberStore::default());
        let session = Arc::new(Session::new(config.working()));
        let (subscriptions, states) = (Arc::clone(&groups), Arc::clone(&groups));
        let elector = LockElector::new(Arc::clone(&groups) as _, coordinator_lock(), id.0, config.lease);
        let node = Node {
            id,
            config,
            heartbeats: Arc::clone(&groups) as _,
            observer: EventSubscriptionObserver::new(
                id,
                Arc::clone(&subscriptions) as _,
                Arc::clone(&locals),
                Arc::clone(&session),
            ),
            coordinator: EventSubscriptionCoordinator::new(Arc::clone(&states) as _, subscriptions),
            states,
            locals,
            session,
            elector: Mutex::new(Box::new(elector)),
            recoveries: (store, Mutex::default()),
            single,
            signals,
            changed: Arc::new(Notify::new()),
            told: Mutex::default(),
        };
        Ok(Self {
            node: Arc::new(node),
            mapping: groups,
            stop: CancellationToken::new(),
            begun: AtomicBool::new(false),
        })
    }

    /// Which node this is: another one for each broker that is made.
    pub fn node(&self) -> NodeId {
        self.node.id
    }

    /// Adds a subscriber. It is given sources once the broker [runs](Self::run).
    ///
    /// Errors: [`BrokerError::Config`] once it runs; [`BrokerError::Requests`]; [`BrokerError::Reserved`] for the name of a type's
    /// processors; [`BrokerError::Grace`] if it may take longer than a third of the lease to end; [`BrokerError::Sources`] if members of its
    /// group ask for others, while of one that starts at the same time [`health`](Self::health) tells; [`BrokerError::Partitions`] if its
    /// group has read a category of its in another number of partitions; [`BrokerError::Unavailable`].
    pub async fn register(&self, subscriber: Arc<dyn EventSubscriber>) -> Result<(), BrokerError> {
        if self.begun.load(Ordering::Relaxed) {
            return Err(BrokerError::Config("register the subscribers of a broker before it runs"));
        }
        let (group, requests) = (subscriber.name().clone(), subscriber.requests());
        if !(1..=REQUESTS_MAX).contains(&requests.len()) {
            return Err(BrokerError::Requests { group, count: requests.len() });
        }
        if !is_own_name(&group, &requests) {
            return Err(BrokerError::Reserved { group });
        }
        let (grace, config) = (subscriber.grace(), &self.node.config);
        if grace > config.grace_max() {
            return Err(BrokerError::Grace { group, grace, lease: config.lease });
        }
        let opened = self.mapping.opened(&group).await?;
        check_partitions(&group, &requests, &opened)?;
        check_sources(&group, &requests, &self.node.locals.all(), &self.node.states.states().await?)?;
        self.node.locals.add(Arc::new(Local::new(subscriber)));
        Ok(())
    }

    /// Whether all subscribers can work: if not, the reason of the first that can't. For a probe of the process, and for its operators.
    pub fn health(&self) -> Health {
        self.node.health()
    }

    /// How many writes of this process as the coordinator were refused, because somebody else led by then.
    pub fn refused_allocations(&self) -> u64 {
        self.node.coordinator.refused()
    }

    /// Cancelled, it ends the broker.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Works until it is told to stop. Then it gives the lead away and ends with every source; it is heard of until that is done, so
    /// that nobody else begins with them meanwhile. At last it removes what others know of this node, so that they go on at once.
    ///
    /// Errors: [`BrokerError::Unavailable`] if it could not give the lead away, or remove what others know, which it tries all the
    /// same: the leases decide then; [`BrokerError::Config`] if it ran before.
    pub async fn run(&self) -> Result<(), BrokerError> {
        if self.begun.swap(true, Ordering::Relaxed) {
            return Err(BrokerError::Config("a broker runs once: make another one"));
        }
        let (ending, ended) = watch::channel(false);
        let mut subscribers = JoinSet::new();
        for local in self.node.locals.all() {
            let (session, changed) = (Arc::clone(&self.node.session), Arc::clone(&self.node.changed));
            subscribers.spawn(local.run(session, changed, ended.clone()));
        }
        let over = CancellationToken::new();
        let end = async {
            self.stop.cancelled().await;
            ending.send_replace(true);
            let all_ended = async { while subscribers.join_next().await.is_some() {} };
            let in_time = tokio::time::timeout(self.node.config.shutdown_grace, all_ended).await.is_ok();
            over.cancel();
            in_time
        };
        let (resigned, in_time) = tokio::join!(self.node.run(&self.stop, &over), end);
        if !in_time {
            tracing::warn!(node = %self.node.id,
                "subscribers did not end within the grace; what they have moves when their leases run out");
            return resigned;
        }
        self.node.leave().await.and(resigned)
    }
}

/// Whether a subscriber may have this name: that of a type's processors is for whoever asks for the inbox of that type.
fn is_own_name(group: &Name, requests: &[EventSource]) -> bool {
    let Some(entity_type) = group.as_str().strip_prefix("entities.") else { return true };
    entity_type.parse::<EntityType>().is_ok_and(|entity_type| *requests == [entity_type.source()])
}

/// Members of a group ask for the same, or while a deployment is rolled out for more or less of it. A source that a
/// member asks for and this one does not would be taken from one of them. This is the early look: a member that starts meanwhile
/// is seen when the subscriber is registered with the others.
fn check_sources(
    group: &Name,
    requests: &[EventSource],
    locals: &[Arc<Local>],
    states: &[SubscriberState],
) -> Result<(), BrokerError> {
    let here = locals.iter().filter(|local| local.subscriber.name() == group);
    let here = here.map(|local| local.subscriber.requests());
    let members = states.iter().filter(|state| state.group == *group && !state.lapsed);
    let members = members.map(|state| state.requests.clone());
    match here.chain(members).find_map(|known| EventSource::incomparable(&known, requests)) {
        Some((known, asked)) => Err(BrokerError::differs(group, known, asked)),
        None => Ok(()),
    }
}

/// Parts of a category are read in one division only: a position says nothing about another one.
fn check_partitions(
    group: &Name,
    requests: &[EventSource],
    opened: &[EventSource],
) -> Result<(), BrokerError> {
    for asked in requests {
        if let Some(opened) = opened.iter().find(|opened| asked.is_split_otherwise_than(opened)) {
            let (group, opened, asked) = (group.clone(), Box::new(opened.clone()), Box::new(asked.clone()));
            return Err(BrokerError::Partitions { group, opened, asked });
        }
    }
    Ok(())
}
