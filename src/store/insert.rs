//! Emit: rows into `events_v2`, alone, in batches and in transactions.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::chosen::{insert_chosen_row, insert_chosen_rows};
use super::log::{LOG_STATEMENTS, append_emitted, lacks_partition};
use super::queues::{Emission, Placements, QueueRegistry, STALE_TRIES, too_busy};
use super::session::interval;
use super::{Store, StoreError, chains};
use crate::event::{Due, EventId, HandlerAddress, Link, ObjectKey, StreamId, Timestamp, Traceparent};

/// Most rows in one statement.
const PAGE: usize = 1000;
/// Most bytes of values in one statement.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// A checked event that is to be inserted.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Its id.
    pub id: EventId,
    pub(crate) address: HandlerAddress,
    pub(crate) value: String,
    pub(crate) due: Due,
    pub(crate) traceparent: Traceparent,
    /// The object whose chain it is linked into.
    pub object: Option<ObjectKey>,
    /// Only its copies get rows.
    pub(crate) only_queues: bool,
    /// The stream of the log that it is also appended to.
    pub(crate) logged: Option<StreamId>,
}

/// The outcome of an event's insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertOutcome {
    /// Its rows exist.
    New {
        /// Whether it is due within the horizon, so that notifications have to be published.
        due_soon: bool,
        /// Its link, if it is on an object.
        link: Option<Link>,
        /// Its copies in queues.
        copies: Vec<EventId>,
        /// Those copies that are pulled: no worker is notified of them.
        pulled: Vec<EventId>,
    },
    /// The chosen id was already emitted on the same canvas.
    Known,
}

impl InsertOutcome {
    /// The outcome of an event without object or copies.
    pub(super) fn new(due_soon: bool) -> Self {
        Self::New { due_soon, link: None, copies: Vec::new(), pulled: Vec::new() }
    }

    /// The outcome of an event whose rows are known to exist, without anything else being known.
    pub fn unanswered() -> Self {
        Self::new(true)
    }

    /// The link of a new event that is on an object.
    pub(crate) fn link(&self) -> Option<Link> {
        match self {
            Self::New { link, .. } => *link,
            Self::Known => None,
        }
    }

    /// The copies of a new event that is due within the horizon.
    pub(crate) fn due_copies(&self) -> &[EventId] {
        match self {
            Self::New { due_soon: true, copies, .. } => copies,
            Self::New { due_soon: false, .. } | Self::Known => &[],
        }
    }

    /// Those copies of a new event that workers are notified of.
    pub(crate) fn notified_copies(&self) -> impl Iterator<Item = &EventId> {
        let (copies, pulled) = match self {
            Self::New { copies, pulled, .. } => (copies.as_slice(), pulled.as_slice()),
            Self::Known => (&[][..], &[][..]),
        };
        copies.iter().filter(|copy| !pulled.contains(copy))
    }

    /// The copies of a new event.
    pub(crate) fn copies(&self) -> &[EventId] {
        match self {
            Self::New { copies, .. } => copies,
            Self::Known => &[],
        }
    }
}

impl Store {
    /// Inserts events with generated ids and without objects, all or none, in one statement.
    pub(crate) async fn insert(&self, events: &[Arc<NewEvent>]) -> Result<Vec<InsertOutcome>, StoreError> {
        in_memory!(self, insert(events.iter().map(AsRef::as_ref)));
        let mut session = self.session().await?;
        let emission = self.emission();
        let answer = session.limit(|connection| insert_rows(connection, events, emission)).await;
        session.answered("insert events", answer)
    }

    /// Inserts one event in a statement of its own.
    pub(crate) async fn insert_alone(&self, event: &Arc<NewEvent>) -> Result<InsertOutcome, StoreError> {
        let inserted = self.insert(std::slice::from_ref(event)).await?;
        Ok(inserted.into_iter().next().unwrap_or(InsertOutcome::new(true)))
    }

    /// Inserts events in one transaction; `chosen` says which ids the caller chose.
    pub(crate) async fn insert_all(
        &self,
        events: &[NewEvent],
        chosen: &[bool],
    ) -> Result<Vec<InsertOutcome>, StoreError> {
        in_memory!(self, insert_all(events, chosen));
        let inserted = self.insert_all_once(events, chosen).await;
        if !inserted.as_ref().is_err_and(lacks_partition) {
            return inserted;
        }
        // The minute's pass creates the log's partitions long before; this is for deployments where
        // none runs.
        self.add_log_partitions().await?;
        self.insert_all_once(events, chosen).await
    }

