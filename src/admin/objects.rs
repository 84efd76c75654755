//! Objects: showing them and their halted lanes, and resuming those.

use super::{Admin, AdminError, Cursor, LIST_MAX, Page, checked};
use crate::event::{Actor, CanvasId, Lane, Name, ObjectKey};
use crate::store::{HaltedLane, InHand, Object, StoreError, Tombstone};

impl Admin {
    /// An object of the canvas; `None` if no event was ever emitted on it.
    pub async fn object(&self, canvas: CanvasId, key: &ObjectKey) -> Result<Option<Object>, AdminError> {
        Ok(self.store.object(canvas, key).await?)
    }

    /// Halted lanes of a canvas, because an event died; the longest halted first, up to `limit`, 1
    /// to [`LIST_MAX`].
    pub async fn halted(
        &self,
        canvas: CanvasId,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<HaltedLane>, AdminError> {
        self.halted_lanes(canvas, None, cursor, limit).await
    }

    /// The halted lanes of an object, the longest halted first, up to `limit`, 1 to [`LIST_MAX`]:
    /// each is of another handler or queue.
    pub async fn halted_on(
        &self,
        canvas: CanvasId,
        object: &ObjectKey,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<HaltedLane>, AdminError> {
        self.halted_lanes(canvas, Some(object), cursor, limit).await
    }

    async fn halted_lanes(
        &self,
        canvas: CanvasId,
        object: Option<&ObjectKey>,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<HaltedLane>, AdminError> {
        let after = cursor.map(Cursor::halted).transpose()?;
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let found = self.store.halted_lanes(canvas, object, self.copies, after, limit as i64 + 1).await?;
        let cursor = |(halted, _): &(HaltedLane, bool)| Cursor::of_halted((halted.halted_at, halted.event));
        let Page { items, next, looked_at } = Page::of(found, limit, cursor);
        let shown = items.into_iter().filter(|(_, is_shown)| *is_shown);
        Ok(Page { items: shown.map(|(halted, _)| halted).collect(), next, looked_at })
    }

    /// The running events of an object, with their workers, by queue and handler, up to `limit`, 1
    /// to 1,001.
    pub async fn running(
        &self,
        canvas: CanvasId,
        object: &ObjectKey,
        limit: u32,
    ) -> Result<Vec<InHand>, AdminError> {
        let limit = i64::from(limit.clamp(1, LIST_MAX + 1));
        Ok(self.store.running(canvas, object, self.copies, limit).await?)
    }

    /// The links of an object's chain after `after` that a consumer waits for in vain, in order, up
    /// to `limit`, 1 to 1,001: their events were cancelled or purged, or died and were skipped.
    /// With `queue`, those that are missing in that registered queue.
    ///
    /// ```
    /// use wakeq::machine::{Consumption, consume, pass_over};
    /// use wakeq::{Admin, Execution, HandlerError, HandlerResult};
    ///
    /// /// `last` is the last event of the object that this consumer has seen.
    /// async fn book(admin: &Admin, event: Execution, mut last: i64) -> HandlerResult {
    ///     let place = event.place.ok_or_else(|| HandlerError::value("it is on no object"))?;
    ///     if consume(last, place.link) == Consumption::Delay {
    ///         let canvas = event.address.scope.canvas;
    ///         let gone = admin.tombstones(canvas, &place.object, None, last, 1000).await?;
    ///         last = pass_over(last, gone.iter().map(|gone| gone.link));
    ///     }
    ///     match consume(last, place.link) {
    ///         Consumption::Consume => Ok(()), // and `last` becomes `place.link.id`
    ///         Consumption::Done => Ok(()),
    ///         Consumption::Delay => Err(HandlerError::not_yet(std::time::Duration::from_secs(5))),
    ///     }
    /// }
    /// ```
    pub async fn tombstones(
        &self,
        canvas: CanvasId,
        object: &ObjectKey,
        queue: Option<&Name>,
        after: i64,
        limit: u32,
    ) -> Result<Vec<Tombstone>, AdminError> {
        let limit = i64::from(limit.clamp(1, LIST_MAX + 1));
        Ok(self.store.tombstones(canvas, object, (queue, self.copies), after, limit).await?)
    }

    /// Resumes an object for a handler, including its lanes in registered queues, without the event
    /// that died there, which stays among the dead events; returns whether a lane was halted. To
    /// resume with that event, redrive it.
    pub async fn skip(&self, lane: &Lane, actor: &Actor) -> Result<bool, AdminError> {
        checked(actor)?;
        let mut lanes = self.store.skip_lane(lane, self.copies, actor).await?;
        let lifted = !lanes.is_empty();
        // Also if it was not halted: a repeated call makes up for a wake-up that was lost.
        if !lanes.contains(lane) {
            lanes.push(lane.clone());
        }
        self.resume_lanes(&lanes).await;
        Ok(lifted)
    }

    /// Wakes the next events of lanes from which an event was removed. The removal is committed, so
    /// errors are only logged: the promises of those events make up for them.
    pub(super) async fn resume_lanes(&self, lanes: &[Lane]) {
        if lanes.is_empty() {
            return;
        }
        match self.arm(lanes).await {
            Ok(firsts) if firsts.is_empty() => {}
            Ok(firsts) => drop(self.publish(&firsts).await),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, lanes = lanes.len(), "the next events of objects wait for the probe");
            }
        }
    }

    async fn arm(&self, lanes: &[Lane]) -> Result<Vec<crate::event::Notification>, StoreError> {
        self.store.arm_firsts(lanes).await
    }
}
