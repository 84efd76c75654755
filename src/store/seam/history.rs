//! The history of events: what is read of it. The ends of events write it.

use super::on_backing;
use crate::event::{CanvasId, EventId, Timestamp};
use crate::store::events::{AttemptRecord, EndedEvent, EndedFilter};
use crate::store::kernel::{Store, StoreError};

impl Store {
    /// The last 100 attempts at an event of the canvas that are known, in their order, whether it
    /// waits, is dead, or has ended and is kept.
    pub(crate) async fn attempts(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Vec<AttemptRecord>, StoreError> {
        on_backing!(self.attempts(canvas, id))
    }

    /// An event of the canvas that has ended and is kept.
    pub(crate) async fn ended_event(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<EndedEvent>, StoreError> {
        on_backing!(self.ended_event(canvas, id))
    }

    /// Events of the canvas that have ended and are kept, after a position, latest first.
    pub(crate) async fn ended_events(
        &self,
        filter: &EndedFilter,
        after: Option<(Timestamp, EventId)>,
        limit: i64,
    ) -> Result<Vec<EndedEvent>, StoreError> {
        on_backing!(self.ended_events(filter, after, limit))
    }

    /// The value of an event of the canvas that has ended and is kept, and its result.
    pub(crate) async fn ended_value(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<(String, Option<String>)>, StoreError> {
        on_backing!(self.ended_value(canvas, id))
    }
}
