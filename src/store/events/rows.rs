//! Whole rows of events: the only statements that write all of one, when it is emitted, when it
//! dies and when it is redriven. Which events they get, and in which order, is decided elsewhere.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::claims::microseconds;
use super::columns::{EventColumns, delay_s, moment};
use super::load::DeadFilter;
use super::outcome::{InsertOutcome, InsertedRows};
use super::placements::Placements;
use crate::event::{
    Actor, CanvasId, Cause, Claim, EventId, HandlerAddress, Link, NewEvent, Notification, Timestamp, Timing,
};
use crate::store::kernel::{Emission, QueueRegistry, STALE_TRIES, Sql, StoreError, interval, too_busy};

/// The answer of a statement; `None` if the registered queues have changed, so that nothing was
/// inserted.
type WriteAnswer = Result<Option<InsertedRows>, sqlx::Error>;

/// A query whose first parameters are the columns of events, the horizon and the grace.
macro_rules! query_rows {
    ($new:ident, $emission:ident, $text:literal, $($more:expr),+ $(,)?) => {
        sqlx::query!(
            $text,
            &$new.ids,
            &$new.handlers,
            &$new.canvases,
            $new.modules.as_slice() as &[&str],
            $new.names.as_slice() as &[&str],
            $new.modifiers.as_slice() as &[&str],
            $new.values.as_slice() as &[&str],
            $new.moments.as_slice() as &[Option<Timestamp>],
            &$new.delays_s,
            $new.traces.as_slice() as &[Option<&str>],
            interval($emission.timing.horizon),
            interval($emission.timing.grace),
            $($more),+
        )
    };
}

/// Inserts events that are not on objects, on any connection: also inside a caller's transaction.
/// The two quick statements are for events without options, while no queue is registered.
/// With `chosen`, the callers chose their ids, which all differ, and those that are known are left
/// out.
///
/// An event may outlive its row in `emitted_ids` (it still waits, or is dead and may be redriven),
/// so `events_v2` and `dead_events` are checked as well. Several chosen events need a transaction
/// that is all or nothing: a concurrent emit of any of the ids makes all of them wait.
pub(super) async fn write_rows(
    connection: &mut PgConnection,
    events: &[&NewEvent],
    chosen: bool,
    emission: Emission<'_>,
) -> Result<Vec<InsertOutcome>, sqlx::Error> {
    let mut registered = emission.registered();
    for _ in 0..STALE_TRIES {
        let is_more = |event: &&NewEvent| event.only_queues || event.options.is_some();
        let is_plain = !chosen && registered.is_empty() && !events.iter().any(is_more);
        let mut rows = Placements::default();
        let answers = if let ([event], true) = (events, is_plain) {
            write_one(&mut *connection, event, &registered, emission).await?
        } else if is_plain {
            write_uncopied(&mut *connection, events, &registered, emission).await?
        } else {
            rows = Placements::of(events, &registered);
            let insert = (&EventColumns::of(events.iter().copied()), &rows, &*registered);
            if chosen {
                write_chosen(&mut *connection, insert, emission).await?
            } else {
                write_copied(&mut *connection, insert, emission).await?
            }
        };
        match answers {
            Some(answers) => return Ok(rows.outcomes(events.len(), &answers)),
            None => registered = emission.read(&mut *connection).await?,
        }
    }
    Err(too_busy())
}

/// As [`write_uncopied`], for one event, which costs Postgres a third less without arrays.
async fn write_one(
    connection: &mut PgConnection,
    event: &NewEvent,
    registered: &QueueRegistry,
    emission: Emission<'_>,
) -> WriteAnswer {
    let HandlerAddress { scope, modifier } = &event.address;
    let due_soon = sqlx::query_scalar!(
        r#"insert into wakeq.events_v2
               (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent)
           select $1::uuid, $2::uuid, $3::text, $4::text, $5::text, $6::text, due.at,
                  wakeq.wake_at(due.at, statement_timestamp(), $10, $11), $9::text
             from wakeq.queue_registry,
                  lateral (select coalesce($7::timestamptz, now() + $8::float8 * interval '1 second')) as due (at)
            where version = $12
        returning delay_until <= clock_timestamp() + $10 as "due_soon!""#,
        event.id.0,
        scope.canvas.0,
        scope.module.as_str(),
        scope.name.as_str(),
        modifier.as_str(),
        event.value,
        moment(event.due),
        delay_s(event.due),
        event.metadata.traceparent.as_ref().map(ToString::to_string),
        interval(emission.timing.horizon),
        interval(emission.timing.grace),
        registered.version,
    )
    .fetch_optional(connection)
    .await?;
    Ok(due_soon.map(|due_soon| [(1, (due_soon, None))].into()))
}

