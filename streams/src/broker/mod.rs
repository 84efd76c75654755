//! Brokers decide which subscriber of a group works on which source, across all processes, at most
//! one on each.
//!
//! A broker consists of small parts:
//! - [`NodeHeartbeat`] says which processes are alive.
//! - [`EventSubscriberStateStore`] says which subscribers there are, and whether they are healthy.
//! - The coordinator, one at a time and chosen by a [`LeaderElector`], plans with
//!   [`allocate`](crate::machine::allocate) which subscriber has which sources, and writes that
//!   into the [`EventSubscriptionStateStore`].
//! - The observers, one on each node, read it from there; their subscribers start and end
//!   accordingly.
//!
//! Nothing here handles an event. Nothing relies on the clock of another machine, or on every
//! process having received a message. A subscriber's commits are fenced by the epoch of its
//! subscription, and the coordinator's writes by its term.

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
pub use elector::{LeaderElector, Leadership, LockElector};
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

use crate::consumer::{EventSubscriber, Health};
use crate::event::{EntityType, NodeId, SubscriberState};
use crate::store;
use wakeq::listeners::Signals;
use wakeq::log::EventSource;
use wakeq::{Name, Store};

/// Maximum number of sources per subscriber.
const REQUESTS_MAX: usize = 1_024;

/// Where a broker stores its groups.
#[derive(Clone, Debug)]
pub enum BrokerBacking {
    /// In this process: for tests, and for work whose positions are not stored either.
    Memory(MemoryGroups),
    /// In Postgres.
    Postgres(Store),
}

/// A broker's use of Postgres, wherever its groups are.
enum Postgres {
    None,
    /// To see which groups operators want to recover.
    Shared(store::Store),
    /// That, and to claim its groups.
    Single(store::Store),
}

/// Gives the subscribers of this process their sources.
///
/// ```no_run
/// use std::sync::Arc;
/// use wakeq::Store;
/// use wakeq::listeners::Signals;
/// use wakeq_streams::{BrokerBacking, BrokerConfig, EventBroker, EventSubscriber};
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
    /// Whether it runs, or has run.
    begun: AtomicBool,
}

impl EventBroker {
    /// A broker for processes that share their groups: each source is worked on by one of them at a
    /// time.
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
                Self::on(Arc::new(store.clone()), signals, config, Postgres::Shared(store.into()))
            }
        }
    }

    /// A broker for a process that works alone, on all sources. No other process has to see its
    /// heartbeats.
    ///
    /// With Postgres, its commits are fenced all the same. Of two such processes with the same
    /// group the one that was started later works: the other one waits, [reports
    /// that](Self::health), and resumes within a lease and a heartbeat after no other process works
    /// on the group. It also waits for members of a [distributed](Self::distributed) group.
    ///
    /// Errors: [`BrokerError::Config`].
    pub fn single(backing: BrokerBacking, config: BrokerConfig) -> Result<Self, BrokerError> {
        let (groups, store) = match backing {
            BrokerBacking::Memory(groups) => (groups, Postgres::None),
            BrokerBacking::Postgres(store) => {
                let store = store::Store::from(store);
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
        let elector = LockElector::new(Arc::clone(&groups) as _, Name::coordinator(), id.0, config.lease);
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
            reported_epochs: Mutex::default(),
        };
        Ok(Self {
            node: Arc::new(node),
            mapping: groups,
            stop: CancellationToken::new(),
            begun: AtomicBool::new(false),
        })
    }

    /// The id of this node, a new one for each broker.
    pub fn node(&self) -> NodeId {
        self.node.id
    }

    /// Adds a subscriber. It is given sources once the broker [runs](Self::run).
    ///
    /// Errors:
    /// - [`BrokerError::Config`] once the broker runs.
    /// - [`BrokerError::Requests`] unless it asks for 1 to 1,024 sources.
    /// - [`BrokerError::Reserved`] for the name of a type's processors.
    /// - [`BrokerError::Grace`] if it may take longer than a third of the lease to stop working on
    ///   a source.
    /// - [`BrokerError::Sources`] if a member of its group asks for other sources, and neither asks
    ///   for all that the other does. If such a member starts at the same time,
    ///   [`health`](Self::health) reports it instead.
    /// - [`BrokerError::Partitions`] if its group has read one of its categories in another
    ///   division.
    /// - [`BrokerError::Unavailable`].
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

    /// Whether all subscribers can work; if not, the reason of the first that can't. For health
    /// probes and operators.
    pub fn health(&self) -> Health {
        self.node.health()
    }

    /// How many writes of this process as the coordinator were refused, because another one led by
    /// then.
    pub fn refused_allocations(&self) -> u64 {
        self.node.coordinator.refused()
    }

    /// Ends the broker when it is cancelled.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Runs until its [`stop_token`](Self::stop_token) is cancelled. Then it gives up the lead and
    /// stops working on every source; it heartbeats until that is done, so that no other process
    /// starts with them meanwhile. Finally it removes its node and subscribers, so that others take
    /// over at once; if the subscribers take longer than the shutdown grace, their leases decide.
    ///
    /// Errors: [`BrokerError::Unavailable`] if it could not give up the lead or remove its node, in
    /// which case the leases decide; a failure to give up the lead does not keep it from the rest.
    /// [`BrokerError::Config`] if it has run before.
    pub async fn run(&self) -> Result<(), BrokerError> {
        if self.begun.swap(true, Ordering::Relaxed) {
            return Err(BrokerError::Config("a broker runs only once: create another one"));
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
                "subscribers did not stop within the grace period; their sources move when their leases expire");
            return resigned;
        }
        self.node.leave().await.and(resigned)
    }
}

/// Whether a subscriber may have this name: that of a type's processors is for subscribers that ask
/// for the inbox of that type, and only for that.
fn is_own_name(group: &Name, requests: &[EventSource]) -> bool {
    let Some(entity_type) = group.as_str().strip_prefix("entities.") else { return true };
    entity_type.parse::<EntityType>().is_ok_and(|entity_type| *requests == [entity_type.source()])
}

/// Members of a group ask for the same sources or, while a deployment is rolled out, for some more
/// or fewer. If each asks for a source that the other does not, they would take sources from one
/// another. This is an early check: a member that starts meanwhile is found when the subscriber is
/// registered.
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

/// A group reads a category in one division only: a position says nothing about another one.
fn check_partitions(
    group: &Name,
    requests: &[EventSource],
    opened: &[EventSource],
) -> Result<(), BrokerError> {
    for asked in requests {
        if let Some(opened) = opened.iter().find(|opened| asked.is_split_differently(opened)) {
            let (group, opened, asked) = (group.clone(), Box::new(opened.clone()), Box::new(asked.clone()));
            return Err(BrokerError::Partitions { group, opened, asked });
        }
    }
    Ok(())
}
