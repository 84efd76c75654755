//! The handlers of a canvas that anything is known of, page by page: found by skipping through the
//! indexes from one to the next, so that a page costs the same however many events there are.

use crate::event::{CanvasId, HandlerScope, Name};
use crate::store::kernel::{Store, StoreError, address};

/// Where a page of handlers ended: the last module and name.
pub(crate) type HandlerPosition = (Name, Name);

impl Store {
    /// The handlers of a canvas after a module and a name that have events, dead events, halted
    /// lanes, rules or targets, by module and name; at most `limit`. An empty text is before each
    /// module, or each name of one. Copies in queues count, also those that their queue does not
    /// show: such a handler has no counts.
    pub(crate) async fn handlers(
        &self,
        canvas: CanvasId,
        (after_module, after_name): (&str, &str),
        limit: i64,
    ) -> Result<Vec<HandlerScope>, StoreError> {
        let query = sqlx::query!(
            r#"with recursive found as (
                   select $2::text as module, $3::text as name, 0::bigint as number
                    union all
                   select next.module, next.name, f.number + 1 from found f, lateral (
                       select one.module, one.name from (
                           (select e.module::text as module, e.name::text as name from wakeq.events_v2 e
                             where e.canvas_id = $1 and (e.module, e.name) > (f.module, f.name) and e.delay_until > '-infinity'
                             order by e.canvas_id, e.module, e.name limit 1)
                            union all
                           (select d.module::text, d.name::text from wakeq.dead_events d
                             where d.canvas_id = $1 and (d.module, d.name) > (f.module, f.name) and d.module <> ''
                             order by d.canvas_id, d.module, d.name limit 1)
                            union all
                           (select h.module::text, h.name::text from wakeq.halted_lanes h
                             where h.canvas_id = $1 and (h.module, h.name) > (f.module, f.name) and h.module <> ''
                             order by h.canvas_id, h.module, h.name limit 1)
                            union all
                           (select r.event_space::text, r.handler_name::text from wakeq.scheduling_rules r
                             where r.canvas_id = $1 and (r.event_space, r.handler_name) > (f.module, f.name)
                               and r.event_space <> 'CANVAS' and (r.until is null or r.until > now())
                             order by r.canvas_id, r.event_space, r.handler_name limit 1)
                            union all
                           (select t.module::text, t.name::text from wakeq.http_targets t
                             where t.canvas_id = $1 and (t.module, t.name) > (f.module, f.name)
                             order by t.canvas_id, t.module, t.name limit 1)
                       ) as one order by one.module, one.name limit 1) as next
                    where f.number < $4
               )
               select module as "module!", name as "name!" from found where number > 0 order by number"#,
            canvas.0,
            after_module,
            after_name,
            limit
        );
        let rows = self.session().await?.all("list handlers", query).await?;
        let scopes = rows.into_iter().filter_map(|row| {
            address(canvas.0, &row.module, &row.name, "_").ok().map(|address| address.scope)
        });
        Ok(scopes.collect())
    }
}
