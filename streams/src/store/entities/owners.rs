//! Owners of types: whether the last one ended in an orderly way, and the event that is processed
//! on its own if it did not.

use crate::event::EntityType;
use crate::store::Store;
use wakeq::StoreError;

impl Store {
    /// Notes that a type is owned under this epoch; returns whether the owner before was lost.
    pub(crate) async fn own_entities(
        &self,
        entity_type: &EntityType,
        epoch: i64,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with before as (
                   select is_open and epoch < $2 as was_lost from wakeq.entity_owners where entity_type = $1
               ), owned as (
                   insert into wakeq.entity_owners as o (entity_type, epoch) values ($1, $2)
                       on conflict (entity_type) do update set epoch = excluded.epoch, is_open = true
                    where o.epoch <= excluded.epoch
               )
               select coalesce((select was_lost from before), false) as "lost!""#,
            entity_type.as_str() as _,
            epoch
        );
        self.session().await?.one("record the owner of an entity type", query).await
    }

    /// Notes that the owner under this epoch ended in an orderly way.
    pub(crate) async fn leave_entities(
        &self,
        entity_type: &EntityType,
        epoch: i64,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "update wakeq.entity_owners set is_open = false where entity_type = $1 and epoch = $2",
            entity_type.as_str() as _,
            epoch
        );
        self.session().await?.execute("record that an entity type has no owner", query).await.map(drop)
    }

    /// Notes that an event is being processed on its own. Returns the number of such attempts that
    /// have had no outcome, this one included; `None` under another epoch than the owner's.
    pub(crate) async fn suspect_entity_event(
        &self,
        entity_type: &EntityType,
        epoch: i64,
        seq: i64,
    ) -> Result<Option<i32>, StoreError> {
        let query = sqlx::query_scalar!(
            "update wakeq.entity_owners
                set losses = case when suspect = $3 then losses + 1 else 1 end, suspect = $3
              where entity_type = $1 and epoch = $2
          returning losses",
            entity_type.as_str() as _,
            epoch,
            seq
        );
        self.session().await?.optional("count an attempt on an entity's event", query).await
    }

    /// Uncounts the attempt: the event was not the reason why it had no outcome.
    pub(crate) async fn uncount_attempt(
        &self,
        entity_type: &EntityType,
        epoch: i64,
        seq: i64,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "update wakeq.entity_owners set losses = greatest(losses - 1, 0)
              where entity_type = $1 and epoch = $2 and suspect = $3",
            entity_type.as_str() as _,
            epoch,
            seq
        );
        self.session().await?.execute("uncount an attempt on an entity's event", query).await.map(drop)
    }
}
