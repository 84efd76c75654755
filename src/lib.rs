//! A durable event queue: Postgres holds every event, Google Cloud Pub/Sub only wakes the workers.

mod admin;
mod broadcast;
mod cron;
mod emit;
mod event;
mod explain;
mod fault;
#[doc(hidden)]
pub mod internals;
mod log;
pub mod machine;
pub mod notify;
mod store;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod wake;
mod worker;

pub use admin::{
    Admin, AdminError, BULK_MAX, Bulk, Cron, CronPause, CronTick, Cursor, DeletedQueue, EventFilter,
    EventSummary, HandlerStats, LIST_MAX, LeasedCopy, NewCron, NewQueue, Page, PutCron, PutQueue, Release,
    ReleaseResult, ResumeResult, SetFacet, Stop, StopResult, WaitingCopies,
};
pub use admin::{NewSecret, NewTarget, PutTargetResult};
pub use broadcast::{
    Broadcasts, InvalidTopicPattern, ListenError, ListenItem, Listener, Signal, Signals, TopicPattern,
};
pub use cron::{CronSchedule, InvalidSchedule, MissedTicks};
pub use emit::{EmitError, Emitted, IdempotencyKey, Idempotent, Queue, QueueConfig, Receipt};
pub use event::{
    Actor, AppendCondition, Appended, Broadcast, CanvasId, Category, Claim, CopyOf, Due, Event, EventError,
    EventId, EventSequencePartitioner, EventSource, HandlerAddress, HandlerScope, InvalidCondition,
    InvalidLeaseToken, InvalidLogName, InvalidName, InvalidObjectKey, InvalidPattern, InvalidQuota,
    InvalidSource, InvalidTiming, InvalidTraceparent, JsonError, Lane, LeaseToken, Link, LogEvent,
    LogEventError, LogPage, MalformedBroadcast, MalformedNotification, Name, NewLogEvent, Notification,
    ObjectKey, PageLimit, Partition, Place, PullPolicy, QueuePattern, Quota, QuotaExceeded, RuleKind,
    SourceList, StreamAppend, StreamId, StreamName, Timestamp, Timing, Traceparent,
};
pub use event::{
    InvalidSecret, InvalidSecretKeys, InvalidTargetUrl, NewSecretKey, NoSecret, OwnDeployment, OwnTarget,
    Secret, SecretKeys, Secrets, Target, TargetPolicy, TargetUrl,
};
pub use explain::{Explanation, LiveEvent};
pub use log::{APPEND_MAX, Log, LogError, LogReceipt, READ_MAX};
pub use machine::{CheckResult, Outcome, RetryPolicy};
pub use store::RegisteredTarget;
pub use store::{
    AuditEntry, AuditOutcome, DeadEvent, DeadFilter, Depth, Facet, FacetSettings, HaltedLane, HandlerCounts,
    InHand, Lease, LogAppender, LogEnd, LogHolder, LogHorizon, MigrationState, MigrationStatus, Object,
    QueueDepth, QuotaUse, Refusal, RegisteredQueue, Retention, RoleKind, Rule, Store, StoreConfig,
    StoreError, TimingMode, Tombstone,
};
pub use wake::{Pass, WakeError};
pub use worker::{
    BoxedHandler, Counters, Execution, HandlerError, HandlerResult, Handlers, InvalidRoute, Origin,
    PushError, PushRunner, QueueWorker, RemoteHandler, RemoteHandlers, Route, RunReport, Verdict,
    WorkerConfig, WorkerError, shutdown_signal,
};

/// Compiles the code in the page about testing.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../docs/testing.md")]
struct Testing;

/// Compiles the code in the page about order.
#[cfg(doctest)]
#[doc = include_str!("../docs/order.md")]
struct Order;

/// Compiles the code in the page about the log.
#[cfg(doctest)]
#[doc = include_str!("../docs/log.md")]
struct TheLog;

/// Compiles the code in the page about listeners.
#[cfg(doctest)]
#[doc = include_str!("../docs/listeners.md")]
struct Listeners;

/// Compiles the code in the page about crons.
#[cfg(doctest)]
#[doc = include_str!("../docs/cron.md")]
struct Crons;
