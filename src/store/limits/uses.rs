//! What is in use of limits, and what an event waits for. Only looks, without locks: what is shown
//! may have changed.

use crate::event::{CanvasId, EventId, HeldLimit, LimitName, LimitUse, LimitWait};
use crate::store::kernel::{Sql, Store, StoreError, interval};

impl Sql<'_> {
    pub(in crate::store) async fn limit_uses(
        &self,
        canvas: CanvasId,
        name: &LimitName,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<LimitUse>, StoreError> {
        let query = sqlx::query!(
            r#"select counted_canvas as "canvas!", counted_name as "name!", running as "running!", holders as "holders!",
                      waiting as "waiting!", case when next_start > clock_timestamp() then next_start end as next_start
                 from wakeq.limit_uses($1, $2, $3, $4, $5)"#,
            canvas.0,
            name.as_str(),
            after,
            limit.cast_signed(),
            interval(self.timing().lease)
        );
        let rows = self.session().await?.all("look at what is in use of a limit", query).await?;
        let uses = rows.into_iter().filter_map(|row| {
            Some(LimitUse {
                canvas: CanvasId(row.canvas),
                name: row.name.parse().ok()?,
                running: row.running.unsigned_abs(),
                holders: row.holders.into_iter().map(EventId).collect(),
                waiting: row.waiting.unsigned_abs(),
                next_start: row.next_start,
            })
        });
        Ok(uses.collect())
    }

    /// Of the holders only those of the canvas are named.
    pub(in crate::store) async fn waits_for(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<LimitWait>, StoreError> {
        let query = sqlx::query!(
            r#"select w.counted_canvas as "canvas!", w.counted_name as "name!", w.since as "since!",
                      case when coalesce(w.starts_at, w.next_start) > clock_timestamp()
                           then coalesce(w.starts_at, w.next_start) end as next, w.holders as "holders!"
                 from wakeq.wait_of($1, $2, $3) w"#,
            canvas.0,
            id.0,
            interval(self.timing().lease)
        );
        let row = self.session().await?.optional("look at what an event waits for", query).await?;
        Ok(row.and_then(|row| {
            Some(LimitWait {
                canvas: CanvasId(row.canvas),
                name: row.name.parse().ok()?,
                since: row.since,
                holders: row.holders.into_iter().map(EventId).collect(),
                next: row.next,
            })
        }))
    }
}

impl Store {
    /// The limits of an event of the canvas, under the names by which they are counted.
    pub(crate) async fn limits_of(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Vec<HeldLimit>, StoreError> {
        let query = sqlx::query!(
            r#"select l.counted_canvas as "canvas!", l.counted_name as "name!"
                 from wakeq.events_v2 e cross join lateral wakeq.limits_of(e.canvas_id, e.module, e.name, e.options) l
                where e.id = $2 and e.canvas_id = $1 and e.queue is null"#,
            canvas.0,
            id.0
        );
        let rows = self.session().await?.all("look for the limits of an event", query).await?;
        Ok(rows.into_iter().map(|row| HeldLimit { canvas: CanvasId(row.canvas), name: row.name }).collect())
    }
}
