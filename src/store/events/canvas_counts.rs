//! How many events the handlers of a canvas have together, and which of them have the most: each
//! index is read once, however many handlers there are.

use std::time::Duration;

use super::counts::HandlerCounts;
use crate::event::{CanvasId, Timestamp};
use crate::store::kernel::{Store, StoreError, address, interval};

/// How much one call counts and returns, at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountBounds {
    /// Events, and as many dead ones.
    pub(crate) events: i64,
    /// Halted lanes. Their index does not have their queues, so that each is read.
    pub(crate) halted: i64,
    /// Busy handlers.
    pub(crate) busy: i64,
    /// Stopped handlers, and as many unknown ones.
    pub(crate) listed: i64,
}

impl Default for CountBounds {
    fn default() -> Self {
        Self { events: 2_000_000, halted: 100_000, busy: 4_000, listed: 50 }
    }
}

/// What all handlers of a canvas have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CanvasTotals {
    /// Handlers that have events, dead events, halted lanes or rules.
    pub(crate) handlers: i64,
    /// Those with a rule of their own.
    pub(crate) stopped: i64,
    /// Those that some worker has not known.
    pub(crate) unknown: i64,
    /// Events that are due, including running ones, and those of them whose handler has a rule.
    pub(crate) due: i64,
    pub(crate) stopped_due: i64,
    /// Events that are not due yet.
    pub(crate) delayed: i64,
    /// Since when the oldest due event has been due.
    pub(crate) oldest_due: Option<Timestamp>,
    /// Dead events that are kept.
    pub(crate) dead: i64,
    /// Objects on which a handler is halted.
    pub(crate) halted: i64,
    /// Whether there may be more of what is counted.
    pub(crate) is_capped: bool,
}

/// A handler with much to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BusyHandler {
    pub(crate) counts: HandlerCounts,
    /// Whether it has a rule of its own.
    pub(crate) is_stopped: bool,
}

/// The counts of a canvas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CanvasCounts {
    pub(crate) totals: CanvasTotals,
    /// The handlers with the most due and dead events, in any order.
    pub(crate) busy: Vec<BusyHandler>,
    /// The first handlers with rules, and the first that some worker has not known, by name.
    pub(crate) stopped: Vec<HandlerCounts>,
    pub(crate) unknown: Vec<HandlerCounts>,
}

impl CanvasCounts {
    fn add(&mut self, canvas: CanvasId, row: &CanvasCountRow) {
        let names = row.module.as_deref().zip(row.name.as_deref());
        let address = names.and_then(|(module, name)| address(canvas.0, module, name, "_").ok());
        let Some(scope) = address.map(|address| address.scope) else { return };
        let [live, due, dead, halted] =
            [row.live, row.due, row.dead, row.halted].map(Option::unwrap_or_default);
        let oldest_due = row.earliest.filter(|_| due > 0);
        let counts = HandlerCounts { scope, due, delayed: live - due, oldest_due, dead, halted };
        match row.list.as_deref() {
            Some("stopped") => self.stopped.push(counts),
            Some("unknown") => self.unknown.push(counts),
            _ => self.busy.push(BusyHandler { counts, is_stopped: row.is_stopped.unwrap_or_default() }),
        }
    }
}

