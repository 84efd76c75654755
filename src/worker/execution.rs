//! What a handler gets: an event, and what it may do with the claim under which it runs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgConnection;
use tokio::time::Instant;

use super::answers::{Completion, HandlerError, HandlerResult};
use super::cancellation::CancelReason;
use super::checkpoints::Checkpoints;
use super::leases::RunningClaim;
use crate::event::{
    Claim, CopyOf, EventId, EventOptions, HandlerAddress, Keep, Metadata, Place, Tag, Timestamp,
};
use crate::store::{ClaimedEvent, StoreError, complete_in};

/// A handler, called once per attempt.
pub type BoxedHandler = Arc<dyn Fn(Execution) -> BoxFuture<'static, HandlerResult<Completion>> + Send + Sync>;

/// An event passed to its handler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Execution {
    /// The event's id: the same in every attempt, so it can be a key for idempotent effects. If the
    /// caller chose an id, this is [`EventId::chosen`] of it.
    pub id: EventId,
    /// The handler's address.
    pub address: HandlerAddress,
    /// The emitted value as JSON.
    pub json: String,
    /// The attempt, counted from 1. Attempts whose process died are not counted.
    pub attempt: u32,
    /// How often the event has lost its worker: by a crash, or because its lease could not be
    /// renewed.
    pub losses: u32,
    /// When it was emitted.
    pub enqueued_at: Timestamp,
    /// When it was due.
    pub due_at: Timestamp,
    /// When this attempt claimed the event, on the database's clock.
    pub claimed_at: Timestamp,
    /// Its metadata, with the trace of this attempt.
    pub metadata: Metadata,
    /// The object that the event is on, and its link in the object's chain.
    pub place: Option<Place>,
    /// If the event is a copy: its registered queue, and the event that was copied.
    pub copy_of: Option<CopyOf>,
    /// What its emit asked for beside it.
    pub options: Option<Box<EventOptions>>,
    /// `None` if it was made by hand.
    claim: Option<ExecutionClaim>,
}

/// The claim of an execution.
#[derive(Clone, Debug)]
struct ExecutionClaim {
    running: RunningClaim,
    checkpoints: Checkpoints,
    deadline: Option<Instant>,
    /// How long the handler keeps the events that it completes.
    keep: Duration,
}

/// The kind of source that emitted an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A program that uses the library, or a caller of the API. The content is theirs.
    Emitted,
    /// A tick of a cron on the event's canvas.
    Cron,
    /// An entity on the event's canvas, reporting the outcome of another event.
    Entity,
}

