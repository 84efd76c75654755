//! Dead events: brought back, or forgotten before their time.

use super::events::counted;
use super::{Admin, AdminError, BULK_MAX, Bulk, checked};
use crate::event::{Actor, CanvasId, EventId, Timestamp};
use crate::store::{BULK_PAGE, DeadFilter};

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
        Ok(self.redrive_until_now(filter, actor, dry_run).await?.0)
    }

    /// The same; also the moment that everything it was about died before, for the calls that follow.
    pub(crate) async fn redrive_until_now(
        &self,
        filter: &DeadFilter,
        actor: &Actor,
        dry_run: bool,
    ) -> Result<(Bulk, Timestamp), AdminError> {
        checked(actor)?;
        let now = self.store.clock().await?;
        let before = filter.before.map_or(now, |before| before.min(now));
        let filter = DeadFilter { before: Some(before), ..filter.clone() };
        if dry_run {
            return Ok((counted(self.store.count_dead(&filter, true, BULK_MAX + 1).await?), before));
        }
        Ok((self.redrive_pages(&filter, actor).await?, before))
    }

    async fn redrive_pages(&self, filter: &DeadFilter, actor: &Actor) -> Result<Bulk, AdminError> {
        // Once a page could not be published the others are left to their promises: each would wait for the broker anew.
        let mut published = true;
        let mut count = 0;
        while count < BULK_MAX {
            let page = self.store.redrive_page(filter, actor).await?;
            count += page.len() as u64;
            published = published && (page.is_empty() || self.publish(&page).await);
            if (page.len() as u64) < BULK_PAGE {
                return Ok(Bulk { count, more: false });
            }
        }
        let more = self.store.count_dead(filter, true, 1).await? > 0;
        Ok(Bulk { count, more })
    }

    /// Brings one dead event of the canvas back.
    pub async fn redrive_one(&self, canvas: CanvasId, id: EventId, actor: &Actor) -> Result<(), AdminError> {
        let filter = DeadFilter { canvas, id: Some(id), ..DeadFilter::default() };
        match self.redrive(&filter, actor, false).await?.count {
            0 => Err(AdminError::NotFound(id)),
            _ => Ok(()),
        }
    }

    /// Deletes dead events for good, the oldest first, [`BULK_MAX`] at most; or with `dry_run` only counts them.
    pub async fn delete_dead(
        &self,
        filter: &DeadFilter,
        actor: &Actor,
        dry_run: bool,
    ) -> Result<Bulk, AdminError> {
        checked(actor)?;
        if dry_run {
            return Ok(counted(self.store.count_dead(filter, false, BULK_MAX + 1).await?));
        }
        let mut count = 0;
        while count < BULK_MAX {
            let page = self.store.delete_dead_page(filter, actor).await?;
            count += page;
            if page < BULK_PAGE {
                return Ok(Bulk { count, more: false });
            }
        }
        Ok(Bulk { count, more: self.store.count_dead(filter, false, 1).await? > 0 })
    }
}
