//! Outcomes of events that were sent to entities.

use uuid::Uuid;

use crate::event::{EntityId, EntityStatus};
use crate::store::Store;
use wakeq::machine::Link;
use wakeq::{CanvasId, EventId, Name, StoreError, Timestamp};

/// The status of an event that was sent to an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityEventStatus {
    /// Its id.
    pub event: EventId,
    /// Shared by everything that follows from one cause.
    pub correlation_id: Uuid,
    /// The entity that it was sent to.
    pub entity: EntityId,
    /// Its name.
    pub name: Name,
    /// Its link among the events of the entity.
    pub link: Link,
    /// Its status.
    pub status: EntityStatus,
    /// The entity's version including it, if it was stored.
    pub version: Option<i64>,
    /// Its result, as JSON.
    pub result: Option<String>,
    /// Why it was rejected or failed, or which event that follows from it is dead.
    pub error: Option<String>,
    /// The events that were emitted because of it.
    pub follow_ups: Vec<EventId>,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// When it was processed, rejected or failed.
    pub ended_at: Option<Timestamp>,
}

/// The record of an event that is sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedOutcome {
    /// Whether it is in the repository.
    pub(crate) stored: bool,
    pub(crate) version: Option<i64>,
    pub(crate) result: Option<String>,
    pub(crate) error: Option<String>,
    /// The `seq` of the first event left in the entity's inbox. Events that were sent before that
    /// were erased.
    pub(crate) first: i64,
}

impl Store {
    /// The events of the canvas with this id, or this correlation id, in the order in which they
    /// were sent: those after this link, at most `limit`. A `union` would ask for ids in their
    /// order: that of the primary key, which Postgres 17 then reads for all of the canvas.
    pub(crate) async fn entity_events(
        &self,
        canvas: CanvasId,
        id: Uuid,
        after: i64,
        limit: i64,
    ) -> Result<Vec<EntityEventStatus>, StoreError> {
        let query = sqlx::query!(
            r#"select e.event_id, e.correlation_id, e.entity_type::text as "entity_type!", e.entity::text as "entity!",
                      e.name::text as "name!", e.link_id, e.link_prev, e.status, e.version, e.result::text as result,
                      e.error, e.follow_ups, e.sent_at, e.ended_at,
                      exists (select from unnest(e.follow_ups) as f (id) cross join lateral (
                                  select from wakeq.events_v2 w
                                   where w.canvas_id = e.canvas_id and w.id = f.id offset 0) as w) as "open!",
                      array(select d.id from unnest(e.follow_ups) as f (id) cross join lateral (
                                select d.id from wakeq.dead_events d
                                 where d.canvas_id = e.canvas_id and d.id = f.id offset 0) as d) as "dead!"
                 from (select event_id from (
                              select event_id, link_id from wakeq.entity_events
                               where canvas_id = $1 and event_id = $2 offset 0) as named
                        where link_id > $4
                        union all
                       select event_id from wakeq.correlated_events($1, $2, $4, $3) as other (event_id)) as found
                cross join lateral (
                      select * from wakeq.entity_events e where e.canvas_id = $1 and e.event_id = found.event_id offset 0) as e
                order by e.link_id limit $3"#,
            canvas.0,
            id,
            limit,
            after
        );
        let rows = self.session().await?.all("read the outcomes of events", query).await?;
        let shown = rows.into_iter().filter_map(|row| {
            let status = status(&row.status, row.open, !row.dead.is_empty());
            let died = row.dead.first().map(|dead| format!("the event {dead} that follows from it is dead"));
            Some(EntityEventStatus {
                event: EventId(row.event_id),
                correlation_id: row.correlation_id,
                entity: EntityId::new(canvas, &row.entity_type, &row.entity).ok()?,
                name: row.name.parse().ok()?,
                link: Link { id: row.link_id, prev: row.link_prev },
                status,
                version: row.version,
                result: row.result,
                error: row.error.or(died),
                follow_ups: row.follow_ups.into_iter().map(EventId).collect(),
                sent_at: row.sent_at,
                ended_at: row.ended_at,
            })
        });
        Ok(shown.collect())
    }

