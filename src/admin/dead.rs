//! Dead events: redriving them, and deleting them before their retention ends.

use super::events::counted;
use super::{Admin, AdminError, BULK_MAX, Bulk, COUNT_MAX, checked};
use crate::event::{Actor, CanvasId, EventId, Timestamp};
use crate::store::{BULK_PAGE, DeadFilter};

/// Factor by which a page shrinks when one of its ids is being emitted: each try waits for a lock.
const SHRINK: u64 = 32;
/// After skipping this many ids that are being emitted, a call ends and reports that there is more.
const SKIP_MAX: u64 = 4;

/// Pages that narrow down to an event that can't be redriven now, until it is alone and skipped.
struct Pages {
    size: u64,
    /// How many of the oldest remaining events are skipped.
    skip: u64,
    /// An event that can't be redriven is among this many next ones.
    near: u64,
}

impl Pages {
    fn narrow(&mut self) {
        if self.size == 1 {
            *self = Self { size: BULK_PAGE, skip: self.skip + 1, near: 0 };
        } else {
            *self = Self { size: (self.size / SHRINK).max(1), skip: self.skip, near: self.size };
        }
    }

    fn widen(&mut self, passed: u64) {
        self.near = self.near.saturating_sub(passed);
        if self.near == 0 {
            self.size = BULK_PAGE;
        }
    }
}

impl Admin {
    /// Redrives dead events, the oldest first, up to [`BULK_MAX`]: they return as they were, with
    /// their retries reset. With `dry_run` they are only counted.
    ///
    /// An event that dies again in the meantime is not redriven a second time. Callers that repeat
    /// the call while there is more should therefore set `before` to the moment of the first call.
    /// If the broker is unavailable, that is logged and not an error: the rows have changed, and
    /// their promises wake the events.
    pub async fn redrive(
        &self,
        filter: &DeadFilter,
        actor: &Actor,
        dry_run: bool,
    ) -> Result<Bulk, AdminError> {
        Ok(self.redrive_until_now(filter, actor, dry_run.then_some(BULK_MAX)).await?.0)
    }

    /// Like [`Admin::redrive`]; also returns the moment before which the events had died, for
    /// subsequent calls.
    #[doc(hidden)]
    pub async fn redrive_until_now(
        &self,
        filter: &DeadFilter,
        actor: &Actor,
        only_counted: Option<u64>,
    ) -> Result<(Bulk, Timestamp), AdminError> {
        checked(actor)?;
        let before = self.until_now(filter.before).await?;
        let filter = DeadFilter { before: Some(before), ..self.with_own_id(filter).await? };
        if let Some(max) = only_counted {
            let max = max.clamp(1, COUNT_MAX);
            let count = self.store.count_dead(&filter, (true, self.copies), max + 1).await?;
            return Ok((counted(count, max), before));
        }
        Ok((self.redrive_pages(&filter, actor).await?, before))
    }

    async fn redrive_pages(&self, filter: &DeadFilter, actor: &Actor) -> Result<Bulk, AdminError> {
        // Once publishing a page has failed, the other events are left to their promises: each page
        // would wait for the broker again.
        let mut published = true;
        let mut count = 0;
        let mut pages = Pages { size: BULK_PAGE, skip: 0, near: 0 };
        while count < BULK_MAX && pages.skip < SKIP_MAX {
            let page =
                match self.store.redrive_page(filter, self.copies, (pages.skip, pages.size), actor).await {
                    // Another session's open transaction emits one of these ids: the other events
                    // need not wait for it.
                    Err(error) if error.is_contention() && filter.id.is_none() => {
                        pages.narrow();
                        continue;
                    }
                    page => page?,
                };
            count += page.back.len() as u64;
            published =
                published && (page.back.is_empty() || self.publish_share(filter.canvas, &page.back).await);
            if page.looked < pages.size {
                break;
            }
            pages.widen(page.looked);
        }
        let more = self.store.count_dead(filter, (true, self.copies), 1).await? > 0;
        Ok(Bulk { count, more })
    }

    /// Redrives one dead event of the canvas; returns its id.
    pub async fn redrive_one(
        &self,
        canvas: CanvasId,
        id: EventId,
        actor: &Actor,
    ) -> Result<EventId, AdminError> {
        let id = self.own_id(canvas, id).await?;
        let filter = DeadFilter { canvas, id: Some(id), ..DeadFilter::default() };
        match self.redrive(&filter, actor, false).await?.count {
            0 => Err(AdminError::NotFound(id)),
            _ => Ok(id),
        }
    }

    /// The filter with the event's own id, if it names the id that the caller had chosen.
    pub(super) async fn with_own_id(&self, filter: &DeadFilter) -> Result<DeadFilter, AdminError> {
        let mut meant = filter.clone();
        if let Some(id) = filter.id
            && let Some(known) = self.store.known_event(filter.canvas, id, self.copies).await?
        {
            meant.id = Some(known);
        }
        Ok(meant)
    }

    /// Deletes dead events permanently, the oldest first, up to [`BULK_MAX`]; with `dry_run` they
    /// are only counted. Events that die in the meantime are not deleted.
    pub async fn delete_dead(
        &self,
        filter: &DeadFilter,
        actor: &Actor,
        dry_run: bool,
    ) -> Result<Bulk, AdminError> {
        Ok(self.delete_dead_until_now(filter, actor, dry_run.then_some(BULK_MAX)).await?.0)
    }

    /// Like [`Admin::delete_dead`]; also returns the moment before which the events had died, for
    /// subsequent calls.
    #[doc(hidden)]
    pub async fn delete_dead_until_now(
        &self,
        filter: &DeadFilter,
        actor: &Actor,
        only_counted: Option<u64>,
    ) -> Result<(Bulk, Timestamp), AdminError> {
        checked(actor)?;
        let before = self.until_now(filter.before).await?;
        let filter = &DeadFilter { before: Some(before), ..self.with_own_id(filter).await? };
        if let Some(max) = only_counted {
            let max = max.clamp(1, COUNT_MAX);
            let count = self.store.count_dead(filter, (false, self.copies), max + 1).await?;
            return Ok((counted(count, max), before));
        }
        let mut count = 0;
        while count < BULK_MAX {
            let page = self.store.delete_dead_page(filter, self.copies, actor).await?;
            count += page;
            if page < BULK_PAGE {
                break;
            }
        }
        let more = self.store.count_dead(filter, (false, self.copies), 1).await? > 0;
        Ok((Bulk { count, more }, before))
    }
}
