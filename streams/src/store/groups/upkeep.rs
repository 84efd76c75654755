//! Operators' actions on groups: retrying what failed, and removing what is no longer in use.

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::{lock_group, requests_of_others};
use crate::event::EntityType;
use crate::store::Store;
use wakeq::log::EventSource;
use wakeq::{Actor, Name, StoreError};

/// Maximum number of pins that are listed.
const PINS_MAX: i64 = 10_000;

/// The result of removing a group, or its position in a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoveGroup {
    /// How many positions were removed.
    pub positions: u64,
    /// How many pins of the log were removed.
    pub pins: u64,
}

impl Store {
    /// Asks the members of a group to retry what failed, and records that in the audit log.
    pub(crate) async fn ask_recovery(&self, group: &Name, actor: &Actor) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "with asked as (
                 insert into wakeq.consumer_groups as g (consumer_group, recoveries, asked_at) values ($1::text, 1, now())
                     on conflict (consumer_group) do update set recoveries = g.recoveries + 1, asked_at = now()
                 returning recoveries
             )
             insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
             select $2, $3, 'recover-group', 'done', $4, concat_ws('; ', $5::text, 'group ' || $1::text) from asked",
            group.as_str(),
            None::<Uuid>,
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        self.session().await?.execute("ask for a recovery", query).await.map(drop)
    }

    /// How often each of these groups was asked to retry.
    pub(crate) async fn recoveries(&self, groups: &[Name]) -> Result<Vec<(String, i64)>, StoreError> {
        let groups: Vec<String> = groups.iter().map(Name::to_string).collect();
        let query = sqlx::query!(
            r#"select consumer_group::text as "name!", recoveries from wakeq.consumer_groups
                where consumer_group = any ($1::text[]) and recoveries > 0"#,
            &groups
        );
        let rows = self.renewal_session().await?.all("look for recoveries", query).await?;
        Ok(rows.into_iter().map(|row| (row.name, row.recoveries)).collect())
    }

    /// Removes a group, with the pin if it is that of a type of entities, or only its position in
    /// one source; `None` if a process works on it. Records the removal in the audit log. A member
    /// that starts meanwhile is registered before, and then seen, or after.
    pub(crate) async fn remove_group(
        &self,
        group: &Name,
        source: Option<&EventSource>,
        entity_type: Option<&EntityType>,
        actor: &Actor,
    ) -> Result<Option<RemoveGroup>, StoreError> {
        let mut session = self.session().await?.for_statements(3);
        let removed = session.limit(|connection| remove(connection, group, source, entity_type, actor)).await;
        session.answered("remove a group", removed).await
    }

    /// The pins of the repositories of entities, or that of one type, by the names of their
    /// processors' groups, each with the `seq` up to which it keeps nothing.
    pub(crate) async fn repository_pins(&self, group: Option<&Name>) -> Result<Vec<(Name, i64)>, StoreError> {
        let query = sqlx::query!(
            r#"select 'entities.' || substr(name, 10) as "name!", seq from wakeq.log_pins
                where starts_with(name, 'entities/') and ($1::text is null or 'entities.' || substr(name, 10) = $1)
                order by name limit $2"#,
            group.map(Name::as_str),
            PINS_MAX
        );
        let rows = self.session().await?.all("list the pins of repositories", query).await?;
        Ok(rows.into_iter().filter_map(|row| Some((row.name.parse().ok()?, row.seq))).collect())
    }
}

async fn remove(
    connection: &mut PgConnection,
    group: &Name,
    source: Option<&EventSource>,
    entity_type: Option<&EntityType>,
    actor: &Actor,
) -> Result<Option<RemoveGroup>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    lock_group(&mut transaction, group).await?;
    if let Some(source) = source {
        let requests = requests_of_others(&mut transaction, group, None).await?;
        if requests.iter().any(|list| list.contains(source)) {
            transaction.rollback().await?;
            return Ok(None);
        }
    }
    let removal = sqlx::query!(
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
           ), groups as (
               delete from wakeq.consumer_groups where consumer_group = $1::text and $2::text is null and exists (select from free)
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
        source.map(EventSource::to_string),
        entity_type.map(EntityType::to_string),
        None::<Uuid>,
        actor.name(),
        actor.request_id(),
        actor.credential_id()
    );
    let row = removal.fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    let count = |count: i64| count.unsigned_abs();
    Ok(row.free.then(|| RemoveGroup { positions: count(row.positions), pins: count(row.pins) }))
}
