//! Control: rules, counts, explanations, lists, dead events, single events, crons, and the record of it all. What users and
//! operators do; never on the way of an event. Nothing crosses canvases: an event of another one is not there.

mod crons;
mod cursor;
mod dead;
mod events;
mod groups;
mod leases;
mod lists;
mod looks;
mod objects;
mod pulls;
mod queues;
mod quotas;
mod retries;
mod rules;
mod settled;
mod stats;
#[cfg(feature = "http")]
mod targets;

#[cfg(feature = "http")]
pub(crate) use crons::search;
pub use crons::{Cron, CronPause, CronTick, NewCron, PutCron};
pub use cursor::Cursor;
pub use groups::{Group, GroupNodes, GroupSource, RemoveGroup, ResetGroup, ResetTo};
pub use lists::{EventFilter, EventSummary, Page};
use looks::Looks;
pub use pulls::{LeasedCopy, Release, Released};
#[cfg(feature = "http")]
pub(crate) use pulls::{LeasedNow, check_wait};
pub use queues::{DeletedQueue, NewQueue, PutQueue, SetFacet, Waiting};
pub use rules::{Resumed, Stop, Stopped};
pub use stats::HandlerStats;
#[cfg(feature = "http")]
pub use targets::{NewSecret, NewTarget, Registered};

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Actor, CanvasId, EventId, EventSource, HandlerAddress, Name, Notification, Timestamp};
use crate::notify::Notifier;
#[cfg(feature = "http")]
use crate::store::Retention;
use crate::store::{DUE_PAGE, Noted, Refusal, Store, StoreError};
use crate::wake::{Pass, WakeError, Waker};

/// Most rows that a list holds.
pub const LIST_MAX: u32 = 1000;
/// Most events that one call purges, brings back or deletes.
pub const BULK_MAX: u64 = 10_000;
/// Most that is counted for who only wants to know.
pub(crate) const COUNT_MAX: u64 = 1_000_000;

/// What one call did to many events. No call touches more than [`BULK_MAX`]: call again while there is more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bulk {
    /// How many, or with `dry_run` how many it would be, up to [`BULK_MAX`].
    pub count: u64,
    /// Whether there are more: also those that others hold for the moment. With a count of 0, wait a little first.
    pub more: bool,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Only admins block and unblock.
    #[error("only an admin may {verb} a handler")]
    AdminOnly {
        /// `block` or `unblock`.
        verb: &'static str,
    },
    /// The rule's own data was refused.
    #[error("{0}")]
    Invalid(&'static str),
    /// The canvas has no such event that waits or runs.
    #[error("event {0} is not there: it has ended, or never was")]
    NotFound(EventId),
    /// Somebody runs the event.
    #[error("event {0} is not waiting: it runs now; try again when it has ended or failed")]
    NotWaiting(EventId),
    /// The canvas has no such cron.
    #[error("there is no cron {0}: `wakeq cron list` shows those of the canvas")]
    NoCron(Name),
    /// This release can't read the cron's schedule.
    #[error(
        "this release can't read the schedule of cron {0}, so it stays paused: put it with one that it can read, or \
         unpause it by the release that made it"
    )]
    UnreadableCron(Name),
    /// The cursor of a list is not one.
    #[error(
        "this is no cursor of this list: take `next_cursor` from its last page to the letter, or start without one"
    )]
    Cursor,
    /// The handler has no target.
    #[error("there is no target for {0}: `wakeq handlers show` has those of the handler")]
    NoTarget(Box<HandlerAddress>),
    /// There is no such queue.
    #[error("no queue {0} is registered: `wakeq queues list` shows those that are")]
    NoQueue(Name),
    /// The queue is worked by workers or a target.
    #[error("the queue {0} is not pulled: register it with `pull`, and without a target")]
    NotPulled(Name),
    /// The queue has no such copy.
    #[error("the queue has no copy {0}: it was completed, died or was deleted, or never was")]
    NoCopy(EventId),
    /// The token was made for no lease of this copy.
    #[error("copy {0} is not held by this lease: send the `lease` that you were given with it, unchanged")]
    NotLeased(EventId),
    /// The lease ran out, or was given up.
    #[error(
        "the lease of copy {0} is over: it ran out, or was given up; others may have the copy, and nothing was changed"
    )]
    LeaseOver(EventId),
    /// Nobody has leased the copy.
    #[error("copy {0} is not leased in this queue: `wakeq queues leases` shows those that are")]
    NoLease(EventId),
    /// There is no such consumer group.
    #[error("there is no consumer group {0}: `wakeq groups list` shows those with subscribers or positions")]
    NoGroup(Name),
    /// Somebody works on the group.
    #[error(
        "somebody works on the group {0}, or did less than a lease ago: end its members first, then remove it"
    )]
    GroupInUse(Name),
    /// The group has no such source.
    #[error("the group {0} has no source {1}: `wakeq groups show {0}` lists its own")]
    NoSource(Name, Box<EventSource>),
    /// There are as many queues as there may be.
    #[error(
        "100 queues are registered, and there may not be more: unregister one first, or give one more patterns"
    )]
    TooManyQueues,
    /// Emitters could not hold the patterns.
    #[error(
        "the patterns of all queues together are too costly: use smaller repetitions, or fewer alternatives"
    )]
    TooCostlyPatterns,
    /// Other queues were registered or unregistered meanwhile, each time that it was tried.
    #[error("other queues are registered or unregistered all the time: try again")]
    QueuesChange,
    /// The target is the deployment itself.
    #[cfg(feature = "http")]
    #[error(transparent)]
    OwnTarget(#[from] crate::event::OwnTarget),
    /// The process has no key to encrypt signing secrets with.
    #[error(
        "this deployment has no key for signing secrets, so no target can be registered: its operator sets \
         WAKEQ_SECRET_KEY (`wakeq secrets new-key` makes one), the same for every process"
    )]
    NoSecretKey,
    /// The operating system gave no random numbers.
    #[error("the system gave no random numbers: no secret was made")]
    NoRandomness,
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database or Pub/Sub, while waking; workers carry on.
    #[error("the change is made, but waking events stopped; a worker carries on within a minute")]
    Wake(#[source] WakeError),
}

