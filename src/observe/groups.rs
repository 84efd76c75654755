//! What is shown of consumer groups: nodes, the coordinator's term, and of each group its sources and its lag.

use std::collections::BTreeMap;

use crate::event::Name;
use crate::store::{Store, StoreError};
use crate::telemetry::{GroupGauge, GroupsGauge};

/// Asks for them. A deployment without groups costs one statement.
pub(super) async fn look(store: &Store) -> Result<Option<GroupsGauge>, StoreError> {
    let positions = store.group_positions(None).await?;
    let nodes = store.nodes().await?.into_iter().filter(|node| !node.lapsed).count();
    if positions.is_empty() && nodes == 0 {
        return Ok(None);
    }
    let mut groups = BTreeMap::<Name, GroupGauge>::new();
    for (name, sources) in store.group_sources(None).await? {
        groups.entry(name).or_default().sources = count(sources.len());
    }
    for subscription in store.subscriptions(None).await? {
        groups.entry(subscription.group).or_default().owned += count(subscription.sources.len());
    }
    let readable = store.log_horizon().await?.readable;
    for position in positions {
        let group = groups.entry(position.group).or_default();
        let lag = u64::try_from(readable.saturating_sub(position.position)).unwrap_or_default();
        group.lag = group.lag.max(lag);
    }
    let term = store.lock_holder(&Name::coordinator()).await?.map(|(_, term)| term.unsigned_abs());
    let holders = store.log_holders().await?.into_iter().map(|holder| (holder.name, holder.behind)).collect();
    Ok(Some(GroupsGauge { nodes: count(nodes), term, groups: groups.into_iter().collect(), holders }))
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
