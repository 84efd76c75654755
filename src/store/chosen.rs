//! Emit with ids that callers chose: rows into `events_v2`, and the ids into `emitted_ids`, so that
//! none is emitted twice.

use std::collections::HashMap;

use sqlx::postgres::PgConnection;

use super::insert::{Columns, InsertOutcome, NewEvent};
use super::queues::{Emission, Placements, QueueRegistry, STALE_TRIES, too_busy};
use super::session::interval;
use crate::event::{EventId, Timestamp};

/// Inserts one event whose id the caller chose, unless it is known.
pub(super) async fn insert_chosen_row(
    connection: &mut PgConnection,
    event: &NewEvent,
    emission: Emission<'_>,
) -> Result<InsertOutcome, sqlx::Error> {
    let mut new = insert_chosen_rows(connection, &[event], emission).await?;
    Ok(new.remove(&event.id).unwrap_or(InsertOutcome::Known))
}

/// Inserts events with chosen ids, all different, and returns those that are new. An event may
/// outlive its row in `emitted_ids` (it still waits, or is dead and may be redriven), so
/// `events_v2` and `dead_events` are checked as well. Several events need a transaction that is all
/// or nothing: a concurrent emit of any of the ids makes all of them wait.
pub(super) async fn insert_chosen_rows(
    connection: &mut PgConnection,
    events: &[&NewEvent],
    emission: Emission<'_>,
) -> Result<HashMap<EventId, InsertOutcome>, sqlx::Error> {
    let new = Columns::of(events.iter().copied());
    let mut registered = emission.registered();
    for _ in 0..STALE_TRIES {
        let rows = Placements::of(events.iter().copied(), &registered);
        match insert_chosen_copied(&mut *connection, &new, &rows, &registered, emission).await? {
            Some(due_soon) => {
                let answers = (1..).zip(events).filter_map(|(position, event)| {
                    let due_soon = *due_soon.get(&position)?;
                    Some((event.id, rows.inserted(position, due_soon, None)))
                });
                return Ok(answers.collect());
            }
            None => registered = emission.read(&mut *connection).await?,
        }
    }
    Err(too_busy())
}

/// Inserts those events that are new, with their copies: their positions, and whether they are due
/// soon. `None`: the registered queues have changed.
async fn insert_chosen_copied(
    connection: &mut PgConnection,
    new: &Columns,
    rows: &Placements,
    registered: &QueueRegistry,
    emission: Emission<'_>,
) -> Result<Option<HashMap<i64, bool>>, sqlx::Error> {
    let answers = sqlx::query!(
        r#"with registry as (
               select version from wakeq.queue_registry where version = $12
           ), new as (
               select new.*, coalesce(moment, now() + delay_s * interval '1 second') as due
                 from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[],
                             $7::timestamptz[], $8::float8[], $9::text[], $13::text[], $14::text[]) with ordinality
                      as new (id, canvas_id, module, name, modifier, value, moment, delay_s, traceparent, ids, queues,
                              position),
                      registry
           ), known as (
               insert into wakeq.emitted_ids (id, canvas_id, due_at)
               select id, canvas_id, greatest(now(), due) from new
                where not exists (select from wakeq.events_v2 e where e.id = new.id and e.canvas_id = new.canvas_id)
                  and not exists (select from wakeq.dead_events d where d.canvas_id = new.canvas_id and d.id = new.id)
                order by id
                   on conflict do nothing returning id
           ), written as (
               insert into wakeq.events_v2
                   (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent, queue, origin)
               select r.id, new.canvas_id, new.module, new.name, new.modifier, new.value, new.due,
                      wakeq.wake_at(new.due, clock_timestamp(), $10, $11), new.traceparent, r.queue,
                      case when r.queue is not null then new.id end
                 from new join known on known.id = new.id,
                      unnest(new.ids::uuid[], new.queues::text[]) as r (id, queue)
           )
           select new.position, new.due <= clock_timestamp() + $10 as due_soon
             from registry left join (new join known on known.id = new.id) on true"#,
        &new.ids,
        &new.canvases,
        &new.modules,
        &new.names,
        &new.modifiers,
        &new.values,
        new.moments.as_slice() as &[Option<Timestamp>],
        &new.delays_s,
        &new.traces,
        interval(emission.timing.horizon),
        interval(emission.timing.grace),
        registered.version,
        &rows.ids,
        &rows.queues,
    )
    .fetch_all(connection)
    .await?;
    if answers.is_empty() {
        return Ok(None);
    }
    Ok(Some(answers.into_iter().filter_map(|row| Some((row.position?, row.due_soon?))).collect()))
}
