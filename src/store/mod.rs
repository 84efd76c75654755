//! All SQL: one concrete struct over sqlx's pool, one file per table or concern, one function per
//! statement.
//!
//! The files are in rooms, each on those before it: `kernel`; `log`, `quotas` and `statistics`;
//! `minute`; `events`, `targets` and `hooks`; `batches`, `crons`, `limits`, `order` and `queues`;
//! `memory`, for the test kit; on top `seam`. A room imports what the rooms below it export, and
//! nothing from this file, which is for the rest of the package. A statement that `memory` repeats
//! is a function of `Sql`, and `seam` has the function of `Store` that chooses between the two.
//!
//! Every write restates its precondition in `where` and reports whether it took effect. Times are
//! the database's: no function here takes a worker's clock. Nothing here publishes, decides, or
//! retries beyond its own statement.

mod batches;
mod crons;
mod events;
mod hooks;
mod kernel;
mod limits;
mod log;
#[cfg(feature = "testing")]
mod memory;
mod minute;
mod order;
mod queues;
mod quotas;
mod seam;
mod statistics;
mod targets;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use batches::{BatchClosing, BatchKey, BatchOpening, EndedBatch, LookedBatches};
pub use batches::{BatchProgress, BatchState, RegisteredBatch};
pub(crate) use crons::{
    CronDue, CronPut, CronRow, CronRun, CronStep, CronUnpaused, LastEvent, LastEventPlace, NewCronRow,
    TickOutcome,
};
pub(crate) use events::{
    AttemptEnd, BULK_PAGE, BegunOperation, BusyHandler, CANCELLED_PAGE, CanvasCounts, CanvasTotals,
    ClaimLimits, ClaimedEvent, CommandOutcome, CountBounds, CountedEvents, ErrorGroupPosition,
    ErrorGroupsAsked, FoundDead, FoundEnded, HandlerActivity, HandlerKeys, HandlerPosition,
    IdempotencyOutcome, KeptEnd, KeyedBegin, KnowOutcome, LeftPlaces, ListedEvent, LoadedEvent, MovedDue,
    NewState, NotedRetry, OPERATIONS_OPEN_MAX, OperationEvents, OperationsAfter, Position, Renewal, Retry,
    RulePosition, RunningCancel, Standing, add_one, checkpoint_in, complete_in,
};
pub use events::{
    AttemptRecord, DeadEvent, DeadFilter, Depth, EndedEvent, ErrorGroup, HandlerAttempt, HandlerCounts,
    HandlerDepth, InsertOutcome, KnownError, LastAttempts, LimitDepth, Rule, add_with_state, statements,
};
pub use hooks::{FoundHook, RegisteredHook};
pub(crate) use hooks::{HookOutcome, HookRefusal, NewHookRow};
pub use kernel::{
    AuditEntry, AuditFilter, AuditLine, AuditOutcome, Coalescer, DatabaseRoute, DatabaseUse, Emission,
    ForeignEngine, MigrationDifferences, MigrationState, MigrationStatus, Purpose, Refusal, RoleKind, Store,
    StoreConfig, StoreError, TimingMode, interval, on_behalf_of,
};
pub(crate) use kernel::{AuditPosition, BATCH_MAX, IN_FLIGHT, Listening, LookedLine, PAYLOAD_BYTES_MAX};
pub(crate) use limits::{LimitedClaim, LimitedClaims, LimitsWithRoom, WokenEvent};
pub(crate) use log::AppendRefusal;
pub use log::{
    LogAppender, LogBatch, LogEnd, LogHolder, LogHorizon, LogStream, append_batch, lacks_partition,
};
pub(crate) use minute::{
    Activity, Attendance, ExpiryPart, IdleRetention, MakingDue, MinuteOutcome, MissedCursor, NewWorker,
    ProgramPosition, SlowedAddress, WorkerPosition,
};
pub use minute::{Program, Retention, Worker, WorkerRun, WorkerState, WorkerSummary};
pub(crate) use order::HaltedPosition;
pub use order::{HaltedLane, InHand, Object, Tombstone};
pub(crate) use queues::{
    DuePlace, Fence, LeasePosition, LeasedEvents, LeasedRow, NewQueueRow, PulledSplit, QueuePut, TurnRequest,
};
pub use queues::{Facet, FacetSettings, Lease, QueueDepth, RegisteredQueue};
pub use quotas::{ATTEMPTS_MAX, Additions, QuotaUse, default_quota, quota_exceeded, serialize_on_canvas};
pub use targets::{FoundTarget, PulledHandler, RegisteredTarget, SecretCounts, SlowedTarget};
pub(crate) use targets::{
    NewTargetRow, PulledDeletion, PulledPut, PutOutcome, SealedHeaders, TargetPosition,
};
