//! What a filter selects: of the events that have not ended, and of the dead ones; and their tags.

use super::on_backing;
use crate::event::{Actor, CanvasId, EventFilter, EventId, Tag, Timestamp};
use crate::store::events::{CountedEvents, DeadEvent, FoundDead, ListedEvent, Position};
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

    /// Counts the events that a filter selects among up to `look` that are after a position. The
    /// filter asks for a handler and one tag at most ([`EventFilter::is_counted_by_index`]).
    pub(crate) async fn count_by_index(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        copies: bool,
        after: Option<&Position>,
        look: i64,
    ) -> Result<CountedEvents, StoreError> {
        on_backing!(self.count_by_index(canvas, filter, copies, after, look))
    }

    /// As [`Store::events`] of dead events, the latest first.
    pub(crate) async fn search_dead(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        copies: bool,
        after: Option<(Timestamp, EventId)>,
        (look, limit): (i64, i64),
    ) -> Result<Vec<FoundDead>, StoreError> {
        on_backing!(self.search_dead(canvas, filter, copies, after, (look, limit)))
    }

    /// Replaces the tags of an event, live or dead, that is not a copy. Returns whether its options
    /// have room for them; `None` if the canvas has no such event.
    pub(crate) async fn set_tags(
        &self,
        canvas: CanvasId,
        id: EventId,
        tags: &[Tag],
        actor: &Actor,
    ) -> Result<Option<bool>, StoreError> {
        on_backing!(self.set_tags(canvas, id, tags, actor))
    }

    /// Those of these dead events that the canvas has, the latest first.
    pub(crate) async fn dead_of(
        &self,
        canvas: CanvasId,
        ids: &[EventId],
    ) -> Result<Vec<DeadEvent>, StoreError> {
        on_backing!(self.dead_of(canvas, ids))
    }
}
