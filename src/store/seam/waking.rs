//! The minute's pass, resume jobs, and promises that are moved.

use std::collections::HashSet;
use std::time::Duration;

use super::{Backing, on_backing};
use crate::event::{CanvasId, EventId, Lane, Notification};
use crate::store::events::ResumePage;
use crate::store::kernel::{Store, StoreError};
use crate::store::minute::{Attendance, MakingDue, MinuteOutcome};
use crate::store::queues::PulledSplit;

impl Store {
    /// A page of the minute's pass: lifts one rule that reached its end, moves the promises of a
    /// page of overdue events, lists open resume jobs. Does none of that unless it is due, or
    /// `again`: the next page of the same pass. Whether it is or not, writes what the worker of
    /// this process does, if there is one.
    pub(crate) async fn minute(
        &self,
        again: bool,
        worker: Option<&Attendance>,
    ) -> Result<MinuteOutcome, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.minute(again, worker).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().minute(again),
        }
    }

    /// Deletes a page of events that were cancelled while they ran and run no longer: they failed,
    /// were released, or lost their worker. Returns how many, and their lanes, whose next events
    /// have to be woken; the promises of those are renewed here.
    pub(crate) async fn remove_unclaimed_cancelled(&self) -> Result<(usize, Vec<Lane>), StoreError> {
        on_backing!(self.remove_unclaimed_cancelled())
    }

    /// Makes the next pass of the minute's statement due now, if it would be due within this time
    /// anyway.
    pub(crate) async fn hasten_minute(&self, within: Duration) -> Result<(), StoreError> {
        on_backing!(self.hasten_minute(within))
    }

    /// Moves to now the promises of events that are due within the horizon and not claimed, a page
    /// at a time, and the next pass of the minute's statement with them. Returns how many.
    pub(crate) async fn make_due(&self, progress: &mut MakingDue) -> Result<u64, StoreError> {
        on_backing!(self.make_due(progress))
    }

    /// Records that everything is about to be woken, in the name of the database's user.
    pub(crate) async fn note_wake_all(&self) -> Result<(), StoreError> {
        on_backing!(self.note_wake_all())
    }

    /// Fails if the deployment's durations have been changed since this process connected, which
    /// [`Store::other_timing`] then reports as well.
    pub(crate) async fn compare_timing(&self) -> Result<(), StoreError> {
        on_backing!(self.compare_timing())
    }

    /// Tells copies of pulled queues from the other events, of which workers have to be notified,
    /// and says which of those are urgent.
    pub(crate) async fn split_pulled(
        &self,
        notifications: &[Notification],
    ) -> Result<PulledSplit, StoreError> {
        on_backing!(self.split_pulled(notifications))
    }

    /// Undoes a pass of the probe that could not be published: the events are due again after the
    /// grace instead of the back-off.
    pub(crate) async fn promise_again(&self, ids: &[EventId]) -> Result<(), StoreError> {
        on_backing!(self.promise_again(ids))
    }

    /// Postpones events that the probe found overdue and may not publish yet: each is due again
    /// after this long, and not before its own time plus the grace. Nothing was tried in vain, so
    /// the back-off does not count it.
    pub(crate) async fn postpone(&self, later: &[(EventId, Duration)]) -> Result<(), StoreError> {
        on_backing!(self.postpone(later))
    }

    /// Makes sure that events are woken within this long: for a process that received a
    /// notification, can't keep it, and now acknowledges it.
    ///
    /// A promise only comes nearer: an earlier one may have a reason that is unknown here. Parked
    /// events stay parked, because their rule or their resume job has to wake them.
    pub(crate) async fn bring_forward(&self, asked: &[(EventId, Duration)]) -> Result<(), StoreError> {
        on_backing!(self.bring_forward(asked))
    }

    /// Which of these events wait to be taken by a worker: they are due, and neither claimed nor
    /// parked, and a worker has not found the limits full yet.
    pub(crate) async fn still_waiting(&self, ids: &[EventId]) -> Result<HashSet<EventId>, StoreError> {
        on_backing!(self.still_waiting(ids))
    }

    /// Another canvas that has events whose time has come, or comes within the horizon.
    pub(crate) async fn other_canvas(&self, canvas: CanvasId) -> Result<Option<CanvasId>, StoreError> {
        on_backing!(self.other_canvas(canvas))
    }

    /// The events among these that are of handlers with these keys, as the claim compares them. A
    /// copy is of none.
    pub(crate) async fn of_handlers(
        &self,
        asked: &[Notification],
        any_canvas: &[String],
        one_canvas: &[String],
    ) -> Result<HashSet<EventId>, StoreError> {
        on_backing!(self.of_handlers(asked, any_canvas, one_canvas))
    }

    /// Renews the promises of the next page of a job's events and moves the job's cursor, or ends
    /// the job, in one transaction. Locked rows are waited for up to the lock timeout. Rows that
    /// are locked for longer do not hold up the others: the page skips them and notes in the job
    /// where they are, and at its end the job returns there, with the next minute's pass. No row
    /// may be left out, or it would stay parked for ever.
    pub(crate) async fn resume_page(&self, job: i64) -> Result<ResumePage, StoreError> {
        on_backing!(self.resume_page(job))
    }
}
