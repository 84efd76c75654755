//! Which handlers are registered over all canvases: those whose names metrics may show.

use crate::event::HandlerScope;
use crate::store::kernel::{Store, StoreError, address};

/// Maximum number of handlers with targets that one call reads of a canvas, and of pulled ones.
const OF_CANVAS_MAX: i32 = 100;
/// Maximum number that it reads altogether, of each kind.
const NAMED_MAX: i32 = 2_000;

impl Store {
    /// The handlers that have a target or are pulled, over all canvases: at most 100 of each kind
    /// of a canvas, and 2,000 altogether. They are found by skipping through the primary key from
    /// one to the next, whatever modifiers they have, and from the last of a canvas to the next
    /// canvas.
    #[doc(hidden)]
    pub async fn registered_handlers(&self) -> Result<Vec<HandlerScope>, StoreError> {
        let query = sqlx::query!(
            r#"with recursive targets as (
                   (select canvas_id, module::text, name::text, 1 as of_canvas, 1 as number from wakeq.http_targets
                     order by canvas_id, module, name limit 1)
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
                     order by canvas_id, module, name limit 1)
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
               select canvas_id as "canvas_id!", module as "module!", name as "name!" from targets
                union all
               select canvas_id, module, name from pulled"#,
            OF_CANVAS_MAX,
            NAMED_MAX
        );
        let rows = self.session().await?.all("list the handlers that are registered", query).await?;
        let scopes = rows
            .into_iter()
            .filter_map(|row| Some(address(row.canvas_id, &row.module, &row.name, "_").ok()?.scope));
        Ok(scopes.collect())
    }
}
