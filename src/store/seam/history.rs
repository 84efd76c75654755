//! The history of events: what is read of it. The ends of events write it.

use super::on_backing;
use crate::event::{CanvasId, EndedFilter, EventId, Timestamp};
use crate::store::events::{AttemptRecord, EndedEvent, FoundEnded};
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

    /// Looks at up to `look` events of a canvas that have ended and are kept, after a position, the
    /// latest first, and finds up to `limit` of those that meet the filter. The last one that was
    /// looked at is found in any case, unless the limit leaves it out. Their errors and options are
    /// read if they are to be `shown`.
    pub(crate) async fn search_ended(
        &self,
        filter: &EndedFilter,
        after: Option<(Timestamp, EventId)>,
        (look, limit): (i64, i64),
        shown: bool,
    ) -> Result<Vec<FoundEnded>, StoreError> {
        on_backing!(self.search_ended(filter, after, (look, limit), shown))
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
