//! A durable event queue: Postgres holds every event; Google Cloud Pub/Sub, NATS, or Postgres
//! itself, only wakes the workers.
//!
//! An event is a row: a value for a handler. You can write it in your own transaction, it can wait
//! for years, and it is deleted once its handler has completed. Delivery is at least once, so
//! handlers make their effects idempotent. No statement searches the database for work: a worker
//! looks at an event because a notification named it.
//!
//! The tour below takes five minutes. The rest is in modules, [listed at its
//! end](#beyond-the-tour).
//!
//! # An event and its handler
//!
//! A [`Queue`] emits events. A handler is an async function from an [`Execution`] to a
//! [`HandlerResult`]; [`Handlers`] lists them by name. Here both use the queue in memory that the
//! feature `testing` has:
//!
//! ```
//! use std::time::Duration;
//! use wakeq::testing::TestKit;
//! use wakeq::{Event, Execution, HandlerError, HandlerResult, Handlers};
//!
//! async fn greet(event: Execution) -> HandlerResult {
//!     let name: String = event.value()?; // any error that `?` passes on is retried
//!     if name.is_empty() {
//!         return Err(HandlerError::value("nobody to greet")); // completed: a retry would not help
//!     }
//!     println!("Hello {name}! (attempt {})", event.attempt);
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut kit = TestKit::new();
//! kit.handlers(Handlers::new().on("greet", greet))?;
//! let queue = kit.queue();
//! queue.emit(Event::new("greet", "Ada")?).await?; // the row is committed now
//! queue.emit(Event::new("greet", "Bo")?.after(Duration::from_secs(3600))?).await?;
//!
//! let drained = kit.drain().await?;
//! assert_eq!((drained.completed, drained.waiting), (1, 1));
//! kit.advance(Duration::from_secs(3600)).await?;
//! assert_eq!(kit.drain().await?.completed, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # A worker
//!
//! In production, a [`Store`] connects to Postgres and a [`notify::Notifier`] to what wakes the
//! workers, here Pub/Sub. A [`Queue`] and a [`QueueWorker`], which runs until it is stopped, take
//! the same two:
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//! use wakeq::notify::Notifier;
//! use wakeq::{Handlers, QueueWorker, RetryPolicy, Route, Store, StoreConfig, WorkerConfig};
//!
//! async fn run(url: &str, notifier: Arc<dyn Notifier>) -> Result<(), Box<dyn std::error::Error>> {
//!     let store = Store::connect(url, StoreConfig::default()).await?;
//!     let patient = RetryPolicy { retries: 5, delay: Duration::from_secs(10), factor: 2, ..Default::default() };
//!     let mail = Route::new("send-mail").retry(patient).timeout(Duration::from_secs(30)).concurrency(4);
//!     let handlers = Handlers::new().on(mail, |_event| async { Ok(()) });
//!     let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default())?;
//!
//!     let (signal, stop) = (wakeq::shutdown_signal()?, worker.stop_token()); // SIGTERM, or Ctrl-C
//!     tokio::spawn(async move {
//!         signal.await;
//!         stop.cancel();
//!     });
//!     worker.run().await?; // ends after the handlers did, or after the grace
//!     Ok(())
//! }
//! ```
//!
//! The notifier is [`notify::PubSub`], [`notify::PostgresNotifier`] for a few processes on Postgres
//! alone, or [`notify::LocalNotifier`] if a single process emits and works. [`Store::migrate`]
//! creates the tables.
//!
//! # Transactions
//!
//! [`Queue::emit_in`] writes the event on your connection: either the order exists and its mail
//! will be sent, or neither.
//!
//! ```no_run
//! use wakeq::{Event, Queue};
//!
//! async fn place_order(pool: &sqlx::PgPool, queue: &Queue, order: i64) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut transaction = pool.begin().await?;
//!     sqlx::query("insert into orders (id) values ($1)").bind(order).execute(&mut *transaction).await?;
//!     let receipt = queue.emit_in(&mut transaction, Event::new("confirm-order", &order)?).await?;
//!     transaction.commit().await?;
//!     receipt.notify().await; // forgotten or lost, the event is found all the same, in a minute or two
//!     Ok(())
//! }
//! ```
//!
//! # Pausing
//!
//! An [`Admin`] stops handlers, and explains, cancels, lists and counts events. After
//! [`Admin::pause`] has returned, no worker claims an event of that handler; [`Admin::unpause`]
//! wakes all that waited.
//!
//! ```
//! use std::time::Duration;
//! use wakeq::control::Explanation;
//! use wakeq::testing::TestKit;
//! use wakeq::{Actor, CanvasId, Event, HandlerScope, Handlers, Stop};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut kit = TestKit::new();
//! kit.handlers(Handlers::new().on("greet", |_event| async { Ok(()) }))?;
//! let (greet, ada) = (HandlerScope::worker(CanvasId::DEFAULT, "greet")?, Actor::user("ada"));
//! let stop = Stop { reason: Some("mail server down".to_owned()), until: None };
//! kit.admin().pause(&greet, &ada, &stop).await?;
//!
//! let id = kit.emit(Event::new("greet", "Ada")?).await?.id;
//! assert_eq!(kit.drain().await?.completed, 0);
//! let Explanation::Live(event) = kit.explain(id).await? else { panic!("it waits") };
//! assert_eq!(event.state.as_str(), "paused");
//!
//! kit.admin().unpause(&greet, &ada).await?;
//! assert_eq!(kit.drain_for(Duration::from_secs(10)).await?.completed, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Retries, and testing them
//!
//! An event whose handler fails is retried after 5 minutes, at most twice, unless its [`Route`]
//! says otherwise; then it is dead, kept for 30 days, and can be redriven. The `TestKit` has the
//! worker's own rules and a clock that the test moves:
//!
//! ```
//! use std::time::Duration;
//! use wakeq::testing::{TestKit, assert_dead};
//! use wakeq::{Event, HandlerError, Handlers};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut kit = TestKit::new();
//! kit.handlers(Handlers::new().on("flaky", |_event| async { Err::<(), _>(HandlerError::operational("no")) }))?;
//! kit.emit(Event::new("flaky", &1)?).await?;
//! let drained = kit.drain_for(Duration::from_secs(3600)).await?;
//! assert_eq!((drained.retried, drained.died, drained.waiting), (2, 1, 0));
//! assert_dead!(kit, "flaky", count = 1, error = "no");
//! # Ok(())
//! # }
//! ```
//!
//! # Beyond the tour
//!
//! A canvas is a tenant: nothing crosses [`CanvasId`]s. Programs that have only one never name it.
//! Each of the [modules](#modules) below holds the names of one feature. Two more packages use this
//! one: `wakeq-streams` has consumers of the [`log`] and entities, `wakeq-service` the HTTP API and
//! the command line.
//!
//! Features: `pubsub` (default) is [`notify::PubSub`]; `testing` is the module of that name, for
//! `dev-dependencies`.

