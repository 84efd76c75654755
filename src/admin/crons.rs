//! Crons and their next ticks: putting, pausing, deleting and showing them.

use std::collections::HashMap;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{Admin, AdminError, LIST_MAX, checked};
use crate::cron::{CronSchedule, MissedTicks};
use crate::event::{Actor, CanvasId, EndedOutcome, Event, EventError, EventId, Name, Timestamp};
use crate::machine::{CheckResult, Policy, check_schedule};
use crate::store::{CronPut, CronRow, CronUnpaused, LastEvent, LastEventPlace, NewCronRow, StoreError};

/// Largest value of a cron, in bytes.
const VALUE_BYTES_MAX: usize = 64 * 1024;
/// How many next ticks are shown for a single cron.
const NEXT: usize = 5;

/// A cron to be put: its value is emitted at each tick, for the handler `CRON/name`.
///
/// ```
/// use wakeq::crons::{CronSchedule, MissedTicks, NewCron};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let schedule = CronSchedule::new("0 6 * * MON", "Europe/Berlin")?;
/// let report = NewCron::new("report", schedule, &serde_json::json!({"kind": "weekly"}))?.missed(MissedTicks::Once);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NewCron {
    event: Event,
    schedule: CronSchedule,
    missed: MissedTicks,
}

impl NewCron {
    /// A cron with this name and schedule. The value, 64 KiB at most, is stored as JSON.
    pub fn new(
        name: &str,
        schedule: CronSchedule,
        value: &(impl Serialize + ?Sized),
    ) -> Result<Self, EventError> {
        Self::of(Event::new(name, value)?, schedule)
    }

    /// Like [`NewCron::new`], with a value that already is JSON text; it is stored verbatim.
    pub fn from_json(
        name: &str,
        schedule: CronSchedule,
        value: impl Into<String>,
    ) -> Result<Self, EventError> {
        Self::of(Event::from_json(name, value)?, schedule)
    }

    fn of(event: Event, schedule: CronSchedule) -> Result<Self, EventError> {
        event.check_size(VALUE_BYTES_MAX)?;
        Ok(Self { event, schedule, missed: MissedTicks::default() })
    }

    /// Sets the handler's modifier. Default `_`.
    pub fn modifier(mut self, modifier: &str) -> Result<Self, EventError> {
        self.event = self.event.modifier(modifier)?;
        Ok(self)
    }

    /// Sets what happens to missed ticks. Default: [`MissedTicks::Skip`].
    pub fn missed(mut self, missed: MissedTicks) -> Self {
        self.missed = missed;
        self
    }
}

/// A cron.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cron {
    /// The canvas on which its events are emitted.
    pub canvas: CanvasId,
    /// Its name, which is also that of its handler: `CRON/name`.
    pub name: Name,
    /// The cron expression.
    pub expression: String,
    /// The time zone in which the expression is evaluated.
    pub zone: String,
    /// The handler's modifier.
    pub modifier: String,
    /// The value of its events as JSON text; left out in lists.
    pub value: Option<String>,
    /// What happens to missed ticks.
    pub missed: MissedTicks,
    /// Its pause, if it is paused.
    pub paused: Option<CronPause>,
    /// The next five ticks; in lists, only one. Empty while the cron is paused, or if this release
    /// can't read the schedule.
    pub next: Vec<CronTick>,
    /// Its last tick.
    pub last: Option<Timestamp>,
    /// The event of its last tick, and what became of it.
    pub last_event: Option<CronEvent>,
    /// How many events it has emitted for its ticks, including those ahead of them and excluding
    /// those that were taken back.
    pub ticks: u64,
    /// Who created it.
    pub created_by: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last replaced.
    pub changed_at: Timestamp,
}

/// The pause of a cron.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronPause {
    /// Since when.
    pub since: Timestamp,
    /// Who paused it.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
}

/// A moment at which a cron ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CronTick {
    /// The moment.
    pub at: Timestamp,
    /// The moment in the cron's time zone.
    pub local: DateTime<FixedOffset>,
}

/// The event of a cron's last tick, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CronEvent {
    /// Its id.
    pub id: EventId,
    /// What became of it.
    pub state: CronEventState,
    /// Retries so far. 0 if it is gone, since nothing remembers them.
    pub retries: i32,
}

/// What became of the event of a cron's last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CronEventState {
    /// It has not ended: the result that a notification would find now.
    Live(CheckResult),
    /// It died, and is kept among the dead events.
    Dead,
    /// It has ended, and is kept.
    Ended(EndedOutcome),
    /// It is kept nowhere: it completed, or was cancelled, purged or deleted.
    Gone,
}

