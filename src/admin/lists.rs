//! Lists, page by page: events, dead events, the audit record.

use super::cursor::{Cursor, DeadPosition};
use super::{Admin, AdminError, LIST_MAX};
use crate::event::{
    CanvasId, CopyOf, EventFilter, EventId, EventState, HandlerAddress, Name, Place, Tag, Timestamp,
};
use crate::machine::{CheckResult, Policy, check_schedule};
use crate::store::{
    AuditEntry, AuditFilter, CountedEvents, DeadEvent, DeadFilter, FoundDead, ListedEvent, LookedLine,
    Position,
};

/// Maximum number of events that one page of a list examines.
const LOOK_MAX: i64 = 10_000;
/// Maximum bytes of texts on a page whose rows may be long; a single row may exceed it.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page<T> {
    /// The items. There may be few or none although more follow, because a page examines a limited
    /// number of rows.
    pub items: Vec<T>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
    /// How many rows were examined for this page.
    pub looked_at: u64,
}

impl<T> Page<T> {
    /// The first `limit` of what was found; if there is more, the next page begins after the last.
    pub(super) fn of(mut items: Vec<T>, limit: usize, cursor: impl FnOnce(&T) -> Cursor) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(cursor);
        Self { looked_at: items.len() as u64, items, next }
    }
}

/// An event in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventSummary {
    /// Its id.
    pub id: EventId,
    /// Its handler.
    pub address: HandlerAddress,
    /// Its state: the result of the machine's checks.
    pub state: CheckResult,
    /// When it was emitted.
    pub enqueued_at: Timestamp,
    /// When it is or was due.
    pub delay_until: Timestamp,
    /// The worker that has claimed it, while the lease stands; `None` for a pulled copy.
    pub worker: Option<Name>,
    /// The object it is on, and its link there, if any.
    pub place: Option<Place>,
    /// If it is a copy: its registered queue, and the event that was copied.
    pub copy_of: Option<CopyOf>,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// Retries so far.
    pub retries: i32,
    /// Claims that were lost because their workers died or stalled.
    pub losses: i32,
}

/// How many events meet a filter, of those that were examined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventCount {
    /// How many of the examined events meet it.
    pub count: u64,
    /// How many events were examined.
    pub looked_at: u64,
    /// Where to go on; `None` if all were examined.
    pub next: Option<Cursor>,
}

