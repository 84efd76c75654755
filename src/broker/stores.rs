//! What brokers share, behind traits: who is there, what they could do, and what they are given.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use uuid::Uuid;

use super::BrokerError;
use crate::event::{
    EventSource, GroupNode, Lead, Name, NewSubscription, NodeId, SubscriberId, SubscriberState, Subscription,
};

/// How often who waits for a lock looks again.
const LOOK: Duration = Duration::from_millis(100);

/// Which nodes are there.
#[async_trait]
pub trait NodeHeartbeat: Send + Sync + 'static {
    /// The node is there, and is counted on for so long.
    async fn beat(&self, node: NodeId, lease: Duration) -> Result<(), BrokerError>;

    /// The node goes.
    async fn leave(&self, node: NodeId) -> Result<(), BrokerError>;

    /// Every node that did not go, those included that were not heard of for longer than their lease.
    async fn all_nodes(&self) -> Result<Vec<GroupNode>, BrokerError>;
}

/// Which subscribers there are in all groups, and how they are.
#[async_trait]
pub trait EventSubscriberStateStore: Send + Sync + 'static {
    /// Registers a subscriber that is well, for as long as its lease. Registered again, it is well again. Of two that are registered at the
    /// same time the second is compared with the first.
    ///
    /// Errors: [`BrokerError::Sources`] if another member of its group that was heard of within its lease asks for other sources, and neither
    /// asks for all that the other does; then nothing has changed. The broker tries it again with each heartbeat.
    async fn register(
        &self,
        group: &Name,
        id: SubscriberId,
        node: NodeId,
        requests: &[EventSource],
        lease: Duration,
    ) -> Result<(), BrokerError>;

    /// These are there and well, and have confirmed these epochs; those of them that are registered so, and whose lease has not run out. The
    /// others have to register again.
    async fn heard(
        &self,
        beats: &[(SubscriberId, i64)],
        lease: Duration,
    ) -> Result<Vec<SubscriberId>, BrokerError>;

    /// One has confirmed an epoch: it works on nothing that had been taken from it by then. Its lease stays as it is.
    async fn confirm(&self, id: SubscriberId, epoch: i64) -> Result<(), BrokerError>;

    /// One can't work any more: it is not heard of until it is registered again.
    async fn unhealthy(&self, id: SubscriberId, why: &str) -> Result<(), BrokerError>;

    /// These go. They work on nothing any more, and what they had goes with them.
    async fn unregister(&self, ids: &[SubscriberId]) -> Result<(), BrokerError>;

    /// Every subscriber.
    async fn states(&self) -> Result<Vec<SubscriberState>, BrokerError>;
}

/// What each subscriber is given.
#[async_trait]
pub trait EventSubscriptionStateStore: Send + Sync + 'static {
    /// Takes everything from those who were not heard of for longer than their lease, and removes them; who that was. None:
    /// the lead is another's by now, and nothing was done.
    async fn bury(&self, lead: &Lead) -> Result<Option<Vec<SubscriberId>>, BrokerError>;

    /// Writes what these have, each under a new epoch, where it stands as it was seen; whose were written. None: the lead is
    /// another's by now, and nothing was.
    async fn allocate(
        &self,
        lead: &Lead,
        new: &[NewSubscription],
    ) -> Result<Option<Vec<SubscriberId>>, BrokerError>;

    /// Every subscription.
    async fn allocations(&self) -> Result<Vec<Subscription>, BrokerError>;

    /// Those of the subscribers of a node. Only reads.
    async fn allocations_of(&self, node: NodeId) -> Result<Vec<Subscription>, BrokerError>;
}

/// The full set of sources of each group.
#[async_trait]
pub trait EventSubscriptionSourceMappingStore: Send + Sync + 'static {
    /// The sources of every group, by its name.
    async fn sources(&self) -> Result<Vec<(Name, Vec<EventSource>)>, BrokerError>;

    /// The sources that a group has worked on before.
    async fn opened(&self, group: &Name) -> Result<Vec<EventSource>, BrokerError>;
}

/// Locks with a lease, each with a term that grows whenever it is taken.
#[async_trait]
pub trait LockManager: Send + Sync + 'static {
    /// Takes a lock that nobody else holds now, if so. One that this owner holds is taken anew, under a higher term: what would be done under the
    /// one before is refused from then on.
    async fn try_lock(&self, name: &Name, owner: Uuid, lease: Duration) -> Result<Option<Lead>, BrokerError>;

    /// Waits for a lock, for so long at most.
    async fn wait_for_lock(
        &self,
        name: &Name,
        owner: Uuid,
        lease: Duration,
        timeout: Duration,
    ) -> Result<Option<Lead>, BrokerError> {
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

    /// Holds a lock for so long from now; whether it was not taken by another.
    async fn renew(&self, lead: &Lead, lease: Duration) -> Result<bool, BrokerError>;

    /// Gives a lock back; whether it was not taken by another.
    async fn release(&self, lead: &Lead) -> Result<bool, BrokerError>;

    /// Who holds a lock now.
    async fn holder(&self, name: &Name) -> Result<Option<Lead>, BrokerError>;
}
