//! The rows of worker processes: which there are, since when, and what each of them runs. They are
//! for people: nothing decides by them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::event::{CanvasId, EventId, Name, Timestamp, displayed_as_text};
use crate::store::kernel::{Sql, Store, StoreError, interval};

/// After this many periods of the minute's pass without a sign, a worker counts as lost.
const LOST_PERIODS: u32 = 5;
/// How long the row of a worker that is lost is kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// What a worker's row says from its start on.
#[derive(Clone, Debug)]
pub(crate) struct NewWorker {
    pub(crate) name: Name,
    /// New at each start.
    pub(crate) instance: Uuid,
    /// Up to 255 bytes, if it is known.
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<i32>,
    /// The release of wakeq.
    pub(crate) release: &'static str,
    pub(crate) build: Option<Name>,
    /// It sends nothing while it is idle.
    pub(crate) may_sleep: bool,
    pub(crate) capacity: i32,
    /// The first of its handlers, up to 1,000.
    pub(crate) handlers: Vec<String>,
    /// How many it has.
    pub(crate) handler_count: i32,
    pub(crate) has_targets: bool,
    /// Shared by all copies of this.
    pub(crate) row: Arc<RowOrder>,
}

/// The order of what is written to a worker's row: once the worker leaves, nothing adds the row.
#[derive(Debug, Default)]
pub(crate) struct RowOrder {
    pub(in crate::store) has_left: AtomicBool,
    /// Held while the row is added or deleted.
    pub(in crate::store) turn: Arc<tokio::sync::Mutex<()>>,
}

/// What a worker does at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity {
    pub(crate) is_stopping: bool,
    /// How many events it has claimed.
    pub(crate) running: i32,
    /// Those of them that it has had for longest, up to 100.
    pub(crate) runs: Vec<WorkerRun>,
    /// Targets that it slows down, up to 100.
    pub(crate) slowed: Vec<SlowedAddress>,
}

/// A target that a worker slows down because it has no capacity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SlowedAddress {
    pub(crate) canvas: CanvasId,
    pub(crate) module: String,
    pub(crate) name: String,
    pub(crate) modifier: String,
    /// The registration of the address that refused.
    pub(crate) revision: Uuid,
    pub(crate) per_second: f64,
    /// For how many seconds nothing is sent.
    pub(crate) held_s: u64,
}

/// A worker, and what it does now.
#[derive(Clone, Debug)]
pub(crate) struct Attendance {
    pub(crate) worker: Arc<NewWorker>,
    pub(crate) activity: Activity,
}

impl Attendance {
    /// As the minute's statement takes it: one parameter, for a statement that most processes send
    /// without it.
    pub(super) fn report(&self) -> Option<String> {
        #[derive(Serialize)]
        struct Report<'a> {
            name: &'a str,
            instance: Uuid,
            is_stopping: bool,
            running: i32,
            runs: &'a [WorkerRun],
            #[serde(skip_serializing_if = "Option::is_none")]
            slowed: Option<&'a [SlowedAddress]>,
        }
        let Self { worker, activity: Activity { is_stopping, running, runs, slowed } } = self;
        let (name, instance) = (worker.name.as_str(), worker.instance);
        let slowed = (!slowed.is_empty()).then_some(slowed.as_slice());
        let report = Report { name, instance, is_stopping: *is_stopping, running: *running, runs, slowed };
        serde_json::to_string(&report).ok()
    }

    fn runs(&self) -> String {
        serde_json::to_string(&self.activity.runs).unwrap_or_else(|_| "[]".to_owned())
    }

    /// `None` if no target is slowed down.
    fn slowed(&self) -> Option<String> {
        let slowed = &self.activity.slowed;
        if slowed.is_empty() { None } else { serde_json::to_string(slowed).ok() }
    }
}

/// An event that a worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkerRun {
    /// Its id.
    pub event: EventId,
    /// Its canvas.
    pub canvas: CanvasId,
    /// Its handler, as `module/name/modifier`.
    pub handler: String,
    /// When the worker claimed it.
    pub since: Timestamp,
}

impl WorkerRun {
    pub(crate) fn new(event: EventId, canvas: CanvasId, handler: String, since: Timestamp) -> Self {
        Self { event, canvas, handler, since }
    }
}

/// What is known of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It takes events.
    Working,
    /// It takes no more events, and ends when its handlers have.
    Stopping,
    /// It has not been seen for five periods of the minute's pass, as it sends nothing while it is
    /// idle.
    Asleep,
    /// It has not been seen for five periods of the minute's pass: it was killed, or does not reach
    /// the database.
    Lost,
}

