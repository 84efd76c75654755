//! Emit on objects: events that become links of their objects' chains.
//!
//! An object's row is locked first, and only the next statement takes sequence numbers, so that
//! they grow along the chain. Several objects are locked in the order of their keys. The caller
//! decides which object an event is on; this file decides its position there.

use std::collections::{BTreeSet, HashMap};

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::columns::EventColumns;
use super::outcome::InsertOutcome;
use super::pages::pages;
use super::placements::Placements;
use super::repeats::check_repeats;
use super::rows::write_linked;
use crate::event::{CanvasId, EventId, NewEvent, ObjectKey, Timestamp};
use crate::store::kernel::{Emission, QueueRegistry, STALE_TRIES, too_busy};

/// How often to create objects that are gone again by the time they are to be locked.
const MAKE_TRIES: usize = 3;

/// Statements of a transaction for objects, besides the pages of its events: three for their rows,
/// one for the state.
pub(super) const STATEMENTS: usize = 4;

/// Inserts those events that are on objects, in their order. Their outcomes go into `inserted`; the
/// other entries stay.
pub(super) async fn add_linked(
    transaction: &mut PgConnection,
    events: &[NewEvent],
    chosen: &[bool],
    inserted: &mut [InsertOutcome],
    emission: Emission<'_>,
) -> Result<(), sqlx::Error> {
    let on_objects: Vec<usize> = (0..events.len()).filter(|at| events[*at].object.is_some()).collect();
    if on_objects.is_empty() {
        return Ok(());
    }
    lock(&mut *transaction, on_objects.iter().filter_map(|at| place(&events[*at])).collect()).await?;
    for page in pages(&on_objects, events) {
        let new = remember_chosen(&mut *transaction, events, chosen, page).await?;
        // Before the others take numbers.
        let known = page.iter().filter(|at| chosen[**at] && new.binary_search(at).is_err());
        check_repeats(&mut *transaction, known.map(|at| &events[*at]).collect()).await?;
        let rows: Vec<&NewEvent> = new.iter().map(|at| &events[*at]).collect();
        let mut linked = link(&mut *transaction, &rows, emission).await?;
        for at in new {
            // It was only for queues and no queue takes it, so it is not in the chain.
            inserted[at] = linked.remove(&events[at].id).unwrap_or(InsertOutcome::new(false));
        }
    }
    Ok(())
}

fn place(event: &NewEvent) -> Option<(CanvasId, &ObjectKey)> {
    Some((event.address.scope.canvas, event.object.as_ref()?))
}

/// Locks the rows of objects, in the order of their keys; creates those that are missing.
pub(super) async fn lock(
    transaction: &mut PgConnection,
    objects: BTreeSet<(CanvasId, &ObjectKey)>,
) -> Result<(), sqlx::Error> {
    let (canvases, keys): (Vec<Uuid>, Vec<String>) =
        objects.iter().map(|(canvas, key)| (canvas.0, key.to_string())).unzip();
    // A single one nearly always exists. Of several, the existing ones must not be locked before
    // the others are created: creating a row may wait for a transaction that waits for a row locked
    // here.
    if keys.len() == 1 && lock_rows(&mut *transaction, &canvases, &keys).await? == 1 {
        return Ok(());
    }
    for _ in 0..MAKE_TRIES {
        sqlx::query!(
            "insert into wakeq.objects (canvas_id, object)
             select * from unnest($1::uuid[], $2::text[]) as new (canvas_id, object) order by canvas_id, object
                 on conflict do nothing",
            &canvases,
            &keys
        )
        .execute(&mut *transaction)
        .await?;
        // An idle one may have been deleted between the two statements.
        if lock_rows(&mut *transaction, &canvases, &keys).await? == keys.len() {
            return Ok(());
        }
    }
    Err(too_busy())
}

