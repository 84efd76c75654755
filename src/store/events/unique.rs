//! Emit with unique keys. The function `wakeq.write_unique` of the migrations decides about one
//! event; here its statement is sent for several, in an order in which two calls with the same keys
//! can't deadlock.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::columns::EventColumns;
use super::outcome::{InsertOutcome, InsertedRows};
use super::pages::pages;
use super::placements::Placements;
use crate::event::{CanvasId, EventId, NewEvent, OnConflict, Timestamp, Unique, UniqueOutcome};
use crate::store::kernel::{Emission, QueueRegistry, STALE_TRIES, Sql, StoreError, interval, too_busy};

/// What `wakeq.write_unique` returned for the event at a position, from 1.
struct UniqueRow {
    position: i64,
    event_id: Uuid,
    outcome: String,
    due: Option<Timestamp>,
    is_due_soon: bool,
    room: Option<String>,
}

impl Sql<'_> {
    pub(in crate::store) async fn unique_key(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<String>, StoreError> {
        let query = sqlx::query_scalar!(
            "select unique_key from wakeq.events_v2 where id = $1 and canvas_id = $2",
            id.0,
            canvas.0
        );
        Ok(self.session().await?.optional("look for the unique key of an event", query).await?.flatten())
    }
}

/// Inserts those events that have unique keys; of two with the same key the earlier one first.
/// Their outcomes go into `inserted`; the other entries stay.
pub(super) async fn add_unique(
    transaction: &mut PgConnection,
    events: &[NewEvent],
    inserted: &mut [InsertOutcome],
    emission: Emission<'_>,
) -> Result<(), sqlx::Error> {
    let mut keyed: Vec<usize> = (0..events.len()).filter(|at| events[*at].unique.is_some()).collect();
    keyed.sort_by_key(|at| (&events[*at].address.scope, events[*at].unique.as_deref().map(Unique::text)));
    for page in pages(&keyed, events) {
        let rows: Vec<&NewEvent> = page.iter().map(|at| &events[*at]).collect();
        let outcomes = write_unique(&mut *transaction, &rows, emission).await?;
        page.iter().zip(outcomes).for_each(|(at, outcome)| inserted[*at] = outcome);
    }
    Ok(())
}

/// Inserts events with unique keys, or does what they say to the events that have the keys, on any
/// connection: also inside a caller's transaction.
pub(super) async fn write_unique(
    connection: &mut PgConnection,
    events: &[&NewEvent],
    emission: Emission<'_>,
) -> Result<Vec<InsertOutcome>, sqlx::Error> {
    let mut registered = emission.registered();
    for _ in 0..STALE_TRIES {
        let rows = Placements::of(events, &registered);
        let answers = write(&mut *connection, events, (&rows, &registered), emission).await?;
        if answers.len() == events.len() {
            return Ok(outcomes(events.len(), &rows, answers));
        }
        // The registered queues have changed, so that nothing was inserted.
        registered = emission.read(&mut *connection).await?;
    }
    Err(too_busy())
}

