//! Emit: events alone, in batches and in transactions; with ids that callers chose, which are noted
//! in `emitted_ids`, so that none is emitted twice.
//!
//! A function `insert…` of the store is a transaction, a function `add…` the statements of one that
//! the caller ends, and a function `write…` in `rows.rs` one statement.

use std::sync::Arc;

use sqlx::postgres::PgConnection;

use super::chains;
use super::logged::{LOG_STATEMENTS, append_emitted};
use super::rows::write_rows;
use crate::event::{EventId, Link, NewEvent};
use crate::store::kernel::{Emission, Sql, StoreError};
use crate::store::log::lacks_partition;

/// Maximum number of rows in one statement.
const PAGE: usize = 1000;
/// Maximum bytes of values in one statement.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

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
    pub(in crate::store) fn new(due_soon: bool) -> Self {
        Self::New { due_soon, link: None, copies: Vec::new(), pulled: Vec::new() }
    }

    /// The outcome of an event whose rows are known to exist, without anything else being known.
    pub fn unanswered() -> Self {
        Self::new(true)
    }

    /// The only one of these, the outcomes of a single event.
    pub(in crate::store) fn only(inserted: Vec<Self>) -> Self {
        inserted.into_iter().next().unwrap_or(Self::new(true))
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

impl Sql<'_> {
    pub(in crate::store) async fn insert(
        &self,
        events: &[Arc<NewEvent>],
    ) -> Result<Vec<InsertOutcome>, StoreError> {
        self.insert_page(events.iter().map(AsRef::as_ref).collect()).await
    }

    async fn insert_page(&self, rows: Vec<&NewEvent>) -> Result<Vec<InsertOutcome>, StoreError> {
        let mut session = self.session().await?;
        let emission = self.emission();
        let answer = session.limit(|connection| write_rows(connection, &rows, false, emission)).await;
        session.answered("insert events", answer).await
    }

    /// If one statement is enough, it needs no transaction around it.
    pub(in crate::store) async fn insert_all(
        &self,
        events: &[NewEvent],
        chosen: &[bool],
    ) -> Result<Vec<InsertOutcome>, StoreError> {
        let is_plain = |event: &NewEvent| event.object.is_none() && event.logged.is_none();
        let together: Vec<usize> = (0..events.len()).collect();
        if events.iter().all(is_plain) && !chosen.contains(&true) && pages(&together, events).len() == 1 {
            return self.insert_page(events.iter().collect()).await;
        }
        let insert = || self.insert_together("insert events in one transaction", events, chosen, None);
        let inserted = insert().await;
        if !inserted.as_ref().is_err_and(lacks_partition) {
            return inserted;
        }
        // The minute's pass creates the log's partitions long before; this is for deployments where
        // none runs.
        self.add_log_partitions().await?;
        insert().await
    }

    pub(in crate::store) async fn insert_chosen(
        &self,
        event: &NewEvent,
    ) -> Result<InsertOutcome, StoreError> {
        let mut session = self.session().await?;
        let emission = self.emission();
        let rows = [event];
        let answer = session.limit(|connection| write_rows(connection, &rows, true, emission)).await;
        session.answered("insert an event by its chosen id", answer).await.map(InsertOutcome::only)
    }
}

/// Inserts one event, on any connection: also inside a caller's transaction.
pub(crate) async fn add_one(
    connection: &mut PgConnection,
    event: &NewEvent,
    chosen: bool,
    emission: Emission<'_>,
) -> Result<InsertOutcome, sqlx::Error> {
    let inserted = if event.object.is_some() || event.logged.is_some() {
        add_all(connection, std::slice::from_ref(event), &[chosen], emission).await
    } else {
        write_rows(connection, &[event], chosen, emission).await
    };
    inserted.map(InsertOutcome::only)
}

/// The statements of [`Sql::insert_all`], in a transaction that the caller ends.
pub(in crate::store) async fn add_all(
    transaction: &mut PgConnection,
    events: &[NewEvent],
    chosen: &[bool],
    emission: Emission<'_>,
) -> Result<Vec<InsertOutcome>, sqlx::Error> {
    let mut inserted = vec![InsertOutcome::Known; events.len()];
    chains::add_linked(&mut *transaction, events, chosen, &mut inserted, emission).await?;
    let alone = (0..events.len()).filter(|at| events[*at].object.is_none());
    let (mut by_id, together): (Vec<usize>, Vec<usize>) = alone.partition(|at| chosen[*at]);
    // In one order, so that two calls with the same ids can't deadlock.
    by_id.sort_by_key(|at| events[*at].id);
    by_id.dedup_by_key(|at| events[*at].id);
    for (positions, chosen) in [(by_id, true), (together, false)] {
        for page in pages(&positions, events) {
            let rows: Vec<&NewEvent> = page.iter().map(|at| &events[*at]).collect();
            let outcomes = write_rows(&mut *transaction, &rows, chosen, emission).await?;
            page.iter().zip(outcomes).for_each(|(at, outcome)| inserted[*at] = outcome);
        }
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
