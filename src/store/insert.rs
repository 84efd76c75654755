//! Emit: rows into `events_v2`, and chosen ids into `emitted_ids`.

use std::sync::Arc;

use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::session::interval;
use super::{Store, StoreError};
use crate::event::{Due, EventId, HandlerAddress, Timestamp, Timing, Traceparent};

/// Most rows in one statement.
const PAGE: usize = 1000;

/// A checked event on its way into the table.
#[derive(Clone, Debug)]
pub(crate) struct NewEvent {
    pub(crate) id: EventId,
    pub(crate) address: HandlerAddress,
    pub(crate) value: String,
    pub(crate) due: Due,
    pub(crate) traceparent: Traceparent,
}

/// What became of an event's insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// The row is there; whether it is due within the horizon, so that a notification has to follow.
    New { due_soon: bool },
    /// The chosen id was emitted before, on the same canvas.
    Known,
    /// The chosen id belongs to an event of another canvas.
    Foreign,
}

impl Store {
    /// Inserts events whose ids were made here, all or none, in one statement.
    pub(crate) async fn insert(&self, events: &[Arc<NewEvent>]) -> Result<Vec<Inserted>, StoreError> {
        let mut session = self.session().await?;
        let timing = self.timing();
        let answer = session.limit(|connection| insert_rows(connection, events, timing)).await;
        session.answered("insert events", answer)
    }

    /// Inserts events in one transaction, those with `chosen` ids one by one. Nothing is kept if a chosen id is foreign.
    pub(crate) async fn insert_all(
        &self,
        events: &[NewEvent],
        chosen: &[bool],
    ) -> Result<Vec<Inserted>, StoreError> {
        let mut session = self.session().await?;
        let timing = self.timing();
        let answer =
            session.limit(|connection| insert_in_one_transaction(connection, events, chosen, timing)).await;
        session.answered("insert events in one transaction", answer)
    }

    /// Inserts an event whose id the caller chose, unless it is known.
    pub(crate) async fn insert_chosen(&self, event: &NewEvent) -> Result<Inserted, StoreError> {
        let mut session = self.session().await?;
        let timing = self.timing();
        let answer = session.limit(|connection| insert_chosen_row(connection, event, timing)).await;
        session.answered("insert an event by its chosen id", answer)
    }
}

/// One event, on any connection: also inside a caller's transaction.
pub(crate) async fn insert_one(
    connection: &mut PgConnection,
    event: &Arc<NewEvent>,
    chosen: bool,
    timing: &Timing,
) -> Result<Inserted, sqlx::Error> {
    if chosen {
        return insert_chosen_row(connection, event, timing).await;
    }
    let inserted = insert_rows(connection, std::slice::from_ref(event), timing).await?;
    Ok(inserted.first().copied().unwrap_or(Inserted::New { due_soon: true }))
}

async fn insert_in_one_transaction(
    connection: &mut PgConnection,
    events: &[NewEvent],
    chosen: &[bool],
    timing: &Timing,
) -> Result<Vec<Inserted>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let mut inserted = vec![Inserted::Known; events.len()];
    let (mut alone, together): (Vec<usize>, Vec<usize>) = (0..events.len()).partition(|at| chosen[*at]);
    // Two calls with the same ids wait for each other in one order only.
    alone.sort_by_key(|at| events[*at].id);
    for at in alone {
        inserted[at] = insert_chosen_row(&mut transaction, &events[at], timing).await?;
    }
    for page in together.chunks(PAGE) {
        let rows: Vec<_> = page.iter().map(|at| Arc::new(events[*at].clone())).collect();
        let answers = insert_rows(&mut transaction, &rows, timing).await?;
        page.iter().zip(answers).for_each(|(at, answer)| inserted[*at] = answer);
    }
    if inserted.contains(&Inserted::Foreign) {
        transaction.rollback().await?;
    } else {
        transaction.commit().await?;
    }
    Ok(inserted)
}

