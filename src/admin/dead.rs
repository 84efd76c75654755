//! Dead events: brought back, or forgotten before their time.

use super::events::counted;
use super::{Admin, AdminError, BULK_MAX, Bulk, COUNT_MAX, checked};
use crate::event::{Actor, CanvasId, EventId, Timestamp};
use crate::store::{BULK_PAGE, DeadFilter};

/// By how much a page shrinks when one of its ids is being emitted: each try waits for a lock.
const SHRINK: u64 = 32;
/// After so many ids that are being emitted a call ends, and says that there is more.
const SKIP_MAX: u64 = 4;

/// Pages that close in on an event that can't be brought back now, until it is alone and left out.
struct Pages {
    size: u64,
    /// How many were left out: the oldest of those that are left.
    skip: u64,
    /// One that can't be brought back is among the next so many.
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
    /// Brings dead events back as they were, without their retries, the oldest first, [`BULK_MAX`] at most; or with
    /// `dry_run` only counts them.
    ///
    /// What dies again meanwhile is not brought back a second time; who calls again while there is more should set
    /// `before` to the moment of the first call for the same reason. A broker that is away is logged and no error: the
    /// rows are what counts, and their promises make up for what was not published.
    pub async fn redrive(
        &self,
        filter: &DeadFilter,
        actor: &Actor,
        dry_run: bool,
    ) -> Result<Bulk, AdminError> {
        Ok(self.redrive_until_now(filter, actor, dry_run.then_some(BULK_MAX)).await?.0)
    }

    /// The same; also the moment that everything it was about died before, for the calls that follow.
    pub(crate) async fn redrive_until_now(
        &self,
        filter: &DeadFilter,
        actor: &Actor,
        only_counted: Option<u64>,
    ) -> Result<(Bulk, Timestamp), AdminError> {
        checked(actor)?;
        let before = self.until_now(filter.before).await?;
        let filter = DeadFilter { before: Some(before), ..self.meant(filter).await? };
        if let Some(max) = only_counted {
            let max = max.clamp(1, COUNT_MAX);
            let count = self.store.count_dead(&filter, (true, self.copies), max + 1).await?;
            return Ok((counted(count, max), before));
        }
        Ok((self.redrive_pages(&filter, actor).await?, before))
    }

    async fn redrive_pages(&self, filter: &DeadFilter, actor: &Actor) -> Result<Bulk, AdminError> {
        // Once a page could not be published the others are left to their promises: each would wait for the broker anew.
        let mut published = true;
        let mut count = 0;
        let mut pages = Pages { size: BULK_PAGE, skip: 0, near: 0 };
        while count < BULK_MAX && pages.skip < SKIP_MAX {
            let page =
                match self.store.redrive_page(filter, self.copies, (pages.skip, pages.size), actor).await {
                    // Somebody's open transaction emits one of these ids: the others need not wait for it.
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

    /// Brings one dead event of the canvas back; its id.
    pub async fn redrive_one(
        &self,
        canvas: CanvasId,
        id: EventId,
        actor: &Actor,
    ) -> Result<EventId, AdminError> {
        let id = self.known(canvas, id).await?;
        let filter = DeadFilter { canvas, id: Some(id), ..DeadFilter::default() };
        match self.redrive(&filter, actor, false).await?.count {
            0 => Err(AdminError::NotFound(id)),
            _ => Ok(id),
        }
    }

    /// The filter, with the event's own id where it names another one that was chosen for it.
    pub(super) async fn meant(&self, filter: &DeadFilter) -> Result<DeadFilter, AdminError> {
        let mut meant = filter.clone();
        if let Some(id) = filter.id
            && let Some(known) = self.store.known_event(filter.canvas, id, self.copies).await?
        {
            meant.id = Some(known);
        }
        Ok(meant)
    }

    /// Deletes dead events for good, the oldest first, [`BULK_MAX`] at most; or with `dry_run` only counts them. What dies
    /// meanwhile is left alone.
    pub async fn delete_dead(
        &self,
        filter: &DeadFilter,
        actor: &Actor,
        dry_run: bool,
    ) -> Result<Bulk, AdminError> {
        Ok(self.delete_dead_until_now(filter, actor, dry_run.then_some(BULK_MAX)).await?.0)
    }

    /// The same; also the moment that everything it was about died before, for the calls that follow.
    pub(crate) async fn delete_dead_until_now(
        &self,
        filter: &DeadFilter,
        actor: &Actor,
        only_counted: Option<u64>,
    ) -> Result<(Bulk, Timestamp), AdminError> {
        checked(actor)?;
        let before = self.until_now(filter.before).await?;
        let filter = &DeadFilter { before: Some(before), ..self.meant(filter).await? };
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