impl Admin {
    /// Events of a canvas that have not ended and meet the filter, by handler and due time; those
    /// on an object in their order on it, and members of a batch by their ids, as what waits for a
    /// limit, unless that is a handler's. Up to `limit`, 1 to [`LIST_MAX`]. A page examines up to
    /// 10,000 events, and if the filter asks for what is in values or errors, up to 32 MiB of
    /// values. So with a rare state it may be short or empty and still have a next page. An event
    /// that is retried or delayed between two pages may be on both or on neither.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin, canvas: wakeq::CanvasId) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::control::EventFilter;
    ///
    /// let of_ada = EventFilter { value: Some(r#"$.customer.id = "7""#.parse()?), ..EventFilter::default() };
    /// let page = admin.events(canvas, &of_ada, None, 100).await?;
    /// println!("{} of {} events, complete: {}", page.items.len(), page.looked_at, page.next.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn events(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<EventSummary>, AdminError> {
        filter.check()?;
        let after = self.place_in_list(filter, cursor)?;
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let one_more = limit as i64 + 1;
        let page = async |look| {
            let looks = (look, one_more);
            let listed = self.store.events(canvas, filter, self.copies, after.as_ref(), looks).await?;
            Ok::<_, AdminError>(self.page_of_events(listed, limit))
        };
        // The first rows usually suffice, and examining ten thousand takes ten times as long.
        let first = page(one_more).await?;
        if first.items.len() == limit || first.next.is_none() { Ok(first) } else { page(LOOK_MAX).await }
    }

    /// The place of a cursor, which belongs to the handlers of its filter, unless that goes along
    /// an object, a batch or a limit: the last event that was looked at there may be of another
    /// one.
    fn place_in_list(
        &self,
        filter: &EventFilter,
        cursor: Option<&Cursor>,
    ) -> Result<Option<Position>, AdminError> {
        let after = cursor.map(Cursor::event).transpose()?;
        if let Some(after) = &after {
            let (module, name) = filter.range();
            let is_of_others = module.is_some_and(|module| module.as_str() != after.module)
                || name.is_some_and(|name| name.as_str() != after.name);
            let goes_along =
                filter.object.is_some() || filter.batch.is_some() || filter.limit_in_index().is_some();
            if is_of_others && !goes_along {
                return Err(AdminError::Cursor);
            }
            if filter.object.is_some() && after.prev.is_none() {
                return Err(AdminError::Cursor);
            }
        }
        Ok(after)
    }

    fn page_of_events(&self, listed: Vec<ListedEvent>, limit: usize) -> Page<EventSummary> {
        let last = listed.iter().rfind(|event| event.last.is_some());
        let mut looked_at = last.or(listed.last()).map_or(0, |last| last.number.unsigned_abs());
        let boundary = last.filter(|last| last.last == Some(true)).map(ListedEvent::position);
        let mut meant: Vec<ListedEvent> = listed.into_iter().filter(|event| event.is_meant).collect();
        let next = if meant.len() > limit {
            meant.truncate(limit);
            looked_at = meant.last().map_or(0, |last| last.number.unsigned_abs());
            meant.last().map(ListedEvent::position)
        } else {
            boundary
        };
        let policy = Policy::of(self.store.timing(), u32::MAX);
        let items = meant.into_iter().map(|event| summary(event, &policy)).collect();
        Page { items, next: next.map(|position| Cursor::of_event(&position)), looked_at }
    }

    /// Dead events, the latest first, up to `limit`, 1 to [`LIST_MAX`].
    pub async fn dead(
        &self,
        filter: &DeadFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<DeadEvent>, AdminError> {
        let after = cursor.map(Cursor::dead).transpose()?;
        let limit = limit.clamp(1, LIST_MAX);
        let after = after.map(|DeadPosition(died_at, id)| (died_at, id));
        let mut items = {
            let filter = self.with_own_id(filter).await?;
            self.store.dead_events(&filter, self.copies, after, i64::from(limit) + 1).await?
        };
        let more = cut(&mut items, limit as usize, |dead| dead.last_error.as_deref().map_or(0, str::len));
        let last = items.last().filter(|_| more);
        let next = last.map(|last| Cursor::of_dead(&DeadPosition(last.died_at, last.id)));
        Ok(Page { looked_at: items.len() as u64, items, next })
    }

    /// Dead events of a canvas that meet the filter, the latest first, up to `limit`, 1 to
    /// [`LIST_MAX`]. A page examines as many as one of [`Admin::events`].
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin, canvas: wakeq::CanvasId) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::control::EventFilter;
    ///
    /// let timed_out = EventFilter { error_text: Some("timed out".parse()?), ..EventFilter::default() };
    /// let page = admin.search_dead(canvas, &timed_out, None, 100).await?;
    /// println!("{} of {} dead events", page.items.len(), page.looked_at);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn search_dead(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<DeadEvent>, AdminError> {
        filter.check()?;
        let after = cursor.map(Cursor::dead).transpose()?.map(|DeadPosition(died_at, id)| (died_at, id));
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let one_more = limit as i64 + 1;
        let found =
            async |look| self.store.search_dead(canvas, filter, self.copies, after, (look, one_more)).await;
        let mut listed = found(one_more).await?;
        if listed.iter().filter(|dead| dead.is_meant).count() < limit && has_more(&listed) {
            listed = found(LOOK_MAX).await?;
        }
        let (mut next, mut looked_at) = end_of(&listed);
        listed.retain(|dead| dead.is_meant);
        if listed.len() > limit {
            listed.truncate(limit);
            (next, looked_at) = listed.last().map_or((None, 0), |last| (Some(*last), last.number));
        }
        let ids: Vec<EventId> = listed.iter().map(|dead| dead.id).collect();
        let mut items = self.store.dead_of(canvas, &ids).await?;
        if cut(&mut items, limit, |dead| dead.last_error.as_deref().map_or(0, str::len)) {
            let last = items.last().and_then(|last| listed.iter().find(|dead| dead.id == last.id));
            (next, looked_at) = last.map_or((next, looked_at), |last| (Some(*last), last.number));
        }
        let next = next.map(|last| Cursor::of_dead(&DeadPosition(last.died_at, last.id)));
        Ok(Page { items, next, looked_at: looked_at.unsigned_abs() })
    }

    /// How many events of a canvas meet the filter, of up to 10,000 that are examined after the
    /// cursor. If [`EventCount::next`] is set, there are at least as many: repeat the call with
    /// it, and add the counts. Dead events are counted if `states` is [`EventState::Dead`] alone,
    /// and otherwise those that have not ended.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin, canvas: wakeq::CanvasId) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::control::EventFilter;
    ///
    /// let of_customer = EventFilter { tags: vec!["customer:7".parse()?], ..EventFilter::default() };
    /// let counted = admin.count_events(canvas, &of_customer, None).await?;
    /// println!("{}{} events", if counted.next.is_some() { "at least " } else { "" }, counted.count);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn count_events(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        cursor: Option<&Cursor>,
    ) -> Result<EventCount, AdminError> {
        filter.check()?;
        let looks = (LOOK_MAX, LOOK_MAX + 1);
        if filter.states == [EventState::Dead] {
            let after = cursor.map(Cursor::dead).transpose()?.map(|DeadPosition(died_at, id)| (died_at, id));
            let listed = self.store.search_dead(canvas, filter, self.copies, after, looks).await?;
            let (last, looked_at) = end_of(&listed);
            return Ok(EventCount {
                count: listed.iter().filter(|dead| dead.is_meant).count() as u64,
                looked_at: looked_at.unsigned_abs(),
                next: last.map(|last| Cursor::of_dead(&DeadPosition(last.died_at, last.id))),
            });
        }
        let after = self.place_in_list(filter, cursor)?;
        if filter.is_counted_by_index() {
            let counted = self.store.count_by_index(canvas, filter, self.copies, after.as_ref(), LOOK_MAX);
            let CountedEvents { count, looked_at, last } = counted.await?;
            return Ok(EventCount { count, looked_at, next: last.as_ref().map(Cursor::of_event) });
        }
        let listed = self.store.events(canvas, filter, self.copies, after.as_ref(), looks).await?;
        let last = listed.iter().rfind(|event| event.last.is_some());
        Ok(EventCount {
            count: listed.iter().filter(|event| event.is_meant).count() as u64,
            looked_at: last.map_or(0, |last| last.number.unsigned_abs()),
            next: last.filter(|last| last.last == Some(true)).map(|last| Cursor::of_event(&last.position())),
        })
    }

    /// Actions and refusals on a canvas, the newest first, up to `limit`, 1 to [`LIST_MAX`].
    /// Actions on every canvas, such as those on queues and consumer groups, are among those of
    /// [`CanvasId::DEFAULT`], and are not shown to its tenant.
    pub async fn audit(
        &self,
        canvas: CanvasId,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<AuditEntry>, AdminError> {
        self.search_audit(canvas, &AuditFilter::default(), cursor, limit).await
    }

    /// Those of [`Admin::audit`] that meet the filter. A page examines up to 10,000 lines, so with
    /// a rare condition it may be short or empty and still have a next page.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin, canvas: wakeq::CanvasId) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::control::AuditFilter;
    ///
    /// let pauses = AuditFilter { action: Some("pause".to_owned()), ..AuditFilter::default() };
    /// for line in admin.search_audit(canvas, &pauses, None, 100).await?.items {
    ///     println!("{} by {}", line.at, line.actor);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn search_audit(
        &self,
        canvas: CanvasId,
        filter: &AuditFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<AuditEntry>, AdminError> {
        filter.check().map_err(AdminError::Invalid)?;
        let after = cursor.map(Cursor::audit).transpose()?;
        let limit = limit.clamp(1, LIST_MAX);
        let one_more = i64::from(limit) + 1;
        let look = if filter.is_open() { one_more } else { LOOK_MAX };
        let of = (canvas, self.copies && canvas == CanvasId::DEFAULT);
        let looked = self.store.audit(of, filter, after, (look, one_more)).await?;
        Ok(page_of_lines(looked, limit as usize, look))
    }
}