/// Inserts events while no queue is registered. The columns are unnested for each row of the
/// registry, not joined with it: a join would store all of them once more.
async fn write_uncopied(
    connection: &mut PgConnection,
    events: &[&NewEvent],
    registered: &QueueRegistry,
    emission: Emission<'_>,
) -> WriteAnswer {
    let new = EventColumns::of(events.iter().copied()).shortened();
    let inserted = query_rows!(
        new,
        emission,
        r#"with registry as (
               select version from wakeq.queue_registry where version = $13
           ), written as (
               insert into wakeq.events_v2
                   (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent)
               select new.id, ($3::uuid[])[handler], (select $4::text[]::wakeq.name[])[handler],
                      (select $5::text[]::wakeq.name[])[handler], (select $6::text[]::wakeq.name[])[handler],
                      new.value, due.at, wakeq.wake_at(due.at, statement_timestamp(), $11, $12),
                      case when new.traceparent is null
                           then (select ($10::text[])[1]::wakeq.traceparent where cardinality($10::text[]) = 1)
                           else new.traceparent::wakeq.traceparent end
                 from (select unnest($1::uuid[]) as id, unnest($2::integer[]) as handler, unnest($7::text[]) as value,
                              unnest($8::timestamptz[]) as moment, unnest($9::float8[]) as delay_s,
                              unnest($10::text[]) as traceparent
                         from registry) as new,
                      lateral (select coalesce(new.moment, now() + new.delay_s * interval '1 second', now())) as due (at)
           )
           select now() as "now!", clock_timestamp() + $11 as "horizon!" from registry"#,
        registered.version,
    )
    .fetch_optional(connection)
    .await?;
    Ok(inserted.map(|inserted| {
        let due_soon = |event: &&NewEvent| event.due.at(inserted.now) <= inserted.horizon;
        (1..).zip(events.iter().map(|event| (due_soon(event), None))).collect()
    }))
}

/// Inserts events and their copies.
async fn write_copied(
    connection: &mut PgConnection,
    (new, rows, registered): (&EventColumns<'_>, &Placements, &QueueRegistry),
    emission: Emission<'_>,
) -> WriteAnswer {
    let answers = query_rows!(
        new,
        emission,
        r#"with registry as (
               select version from wakeq.queue_registry where version = $13
           ), new as (
               select new.*, ($3::uuid[])[handler] as canvas_id, (select $4::text[]::wakeq.name[])[handler] as module,
                      (select $5::text[]::wakeq.name[])[handler] as name,
                      (select $6::text[]::wakeq.name[])[handler] as modifier,
                      coalesce(moment, now() + delay_s * interval '1 second') as due
                 from unnest($1::uuid[], $2::integer[], $7::text[], $8::timestamptz[], $9::float8[], $10::text[],
                             $14::text[], $15::text[], $16::text[]) with ordinality
                      as new (id, handler, value, moment, delay_s, traceparent, ids, queues, options, position),
                      registry
           ), written as (
               insert into wakeq.events_v2
                   (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent, queue, origin, options)
               select r.id, new.canvas_id, new.module, new.name, new.modifier, new.value, new.due,
                      wakeq.wake_at(new.due, statement_timestamp(), $11, $12), new.traceparent, r.queue,
                      case when r.queue is not null then new.id end,
                      case when r.queue is null then new.options::jsonb end
                 from new, unnest(new.ids::uuid[], new.queues::text[]) as r (id, queue)
           )
           select position as "position!", due <= clock_timestamp() + $11 as "due_soon!" from new"#,
        registered.version,
        &rows.ids,
        &rows.queues,
        new.options.as_slice() as &[Option<String>],
    )
    .fetch_all(connection)
    .await?;
    if answers.is_empty() && !new.ids.is_empty() {
        return Ok(None);
    }
    Ok(Some(answers.into_iter().map(|row| (row.position, (row.due_soon, None))).collect()))
}

