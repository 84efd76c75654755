//! The history of events: their attempts, and events that are kept after they have ended.

use super::cursor::DeadPosition;
use super::lists::cut;
use super::{Admin, AdminError, Cursor, LIST_MAX, Page};
use crate::event::{CanvasId, EventId, HandlerScope, Name};
use crate::store::{AttemptRecord, EndedEvent, EndedFilter, HandlerAttempt};

/// Maximum number of attempts of a handler that are shown.
const LAST_MAX: u32 = 100;

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
    /// completed an event is not noted. Where many events wait, those of some may be left out.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::{CanvasId, HandlerScope};
    ///
    /// let mail = HandlerScope::worker(CanvasId::DEFAULT, "send-email")?;
    /// for last in admin.last_attempts(&mail, None, 20).await? {
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
    ) -> Result<Vec<HandlerAttempt>, AdminError> {
        Ok(self.store.last_attempts(scope, modifier, i64::from(limit.clamp(1, LAST_MAX))).await?)
    }

    /// Events that have ended and are kept, the latest first, up to `limit`, 1 to [`LIST_MAX`]. An
    /// event is kept if its emit, its route or its target asks for it. Dead events are in
    /// [`Admin::dead`].
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
    /// let id = kit.emit(Event::new("add", &(2, 3))?).await?.id;
    /// kit.drain().await?;
    ///
    /// let page = kit.admin().ended(&EndedFilter::default(), None, 100).await?;
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
        let after = cursor.map(Cursor::ended).transpose()?.map(|DeadPosition(at, id)| (at, id));
        let limit = limit.clamp(1, LIST_MAX);
        let mut items = self.store.ended_events(filter, after, i64::from(limit) + 1).await?;
        let more = cut(&mut items, limit as usize, |event| event.error.as_deref().map_or(0, str::len));
        let last = items.last().filter(|_| more);
        let next = last.map(|last| Cursor::of_ended(DeadPosition(last.ended_at, last.id)));
        Ok(Page { looked_at: items.len() as u64, items, next })
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
