//! The observer: looks at what the subscribers of this node are given, and lets them begin and end. It only reads.

use std::sync::Arc;

use super::local::EventSubscriberStore;
use super::session::Session;
use super::{BrokerError, EventSubscriptionStateStore};
use crate::event::NodeId;

/// One on each node; all at the same time.
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

    /// Looks once. Nothing is begun with outside the node's session: what is read in it, after the heartbeat that it began
    /// with, is this node's own.
    pub(super) async fn observe(&self) -> Result<(), BrokerError> {
        let tickets: Vec<_> = self.locals.all().into_iter().map(|local| (local.ticket(), local)).collect();
        if !self.session.is_valid() || tickets.is_empty() {
            return Ok(());
        }
        let subscriptions = self.subscriptions.allocations_of(self.node).await?;
        for (ticket, local) in tickets {
            let own = subscriptions.iter().find(|one| one.subscriber == local.id());
            local.give(ticket, own);
        }
        Ok(())
    }
}
