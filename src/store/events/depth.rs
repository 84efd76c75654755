//! How many events are due and free to run, at a cost that does not grow with the backlog.

use std::time::Duration;

use crate::event::{CanvasId, HandlerScope, Timestamp};
use crate::store::kernel::{Store, StoreError, address, interval};

/// Maximum number of free events that one call counts, and of due ones that it reads of one
/// handler.
const LOOK_MAX: i64 = 10_000;
/// Maximum number of handlers that one call visits.
const HANDLERS_MAX: i64 = 10_000;

/// Limits of the gauges over all canvases: most handlers visited; due events read altogether,
/// unless there are many handlers; due events read of each handler at least.
const GAUGED_MAX: i32 = 1_000;
const GAUGED_ROWS: i64 = 20_000;
const GAUGED_LEAST: i64 = 100;

/// The events that are due and free to run, which are the input of an autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// Events that are due, on no worker, under no rule, not waiting for a limit, and first among
    /// those of their object. An event whose worker's lease expired counts, and so does one that a
    /// limit has let come, until a worker takes it.
    pub depth: u64,
    /// Whether there may be more than was counted.
    pub capped: bool,
    /// Since when the oldest of them has been due.
    pub oldest_due: Option<Timestamp>,
    /// The database's clock.
    pub now: Timestamp,
}

impl Depth {
    /// For how long the oldest event has been due.
    pub fn oldest_age(&self) -> Option<Duration> {
        self.oldest_due.map(|due| (self.now - due).to_std().unwrap_or_default())
    }
}

