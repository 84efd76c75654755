//! Runs: load, claim, and the fenced writes of an owner; and what becomes of events that can't run.

use std::sync::Arc;
use std::time::Duration;

use super::{Backing, on_backing};
use crate::event::{CanvasId, Cause, Claim, EventId, Notification};
use crate::store::events::{AttemptEnd, ClaimLimits, ClaimedEvent, KeptEnd, LoadedEvent, Renewal, Retry};
use crate::store::kernel::{Store, StoreError};

impl Store {
    /// Loads events by their ids; `None` for each that is gone.
    pub(crate) async fn load(&self, ids: &[EventId]) -> Result<Vec<Option<LoadedEvent>>, StoreError> {
        on_backing!(self.load(ids))
    }

    /// Claims the events that may run now by the database's clock; `None` for each that may not, or
    /// that is not on the canvas its notification names: events outside queues have no other way to
    /// start.
    pub(crate) async fn claim(
        &self,
        notifications: &[Notification],
        limits: &ClaimLimits,
    ) -> Result<Vec<Option<ClaimedEvent>>, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.claim(notifications, limits).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().claim(notifications, limits, self.worker.as_deref()),
        }
    }

    /// Renews the leases of running claims, on a dedicated connection.
    pub(crate) async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>, StoreError> {
        on_backing!(self.renew(claims))
    }

    /// Deletes completed events.
    pub(crate) async fn complete(&self, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        on_backing!(self.complete(claims))
    }

    /// Deletes completed events that are on objects, and renews the promises of their successors:
    /// if this process dies before it has woken them, the probe does so after the grace, however
    /// long they have waited.
    pub(crate) async fn complete_links(&self, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.complete_links(claims).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().complete(claims),
        }
    }

    /// Counts a retry, or postpones the event if the count stays the same, sets when it is due and
    /// releases the claim. The history notes the attempt if the retry says so.
    pub(crate) async fn retry(&self, retries: &[Arc<Retry>]) -> Result<Vec<bool>, StoreError> {
        on_backing!(self.retry(retries))
    }

    /// Whether the history has room for another attempt of this canvas, which then counts as added.
    /// No statement: it is measured in the background.
    pub(crate) fn has_room_for_attempt(&self, canvas: CanvasId) -> bool {
        match self.backing() {
            Backing::Postgres(sql) => sql.has_room_for_attempt(canvas),
            #[cfg(feature = "testing")]
            Backing::Memory(_) => true,
        }
    }

    /// Gives claims up without counting anything; the events may run again at once. Returns how
    /// many of the claims still stood.
    pub(crate) async fn release(&self, claims: &[Claim]) -> Result<u64, StoreError> {
        on_backing!(self.release(claims))
    }

    /// Claims whose events were cancelled while they ran, up to [`CANCELLED_PAGE`]: those of every
    /// process.
    ///
    /// [`CANCELLED_PAGE`]: crate::store::CANCELLED_PAGE
    pub(crate) async fn cancelled_claims(&self) -> Result<Vec<Claim>, StoreError> {
        on_backing!(self.cancelled_claims())
    }

    /// Deletes completed events and keeps each as long as its emit asks for, or else its end says.
    /// If that is not at all, it is only deleted. Otherwise as [`Store::complete_links`].
    pub(crate) async fn complete_kept(&self, ends: &[Arc<KeptEnd>]) -> Result<Vec<bool>, StoreError> {
        on_backing!(self.complete_kept(ends))
    }

    /// Deletes a claimed event that was cancelled while it ran; `false` if it was not, or the claim
    /// does not stand. It is kept as by [`Store::complete_kept`]. If it was on an object, a
    /// tombstone takes its place there, and the promise of its successor is renewed.
    pub(crate) async fn remove_cancelled(&self, claim: Claim, end: &AttemptEnd) -> Result<bool, StoreError> {
        on_backing!(self.remove_cancelled(claim, end))
    }

    /// Moves an event to the dead events, unless it was cancelled while it ran. If its canvas
    /// already has a dead event of the same id, written by hand, the later death is kept. If it was
    /// on an object: with `halts` its lane is halted from then on, otherwise a tombstone takes its
    /// place there; the promise of its successor is renewed. The history notes the attempt if it
    /// says how long that took.
    pub(crate) async fn die(
        &self,
        claim: Claim,
        cause: Cause,
        error: Option<&str>,
        halts: bool,
        took: Option<Duration>,
    ) -> Result<bool, StoreError> {
        on_backing!(self.die(claim, cause, error, halts, took))
    }

    /// Clears the promise of events while a rule stands on their handler; `false` for each that no
    /// rule holds any longer. The time under a rule does not count as postponement.
    pub(crate) async fn park(&self, ids: &[EventId]) -> Result<Vec<bool>, StoreError> {
        on_backing!(self.park(ids))
    }

    /// Postpones the promise of events whose handler this worker does not know, and notes the
    /// handler, unless it is a queue's or its canvas has 10,000 of them. Another worker may know
    /// it, so the promise stays, and finds it without a note; the intervals grow up to twelve times
    /// the first. While its target is held as gone, an event is not being postponed; where it is
    /// only unknown here, it may be by another worker. Parked events stay parked.
    pub(crate) async fn defer(&self, ids: &[EventId]) -> Result<(), StoreError> {
        on_backing!(self.defer(ids))
    }

    /// Makes deferred events that do have a target due at the next pass, and deletes the note of
    /// their handler: the target was registered between the lookup and the deferral, so the
    /// registration could not see them.
    pub(crate) async fn wake_registered(&self, ids: &[EventId]) -> Result<(), StoreError> {
        on_backing!(self.wake_registered(ids))
    }

    /// Called when a worker has these handlers: creates a resume job for each of them that events
    /// wait for, and returns how many.
    pub(crate) async fn register(
        &self,
        handlers: &[String],
        canvas_handlers: &[String],
    ) -> Result<u64, StoreError> {
        on_backing!(self.register(handlers, canvas_handlers))
    }
}
