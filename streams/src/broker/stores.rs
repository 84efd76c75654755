//! The tables that brokers share, as traits: nodes, subscribers, and their subscriptions.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use uuid::Uuid;

use super::BrokerError;
use crate::event::{GroupNode, NewSubscription, NodeId, SubscriberId, SubscriberState, Subscription, Term};
use wakeq::Name;
use wakeq::log::EventSource;

/// How often a caller that waits for a lock tries to take it.
const LOOK: Duration = Duration::from_millis(100);

/// The nodes that are alive.
#[async_trait]
pub trait NodeHeartbeat: Send + Sync + 'static {
    /// Writes a heartbeat of the node, which is relied on for this long.
    async fn beat(&self, node: NodeId, lease: Duration) -> Result<(), BrokerError>;

    /// Removes the node.
    async fn leave(&self, node: NodeId) -> Result<(), BrokerError>;

    /// Every node that was not removed, including those whose lease has run out.
    async fn all_nodes(&self) -> Result<Vec<GroupNode>, BrokerError>;
}

/// The subscribers of all groups, and their health.
#[async_trait]
pub trait EventSubscriberStateStore: Send + Sync + 'static {
    /// Registers a subscriber as healthy, for as long as its lease. If it was unhealthy, this makes
    /// it healthy again. Of two that are registered at the same time the second is compared with
    /// the first.
    ///
    /// Errors: [`BrokerError::Sources`] if another member of its group, whose lease has not run
    /// out, asks for other sources, and neither asks for all that the other does; then nothing has
    /// changed. The broker tries again with each heartbeat.
    async fn register(
        &self,
        group: &Name,
        id: SubscriberId,
        node: NodeId,
        requests: &[EventSource],
        lease: Duration,
    ) -> Result<(), BrokerError>;

    /// Writes heartbeats of healthy subscribers, with the epochs that they have confirmed. Returns
    /// those that are registered as healthy and whose lease has not run out; the others have to
    /// register again.
    async fn record_heartbeats(
        &self,
        beats: &[(SubscriberId, i64)],
        lease: Duration,
    ) -> Result<Vec<SubscriberId>, BrokerError>;

    /// Confirms an epoch: the subscriber no longer works on anything that had been taken from it by
    /// then. Its lease does not change.
    async fn confirm(&self, id: SubscriberId, epoch: i64) -> Result<(), BrokerError>;

    /// Marks a subscriber as unable to work: its heartbeats are ignored until it is registered
    /// again.
    async fn unhealthy(&self, id: SubscriberId, why: &str) -> Result<(), BrokerError>;

    /// Removes subscribers that no longer work on anything, and their subscriptions.
    async fn unregister(&self, ids: &[SubscriberId]) -> Result<(), BrokerError>;

    /// Every subscriber.
    async fn states(&self) -> Result<Vec<SubscriberState>, BrokerError>;
}

/// The sources that each subscriber is given.
#[async_trait]
pub trait EventSubscriptionStateStore: Send + Sync + 'static {
    /// Removes the subscribers whose lease has run out, with everything that they have, and returns
    /// them. An unhealthy one only loses what it has, as long as its node is alive. Nodes whose
    /// lease has run out are removed as well. `None` if another node leads by now, and nothing was
    /// done.
    async fn remove_lapsed(&self, lead: &Term) -> Result<Option<Vec<SubscriberId>>, BrokerError>;

    /// Writes subscriptions, each under a new epoch, where the subscriber is registered on that
    /// node and its subscription is still as it was read. Returns the subscribers whose
    /// subscription was written. `None` if another node leads by now, and nothing was written.
    async fn allocate(
        &self,
        lead: &Term,
        new: &[NewSubscription],
    ) -> Result<Option<Vec<SubscriberId>>, BrokerError>;

    /// Every subscription.
    async fn allocations(&self) -> Result<Vec<Subscription>, BrokerError>;

    /// The subscriptions of a node's subscribers. Only reads.
    async fn allocations_of(&self, node: NodeId) -> Result<Vec<Subscription>, BrokerError>;
}

/// All sources of each group.
#[async_trait]
pub trait EventSubscriptionSourceMappingStore: Send + Sync + 'static {
    /// The sources of every group, by its name.
    async fn sources(&self) -> Result<Vec<(Name, Vec<EventSource>)>, BrokerError>;

    /// The sources that a group has worked on before.
    async fn opened(&self, group: &Name) -> Result<Vec<EventSource>, BrokerError>;
}

/// Locks with a lease and a term, which grows whenever the lock is taken.
#[async_trait]
pub trait LockManager: Send + Sync + 'static {
    /// Takes a lock, unless another owner holds it. A lock that this owner holds is taken again,
    /// under a higher term: writes under the previous one are refused from then on.
    async fn try_lock(&self, name: &Name, owner: Uuid, lease: Duration) -> Result<Option<Term>, BrokerError>;

    /// Waits for a lock, at most this long.
    async fn wait_for_lock(
        &self,
        name: &Name,
        owner: Uuid,
        lease: Duration,
        timeout: Duration,
    ) -> Result<Option<Term>, BrokerError> {
        let end = Instant::now() + timeout;
        loop {
            let taken = self.try_lock(name, owner, lease).await?;
            let now = Instant::now();
            if taken.is_some() || now >= end {
                return Ok(taken);
            }
            tokio::time::sleep_until(end.min(now + LOOK)).await;
        }
    }

    /// Extends a lock to this long from now. Returns whether no other owner has taken it.
    async fn renew(&self, lead: &Term, lease: Duration) -> Result<bool, BrokerError>;

    /// Releases a lock. Returns whether no other owner has taken it.
    async fn release(&self, lead: &Term) -> Result<bool, BrokerError>;

    /// The holder of a lock, if it is held.
    async fn holder(&self, name: &Name) -> Result<Option<Term>, BrokerError>;
}
