//! Why a call of the admin failed.

use crate::event::{
    BatchName, ErrorGroupId, EventId, HandlerAddress, HandlerScope, HookKind, InvalidCheckpoint,
    InvalidFilter, InvalidLimit, LimitName, Name, OperationId,
};
use crate::store::StoreError;
use crate::wake::WakeError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// Only admins can block and unblock.
    #[error("only an admin may {verb}")]
    AdminOnly {
        /// `block` or `unblock`.
        verb: &'static str,
    },
    /// An argument is not valid.
    #[error("{0}")]
    Invalid(&'static str),
    /// The canvas has no such event: it has ended, or never existed.
    #[error("event {0} does not exist: it has ended, or never existed")]
    NotFound(EventId),
    /// The event is running.
    #[error(
        "event {0} is not waiting: it is running; cancel it while it runs (`wakeq cancel --running`), or \
         try again when it has ended or failed"
    )]
    NotWaiting(EventId),
    /// The event has ended, so it can't be due at another time.
    #[error("event {0} has ended, and is not due any more: redrive it if it is dead, or emit another one")]
    HasEnded(EventId),
    /// The event is a copy that a service has leased.
    #[error(
        "event {id} is a copy that a service has leased from the queue {queue}: end its lease (`wakeq \
         queues end-lease {queue} {id}`), and cancel it then"
    )]
    LeasedCopy {
        /// The copy.
        id: EventId,
        /// Its queue.
        queue: Name,
    },
    /// The canvas has no such cron.
    #[error("there is no cron {0}: `wakeq cron list` shows those of the canvas")]
    NoCron(Name),
    /// This release can't read the cron's schedule.
    #[error(
        "this release can't read the schedule of cron {0}, so it stays paused: replace it with a \
         schedule that this release can read, or unpause it with the release that created it"
    )]
    UnreadableCron(Name),
    /// The text is not a cursor of this list.
    #[error(
        "this is not a cursor of this list: pass `next_cursor` of its last page unchanged, or start without one"
    )]
    Cursor,
    /// The handler has no target.
    #[error("there is no target for {0}: `wakeq handlers show` lists those of the handler")]
    NoTarget(Box<HandlerAddress>),
    /// The canvas has no such hook.
    #[error("the canvas has no hook {0}: `wakeq hooks list` shows those that it has")]
    NoHook(Name),
    /// The hook is of another kind.
    #[error(
        "the hook {name} is of the kind {kind}, which can't be changed: delete it first, or take another name"
    )]
    HookKind {
        /// The hook.
        name: Name,
        /// Its kind.
        kind: HookKind,
    },
    /// The canvas has no such operation, or a newer release has begun it and this one can't read
    /// it.
    #[error(
        "there is no operation {0} that this release can read: `wakeq operations list` shows those of the \
         last 14 days; show or cancel one that a newer release has begun with that release"
    )]
    NoOperation(OperationId),
    /// As many operations of the canvas are open as may be.
    #[error(
        "{0} operations of the canvas are open, which is the limit: wait until one has ended, or cancel one"
    )]
    TooManyOperations(usize),
    /// The canvas has no dead event of the error group.
    #[error("no dead event is of the error group {0}: `wakeq dead groups` lists those of the canvas")]
    NoErrorGroup(ErrorGroupId),
    /// The error group is not marked as known.
    #[error("the error group {0} is not marked as known: `wakeq dead groups --known` lists those that are")]
    NoKnownError(ErrorGroupId),
    /// The limit of 1,000 known errors of a canvas is reached.
    #[error("the canvas has 1,000 known errors, which is the limit: forget one first (`wakeq dead forget`)")]
    TooManyKnownErrors,
    /// An earlier call with this idempotency key has not ended yet.
    #[error("a request with this idempotency key is in progress: retry shortly, with the same key")]
    IdempotencyInProgress,
    /// The idempotency key was used for another request.
    #[error("this idempotency key was used for a different request in the last 24 hours: choose a new one")]
    IdempotencyMismatch,
    /// The canvas has no such batch.
    #[error("the canvas has no batch {0}: `wakeq batches list` shows those that it has")]
    NoBatch(BatchName),
    /// The limit is not valid.
    #[error(transparent)]
    Limit(#[from] InvalidLimit),
    /// The canvas has no such limit.
    #[error("there is no limit {0}: `wakeq limits list` shows those that are set")]
    NoLimit(LimitName),
    /// The limit of 1,000 limits of a canvas, or of the operator, is reached.
    #[error("1,000 limits are set, which is the most: remove one first, or set one for a family of keys")]
    TooManyLimits,
    /// No worker of this name was seen within a day.
    #[error("no worker {0} was seen within a day: `wakeq workers list` shows those that were")]
    NoWorker(Name),
    /// No queue of this name is registered.
    #[error("no queue {0} is registered: `wakeq queues list` shows those that are")]
    NoQueue(Name),
    /// The queue is not pulled: workers or a target process it.
    #[error("the queue {0} is not pulled: register it with `pull`, and without a target")]
    NotPulled(Name),
    /// The queue has no such copy.
    #[error("the queue has no copy {0}: it was completed, died or was deleted, or never existed")]
    NoCopy(EventId),
    /// The token does not belong to any lease of this copy.
    #[error("copy {0} is not held by this lease: send the `lease` that you were given with it, unchanged")]
    NotLeased(EventId),
    /// The lease expired or was released.
    #[error(
        "the lease of copy {0} is over: it expired, or was released; the copy may be leased by \
         others, and nothing was changed"
    )]
    LeaseOver(EventId),
    /// The claim of an attempt does not stand.
    #[error(
        "the claim on event {0} does not stand: another attempt has begun, or the event has ended; nothing \
         was stored, and the attempt has to stop"
    )]
    ClaimLost(EventId),
    /// The value can't be a checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] InvalidCheckpoint),
    /// The copy is not leased.
    #[error("copy {0} is not leased in this queue: `wakeq queues leases` shows those that are")]
    NoLease(EventId),
    /// The handler is not pulled.
    #[error("the handler {0} is not pulled: register it first (`wakeq handlers pull {0}`)")]
    NoPulledHandler(Box<HandlerScope>),
    /// The limit of 1,000 pulled handlers of a canvas is reached.
    #[error("the canvas has 1,000 pulled handlers, which is the limit: delete one first")]
    TooManyPulled,
    /// The token does not belong to any lease of this event.
    #[error("event {0} is not held by this lease: send the `lease` that you were given with it, unchanged")]
    EventNotLeased(EventId),
    /// The lease of an event expired or was released.
    #[error(
        "the lease of event {0} is over: it expired, or was released; the event may be leased by \
         others, and nothing was changed"
    )]
    EventLeaseOver(EventId),
    /// The limit of 100 queues is reached.
    #[error("100 queues are registered, which is the limit: unregister one first, or add patterns to one")]
    TooManyQueues,
    /// The patterns of all queues together need too much memory for emitters.
    #[error(
        "the patterns of all queues together are too costly: use smaller repetitions, or fewer alternatives"
    )]
    TooCostlyPatterns,
    /// Other queues were registered or unregistered concurrently at each try.
    #[error("other queues are being registered or unregistered at the same time: try again")]
    QueuesChange,
    /// The target is the deployment itself.
    #[error(transparent)]
    OwnTarget(#[from] crate::event::OwnTarget),
    /// The process has no key to encrypt secrets with.
    #[error(
        "this deployment has no key for signing secrets, so no target or hook can be registered: its \
         operator has to set WAKEQ_SECRET_KEY (`wakeq secrets new-key` generates one) to the same \
         value for every process"
    )]
    NoSecretKey,
    /// The operating system provided no random numbers.
    #[error("the system provided no random numbers: no secret was generated")]
    NoRandomness,
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the database or the notifier while waking events; workers continue.
    #[error("the change was made, but waking the events was interrupted; a worker continues within a minute")]
    Wake(#[source] WakeError),
}

impl From<InvalidFilter> for AdminError {
    fn from(invalid: InvalidFilter) -> Self {
        Self::Invalid(invalid.0)
    }
}
