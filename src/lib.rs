//! A durable event queue: Postgres holds every event, Google Cloud Pub/Sub only wakes the workers.

mod admin;
mod broadcast;
mod broker;
mod consumer;
mod cron;
mod emit;
mod entity;
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
    EventSummary, Group, GroupNodes, GroupSource, HandlerStats, LIST_MAX, LeasedCopy, NewCron, NewQueue,
    Page, PutCron, PutQueue, Release, ReleaseResult, RemoveGroup, ResetGroup, ResetTo, ResumeResult,
    SetFacet, Stop, StopResult, WaitingCopies,
};
pub use admin::{NewSecret, NewTarget, PutTargetResult};
pub use broadcast::{
    Broadcasts, InvalidTopicPattern, ListenError, ListenItem, Listener, Signal, Signals, TopicPattern,
};
pub use broker::{
    BrokerBacking, BrokerConfig, BrokerError, EventBroker, EventSubscriberStateStore,
    EventSubscriptionSourceMappingStore, EventSubscriptionStateStore, LeaderElector, Leadership, LockElector,
    LockManager, MemoryGroups, NodeHeartbeat,
};
pub use consumer::{
    Consumer, ConsumerConfig, ConsumerError, DeadLetter, ErrorStrategy, EventProcessor, EventProvider,
    EventSubscriber, GiveUp, Health, InvalidConsumer, MemoryLog, MemoryPositions, PositionKey, PositionStore,
    ReadBudget,
};
pub use cron::{CronSchedule, InvalidSchedule, MissedTicks};
pub use emit::{EmitError, Emitted, IdempotencyKey, Idempotent, Queue, QueueConfig, Receipt};
pub use entity::{
    Applied, Entities, Entity, EntityAnswer, EntityConfig, EntityError, EntityEvent, EntityOutcome,
    EntityPage, EntityProcessor, EntityProgress, InvalidProcessor, Question, Rejection, SendReceipt,
    SentToEntity,
};
pub use event::{
    Actor, AppendCondition, Appended, Broadcast, CanvasId, Category, Claim, CopyOf, Due, EntityId,
    EntityStatus, EntityType, Event, EventError, EventId, EventSequencePartitioner, EventSource, GroupNode,
    HandlerAddress, HandlerScope, InvalidCondition, InvalidEntityId, InvalidEntityType, InvalidLeaseToken,
    InvalidLogName, InvalidName, InvalidObjectKey, InvalidPattern, InvalidQuota, InvalidSource,
    InvalidTiming, InvalidTraceparent, JsonError, Lane, Lead, LeaseToken, Link, LogEvent, LogEventError,
    LogPage, MalformedBroadcast, MalformedNotification, Name, NewLogEvent, NewSubscription, NodeId,
    Notification, ObjectKey, PageLimit, Partition, Place, PullPolicy, QueuePattern, Quota, QuotaExceeded,
    RuleKind, SourceList, StreamAppend, StreamId, StreamName, SubscriberId, SubscriberState, Subscription,
    Timestamp, Timing, Traceparent,
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
    AuditEntry, AuditOutcome, DeadEvent, DeadFilter, Depth, EntityCursor, EntityEventStatus, EntitySummary,
    Facet, FacetSettings, FailingEvent, GroupDead, GroupDeadCursor, GroupDeadPage, GroupPosition, HaltedLane,
    HandlerCounts, InHand, InvalidEntityCursor, InvalidGroupDeadCursor, Lease, LogAppender, LogEnd,
    LogHolder, LogHorizon, MigrationState, MigrationStatus, Object, QueueDepth, QuotaUse, Refusal,
    RegisteredQueue, Retention, RoleKind, Rule, Store, StoreConfig, StoreError, StoredEntity, TimingMode,
    Tombstone,
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

/// Compiles the code in the page about entities.
#[cfg(doctest)]
#[doc = include_str!("../docs/entities.md")]
struct EntitiesPage;

/// Compiles the code in the page about the log.
#[cfg(doctest)]
#[doc = include_str!("../docs/log.md")]
struct TheLog;

/// Compiles the code in the page about listeners.
#[cfg(doctest)]
#[doc = include_str!("../docs/listeners.md")]
struct Listeners;

/// Compiles the code in the page about consumers.
#[cfg(doctest)]
#[doc = include_str!("../docs/consumers.md")]
struct Consumers;

/// Compiles the code in the page about crons.
#[cfg(doctest)]
#[doc = include_str!("../docs/cron.md")]
struct Crons;