/// A query for [`CanvasCountRow`]s. Each source is read in the order of its index, whose condition
/// it names.
macro_rules! counted_rows {
    ($($argument:tt)*) => {
        sqlx::query_as!(
            CanvasCountRow,
            r#"with shown as materialized (
                   select array(select q.name::text from wakeq.queues q where q.tenant_visible) as queues
               ), live as materialized (
                   select e.module::text as module, e.name::text as name, count(*) as looked_at,
                          count(*) filter (where e.is_shown) as live,
                          count(*) filter (where e.is_shown and e.delay_until <= now()) as due,
                          min(e.delay_until) filter (where e.is_shown) as earliest
                     from (select e.module, e.name, e.delay_until,
                                  e.queue is null or e.queue = any ((select queues from shown)::text[]) as is_shown
                             from wakeq.events_v2 e where e.canvas_id = $1 and e.delay_until > '-infinity'
                            order by e.canvas_id, e.module, e.name, e.delay_until, e.id limit $3) as e
                    group by e.module, e.name
               ), died as materialized (
                   select d.module::text as module, d.name::text as name, count(*) as looked_at,
                          count(*) filter (where d.is_shown) as dead
                     from (select d.module, d.name,
                                  d.queue is null or d.queue = any ((select queues from shown)::text[]) as is_shown
                             from wakeq.dead_events d where d.canvas_id = $1 and d.module <> ''
                            order by d.canvas_id, d.module, d.name, d.died_at, d.id limit $3) as d
                    group by d.module, d.name
               ), halts as materialized (
                   select h.module::text as module, h.name::text as name, count(*) as looked_at,
                          count(*) filter (where h.is_shown) as halted
                     from (select h.module, h.name,
                                  h.queue is null or h.queue = any ((select queues from shown)::text[]) as is_shown
                             from wakeq.halted_lanes h where h.canvas_id = $1 and h.module <> ''
                            order by h.canvas_id, h.module, h.name limit $4) as h
                    group by h.module, h.name
               ), parts as (
                   select module, name, live, due, earliest, 0::bigint as dead, 0::bigint as halted,
                          false as is_stopped, false as is_unknown from live
                    union all
                   select module, name, 0, 0, null, dead, 0, false, false from died
                    union all
                   select module, name, 0, 0, null, 0, halted, false, false from halts
                    union all
                   select r.event_space::text, r.handler_name::text, 0, 0, null, 0, 0, true, false
                     from wakeq.scheduling_rules r
                    where r.canvas_id = $1 and r.event_space <> 'CANVAS' and (r.until is null or r.until > now())
                    union all
                   select u.module::text, u.name::text, 0, 0, null, 0, 0, false, true
                     from wakeq.unknown_handlers u where u.canvas_id = $1 and u.last_seen > now() - $2::interval
               ), handlers as materialized (
                   select module, name, sum(live)::bigint as live, sum(due)::bigint as due, min(earliest) as earliest,
                          sum(dead)::bigint as dead, sum(halted)::bigint as halted, bool_or(is_stopped) as is_stopped,
                          bool_or(is_unknown) as is_unknown
                     from parts group by module, name
                   having bool_or(live + dead + halted > 0 or is_stopped)
               ), totals as materialized (
                   select count(*) as handlers, count(*) filter (where is_stopped) as stopped,
                          count(*) filter (where is_unknown) as unknown, coalesce(sum(live), 0)::bigint as live,
                          coalesce(sum(due), 0)::bigint as due,
                          coalesce(sum(due) filter (where is_stopped), 0)::bigint as stopped_due,
                          min(earliest) filter (where due > 0) as oldest_due, coalesce(sum(dead), 0)::bigint as dead,
                          coalesce(sum(halted), 0)::bigint as halted,
                          coalesce((select sum(looked_at) from live) >= $3, false)
                          or coalesce((select sum(looked_at) from died) >= $3, false)
                          or coalesce((select sum(looked_at) from halts) >= $4, false) as is_capped
                     from handlers
               ), listed as (
                   (select 'busy' as list, h.* from handlers h
                     order by due + dead desc, live desc, module, name limit $5)
                    union all
                   (select 'stopped', h.* from handlers h where is_stopped order by module, name limit $6)
                    union all
                   (select 'unknown', h.* from handlers h where is_unknown order by module, name limit $6)
               )
               select t.handlers as "all_handlers!", t.stopped as "all_stopped!", t.unknown as "all_unknown!",
                      t.live as "all_live!", t.due as "all_due!", t.stopped_due as "all_stopped_due!",
                      t.oldest_due as "all_oldest_due?", t.dead as "all_dead!", t.halted as "all_halted!",
                      t.is_capped as "is_capped!", l.list as "list?", l.module as "module?", l.name as "name?",
                      l.live as "live?", l.due as "due?", l.earliest as "earliest?", l.dead as "dead?",
                      l.halted as "halted?", l.is_stopped as "is_stopped?"
                 from totals t left join listed l on true"#,
            $($argument)*
        )
    };
}

impl Store {
    /// Counts of all handlers of a canvas together, with the busiest ones, and the first that are
    /// stopped and that some worker has not known. Copies in queues count if their queue shows
    /// them. What exceeds a bound is left out in the order of the handlers. In a vacuumed table,
    /// events and dead events are counted from the indexes alone.
    pub(crate) async fn canvas_counts(
        &self,
        canvas: CanvasId,
        recently: Duration,
        bounds: CountBounds,
    ) -> Result<CanvasCounts, StoreError> {
        let CountBounds { events, halted, busy, listed } = bounds;
        let query = counted_rows!(canvas.0, interval(recently), events, halted, busy, listed);
        let rows = self.session().await?.all("count the events of a canvas", query).await?;
        let totals = rows.first().map(CanvasCountRow::totals).unwrap_or_default();
        let mut counts = CanvasCounts { totals, ..CanvasCounts::default() };
        rows.iter().for_each(|row| counts.add(canvas, row));
        Ok(counts)
    }
}

/// What the canvas has, which is the same in all rows, and a handler in one of the lists.
struct CanvasCountRow {
    all_handlers: i64,
    all_stopped: i64,
    all_unknown: i64,
    all_live: i64,
    all_due: i64,
    all_stopped_due: i64,
    all_oldest_due: Option<Timestamp>,
    all_dead: i64,
    all_halted: i64,
    is_capped: bool,
    list: Option<String>,
    module: Option<String>,
    name: Option<String>,
    live: Option<i64>,
    due: Option<i64>,
    earliest: Option<Timestamp>,
    dead: Option<i64>,
    halted: Option<i64>,
    is_stopped: Option<bool>,
}

impl CanvasCountRow {
    fn totals(&self) -> CanvasTotals {
        CanvasTotals {
            handlers: self.all_handlers,
            stopped: self.all_stopped,
            unknown: self.all_unknown,
            due: self.all_due,
            stopped_due: self.all_stopped_due,
            delayed: self.all_live - self.all_due,
            oldest_due: self.all_oldest_due,
            dead: self.all_dead,
            halted: self.all_halted,
            is_capped: self.is_capped,
        }
    }
}
