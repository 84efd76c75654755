//! How many events each handler has, from one index.

use std::time::Duration;

use crate::event::{CanvasId, HandlerScope, Name, Timestamp};
use crate::store::kernel::{Sql, Store, StoreError, handler_columns, interval};

/// How many due events at either end of a handler's queue are read to find running ones.
const RUNNING_LOOK: i64 = 2_000;
/// The same, for all handlers of one call together.
const RUNNING_LOOKS: i64 = 8_000;

/// The events of one handler, counted by what they wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerCounts {
    /// The handler, with all its modifiers.
    pub scope: HandlerScope,
    /// Events that are due, including running ones.
    pub due: i64,
    /// Events that are not due yet.
    pub delayed: i64,
    /// Since when the oldest due event has been due.
    pub oldest_due: Option<Timestamp>,
    /// Dead events that are kept.
    pub dead: i64,
    /// Objects on which this handler is halted.
    pub halted: i64,
}

/// What a handler is doing now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandlerActivity {
    /// Events that are running.
    pub(crate) running: i64,
    /// Since when some worker has not known it.
    pub(crate) unknown_since: Option<Timestamp>,
}

impl Store {
    /// Counts of these handlers of a canvas, in the given order. Each count is an index-only scan
    /// of the handler's events, whatever the planner knows. Copies in queues count if their queue
    /// shows them.
    pub(crate) async fn counts(
        &self,
        canvas: CanvasId,
        handlers: &[HandlerScope],
    ) -> Result<Vec<HandlerCounts>, StoreError> {
        let (modules, names) = handler_columns(handlers);
        let query = sqlx::query!(
            r#"select live.due as "due!", live.delayed as "delayed!", live.oldest_due, dead.count as "dead!",
                      halted.count as "halted!"
                 from (select at, module::wakeq.name as module, name::wakeq.name as name
                         from unnest($2::text[], $3::text[]) with ordinality as given (module, name, at)) as wanted
                cross join lateral (
                    select count(*) filter (where e.delay_until <= now()) as due,
                           count(*) filter (where e.delay_until > now()) as delayed,
                           min(e.delay_until) filter (where e.delay_until <= now()) as oldest_due
                      from wakeq.events_v2 e
                     where e.canvas_id = $1 and e.module = wanted.module and e.name = wanted.name
                       and e.delay_until > '-infinity' and (e.queue is null or wakeq.is_shown(e.queue))) as live
                cross join lateral (
                    select count(*) from wakeq.dead_events d
                     where d.canvas_id = $1 and d.module = wanted.module and d.name = wanted.name and d.module <> ''
                       and (d.queue is null or wakeq.is_shown(d.queue))) as dead
                cross join lateral (
                    select count(*) from wakeq.halted_lanes h
                     where h.canvas_id = $1 and h.module = wanted.module and h.name = wanted.name and h.module <> ''
                       and (h.queue is null or wakeq.is_shown(h.queue))) as halted
                order by wanted.at"#,
            canvas.0,
            &modules,
            &names
        );
        let rows = self.session().await?.all("count events", query).await?;
        let counts = rows.into_iter().zip(handlers).map(|(row, scope)| HandlerCounts {
            scope: scope.clone(),
            due: row.due,
            delayed: row.delayed,
            oldest_due: row.oldest_due,
            dead: row.dead,
            halted: row.halted,
        });
        Ok(counts.collect())
    }

    /// What handlers of a canvas are doing now, in the given order, in one statement: a page of a
    /// thousand handlers is one answer of the server.
    ///
    /// No index shows which events are running, so rows are read: of each handler the 2,000 events
    /// that have been due longest and, behind the last of these, the 2,000 that became due last;
    /// for more than four handlers, proportionally fewer of each. If more are due, the count may be
    /// too low. No event is read twice, so none has to be told from another: Postgres 16 would sort
    /// all.
    pub(crate) async fn doing(
        &self,
        canvas: CanvasId,
        handlers: &[HandlerScope],
        recently: Duration,
    ) -> Result<Vec<HandlerActivity>, StoreError> {
        let (modules, names) = handler_columns(handlers);
        let look = (RUNNING_LOOKS / i64::try_from(handlers.len().max(1)).unwrap_or(i64::MAX)).max(1);
        let query = sqlx::query!(
            r#"select longest.running + latest.running as "running!",
                      (select min(u.first_seen) from wakeq.unknown_handlers u
                        where u.canvas_id = $1 and u.module = wanted.module and u.name = wanted.name
                          and u.last_seen > now() - $5::interval) as unknown_since
                 from (select at, module::wakeq.name as module, name::wakeq.name as name
                         from unnest($2::text[], $3::text[]) with ordinality as given (module, name, at)) as wanted
                cross join lateral (
                    select count(*) filter (where locked_at >= now() - $4::interval
                                              and (queue is null or wakeq.is_shown(queue))) as running,
                           (array_agg(delay_until))[$6::bigint::integer] as due,
                           (array_agg(id))[$6::bigint::integer] as id
                      from (
                        select e.id, e.delay_until, e.locked_at, e.queue from wakeq.events_v2 e
                         where e.canvas_id = $1 and e.module = wanted.module and e.name = wanted.name
                           and e.delay_until <= now() and e.delay_until > '-infinity'
                         order by e.canvas_id, e.module, e.name, e.delay_until, e.id limit $6
                      ) as looked) as longest
                cross join lateral (
                    select count(*) filter (where locked_at >= now() - $4::interval
                                              and (queue is null or wakeq.is_shown(queue))) as running
                      from (
                        select e.locked_at, e.queue from wakeq.events_v2 e
                         where e.canvas_id = $1 and (e.delay_until, e.id) > (longest.due, longest.id)
                           and e.module = wanted.module and e.name = wanted.name
                           and e.delay_until <= now() and e.delay_until > '-infinity'
                         order by e.canvas_id desc, e.module desc, e.name desc, e.delay_until desc, e.id desc limit $6
                      ) as looked) as latest
                order by wanted.at"#,
            canvas.0,
            &modules,
            &names,
            interval(self.timing().lease),
            interval(recently),
            look.min(RUNNING_LOOK)
        );
        let rows = self.session().await?.all("count running events", query).await?;
        let doing = rows
            .into_iter()
            .map(|row| HandlerActivity { running: row.running, unknown_since: row.unknown_since });
        Ok(doing.collect())
    }
}

impl Sql<'_> {
    pub(in crate::store) async fn running_of(&self, scope: &HandlerScope) -> Result<u32, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select count(*) as "count!" from (
                 select locked_at, queue from wakeq.events_v2
                  where canvas_id = $1 and module = $2 and name = $3 and delay_until > '-infinity'
                  order by canvas_id, module, name, delay_until, id limit 1000) e
              where e.locked_at > now() - $4::interval and e.queue is null"#,
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _,
            interval(self.timing().lease)
        );
        let running = self.session().await?.one("count what runs of a handler", query).await?;
        Ok(u32::try_from(running).unwrap_or(u32::MAX))
    }

    pub(in crate::store) async fn unknown_since(
        &self,
        scope: &HandlerScope,
        modifier: &Name,
        recently: Duration,
    ) -> Result<Option<Timestamp>, StoreError> {
        let query = sqlx::query_scalar!(
            "select min(first_seen) from wakeq.unknown_handlers
              where canvas_id = $1 and module = $2 and name = $3 and last_seen > now() - $4::interval
                and modifier = $5",
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _,
            interval(recently),
            modifier.as_str() as _
        );
        self.session().await?.one("look for an unknown handler", query).await
    }
}
