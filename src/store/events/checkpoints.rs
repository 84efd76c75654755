//! Checkpoints: what an attempt leaves to the next attempt of its event.
//!
//! Nothing here is asked for an event whose handler neither stores nor reads one. A checkpoint that
//! was stored before its event was emitted belonged to an earlier event with the same id.

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::transactional::is_lost;
use crate::event::{CanvasId, Checkpoint, Claim, EventId};
use crate::store::kernel::{Sql, StoreError};

impl Sql<'_> {
    /// The row of the event is locked, so that no other attempt begins before this is committed.
    pub(in crate::store) async fn store_checkpoint(
        &self,
        canvas: CanvasId,
        claim: Claim,
        json: &str,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "with held as (
                 select canvas_id, id, claims from wakeq.events_v2
                  where id = $1 and canvas_id = $2 and claims::bigint << 32 | nonce = $3 and locked_at is not null
                    for no key update
             )
             insert into wakeq.checkpoints (canvas_id, event_id, claims, value)
             select canvas_id, id, claims, $4 from held
                 on conflict (canvas_id, event_id)
                 do update set claims = excluded.claims, value = excluded.value, stored_at = excluded.stored_at",
            claim.id.0,
            canvas.0,
            claim.fence(),
            json
        );
        Ok(self.session().await?.execute("store a checkpoint", query).await?.rows_affected() > 0)
    }

    pub(in crate::store) async fn checkpoints(
        &self,
        events: &[(CanvasId, EventId)],
    ) -> Result<Vec<(EventId, Checkpoint)>, StoreError> {
        let (canvases, ids): (Vec<Uuid>, Vec<Uuid>) =
            events.iter().map(|(canvas, id)| (canvas.0, id.0)).unzip();
        let query = sqlx::query!(
            r#"select c.event_id as "id!", c.value as "value!", c.stored_at as "stored_at!"
                 from unnest($1::uuid[], $2::uuid[]) as asked (canvas_id, event_id)
                cross join lateral (
                      select x.event_id, x.value, x.stored_at from wakeq.checkpoints x
                       where x.canvas_id = asked.canvas_id and x.event_id = asked.event_id offset 0) as c
                where exists (select from wakeq.events_v2 e
                               where e.id = asked.event_id and e.canvas_id = asked.canvas_id
                                 and e.enqueued_at <= c.stored_at offset 0)
                   or exists (select from wakeq.dead_events d
                               where d.canvas_id = asked.canvas_id and d.id = asked.event_id
                                 and d.enqueued_at <= c.stored_at offset 0)"#,
            &canvases,
            &ids
        );
        let rows = self.session().await?.all("read checkpoints", query).await?;
        Ok(rows.into_iter().map(|row| (EventId(row.id), Checkpoint::new(row.value, row.stored_at))).collect())
    }

    pub(in crate::store) async fn drop_checkpoint(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.checkpoints c
              where c.canvas_id = $1 and c.event_id = $2
                and not exists (select from wakeq.events_v2 e where e.id = $2 and e.canvas_id = $1 offset 0)",
            canvas.0,
            id.0
        );
        self.session().await?.execute("delete a checkpoint", query).await.map(drop)
    }
}

/// Stores a checkpoint on its handler's connection; whether the claim stood.
pub(crate) async fn checkpoint_in(
    connection: &mut PgConnection,
    claim: Claim,
    json: &str,
) -> Result<bool, StoreError> {
    let query = sqlx::query!("select wakeq.checkpoint($1, $2, $3)", claim.id.0, claim.token(), json);
    match query.execute(connection).await {
        Ok(_) => Ok(true),
        Err(error) if is_lost(&error) => Ok(false),
        Err(error) => Err(StoreError::from_sqlx("store a checkpoint in a transaction", error)),
    }
}