    async fn insert_all_once(
        &self,
        events: &[NewEvent],
        chosen: &[bool],
    ) -> Result<Vec<InsertOutcome>, StoreError> {
        let mut session = self.session().await?.for_statements(statements(events));
        let emission = self.emission();
        let answer =
            session.limit(|connection| insert_in_one_transaction(connection, events, chosen, emission)).await;
        session.answered("insert events in one transaction", answer)
    }

    /// Inserts an event whose id the caller chose, unless it is known.
    pub(crate) async fn insert_chosen(&self, event: &NewEvent) -> Result<InsertOutcome, StoreError> {
        in_memory!(self, insert_chosen(event));
        let mut session = self.session().await?;
        let emission = self.emission();
        let answer = session.limit(|connection| insert_chosen_row(connection, event, emission)).await;
        session.answered("insert an event by its chosen id", answer)
    }
}

/// Inserts one event, on any connection: also inside a caller's transaction.
pub(crate) async fn insert_one(
    connection: &mut PgConnection,
    event: &Arc<NewEvent>,
    chosen: bool,
    emission: Emission<'_>,
) -> Result<InsertOutcome, sqlx::Error> {
    if event.object.is_some() || event.logged.is_some() {
        let inserted =
            insert_pages(connection, std::slice::from_ref(event.as_ref()), &[chosen], emission).await?;
        return Ok(inserted.into_iter().next().unwrap_or(InsertOutcome::new(true)));
    }
    if chosen {
        return insert_chosen_row(connection, event, emission).await;
    }
    let inserted = insert_rows(connection, std::slice::from_ref(event), emission).await?;
    Ok(inserted.into_iter().next().unwrap_or(InsertOutcome::new(true)))
}

async fn insert_in_one_transaction(
    connection: &mut PgConnection,
    events: &[NewEvent],
    chosen: &[bool],
    emission: Emission<'_>,
) -> Result<Vec<InsertOutcome>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let inserted = insert_pages(&mut transaction, events, chosen, emission).await?;
    transaction.commit().await?;
    Ok(inserted)
}

/// The statements of [`Store::insert_all`], in a transaction that the caller ends.
pub(super) async fn insert_pages(
    transaction: &mut PgConnection,
    events: &[NewEvent],
    chosen: &[bool],
    emission: Emission<'_>,
) -> Result<Vec<InsertOutcome>, sqlx::Error> {
    let mut inserted = vec![InsertOutcome::Known; events.len()];
    chains::insert_linked(&mut *transaction, events, chosen, &mut inserted, emission).await?;
    let alone = (0..events.len()).filter(|at| events[*at].object.is_none());
    let (mut by_id, together): (Vec<usize>, Vec<usize>) = alone.partition(|at| chosen[*at]);
    // In one order, so that two calls with the same ids can't deadlock.
    by_id.sort_by_key(|at| events[*at].id);
    by_id.dedup_by_key(|at| events[*at].id);
    for page in pages(&by_id, events) {
        let rows: Vec<&NewEvent> = page.iter().map(|at| &events[*at]).collect();
        let mut new = insert_chosen_rows(&mut *transaction, &rows, emission).await?;
        for at in page {
            if let Some(answer) = new.remove(&events[*at].id) {
                inserted[*at] = answer;
            }
        }
    }
    for page in pages(&together, events) {
        let rows: Vec<_> = page.iter().map(|at| Arc::new(events[*at].clone())).collect();
        let answers = insert_rows(&mut *transaction, &rows, emission).await?;
        page.iter().zip(answers).for_each(|(at, answer)| inserted[*at] = answer);
    }
    append_emitted(transaction, events, &inserted).await?;
    Ok(inserted)
}

/// The most statements that a transaction has: begin, objects, log, pages (chosen ids on objects
/// take two each), commit. Each has its own time limit.
pub fn statements(events: &[NewEvent]) -> usize {
    let pages = pages(&(0..events.len()).collect::<Vec<_>>(), events).len();
    let logged = if events.iter().any(|event| event.logged.is_some()) { LOG_STATEMENTS } else { 0 };
    2 + chains::STATEMENTS + logged + (2 + logged) * pages
}

/// Cuts positions into pages of at most [`PAGE`] events and [`PAGE_BYTES`], or one event that is
/// larger.
pub(super) fn pages<'a>(positions: &'a [usize], events: &[NewEvent]) -> Vec<&'a [usize]> {
    let mut pages = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (end, at) in positions.iter().enumerate() {
        let size = events[*at].value.len();
        if end > start && (end - start == PAGE || bytes + size > PAGE_BYTES) {
            pages.push(&positions[start..end]);
            (start, bytes) = (end, 0);
        }
        bytes += size;
    }
    if start < positions.len() {
        pages.push(&positions[start..]);
    }
    pages
}

