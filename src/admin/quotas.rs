//! Quotas of canvases: showing, setting and resetting them. The caller ensures that tenants can't
//! raise their own.

use super::{Admin, AdminError, checked};
use crate::event::{Actor, CanvasId, Quota};
use crate::store::QuotaUse;

/// The highest limit that can be set.
const LIMIT_MAX: u64 = 1_000_000_000_000_000;

impl Admin {
    /// Every quota of a canvas with its limit and its usage: one for each [`Quota`]. Usage that is
    /// expensive to count is measured at most every five seconds, and bytes are estimated.
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

    /// One quota of a canvas, as [`Admin::quotas`] has it.
    pub async fn quota(&self, canvas: CanvasId, quota: Quota) -> Result<QuotaUse, AdminError> {
        Ok(self.store.quota_use(canvas, quota).await?)
    }

    /// Sets a canvas's limit, at most 10^15. Nothing that exists is removed. The limit takes effect
    /// immediately in this process, and within a minute in others.
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

    /// Resets a canvas to the default limit; returns whether another one was set.
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
