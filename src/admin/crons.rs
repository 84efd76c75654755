//! Crons: put, paused, deleted, looked at; and their next ticks.

use chrono::{DateTime, FixedOffset};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::{Admin, AdminError, LIST_MAX, checked};
use crate::cron::{CronSchedule, Missed};
use crate::event::{Actor, CanvasId, Event, EventError, Name, Timestamp};
use crate::store::{CronPut, CronRow, CronUnpaused, NewCronRow, StoreError};

/// Largest value of a cron, in bytes.
const VALUE_BYTES_MAX: usize = 64 * 1024;
/// How many ticks of a cron are shown that is looked at alone.
const NEXT: usize = 5;

/// A cron to be put: what is emitted at each tick, for the handler `CRON/name`.
///
/// ```
/// use wakeq::{CronSchedule, Missed, NewCron};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let schedule = CronSchedule::new("0 6 * * MON", "Europe/Berlin")?;
/// let report = NewCron::new("report", schedule, &serde_json::json!({"kind": "weekly"}))?.missed(Missed::Once);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NewCron {
    event: Event,
    schedule: CronSchedule,
    missed: Missed,
}

impl NewCron {
    /// A cron of this name and schedule. The value, 64 KiB at most, is stored as JSON.
    pub fn new(
        name: &str,
        schedule: CronSchedule,
        value: &(impl Serialize + ?Sized),
    ) -> Result<Self, EventError> {
        Self::of(Event::new(name, value)?, schedule)
    }

    /// The same with a value that is JSON text already; it is kept to the letter.
    pub fn from_json(
        name: &str,
        schedule: CronSchedule,
        value: impl Into<String>,
    ) -> Result<Self, EventError> {
        Self::of(Event::from_json(name, value)?, schedule)
    }

    fn of(event: Event, schedule: CronSchedule) -> Result<Self, EventError> {
        event.check_size(VALUE_BYTES_MAX)?;
        Ok(Self { event, schedule, missed: Missed::default() })
    }

    /// The handler's modifier, when it is not `_`.
    pub fn modifier(mut self, modifier: &str) -> Result<Self, EventError> {
        self.event = self.event.modifier(modifier)?;
        Ok(self)
    }

    /// What becomes of missed ticks. Default: [`Missed::Skip`].
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }
}

/// A cron.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    /// The canvas on which its events are emitted.
    pub canvas: CanvasId,
    /// Its name, and that of the handler: `CRON/name`.
    pub name: Name,
    /// When it ticks.
    pub expression: String,
    /// On the wall clock of this zone.
    pub zone: String,
    /// The handler's modifier.
    pub modifier: String,
    /// What its events carry, as JSON text; lists leave it out.
    pub value: Option<String>,
    /// What becomes of missed ticks.
    pub missed: Missed,
    /// Who stopped it, if somebody did.
    pub paused: Option<CronPause>,
    /// The ticks ahead: five, in a list one, none while it is paused, nor where this release can't read the schedule.
    pub next: Vec<CronTick>,
    /// Its last tick.
    pub last: Option<Timestamp>,
    /// How many events it has emitted: a few of them ahead of their ticks, none that was taken back.
    pub ticks: u64,
    /// Who made it.
    pub created_by: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last replaced.
    pub changed_at: Timestamp,
}

/// Why a cron does not tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronPause {
    /// Since when.
    pub since: Timestamp,
    /// Who stopped it.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
}

/// A moment at which a cron ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CronTick {
    /// The moment.
    pub at: Timestamp,
    /// As the clock of the cron's zone shows it.
    pub local: DateTime<FixedOffset>,
}

/// What putting a cron did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutCron {
    /// Whether there was none of this name.
    pub new: bool,
    /// Whether anything is different from before.
    pub changed: bool,
    /// As it stands now.
    pub cron: Cron,
}

impl Admin {
    /// Makes a cron, or replaces the one of its name. What that one emitted ahead of its ticks is taken back; a paused
    /// one stays paused. The same again changes nothing, and leaves no record.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::{Actor, CanvasId, CronSchedule, NewCron};
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
        let found = self.store.cron(canvas, name).await?;
        let cron = search(move || found.and_then(|(row, now)| cron(canvas, row, now, NEXT))).await?;
        cron.ok_or_else(|| AdminError::NoCron(name.clone()))
    }

    /// The crons of a canvas by name, up to `limit`, 1 to [`LIST_MAX`], those after a name: without their values, and
    /// with one tick each.
    pub async fn crons(
        &self,
        canvas: CanvasId,
        after: Option<&Name>,
        limit: u32,
    ) -> Result<Vec<Cron>, AdminError> {
        let limit = i64::from(limit.clamp(1, LIST_MAX));
        let (rows, now) = self.store.crons(canvas, None, after, limit).await?;
        search(move || rows.into_iter().filter_map(|row| cron(canvas, row, now, 1)).collect()).await
    }

    /// Stops a cron: it ticks no more, and what it emitted ahead of its ticks is taken back. Ticks that pass meanwhile are
    /// not missed: they are not made up for. Again: replaces who and why.
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

    /// Lets a cron go on with its next tick. Where it was not paused, nothing is done and nothing recorded; one whose
    /// schedule this release can't read stays paused ([`AdminError::UnreadableCron`]).
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

    /// Deletes a cron; what it emitted ahead of its ticks is taken back, what is due stays.
    pub async fn delete_cron(&self, canvas: CanvasId, name: &Name, actor: &Actor) -> Result<(), AdminError> {
        checked(actor)?;
        if self.store.delete_cron(canvas, name, actor).await? {
            Ok(())
        } else {
            Err(AdminError::NoCron(name.clone()))
        }
    }
}

/// Searches for ticks beside the runtime, two searches at a time: one may go through the days of some hundred years.
pub(crate) async fn search<T: Send + 'static>(
    search: impl FnOnce() -> T + Send + 'static,
) -> Result<T, AdminError> {
    static SEARCHES: Semaphore = Semaphore::const_new(2);
    // Nobody closes it.
    let _place = SEARCHES.acquire().await.map_err(|_| StoreError::Defect)?;
    Ok(tokio::task::spawn_blocking(search).await.map_err(|_| StoreError::Defect)?)
}

/// The first tick that a cron has to emit once it is put: after what has passed, or, where only something else than its
/// schedule changes, the one that is late.
fn first_tick(schedule: &CronSchedule, old: Option<&CronRow>, passed: Timestamp) -> Option<Timestamp> {
    let next = schedule.next(passed);
    let same = old.filter(|old| old.expression == schedule.expression() && old.zone == schedule.zone());
    match same.and_then(|old| old.next_at) {
        Some(late) => Some(next.map_or(late, |next| next.min(late))),
        None => next,
    }
}

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
        ticks: row.ticks.cast_unsigned(),
        created_by: row.created_by,
        created_at: row.created_at,
        changed_at: row.changed_at,
    })
}
