//! Control: rules, counts, explanations, lists, dead events, single events, crons, and the record
//! of it all. This is for users and operators, and never on the path of an event. Nothing crosses
//! canvases: an event of another canvas is treated as missing.

mod batches;
mod canvas_stats;
mod checkpoints;
mod cron_runs;
mod crons;
mod cursor;
mod dead;
mod due_checks;
mod error;
mod error_groups;
mod event_looks;
mod events;
mod history;
mod hooks;
mod lease_turns;
mod leased;
mod leases;
mod limit_looks;
mod limits;
mod lists;
mod looks;
mod objects;
mod operations;
mod program_notes;
mod programs;
mod pulled;
mod pulls;
mod queues;
mod quotas;
mod retries;
mod rules;
mod settled;
mod statistics;
mod stats;
mod switches;
mod tags;
mod targets;
mod workers;

pub use canvas_stats::CanvasStats;
pub use cron_runs::RunCronResult;
pub use crons::{Cron, CronEvent, CronEventState, CronPause, CronTick, NewCron, PutCron, search};
pub use cursor::Cursor;
use due_checks::DueChecks;
pub use error::AdminError;
pub use error_groups::{ErrorGroupFilter, ErrorGroupOrder, ErrorGroups};
use event_looks::EventLooks;
pub use events::{CancelResult, DueResult};
pub use hooks::{NewHook, NewHookSecret, PutHookResult};
use lease_turns::LeaseTurns;
pub use leased::{Release, ReleaseResult, check_wait};
use limit_looks::LimitLooks;
pub use limits::PutLimitResult;
pub use lists::{EventCount, EventSummary, Page};
pub use operations::BeginResult;
use program_notes::ProgramNotes;
pub use pulled::{ExtendedLease, LeasedEvent, PutPulledResult};
pub use pulls::{LeaseBatch, LeasedCopy};
pub use queues::{DeletedQueue, NewQueue, PutQueue, SetFacet, WaitingCopies};
pub use rules::{ResumeResult, Stop, StopResult};
pub use statistics::{Statistics, StatisticsPoint, StatisticsRange};
pub use stats::HandlerStats;
pub use targets::{NewSecret, NewTarget, PutTargetResult};

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Actor, CanvasId, Notification, Timestamp};
use crate::notify::Notifier;
use crate::store::Retention;
use crate::store::{Additions, AuditLine, MakingDue, Refusal, Store};
use crate::telemetry::RunMetrics;
use crate::wake::{Pass, WakeError, Waker};

/// Maximum number of rows in a list.
pub const LIST_MAX: u32 = 1000;
/// Maximum number of events that one call purges, redrives or deletes.
pub const BULK_MAX: u64 = 10_000;
/// Upper limit of counts, for callers that only want to know.
pub const COUNT_MAX: u64 = 1_000_000;

/// The result of a call for many events, at most [`BULK_MAX`]: repeat it while there is more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bulk {
    /// How many events were affected, or with `dry_run` would be, up to [`BULK_MAX`].
    pub count: u64,
    /// Whether there are more, including those that other sessions hold at the moment. If the count
    /// is 0, wait a little before repeating the call.
    pub more: bool,
}

/// Controls handlers, events and queues. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    store: Store,
    notifier: Arc<dyn Notifier>,
    waker: Waker,
    patience: Option<Duration>,
    /// Whether copies are visible even if their queue does not show them to their canvases.
    copies: bool,
    due_checks: Arc<DueChecks>,
    lease_turns: Arc<LeaseTurns>,
    event_looks: EventLooks,
    limit_looks: LimitLooks,
    program_notes: ProgramNotes,
    /// The counterpart of the workers' metrics, for what dies by being leased or released.
    deaths: Arc<RunMetrics>,
}

impl Admin {
    /// An admin over a store, which wakes the events that it resumes through the notifier. Must be
    /// called inside a tokio runtime.
    pub fn new(store: Store, notifier: Arc<dyn Notifier>) -> Self {
        let waker = Waker::new(store.clone(), Arc::clone(&notifier));
        Self {
            store,
            notifier,
            waker,
            patience: None,
            copies: true,
            due_checks: Arc::default(),
            lease_turns: Arc::default(),
            event_looks: EventLooks::default(),
            limit_looks: LimitLooks::default(),
            program_notes: ProgramNotes::default(),
            deaths: Arc::default(),
        }
    }

    /// When many events of a canvas wait, they are woken as fast as workers take them. This sets
    /// the rate, in events per second. Two seconds' worth is woken ahead of the workers, and a
    /// tenth of the rate whatever they take. Default 1,000. The limit prevents one canvas's backlog
    /// from delaying what others emit. It does not apply to [`CanvasId::DEFAULT`].
    pub fn canvas_event_rate(mut self, events: u32) -> Self {
        self.waker = self.waker.paced(events);
        self
    }

