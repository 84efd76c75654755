//! Groups that a single process works on alone, and which process that is, while its lease stands.

use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::lock_group;
use crate::event::NodeId;
use crate::store::Store;
use wakeq::internals::interval;
use wakeq::{Name, StoreError};

/// Maximum number of groups that are listed.
const GROUPS_MAX: i64 = 100_000;

/// Which process has a group that is worked on alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupClaim {
    /// The caller. Its commits under a lower epoch than this are refused, because another process
    /// has had its positions.
    Own { epoch: i64 },
    /// Another process works on it, alone or as a member of the group.
    Elsewhere,
}

impl Store {
    /// Takes a group for a process that works on it alone, or renews its lease. With `first` it is
    /// taken from any other single process; otherwise only if no other live process works on it.
    /// Healthy members of the group keep it in any case.
    #[doc(hidden)]
    pub async fn claim_group(
        &self,
        group: &Name,
        owner: Uuid,
        lease: Duration,
        first: bool,
    ) -> Result<GroupClaim, StoreError> {
        if !first && let Some(epoch) = self.keep_group(group, owner, lease).await? {
            return Ok(GroupClaim::Own { epoch });
        }
        let mut session = self.session().await?.for_statements(2);
        let claimed = session.limit(|connection| claim(connection, group, owner, lease, first)).await;
        let epoch = session.answered("claim a group", claimed).await?;
        Ok(epoch.map_or(GroupClaim::Elsewhere, |epoch| GroupClaim::Own { epoch }))
    }

    /// Renews the lease of a group that is this process's and has not lapsed.
    async fn keep_group(
        &self,
        group: &Name,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Option<i64>, StoreError> {
        let query = sqlx::query_scalar!(
            r#"update wakeq.single_groups set expires_at = clock_timestamp() + $3::interval
                where consumer_group = $1::text and owner = $2 and expires_at >= clock_timestamp()
                  and not exists (select from wakeq.subscribers
                                   where subscriber_name = $1::text and unhealthy is null and expires_at >= clock_timestamp())
            returning (select coalesce(max(epoch), 0) from wakeq.consumer_positions where consumer_group = $1::text) as "epoch!""#,
            group.as_str(),
            owner,
            interval(lease)
        );
        self.renewal_session().await?.optional("renew the claim on a group", query).await
    }

    /// The live processes that work on groups alone, or on this group.
    #[doc(hidden)]
    pub async fn single_groups(&self, group: Option<&Name>) -> Result<Vec<(Name, NodeId)>, StoreError> {
        let query = sqlx::query!(
            r#"select consumer_group::text as "name!", owner from wakeq.single_groups
                where ($1::text is null or consumer_group = $1) and expires_at >= clock_timestamp()
                order by consumer_group limit $2"#,
            group.map(Name::as_str),
            GROUPS_MAX
        );
        let rows = self.session().await?.all("list the owners of single groups", query).await?;
        Ok(rows.into_iter().filter_map(|row| Some((row.name.parse().ok()?, NodeId(row.owner)))).collect())
    }

    /// Releases all groups that a process has worked on alone.
    #[doc(hidden)]
    pub async fn release_groups(&self, owner: Uuid) -> Result<(), StoreError> {
        let query = sqlx::query!("delete from wakeq.single_groups where owner = $1", owner);
        self.renewal_session().await?.execute("release groups", query).await.map(drop)
    }
}

async fn claim(
    connection: &mut PgConnection,
    group: &Name,
    owner: Uuid,
    lease: Duration,
    first: bool,
) -> Result<Option<i64>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    lock_group(&mut transaction, group).await?;
    let claimed = sqlx::query_scalar!(
        r#"insert into wakeq.single_groups as s (consumer_group, owner, expires_at)
           select $1::text, $2::uuid, clock_timestamp() + $3::interval
            where not exists (select from wakeq.subscribers
                               where subscriber_name = $1::text and unhealthy is null and expires_at >= clock_timestamp())
               on conflict (consumer_group) do update set owner = excluded.owner, expires_at = excluded.expires_at
            where $4 or s.owner = excluded.owner or s.expires_at < clock_timestamp()
        returning (select coalesce(max(epoch), 0) from wakeq.consumer_positions where consumer_group = $1::text) as "epoch!""#,
        group.as_str(),
        owner,
        interval(lease),
        first
    );
    let epoch = claimed.fetch_optional(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(epoch)
}