/// Controls a queue. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    store: Store,
    notifier: Arc<dyn Notifier>,
    waker: Waker,
    patience: Option<Duration>,
    /// Whether copies in queues are there that are not shown to their canvases.
    copies: bool,
    looks: Arc<Looks>,
}

impl Admin {
    /// Control over a store; what it lifts is woken through the notifier. Must be called inside a tokio runtime.
    pub fn new(store: Store, notifier: Arc<dyn Notifier>) -> Self {
        let waker = Waker::new(store.clone(), Arc::clone(&notifier));
        Self { store, notifier, waker, patience: None, copies: true, looks: Arc::default() }
    }

    /// How many events of a canvas are woken in a second when many wait, twice as many at once. Default 1,000: one canvas's
    /// backlog is not to stand in front of what others emit. [`CanvasId::DEFAULT`] has no rate.
    pub fn canvas_event_rate(mut self, events: u32) -> Self {
        self.waker = self.waker.paced(events);
        self
    }

    /// How long lifting a rule waits for the waking of events; the rest is woken after the call has returned. Default:
    /// to the end.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// The same, for somebody who may act on single canvases only: copies in registered queues are not there, neither to be
    /// looked at nor to be changed, unless their queue shows them ([`NewQueue::tenant_visible`]).
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin, canvas: wakeq::CanvasId) -> Result<(), wakeq::AdminError> {
    /// use wakeq::EventFilter;
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

    /// Whether the database has all migrations of this program, or newer ones too.
    pub async fn is_migrated(&self) -> Result<bool, AdminError> {
        Ok(self.store.is_migrated().await?)
    }

    /// Whether notifications can be published.
    pub async fn check_notifier(&self) -> Result<(), AdminError> {
        self.notifier.check().await.map_err(|error| AdminError::Wake(error.into()))
    }

    /// Runs the minute's pass now; with `all`, makes the promises of everything that could run due first.
    pub async fn wake(&self, all: bool) -> Result<Pass, AdminError> {
        if all {
            self.store.note_wake_all().await?;
            // It makes the minute's statement due, too.
            while self.store.make_all_due().await? >= DUE_PAGE {}
        } else {
            self.store.hasten_minute(2 * self.store.timing().probe_period).await?;
        }
        self.waker.pass(None).await.map_err(AdminError::Wake)
    }

    /// Runs the minute's pass if it is due, or will be before who asks each period asks again; for no longer than about
    /// `limit`. With a retention it deletes what is older, too.
    #[cfg(feature = "http")]
    pub(crate) async fn wake_within(
        &self,
        limit: Duration,
        retention: Option<Retention>,
    ) -> Result<Pass, WakeError> {
        self.store.hasten_minute(self.store.timing().probe_period / 2).await?;
        self.waker.pass_within(limit, retention).await
    }

    /// Writes into the record what was asked for and not allowed, in one statement; a page has at most [`LIST_MAX`].
    pub async fn refused(&self, refusals: &[Refusal]) -> Result<(), AdminError> {
        let notes: Vec<_> = refusals.iter().map(Noted::from).collect();
        self.note(&notes).await
    }

    /// Writes into the record what changed nothing, in one statement; a page has at most [`LIST_MAX`].
    pub(crate) async fn note(&self, notes: &[Noted]) -> Result<(), AdminError> {
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

    /// Publishes what a committed change made due; whether that went well. A broker that is away is no error to who
    /// made the change: it stands, and the promises of its rows bring the events back within the minute.
    async fn publish(&self, notifications: &[Notification]) -> bool {
        self.published(self.waker.publish(notifications).await, notifications.len())
    }

    /// The same for many events of a canvas: what it may not publish at once comes by its promises, too.
    async fn publish_share(&self, canvas: CanvasId, notifications: &[Notification]) -> bool {
        self.published(self.waker.publish_share(canvas, notifications).await, notifications.len())
    }

    fn published(&self, published: Result<(), WakeError>, events: usize) -> bool {
        if let Err(error) = &published {
            let error = error as &dyn std::error::Error;
            tracing::warn!(error, events, "notifications not published: their promises do");
        }
        self.notifier.wakes() && published.is_ok()
    }
}

fn checked(actor: &Actor) -> Result<(), AdminError> {
    actor.check().map_err(AdminError::Invalid)
}
