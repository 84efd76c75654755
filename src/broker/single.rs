//! A process that works on its groups alone: it has to know that no other one does. Of two the later one works; the other one waits
//! until nobody is heard of.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::Mutex;

use super::BrokerError;
use super::local::{Local, Standing};
use crate::event::{Name, NodeId};
use crate::store::{Claimed, Store};

/// What changes for a subscriber.
pub(super) enum Turn {
    /// Nothing.
    Stays,
    /// Its group is worked on elsewhere: it ends its work.
    Waits,
    /// It registers, so that it works under an epoch above all before.
    Begins,
}

/// The groups of a process that is alone.
pub(super) struct Single {
    store: Store,
    node: NodeId,
    /// Those that it has asked for before.
    asked: Mutex<BTreeSet<Name>>,
}

impl Single {
    pub(super) fn new(store: Store, node: NodeId) -> Self {
        Self { store, node, asked: Mutex::default() }
    }

    /// Says that the group of a subscriber is worked on here, unless it is elsewhere.
    pub(super) async fn claim(&self, local: &Local, lease: Duration) -> Result<Turn, BrokerError> {
        let group = local.subscriber.name();
        let mut asked = self.asked.lock().await;
        let claimed = self.store.claim_group(group, self.node.0, lease, !asked.contains(group)).await;
        let claimed = claimed.map_err(BrokerError::unavailable("a group can't be claimed"))?;
        asked.insert(group.clone());
        Ok(match (claimed, local.standing()) {
            (_, Standing::Lost { .. }) => Turn::Stays,
            (Claimed::Own { .. }, Standing::Waiting) => Turn::Begins,
            (Claimed::Own { epoch }, Standing::Registered)
                if local.works_under().is_some_and(|own| own < epoch) =>
            {
                Turn::Begins
            }
            (Claimed::Own { .. }, _) | (Claimed::Elsewhere, Standing::Waiting) => Turn::Stays,
            (Claimed::Elsewhere, _) => Turn::Waits,
        })
    }

    /// Lets others begin at once.
    pub(super) async fn leave(&self) -> Result<(), BrokerError> {
        let released = self.store.release_groups(self.node.0).await;
        released.map_err(BrokerError::unavailable("the groups of this process can't be given back"))
    }
}
