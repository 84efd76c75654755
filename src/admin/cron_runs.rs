//! Crons that are run by hand: an event now, outside the rhythm. No tick is moved, taken back or
//! used up.

use super::{Admin, AdminError, checked};
use crate::event::{Actor, CanvasId, EventId, HandlerAddress, HandlerScope, IdempotencyKey, Name, NewEvent};
use crate::store::{Additions, CronRow, CronRun, StoreError};

/// The result of running a cron under an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunCronResult {
    /// The event.
    pub event: EventId,
    /// Whether an earlier call with the key has emitted it.
    pub replayed: bool,
}

impl Admin {
    /// Emits an event of a cron now, with the value and for the handler that its ticks have, and
    /// returns its id. The cron's ticks stay as they are, and a paused cron stays paused.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::{Actor, CanvasId};
    ///
    /// let report = "report".parse()?;
    /// let event = admin.run_cron(CanvasId::DEFAULT, &report, &Actor::user("ada")).await?;
    /// println!("event {event}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_cron(
        &self,
        canvas: CanvasId,
        name: &Name,
        actor: &Actor,
    ) -> Result<EventId, AdminError> {
        Ok(self.run(canvas, name, None, actor).await?.event)
    }

    /// Like [`Admin::run_cron`] on the canvas of a key, once within 24 hours: a further call with
    /// the same key and fingerprint emits nothing, and returns the event of the first.
    pub async fn run_cron_once(
        &self,
        key: &IdempotencyKey,
        name: &Name,
        actor: &Actor,
    ) -> Result<RunCronResult, AdminError> {
        self.run(key.canvas, name, Some(key), actor).await
    }

    async fn run(
        &self,
        canvas: CanvasId,
        name: &Name,
        key: Option<&IdempotencyKey>,
        actor: &Actor,
    ) -> Result<RunCronResult, AdminError> {
        checked(actor)?;
        let missing = || AdminError::NoCron(name.clone());
        let (row, _) = self.store.cron(canvas, name).await?.ok_or_else(missing)?;
        let event = event(canvas, name, row)?;
        if let Err(full) = self.admit_run(&event, key.is_some()).await {
            // A request that was answered before needs no quota.
            let replayed = match key {
                Some(key) => self.store.replayed(key).await?,
                None => None,
            };
            let event = replayed.and_then(|id| id.parse().ok());
            return event.map(|event| RunCronResult { event, replayed: true }).ok_or(full.into());
        }
        let id = event.id;
        match self.store.run_cron(event, key, actor).await? {
            CronRun::Emitted(ran) => {
                self.waker.announce_ticks(&ran).await;
                self.publish(&ran.notifications).await;
                Ok(RunCronResult { event: id, replayed: false })
            }
            CronRun::Replayed(event) => Ok(RunCronResult { event, replayed: true }),
            CronRun::Missing => Err(missing()),
            CronRun::Mismatch => Err(AdminError::IdempotencyMismatch),
            CronRun::InProgress => Err(AdminError::IdempotencyInProgress),
        }
    }

    /// Refuses what exceeds a quota of its canvas.
    async fn admit_run(&self, event: &NewEvent, has_key: bool) -> Result<(), StoreError> {
        for (canvas, mut added) in Additions::by(std::slice::from_ref(event)) {
            if has_key {
                added.remember_key();
            }
            self.store.admit(canvas, &added).await?;
        }
        Ok(())
    }
}

/// The event that a tick of the cron would have now.
fn event(canvas: CanvasId, name: &Name, row: CronRow) -> Result<NewEvent, StoreError> {
    let scope = HandlerScope { canvas, module: Name::cron(), name: name.clone() };
    let modifier = row.modifier.parse().map_err(|_| StoreError::Defect)?;
    let value = row.value.ok_or(StoreError::Defect)?;
    Ok(NewEvent::new(HandlerAddress { scope, modifier }, value))
}
