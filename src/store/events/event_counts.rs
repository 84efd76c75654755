//! How many events a filter selects that asks for a handler at most: from one index, without a look
//! at any event.

use uuid::Uuid;

use super::list::Position;
use crate::event::{CanvasId, EventFilter, EventId, Name};
use crate::store::kernel::{Sql, StoreError};

/// Events that were counted, up to a place in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CountedEvents {
    /// Those that may be shown.
    pub(crate) count: u64,
    pub(crate) looked_at: u64,
    /// The last one that was looked at, if there may be others.
    pub(crate) last: Option<Position>,
}

impl Sql<'_> {
    /// The last handler is looked up first, as for the list.
    pub(in crate::store) async fn count_by_handler(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        copies: bool,
        after: Option<&Position>,
        look: i64,
    ) -> Result<CountedEvents, StoreError> {
        let (module, name) = filter.handler();
        let (module, name) = (module.as_ref().map(Name::as_str), name.as_ref().map(Name::as_str));
        let query = sqlx::query!(
            r#"with module as (
                   select coalesce($4::text, (select module::text from wakeq.events_v2 where canvas_id = $1
                             and delay_until > '-infinity' order by canvas_id desc, module desc limit 1)) as last
               ), name as (
                   select coalesce($5::text, (select name::text from wakeq.events_v2 where canvas_id = $1
                             and module = (select last from module) and delay_until > '-infinity'
                           order by canvas_id desc, module desc, name desc limit 1)) as last
               ), looked as (
                   select e.module::text as module, e.name::text as name, e.delay_until, e.id, e.queue
                     from wakeq.events_v2 e where e.canvas_id = $1 and e.delay_until > '-infinity'
                      and (e.module, e.name, e.delay_until, e.id)
                          > ($6::text, $7::text, coalesce($8::timestamptz, '-infinity'), $9::uuid)
                      and (e.module, e.name) <= ((select last from module), (select last from name))
                    order by e.canvas_id, e.module, e.name, e.delay_until, e.id limit $2
               ), counted as (
                   select count(*) as looked_at,
                          count(*) filter (where $3 or l.queue is null or wakeq.is_shown(l.queue)) as count
                     from looked l
               )
               select c.count as "count!", c.looked_at as "looked_at!", l.module as "module?", l.name as "name?",
                      l.delay_until as "delay_until?", l.id as "id?"
                 from counted c left join lateral (
                      select * from looked order by module desc, name desc, delay_until desc, id desc limit 1) as l
                   on c.looked_at = $2"#,
            canvas.0,
            look,
            copies,
            module,
            name,
            after.map_or(module.unwrap_or_default(), |after| &after.module),
            after.map_or(name.unwrap_or_default(), |after| &after.name),
            after.map(|after| after.delay_until),
            after.map_or(Uuid::nil(), |after| after.id.0)
        );
        let row = self.session().await?.one("count listed events", query).await?;
        let place = row.module.zip(row.name).zip(row.delay_until.zip(row.id));
        Ok(CountedEvents {
            count: row.count.unsigned_abs(),
            looked_at: row.looked_at.unsigned_abs(),
            last: place.map(|((module, name), (delay_until, id))| Position {
                module,
                name,
                delay_until,
                id: EventId(id),
            }),
        })
    }
}
