//! Groups that a single process works on: which one has them, for as long as it is heard of.

use std::time::Duration;

use uuid::Uuid;

use crate::event::Name;
use crate::store::session::interval;
use crate::store::{Store, StoreError};

/// Whose a group is that a single process works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// The one that asked. What it does under a lower epoch than this is refused: somebody else has had its positions.
    Own { epoch: i64 },
    /// Another process works on it, alone or as a member of the group.
    Elsewhere,
}

impl Store {
    /// Takes a group for a process that is to work on it alone, or goes on with it. The first time, from whichever single process
    /// has it; later only when nobody is heard of that works on it.
    pub(crate) async fn claim_group(
        &self,
        group: &Name,
        owner: Uuid,
        lease: Duration,
        first: bool,
    ) -> Result<Claimed, StoreError> {
        let mut session = self.renewal_session().await?;
        let query = sqlx::query_scalar!(
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
        let claimed = session.limit(|connection| query.fetch_optional(connection)).await;
        let epoch = session.answered("claim a group", claimed)?;
        Ok(epoch.map_or(Claimed::Elsewhere, |epoch| Claimed::Own { epoch }))
    }

    /// Gives back all groups that a process has worked on alone.
    pub(crate) async fn release_groups(&self, owner: Uuid) -> Result<(), StoreError> {
        let mut session = self.renewal_session().await?;
        let query = sqlx::query!("delete from wakeq.single_groups where owner = $1", owner);
        let released = session.limit(|connection| query.execute(connection)).await;
        session.answered("release groups", released).map(drop)
    }
}