/// The result of putting a cron.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutCron {
    /// Whether no cron had this name.
    pub new: bool,
    /// Whether anything changed.
    pub changed: bool,
    /// The cron as it is now.
    pub cron: Cron,
}

impl Admin {
    /// Creates a cron, or replaces the one of the same name. Events that the old one emitted ahead
    /// of their ticks are taken back; a paused cron stays paused. Putting the same cron again
    /// changes nothing and leaves no record.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::crons::{CronSchedule, NewCron};
    /// use wakeq::{Actor, CanvasId};
    ///
    /// let schedule = CronSchedule::new("30 2 * * *", "Europe/Berlin")?;
    /// let nightly = NewCron::new("clean-up", schedule, &())?;
    /// let put = admin.put_cron(CanvasId::DEFAULT, &nightly, &Actor::user("ada")).await?;
    /// println!("next at {}", put.cron.next[0].local);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn put_cron(
        &self,
        canvas: CanvasId,
        new: &NewCron,
        actor: &Actor,
    ) -> Result<PutCron, AdminError> {
        checked(actor)?;
        let NewCron { event, schedule, missed } = new;
        let name = &event.name;
        let row = NewCronRow {
            canvas,
            name,
            expression: schedule.expression(),
            zone: schedule.zone(),
            modifier: &event.modifier,
            value: &event.value,
            missed: missed.as_str(),
            minute_ticks: schedule.minute_ticks(),
        };
        let next = |old: Option<&CronRow>, passed| first_tick(schedule, old, passed);
        let put = self.store.put_cron(&row, actor, next).await?;
        if let CronPut::Full(exceeded) = put {
            return Err(StoreError::Quota(exceeded).into());
        }
        crate::fault::point("cron.put");
        if put != CronPut::Unchanged {
            self.waker.tick_one(canvas, name).await;
        }
        let (new, changed) = (put == CronPut::New, put != CronPut::Unchanged);
        Ok(PutCron { new, changed, cron: self.cron(canvas, name).await? })
    }

    /// A cron with its next five ticks.
    pub async fn cron(&self, canvas: CanvasId, name: &Name) -> Result<Cron, AdminError> {
        let missing = || AdminError::NoCron(name.clone());
        let (row, now) = self.store.cron(canvas, name).await?.ok_or_else(missing)?;
        self.described(canvas, vec![row], (now, NEXT)).await?.pop().ok_or_else(missing)
    }

    /// The crons of a canvas by name, after the given name and up to `limit`, 1 to [`LIST_MAX`];
    /// without their values, and with one tick each.
    pub async fn crons(
        &self,
        canvas: CanvasId,
        after: Option<&Name>,
        limit: u32,
    ) -> Result<Vec<Cron>, AdminError> {
        let limit = i64::from(limit.clamp(1, LIST_MAX));
        let (rows, now) = self.store.crons(canvas, None, after, limit).await?;
        self.described(canvas, rows, (now, 1)).await
    }

    /// The crons of these rows, with so many ticks after a moment each. One statement finds what
    /// became of their last events.
    async fn described(
        &self,
        canvas: CanvasId,
        rows: Vec<CronRow>,
        (now, next): (Timestamp, usize),
    ) -> Result<Vec<Cron>, AdminError> {
        let ids: Vec<Uuid> = rows.iter().filter_map(|row| row.last_id).collect();
        let last_events =
            if ids.is_empty() { Vec::new() } else { self.store.last_events(canvas, &ids).await? };
        let policy = Policy::of(self.store.timing(), u32::MAX);
        let last_events: HashMap<Uuid, CronEvent> =
            last_events.into_iter().map(|event| (event.id.0, last_event(event, &policy))).collect();
        let described = move |row: CronRow| {
            let last_event = row.last_id.and_then(|id| last_events.get(&id).copied());
            Some(Cron { last_event, ..cron(canvas, row, now, next)? })
        };
        search(move || rows.into_iter().filter_map(described).collect()).await
    }

    /// Pauses a cron: it no longer ticks, and events emitted ahead of their ticks are taken back.
    /// Ticks during the pause do not count as missed, so they are not made up for. Pausing again
    /// replaces who and why.
    pub async fn pause_cron(
        &self,
        canvas: CanvasId,
        name: &Name,
        reason: Option<&str>,
        actor: &Actor,
    ) -> Result<Cron, AdminError> {
        checked(actor)?;
        if reason.is_some_and(|reason| reason.chars().count() > 1000 || reason.contains('\0')) {
            return Err(AdminError::Invalid(
                "the reason must have at most 1,000 characters, none of them NUL",
            ));
        }
        let paused = self.store.pause_cron(canvas, name, reason, actor).await?;
        paused.ok_or_else(|| AdminError::NoCron(name.clone()))?;
        self.cron(canvas, name).await
    }

    /// Resumes a cron with its next tick. If it was not paused, nothing is done or recorded. A cron
    /// whose schedule this release can't read stays paused ([`AdminError::UnreadableCron`]).
    pub async fn unpause_cron(
        &self,
        canvas: CanvasId,
        name: &Name,
        actor: &Actor,
    ) -> Result<Cron, AdminError> {
        checked(actor)?;
        let next = |row: &CronRow, now| CronSchedule::new(&row.expression, &row.zone).ok()?.next(now);
        match self.store.unpause_cron(canvas, name, actor, next).await? {
            CronUnpaused::Done => self.waker.tick_one(canvas, name).await,
            CronUnpaused::Unchanged => {}
            CronUnpaused::Never => return Err(AdminError::UnreadableCron(name.clone())),
            CronUnpaused::Missing => return Err(AdminError::NoCron(name.clone())),
        }
        self.cron(canvas, name).await
    }

    /// Deletes a cron. Events emitted ahead of their ticks are taken back; due ones remain.
    pub async fn delete_cron(&self, canvas: CanvasId, name: &Name, actor: &Actor) -> Result<(), AdminError> {
        checked(actor)?;
        if self.store.delete_cron(canvas, name, actor).await? {
            Ok(())
        } else {
            Err(AdminError::NoCron(name.clone()))
        }
    }
}