/// A page of the lines that were meant, of those that were looked at.
fn page_of_lines(looked: Vec<LookedLine>, limit: usize, look: i64) -> Page<AuditEntry> {
    let position = |line: &LookedLine| (Cursor::of_audit((line.entry.at, line.entry.id)), line.number);
    let end = looked.last().map(position);
    let mut meant: Vec<LookedLine> = looked.into_iter().filter(|line| line.is_meant).collect();
    let more = cut(&mut meant, limit, |LookedLine { entry, .. }| {
        entry.actor.len() + entry.detail.as_deref().map_or(0, str::len)
    });
    let end = if more { meant.last().map(position) } else { end };
    let looked_at = end.as_ref().map_or(0, |(_, number)| number.unsigned_abs());
    let next = end.filter(|(_, number)| more || *number == look).map(|(cursor, _)| cursor);
    Page { looked_at, items: meant.into_iter().map(|line| line.entry).collect(), next }
}

/// Truncates to `limit` items and to the limit in bytes, but to one item at least; returns whether
/// any were cut off.
pub(super) fn cut<T>(items: &mut Vec<T>, limit: usize, bytes: impl Fn(&T) -> usize) -> bool {
    let sums = items.iter().scan(0, |sum, item| {
        *sum += bytes(item);
        Some(*sum)
    });
    let fitting = sums.take_while(|sum| *sum <= PAGE_BYTES).count().max(1);
    let more = items.len() > limit.min(fitting);
    items.truncate(limit.min(fitting));
    more
}

