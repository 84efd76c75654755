//! Emit: events alone, in batches and in transactions, also with a new state of an object; with ids
//! that callers chose, which are noted in `emitted_ids`, so that none is emitted twice; and with
//! unique keys (`unique.rs`).
//!
//! A function `insert…` of the store is a transaction, a function `add…` the statements of one that
//! the caller ends, and a function `write…` in `rows.rs` one statement.

use std::sync::Arc;

use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::chains;
use super::logged::{LOG_STATEMENTS, append_emitted};
use super::outcome::InsertOutcome;
use super::pages::pages;
use super::repeats::check_repeats;
use super::rows::write_rows;
use super::unique::{add_unique, write_unique};
use crate::event::{CanvasId, NewEvent, ObjectKey};
use crate::store::kernel::{Emission, Sql, StoreError};
use crate::store::log::lacks_partition;

/// A new state of an object, as JSON.
#[derive(Clone, Copy, Debug)]
pub struct NewState<'a> {
    pub(crate) canvas: CanvasId,
    pub object: &'a ObjectKey,
    pub(crate) state: &'a str,
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
        let is_plain =
            |event: &NewEvent| event.object.is_none() && event.logged.is_none() && event.unique.is_none();
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

    pub(in crate::store) async fn insert_on(
        &self,
        events: &[NewEvent],
        chosen: &[bool],
        state: Option<NewState<'_>>,
    ) -> Result<Vec<InsertOutcome>, StoreError> {
        self.insert_together("insert events on an object", events, chosen, state).await
    }

    /// The statements of [`Sql::insert_on`] in a transaction; errors say what this was for.
    async fn insert_together(
        &self,
        what: &'static str,
        events: &[NewEvent],
        chosen: &[bool],
        state: Option<NewState<'_>>,
    ) -> Result<Vec<InsertOutcome>, StoreError> {
        let mut session = self.session().await?.for_statements(statements(events));
        let emission = self.emission().alone();
        let answer =
            session.limit(|connection| add_and_commit(connection, events, chosen, state, emission)).await;
        session.answered(what, answer).await
    }

    pub(in crate::store) async fn insert_chosen(
        &self,
        event: &NewEvent,
    ) -> Result<InsertOutcome, StoreError> {
        let mut session = self.session().await?.for_statements(2);
        let emission = self.emission();
        let answer = session.limit(|connection| write_by_choice(connection, event, emission)).await;
        session.answered("insert an event by its chosen id", answer).await.map(InsertOutcome::only)
    }

    pub(in crate::store) async fn insert_unique(
        &self,
        event: &NewEvent,
    ) -> Result<InsertOutcome, StoreError> {
        let mut session = self.session().await?;
        let emission = self.emission().alone();
        let rows = [event];
        let answer = session.limit(|connection| write_unique(connection, &rows, emission)).await;
        session.answered("insert an event with a unique key", answer).await.map(InsertOutcome::only)
    }
}

/// Inserts an event whose id the caller chose, unless it is known.
async fn write_by_choice(
    connection: &mut PgConnection,
    event: &NewEvent,
    emission: Emission<'_>,
) -> Result<Vec<InsertOutcome>, sqlx::Error> {
    let inserted = write_rows(&mut *connection, &[event], true, emission).await?;
    if matches!(inserted[..], [InsertOutcome::Known]) {
        check_repeats(connection, vec![event]).await?;
    }
    Ok(inserted)
}

async fn add_and_commit(
    connection: &mut PgConnection,
    events: &[NewEvent],
    chosen: &[bool],
    state: Option<NewState<'_>>,
    emission: Emission<'_>,
) -> Result<Vec<InsertOutcome>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let inserted = add_with_state(&mut transaction, events, chosen, state, emission).await?;
    transaction.commit().await?;
    Ok(inserted)
}

/// The statements of `Sql::insert_on`, in a transaction that the caller ends.
pub async fn add_with_state(
    transaction: &mut PgConnection,
    events: &[NewEvent],
    chosen: &[bool],
    state: Option<NewState<'_>>,
    emission: Emission<'_>,
) -> Result<Vec<InsertOutcome>, sqlx::Error> {
    let inserted = add_all(&mut *transaction, events, chosen, emission).await?;
    let is_new = matches!(inserted.first(), Some(InsertOutcome::New { .. }));
    if let Some(NewState { canvas, object, state }) = state.filter(|_| is_new) {
        sqlx::query!(
            "update wakeq.objects set state = $3, state_at = clock_timestamp() where canvas_id = $1 and object = $2",
            canvas.0,
            object.as_str() as _,
            state as _
        )
        .execute(&mut *transaction)
        .await?;
    }
    Ok(inserted)
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
    } else if event.unique.is_some() {
        write_unique(connection, &[event], emission).await
    } else if chosen {
        write_by_choice(connection, event, emission).await
    } else {
        write_rows(connection, &[event], false, emission).await
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
    let alone = (0..events.len()).filter(|at| events[*at].object.is_none() && events[*at].unique.is_none());
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
    let is_repeat = |at: &usize| {
        chosen[*at] && events[*at].object.is_none() && matches!(inserted[*at], InsertOutcome::Known)
    };
    let repeats = (0..events.len()).filter(is_repeat).map(|at| &events[at]).collect();
    check_repeats(&mut *transaction, repeats).await?;
    add_unique(&mut *transaction, events, &mut inserted, emission).await?;
    append_emitted(transaction, events, &inserted).await?;
    Ok(inserted)
}

/// The most statements that a transaction has: begin, objects, log, pages (chosen ids on objects
/// take three each, and repeats one), commit. Each has its own time limit.
pub fn statements(events: &[NewEvent]) -> usize {
    let pages = pages(&(0..events.len()).collect::<Vec<_>>(), events).len();
    let logged = if events.iter().any(|event| event.logged.is_some()) { LOG_STATEMENTS } else { 0 };
    2 + chains::STATEMENTS + logged + (4 + logged) * pages
}
