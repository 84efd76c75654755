//! What operators do with groups: have them try again what failed, and remove what nobody works on any more.

use crate::event::{Actor, CanvasId, EventSource, Name};
use crate::store::{Store, StoreError};

/// What was removed of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemovedGroup {
    pub(crate) positions: u64,
    pub(crate) pins: u64,
}

impl Store {
    /// The members of a group are to try again what failed. It is recorded.
    pub(crate) async fn ask_recovery(&self, group: &Name, actor: &Actor) -> Result<(), StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query!(
            "with asked as (
                 insert into wakeq.group_recoveries as r (consumer_group) values ($1::text)
                     on conflict (consumer_group) do update set number = r.number + 1, asked_at = now()
                 returning number
             )
             insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
             select $2, $3, 'recover-group', 'done', $4, concat_ws('; ', $5::text, 'group ' || $1::text) from asked",
            group.as_str(),
            CanvasId::DEFAULT.0,
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        let asked = session.limit(|connection| query.execute(connection)).await;
        session.answered("ask for a recovery", asked).map(drop)
    }

    /// How often each of these groups was to try again.
    pub(crate) async fn recoveries(&self, groups: &[Name]) -> Result<Vec<(String, i64)>, StoreError> {
        let groups: Vec<String> = groups.iter().map(Name::to_string).collect();
        let mut session = self.renewal_session().await?;
        let query = sqlx::query!(
            r#"select consumer_group::text as "name!", number from wakeq.group_recoveries where consumer_group = any ($1::text[])"#,
            &groups
        );
        let rows = session.limit(|connection| query.fetch_all(connection)).await;
        let rows = session.answered("look for recoveries", rows)?;
        Ok(rows.into_iter().map(|row| (row.name, row.number)).collect())
    }

    /// Removes a group, or what it has in one source, and for a type of entities its pin: unless anybody works on it. It is recorded.
    pub(crate) async fn remove_group(
        &self,
        group: &Name,
        source: Option<&EventSource>,
        entity_type: Option<&str>,
        actor: &Actor,
    ) -> Result<Option<RemovedGroup>, StoreError> {
        let source = source.map(EventSource::to_string);
        let mut session = self.session().await?;
        let query = sqlx::query!(
            r#"with free as (
                   select where not exists (select from wakeq.single_groups
                                             where consumer_group = $1::text and expires_at >= clock_timestamp())
                            and ($2::text is not null
                                 or not exists (select from wakeq.subscribers
                                                 where subscriber_name = $1::text and expires_at >= clock_timestamp()))
               ), positions as (
                   delete from wakeq.consumer_positions
                    where consumer_group = $1::text and ($2::text is null or source = $2) and exists (select from free)
                returning source
               ), subscribers as (
                   delete from wakeq.subscribers where subscriber_name = $1::text and $2::text is null and exists (select from free)
               ), singles as (
                   delete from wakeq.single_groups where consumer_group = $1::text and $2::text is null and exists (select from free)
               ), recoveries as (
                   delete from wakeq.group_recoveries where consumer_group = $1::text and $2::text is null and exists (select from free)
               ), owners as (
                   delete from wakeq.entity_owners where entity_type = $3::text and $2::text is null and exists (select from free)
               ), asides as (
                   delete from wakeq.entity_asides where entity_type = $3::text and $2::text is null and exists (select from free)
               ), pins as (
                   delete from wakeq.log_pins
                    where name = 'entities/' || $3::text and $2::text is null and exists (select from free)
                returning name
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select $4, $5, 'remove-group', 'done', $6, concat_ws('; ', $7::text, 'group ' || $1::text, 'source ' || $2::text)
                     from free
               )
               select exists (select from free) as "free!", (select count(*) from positions) as "positions!",
                      (select count(*) from pins) as "pins!""#,
            group.as_str(),
            source,
            entity_type,
            CanvasId::DEFAULT.0,
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        let row = session.limit(|connection| query.fetch_one(connection)).await;
        let row = session.answered("remove a group", row)?;
        let count = |count: i64| count.unsigned_abs();
        Ok(row.free.then(|| RemovedGroup { positions: count(row.positions), pins: count(row.pins) }))
    }
}
