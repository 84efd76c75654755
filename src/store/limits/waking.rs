//! Waking events that wait for a place of a limit.

use uuid::Uuid;

use crate::event::{CanvasId, EventId, HeldLimit, Notification};
use crate::store::kernel::{Sql, StoreError, interval};

/// Maximum number of limits of which the minute's pass learns at once that they have room.
const ROOM_PAGE: i32 = 500;
/// Maximum number of limits at which one statement wakes events.
const LIMITS_MAX: usize = 1000;

impl Sql<'_> {
    pub(in crate::store) async fn wake_waiting(
        &self,
        limits: &[HeldLimit],
        ended: &[EventId],
    ) -> Result<Vec<Notification>, StoreError> {
        let mut named: Vec<&HeldLimit> = limits.iter().collect();
        named.sort_unstable();
        named.dedup();
        let mut woken = Vec::new();
        for page in named.chunks(LIMITS_MAX) {
            woken.extend(self.wake_at(page, ended).await?);
        }
        Ok(woken)
    }

    async fn wake_at(
        &self,
        named: &[&HeldLimit],
        ended: &[EventId],
    ) -> Result<Vec<Notification>, StoreError> {
        let canvases: Vec<Uuid> = named.iter().map(|limit| limit.canvas.0).collect();
        let names: Vec<String> = named.iter().map(|limit| limit.name.clone()).collect();
        let ended: Vec<Uuid> = ended.iter().map(|id| id.0).collect();
        let query = sqlx::query!(
            r#"select w.id as "id!", w.canvas_id as "canvas_id!",
                      (e.options @> '{"urgent": true}') is true as "is_urgent!"
                 from wakeq.wake_waiting($1, $2, $3, $4, $5) w left join wakeq.events_v2 e on e.id = w.id"#,
            &canvases,
            &names,
            interval(self.timing().lease),
            interval(self.timing().grace),
            &ended
        );
        let rows = self.session().await?.all("wake what waits at limits", query).await?;
        let told = rows
            .into_iter()
            .map(|row| Notification::new(EventId(row.id), CanvasId(row.canvas_id)).urgent_if(row.is_urgent));
        Ok(told.collect())
    }

    pub(in crate::store) async fn limits_with_room(
        &self,
        only: Option<CanvasId>,
        after: Option<&HeldLimit>,
    ) -> Result<Vec<HeldLimit>, StoreError> {
        let query = sqlx::query!(
            r#"select canvas_id as "canvas_id!", name as "name!" from wakeq.limits_with_room($1, $2, $3, $4, $5)"#,
            interval(self.timing().lease),
            ROOM_PAGE,
            after.map(|limit| limit.canvas.0).or(only.map(|canvas| canvas.0)),
            after.map(|limit| limit.name.as_str()),
            only.map(|canvas| canvas.0)
        );
        let rows = self.session().await?.all("look for limits with room", query).await?;
        let limits =
            rows.into_iter().map(|row| HeldLimit { canvas: CanvasId(row.canvas_id), name: row.name });
        Ok(limits.collect())
    }
}