/// Inserts those events whose chosen ids are new, with their copies.
async fn write_chosen(
    connection: &mut PgConnection,
    (new, rows, registered): (&EventColumns<'_>, &Placements, &QueueRegistry),
    emission: Emission<'_>,
) -> WriteAnswer {
    let answers = query_rows!(
        new,
        emission,
        r#"with registry as (
               select version from wakeq.queue_registry where version = $13
           ), new as (
               select new.*, ($3::uuid[])[handler] as canvas_id, (select $4::text[]::wakeq.name[])[handler] as module,
                      (select $5::text[]::wakeq.name[])[handler] as name,
                      (select $6::text[]::wakeq.name[])[handler] as modifier,
                      coalesce(moment, now() + delay_s * interval '1 second') as due
                 from unnest($1::uuid[], $2::integer[], $7::text[], $8::timestamptz[], $9::float8[], $10::text[],
                             $14::text[], $15::text[], $16::text[]) with ordinality
                      as new (id, handler, value, moment, delay_s, traceparent, ids, queues, options, position),
                      registry
           ), known as (
               insert into wakeq.emitted_ids (id, canvas_id, due_at, module, name)
               select id, canvas_id, greatest(now(), due), module, name from new
                where not exists (select from wakeq.events_v2 e where e.id = new.id and e.canvas_id = new.canvas_id offset 0)
                  and not exists (select from wakeq.dead_events d where d.canvas_id = new.canvas_id and d.id = new.id offset 0)
                order by id
                   on conflict do nothing returning id
           ), written as (
               insert into wakeq.events_v2
                   (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent, queue, origin, options)
               select r.id, new.canvas_id, new.module, new.name, new.modifier, new.value, new.due,
                      wakeq.wake_at(new.due, statement_timestamp(), $11, $12), new.traceparent, r.queue,
                      case when r.queue is not null then new.id end,
                      case when r.queue is null then new.options::jsonb end
                 from new join known on known.id = new.id,
                      unnest(new.ids::uuid[], new.queues::text[]) as r (id, queue)
           )
           select new.position, new.due <= clock_timestamp() + $11 as due_soon
             from registry left join (new join known on known.id = new.id) on true"#,
        registered.version,
        &rows.ids,
        &rows.queues,
        new.options.as_slice() as &[Option<String>],
    )
    .fetch_all(connection)
    .await?;
    if answers.is_empty() {
        return Ok(None);
    }
    let known = answers.into_iter().filter_map(|row| Some((row.position?, (row.due_soon?, None))));
    Ok(Some(known.collect()))
}

