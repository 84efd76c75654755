//! Groups in Postgres.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::{
    BrokerError, EventSubscriberStateStore, EventSubscriptionSourceMappingStore, EventSubscriptionStateStore,
    LockManager, NodeHeartbeat,
};
use crate::event::{GroupNode, Lead, NewSubscription, NodeId, SubscriberId, SubscriberState, Subscription};
use crate::store::{self, RegisterOutcome};
use wakeq::log::EventSource;
use wakeq::{Name, Store};

/// Most bytes of a reason for being unhealthy.
const REASON_MAX: usize = 2_000;

/// The same store, with the statements of groups.
fn of_groups(store: &Store) -> store::Store {
    store::Store::from(store)
}

#[async_trait]
impl NodeHeartbeat for Store {
    async fn beat(&self, node: NodeId, lease: Duration) -> Result<(), BrokerError> {
        of_groups(self)
            .beat_node(node, lease)
            .await
            .map_err(BrokerError::unavailable("the heartbeat of the node can't be written"))
    }

    async fn leave(&self, node: NodeId) -> Result<(), BrokerError> {
        of_groups(self).remove_node(node).await.map_err(BrokerError::unavailable("the node can't be removed"))
    }

    async fn all_nodes(&self) -> Result<Vec<GroupNode>, BrokerError> {
        of_groups(self).nodes().await.map_err(BrokerError::unavailable("the nodes can't be read"))
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
        let registered = of_groups(self).register_subscriber(group, id, node, requests, lease).await;
        match registered.map_err(BrokerError::unavailable("a subscriber can't be registered"))? {
            RegisterOutcome::Done => Ok(()),
            RegisterOutcome::Differs { known, asked } => Err(BrokerError::differs(group, known, asked)),
        }
    }

    async fn record_heartbeats(
        &self,
        beats: &[(SubscriberId, i64)],
        lease: Duration,
    ) -> Result<Vec<SubscriberId>, BrokerError> {
        let live = of_groups(self).beat_subscribers(beats, lease).await;
        live.map_err(BrokerError::unavailable("the heartbeats of subscribers can't be written"))
    }

    async fn confirm(&self, id: SubscriberId, epoch: i64) -> Result<(), BrokerError> {
        let confirmed = of_groups(self).confirm_epoch(id, epoch).await;
        confirmed.map_err(BrokerError::unavailable(
            "the sources that a subscriber has released \
                                                    can't be confirmed",
        ))
    }

    async fn unhealthy(&self, id: SubscriberId, why: &str) -> Result<(), BrokerError> {
        let mut end = why.len().min(REASON_MAX);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        let why = why[..end].replace('\0', "");
        let set = of_groups(self).set_unhealthy(id, &why).await;
        set.map_err(BrokerError::unavailable("a subscriber can't be marked as unhealthy"))
    }

    async fn unregister(&self, ids: &[SubscriberId]) -> Result<(), BrokerError> {
        let removed = of_groups(self).remove_subscribers(ids).await;
        removed.map_err(BrokerError::unavailable("subscribers can't be removed"))
    }

    async fn states(&self) -> Result<Vec<SubscriberState>, BrokerError> {
        of_groups(self)
            .subscribers(None)
            .await
            .map_err(BrokerError::unavailable("the subscribers can't be read"))
    }
}

#[async_trait]
impl EventSubscriptionStateStore for Store {
    async fn remove_lapsed(&self, lead: &Lead) -> Result<Option<Vec<SubscriberId>>, BrokerError> {
        let removed = of_groups(self).remove_lapsed_subscribers(lead).await;
        removed.map_err(BrokerError::unavailable("lapsed subscribers can't be removed"))
    }

    async fn allocate(
        &self,
        lead: &Lead,
        new: &[NewSubscription],
    ) -> Result<Option<Vec<SubscriberId>>, BrokerError> {
        let written = of_groups(self).write_subscriptions(lead, new).await;
        written.map_err(BrokerError::unavailable("the sources of subscribers can't be written"))
    }

    async fn allocations(&self) -> Result<Vec<Subscription>, BrokerError> {
        let all = of_groups(self).subscriptions(None).await;
        all.map_err(BrokerError::unavailable("the sources of subscribers can't be read"))
    }

    async fn allocations_of(&self, node: NodeId) -> Result<Vec<Subscription>, BrokerError> {
        let of_node = of_groups(self).subscriptions_of(node).await;
        of_node.map_err(BrokerError::unavailable("the sources of this node can't be read"))
    }
}

#[async_trait]
impl EventSubscriptionSourceMappingStore for Store {
    async fn sources(&self) -> Result<Vec<(Name, Vec<EventSource>)>, BrokerError> {
        of_groups(self)
            .group_sources(None)
            .await
            .map_err(BrokerError::unavailable("the sources of groups can't be read"))
    }

    async fn opened(&self, group: &Name) -> Result<Vec<EventSource>, BrokerError> {
        let positions = of_groups(self).group_positions(Some(group)).await;
        let positions =
            positions.map_err(BrokerError::unavailable("the positions of a group can't be read"))?;
        Ok(positions.into_iter().map(|position| position.source).collect())
    }
}

#[async_trait]
impl LockManager for Store {
    async fn try_lock(&self, name: &Name, owner: Uuid, lease: Duration) -> Result<Option<Lead>, BrokerError> {
        let term = of_groups(self).take_lock(name, owner, lease).await;
        let term = term.map_err(BrokerError::unavailable("a lock can't be taken"))?;
        Ok(term.map(|term| Lead { name: name.clone(), owner, term }))
    }

    async fn renew(&self, lead: &Lead, lease: Duration) -> Result<bool, BrokerError> {
        let renewed = of_groups(self).renew_lock(&lead.name, lead.owner, lead.term, lease).await;
        renewed.map_err(BrokerError::unavailable("a lock can't be renewed"))
    }

    async fn release(&self, lead: &Lead) -> Result<bool, BrokerError> {
        let released = of_groups(self).release_lock(&lead.name, lead.owner, lead.term).await;
        released.map_err(BrokerError::unavailable("a lock can't be released"))
    }

    async fn holder(&self, name: &Name) -> Result<Option<Lead>, BrokerError> {
        let holder = of_groups(self).lock_holder(name).await;
        let holder = holder.map_err(BrokerError::unavailable("the holder of a lock can't be read"))?;
        Ok(holder.map(|(owner, term)| Lead { name: name.clone(), owner, term }))
    }
}