impl WorkerState {
    /// The state as a word: `working`, `stopping`, `asleep` or `lost`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Stopping => "stopping",
            Self::Asleep => "asleep",
            Self::Lost => "lost",
        }
    }

    fn of(is_silent: bool, may_sleep: bool, is_stopping: bool) -> Self {
        match (is_silent, may_sleep, is_stopping) {
            (true, true, _) => Self::Asleep,
            (true, false, _) => Self::Lost,
            (false, _, true) => Self::Stopping,
            (false, _, false) => Self::Working,
        }
    }
}

displayed_as_text!(WorkerState);

/// A worker process in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerSummary {
    /// Its name, shown with the events that it has claimed.
    pub name: Name,
    /// Tells it from workers of the same name: each start has another one.
    pub instance: Uuid,
    /// The host it runs on, if that is known.
    pub host: Option<String>,
    /// Its process there.
    pub pid: Option<i32>,
    /// Its release of wakeq.
    pub release: String,
    /// The build of its program, if it was given.
    pub build: Option<Name>,
    /// Whether it is at work.
    pub state: WorkerState,
    /// When it started.
    pub started_at: Timestamp,
    /// When it was last seen.
    pub seen_at: Timestamp,
    /// How many handlers it runs at once.
    pub capacity: u32,
    /// How many events it had claimed when it was last seen.
    pub running: u32,
    /// How many handlers it has.
    pub handlers: u32,
}

/// A worker process, with what it can run and what it ran when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Worker {
    /// As it is in a list.
    pub summary: WorkerSummary,
    /// The first 1,000 of its handlers: `module/name/modifier`, after a canvas if they are for one
    /// only. The module of registered queues is `QUEUE`.
    pub handlers: Vec<String>,
    /// Whether it also calls HTTP targets.
    pub has_targets: bool,
    /// The events of every canvas that it had claimed for longest, up to 100.
    pub runs: Vec<WorkerRun>,
}

/// Where a list of workers continues: after this name and instance.
pub(crate) type WorkerPosition = (Name, Uuid);

struct WorkerRow {
    name: String,
    instance: Uuid,
    host: Option<String>,
    pid: Option<i32>,
    release: String,
    build: Option<String>,
    started_at: Timestamp,
    seen_at: Timestamp,
    may_sleep: bool,
    is_stopping: bool,
    is_silent: bool,
    capacity: i32,
    running: i32,
    handler_count: i32,
    has_targets: bool,
    handlers: Vec<String>,
    runs: String,
}

/// A query for [`WorkerRow`]s: those with this condition. The first parameter is the time after
/// which a worker is silent, the second whether what can be long is read, too.
macro_rules! worker_rows {
    ($condition:literal, $($argument:tt)*) => {
        sqlx::query_as!(
            WorkerRow,
            r#"select name::text as "name!", instance, host, pid, release, build::text as build, started_at, seen_at,
                      may_sleep, is_stopping, seen_at < now() - $1::interval as "is_silent!", capacity, running,
                      handler_count, has_targets, case when $2 then handlers::text[] else '{}' end as "handlers!",
                      case when $2 then runs::text else '[]' end as "runs!"
                 from wakeq.workers"# + $condition,
            $($argument)*
        )
    };
}

impl WorkerRow {
    fn into_worker(self) -> Option<Worker> {
        let summary = WorkerSummary {
            name: self.name.parse().ok()?,
            instance: self.instance,
            host: self.host,
            pid: self.pid,
            release: self.release,
            build: self.build.and_then(|build| build.parse().ok()),
            state: WorkerState::of(self.is_silent, self.may_sleep, self.is_stopping),
            started_at: self.started_at,
            seen_at: self.seen_at,
            capacity: self.capacity.unsigned_abs(),
            running: self.running.unsigned_abs(),
            handlers: self.handler_count.unsigned_abs(),
        };
        let runs = serde_json::from_str(&self.runs).unwrap_or_default();
        Some(Worker { summary, handlers: self.handlers, has_targets: self.has_targets, runs })
    }
}

impl Store {
    /// The workers after a position, by name and instance; at most `limit`.
    pub(crate) async fn workers(
        &self,
        after: Option<&WorkerPosition>,
        limit: i64,
    ) -> Result<Vec<WorkerSummary>, StoreError> {
        let query = worker_rows!(
            " where (name, instance) > ($3::text, $4::uuid) order by name, instance limit $5",
            interval(self.lost_after()),
            false,
            after.map_or("", |(name, _)| name.as_str()),
            after.map_or(Uuid::nil(), |(_, instance)| *instance),
            limit
        );
        let rows = self.session().await?.all("list workers", query).await?;
        let workers = rows.into_iter().filter_map(WorkerRow::into_worker);
        Ok(workers.map(|worker| worker.summary).collect())
    }