/// Appends events to the chains of their objects, whose rows are locked.
pub(super) async fn write_linked(
    transaction: &mut PgConnection,
    events: &[&NewEvent],
    (rows, registered): (&Placements, &QueueRegistry),
    emission: Emission<'_>,
) -> WriteAnswer {
    let new = EventColumns::of(events.iter().copied());
    let objects: Vec<String> =
        events.iter().filter_map(|event| Some(event.object.as_ref()?.to_string())).collect();
    let answers = query_rows!(
        new,
        emission,
        r#"with numbered as materialized (
               select new.*, nextval('wakeq.event_seq') as seq
                 from (select new.*, ($3::uuid[])[handler] as canvas_id,
                              (select $4::text[]::wakeq.name[])[handler] as module,
                              (select $5::text[]::wakeq.name[])[handler] as name,
                              (select $6::text[]::wakeq.name[])[handler] as modifier,
                              coalesce(moment, now() + delay_s * interval '1 second') as due
                         from unnest($1::uuid[], $2::integer[], $7::text[], $8::timestamptz[], $9::float8[], $10::text[],
                                     $13::text[], $15::text[], $16::text[], $17::text[]) with ordinality
                              as new (id, handler, value, moment, delay_s, traceparent, object, ids, queues, options,
                                      position),
                              wakeq.queue_registry
                        where version = $14
                        order by position) as new
           ), linked as (
               select n.*, coalesce(lag(n.seq) over (partition by n.canvas_id, n.object order by n.position),
                                    o.last_seq) as prev
                 from numbered n cross join lateral (
                      select o.last_seq from wakeq.objects o
                       where o.canvas_id = n.canvas_id and o.object = n.object offset 0) as o
           ), moved as (
               update wakeq.objects o set last_seq = latest.seq
                 from (select canvas_id, object, max(seq) as seq from linked group by canvas_id, object) as latest
                where o.canvas_id = any (array[latest.canvas_id]) and o.object = latest.object
           ), written as (
               insert into wakeq.events_v2
                   (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent, object, seq, prev,
                    queue, origin, options)
               select r.id, l.canvas_id, l.module, l.name, l.modifier, l.value, l.due,
                      wakeq.wake_at(l.due, statement_timestamp(), $11, $12), l.traceparent, l.object, l.seq, l.prev, r.queue,
                      case when r.queue is not null then l.id end, case when r.queue is null then l.options::jsonb end
                 from linked l, unnest(l.ids::uuid[], l.queues::text[]) as r (id, queue)
           )
           select position as "position!", due <= clock_timestamp() + $11 as "due_soon!", seq as "seq!", prev as "prev!"
             from linked"#,
        &objects,
        registered.version,
        &rows.ids,
        &rows.queues,
        new.options.as_slice() as &[Option<String>],
    )
    .fetch_all(transaction)
    .await?;
    if answers.is_empty() {
        return Ok(None);
    }
    let linked = answers.into_iter();
    let linked = linked.map(|row| (row.position, (row.due_soon, Some(Link { id: row.seq, prev: row.prev }))));
    Ok(Some(linked.collect()))
}

impl Sql<'_> {
    pub(in crate::store) async fn die(
        &self,
        claim: Claim,
        cause: Cause,
        error: Option<&str>,
        halts: bool,
        took: Option<Duration>,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "with gone as (
                 delete from wakeq.events_v2
                  where id = $1 and claims::bigint << 32 | nonce = $2 and locked_at is not null and cancelled_by is null
              returning *
             ), halted as (
                 insert into wakeq.halted_lanes (canvas_id, object, module, name, queue, event_id, seq, prev)
                 select canvas_id, object, module, name, queue, id, seq, prev from gone where object is not null and $5
                     on conflict do nothing
             ), passed_over as (
                 insert into wakeq.tombstones (canvas_id, object, seq, queue, prev, cause)
                 select canvas_id, object, seq, coalesce(queue, ''), prev, 'dead' from gone where object is not null and not $5
                     on conflict do nothing
             ), armed as (
                 update wakeq.events_v2 e
                    set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $6, $7), probes = 0
                  where e.id = any (array(
                      select x.id from wakeq.events_v2 x
                       where x.id = any (array(
                           select wakeq.next_in_lane(canvas_id, object, queue, module, name, seq)
                             from gone where object is not null))
                         for update skip locked))
             ), moved as (
                 -- The trigger of the deletion counts it as completed.
                 insert into wakeq.batch_ends (canvas_id, batch, completed, dead)
                 select canvas_id, options ->> 'batch', -1, 1 from gone where options ->> 'batch' is not null
             ), noted as (
                 insert into wakeq.attempts
                        (canvas_id, event_id, number, nonce, outcome, worker, started_at, took_us, error)
                 select canvas_id, id, claims, nonce, 'dead', worker, clock_timestamp() - $8::bigint * interval '1 microsecond',
                        $8, left($4, 1000)
                   from gone where $8 is not null
             )
             insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                            losses, traceparent, last_error, cause, object, seq, prev, queue, origin,
                                            options)
             select id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                    losses, traceparent, coalesce($4, last_error), $3, object, seq, prev, queue, origin, options
               from gone
                 on conflict (canvas_id, id) do update
                set module = excluded.module, name = excluded.name, modifier = excluded.modifier,
                    value = excluded.value, retries = excluded.retries,
                    enqueued_at = excluded.enqueued_at, claims = excluded.claims, losses = excluded.losses,
                    traceparent = excluded.traceparent, last_error = excluded.last_error, cause = excluded.cause,
                    died_at = excluded.died_at, object = excluded.object, seq = excluded.seq, prev = excluded.prev,
                    queue = excluded.queue, origin = excluded.origin, options = excluded.options",
            claim.id.0,
            claim.fence(),
            cause.as_str(),
            error,
            halts,
            interval(self.timing().horizon),
            interval(self.timing().grace),
            took.map(microseconds)
        );
        Ok(self.session().await?.execute("move an event to the dead ones", query).await?.rows_affected() > 0)
    }
}