impl Store {
    /// Counts the events that are due and free to run, of a canvas or of one handler; copies in
    /// queues are counted with their queue ([`Store::queue_depths`]). Handlers are found by
    /// skipping through the index from one to the next; events that are not due, or whose handler
    /// is under a rule, are not read. Running ones are read and not counted, so that those of one
    /// handler do not hide what another has; the last row that may be read of a handler is always
    /// found, and shows that there may be more. Whether an event waits for a limit is looked up
    /// only if one has put it off.
    ///
    /// Which handlers are under a rule is settled before any event is read, whatever the planner
    /// prefers. The index entries of deleted rows that an old transaction keeps from being vacuumed
    /// are read all the same.
    pub(crate) async fn depth(
        &self,
        canvas: CanvasId,
        scope: Option<&HandlerScope>,
    ) -> Result<Depth, StoreError> {
        let query = sqlx::query!(
            r#"with recursive handlers as (
                   select $2::text as module, $3::text as name where $2 is not null
                    union all
                   (select module::text, name::text from wakeq.events_v2
                     where $2 is null and canvas_id = $1 and delay_until > '-infinity'
                     order by canvas_id, module, name limit 1)
                    union all
                   select next.module, next.name from handlers h, lateral (
                       select e.module::text, e.name::text from wakeq.events_v2 e
                        where $2 is null and e.canvas_id = $1 and (e.module, e.name) > (h.module, h.name)
                          and e.delay_until > '-infinity'
                        order by e.canvas_id, e.module, e.name limit 1) as next
               ), visited as (
                   select module, name from handlers limit $5
               ), unruled as materialized (
                   select module, name from visited h
                    where not exists (
                        select from wakeq.scheduling_rules r
                         where r.canvas_id = $1 and r.event_space = h.module and r.handler_name = h.name
                           and (r.until is null or r.until > now()))
                      and (select wakeq.switch_on($1, null, now()) is null)
               ), found as (
                   select due.delay_until, due.free, due.number from unruled h, lateral (
                       select e.delay_until,
                              (e.locked_at is null or e.locked_at < now() - $4::interval)
                              and e.queue is null
                              and (e.starts_at is null or (
                                  select w.woken_at is null from wakeq.limit_waits w where w.event_id = e.id) is not true)
                              and (e.object is null
                                   or e.id = wakeq.first_of_lane(e.canvas_id, e.object, e.queue, e.module, e.name)
                                      and not wakeq.lane_halts(e.canvas_id, e.object, e.queue, e.module, e.name)) as free,
                              row_number() over (order by e.delay_until) as number
                         from wakeq.events_v2 e
                        where e.canvas_id = $1 and e.module = h.module and e.name = h.name
                          and e.delay_until <= now() and e.delay_until > '-infinity'
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
        let row = self.session().await?.one("count the events that can run", query).await?;
        let depth = row.depth.cast_unsigned();
        Ok(Depth { depth, capped: row.capped, oldest_due: row.oldest_due, now: row.now })
    }

    /// The events of every handler that are due and free to run, over all canvases. Read as by
    /// [`Store::depth`], for at most 1,000 handlers of a canvas, and of each its share of 20,000
    /// due events, at least 100 and at most 10,000. A handler whose events are not due, or wait for
    /// a limit, or that is under a rule, has none; copies in queues do not count.
    #[doc(hidden)]
    pub async fn depths(&self) -> Result<Vec<HandlerDepth>, StoreError> {
        let query = sqlx::query!(
            r#"with recursive handlers as (
                   (select canvas_id, module::text, name::text, 1 as number from wakeq.events_v2
                     where delay_until > '-infinity' order by canvas_id, module, name limit 1)
                    union all
                   select next.canvas_id, next.module, next.name, h.number + 1 from handlers h, lateral (
                       select e.canvas_id, e.module::text, e.name::text from wakeq.events_v2 e
                        where (e.canvas_id, e.module, e.name) > (h.canvas_id, h.module, h.name)
                          and e.delay_until > '-infinity'
                        order by e.canvas_id, e.module, e.name limit 1) as next
                    where h.number < $2
               ), unruled as materialized (
                   select canvas_id, module, name, exists (
                       select from wakeq.scheduling_rules r
                        where r.canvas_id = h.canvas_id and r.event_space = h.module and r.handler_name = h.name
                          and (r.until is null or r.until > now()) offset 0)
                       or (select exists (select from wakeq.scheduling_rules where event_space = 'CANVAS'))
                          and wakeq.switch_on(h.canvas_id, null, now()) is not null as ruled
                     from handlers h
               ), share as materialized (
                   select least(greatest($3 / greatest(count(*), 1), $4), $5) as rows from unruled where not ruled
               )
               select h.module as "module!", h.name as "name!", sum(found.depth)::bigint as "depth!",
                      min(found.oldest) as oldest_due, now() as "now!",
                      bool_or(found.due >= (select rows from share)) or (select count(*) from handlers) >= $2 as "capped!"
                 from unruled h, lateral (
                     select count(*) as due, count(*) filter (where free) as depth,
                            min(delay_until) filter (where free) as oldest from (
                         select e.delay_until,
                                e.queue is null and (e.locked_at is null or e.locked_at < now() - $1::interval)
                                and (e.starts_at is null or (
                                    select w.woken_at is null from wakeq.limit_waits w where w.event_id = e.id) is not true)
                                and (e.object is null
                                     or e.id = wakeq.first_of_lane(e.canvas_id, e.object, e.queue, e.module, e.name)
                                        and not wakeq.lane_halts(e.canvas_id, e.object, e.queue, e.module, e.name)) as free
                           from wakeq.events_v2 e
                          where not h.ruled and e.canvas_id = h.canvas_id and e.module = h.module and e.name = h.name
                            and e.delay_until <= now() and e.delay_until > '-infinity'
                          order by e.delay_until limit (select rows from share)) as due) as found
                group by h.module, h.name order by 3 desc, 1, 2"#,
            interval(self.timing().lease),
            GAUGED_MAX,
            GAUGED_ROWS,
            GAUGED_LEAST,
            LOOK_MAX
        );
        let rows = self.session().await?.all("count the events that can run, by handler", query).await?;
        let depths = rows.into_iter().filter_map(|row| {
            let scope = address(CanvasId::DEFAULT.0, &row.module, &row.name, "_").ok()?.scope;
            let depth = row.depth.cast_unsigned();
            let depth = Depth { depth, capped: row.capped, oldest_due: row.oldest_due, now: row.now };
            Some(HandlerDepth { scope, depth })
        });
        Ok(depths.collect())
    }

    /// How many objects are halted per handler, over all canvases; at most 10,000 are counted.
    #[doc(hidden)]
    pub async fn halted(&self) -> Result<Vec<(HandlerScope, u64)>, StoreError> {
        let query = sqlx::query!(
            r#"select module::text as "module!", name::text as "name!", count(*) as "halted!"
                 from (select module, name from wakeq.halted_lanes limit $1) as halted
                group by module, name order by 3 desc, 1, 2"#,
            LOOK_MAX
        );
        let rows = self.session().await?.all("count the halted objects", query).await?;
        let halted = rows.into_iter().filter_map(|row| {
            let scope = address(CanvasId::DEFAULT.0, &row.module, &row.name, "_").ok()?.scope;
            Some((scope, row.halted.cast_unsigned()))
        });
        Ok(halted.collect())
    }

    /// Connections of the pool, in use and idle; `None` once it is closed.
    #[doc(hidden)]
    pub fn connections(&self) -> Option<(u64, u64)> {
        let pool = self.pool_of_statements();
        let idle = u64::try_from(pool.num_idle()).unwrap_or(u64::MAX);
        (!pool.is_closed()).then(|| (u64::from(pool.size()).saturating_sub(idle), idle))
    }
}

/// The events that a handler has to run, over all canvases.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandlerDepth {
    /// Its module and name; the canvas is meaningless.
    pub scope: HandlerScope,
    /// The events that are due and free to run.
    pub depth: Depth,
}