/// Searches for ticks outside the runtime's threads, at most two at once, since a search may go
/// through the days of several hundred years.
pub async fn search<T: Send + 'static>(search: impl FnOnce() -> T + Send + 'static) -> Result<T, AdminError> {
    static SEARCHES: Semaphore = Semaphore::const_new(2);
    // The semaphore is never closed.
    let _place = SEARCHES.acquire().await.map_err(|_| StoreError::Defect)?;
    Ok(tokio::task::spawn_blocking(search).await.map_err(|_| StoreError::Defect)?)
}

/// The first tick of a cron that is put: the next one after what has passed or, if the schedule is
/// unchanged, the one that is overdue.
fn first_tick(schedule: &CronSchedule, old: Option<&CronRow>, passed: Timestamp) -> Option<Timestamp> {
    let next = schedule.next(passed);
    let same = old.filter(|old| old.expression == schedule.expression() && old.zone == schedule.zone());
    match same.and_then(|old| old.next_at) {
        Some(late) => Some(next.map_or(late, |next| next.min(late))),
        None => next,
    }
}

fn last_event(event: LastEvent, policy: &Policy) -> CronEvent {
    let state = match event.place {
        LastEventPlace::Live { schedule, waits } => {
            CronEventState::Live(check_schedule(schedule, policy).at_limit(waits))
        }
        LastEventPlace::Dead => CronEventState::Dead,
        LastEventPlace::Ended(outcome) => CronEventState::Ended(outcome),
        LastEventPlace::Gone => CronEventState::Gone,
    };
    CronEvent { id: event.id, state, retries: event.retries }
}

/// The cron of a row, without its last event.
fn cron(canvas: CanvasId, row: CronRow, now: Timestamp, next: usize) -> Option<Cron> {
    let schedule = CronSchedule::new(&row.expression, &row.zone).ok().filter(|_| row.paused_at.is_none());
    let next = schedule.map(|schedule| {
        let ticks = schedule.upcoming(now, next).into_iter();
        ticks.map(|at| CronTick { at, local: schedule.local(at) }).collect()
    });
    let pause = |since| Some(CronPause { since, by: row.paused_by?, reason: row.paused_reason });
    Some(Cron {
        canvas,
        name: row.name.parse().ok()?,
        expression: row.expression,
        zone: row.zone,
        modifier: row.modifier,
        value: row.value,
        missed: row.missed.parse().ok()?,
        paused: row.paused_at.and_then(pause),
        next: next.unwrap_or_default(),
        last: row.last_at,
        last_event: None,
        ticks: row.ticks.cast_unsigned(),
        created_by: row.created_by,
        created_at: row.created_at,
        changed_at: row.changed_at,
    })
}