/// The last dead event that was looked at, if there may be others, and its number.
fn end_of(listed: &[FoundDead]) -> (Option<FoundDead>, i64) {
    let last = listed.iter().rfind(|dead| dead.last.is_some());
    let looked_at = last.or(listed.last()).map_or(0, |last| last.number);
    (last.filter(|last| last.last == Some(true)).copied(), looked_at)
}

/// Whether there may be others than those that were looked at.
fn has_more(listed: &[FoundDead]) -> bool {
    listed.iter().any(|dead| dead.last == Some(true))
}

fn summary(event: ListedEvent, policy: &Policy) -> EventSummary {
    EventSummary {
        id: event.id,
        state: check_schedule(event.schedule, policy).at_limit(event.waits),
        address: event.address,
        enqueued_at: event.enqueued_at,
        delay_until: event.schedule.delay_until,
        retries: event.retries,
        losses: event.losses,
        worker: event.worker,
        place: event.place,
        copy_of: event.copy_of,
        tags: event.tags,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::notify::LocalNotifier;
    use crate::store::StoreConfig;
    use crate::store::tests::Table;

    #[test]
    fn a_page_ends_with_its_count_or_its_bytes_and_has_one_row_at_least() {
        let cut = |sizes: &[usize], limit| {
            let mut items = sizes.to_vec();
            let more = cut(&mut items, limit, |size| *size);
            (items.len(), more)
        };
        assert_eq!(cut(&[1, 1, 1], 2), (2, true));
        assert_eq!(cut(&[1, 1], 2), (2, false));
        assert_eq!(cut(&[PAGE_BYTES / 2, PAGE_BYTES / 2, 1], 9), (2, true));
        assert_eq!(cut(&[PAGE_BYTES + 1, 1], 9), (1, true));
        assert_eq!(cut(&[PAGE_BYTES + 1], 9), (1, false));
        assert_eq!(cut(&[], 9), (0, false));
    }

    /// A tenant's list examines more than it shows only if hidden copies are among its events.
    #[tokio::test]
    async fn a_tenants_page_reads_only_the_rows_it_shows() {
        let table = Table::with(StoreConfig { max_connections: 1, ..StoreConfig::default() }).await;
        table.add(12_000).await;
        let before = table.fetched().await;
        let admin = Admin::new(table.store.clone(), Arc::new(LocalNotifier::new())).for_tenants();
        let filter = EventFilter::default();
        let page = admin.events(CanvasId::DEFAULT, &filter, None, 100).await.unwrap();
        assert_eq!((page.items.len(), page.next.is_some()), (100, true));
        let other = CanvasId(Uuid::from_u128(7));
        assert_eq!(admin.events(other, &filter, None, 100).await.unwrap().items, []);
        // Closing makes the session report what it has read.
        table.store.close().await;
        wakeq_testbed::wait_while!(table.fetched().await < before + 101, "no report");
        let read = table.fetched().await - before;
        assert!(read < 500, "{read} rows");
    }
}
