//! The observer reads the sources that the subscribers of this node are given, and passes them on.
//! It writes nothing.

use std::sync::Arc;

use super::local::EventSubscriberStore;
use super::session::Session;
use super::{BrokerError, EventSubscriptionStateStore};
use crate::event::NodeId;

/// Every node has one, and all of them work at the same time.
pub(super) struct EventSubscriptionObserver {
    node: NodeId,
    subscriptions: Arc<dyn EventSubscriptionStateStore>,
    locals: Arc<EventSubscriberStore>,
    session: Arc<Session>,
}

impl EventSubscriptionObserver {
    pub(super) fn new(
        node: NodeId,
        subscriptions: Arc<dyn EventSubscriptionStateStore>,
        locals: Arc<EventSubscriberStore>,
        session: Arc<Session>,
    ) -> Self {
        Self { node, subscriptions, locals, session }
    }

    /// Looks once. Nothing is started outside the node's session: only what is read within it,
    /// after the heartbeat that began it, is certain to be this node's.
    pub(super) async fn observe(&self) -> Result<(), BrokerError> {
        let tickets: Vec<_> = self.locals.all().into_iter().map(|local| (local.ticket(), local)).collect();
        if !self.session.is_valid() || tickets.is_empty() {
            return Ok(());
        }
        let subscriptions = self.subscriptions.allocations_of(self.node).await?;
        for (ticket, local) in tickets {
            let own = subscriptions.iter().find(|one| one.subscriber == local.id());
            local.assign(ticket, own);
        }
        Ok(())
    }
}
