//! Groups in Postgres.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::{
    BrokerError, EventSubscriberStateStore, EventSubscriptionSourceMappingStore, EventSubscriptionStateStore,
    LockManager, NodeHeartbeat,
};
use crate::event::{GroupNode, NewSubscription, NodeId, SubscriberId, SubscriberState, Subscription, Term};
use crate::store::{self, RegisterOutcome};
use wakeq::log::EventSource;
use wakeq::{Name, Store, StoreError};

/// Maximum bytes of a reason for being unhealthy.
const REASON_MAX: usize = 2_000;

/// The same store, with the statements of groups.
fn of_groups(store: &Store) -> store::Store {
    store::Store::from(store)
}

async fn answered<T>(
    what: &'static str,
    statement: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, BrokerError> {
    statement.await.map_err(BrokerError::unavailable(what))
}

#[async_trait]
impl NodeHeartbeat for Store {
    async fn beat(&self, node: NodeId, lease: Duration) -> Result<(), BrokerError> {
        answered("the heartbeat of the node can't be written", of_groups(self).beat_node(node, lease)).await
    }

    async fn leave(&self, node: NodeId) -> Result<(), BrokerError> {
        answered("the node can't be removed", of_groups(self).remove_node(node)).await
    }

    async fn all_nodes(&self) -> Result<Vec<GroupNode>, BrokerError> {
        answered("the nodes can't be read", of_groups(self).nodes()).await
    }
}

#[async_trait]
impl EventSubscriberStateStore for Store {
    async fn register(
        &self,
        group: &Name,
        id: SubscriberId,
        node: NodeId,
        requests: &[EventSource],
        lease: Duration,
    ) -> Result<(), BrokerError> {
        let store = of_groups(self);
        let registering = store.register_subscriber(group, id, node, requests, lease);
        match answered("a subscriber can't be registered", registering).await? {
            RegisterOutcome::Done => Ok(()),
            RegisterOutcome::Differs { known, asked } => Err(BrokerError::differs(group, known, asked)),
        }
    }

    async fn record_heartbeats(
        &self,
        beats: &[(SubscriberId, i64)],
        lease: Duration,
    ) -> Result<Vec<SubscriberId>, BrokerError> {
        let store = of_groups(self);
        answered("the heartbeats of subscribers can't be written", store.beat_subscribers(beats, lease)).await
    }

    async fn confirm(&self, id: SubscriberId, epoch: i64) -> Result<(), BrokerError> {
        let what = "the sources that a subscriber has released can't be confirmed";
        answered(what, of_groups(self).confirm_epoch(id, epoch)).await
    }

    async fn unhealthy(&self, id: SubscriberId, why: &str) -> Result<(), BrokerError> {
        let mut end = why.len().min(REASON_MAX);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        let why = why[..end].replace('\0', "");
        answered("a subscriber can't be marked as unhealthy", of_groups(self).set_unhealthy(id, &why)).await
    }

    async fn unregister(&self, ids: &[SubscriberId]) -> Result<(), BrokerError> {
        answered("subscribers can't be removed", of_groups(self).remove_subscribers(ids)).await
    }

    async fn states(&self) -> Result<Vec<SubscriberState>, BrokerError> {
        answered("the subscribers can't be read", of_groups(self).subscribers(None)).await
    }
}

#[async_trait]
impl EventSubscriptionStateStore for Store {
    async fn remove_lapsed(&self, lead: &Term) -> Result<Option<Vec<SubscriberId>>, BrokerError> {
        answered("lapsed subscribers can't be removed", of_groups(self).remove_lapsed_subscribers(lead)).await
    }

    async fn allocate(
        &self,
        lead: &Term,
        new: &[NewSubscription],
    ) -> Result<Option<Vec<SubscriberId>>, BrokerError> {
        let store = of_groups(self);
        answered("the sources of subscribers can't be written", store.write_subscriptions(lead, new)).await
    }

    async fn allocations(&self) -> Result<Vec<Subscription>, BrokerError> {
        answered("the sources of subscribers can't be read", of_groups(self).subscriptions(None)).await
    }

    async fn allocations_of(&self, node: NodeId) -> Result<Vec<Subscription>, BrokerError> {
        answered("the sources of this node can't be read", of_groups(self).subscriptions_of(node)).await
    }
}

#[async_trait]
impl EventSubscriptionSourceMappingStore for Store {
    async fn sources(&self) -> Result<Vec<(Name, Vec<EventSource>)>, BrokerError> {
        answered("the sources of groups can't be read", of_groups(self).group_sources(None)).await
    }

    async fn opened(&self, group: &Name) -> Result<Vec<EventSource>, BrokerError> {
        let store = of_groups(self);
        let positions = store.group_positions(Some(group));
        let positions = answered("the positions of a group can't be read", positions).await?;
        Ok(positions.into_iter().map(|position| position.source).collect())
    }
}

#[async_trait]
impl LockManager for Store {
    async fn try_lock(&self, name: &Name, owner: Uuid, lease: Duration) -> Result<Option<Term>, BrokerError> {
        let term = answered("a lock can't be taken", of_groups(self).take_lock(name, owner, lease)).await?;
        Ok(term.map(|term| Term { name: name.clone(), owner, term }))
    }

    async fn renew(&self, lead: &Term, lease: Duration) -> Result<bool, BrokerError> {
        answered("a lock can't be renewed", of_groups(self).renew_lock(lead, lease)).await
    }

    async fn release(&self, lead: &Term) -> Result<bool, BrokerError> {
        answered("a lock can't be released", of_groups(self).release_lock(lead)).await
    }

    async fn holder(&self, name: &Name) -> Result<Option<Term>, BrokerError> {
        let store = of_groups(self);
        let holder = answered("the holder of a lock can't be read", store.lock_holder(name)).await?;
        Ok(holder.map(|(owner, term)| Term { name: name.clone(), owner, term }))
    }
}
