//! Running one handler: its panic, its timeout, a lost lease, a shutdown and its event's cancelling
//! all end here.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answers::{Completion, HandlerResult, panic_message};
use super::execution::Execution;
use super::handlers::Handler;
use super::leases::HeldClaim;
use crate::event::Traceparent;
use crate::machine::HandlerEnd;
use crate::store::Standing;
use crate::telemetry::{self, faults};

/// Longest error text that is kept with an event, in characters.
const ERROR_MAX: usize = 4000;

/// The error of an event whose handler returned `Ok` without having committed.
const NOT_COMMITTED: &str = "the transaction that was to complete the event was not committed";

/// The end of a handler, with its error message.
pub(super) struct HandlerReport {
    pub(super) end: HandlerEnd,
    pub(super) error: Option<String>,
    /// What went wrong, as one word for metrics; `None` for an error value.
    pub(super) fault: Option<&'static str>,
    /// Whether the service that the handler calls has no capacity now.
    pub(super) busy: bool,
    /// What the handler returned, as JSON.
    pub(super) result: Option<Box<str>>,
}

impl HandlerReport {
    /// The report of a handler that has tried to complete its event in a transaction of its own.
    pub(super) fn after_transaction(self, standing: Option<Standing>) -> Self {
        match (standing, self.end) {
            (Some(Standing::Gone), _) => {
                Self { end: HandlerEnd::Committed, fault: None, busy: false, ..self }
            }
            (Some(Standing::Stands), HandlerEnd::Completed) => failed(NOT_COMMITTED.into(), faults::ERROR),
            (Some(Standing::Stands), _) => self,
            (Some(Standing::Lost) | None, _) => ended(HandlerEnd::LeaseLost),
        }
    }

    /// The report of a handler whose event was cancelled before it ended: whatever it did, unless
    /// it has completed the event.
    pub(super) fn after_cancel(self, is_cancelled: bool) -> Self {
        match self.end {
            HandlerEnd::Failed(_)
            | HandlerEnd::Rejected
            | HandlerEnd::NotYet(_)
            | HandlerEnd::Gone
            | HandlerEnd::ShutDown
                if is_cancelled =>
            {
                Self { error: self.error, ..ended(HandlerEnd::Cancelled) }
            }
            HandlerEnd::Completed
            | HandlerEnd::Committed
            | HandlerEnd::LeaseLost
            | HandlerEnd::Cancelled
            | HandlerEnd::Failed(_)
            | HandlerEnd::Rejected
            | HandlerEnd::NotYet(_)
            | HandlerEnd::Gone
            | HandlerEnd::ShutDown => self,
        }
    }

    /// "Not yet" and "busy" are operational errors for an event that has been postponed for as long
    /// as its handler's patience lasts. The delay and the pauses before the first of them are not
    /// part of that time.
    pub(super) fn after_patience(self, postponed: Duration, patience: Duration) -> Self {
        let HandlerEnd::NotYet(delay) = self.end else { return self };
        if postponed < patience {
            return self;
        }
        let said = self.error.as_deref().unwrap_or("not yet");
        let error = format!("{said}, and it has been postponed for {patience:?} already");
        let (end, busy) = (HandlerEnd::Failed(Some(delay)), self.busy);
        Self { end, busy, ..failed(error, faults::ERROR) }
    }
}

/// When a handler is cut off.
#[derive(Clone, Copy)]
pub(super) struct CutOff<'a> {
    /// The grace of a shutdown is over.
    pub(super) kill: &'a CancellationToken,
    /// How long it may go on after its event was cancelled.
    pub(super) cancel_grace: Duration,
}

