//! Single events, and all events of a handler: explain, cancel, run now, another due time, purge.

use std::time::Duration;

use super::{Admin, AdminError, BULK_MAX, Bulk, COUNT_MAX, checked};
use crate::broadcast::Signal;
use crate::event::{
    Actor, CanvasId, DELAY_MAX, Due, EventId, HandlerScope, HeldLimit, Notification, Timestamp, is_storable,
};
use crate::explain::{Explanation, explain};
use crate::store::{BULK_PAGE, CommandOutcome, LeftPlaces, LoadedEvent, MovedDue, RunningCancel};

/// How often an event is cancelled that is claimed and released at the same time.
const CANCEL_TRIES: usize = 5;
/// How long a caller waits for workers to be signalled, which only saves them time.
const SIGNALLED_WITHIN: Duration = Duration::from_secs(1);

/// The event that was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CancelResult {
    /// Its id.
    pub id: EventId,
    /// Whether it runs: its handler is told to stop, and it is deleted when that has ended.
    /// Otherwise it is deleted.
    pub running: bool,
}

/// The event that is due at another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DueResult {
    /// Its id.
    pub id: EventId,
    /// When it is due.
    pub due: Timestamp,
}

impl Admin {
    /// Why an event is not running, since when, until when, and what happens next. As in every call
    /// that takes one event, the id can be the event's own or the one that its caller chose.
    pub async fn explain(&self, canvas: CanvasId, id: EventId) -> Result<Explanation, AdminError> {
        match self.own_id(canvas, id).await {
            Ok(id) => Ok(explain(&self.store, canvas, id).await?),
            Err(AdminError::NotFound(_)) => Ok(Explanation::Unknown),
            Err(error) => Err(error),
        }
    }

