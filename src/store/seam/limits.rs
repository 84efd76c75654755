//! Limits over all workers.

use super::{Backing, on_backing};
use crate::event::{
    Actor, CanvasId, EventId, HeldLimit, Limit, LimitName, LimitUse, LimitWait, NewLimit, Notification,
};
use crate::store::events::ClaimLimits;
use crate::store::kernel::{Store, StoreError};
#[cfg(feature = "testing")]
use crate::store::limits::LimitedClaim;
use crate::store::limits::{LimitedClaims, LimitsWithRoom, PutLimit, WokenEvent};

impl Store {
    /// Claims the events that may run now by the database's clock and by their limits: those that
    /// [`Store::claim`] leaves out because they have some.
    ///
    /// An event that finds a limit full waits, or what the limit says happens to it. It is woken by
    /// [`Store::wake_waiting`]. Its promise is an hour ahead by then, in case that is forgotten.
    pub(crate) async fn claim_limited(
        &self,
        notifications: &[Notification],
        limits: &ClaimLimits,
    ) -> Result<LimitedClaims, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.claim_limited(notifications, limits).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => {
                let (claims, room) =
                    memory.tables().claim_limited(notifications, limits, self.worker.as_deref())?;
                let cancels = claims.iter().any(|claim| matches!(claim, LimitedClaim::Full(_)));
                Ok(LimitedClaims { claims, room, cancels })
            }
        }
    }

    /// Wakes as many of the events that wait for places of these limits as have room there now, in
    /// the order in which they are due, and returns them to be published. Each counts as if it had
    /// a place for ten seconds, and its promise is one grace ahead. Some start a little later, at
    /// times that their rates have given them. After a limit was removed, up to 500 of those that
    /// waited for it are woken at a time.
    pub(crate) async fn wake_waiting(&self, limits: &[HeldLimit]) -> Result<Vec<Notification>, StoreError> {
        self.wake_after(limits, &[]).await
    }

    /// The same after these events have ended, which saves a look at all that have places.
    pub(crate) async fn wake_after(
        &self,
        limits: &[HeldLimit],
        ended: &[EventId],
    ) -> Result<Vec<Notification>, StoreError> {
        let woken = self.wake_events_after(limits, ended).await?;
        Ok(woken.into_iter().map(|woken| woken.notification).collect())
    }

    /// The same, with the handlers of the events.
    pub(crate) async fn wake_events_after(
        &self,
        limits: &[HeldLimit],
        ended: &[EventId],
    ) -> Result<Vec<WokenEvent>, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.wake_waiting(limits, ended).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().wake_waiting(limits),
        }
    }

    /// Gives up the places that are kept for events which were woken and can't start now; returns
    /// of each the limit that may have room then. They come back as those that never waited, in
    /// the order of their due times.
    pub(crate) async fn step_aside(&self, ids: &[EventId]) -> Result<Vec<Option<HeldLimit>>, StoreError> {
        on_backing!(self.step_aside(ids))
    }

    /// Limits for which events wait, and which have room: a page of them, after a limit that was
    /// looked at. With `only`, of those that are counted on this canvas. In memory all of them are
    /// on the first page.
    pub(crate) async fn limits_with_room(
        &self,
        only: Option<CanvasId>,
        after: Option<&HeldLimit>,
    ) -> Result<LimitsWithRoom, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.limits_with_room(only, after).await,
            #[cfg(feature = "testing")]
            Backing::Memory(_) if after.is_some() => Ok(LimitsWithRoom::default()),
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => {
                Ok(LimitsWithRoom { limits: memory.tables().limits_with_room(only)?, next: None })
            }
        }
    }

    /// Sets a limit of a canvas, or of the operator, or replaces it. `None` if the canvas has no
    /// room for another. What runs goes on.
    pub(crate) async fn put_limit(
        &self,
        canvas: CanvasId,
        name: &LimitName,
        limit: &NewLimit,
        actor: &Actor,
    ) -> Result<Option<PutLimit>, StoreError> {
        on_backing!(self.put_limit(canvas, name, limit, actor))
    }

    /// Waits until no claim that may not have seen a limit which was set before can still commit.
    /// A role of workers may not.
    pub(crate) async fn outlast_claims_without_limit(&self) -> Result<(), StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.outlast_older_claims().await,
            #[cfg(feature = "testing")]
            Backing::Memory(_) => Ok(()),
        }
    }

    /// Removes a limit; returns whether there was one.
    pub(crate) async fn remove_limit(
        &self,
        canvas: CanvasId,
        name: &LimitName,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        on_backing!(self.remove_limit(canvas, name, actor))
    }

    /// The limit of exactly this name that is set on a canvas.
    pub(crate) async fn limit(
        &self,
        canvas: CanvasId,
        name: &LimitName,
    ) -> Result<Option<Limit>, StoreError> {
        on_backing!(self.limit(canvas, name))
    }

    /// The limits that are set on a canvas, by name, after one of them; at most `limit`.
    pub(crate) async fn limits(
        &self,
        canvas: CanvasId,
        after: Option<&LimitName>,
        limit: u32,
    ) -> Result<Vec<Limit>, StoreError> {
        on_backing!(self.limits(canvas, after, limit))
    }

    /// What is in use of a limit on a canvas, by counted name, after one of them; at most `limit`.
    pub(crate) async fn limit_uses(
        &self,
        canvas: CanvasId,
        name: &LimitName,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<LimitUse>, StoreError> {
        on_backing!(self.limit_uses(canvas, name, after, limit))
    }

    /// What an event of the canvas waits for, if that is a limit: a place, or its start.
    pub(crate) async fn waits_for(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<LimitWait>, StoreError> {
        on_backing!(self.waits_for(canvas, id))
    }
}
