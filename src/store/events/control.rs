//! Operators' actions on waiting events: cancel, run now, another due time, purge.

use crate::event::{Actor, CanvasId, Due, EventId, HandlerScope, HeldLimit, Lane, Timestamp};
use crate::store::kernel::{Sql, StoreError, address, interval};

/// Maximum number of events that one statement purges, redrives or deletes.
pub(crate) const BULK_PAGE: u64 = 1000;

/// The outcome of a command on one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    /// It took effect.
    Done,
    /// The event is running.
    Runs,
    /// The canvas has no such event.
    Missing,
}

/// What a page of a purge has deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PurgedPage {
    pub(crate) count: u64,
    /// The lanes of the events, whose next ones have to be woken.
    pub(crate) lanes: Vec<Lane>,
    /// The limits at which places were kept for the events, where others have room now.
    pub(crate) limits: Vec<HeldLimit>,
}

/// What a cancelled event leaves to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftPlaces {
    /// Its lane, if it was on an object: the next event there has to be woken.
    pub(crate) lane: Option<Lane>,
    /// The limit at which a place was kept for it, where others have room now.
    pub(crate) limit: Option<HeldLimit>,
}

/// When an event is due that was given another time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MovedDue {
    pub(crate) due: Timestamp,
    /// Whether that is within the horizon, so that it has to be notified of now.
    pub(crate) is_soon: bool,
    /// The limit at which a place was kept for it, where others have room now.
    pub(crate) left: Option<HeldLimit>,
}

impl CommandOutcome {
    pub(in crate::store) fn of(done: bool, there: bool) -> Self {
        match (done, there) {
            (true, _) => Self::Done,
            (false, true) => Self::Runs,
            (false, false) => Self::Missing,
        }
    }
}