/// Makes the dead events of a page live again, those that halt their lanes at their own places.
/// Their objects are locked.
pub(super) async fn bring_back(
    transaction: &mut PgConnection,
    filter: &DeadFilter,
    (ids, halting): (&[Uuid], &[Uuid]),
    actor: &Actor,
    timing: &Timing,
) -> Result<Vec<Notification>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"with page as (
               select d.*, d.id = any ($10) as returns
                 from unnest($1::uuid[]) as asked (id) cross join lateral (
                      select * from wakeq.dead_events d where d.canvas_id = $4 and d.id = asked.id offset 0) as d
           ), numbered as materialized (
               select id, canvas_id, object, queue, nextval('wakeq.event_seq') as seq
                 from (select * from page where object is not null and not returns order by seq) as last
           ), links as (
               -- What the consumers of other queues never see stands beside the chain, not in it.
               select n.id, n.seq, coalesce(lag(n.seq) over (partition by n.object, n.queue order by n.seq), o.last_seq) as prev
                 from numbered n cross join lateral (
                      select o.last_seq from wakeq.objects o
                       where o.canvas_id = n.canvas_id and o.object = n.object offset 0) as o
           ), chained as (
               update wakeq.objects o set last_seq = latest.seq
                 from (select canvas_id, object, max(seq) as seq from numbered where queue is null group by canvas_id, object) as latest
                where o.canvas_id = any (array[latest.canvas_id]) and o.object = latest.object
           ), back as (
               insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, enqueued_at, notify_at, claims,
                                            traceparent, last_error, object, seq, prev, queue, origin, options)
               select page.id, canvas_id, module, name, modifier, value, enqueued_at, wakeq.wake_at(now(), now(), $2, $3),
                      claims, traceparent, last_error, object, coalesce(links.seq, page.seq),
                      coalesce(links.prev, page.prev), queue, origin, nullif(options - 'batch', '{}')
                 from page left join links on links.id = page.id
                   on conflict (id) do nothing
            returning id, canvas_id, module, name, object, seq, prev, queue
           ), unseen as (
               -- It has no new copies: its link is missing in every queue.
               insert into wakeq.tombstones (canvas_id, object, seq, queue, prev, cause)
               select canvas_id, object, seq, '*', prev, 'redriven' from back
                where queue is null and object is not null and id <> all ($10)
                   on conflict do nothing
           ), lifted as (
               delete from wakeq.halted_lanes where id = any (array(
                   select h.id from back cross join lateral (
                          select h.id from wakeq.halted_lanes h
                           where h.canvas_id = back.canvas_id and h.event_id = back.id offset 0) as h))
           ), gone as (
               delete from wakeq.dead_events d using back b where d.canvas_id = any (array[b.canvas_id]) and d.id = b.id
           ), logged as (
               insert into wakeq.audit_log (canvas_id, actor, action, module, name, event_id, outcome, times, request_id, detail)
               select $4, $7, 'redrive', case when $5 or $6::uuid is not null then min(module) end,
                      case when $5 or $6 is not null then min(name) end, $6, 'done', count(*), $8, $9
                 from back having count(*) > 0
           )
           select id, canvas_id from back"#,
        ids,
        interval(timing.horizon),
        interval(timing.grace),
        filter.canvas.0,
        filter.scope.is_some(),
        filter.id.map(|id| id.0),
        actor.name(),
        actor.request_id(),
        actor.credential_id(),
        halting
    )
    .fetch_all(transaction)
    .await?;
    let back = rows.into_iter();
    Ok(back.map(|row| Notification::new(EventId(row.id), CanvasId(row.canvas_id))).collect())
}
