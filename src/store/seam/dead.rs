//! The dead events, single events and their values, and the clock.

use super::on_backing;
use crate::event::{Actor, CanvasId, EventId, Timestamp};
use crate::store::events::{DeadEvent, DeadFilter, RedriveOutcome};
use crate::store::kernel::{Store, StoreError};

impl Store {
    /// Dead events after a position, latest first. Here and below, copies in queues are included if
    /// their queue shows them, or with `copies` all.
    pub(crate) async fn dead_events(
        &self,
        filter: &DeadFilter,
        copies: bool,
        after: Option<(Timestamp, EventId)>,
        limit: i64,
    ) -> Result<Vec<DeadEvent>, StoreError> {
        on_backing!(self.dead_events(filter, copies, after, limit))
    }

    /// A dead event of the canvas by its id.
    pub(crate) async fn dead_event(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<DeadEvent>, StoreError> {
        on_backing!(self.dead_event(canvas, id))
    }

    /// How many dead events match the filter, up to `limit`; with `back`, without those whose
    /// chosen id was emitted again and is live.
    pub(crate) async fn count_dead(
        &self,
        filter: &DeadFilter,
        (back, copies): (bool, bool),
        limit: u64,
    ) -> Result<u64, StoreError> {
        on_backing!(self.count_dead(filter, (back, copies), limit))
    }

    /// Redrives up to `limit` dead events, oldest first, after the first `skip`: with their
    /// `claims`, without their retries and losses. Those whose chosen id was emitted again and is
    /// live are left out. While an open transaction emits one of the ids, the whole page fails with
    /// contention.
    ///
    /// An event that was on an object becomes the last of its chain, with a new link; but if its
    /// lane has been halted since it died, it takes its old place again, and the lane resumes with
    /// it. A copy in a queue takes a link beside the chain: only its queue sees it, so no other
    /// event may have it as predecessor.
    pub(crate) async fn redrive_page(
        &self,
        filter: &DeadFilter,
        copies: bool,
        (skip, limit): (u64, u64),
        actor: &Actor,
    ) -> Result<RedriveOutcome, StoreError> {
        on_backing!(self.redrive_page(filter, copies, (skip, limit), actor))
    }

    /// Deletes up to `BULK_PAGE` dead events, oldest first; returns how many.
    pub(crate) async fn delete_dead_page(
        &self,
        filter: &DeadFilter,
        copies: bool,
        actor: &Actor,
    ) -> Result<u64, StoreError> {
        on_backing!(self.delete_dead_page(filter, copies, actor))
    }

    /// The id of the event that is meant by an id on this canvas: the same id, or the one that is
    /// derived from it if the caller chose it; `None` if neither is known. A copy in a queue is
    /// known only if its queue shows it, or with `copies`.
    pub(crate) async fn known_event(
        &self,
        canvas: CanvasId,
        id: EventId,
        copies: bool,
    ) -> Result<Option<EventId>, StoreError> {
        let meant = [id, EventId::chosen(canvas, id)];
        on_backing!(self.known_event(canvas, meant, copies))
    }

    /// When the canvas emitted a chosen id, if that is still remembered.
    pub(crate) async fn emitted_at(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<Timestamp>, StoreError> {
        on_backing!(self.emitted_at(canvas, id))
    }

    /// The value of a canvas's event, live or dead.
    pub(crate) async fn value(&self, canvas: CanvasId, id: EventId) -> Result<Option<String>, StoreError> {
        on_backing!(self.value(canvas, id))
    }

    /// The database's clock.
    #[doc(hidden)]
    pub async fn clock(&self) -> Result<Timestamp, StoreError> {
        on_backing!(self.clock())
    }
}
