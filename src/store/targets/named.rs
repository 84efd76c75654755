//! Which handlers are registered over all canvases: those whose names metrics may show.

use crate::event::{CanvasId, HandlerScope};
use crate::store::kernel::{Store, StoreError, address};

/// Maximum number of handlers with targets that one call reads of a canvas, and of pulled ones.
const OF_CANVAS_MAX: i32 = 100;
/// Maximum number that it reads altogether, of each kind.
const NAMED_MAX: i32 = 2_000;

impl Store {
    /// The handlers that have a target or are pulled, of all canvases from this one on, and then of
    /// those before it: at most 100 of each kind of a canvas, and 2,000 altogether. Also returns
    /// the canvas from which the next call is to go on, so that each has its turn.
    #[doc(hidden)]
    pub async fn registered_handlers(
        &self,
        from: CanvasId,
    ) -> Result<(Vec<HandlerScope>, CanvasId), StoreError> {
        let (mut handlers, mut next) = self.registered_from(from).await?;
        if next.is_none() && from != CanvasId::DEFAULT {
            let (before, after) = self.registered_from(CanvasId::DEFAULT).await?;
            handlers.extend(before);
            next = after;
        }
        Ok((handlers, next.unwrap_or(CanvasId::DEFAULT)))
    }

    /// They are found by skipping through the primary key from one to the next, whatever modifiers
    /// they have, and from the last of a canvas to the next canvas. Also returns the canvas at
    /// which there were too many.
    async fn registered_from(
        &self,
        from: CanvasId,
    ) -> Result<(Vec<HandlerScope>, Option<CanvasId>), StoreError> {
        let query = sqlx::query!(
            r#"with recursive targets as (
                   (select canvas_id, module::text, name::text, 1 as of_canvas, 1 as number from wakeq.http_targets
                     where canvas_id >= $3 order by canvas_id, module, name limit 1)
                    union all
                   select next.canvas_id, next.module, next.name,
                          case when next.canvas_id = t.canvas_id then t.of_canvas + 1 else 1 end, t.number + 1
                     from targets t, lateral (
                       (select h.canvas_id, h.module::text, h.name::text from wakeq.http_targets h
                         where t.of_canvas < $1 and (h.canvas_id, h.module, h.name) > (t.canvas_id, t.module, t.name)
                         order by h.canvas_id, h.module, h.name limit 1)
                        union all
                       (select h.canvas_id, h.module::text, h.name::text from wakeq.http_targets h
                         where t.of_canvas >= $1 and h.canvas_id > t.canvas_id
                         order by h.canvas_id, h.module, h.name limit 1)) as next
                    where t.number < $2
               ), pulled as (
                   (select canvas_id, module::text, name::text, 1 as of_canvas, 1 as number from wakeq.pulled_handlers
                     where canvas_id >= $3 order by canvas_id, module, name limit 1)
                    union all
                   select next.canvas_id, next.module, next.name,
                          case when next.canvas_id = p.canvas_id then p.of_canvas + 1 else 1 end, p.number + 1
                     from pulled p, lateral (
                       (select h.canvas_id, h.module::text, h.name::text from wakeq.pulled_handlers h
                         where p.of_canvas < $1 and (h.canvas_id, h.module, h.name) > (p.canvas_id, p.module, p.name)
                         order by h.canvas_id, h.module, h.name limit 1)
                        union all
                       (select h.canvas_id, h.module::text, h.name::text from wakeq.pulled_handlers h
                         where p.of_canvas >= $1 and h.canvas_id > p.canvas_id
                         order by h.canvas_id, h.module, h.name limit 1)) as next
                    where p.number < $2
               )
               select canvas_id as "canvas_id!", module as "module!", name as "name!", number as "number!" from targets
                union all
               select canvas_id, module, name, number from pulled"#,
            OF_CANVAS_MAX,
            NAMED_MAX,
            from.0
        );
        let rows = self.session().await?.all("list the handlers that are registered", query).await?;
        let ends = rows.iter().filter(|row| row.number >= NAMED_MAX).map(|row| CanvasId(row.canvas_id));
        let next = ends.min();
        let scopes = rows
            .into_iter()
            .filter_map(|row| Some(address(row.canvas_id, &row.module, &row.name, "_").ok()?.scope));
        Ok((scopes.collect(), next))
    }
}
