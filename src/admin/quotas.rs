//! Quotas of canvases: shown, set and unset. Whoever calls makes sure that no tenant raises its own.

use super::{Admin, AdminError, checked};
use crate::event::{Actor, CanvasId, Quota};
use crate::store::QuotaUse;

/// The highest limit that can be set.
const LIMIT_MAX: u64 = 1_000_000_000_000_000;

impl Admin {
    /// Every quota of a canvas: its limit, and how much there is. What there may be much of is measured at most every five
    /// seconds, and bytes are estimated.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// for quota in admin.quotas(wakeq::CanvasId::DEFAULT).await? {
    ///     println!("{}: {} of {}", quota.quota, quota.used, quota.limit);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn quotas(&self, canvas: CanvasId) -> Result<Vec<QuotaUse>, AdminError> {
        Ok(self.store.quotas(canvas).await?)
    }

    /// Sets what a canvas may keep of something, at most 10^15. What is there already stays. It counts at once in this
    /// process, and within a minute in the others.
    pub async fn set_quota(
        &self,
        canvas: CanvasId,
        quota: Quota,
        limit: u64,
        actor: &Actor,
    ) -> Result<(), AdminError> {
        checked(actor)?;
        if limit > LIMIT_MAX {
            return Err(AdminError::Invalid("the limit of a quota is at most 1,000,000,000,000,000"));
        }
        Ok(self.store.set_quota(canvas, quota, limit, actor).await?)
    }

    /// Gives a canvas the limit that every canvas has; whether another one was set.
    pub async fn unset_quota(
        &self,
        canvas: CanvasId,
        quota: Quota,
        actor: &Actor,
    ) -> Result<bool, AdminError> {
        checked(actor)?;
        Ok(self.store.unset_quota(canvas, quota, actor).await?)
    }
}