/// The statement behind [`Store::insert`], on any connection: also inside a caller's transaction.
async fn insert_rows(
    connection: &mut PgConnection,
    events: &[Arc<NewEvent>],
    emission: Emission<'_>,
) -> Result<Vec<InsertOutcome>, sqlx::Error> {
    let new = Columns::of(events.iter().map(AsRef::as_ref));
    let mut registered = emission.registered();
    for _ in 0..STALE_TRIES {
        let inserted = if registered.is_empty() && !events.iter().any(|event| event.only_queues) {
            insert_uncopied(&mut *connection, &new, &registered, emission).await?
        } else {
            let rows = Placements::of(events.iter().map(AsRef::as_ref), &registered);
            insert_copied(&mut *connection, &new, &rows, &registered, emission).await?
        };
        match inserted {
            Some(inserted) => return Ok(inserted),
            None => registered = emission.read(&mut *connection).await?,
        }
    }
    Err(too_busy())
}

/// Inserts events while no queue is registered. `None`: one is registered now.
async fn insert_uncopied(
    connection: &mut PgConnection,
    new: &Columns,
    registered: &QueueRegistry,
    emission: Emission<'_>,
) -> Result<Option<Vec<InsertOutcome>>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"insert into wakeq.events_v2
               (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent)
           select new.id, new.canvas_id, new.module, new.name, new.modifier, new.value, due.at,
                  wakeq.wake_at(due.at, clock_timestamp(), $10, $11), new.traceparent
             from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[],
                         $7::timestamptz[], $8::float8[], $9::text[])
                  as new (id, canvas_id, module, name, modifier, value, moment, delay_s, traceparent),
                  lateral (select coalesce(new.moment, now() + new.delay_s * interval '1 second')) as due (at)
            where (select version from wakeq.queue_registry) = $12
        returning id, delay_until <= clock_timestamp() + $10 as "due_soon!""#,
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
    )
    .fetch_all(connection)
    .await?;
    if rows.is_empty() && !new.ids.is_empty() {
        return Ok(None);
    }
    let due_soon: HashMap<_, _> = rows.into_iter().map(|row| (row.id, row.due_soon)).collect();
    let inserted = new.ids.iter().map(|id| InsertOutcome::new(due_soon.get(id).copied().unwrap_or(true)));
    Ok(Some(inserted.collect()))
}

/// Inserts events and their copies. `None`: the registered queues have changed.
async fn insert_copied(
    connection: &mut PgConnection,
    new: &Columns,
    rows: &Placements,
    registered: &QueueRegistry,
    emission: Emission<'_>,
) -> Result<Option<Vec<InsertOutcome>>, sqlx::Error> {
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
           ), written as (
               insert into wakeq.events_v2
                   (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent, queue, origin)
               select r.id, new.canvas_id, new.module, new.name, new.modifier, new.value, new.due,
                      wakeq.wake_at(new.due, clock_timestamp(), $10, $11), new.traceparent, r.queue,
                      case when r.queue is not null then new.id end
                 from new, unnest(new.ids::uuid[], new.queues::text[]) as r (id, queue)
           )
           select position as "position!", due <= clock_timestamp() + $10 as "due_soon!" from new"#,
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
    if answers.is_empty() && !new.ids.is_empty() {
        return Ok(None);
    }
    let mut inserted = vec![InsertOutcome::Known; new.ids.len()];
    for row in answers {
        if let Some(at) = usize::try_from(row.position - 1).ok().and_then(|at| inserted.get_mut(at)) {
            *at = rows.inserted(row.position, row.due_soon, None);
        }
    }
    Ok(Some(inserted))
}

/// Events as columns, for `unnest`.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) ids: Vec<Uuid>,
    pub(super) canvases: Vec<Uuid>,
    pub(super) modules: Vec<String>,
    pub(super) names: Vec<String>,
    pub(super) modifiers: Vec<String>,
    pub(super) values: Vec<String>,
    pub(super) moments: Vec<Option<Timestamp>>,
    pub(super) delays_s: Vec<f64>,
    pub(super) traces: Vec<String>,
}

impl Columns {
    pub(super) fn of<'a>(events: impl Iterator<Item = &'a NewEvent>) -> Self {
        let mut columns = Self::default();
        for event in events {
            let HandlerAddress { scope, modifier } = &event.address;
            columns.ids.push(event.id.0);
            columns.canvases.push(scope.canvas.0);
            columns.modules.push(scope.module.to_string());
            columns.names.push(scope.name.to_string());
            columns.modifiers.push(modifier.to_string());
            columns.values.push(event.value.clone());
            columns.moments.push(moment(event.due));
            columns.delays_s.push(delay_s(event.due));
            columns.traces.push(event.traceparent.to_string());
        }
        columns
    }
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