    /// The worker of this name that was seen last, or that instance of it.
    pub(crate) async fn worker_named(
        &self,
        name: &Name,
        instance: Option<Uuid>,
    ) -> Result<Option<Worker>, StoreError> {
        let query = worker_rows!(
            " where name = $3::text and ($4::uuid is null or instance = $4) order by seen_at desc, instance limit 1",
            interval(self.lost_after()),
            true,
            name.as_str(),
            instance
        );
        let row = self.session().await?.optional("show a worker", query).await?;
        Ok(row.and_then(WorkerRow::into_worker))
    }

    /// Deletes a page of rows of workers that were not seen for a day; returns how many.
    pub(super) async fn expire_workers(&self) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.workers w using (
                 select name, instance from wakeq.workers where seen_at < now() - $1::interval
                  order by 1, 2 limit 1000 for update skip locked) as old
              where w.name = any (array[old.name]) and w.instance = old.instance",
            interval(KEPT)
        );
        Ok(self.session().await?.execute("delete rows of lost workers", query).await?.rows_affected())
    }

    /// After how long without a sign a worker is lost.
    pub(in crate::store) fn lost_after(&self) -> Duration {
        LOST_PERIODS * self.timing().probe_period
    }
}

impl Sql<'_> {
    pub(in crate::store) async fn enter_worker(&self, seen: &Attendance) -> Result<(), StoreError> {
        let Attendance { worker, activity } = seen;
        let query = sqlx::query!(
            "insert into wakeq.workers (name, instance, host, pid, release, build, may_sleep, capacity, handlers,
                                        handler_count, has_targets, is_stopping, running, runs, slowed)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9::text[], $10, $11, $12, $13, $14::text::jsonb, $15::text::jsonb)
                 on conflict on constraint workers_pkey
                 do update set seen_at = now(), is_stopping = excluded.is_stopping, running = excluded.running,
                               runs = excluded.runs, slowed = excluded.slowed",
            worker.name.as_str() as _,
            worker.instance,
            worker.host.as_deref(),
            worker.pid,
            worker.release,
            worker.build.as_ref().map(Name::as_str) as _,
            worker.may_sleep,
            worker.capacity,
            &worker.handlers,
            worker.handler_count,
            worker.has_targets,
            activity.is_stopping,
            activity.running,
            seen.runs(),
            seen.slowed()
        );
        self.session().await?.execute("add a worker's row", query).await.map(drop)
    }

    pub(in crate::store) async fn see_worker(&self, seen: &Attendance) -> Result<bool, StoreError> {
        let Attendance { worker, activity } = seen;
        let query = sqlx::query!(
            "update wakeq.workers set seen_at = now(), is_stopping = $3, running = $4, runs = $5::text::jsonb,
                                      slowed = $6::text::jsonb
              where name = $1::text and instance = $2",
            worker.name.as_str(),
            worker.instance,
            activity.is_stopping,
            activity.running,
            seen.runs(),
            seen.slowed()
        );
        let written = self.session().await?.execute("write a worker's row", query).await?;
        Ok(written.rows_affected() > 0)
    }

    pub(in crate::store) async fn leave_worker(&self, worker: &NewWorker) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.workers where name = $1::text and instance = $2",
            worker.name.as_str(),
            worker.instance
        );
        self.session().await?.execute("delete a worker's row", query).await.map(drop)
    }

    pub(in crate::store) async fn seen_worker(
        &self,
        name: &Name,
    ) -> Result<Option<WorkerSummary>, StoreError> {
        let query = worker_rows!(
            " where name = $3::text order by seen_at desc, instance limit 1",
            interval(self.lost_after()),
            false,
            name.as_str()
        );
        let row = self.session().await?.optional("look for a worker", query).await?;
        Ok(row.and_then(WorkerRow::into_worker).map(|worker| worker.summary))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_means_that_a_worker_is_lost_unless_it_may_sleep() {
        for (silent, sleeps, stopping, state) in [
            (false, false, false, "working"),
            (false, true, false, "working"),
            (false, false, true, "stopping"),
            (true, false, true, "lost"),
            (true, false, false, "lost"),
            (true, true, false, "asleep"),
        ] {
            assert_eq!(WorkerState::of(silent, sleeps, stopping).as_str(), state);
        }
    }
}
