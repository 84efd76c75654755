//! How many events a filter selects that asks for a handler and one tag at most: from one index,
//! without a look at any event.

use uuid::Uuid;

use super::list::Position;
use crate::event::{CanvasId, EventFilter, EventId, Name, Timestamp};
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

/// A query for a [`CountedRow`]: of the up to `$2` entries of an index that a source reads. The
/// last handler is looked up first, as for the list.
macro_rules! counted_row {
    ($source:literal, $($argument:tt)*) => {
        sqlx::query_as!(
            CountedRow,
            r#"with module as (
                   select coalesce($3::text, (select module::text from wakeq.events_v2 where canvas_id = $1
                             and delay_until > '-infinity' order by canvas_id desc, module desc limit 1)) as last
               ), name as (
                   select coalesce($4::text, (select name::text from wakeq.events_v2 where canvas_id = $1
                             and module = (select last from module) and delay_until > '-infinity'
                           order by canvas_id desc, module desc, name desc limit 1)) as last
               ), looked as ("# + $source + r#"
               ), counted as (
                   select count(*) as looked_at, count(*) filter (where l.is_shown) as count from looked l
               )
               select c.count as "count!", c.looked_at as "looked_at!", l.module as "module?", l.name as "name?",
                      l.delay_until as "delay_until?", l.id as "id?"
                 from counted c left join lateral (
                      select * from looked order by module desc, name desc, delay_until desc, id desc limit 1) as l
                   on c.looked_at = $2"#,
            $($argument)*
        )
    };
}

impl Sql<'_> {
    pub(in crate::store) async fn count_by_index(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        copies: bool,
        after: Option<&Position>,
        look: i64,
    ) -> Result<CountedEvents, StoreError> {
        let row = match filter.tags.first() {
            Some(tag) => self.count_by_tag(canvas, filter, tag.as_str(), after, look).await?,
            None => self.count_by_handler(canvas, filter, copies, after, look).await?,
        };
        Ok(row.into_counted())
    }

    async fn count_by_handler(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        copies: bool,
        after: Option<&Position>,
        look: i64,
    ) -> Result<CountedRow, StoreError> {
        let (module, name) = filter.handler();
        let (module, name) = (module.as_ref().map(Name::as_str), name.as_ref().map(Name::as_str));
        let query = counted_row!(
            r#"
                   select e.module::text as module, e.name::text as name, e.delay_until, e.id,
                          $9 or e.queue is null or wakeq.is_shown(e.queue) as is_shown
                     from wakeq.events_v2 e where e.canvas_id = $1 and e.delay_until > '-infinity'
                      and (e.module, e.name, e.delay_until, e.id)
                          > ($5::text, $6::text, coalesce($7::timestamptz, '-infinity'), $8::uuid)
                      and (e.module, e.name) <= ((select last from module), (select last from name))
                    order by e.canvas_id, e.module, e.name, e.delay_until, e.id limit $2"#,
            canvas.0,
            look,
            module,
            name,
            after.map_or(module.unwrap_or_default(), |after| &after.module),
            after.map_or(name.unwrap_or_default(), |after| &after.name),
            after.map(|after| after.delay_until),
            after.map_or(Uuid::nil(), |after| after.id.0),
            copies
        );
        self.session().await?.one("count the events of a handler", query).await
    }

    /// No copy has tags.
    async fn count_by_tag(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        tag: &str,
        after: Option<&Position>,
        look: i64,
    ) -> Result<CountedRow, StoreError> {
        let (module, name) = filter.handler();
        let (module, name) = (module.as_ref().map(Name::as_str), name.as_ref().map(Name::as_str));
        let query = counted_row!(
            r#"
                   select t.module::text as module, t.name::text as name, t.delay_until, t.event_id as id,
                          true as is_shown
                     from wakeq.event_tags t where t.canvas_id = $1 and t.tag = $9::text
                      and (t.module, t.name, t.delay_until, t.event_id)
                          > ($5::text, $6::text, coalesce($7::timestamptz, '-infinity'), $8::uuid)
                      and (t.module, t.name) <= ((select last from module), (select last from name))
                    order by t.canvas_id, t.tag, t.module, t.name, t.delay_until, t.event_id limit $2"#,
            canvas.0,
            look,
            module,
            name,
            after.map_or(module.unwrap_or_default(), |after| &after.module),
            after.map_or(name.unwrap_or_default(), |after| &after.name),
            after.map(|after| after.delay_until),
            after.map_or(Uuid::nil(), |after| after.id.0),
            tag
        );
        self.session().await?.one("count tagged events", query).await
    }
}

struct CountedRow {
    count: i64,
    looked_at: i64,
    module: Option<String>,
    name: Option<String>,
    delay_until: Option<Timestamp>,
    id: Option<Uuid>,
}

impl CountedRow {
    fn into_counted(self) -> CountedEvents {
        let last = self.module.zip(self.name).zip(self.delay_until.zip(self.id));
        CountedEvents {
            count: self.count.unsigned_abs(),
            looked_at: self.looked_at.unsigned_abs(),
            last: last.map(|((module, name), (delay_until, id))| Position {
                module,
                name,
                delay_until,
                id: EventId(id),
                prev: None,
            }),
        }
    }
}
