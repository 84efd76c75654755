//! The metrics of consumer groups: nodes, the coordinator's term, and the sources and the lag of
//! each group.

use std::collections::BTreeMap;
use wakeq::{Name, Store, StoreError};
use wakeq_streams::internals::StreamStore;
use wakeq_streams::internals::telemetry::{GroupGauge, GroupsGauge};

/// Queries them. `None` if there are no groups, and nothing keeps the log.
pub(super) async fn query(store: &Store) -> Result<Option<GroupsGauge>, StoreError> {
    let store = StreamStore::from(store);
    let positions = store.group_positions(None).await?;
    let nodes = store.nodes().await?.into_iter().filter(|node| !node.lapsed).count();
    let holders: Vec<(String, u64)> =
        store.log_holders().await?.into_iter().map(|holder| (holder.name, holder.behind)).collect();
    if positions.is_empty() && nodes == 0 && holders.is_empty() {
        return Ok(None);
    }
    let mut groups = BTreeMap::<Name, GroupGauge>::new();
    for (name, sources) in store.group_sources(None).await? {
        groups.entry(name).or_default().sources = count(sources.len());
    }
    for subscription in store.subscriptions(None).await? {
        groups.entry(subscription.group).or_default().owned += count(subscription.sources.len());
    }
    // A group that a process works on alone has no subscribers: its sources are those that it has
    // opened.
    for (name, _) in store.single_groups(None).await? {
        let opened = count(positions.iter().filter(|position| position.group == name).count());
        let group = groups.entry(name).or_default();
        (group.sources, group.owned) = (group.sources.max(opened), group.owned.max(opened));
    }
    let readable = store.log_horizon().await?.readable;
    for position in positions {
        let group = groups.entry(position.group).or_default();
        let lag = u64::try_from(readable.saturating_sub(position.position)).unwrap_or_default();
        group.lag = group.lag.max(lag);
    }
    let term = store.lock_holder(&Name::coordinator()).await?.map(|(_, term)| term.unsigned_abs());
    Ok(Some(GroupsGauge { nodes: count(nodes), term, groups: groups.into_iter().collect(), holders }))
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::Table;

    /// A pin of the log is shown even if nothing else is left of a group.
    #[tokio::test]
    async fn a_pin_without_a_group_is_shown() {
        let table = Table::new().await;
        assert!(query(&table.store).await.unwrap().is_none());
        table.fill_first_partition().await;
        table.pin("entities/former", 1).await;
        table.pin("entities/young", 5_000_000).await;
        let seen = query(&table.store).await.unwrap().expect("a pin holds the log");
        assert_eq!(seen.holders, [("pin entities/former".to_owned(), 5_000_000)]);
        assert_eq!((seen.nodes, seen.groups.len()), (0, 0));
        table.unpin().await;
        assert!(query(&table.store).await.unwrap().is_none());
    }

    /// A group that a process works on alone owns all of its sources; once the process is gone, it
    /// owns none.
    #[tokio::test]
    async fn a_single_process_owns_the_sources_it_opened() {
        let table = Table::new().await;
        let store = StreamStore::from(&table.store);
        for (group, source) in [("g", "log"), ("g", "category/a"), ("h", "log")] {
            let (group, source) = (group.parse().unwrap(), source.parse().unwrap());
            store.open_position(&group, &source, 1).await.unwrap().unwrap();
        }
        let owner = uuid::Uuid::now_v7();
        let group: Name = "g".parse().unwrap();
        store.claim_group(&group, owner, std::time::Duration::from_secs(600), true).await.unwrap();
        for owned in [2, 0] {
            let seen = query(&table.store).await.unwrap().unwrap();
            let shown: Vec<_> =
                seen.groups.iter().map(|(name, group)| (name.as_str(), group.sources, group.owned)).collect();
            assert_eq!(shown, [("g", owned, owned), ("h", 0, 0)]);
            store.release_groups(owner).await.unwrap();
        }
    }
}