    /// The record of an event that is sent again with this link, from its row or, if that was
    /// deleted, from the repository.
    pub(crate) async fn entity_recorded(
        &self,
        entity: &EntityId,
        event: EventId,
        link: Link,
    ) -> Result<RecordedOutcome, StoreError> {
        let first = self.first_in_inbox(entity).await?;
        let query = sqlx::query!(
            r#"select status, version, result::text as result, error from wakeq.entity_events
                where canvas_id = $1 and event_id = $2 and status <> 'accepted'"#,
            entity.canvas.0,
            event.0
        );
        if let Some(row) =
            self.session().await?.optional("look for an event that is sent again", query).await?
        {
            let stored = row.status == "processed";
            return Ok(RecordedOutcome {
                stored,
                version: row.version,
                result: row.result,
                error: row.error,
                first,
            });
        }
        let stored = self.is_in_repository(entity, event, link).await?;
        Ok(RecordedOutcome { stored, version: None, result: None, error: None, first })
    }

    /// Whether the event with this link is in the repository. The links in a repository increase
    /// with its events, and an event's `seq` is above its link. So this is a binary search, which
    /// reads at most 64 rows, however many events the entity has.
    async fn is_in_repository(
        &self,
        entity: &EntityId,
        event: EventId,
        link: Link,
    ) -> Result<bool, StoreError> {
        // Ordered by a range of streams, which only one index offers: otherwise, where most of the
        // log is this entity's, the primary key of the log would be scanned.
        let query = sqlx::query_scalar!(
            r#"with recursive halved (after, through, last, link, id) as (
                   select $5::bigint, last_seq, last_seq, 0::bigint, null::uuid from wakeq.log_streams
                    where canvas_id = $1 and category = $2 and stream = $3
                    union all
                   select case when found.link < $5 then found.seq else halved.after end,
                          case when found.link < $5 then halved.through else middle.seq end, halved.last,
                          found.link, found.id
                     from halved
                    cross join lateral (select halved.after + (halved.through - halved.after) / 2 as seq) as middle
                     left join lateral (
                          select seq, id, coalesce(substring(metadata from '"link":\{"id":([0-9]{1,18}),')::bigint, 0) as link
                            from wakeq.log
                           where canvas_id = $1 and category = $2 and stream >= $3 and stream <= $3
                             and seq > middle.seq and seq <= halved.last
                           order by stream, seq limit 1) as found on true
                    where halved.after < halved.through and halved.link is distinct from $5
               )
               select exists (select from halved where link = $5 and id = $4) as "stored!""#,
            entity.canvas.0,
            entity.entity_type.repository().as_str() as _,
            entity.id.as_str() as _,
            event.0,
            link.id
        );
        self.session().await?.one("look for an event in the repository", query).await
    }

    /// The `seq` of the first event left in an entity's inbox; 0 if there is none.
    async fn first_in_inbox(&self, entity: &EntityId) -> Result<i64, StoreError> {
        let query = sqlx::query_scalar!(
            "select seq from wakeq.log where canvas_id = $1 and category = $2 and stream >= $3 and stream <= $3
              order by stream, seq limit 1",
            entity.canvas.0,
            entity.entity_type.inbox().as_str() as _,
            entity.id.as_str() as _
        );
        Ok(self.session().await?.optional("find where an inbox begins", query).await?.unwrap_or_default())
    }
}

fn status(written: &str, open: bool, died: bool) -> EntityStatus {
    match written {
        "accepted" => EntityStatus::Accepted,
        "processed" if died => EntityStatus::Failed,
        "processed" if open => EntityStatus::Processed,
        "processed" => EntityStatus::Completed,
        _ => EntityStatus::Failed,
    }
}