/// Why an event could not be completed in a transaction. The transaction has to be rolled back.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompleteError {
    /// Another attempt has begun, because the lease ran out, or the event was removed.
    #[error("the event is no longer this attempt's to complete: its transaction has to be rolled back")]
    ClaimLost,
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Execution {
    /// An execution for the unit test of a handler: the first attempt of a new event, emitted, due
    /// and claimed at `at`. All fields can be set afterwards.
    ///
    /// ```
    /// use wakeq::{CanvasId, Execution, HandlerAddress, HandlerScope};
    ///
    /// let scope = HandlerScope::worker(CanvasId::DEFAULT, "greet").unwrap();
    /// let address = HandlerAddress { scope, modifier: "_".parse().unwrap() };
    /// let mut execution = Execution::new(address, r#""Ada""#, "2026-01-31T08:00:00Z".parse().unwrap());
    /// execution.attempt = 2;
    /// assert_eq!(execution.value::<String>().unwrap(), "Ada");
    /// ```
    pub fn new(address: HandlerAddress, json: impl Into<String>, at: Timestamp) -> Self {
        Self {
            id: EventId::new(),
            address,
            json: json.into(),
            attempt: 1,
            losses: 0,
            enqueued_at: at,
            due_at: at,
            claimed_at: at,
            metadata: Metadata::default(),
            place: None,
            copy_of: None,
            options: None,
            claim: None,
        }
    }

    pub(super) fn of(
        event: ClaimedEvent,
        attempt: u32,
        running: RunningClaim,
        checkpoints: Checkpoints,
    ) -> Self {
        Self {
            id: event.claim.id,
            address: event.address,
            json: event.value,
            attempt,
            losses: u32::try_from(event.losses).unwrap_or(0),
            enqueued_at: event.enqueued_at,
            due_at: event.delay_until,
            claimed_at: event.locked_at,
            metadata: event.metadata,
            place: event.place,
            copy_of: event.copy_of,
            options: event.options,
            claim: Some(ExecutionClaim { running, checkpoints, deadline: None, keep: Duration::ZERO }),
        }
    }

    /// Ends its run without a result: a rule holds its handler, which has not been called.
    pub(super) fn hold_back(&self) {
        if let Some(claim) = &self.claim {
            claim.running.hold_back();
        }
    }

    /// Where its checkpoint is, and the claim that may store it; `None` if it was made by hand.
    pub(super) fn checkpoints(&self) -> Option<(&Checkpoints, &RunningClaim)> {
        self.claim.as_ref().map(|claim| (&claim.checkpoints, &claim.running))
    }

    /// Sets by when the handler should end.
    pub(super) fn end_at(&mut self, deadline: Option<Instant>) {
        if let Some(claim) = &mut self.claim {
            claim.deadline = deadline;
        }
    }

    /// Sets for how long its handler keeps events.
    pub(super) fn keep_for(&mut self, keep: Keep) {
        if let Some(claim) = &mut self.claim {
            claim.keep = keep.completed;
        }
    }

    /// The event's tags.
    ///
    /// ```
    /// use wakeq::{Execution, HandlerResult};
    ///
    /// async fn send(execution: Execution) -> HandlerResult {
    ///     let customer = execution.tags().iter().find_map(|tag| tag.as_str().strip_prefix("customer:"));
    ///     println!("for customer {}", customer.unwrap_or("unknown"));
    ///     Ok(())
    /// }
    /// ```
    pub fn tags(&self) -> &[Tag] {
        self.options.as_deref().map_or(&[], EventOptions::tags)
    }

    /// The source of the event. Only crons and entities can emit events of the modules `CRON` and
    /// `ANSWER`: every other way to emit refuses these modules. A copy in a queue has the origin of
    /// the event that was copied.
    ///
    /// ```
    /// use wakeq::workers::Origin;
    /// use wakeq::{Execution, HandlerError, HandlerResult};
    ///
    /// async fn nightly(execution: Execution) -> HandlerResult {
    ///     match execution.origin() {
    ///         Origin::Cron => Ok(()),
    ///         _ => Err(HandlerError::operational("this is for the cron")),
    ///     }
    /// }
    /// ```
    pub fn origin(&self) -> Origin {
        match self.address.scope.module.as_str() {
            "CRON" => Origin::Cron,
            "ANSWER" => Origin::Entity,
            _ => Origin::Emitted,
        }
    }

    /// Deserializes the emitted value. A value of another shape is an operational error, so that
    /// the event ends up among the dead events, where it can be seen.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        serde_json::from_str(&self.json).map_err(|error| {
            HandlerError::operational(format!("the event's value does not fit the handler: {error}"))
        })
    }

    /// Completes the event in the handler's own transaction, so that what the handler writes and
    /// the end of the event are one commit: its effect happens exactly once. Then commit, and
    /// return `Ok`.
    ///
    /// If the transaction is rolled back, or never committed, the event is where it was: an `Ok`
    /// counts as an operational error, which is retried. If it is committed, the event has
    /// completed, whatever the handler returns, and also if the process dies right then. An attempt
    /// that has lost its claim to another gets [`CompleteError::ClaimLost`] instead: the two can't
    /// both commit. Events emitted in the same transaction by
    /// [`Queue::emit_in`](crate::Queue::emit_in) are part of the commit.
    ///
    /// The event's row is locked until the transaction ends, so make this its last statement. In an
    /// isolation level above `read committed`, a renewal since the transaction's first statement is
    /// a serialization failure: keep such a transaction shorter than a third of the lease. The
    /// connection must lead to the queue's database, in a role that may call `wakeq.complete`. In
    /// the test kit in memory, and for an execution made by hand, this does nothing, and the
    /// handler's `Ok` completes the event.
    ///
    /// ```no_run
    /// use wakeq::{Execution, HandlerResult};
    ///
    /// async fn book(event: Execution, pool: sqlx::PgPool) -> HandlerResult {
    ///     let order: i64 = event.value()?;
    ///     let mut transaction = pool.begin().await?;
    ///     sqlx::query("insert into bookings (order_id) values ($1)").bind(order).execute(&mut *transaction).await?;
    ///     event.complete_in(&mut transaction).await?;
    ///     transaction.commit().await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn complete_in(&self, transaction: &mut PgConnection) -> Result<(), CompleteError> {
        self.complete_as_in(transaction, &Completion::default()).await
    }

    /// The same with a result, if the event is kept. Return the completion after the commit, since
    /// that is what the test kit in memory keeps.
    ///
    /// ```no_run
    /// use wakeq::workers::Completion;
    /// use wakeq::{Execution, HandlerResult};
    ///
    /// async fn book(event: Execution, pool: sqlx::PgPool) -> HandlerResult<Completion> {
    ///     let mut transaction = pool.begin().await?;
    ///     let booking: i64 = sqlx::query_scalar("insert into bookings default values returning id")
    ///         .fetch_one(&mut *transaction)
    ///         .await?;
    ///     let completion = Completion::with_result(&booking)?;
    ///     event.complete_as_in(&mut transaction, &completion).await?;
    ///     transaction.commit().await?;
    ///     Ok(completion)
    /// }
    /// ```
    pub async fn complete_as_in(
        &self,
        transaction: &mut PgConnection,
        completion: &Completion,
    ) -> Result<(), CompleteError> {
        let Some(ExecutionClaim { running, checkpoints, keep, .. }) = &self.claim else { return Ok(()) };
        if checkpoints.are_in_memory() {
            return Ok(());
        }
        running.begin_transaction();
        crate::fault::point("transaction.completes");
        let stood = complete_in(transaction, running.claim(), completion.result(), *keep).await?;
        if !stood {
            running.refuse();
            return Err(CompleteError::ClaimLost);
        }
        Ok(())
    }

    /// Completes when the handler should stop, and says why. A handler that works for long waits
    /// for it beside its work, cleans up, and returns an error, so that it does not lose what a
    /// cut-off would. It has the grace of the reason for that, and may as well complete: an `Ok`
    /// completes the event.
    ///
    /// For an execution made by hand it never completes.
    ///
    /// ```
    /// use wakeq::workers::CancelReason;
    /// use wakeq::{Execution, HandlerError, HandlerResult};
    ///
    /// async fn render(event: Execution) -> HandlerResult {
    ///     let frames: u32 = event.value()?;
    ///     for frame in 0..frames {
    ///         tokio::select! {
    ///             () = draw(frame) => {}
    ///             reason = event.cancelled() => {
    ///                 if reason == CancelReason::Cancelled {
    ///                     println!("nobody needs the {frame} frames that are there");
    ///                 }
    ///                 return Err(HandlerError::operational(format!("stopped: {reason:?}")));
    ///             }
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// # async fn draw(_frame: u32) {}
    /// ```
    pub async fn cancelled(&self) -> CancelReason {
        match &self.claim {
            Some(claim) => claim.running.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Why the handler should stop; `None` while it may go on. For work between two steps of which
    /// [`Execution::cancelled`] can't be awaited. It costs no more than reading a number.
    ///
    /// ```
    /// use wakeq::{Execution, HandlerError, HandlerResult};
    ///
    /// async fn import(event: Execution) -> HandlerResult {
    ///     for line in event.value::<Vec<String>>()? {
    ///         if let Some(reason) = event.cancel_reason() {
    ///             return Err(HandlerError::operational(format!("stopped before {line}: {reason:?}")));
    ///         }
    ///         println!("{line}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.claim.as_ref()?.running.cancel_reason()
    }

    /// Whether the handler should stop.
    ///
    /// ```
    /// # let scope = wakeq::HandlerScope::worker(wakeq::CanvasId::DEFAULT, "greet").unwrap();
    /// # let address = wakeq::HandlerAddress { scope, modifier: "_".parse().unwrap() };
    /// # let at = "2026-01-31T08:00:00Z".parse().unwrap();
    /// let execution = wakeq::Execution::new(address, "1", at);
    /// assert!(!execution.is_cancelled(), "nobody stops what was made by hand");
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.cancel_reason().is_some()
    }

    /// When this attempt times out, by its [`Route`](crate::Route) or by what its emit asked for,
    /// so that the handler can give what it calls the time that is left. It is earlier if the
    /// emit's [`Event::not_after`](crate::Event::not_after) comes before that, and the attempt then
    /// goes on. `None` without either, and for an execution made by hand.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// use wakeq::{Execution, HandlerResult};
    ///
    /// async fn fetch(event: Execution) -> HandlerResult {
    ///     let left = event.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
    ///     ask(left.unwrap_or(Duration::from_secs(30))).await
    /// }
    /// # async fn ask(_within: Duration) -> HandlerResult { Ok(()) }
    /// ```
    pub fn deadline(&self) -> Option<Instant> {
        self.claim.as_ref()?.deadline
    }

    /// The token of this attempt's claim, which programs in other languages pass to the SQL
    /// function `wakeq.complete`. `None` for an execution made by hand. A function calls
    /// [`Execution::complete_in`] instead, since its worker would not know of the other call.
    pub fn claim(&self) -> Option<String> {
        self.claim.as_ref().map(|claim| Claim::token(claim.running.claim()))
    }
}