    /// Sets how long a call that resumes events waits for them to be woken; the rest is woken after
    /// the call has returned. Default: until all are woken.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Restricts this admin for callers that may act on single canvases only: copies in registered
    /// queues can be neither seen nor changed, unless their queue shows them
    /// ([`NewQueue::tenant_visible`]).
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin, canvas: wakeq::CanvasId) -> Result<(), wakeq::AdminError> {
    /// use wakeq::control::EventFilter;
    ///
    /// let page = admin.for_tenants().events(canvas, &EventFilter::default(), None, 100).await?;
    /// assert!(page.items.iter().all(|event| event.copy_of.is_none()), "no queue shows its copies");
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_tenants(&self) -> Self {
        Self { copies: false, ..self.clone() }
    }

    /// The database's clock.
    pub async fn clock(&self) -> Result<Timestamp, AdminError> {
        Ok(self.store.clock().await?)
    }

    /// Whether the database has all migrations of this program, or also newer ones.
    pub async fn is_migrated(&self) -> Result<bool, AdminError> {
        Ok(self.store.is_migrated().await?)
    }

    /// Whether notifications can be published.
    pub async fn check_notifier(&self) -> Result<(), AdminError> {
        self.notifier.check().await.map_err(|error| AdminError::Wake(error.into()))
    }

    /// Runs the minute's pass now. With `all`, all promises of runnable events are made due first.
    pub async fn wake(&self, all: bool) -> Result<Pass, AdminError> {
        if all {
            self.store.note_wake_all().await?;
            // This also makes the minute's pass due.
            let mut due = MakingDue::default();
            while !due.is_over {
                self.waker.progress.made_due(self.store.make_due(&mut due).await?);
            }
        } else {
            self.store.hasten_minute(2 * self.store.timing().probe_period).await?;
        }
        self.waker.pass(None).await.map_err(AdminError::Wake)
    }

    /// How many events this admin has made due, and how many it has woken, so far.
    #[doc(hidden)]
    pub fn waking(&self) -> (u64, u64) {
        self.waker.progress.so_far()
    }

    /// Runs the minute's pass if it is due, or will be before the next call of a caller that calls
    /// once a period; takes no longer than about `limit`. With a retention, expired data is deleted
    /// as well.
    #[doc(hidden)]
    pub async fn wake_within(
        &self,
        limit: Duration,
        retention: Option<Retention>,
    ) -> Result<Pass, WakeError> {
        self.store.hasten_minute(self.store.timing().probe_period / 2).await?;
        self.waker.pass_within(limit, retention).await
    }

    /// Records requests that were refused, [`LIST_MAX`] per statement.
    pub async fn refused(&self, refusals: &[Refusal]) -> Result<(), AdminError> {
        let notes: Vec<_> = refusals.iter().map(AuditLine::from).collect();
        self.note(&notes).await
    }

    /// Whether a canvas's audit log has room for this many lines. Errors: [`AdminError::Store`]
    /// with [`StoreError::Quota`](crate::StoreError::Quota).
    #[doc(hidden)]
    pub async fn admit_lines(&self, canvas: CanvasId, lines: u64) -> Result<(), AdminError> {
        Ok(self.store.admit(canvas, &Additions::recording(lines)).await?)
    }

    /// Records requests that changed nothing, [`LIST_MAX`] per statement.
    #[doc(hidden)]
    pub async fn note(&self, notes: &[AuditLine]) -> Result<(), AdminError> {
        for note in notes {
            checked(&note.actor)?;
            if !(1..=64).contains(&note.action.chars().count()) || note.action.contains('\0') {
                return Err(AdminError::Invalid("the action must have 1 to 64 characters, none of them NUL"));
            }
        }
        for page in notes.chunks(LIST_MAX as usize) {
            self.store.note(page).await?;
        }
        Ok(())
    }

    /// Runs the work that follows a change in a task of its own, which continues if the caller
    /// drops this future or the patience ends. Returns whether it continues; the work itself
    /// returns whether another process continues it. `stopped` is logged if it fails unobserved.
    async fn in_background(
        &self,
        job: Option<i64>,
        stopped: &'static str,
        work: impl Future<Output = Result<bool, WakeError>> + Send + 'static,
    ) -> Result<bool, AdminError> {
        let (ended, end) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            if let Err(Err(error)) = ended.send(work.await) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(job, error, "{stopped}");
            }
        });
        let waited = match self.patience {
            Some(patience) => tokio::time::timeout(patience, end).await,
            None => Ok(end.await),
        };
        match waited {
            Ok(Ok(worked)) => worked.map_err(AdminError::Wake),
            // A task that panicked has reported it; its job or the promises wake what it left.
            Ok(Err(_)) | Err(_) => Ok(true),
        }
    }

    /// Publishes what a committed change made due; returns whether that succeeded. If the broker is
    /// unavailable, that is not an error for the caller: the change stands, and the promises wake
    /// the events within a minute.
    async fn publish(&self, notifications: &[Notification]) -> bool {
        self.published(self.waker.publish(notifications).await, notifications.len())
    }

    /// Like `publish`, for many events of a canvas: those that it may not publish at once are also
    /// left to their promises.
    async fn publish_share(&self, canvas: CanvasId, notifications: &[Notification]) -> bool {
        self.published(self.waker.publish_share(canvas, notifications).await, notifications.len())
    }

    fn published(&self, published: Result<(), WakeError>, events: usize) -> bool {
        if let Err(error) = &published {
            let error = error as &dyn std::error::Error;
            tracing::warn!(error, events, "notifications not published; the events' promises will wake them");
        }
        self.notifier.wakes() && published.is_ok()
    }
}

fn checked(actor: &Actor) -> Result<(), AdminError> {
    actor.check().map_err(AdminError::Invalid)
}