mod admin;
mod broadcast;
mod cron;
mod emit;
mod event;
mod explain;
mod fault;
#[doc(hidden)]
pub mod internals;
pub mod log;
pub mod machine;
pub mod notify;
mod store;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod wake;
mod worker;

pub use admin::{Admin, AdminError, Stop};
pub use emit::{EmitError, Emitted, Queue, QueueConfig, Receipt};
pub use event::{
    Actor, CanvasId, Event, EventError, EventId, HandlerAddress, HandlerScope, Name, Timestamp, Timing,
};
pub use machine::policy::RetryPolicy;
pub use store::{Store, StoreConfig, StoreError};
pub use worker::{
    Execution, HandlerError, HandlerResult, Handlers, QueueWorker, Route, WorkerConfig, shutdown_signal,
};

/// What operators see and do through [`Admin`]: rules, explanations, lists, counts, statistics,
/// dead events, quotas and the record of changes.
pub mod control {
    pub use crate::admin::{
        BULK_MAX, BeginResult, Bulk, COUNT_MAX, CancelResult, CanvasStats, Cursor, DueResult,
        ErrorGroupFilter, ErrorGroupOrder, ErrorGroups, EventCount, EventSummary, HandlerStats, LIST_MAX,
        Page, ResumeResult, Statistics, StatisticsPoint, StatisticsRange, StopResult,
    };
    pub use crate::event::{
        DurationHistogram, ErrorGroupId, EventCounts, EventFilter, EventState, InvalidFilter, InvalidQuota,
        NewOperation, Operation, OperationId, OperationKind, OperationPreview, OperationState, Quota,
        QuotaExceeded, RuleKind, RuleReach, SearchText, ValueCondition,
    };
    pub use crate::explain::{Explanation, LiveEvent};
    pub use crate::store::{
        AuditEntry, AuditFilter, AuditOutcome, DeadEvent, DeadFilter, Depth, ErrorGroup, HandlerCounts,
        HandlerDepth, KnownError, Program, QuotaUse, Refusal, Rule, Tombstone, Worker, WorkerRun,
        WorkerState, WorkerSummary,
    };
    pub use crate::wake::{Pass, WakeError};
}

/// Crons: an event at each tick of a schedule, exactly one.
pub mod crons {
    pub use crate::admin::{
        Cron, CronEvent, CronEventState, CronPause, CronTick, NewCron, PutCron, RunCronResult,
    };
    pub use crate::cron::{CronSchedule, InvalidSchedule, MissedTicks};
}

/// The deployment's database: its tables, roles, and the durations that all its processes share.
pub mod database {
    pub use crate::event::InvalidTiming;
    pub use crate::store::{DatabaseUse, MigrationState, MigrationStatus, Retention, RoleKind, TimingMode};
}

/// What an event can carry, emits that can be repeated, unique keys, checkpoints, batches, tags,
/// and the history of events: their attempts, and those that are kept after they have ended.
pub mod events {
    pub use crate::emit::{BatchError, EventBatch, Idempotent};
    pub use crate::event::{
        BatchCounts, BatchName, Checkpoint, ChosenIdTaken, Due, EndedFilter, EndedOutcome, EventOptions,
        IdempotencyKey, InvalidBatchName, InvalidCheckpoint, InvalidIdempotencyKey, InvalidMetadata,
        InvalidName, InvalidOptions, InvalidTag, InvalidUnique, JsonError, Keep, Metadata, OnConflict, Tag,
        Traceparent, Unique, UniqueOutcome,
    };
    pub use crate::store::{
        AttemptRecord, BatchProgress, BatchState, EndedEvent, HandlerAttempt, LastAttempts, RegisteredBatch,
    };
}