impl Sql<'_> {
    pub(in crate::store) async fn cancel(
        &self,
        canvas: CanvasId,
        id: EventId,
        actor: &Actor,
    ) -> Result<(CommandOutcome, LeftPlaces), StoreError> {
        let query = sqlx::query!(
            r#"with gone as (
                   delete from wakeq.events_v2 e
                    where id = $1 and canvas_id = $2 and (locked_at is null or locked_at < clock_timestamp() - $3::interval)
                returning id, canvas_id, module, name, object, queue, seq, prev, options ->> 'batch' as batch, e as event
               ), counted as (
                   insert into wakeq.batch_ends (canvas_id, batch, completed, cancelled)
                   select canvas_id, batch, -1, 1 from gone where batch is not null
               ), kept as (
                   select wakeq.keep_ended(event, wakeq.keep_of(event, null, 'cancelled'), 'cancelled', null, null, null, $4) from gone
               ), passed_over as (
                   insert into wakeq.tombstones (canvas_id, object, seq, queue, prev, cause)
                   select canvas_id, object, seq, coalesce(queue, ''), prev, 'cancelled' from gone where object is not null
                       on conflict do nothing
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, event_id, outcome, request_id, detail)
                   select canvas_id, $4, 'cancel', module, name, id, 'done', $5, $6 from gone
               ), armed as (
                   update wakeq.events_v2 e
                      set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $7, $8), probes = 0
                    where e.id = any (array(
                        select x.id from wakeq.events_v2 x
                         where x.id = any (array(
                             select wakeq.first_without(canvas_id, object, queue, module, name, array[id]) from gone
                              where object is not null))
                           and (x.locked_at is null or x.locked_at < clock_timestamp() - $3) for update skip locked))
               )
               select gone.id is not null as "done!", gone.module::text as module, gone.name::text as name,
                      gone.object::text as object, gone.queue::text as queue,
                      (wakeq.places_kept(array[gone.id]))[1] as room,
                      exists (select from wakeq.events_v2 where id = $1 and canvas_id = $2) as "there!"
                 from (values (1)) as one left join gone on (select count(*) from kept) > 0"#,
            id.0,
            canvas.0,
            interval(self.timing().lease),
            actor.name(),
            actor.request_id(),
            actor.credential_id(),
            interval(self.timing().horizon),
            interval(self.timing().grace)
        );
        let row = self.session().await?.one("cancel an event", query).await?;
        let lane = lane(
            canvas,
            (row.module.as_deref(), row.name.as_deref()),
            row.object.as_deref(),
            row.queue.as_deref(),
        );
        let limit = row.room.as_deref().and_then(HeldLimit::parse);
        Ok((CommandOutcome::of(row.done, row.there), LeftPlaces { lane, limit }))
    }

    pub(in crate::store) async fn run_now(
        &self,
        canvas: CanvasId,
        id: EventId,
        actor: &Actor,
    ) -> Result<CommandOutcome, StoreError> {
        let query = sqlx::query!(
            r#"with due as (
                   update wakeq.events_v2
                      set delay_until = least(delay_until, now()), probes = 0,
                          notify_at = wakeq.wake_at(now(), now(), $4, $5)
                    where id = $1 and canvas_id = $2 and (locked_at is null or locked_at < clock_timestamp() - $3::interval)
                returning id, canvas_id, module, name
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, event_id, outcome, request_id, detail)
                   select canvas_id, $6, 'run-now', module, name, id, 'done', $7, $8 from due
               )
               select exists (select from due) as "done!",
                      exists (select from wakeq.events_v2 where id = $1 and canvas_id = $2) as "there!""#,
            id.0,
            canvas.0,
            interval(self.timing().lease),
            interval(self.timing().horizon),
            interval(self.timing().grace),
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        let row = self.session().await?.one("make an event due", query).await?;
        Ok(CommandOutcome::of(row.done, row.there))
    }

    /// Unlike a due event, one that has passed its place in a queue has to go behind what was
    /// called there: so nothing is due before now. One that is due later asks its limits anew then,
    /// and waits for none until that.
    pub(in crate::store) async fn set_due(
        &self,
        canvas: CanvasId,
        id: EventId,
        due: Due,
        actor: &Actor,
    ) -> Result<(CommandOutcome, Option<MovedDue>), StoreError> {
        let (at, delay) = match due {
            Due::Now => (None, None),
            Due::After(delay) => (None, Some(interval(delay))),
            Due::At(moment) => (Some(moment), None),
        };
        let query = sqlx::query!(
            r#"with asked as (
                   select greatest(now(), coalesce($4::timestamptz, now() + coalesce($5::interval, '0'))) as due
               ), moved as (
                   update wakeq.events_v2
                      set delay_until = (select due from asked), probes = 0,
                          starts_at = case when (select due from asked) <= now() then starts_at end,
                          notify_at = wakeq.wake_at((select due from asked), now(), $6, $7)
                    where id = $1 and canvas_id = $2 and (locked_at is null or locked_at < clock_timestamp() - $3::interval)
                returning id, canvas_id, module, name, delay_until
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, event_id, outcome, request_id, detail)
                   select canvas_id, $8, 'set-due', module, name, id, 'done', $9,
                          concat_ws('; ', $10::text, 'due ' || to_char(delay_until at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
                     from moved
               )
               select (select delay_until from moved) as due,
                      coalesce((select delay_until <= now() + $6::interval from moved), false) as "is_soon!",
                      (wakeq.leave_waits(array(select id from moved where delay_until > now())))[1] as "room?",
                      exists (select from wakeq.events_v2 where id = $1 and canvas_id = $2) as "there!""#,
            id.0,
            canvas.0,
            interval(self.timing().lease),
            at,
            delay,
            interval(self.timing().horizon),
            interval(self.timing().grace),
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        let row = self.session().await?.one("change when an event is due", query).await?;
        let left = row.room.as_deref().and_then(HeldLimit::parse);
        let moved = row.due.map(|due| MovedDue { due, is_soon: row.is_soon, left });
        Ok((CommandOutcome::of(moved.is_some(), row.there), moved))
    }

    pub(in crate::store) async fn purgeable(
        &self,
        scope: &HandlerScope,
        before: Timestamp,
        limit: u64,
    ) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select count(*) as "count!" from (
                   select from wakeq.events_v2
                    where canvas_id = $1 and module = $2 and name = $3 and delay_until > '-infinity' and queue is null
                      and (locked_at is null or locked_at < now() - $4::interval) and enqueued_at < $6
                    limit $5) as free"#,
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _,
            interval(self.timing().lease),
            limit.cast_signed(),
            before
        );
        self.session().await?.one("count what a purge would delete", query).await.map(i64::cast_unsigned)
    }

    pub(in crate::store) async fn purge_page(
        &self,
        scope: &HandlerScope,
        before: Timestamp,
        actor: &Actor,
    ) -> Result<PurgedPage, StoreError> {
        let query = sqlx::query!(
            r#"with gone as (
                   delete from wakeq.events_v2 where id = any (array(
                       select id from wakeq.events_v2
                        where canvas_id = $1 and module = $2 and name = $3 and delay_until > '-infinity' and queue is null
                          and (locked_at is null or locked_at < now() - $4::interval) and enqueued_at < $11
                        limit $5 for update skip locked))
                returning id, object, queue, seq, prev, options ->> 'batch' as batch
               ), counted as (
                   insert into wakeq.batch_ends (canvas_id, batch, completed, cancelled)
                   select $1, batch, -count(*), count(*) from gone where batch is not null group by batch
               ), passed_over as (
                   insert into wakeq.tombstones (canvas_id, object, seq, prev, cause)
                   select $1, object, seq, prev, 'purged' from gone where object is not null
                       on conflict do nothing
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, times, request_id, detail)
                   select $1, $6, 'purge', $2::text, $3::text, 'done', count(*), $7, $8 from gone having count(*) > 0
               ), armed as (
                   update wakeq.events_v2 e
                      set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $9, $10), probes = 0
                    where e.id = any (array(
                        select x.id from wakeq.events_v2 x
                         where x.id = any (array(
                             select wakeq.first_without($1, lane.object, null, $2, $3, array(select id from gone))
                               from (select distinct object from gone where object is not null) as lane))
                           and (x.locked_at is null or x.locked_at < clock_timestamp() - $4) for update skip locked))
               )
               select count(*) as "count!",
                      array(select distinct object::text || '/' || coalesce(queue, '') from gone
                             where object is not null) as "lanes!",
                      wakeq.places_kept(array(select id from gone)) as "limits!"
                 from gone"#,
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _,
            interval(self.timing().lease),
            BULK_PAGE.cast_signed(),
            actor.name(),
            actor.request_id(),
            actor.credential_id(),
            interval(self.timing().horizon),
            interval(self.timing().grace),
            before
        );
        let row = self.session().await?.one("purge events", query).await?;
        let lanes = row.lanes.iter().filter_map(|lane| {
            let (object, queue) = lane.split_once('/')?;
            Some(Lane { scope: scope.clone(), object: object.parse().ok()?, queue: queue.parse().ok() })
        });
        let limits = row.limits.iter().filter_map(|limit| HeldLimit::parse(limit));
        Ok(PurgedPage { count: row.count.cast_unsigned(), lanes: lanes.collect(), limits: limits.collect() })
    }

    /// Of these ids the first that is known.
    pub(in crate::store) async fn known_event(
        &self,
        canvas: CanvasId,
        meant: [EventId; 2],
        copies: bool,
    ) -> Result<Option<EventId>, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select asked.id as "id!" from unnest($2::uuid[]) with ordinality as asked (id, position)
                where exists (select from wakeq.events_v2 e
                               where e.id = asked.id and e.canvas_id = $1 and ($3 or wakeq.is_shown(e.queue)) offset 0)
                   or exists (select from wakeq.dead_events d
                               where d.canvas_id = $1 and d.id = asked.id and ($3 or wakeq.is_shown(d.queue)) offset 0)
                   or exists (select from wakeq.emitted_ids i where i.canvas_id = $1 and i.id = asked.id offset 0)
                   or exists (select from wakeq.ended_events d
                               where d.canvas_id = $1 and d.id = asked.id and d.kept_until > now() offset 0)
                order by asked.position limit 1"#,
            canvas.0,
            &meant.map(|id| id.0) as &[uuid::Uuid],
            copies
        );
        Ok(self.session().await?.optional("look for an event", query).await?.map(EventId))
    }

    pub(in crate::store) async fn emitted_at(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<Timestamp>, StoreError> {
        let query = sqlx::query_scalar!(
            "select emitted_at from wakeq.emitted_ids where id = $1 and canvas_id = $2",
            id.0,
            canvas.0
        );
        self.session().await?.optional("look for a chosen id", query).await
    }

    pub(in crate::store) async fn clock(&self) -> Result<Timestamp, StoreError> {
        let query = sqlx::query_scalar!(r#"select clock_timestamp() as "clock!""#);
        self.session().await?.one("read the clock", query).await
    }
}

/// The lane of an event, from its columns, if it was on an object.
fn lane(
    canvas: CanvasId,
    (module, name): (Option<&str>, Option<&str>),
    object: Option<&str>,
    queue: Option<&str>,
) -> Option<Lane> {
    let scope = address(canvas.0, module?, name?, "_").ok()?.scope;
    Some(Lane { scope, object: object?.parse().ok()?, queue: queue.and_then(|queue| queue.parse().ok()) })
}
