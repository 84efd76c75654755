//! Isolated entities: an event of each held up its processor, or crashed it, so what is sent to
//! them is processed separately from the rest of their type. The caller decides when an entity is
//! isolated and when it is taken back.
//!
//! Only the owner of the type writes here, under its epoch.

use crate::event::{EntityId, EntityType, IsolatedEntity};
use crate::store::Store;
use crate::store::positions::PositionMove;
use wakeq::{CanvasId, StoreError};

impl Store {
    /// The isolated entities of a type, longest first; at most 32.
    pub(crate) async fn isolated_entities(
        &self,
        entity_type: &EntityType,
    ) -> Result<Vec<IsolatedEntity>, StoreError> {
        let query = sqlx::query!(
            r#"select canvas_id, id::text as "id!", after, alone from wakeq.entity_asides
                where entity_type = $1 order by set_aside_at, canvas_id, id limit 32"#,
            entity_type.as_str() as _
        );
        let rows = self.session().await?.all("read which entities are isolated", query).await?;
        let isolated = |canvas, id: String, after, single_through| {
            Some(IsolatedEntity { canvas: CanvasId(canvas), id: id.parse().ok()?, after, single_through })
        };
        Ok(rows.into_iter().filter_map(|row| isolated(row.canvas_id, row.id, row.after, row.alone)).collect())
    }

    /// Isolates an entity at the current position, because of an event with which this many owners
    /// were lost. Returns whether the position is still there under that epoch. An entity that is
    /// already isolated stays as it is.
    pub(crate) async fn isolate_entity(
        &self,
        held: &PositionMove<'_>,
        entity: &EntityId,
        single_through: i64,
        (suspect, losses): (i64, u32),
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with own as materialized (
                   select position from wakeq.consumer_positions
                    where consumer_group = $1 and source = $2 and epoch = $3 and position = $4 for share
               ), aside as (
                   insert into wakeq.entity_asides (entity_type, canvas_id, id, after, alone, suspect, losses)
                   select $5, $6, $7, position, $8, $9, $10 from own
                       on conflict (entity_type, canvas_id, id) do nothing
               )
               select exists (select from own) as "own!""#,
            held.group.as_str() as _,
            held.source.to_string(),
            held.epoch,
            held.from,
            entity.entity_type.as_str() as _,
            entity.canvas.0,
            entity.id.as_str() as _,
            single_through,
            suspect,
            i32::try_from(losses).unwrap_or(i32::MAX)
        );
        self.session().await?.one("isolate an entity", query).await
    }

    /// Notes that an event of an isolated entity is being processed on its own. Returns the number
    /// of such attempts that have had no outcome, this one included; `None` if the entity is not
    /// isolated, or under another epoch than the owner's.
    pub(crate) async fn suspect_isolated(
        &self,
        entity: &EntityId,
        epoch: i64,
        seq: i64,
    ) -> Result<Option<u32>, StoreError> {
        let query = sqlx::query_scalar!(
            "update wakeq.entity_asides
                set losses = case when suspect = $4 then losses + 1 else 1 end, suspect = $4
              where entity_type = $1 and canvas_id = $2 and id = $3
                and exists (select from wakeq.entity_owners where entity_type = $1 and epoch = $5)
          returning losses",
            entity.entity_type.as_str() as _,
            entity.canvas.0,
            entity.id.as_str() as _,
            seq,
            epoch
        );
        let what = "count an attempt on an event of an isolated entity";
        let losses = self.session().await?.optional(what, query).await?;
        Ok(losses.map(i32::unsigned_abs))
    }

    /// Uncounts the attempt: the event was not the reason why it had no outcome.
    pub(crate) async fn uncount_isolated_attempt(
        &self,
        entity: &EntityId,
        epoch: i64,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "update wakeq.entity_asides set losses = greatest(losses - 1, 0)
              where entity_type = $1 and canvas_id = $2 and id = $3
                and exists (select from wakeq.entity_owners where entity_type = $1 and epoch = $4)",
            entity.entity_type.as_str() as _,
            entity.canvas.0,
            entity.id.as_str() as _,
            epoch
        );
        self.session()
            .await?
            .execute("uncount an attempt on an event of an isolated entity", query)
            .await
            .map(drop)
    }

    /// Takes an entity back, if everything that was sent to it up to the position is done; returns
    /// whether it did.
    pub(crate) async fn take_entity_back(
        &self,
        held: &PositionMove<'_>,
        entity: &EntityId,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with own as materialized (
                   select position from wakeq.consumer_positions
                    where consumer_group = $1 and source = $2 and epoch = $3 and position = $4 for share
               )
               delete from wakeq.entity_asides a using own
                where a.entity_type = $5 and a.canvas_id = $6 and a.id = $7
                  and not exists (select from wakeq.log l
                                   where l.canvas_id = $6 and l.category = $8 and l.stream = $7 and l.seq > a.after
                                     and l.seq <= own.position)
            returning true as "back!""#,
            held.group.as_str() as _,
            held.source.to_string(),
            held.epoch,
            held.from,
            entity.entity_type.as_str() as _,
            entity.canvas.0,
            entity.id.as_str() as _,
            entity.entity_type.inbox().as_str() as _
        );
        Ok(self.session().await?.optional("end the isolation of an entity", query).await?.is_some())
    }
}