async fn lock_rows(
    transaction: &mut PgConnection,
    canvases: &[Uuid],
    keys: &[String],
) -> Result<usize, sqlx::Error> {
    let rows = sqlx::query_scalar!(
        r#"select o.last_seq
             from unnest($1::uuid[], $2::text[]) as wanted (canvas_id, object)
             join wakeq.objects o on o.canvas_id = any (array[wanted.canvas_id]) and o.object = wanted.object
            order by wanted.canvas_id, wanted.object for update of o"#,
        canvases,
        keys
    )
    .fetch_all(transaction)
    .await?;
    Ok(rows.len())
}

/// The events of a page that are new: those with generated ids, and those whose chosen ids their
/// canvas has not emitted before. A chosen id counts once.
async fn remember_chosen(
    transaction: &mut PgConnection,
    events: &[NewEvent],
    chosen: &[bool],
    page: &[usize],
) -> Result<Vec<usize>, sqlx::Error> {
    if !page.iter().any(|at| chosen[*at]) {
        return Ok(page.to_vec());
    }
    let by_choice = EventColumns::of(page.iter().filter(|at| chosen[**at]).map(|at| &events[*at]));
    let new = sqlx::query_scalar!(
        "insert into wakeq.emitted_ids (id, canvas_id, due_at, module, name)
         select new.id, new.canvas_id, greatest(now(), coalesce(new.moment, now() + new.delay_s * interval '1 second')),
                new.module, new.name
           from (select distinct on (id) *, ($3::uuid[])[handler] as canvas_id,
                        (select $6::text[]::wakeq.name[])[handler] as module,
                        (select $7::text[]::wakeq.name[])[handler] as name
                   from unnest($1::uuid[], $2::integer[], $4::timestamptz[], $5::float8[])
                        as new (id, handler, moment, delay_s) order by id) as new
          where not exists (select from wakeq.events_v2 e where e.id = new.id and e.canvas_id = new.canvas_id offset 0)
            and not exists (select from wakeq.dead_events d where d.canvas_id = new.canvas_id and d.id = new.id offset 0)
          order by new.id
             on conflict do nothing
      returning id",
        &by_choice.ids,
        &by_choice.handlers,
        &by_choice.canvases,
        by_choice.moments.as_slice() as &[Option<Timestamp>],
        &by_choice.delays_s,
        by_choice.modules.as_slice() as &[&str],
        by_choice.names.as_slice() as &[&str],
    )
    .fetch_all(transaction)
    .await?;
    let mut new: BTreeSet<Uuid> = new.into_iter().collect();
    let is_new = |at: &usize| !chosen[*at] || new.remove(&events[*at].id.0);
    Ok(page.iter().copied().filter(is_new).collect())
}

/// Appends events to the chains of their objects, whose rows are locked. Events that are only for
/// queues, and that no queue takes, are left out.
async fn link(
    transaction: &mut PgConnection,
    events: &[&NewEvent],
    emission: Emission<'_>,
) -> Result<HashMap<EventId, InsertOutcome>, sqlx::Error> {
    let mut registered = emission.registered();
    for _ in 0..STALE_TRIES {
        let wanted = |event: &&&NewEvent| !event.only_queues || !registered.queues(&event.address).is_empty();
        let wanted: Vec<&NewEvent> = events.iter().filter(wanted).copied().collect();
        if events.is_empty() || wanted.is_empty() && is_present(&mut *transaction, &registered).await? {
            return Ok(HashMap::new());
        }
        let rows = Placements::of(&wanted, &registered);
        let inserted = write_linked(&mut *transaction, &wanted, (&rows, &registered), emission).await?;
        if let Some(inserted) = inserted {
            let outcomes = rows.outcomes(wanted.len(), &inserted);
            return Ok(wanted.iter().map(|event| event.id).zip(outcomes).collect());
        }
        registered = emission.read(&mut *transaction).await?;
    }
    Err(too_busy())
}

async fn is_present(transaction: &mut PgConnection, registered: &QueueRegistry) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select exists (select from wakeq.queue_registry where version = $1) as "present!""#,
        registered.version
    )
    .fetch_one(transaction)
    .await
}
