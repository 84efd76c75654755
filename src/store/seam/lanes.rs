//! Objects, their chains, and the lanes of which only the first event may run.

use super::on_backing;
use crate::event::{Actor, CanvasId, EventId, Lane, Link, Name, Notification, ObjectKey};
use crate::store::kernel::{Store, StoreError};
use crate::store::order::{HaltedLane, HaltedPosition, InHand, Object, Tombstone};

impl Store {
    /// An object of the canvas; `None` if no event was ever emitted on it.
    #[doc(hidden)]
    pub async fn object(&self, canvas: CanvasId, key: &ObjectKey) -> Result<Option<Object>, StoreError> {
        on_backing!(self.object(canvas, key))
    }

    /// For each lane the notification of its first event, if that is not running and is due within
    /// the horizon, and the lane is not halted.
    pub(crate) async fn firsts(&self, lanes: &[Lane]) -> Result<Vec<Option<Notification>>, StoreError> {
        on_backing!(self.firsts(lanes))
    }

    /// Renews the promises of the first events of these lanes; returns those to publish, which are
    /// due within the horizon and not running. For use after an operator's removal was committed.
    pub(crate) async fn arm_firsts(&self, lanes: &[Lane]) -> Result<Vec<Notification>, StoreError> {
        on_backing!(self.arm_firsts(lanes))
    }

    /// The first event of a lane, and its link.
    pub(crate) async fn first(&self, lane: &Lane) -> Result<Option<(EventId, Link)>, StoreError> {
        on_backing!(self.first(lane))
    }

    /// Which events of an object are running, and on which worker, by handler and then by queue:
    /// only the first event of each lane can be. Those of a queue if it shows its copies, or with
    /// `copies` all.
    pub(crate) async fn running(
        &self,
        canvas: CanvasId,
        object: &ObjectKey,
        copies: bool,
        limit: i64,
    ) -> Result<Vec<InHand>, StoreError> {
        on_backing!(self.running(canvas, object, copies, limit))
    }

    /// The halted lanes of a canvas after a position, longest halted first: of one object or all.
    /// At most `limit`. With each, whether it may be shown: one of a queue if that shows its
    /// copies, or with `copies` every one.
    pub(crate) async fn halted_lanes(
        &self,
        canvas: CanvasId,
        object: Option<&ObjectKey>,
        copies: bool,
        after: Option<HaltedPosition>,
        limit: i64,
    ) -> Result<Vec<(HaltedLane, bool)>, StoreError> {
        on_backing!(self.halted_lanes(canvas, object, copies, after, limit))
    }

    /// Resumes an object without the events of a handler that died on it. Returns the lanes that
    /// were halted: the handler's, and those of registered queues in which a copy for it died, if
    /// they show their copies, or with `copies` all. The caller wakes their first events
    /// afterwards, by [`Store::arm_firsts`]; the promises of those are renewed here.
    pub(crate) async fn skip_lane(
        &self,
        lane: &Lane,
        copies: bool,
        actor: &Actor,
    ) -> Result<Vec<Lane>, StoreError> {
        on_backing!(self.skip_lane(lane, copies, actor))
    }

    /// The tombstones of an object after a link, in the order of the chain: those for consumers of
    /// the handlers' own events, or those of a queue, if it shows its copies or with `copies`.
    pub(crate) async fn tombstones(
        &self,
        canvas: CanvasId,
        object: &ObjectKey,
        (queue, copies): (Option<&Name>, bool),
        after: i64,
        limit: i64,
    ) -> Result<Vec<Tombstone>, StoreError> {
        on_backing!(self.tombstones(canvas, object, (queue, copies), after, limit))
    }
}
