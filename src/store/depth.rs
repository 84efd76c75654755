//! How much is due and free to run, at a cost that does not grow with what waits.

use super::session::interval;
use super::{Store, StoreError};
use crate::event::{CanvasId, HandlerScope, Timestamp};

/// Most free events that one look counts, and most due ones that it reads of one handler.
const LOOK_MAX: i64 = 10_000;
/// Most handlers that one look visits.
const HANDLERS_MAX: i64 = 10_000;

/// What is due and free to run: what a scaler should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Events that are due, on no worker, under no rule, and whose turn it is among those of their object. One whose worker's
    /// lease ran out counts.
    pub depth: u64,
    /// Whether there may be more: at most 10,000 events are counted, of at most 10,000 handlers, and of each handler at
    /// most 10,000 due ones are looked at.
    pub capped: bool,
    /// Since when the oldest of them has been due.
    pub oldest_due: Option<Timestamp>,
    /// The database's clock.
    pub now: Timestamp,
}

impl Store {
    /// Counts what is due and free to run, of a canvas or of one handler. Handlers are found by skipping through the
    /// index from one to the next; the events of one under a rule, and those that are not due, are not read. Running ones
    /// are read and left out, so that those of one handler do not hide what another has; the last that may be read of a
    /// handler is found in any case, and says that there may be more.
    ///
    /// Which handlers are under a rule is settled before any event is read, whatever the planner thinks of it. What it
    /// can't help to read are the index entries of deleted rows that an old transaction keeps from being cleaned up.
    pub(crate) async fn depth(
        &self,
        canvas: CanvasId,
        scope: Option<&HandlerScope>,
    ) -> Result<Depth, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query!(
            r#"with recursive handlers as (
                   select $2::text as module, $3::text as name where $2 is not null
                    union all
                   (select module::text, name::text from wakeq.events_v2 where $2 is null and canvas_id = $1
                     order by canvas_id, module, name limit 1)
                    union all
                   select next.module, next.name from handlers h, lateral (
                       select e.module::text, e.name::text from wakeq.events_v2 e
                        where $2 is null and e.canvas_id = $1 and (e.module, e.name) > (h.module, h.name)
                        order by e.canvas_id, e.module, e.name limit 1) as next
               ), visited as (
                   select module, name from handlers limit $5
               ), unruled as materialized (
                   select module, name from visited h
                    where not exists (
                        select from wakeq.scheduling_rules r
                         where r.canvas_id = $1 and r.event_space = h.module and r.handler_name = h.name
                           and (r.until is null or r.until > now()))
               ), found as (
                   select due.delay_until, due.free, due.number from unruled h, lateral (
                       select e.delay_until,
                              (e.locked_at is null or e.locked_at < now() - $4::interval)
                              and (e.object is null or (
                                  e.seq = (select first.seq from wakeq.events_v2 first
                                            where first.canvas_id = e.canvas_id and first.object = e.object
                                              and first.module = e.module and first.name = e.name
                                            order by first.seq limit 1)
                                  and (select true from wakeq.halted_lanes l
                                        where l.canvas_id = e.canvas_id and l.object = e.object
                                          and l.module = e.module and l.name = e.name) is null)) as free,
                              row_number() over (order by e.delay_until) as number
                         from wakeq.events_v2 e
                        where e.canvas_id = $1 and e.module = h.module and e.name = h.name and e.delay_until <= now()
                        order by e.delay_until limit $6) as due
                    where due.free or due.number = $6
                    limit $6
               )
               select count(*) filter (where free) as "depth!", min(delay_until) filter (where free) as oldest_due,
                      count(*) >= $6 or coalesce(max(number), 0) >= $6 or (select count(*) from visited) >= $5 as "capped!",
                      now() as "now!"
                 from found"#,
            canvas.0,
            scope.map(|scope| scope.module.as_str()),
            scope.map(|scope| scope.name.as_str()),
            interval(self.timing().lease),
            HANDLERS_MAX,
            LOOK_MAX
        );
        let row = session.limit(|connection| query.fetch_one(connection)).await;
        let row = session.answered("count what is free to run", row)?;
        let depth = row.depth.cast_unsigned();
        Ok(Depth { depth, capped: row.capped, oldest_due: row.oldest_due, now: row.now })
    }
}