/// The statement behind [`Store::insert`], on any connection: also inside a caller's transaction.
async fn insert_rows(
    connection: &mut PgConnection,
    events: &[Arc<NewEvent>],
    timing: &Timing,
) -> Result<Vec<Inserted>, sqlx::Error> {
    let ids: Vec<_> = events.iter().map(|event| event.id.0).collect();
    let canvases: Vec<_> = events.iter().map(|event| event.address.scope.canvas.0).collect();
    let modules: Vec<_> = events.iter().map(|event| event.address.scope.module.to_string()).collect();
    let names: Vec<_> = events.iter().map(|event| event.address.scope.name.to_string()).collect();
    let modifiers: Vec<_> = events.iter().map(|event| event.address.modifier.to_string()).collect();
    let values: Vec<_> = events.iter().map(|event| event.value.clone()).collect();
    let moments: Vec<_> = events.iter().map(|event| moment(event.due)).collect();
    let delays: Vec<_> = events.iter().map(|event| delay_s(event.due)).collect();
    let traces: Vec<_> = events.iter().map(|event| event.traceparent.to_string()).collect();
    let rows = sqlx::query!(
        r#"insert into wakeq.events_v2
               (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent)
           select new.id, new.canvas_id, new.module, new.name, new.modifier, new.value, due.at,
                  wakeq.wake_at(due.at, clock_timestamp(), $10, $11), new.traceparent
             from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[],
                         $7::timestamptz[], $8::float8[], $9::text[])
                  as new (id, canvas_id, module, name, modifier, value, moment, delay_s, traceparent),
                  lateral (select coalesce(new.moment, now() + new.delay_s * interval '1 second')) as due (at)
        returning id, delay_until <= clock_timestamp() + $10 as "due_soon!""#,
        &ids,
        &canvases,
        &modules,
        &names,
        &modifiers,
        &values,
        moments.as_slice() as &[Option<Timestamp>],
        &delays,
        &traces,
        interval(timing.horizon),
        interval(timing.grace),
    )
    .fetch_all(connection)
    .await?;
    let due_soon: std::collections::HashMap<_, _> =
        rows.into_iter().map(|row| (row.id, row.due_soon)).collect();
    Ok(ids.iter().map(|id| Inserted::New { due_soon: due_soon.get(id).copied().unwrap_or(true) }).collect())
}

/// The statement behind [`Store::insert_chosen`]. An id may outlive its remembrance: its event waits, or its maker did
/// not choose it.
async fn insert_chosen_row(
    connection: &mut PgConnection,
    event: &NewEvent,
    timing: &Timing,
) -> Result<Inserted, sqlx::Error> {
    let canvas = event.address.scope.canvas.0;
    let row = sqlx::query!(
        r#"with known as (
               insert into wakeq.emitted_ids (id, canvas_id)
               select $1::uuid, $2::uuid where not exists (select from wakeq.events_v2 where id = $1)
                   on conflict do nothing returning id
           ), due (at) as (
               select coalesce($7::timestamptz, now() + $8::float8 * interval '1 second')
           )
           insert into wakeq.events_v2
               (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent)
           select known.id, $2, $3, $4, $5, $6, due.at, wakeq.wake_at(due.at, clock_timestamp(), $10, $11), $9
             from known, due
        returning delay_until <= clock_timestamp() + $10 as "due_soon!""#,
        event.id.0,
        canvas,
        event.address.scope.module.as_str() as _,
        event.address.scope.name.as_str() as _,
        event.address.modifier.as_str() as _,
        event.value.as_str() as _,
        moment(event.due),
        delay_s(event.due),
        event.traceparent.as_str() as _,
        interval(timing.horizon),
        interval(timing.grace),
    )
    .fetch_optional(&mut *connection)
    .await?;
    if let Some(row) = row {
        return Ok(Inserted::New { due_soon: row.due_soon });
    }
    let owner = sqlx::query_scalar!(
        "select coalesce((select canvas_id from wakeq.events_v2 where id = $1),
                         (select canvas_id from wakeq.emitted_ids where id = $1))",
        event.id.0
    )
    .fetch_one(connection)
    .await?;
    Ok(if owner == Some(canvas) { Inserted::Known } else { Inserted::Foreign })
}

fn moment(due: Due) -> Option<Timestamp> {
    match due {
        Due::At(moment) => Some(moment),
        Due::Now | Due::After(_) => None,
    }
}

fn delay_s(due: Due) -> f64 {
    match due {
        Due::After(delay) => delay.as_secs_f64(),
        Due::Now | Due::At(_) => 0.0,
    }
}