    /// The value of an event that waits, runs or died, or that has ended and is kept, as JSON text,
    /// verbatim.
    pub async fn value(&self, canvas: CanvasId, id: EventId) -> Result<Option<String>, AdminError> {
        match self.own_id(canvas, id).await {
            Ok(id) => match self.store.value(canvas, id).await? {
                Some(value) => Ok(Some(value)),
                None => Ok(self.store.ended_value(canvas, id).await?.map(|(value, _)| value)),
            },
            Err(AdminError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes a waiting event; returns its id. [`Admin::cancel_running`] also takes one that runs.
    pub async fn cancel(&self, canvas: CanvasId, id: EventId, actor: &Actor) -> Result<EventId, AdminError> {
        checked(actor)?;
        let id = self.own_id(canvas, id).await?;
        let found = self.found(id).await?;
        let batch = found.as_ref().and_then(LoadedEvent::batch);
        // The deletion says what is left to others; this is for the case that its answer is lost.
        let limit = self.waited_for(canvas, id, found.as_ref()).await?;
        let before = LeftPlaces { lane: found.and_then(LoadedEvent::lane), limit };
        let cancel = || self.store.cancel(canvas, id, actor);
        let done = |answer: &(CommandOutcome, _)| answer.0 == CommandOutcome::Done;
        let done_before = |found: Option<_>| found.is_none().then(|| (CommandOutcome::Done, before.clone()));
        let (done, left) = self.settled(id, cancel, done, done_before).await?;
        check_outcome(done, id)?;
        self.resume_lanes(left.lane.as_slice()).await;
        // If it had been told to come, its place was kept for it.
        self.wake_at_limits(left.limit.as_slice(), &[]).await;
        if let Some(batch) = batch {
            self.waker.end_batch_if_over(&batch).await;
        }
        Ok(id)
    }

    /// The limit for whose place an event waits.
    async fn waited_for(
        &self,
        canvas: CanvasId,
        id: EventId,
        found: Option<&LoadedEvent>,
    ) -> Result<Option<HeldLimit>, AdminError> {
        if !found.is_some_and(|event| event.is_limited) {
            return Ok(None);
        }
        let wait = self.store.waits_for(canvas, id).await?;
        Ok(wait.map(|wait| HeldLimit { canvas: wait.canvas, name: wait.name.to_string() }))
    }

    /// Cancels an event also if it is running. The worker that runs it learns of it in seconds
    /// where signals reach it, and else when it next renews its claim. Its handler is then told to
    /// stop ([`Execution::cancelled`](crate::Execution::cancelled)), and dropped after
    /// [`WorkerConfig::cancel_grace`](crate::WorkerConfig::cancel_grace). The event is deleted,
    /// unless its handler completes it before.
    ///
    /// Once this has returned, no handler starts on the event again: if its worker dies, or its
    /// handler fails before it is told, the event is deleted all the same, within about a minute
    /// after that. A copy that a service has leased can't be cancelled: end its lease first.
    ///
    /// ```
    /// use wakeq::testing::TestKit;
    /// use wakeq::{Actor, CanvasId, Event, Execution, HandlerError, Handlers};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::new();
    /// let (admin, ada) = (kit.admin().clone(), Actor::user("ada"));
    /// let render = move |event: Execution| {
    ///     let (admin, ada) = (admin.clone(), ada.clone());
    ///     async move {
    ///         // Somebody cancels the event while it runs.
    ///         admin.cancel_running(CanvasId::DEFAULT, event.id, &ada).await?;
    ///         let reason = event.cancelled().await;
    ///         Err::<(), _>(HandlerError::operational(format!("stopped: {reason:?}")))
    ///     }
    /// };
    /// kit.handlers(Handlers::new().on("render", render))?;
    /// kit.emit(Event::new("render", "a film")?).await?;
    /// let drained = kit.drain().await?;
    /// assert_eq!((drained.cancelled, drained.retried, drained.waiting), (1, 0, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cancel_running(
        &self,
        canvas: CanvasId,
        id: EventId,
        actor: &Actor,
    ) -> Result<CancelResult, AdminError> {
        checked(actor)?;
        let id = self.own_id(canvas, id).await?;
        for _ in 0..CANCEL_TRIES {
            let ask = || self.store.cancel_running(canvas, id, actor);
            let is_asked = |outcome: &RunningCancel| *outcome == RunningCancel::Asked;
            match self.settled(id, ask, is_asked, |_| None).await? {
                RunningCancel::Asked | RunningCancel::AskedBefore => {
                    self.notifier.signals().send_within(Signal::Cancellations, SIGNALLED_WITHIN).await;
                    return Ok(CancelResult { id, running: true });
                }
                RunningCancel::Leased(queue) => return Err(AdminError::LeasedCopy { id, queue }),
                RunningCancel::Missing => return Err(AdminError::NotFound(id)),
                RunningCancel::Free => {}
            }
            match self.cancel(canvas, id, actor).await {
                Ok(id) => return Ok(CancelResult { id, running: false }),
                // It was claimed in the meantime.
                Err(AdminError::NotWaiting(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(AdminError::NotWaiting(id))
    }

    /// Makes a waiting event due immediately; returns its id. A rule on its handler still holds it.
    /// If its notification can't be published, that is logged and not an error: the change stands,
    /// and the event's promise wakes it within a minute.
    pub async fn run_now(&self, canvas: CanvasId, id: EventId, actor: &Actor) -> Result<EventId, AdminError> {
        checked(actor)?;
        let id = self.own_id(canvas, id).await?;
        check_outcome(self.store.run_now(canvas, id, actor).await?, id)?;
        self.publish(&[Notification::new(id, canvas)]).await;
        Ok(id)
    }

    /// Gives a waiting event another due time, earlier or later. A moment that has passed is now.
    /// An event that failed is tried again then, and one whose [last
    /// moment](crate::Event::not_after) comes before dies. A rule on its handler still holds it. If
    /// its notification can't be published, that is logged and not an error, as of
    /// [`Admin::run_now`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::events::Due;
    /// use wakeq::testing::TestKit;
    /// use wakeq::{Actor, CanvasId, Event, Handlers};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::new();
    /// kit.handlers(Handlers::new().on("remind", |_event| async { Ok(()) }))?;
    /// let tomorrow = Event::new("remind", &42)?.after(Duration::from_secs(86_400))?;
    /// let id = kit.emit(tomorrow).await?.id;
    /// let ada = Actor::user("ada");
    /// kit.admin().set_due(CanvasId::DEFAULT, id, Due::After(Duration::from_secs(60)), &ada).await?;
    /// kit.advance(Duration::from_secs(60)).await?;
    /// assert_eq!(kit.drain().await?.completed, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: [`AdminError::NotWaiting`] if it is running, [`AdminError::HasEnded`] if it has died
    /// or has ended, and [`AdminError::Invalid`] if the time can't be stored.
    pub async fn set_due(
        &self,
        canvas: CanvasId,
        id: EventId,
        due: Due,
        actor: &Actor,
    ) -> Result<DueResult, AdminError> {
        checked(actor)?;
        let is_possible = match due {
            Due::Now => true,
            Due::After(delay) => delay <= DELAY_MAX,
            Due::At(moment) => is_storable(moment),
        };
        if !is_possible {
            return Err(AdminError::Invalid(
                "an event can wait for 100 years at most, and is due in the years 1 to 9999",
            ));
        }
        let id = self.own_id(canvas, id).await?;
        let (outcome, moved) = self.store.set_due(canvas, id, due, actor).await?;
        let Some(MovedDue { due, is_soon, left }) = moved else {
            return Err(match outcome {
                CommandOutcome::Done | CommandOutcome::Missing => AdminError::HasEnded(id),
                CommandOutcome::Runs => AdminError::NotWaiting(id),
            });
        };
        // A place that was kept for it is another's now.
        self.wake_at_limits(left.as_slice(), &[]).await;
        // Later ones are notified of by their promises, as those that were emitted with a delay.
        if is_soon {
            self.publish(&[Notification::new(id, canvas)]).await;
        }
        Ok(DueResult { id, due })
    }

    /// The event's own id; the given one may be the id that its caller chose.
    pub(super) async fn own_id(&self, canvas: CanvasId, id: EventId) -> Result<EventId, AdminError> {
        self.store.known_event(canvas, id, self.copies).await?.ok_or(AdminError::NotFound(id))
    }

    /// Deletes the events of a handler that were emitted before this call and are not running, up
    /// to [`BULK_MAX`]; with `dry_run` they are only counted.
    pub async fn purge(
        &self,
        scope: &HandlerScope,
        actor: &Actor,
        dry_run: bool,
    ) -> Result<Bulk, AdminError> {
        Ok(self.purge_before(scope, None, actor, dry_run.then_some(BULK_MAX)).await?.0)
    }

    /// Like [`Admin::purge`], for events emitted before `before` if it is given. Also returns the
    /// moment that was used, for subsequent calls: events emitted in the meantime are not deleted.
    #[doc(hidden)]
    pub async fn purge_before(
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
            let page = self.store.purge_page(scope, before, actor).await?;
            self.resume_lanes(&page.lanes).await;
            self.wake_at_limits(&page.limits, &[]).await;
            count += page.count;
            if page.count < BULK_PAGE {
                // Rows that others hold for a moment are not waited for.
                break;
            }
        }
        Ok((Bulk { count, more: self.store.purgeable(scope, before, 1).await? > 0 }, before))
    }

    /// The end of the present microsecond on the database's clock, or `before` if that is earlier.
    /// In a test kit time stands still, and what has just died is meant as well.
    pub(super) async fn until_now(&self, before: Option<Timestamp>) -> Result<Timestamp, AdminError> {
        let end = self.store.clock().await? + Duration::from_micros(1);
        Ok(before.map_or(end, |before| before.min(end)))
    }
}

/// The result of a count that stops one after `max`.
pub(super) fn counted(count: u64, max: u64) -> Bulk {
    Bulk { count: count.min(max), more: count > max }
}

fn check_outcome(outcome: CommandOutcome, id: EventId) -> Result<(), AdminError> {
    match outcome {
        CommandOutcome::Done => Ok(()),
        CommandOutcome::Runs => Err(AdminError::NotWaiting(id)),
        CommandOutcome::Missing => Err(AdminError::NotFound(id)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::event::NewLimit;
    use crate::notify::LocalNotifier;
    use crate::store::tests::Table;
    use crate::store::tests::crowds::{FEW, MANY};

    /// It had been told to come, and its place is the next one's. The other canvas's wait as
    /// before.
    #[tokio::test]
    async fn a_cancelled_event_leaves_its_place_to_the_next() {
        let table = Table::new().await;
        let admin = Admin::new(table.store.clone(), Arc::new(LocalNotifier::new()));
        let one = NewLimit { concurrency: Some(1), ..NewLimit::default() };
        let mut canvases = Vec::new();
        for canvas in [MANY, FEW] {
            table.limit(canvas, "customer", one).await;
            let told = table.add_keyed(canvas, &["customer:7"], 3).await;
            let claimed = table.claim_some(&told).await;
            assert_eq!(claimed.len(), 1);
            assert_eq!(table.store.complete(&[claimed[0].claim]).await.unwrap(), [true]);
            let limit = HeldLimit { canvas, name: "customer:7".to_owned() };
            assert_eq!(table.store.wake_waiting(&[limit]).await.unwrap(), told[1..2]);
            canvases.push(told);
        }
        let ada = Actor::user("ada");
        let strange = admin.cancel(FEW, canvases[0][1].id, &ada).await;
        assert!(matches!(strange, Err(AdminError::NotFound(_))), "{strange:?}");
        admin.cancel(MANY, canvases[0][1].id, &ada).await.unwrap();
        let told = table.told_to_come().await;
        let expected = [canvases[0][2].id, canvases[1][1].id];
        assert_eq!(told.len(), 2);
        assert!(expected.iter().all(|id| told.contains(id)), "{told:?}");
    }
}