async fn write(
    connection: &mut PgConnection,
    events: &[&NewEvent],
    (rows, registered): (&Placements, &QueueRegistry),
    emission: Emission<'_>,
) -> Result<Vec<UniqueRow>, sqlx::Error> {
    let new = EventColumns::of(events.iter().copied());
    let keys = KeyColumns::of(events);
    sqlx::query_as!(
        UniqueRow,
        r#"with registry as (
               select version from wakeq.queue_registry where version = $13
           ), new as materialized (
               select new.*, ($3::uuid[])[handler] as canvas_id, ($4::text[])[handler] as module,
                      ($5::text[])[handler] as name, ($6::text[])[handler] as modifier,
                      coalesce(moment, now() + delay_s * interval '1 second') as due
                 from registry,
                      unnest($1::uuid[], $2::integer[], $7::text[], $8::timestamptz[], $9::float8[], $10::text[],
                             $14::text[], $15::text[], $16::text[], $17::float8[], $18::text[], $19::float8[], $20::float8[],
                             $22::text[])
                      with ordinality as new (id, handler, value, moment, delay_s, traceparent, ids, queues, key, held_s,
                                              on_conflict, postponed_s, at_most_s, options, position)
                order by position
           )
           select new.position as "position!", w.event_id as "event_id!", w.outcome as "outcome!", w.due as "due?",
                  w.is_due_soon as "is_due_soon!", w.room as "room?"
             from new cross join lateral wakeq.write_unique(
                      row(new.id, new.canvas_id, new.module, new.name, new.modifier, new.value, new.due, new.traceparent,
                          new.key, new.held_s * interval '1 second', new.on_conflict, new.postponed_s * interval '1 second',
                          new.at_most_s * interval '1 second', new.options::jsonb)::wakeq.unique_event,
                      new.ids::uuid[], new.queues::text[], $21, $11, $12) as w"#,
        &new.ids,
        &new.handlers,
        &new.canvases,
        new.modules.as_slice() as &[&str],
        new.names.as_slice() as &[&str],
        new.modifiers.as_slice() as &[&str],
        new.values.as_slice() as &[&str],
        new.moments.as_slice() as &[Option<Timestamp>],
        &new.delays_s,
        new.traces.as_slice() as &[Option<&str>],
        interval(emission.timing.horizon),
        interval(emission.timing.grace),
        registered.version,
        &rows.ids,
        &rows.queues,
        keys.texts.as_slice() as &[&str],
        keys.held_s.as_slice() as &[Option<f64>],
        keys.conflicts.as_slice() as &[&str],
        keys.postponed_s.as_slice() as &[Option<f64>],
        keys.at_most_s.as_slice() as &[Option<f64>],
        emission.goes_on,
        new.options.as_slice() as &[Option<String>]
    )
    .fetch_all(connection)
    .await
}

fn outcomes(events: usize, rows: &Placements, answers: Vec<UniqueRow>) -> Vec<InsertOutcome> {
    let is_new = |answer: &&UniqueRow| answer.outcome == "inserted";
    let new: InsertedRows =
        answers.iter().filter(is_new).map(|new| (new.position, (new.is_due_soon, None))).collect();
    let mut outcomes = rows.outcomes(events, &new);
    for UniqueRow { position, event_id, outcome, due, is_due_soon, room } in answers {
        let outcome = UniqueOutcome::parse(&outcome, due);
        let at = usize::try_from(position - 1).ok().and_then(|at| outcomes.get_mut(at));
        if let Some(at) = at.filter(|_| outcome != UniqueOutcome::Inserted) {
            *at = InsertOutcome::Stands { id: EventId(event_id), outcome, due_soon: is_due_soon, room };
        }
    }
    outcomes
}

/// The keys of events as columns, for `unnest`.
#[derive(Default)]
struct KeyColumns<'a> {
    texts: Vec<&'a str>,
    held_s: Vec<Option<f64>>,
    conflicts: Vec<&'static str>,
    postponed_s: Vec<Option<f64>>,
    at_most_s: Vec<Option<f64>>,
}

impl<'a> KeyColumns<'a> {
    fn of(events: &[&'a NewEvent]) -> Self {
        let mut columns = Self::default();
        for event in events {
            let unique = event.unique.as_deref();
            let conflict = unique.map(Unique::conflict).unwrap_or_default();
            let (by, at_most) = conflict.waits().unzip();
            columns.texts.push(unique.map(Unique::text).unwrap_or_default());
            columns.held_s.push(unique.and_then(Unique::held_for).map(|time| time.as_secs_f64()));
            columns.conflicts.push(OnConflict::as_str(conflict));
            columns.postponed_s.push(by.map(|by: Duration| by.as_secs_f64()));
            columns.at_most_s.push(at_most.map(|at_most: Duration| at_most.as_secs_f64()));
        }
        columns
    }
}
