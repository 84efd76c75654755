//! Limits over all workers: setting, removing and showing them. A change wakes what has room now.
//!
//! Decides nothing about events: who gets a place is decided where events are claimed.

use super::{Admin, AdminError, Cursor, LIST_MAX, Page, checked};
use crate::event::{Actor, CanvasId, Limit, LimitName, LimitUse, NewLimit};

/// The result of setting a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PutLimitResult {
    /// Whether there was no limit of this name before.
    pub new: bool,
    /// The limit as it is now.
    pub limit: Limit,
}

impl Admin {
    /// Sets a limit of a canvas, or replaces it. When this returns, every event that starts obeys
    /// it. What runs is left alone: if a limit is lowered, nothing new starts until enough has
    /// ended. If it is raised, what waits is woken.
    ///
    /// On [`CanvasId::OF_QUEUES`] it is the operator's. There, a limit of a handler counts the
    /// events of all canvases together, and holds beside those of the canvases. Any other limit is
    /// the default of each canvas that has none of the name, and is counted per canvas. Callers
    /// check that the actor may act on every canvas.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use wakeq::limits::{NewLimit, Rate};
    /// use wakeq::{Actor, CanvasId};
    ///
    /// // Of each customer, two at a time and 100 starts a minute.
    /// let rate = Rate { burst: 10, ..Rate::new(100, Duration::from_secs(60)) };
    /// let limit = NewLimit { concurrency: Some(2), rate: Some(rate), ..NewLimit::default() };
    /// let ada = Actor::user("ada");
    /// let put = admin.put_limit(CanvasId::DEFAULT, &"customer".parse()?, &limit, &ada).await?;
    /// assert_eq!(put.limit.definition, limit);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: [`AdminError::Limit`] if it is not valid, and [`AdminError::TooManyLimits`].
    pub async fn put_limit(
        &self,
        canvas: CanvasId,
        name: &LimitName,
        limit: &NewLimit,
        actor: &Actor,
    ) -> Result<PutLimitResult, AdminError> {
        checked(actor)?;
        limit.check_as(name)?;
        let put = self.store.put_limit(canvas, name, limit, actor).await?.ok_or(AdminError::TooManyLimits)?;
        self.store.outlast_claims_without_limit().await?;
        self.wake_limited(canvas, name).await?;
        Ok(PutLimitResult { new: put.new, limit: put.limit })
    }

    /// Removes a limit of a canvas, and wakes what waits for it; returns whether there was one. The
    /// operator's default of the same name then counts again, if there is one.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::{Actor, CanvasId};
    ///
    /// let ada = Actor::user("ada");
    /// let removed = admin.remove_limit(CanvasId::DEFAULT, &"customer".parse()?, &ada).await?;
    /// println!("{}", if removed { "removed" } else { "there was none" });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn remove_limit(
        &self,
        canvas: CanvasId,
        name: &LimitName,
        actor: &Actor,
    ) -> Result<bool, AdminError> {
        checked(actor)?;
        let removed = self.store.remove_limit(canvas, name, actor).await?;
        if removed {
            self.wake_limited(canvas, name).await?;
        }
        Ok(removed)
    }

    /// Wakes what has room after a change. The change is committed: if this process dies, the
    /// minute's pass finds what waits. Changes that come meanwhile share the next look.
    async fn wake_limited(&self, canvas: CanvasId, name: &LimitName) -> Result<(), AdminError> {
        let (waker, looks, name) = (self.waker.clone(), self.limit_looks.clone(), name.clone());
        let stopped = "waking what has room in a limit stopped; a worker carries on within a minute";
        let looked = (canvas, name.is_handler());
        let wake = async move { looks.share(looked, waker.room_in_limit(canvas, name)).await };
        self.in_background(None, stopped, wake).await.map(drop)
    }

    /// The limit of this name: the canvas's own, or else the operator's default. `None` without
    /// both. An operator's limit of a handler does not count as a default, and is only found on its
    /// own canvas.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::CanvasId;
    ///
    /// if let Some(limit) = admin.limit(CanvasId::DEFAULT, &"customer".parse()?).await? {
    ///     let whose = if limit.canvas == CanvasId::OF_QUEUES { "the operator's" } else { "our own" };
    ///     println!("{}, {whose}: {}", limit.name, limit.definition);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn limit(&self, canvas: CanvasId, name: &LimitName) -> Result<Option<Limit>, AdminError> {
        let own = self.store.limit(canvas, name).await?;
        let has_default = name.is_key() || *name == LimitName::of_canvas();
        if own.is_some() || canvas.is_reserved() || !has_default {
            return Ok(own);
        }
        Ok(self.store.limit(CanvasId::OF_ALL, name).await?)
    }

    /// The limits that were set for a canvas, by name; up to `limit`, 1 to [`LIST_MAX`]. Those of
    /// the operator are on [`CanvasId::OF_QUEUES`].
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), wakeq::AdminError> {
    /// for limit in admin.limits(wakeq::CanvasId::DEFAULT, None, 100).await?.items {
    ///     println!("{}: {}", limit.name, limit.definition);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn limits(
        &self,
        canvas: CanvasId,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Limit>, AdminError> {
        let after = cursor.map(Cursor::limit).transpose()?;
        let limit = limit.clamp(1, LIST_MAX);
        let found = self.store.limits(canvas, after.as_ref(), limit + 1).await?;
        Ok(Page::of(found, limit as usize, |last| Cursor::of_limit(last.name.clone())))
    }

    /// What is in use of a limit on a canvas, whoever has set it: a line for the name itself, and
    /// of a family one for each key that is in use, by name; up to `limit`, 1 to [`LIST_MAX`]. What
    /// an operator's limit of a handler counts is on [`CanvasId::OF_QUEUES`].
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::CanvasId;
    ///
    /// for used in admin.limit_uses(CanvasId::DEFAULT, &"customer".parse()?, None, 100).await?.items {
    ///     println!("{}: {} running, {} waiting", used.name, used.running, used.waiting);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn limit_uses(
        &self,
        canvas: CanvasId,
        name: &LimitName,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<LimitUse>, AdminError> {
        let after = cursor.map(Cursor::limit).transpose()?;
        let limit = limit.clamp(1, LIST_MAX);
        let found =
            self.store.limit_uses(canvas, name, after.as_ref().map(LimitName::as_str), limit + 1).await?;
        Ok(Page::of(found, limit as usize, |last| Cursor::of_limit(last.name.clone())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::notify::LocalNotifier;
    use crate::store::tests::Table;
    use crate::store::tests::crowds::{FEW, MANY};

    /// When it returns, no claim can still commit that has missed the limit.
    #[tokio::test]
    async fn a_limit_waits_for_older_claims() {
        let table = Table::new().await;
        let admin = Admin::new(table.store.clone(), Arc::new(LocalNotifier::new()));
        let one = NewLimit { concurrency: Some(1), ..NewLimit::default() };
        let (name, ada) = (LimitName::of_canvas(), Actor::user("ada"));
        let claim = table.claim_under_way().await;
        let setting = {
            let (admin, name, ada) = (admin.clone(), name.clone(), ada.clone());
            tokio::spawn(async move { admin.put_limit(MANY, &name, &one, &ada).await })
        };
        table.until_waiting(1).await;
        assert!(admin.limit(MANY, &name).await.unwrap().is_some(), "new claims see it");
        assert!(admin.limit(FEW, &name).await.unwrap().is_none());
        claim.rollback().await.unwrap();
        assert!(setting.await.unwrap().unwrap().new);
    }
}
