//! A process that works on its groups alone has to make sure that no other one does. Of two such
//! processes the later one works; the other one waits until no other process works on the group.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::Mutex;

use super::BrokerError;
use super::local::{Local, Membership};
use crate::event::NodeId;
use crate::store::{GroupClaim, Store};
use wakeq::Name;

/// The effect of a claim of its group on a subscriber.
pub(super) enum ClaimOutcome {
    /// Nothing.
    Stays,
    /// Another process works on its group: it ends its work.
    Waits,
    /// It registers again, so that it works under an epoch above all previous ones.
    Begins,
}

/// The groups of a process that works alone.
pub(super) struct Single {
    store: Store,
    node: NodeId,
    /// The groups that it has claimed before: only its first claim takes a group from another
    /// process.
    asked: Mutex<BTreeSet<Name>>,
}

impl Single {
    pub(super) fn new(store: Store, node: NodeId) -> Self {
        Self { store, node, asked: Mutex::default() }
    }

    /// Claims the group of a subscriber for this process, unless another one works on it.
    pub(super) async fn claim(&self, local: &Local, lease: Duration) -> Result<ClaimOutcome, BrokerError> {
        let group = local.subscriber.name();
        let mut asked = self.asked.lock().await;
        let claimed = self.store.claim_group(group, self.node.0, lease, !asked.contains(group)).await;
        let claimed = claimed.map_err(BrokerError::unavailable("a group can't be claimed"))?;
        asked.insert(group.clone());
        Ok(match (claimed, local.membership()) {
            (_, Membership::Lost { .. }) => ClaimOutcome::Stays,
            (GroupClaim::Own { .. }, Membership::Waiting) => ClaimOutcome::Begins,
            (GroupClaim::Own { epoch }, Membership::Registered)
                if local.works_under().is_some_and(|own| own < epoch) =>
            {
                ClaimOutcome::Begins
            }
            (GroupClaim::Own { .. }, _) | (GroupClaim::Elsewhere, Membership::Waiting) => ClaimOutcome::Stays,
            (GroupClaim::Elsewhere, _) => ClaimOutcome::Waits,
        })
    }

    /// Releases its groups, so that other processes start at once.
    pub(super) async fn leave(&self) -> Result<(), BrokerError> {
        let released = self.store.release_groups(self.node.0).await;
        released.map_err(BrokerError::unavailable("the groups of this process can't be released"))
    }
}