/// Hooks: what other systems emit by webhooks, which a signature authorizes.
pub mod hooks {
    pub use crate::admin::{NewHook, NewHookSecret, PutHookResult};
    pub use crate::event::{HookKind, HookSecret, InvalidHookKind, InvalidHookSecret};
    pub use crate::store::RegisteredHook;
}

/// Limits over all workers: how many events run at a time, and start in a period, per handler,
/// canvas and key.
pub mod limits {
    pub use crate::admin::PutLimitResult;
    pub use crate::event::{
        InvalidLimit, InvalidLimitKey, InvalidLimitName, InvalidOnFull, Limit, LimitKey, LimitName, LimitUse,
        LimitWait, NewLimit, OnFull, Rate, WaitingMaxReached,
    };
}

/// Listeners: subscribing to what is emitted, by pattern; and signals between processes.
pub mod listeners {
    pub use crate::broadcast::{
        Broadcasts, InvalidTopicPattern, ListenError, ListenItem, Listener, Signal, Signals, TopicPattern,
    };
    pub use crate::event::{Broadcast, MalformedBroadcast};
}

/// Order: events on one object, one after the other.
pub mod order {
    pub use crate::event::{InvalidObjectKey, Lane, ObjectKey, Place};
    pub use crate::store::{HaltedLane, InHand, Object};
}

/// Queues that services register: copies of the events that match, canvases in turn.
pub mod queues {
    pub use crate::admin::{
        DeletedQueue, LeasedCopy, NewQueue, PutQueue, Release, ReleaseResult, SetFacet, WaitingCopies,
    };
    pub use crate::event::{CopyOf, InvalidLeaseToken, InvalidPattern, LeaseToken, PullPolicy, QueuePattern};
    pub use crate::store::{Facet, FacetSettings, Lease, QueueDepth, RegisteredQueue};
}

/// Handlers in any language: HTTP targets, the secrets that sign requests to them, and pulled
/// handlers, whose events programs lease.
pub mod targets {
    pub use crate::admin::{
        ExtendedLease, LeasedEvent, NewSecret, NewTarget, PutPulledResult, PutTargetResult,
    };
    pub use crate::event::{
        InvalidHeaders, InvalidSecret, InvalidSecretKeys, InvalidTargetUrl, NewSecretKey, NoSecret,
        OwnDeployment, OwnTarget, Secret, SecretKeys, Secrets, Target, TargetHeaders, TargetPolicy,
        TargetUrl,
    };
    pub use crate::store::{PulledHandler, RegisteredTarget, SlowedTarget};
}

/// Workers from inside: what they report, why they end, layers around handlers and the state that
/// these share, handlers that are not functions of the program, and runs of notifications that are
/// pushed.
pub mod workers {
    pub use crate::worker::{
        Batch, BoxedHandler, CancelReason, CheckpointError, CompleteError, Completion, Counters,
        HandlerFailure, HandlerOutput, HandlerService, IntoResults, InvalidRoute, Next, Origin, PushError,
        PushRunner, RemoteHandler, RemoteHandlers, RunReport, Verdict, WithState, WorkerError,
    };
}

/// Compiles the code in the pages about the queue.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/batches.md")]
    struct BatchesDocument;
    #[doc = include_str!("../docs/bulk.md")]
    struct BulkDocument;
    #[doc = include_str!("../docs/cancel.md")]
    struct CancelDocument;
    #[doc = include_str!("../docs/checkpoints.md")]
    struct CheckpointsDocument;
    #[doc = include_str!("../docs/cron.md")]
    struct CronsDocument;
    #[doc = include_str!("../docs/dead-events.md")]
    struct DeadEventsDocument;
    #[doc = include_str!("../docs/finish.md")]
    struct FinishDocument;
    #[doc = include_str!("../docs/handlers.md")]
    struct HandlersDocument;
    #[cfg(feature = "testing")]
    #[doc = include_str!("../docs/history.md")]
    struct HistoryDocument;
    #[doc = include_str!("../docs/limits.md")]
    struct LimitsDocument;
    #[doc = include_str!("../docs/listeners.md")]
    struct ListenersDocument;
    #[doc = include_str!("../docs/log.md")]
    struct LogDocument;
    #[doc = include_str!("../docs/order.md")]
    struct OrderDocument;
    #[doc = include_str!("../docs/search.md")]
    struct SearchDocument;
    #[doc = include_str!("../docs/statistics.md")]
    struct StatisticsDocument;
    #[cfg(feature = "testing")]
    #[doc = include_str!("../docs/testing.md")]
    struct TestingDocument;
    #[doc = include_str!("../docs/unique.md")]
    struct UniqueDocument;
}
