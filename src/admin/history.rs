//! The history of events: their attempts, and events that are kept after they have ended.

use super::cursor::DeadPosition;
use super::lists::cut;
use super::{Admin, AdminError, Cursor, EventCount, LIST_MAX, Page};
use crate::event::{CanvasId, EndedFilter, EventId, HandlerScope, Name, Timestamp};
use crate::store::{AttemptRecord, EndedEvent, FoundEnded, LastAttempts};

/// Maximum number of attempts of a handler that are shown.
const LAST_MAX: u32 = 100;
/// Maximum number of ended events that one page examines. There may be millions, which are not in
/// memory as those that wait are, so it is half of theirs.
const LOOK_MAX: i64 = 5_000;
/// The same if it looks into errors, values or results, which takes longer than to compare tags.
const LOOK_INSIDE_MAX: i64 = 2_500;

impl Admin {
    /// The last 100 attempts at an event that failed or were too early, in their order. The event
    /// waits, runs, is dead, or has ended and is kept. An attempt that is missing lost its worker
    /// or was shut down, and that of a plain completion is not noted. Of an event that has been
    /// tried more than 100 times, only some attempts are.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::testing::TestKit;
    /// use wakeq::{CanvasId, Event, HandlerError, Handlers};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::new();
    /// kit.handlers(Handlers::new().on("mail", |_event| async {
    ///     Err::<(), _>(HandlerError::operational("no route"))
    /// }))?;
    /// let id = kit.emit(Event::new("mail", &1)?).await?.id;
    /// kit.drain_for(Duration::from_secs(3600)).await?;
    ///
    /// let attempts = kit.admin().attempts(CanvasId::DEFAULT, id).await?;
    /// let outcomes: Vec<&str> = attempts.iter().map(|attempt| attempt.outcome.as_str()).collect();
    /// assert_eq!(outcomes, ["retried", "retried", "dead"]);
    /// assert_eq!(attempts[0].error.as_deref(), Some("no route"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn attempts(&self, canvas: CanvasId, id: EventId) -> Result<Vec<AttemptRecord>, AdminError> {
        match self.own_id(canvas, id).await {
            Ok(id) => Ok(self.store.attempts(canvas, id).await?),
            Err(AdminError::NotFound(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The last attempts at the events of a handler, the latest first: up to `limit`, 1 to 100.
    /// They failed or were too early, or ended an event that is kept. An attempt that simply
    /// completed an event is not noted. Where the handler has many events, those of some may be
    /// left out, and [`LastAttempts::more`] says so. There are no further pages, since attempts are
    /// stored by their event.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::{CanvasId, HandlerScope};
    ///
    /// let mail = HandlerScope::worker(CanvasId::DEFAULT, "send-email")?;
    /// for last in admin.last_attempts(&mail, None, 20).await?.attempts {
    ///     println!("{} took {:?}: {:?}", last.event, last.attempt.took, last.attempt.error);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn last_attempts(
        &self,
        scope: &HandlerScope,
        modifier: Option<&Name>,
        limit: u32,
    ) -> Result<LastAttempts, AdminError> {
        Ok(self.store.last_attempts(scope, modifier, limit.clamp(1, LAST_MAX) as usize).await?)
    }

    /// Events that have ended, are kept and meet the filter, the latest first, up to `limit`, 1 to
    /// [`LIST_MAX`]. An event is kept if its emit, its route or its target asks for it. Dead events
    /// are in [`Admin::dead`].
    ///
    /// A page examines up to 5,000 events, and if the filter asks for what is in errors, values or
    /// results, up to 2,500 with 8 MiB of values and results. So it may be short or empty and still
    /// have a next page.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::events::{EndedFilter, EndedOutcome, Keep};
    /// use wakeq::testing::TestKit;
    /// use wakeq::workers::Completion;
    /// use wakeq::{CanvasId, Event, Execution, Handlers, Route};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::new();
    /// let kept = Route::new("add").keep(Keep::all(Duration::from_secs(3600)));
    /// kit.handlers(Handlers::new().on(kept, |event: Execution| async move {
    ///     let (one, other): (i64, i64) = event.value()?;
    ///     Completion::with_result(&(one + other))
    /// }))?;
    /// let id = kit.emit(Event::new("add", &(2, 3))?.tag("sum")?).await?.id;
    /// kit.drain().await?;
    ///
    /// let five = EndedFilter {
    ///     tags: vec!["sum".parse()?],
    ///     result: Some("$ = 5".parse()?),
    ///     ..EndedFilter::default()
    /// };
    /// let page = kit.admin().ended(&five, None, 100).await?;
    /// assert_eq!((page.items[0].id, page.items[0].outcome), (id, EndedOutcome::Completed));
    /// assert_eq!(kit.admin().result(CanvasId::DEFAULT, id).await?.as_deref(), Some("5"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ended(
        &self,
        filter: &EndedFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<EndedEvent>, AdminError> {
        filter.check()?;
        let after = place(cursor)?;
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let one_more = limit as i64 + 1;
        // The first rows usually suffice, and examining thousands takes far longer.
        let search = async |look| self.store.search_ended(filter, after, (look, one_more), true).await;
        let mut found = search(one_more).await?;
        if meant(&found) < limit && end_of(&found).0.is_some() {
            found = search(look_max(filter)).await?;
        }
        let (mut next, mut looked_at) = end_of(&found);
        found.retain(|found| found.is_meant);
        if cut(&mut found, limit, |found| found.event.error.as_deref().map_or(0, str::len)) {
            let last = found.last();
            next = last.map(cursor_of);
            looked_at = last.map_or(0, |last| last.number.unsigned_abs());
        }
        Ok(Page { items: found.into_iter().map(|found| found.event).collect(), next, looked_at })
    }

    /// How many events that have ended and are kept meet the filter, of those that a page of
    /// [`Admin::ended`] examines after the cursor. If [`EventCount::next`] is set, there are at
    /// least as many: repeat the call with it, and add the counts.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::events::EndedFilter;
    ///
    /// let of_customer = EndedFilter { tags: vec!["customer:7".parse()?], ..EndedFilter::default() };
    /// let counted = admin.count_ended(&of_customer, None).await?;
    /// println!("{}{} events", if counted.next.is_some() { "at least " } else { "" }, counted.count);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn count_ended(
        &self,
        filter: &EndedFilter,
        cursor: Option<&Cursor>,
    ) -> Result<EventCount, AdminError> {
        filter.check()?;
        let look = look_max(filter);
        let found = self.store.search_ended(filter, place(cursor)?, (look, look + 1), false).await?;
        let (next, looked_at) = end_of(&found);
        Ok(EventCount { count: meant(&found) as u64, looked_at, next })
    }

    /// What the handler of an ended event has returned, as JSON text; `None` if it has returned
    /// nothing, or the event is not kept.
    pub async fn result(&self, canvas: CanvasId, id: EventId) -> Result<Option<String>, AdminError> {
        match self.own_id(canvas, id).await {
            Ok(id) => Ok(self.store.ended_value(canvas, id).await?.and_then(|(_, result)| result)),
            Err(AdminError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Maximum number of ended events that one page examines.
fn look_max(filter: &EndedFilter) -> i64 {
    if filter.looks_inside() { LOOK_INSIDE_MAX } else { LOOK_MAX }
}

/// The place of a cursor in the list of ended events.
fn place(cursor: Option<&Cursor>) -> Result<Option<(Timestamp, EventId)>, AdminError> {
    Ok(cursor.map(Cursor::ended).transpose()?.map(|DeadPosition(ended_at, id)| (ended_at, id)))
}

/// Where the list goes on after an event.
fn cursor_of(found: &FoundEnded) -> Cursor {
    let (ended_at, id) = found.place();
    Cursor::of_ended(DeadPosition(ended_at, id))
}

fn meant(found: &[FoundEnded]) -> usize {
    found.iter().filter(|found| found.is_meant).count()
}

/// Where to go on after the last ended event that was looked at, if there may be others, and how
/// many were looked at.
fn end_of(found: &[FoundEnded]) -> (Option<Cursor>, u64) {
    let last = found.iter().rfind(|found| found.last.is_some());
    let looked_at = last.or(found.last()).map_or(0, |last| last.number.unsigned_abs());
    (last.filter(|last| last.last == Some(true)).map(cursor_of), looked_at)
}
