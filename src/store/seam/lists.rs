//! The list of the events that have not ended.

use super::on_backing;
use crate::event::{CanvasId, EventFilter};
use crate::store::events::{ListedEvent, Position};
use crate::store::kernel::{Store, StoreError};

impl Store {
    /// Looks at up to `look` events of a canvas after a position, by handler and due time, and
    /// lists up to `limit` of those that meet the filter. The last one that was looked at is listed
    /// in any case, unless the limit leaves it out. Copies in queues are listed if their queue
    /// shows them, or with `copies` all.
    pub(crate) async fn events(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        copies: bool,
        after: Option<&Position>,
        (look, limit): (i64, i64),
    ) -> Result<Vec<ListedEvent>, StoreError> {
        on_backing!(self.events(canvas, filter, copies, after, (look, limit)))
    }
}