/// Runs the handler until it ends, its lease is lost, or it is cut off. If it `has_completed` its
/// event itself, the lost lease leaves it the time to answer.
pub(super) async fn process<'a>(
    handler: &Handler,
    mut execution: Box<Execution>,
    held: &HeldClaim,
    cut_off: CutOff<'_>,
    has_completed: impl FnOnce() -> BoxFuture<'a, bool>,
) -> HandlerReport {
    if held.is_cancelled() {
        return ended(HandlerEnd::Cancelled);
    }
    let (options, begun) = (execution.options.as_deref(), Instant::now());
    let timeout = handler.timeout_for(options);
    let deadline = timeout.and_then(|timeout| begun.checked_add(timeout));
    // Only told: the attempt may go on after that moment.
    let left = options.and_then(|options| options.time_left(execution.claimed_at));
    let expiry = left.and_then(|left| begun.checked_add(left));
    execution.end_at(deadline.into_iter().chain(expiry).min());
    execution.keep_for(handler.keep);
    let trace = execution.metadata.traceparent.get_or_insert_with(Traceparent::root).clone();
    // Created inside, so that a panic before the first await is caught as well.
    let run = async { (handler.run)(*execution).await };
    let run = telemetry::in_trace(trace, AssertUnwindSafe(run).catch_unwind());
    tokio::select! {
        biased;
        end = stopped(held, cut_off.cancel_grace, has_completed) => {
            // A run that a rule has held back did not fail.
            HandlerReport { fault: fault(end).filter(|_| !held.is_held_back()), ..ended(end) }
        }
        report = until(deadline, timeout, run) => report,
        () = cut_off.kill.cancelled() => {
            ended(HandlerEnd::ShutDown)
        }
    }
}

/// Completes when the claim is lost, when the event was cancelled and the grace is over, or when a
/// rule holds the handler back.
async fn stopped<'a>(
    held: &HeldClaim,
    grace: Duration,
    has_completed: impl FnOnce() -> BoxFuture<'a, bool>,
) -> HandlerEnd {
    held.stopped().await;
    if held.is_held_back() {
        return HandlerEnd::ShutDown;
    }
    // Boxed, since it is rare, and each run would have room for it.
    if Box::pin(tokio::time::timeout(grace, held.lost())).await.is_err() {
        return HandlerEnd::Cancelled;
    }
    if has_completed().await {
        std::future::pending::<()>().await;
    }
    HandlerEnd::LeaseLost
}

async fn until<F>(deadline: Option<Instant>, timeout: Option<Duration>, run: F) -> HandlerReport
where
    F: Future<Output = std::thread::Result<HandlerResult<Completion>>>,
{
    let (Some(deadline), Some(timeout)) = (deadline, timeout) else {
        return report(run.await);
    };
    match tokio::time::timeout_at(deadline, run).await {
        Ok(result) => report(result),
        Err(_) => failed(format!("timed out after {timeout:?}"), faults::TIMEOUT),
    }
}

fn report(result: std::thread::Result<HandlerResult<Completion>>) -> HandlerReport {
    match result {
        Ok(Ok(completion)) => {
            HandlerReport { result: completion.into_result(), ..ended(HandlerEnd::Completed) }
        }
        Ok(Err(error)) => {
            let end = error.end();
            let (error, busy) = (Some(text(error.message())), error.is_busy());
            HandlerReport { end, error, fault: fault(end), busy, result: None }
        }
        Err(panic) => failed(format!("panicked: {}", panic_message(panic.as_ref())), faults::PANIC),
    }
}

fn ended(end: HandlerEnd) -> HandlerReport {
    HandlerReport { end, error: None, fault: fault(end), busy: false, result: None }
}

fn fault(end: HandlerEnd) -> Option<&'static str> {
    match end {
        HandlerEnd::Completed | HandlerEnd::Committed | HandlerEnd::NotYet(_) => None,
        HandlerEnd::Failed(_) | HandlerEnd::Rejected => Some(faults::ERROR),
        HandlerEnd::Gone => Some(faults::GONE),
        HandlerEnd::LeaseLost => Some(faults::LEASE_LOST),
        HandlerEnd::ShutDown => Some(faults::SHUTDOWN),
        HandlerEnd::Cancelled => Some(faults::CANCELLED),
    }
}

fn failed(error: String, fault: &'static str) -> HandlerReport {
    HandlerReport {
        end: HandlerEnd::Failed(None),
        error: Some(text(&error)),
        fault: Some(fault),
        busy: false,
        result: None,
    }
}

/// The text as Postgres can store it: cut to length, and without NUL.
fn text(error: &str) -> String {
    error.chars().filter(|character| *character != '\0').take(ERROR_MAX).collect()
}
