//! Nodes and their heartbeats.

use std::time::Duration;

use crate::event::{GroupNode, NodeId};
use crate::store::Store;
use wakeq::StoreError;
use wakeq::internals::interval;

/// Maximum number of nodes that are listed.
const NODES_MAX: i64 = 10_000;

impl Store {
    /// Writes a node's heartbeat: it counts as alive for this long.
    pub(crate) async fn beat_node(&self, node: NodeId, lease: Duration) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "insert into wakeq.nodes (node_id, heartbeat_timestamp, expires_at)
             values ($1, clock_timestamp(), clock_timestamp() + $2::interval)
             on conflict (node_id) do update
                set heartbeat_timestamp = excluded.heartbeat_timestamp, expires_at = excluded.expires_at",
            node.0,
            interval(lease)
        );
        self.session().await?.execute("write the heartbeat of a node", query).await.map(drop)
    }

    /// Removes a node that has shut down.
    pub(crate) async fn remove_node(&self, node: NodeId) -> Result<(), StoreError> {
        let query = sqlx::query!("delete from wakeq.nodes where node_id = $1", node.0);
        self.session().await?.execute("remove a node", query).await.map(drop)
    }

    /// All nodes that were not removed.
    #[doc(hidden)]
    pub async fn nodes(&self) -> Result<Vec<GroupNode>, StoreError> {
        let query = sqlx::query!(
            r#"select node_id, heartbeat_timestamp, expires_at < clock_timestamp() as "lapsed!"
                 from wakeq.nodes order by node_id limit $1"#,
            NODES_MAX
        );
        let rows = self.session().await?.all("list nodes", query).await?;
        let node = rows.into_iter().map(|row| GroupNode {
            id: NodeId(row.node_id),
            heartbeat_at: row.heartbeat_timestamp,
            lapsed: row.lapsed,
        });
        Ok(node.collect())
    }
}
