//! Single events, and all events of a handler: explain, cancel, run now, purge.

use super::{Admin, AdminError, BULK_MAX, Bulk, COUNT_MAX, checked};
use crate::event::{Actor, CanvasId, EventId, HandlerScope, Notification, Timestamp};
use crate::explain::{Explanation, explain};
use crate::store::{BULK_PAGE, Commanded, LoadedEvent};

impl Admin {
    /// Why an event is not running, since when, until when, and what happens next. As everywhere where one event is named,
    /// an id that its caller chose may stand for the event's own.
    pub async fn explain(&self, canvas: CanvasId, id: EventId) -> Result<Explanation, AdminError> {
        match self.known(canvas, id).await {
            Ok(id) => Ok(explain(&self.store, canvas, id).await?),
            Err(AdminError::NotFound(_)) => Ok(Explanation::Unknown),
            Err(error) => Err(error),
        }
    }

    /// The value of an event that waits, runs or died, as JSON text to the letter.
    pub async fn value(&self, canvas: CanvasId, id: EventId) -> Result<Option<String>, AdminError> {
        match self.known(canvas, id).await {
            Ok(id) => Ok(self.store.value(canvas, id).await?),
            Err(AdminError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes a waiting event; its id.
    pub async fn cancel(&self, canvas: CanvasId, id: EventId, actor: &Actor) -> Result<EventId, AdminError> {
        checked(actor)?;
        let id = self.known(canvas, id).await?;
        let lane = self.found(id).await?.and_then(LoadedEvent::lane);
        let cancel = || self.store.cancel(canvas, id, actor);
        let done = |answer: &(Commanded, _)| answer.0 == Commanded::Done;
        let done_before = |found: Option<_>| found.is_none().then(|| (Commanded::Done, lane.clone()));
        let (done, lane) = self.settled(id, cancel, done, done_before).await?;
        commanded(done, id)?;
        self.go_on(lane.as_slice()).await;
        Ok(id)
    }

    /// Makes a waiting event due at once; its id. A rule on its handler still holds it. That its notification could not be
    /// published is logged and no error: the change stands, and the event's promise brings it back within the minute.
    pub async fn run_now(&self, canvas: CanvasId, id: EventId, actor: &Actor) -> Result<EventId, AdminError> {
        checked(actor)?;
        let id = self.known(canvas, id).await?;
        commanded(self.store.run_now(canvas, id, actor).await?, id)?;
        self.publish(&[Notification { id, canvas }]).await;
        Ok(id)
    }

    /// The id of the event that a caller means, who may have chosen another one for it.
    pub(super) async fn known(&self, canvas: CanvasId, id: EventId) -> Result<EventId, AdminError> {
        self.store.known_event(canvas, id, self.copies).await?.ok_or(AdminError::NotFound(id))
    }

    /// Deletes events of a handler that were emitted before this call and that nobody runs, [`BULK_MAX`] at most, or with
    /// `dry_run` only counts them.
    pub async fn purge(
        &self,
        scope: &HandlerScope,
        actor: &Actor,
        dry_run: bool,
    ) -> Result<Bulk, AdminError> {
        Ok(self.purge_before(scope, None, actor, dry_run.then_some(BULK_MAX)).await?.0)
    }

    /// The same with what was emitted before a moment, if one is named; also the moment that it was about, for the calls
    /// that follow: what is emitted meanwhile is left alone.
    pub(crate) async fn purge_before(
        &self,
        scope: &HandlerScope,
        before: Option<Timestamp>,
        actor: &Actor,
        only_counted: Option<u64>,
    ) -> Result<(Bulk, Timestamp), AdminError> {
        checked(actor)?;
        let before = self.until_now(before).await?;
        if let Some(max) = only_counted {
            let max = max.clamp(1, COUNT_MAX);
            return Ok((counted(self.store.purgeable(scope, before, max + 1).await?, max), before));
        }
        let mut count = 0;
        while count < BULK_MAX {
            let (page, lanes) = self.store.purge_page(scope, before, actor).await?;
            self.go_on(&lanes).await;
            count += page;
            if page < BULK_PAGE {
                // What is held by others for a moment is not chased.
                break;
            }
        }
        Ok((Bulk { count, more: self.store.purgeable(scope, before, 1).await? > 0 }, before))
    }

    /// This moment of the database's clock, or an earlier one.
    pub(super) async fn until_now(&self, before: Option<Timestamp>) -> Result<Timestamp, AdminError> {
        let now = self.store.clock().await?;
        Ok(before.map_or(now, |before| before.min(now)))
    }
}

/// What a count that ends one after so many says.
pub(super) fn counted(count: u64, max: u64) -> Bulk {
    Bulk { count: count.min(max), more: count > max }
}

fn commanded(commanded: Commanded, id: EventId) -> Result<(), AdminError> {
    match commanded {
        Commanded::Done => Ok(()),
        Commanded::Runs => Err(AdminError::NotWaiting(id)),
        Commanded::Missing => Err(AdminError::NotFound(id)),
    }
}
