//! Running one handler: its panic, its timeout, a lost lease and a shutdown all end here.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::answers::HandlerResult;
use super::handlers::{Execution, Handler};
use super::leases::Held;
use crate::event::Traceparent;
use crate::machine::Ran;
use crate::telemetry::{self, faults};

/// Longest error text that is kept with an event, in characters.
const ERROR_MAX: usize = 4000;

/// How a handler ended, and its error message.
pub(super) struct Ended {
    pub(super) ran: Ran,
    pub(super) error: Option<String>,
    /// What went wrong, as one word for metrics; `None` for an error value.
    pub(super) fault: Option<&'static str>,
}

impl Ended {
    /// "Not yet" is an operational error for an event that is older than its handler's patience.
    pub(super) fn at_age(self, age: Duration, patience: Duration) -> Self {
        let Ran::NotYet(delay) = self.ran else { return self };
        if age <= patience {
            return self;
        }
        let error = format!("not yet, and it was emitted more than {patience:?} ago");
        Self { ran: Ran::Failed(Some(delay)), ..failed(error, faults::ERROR) }
    }
}

/// Runs the handler until it ends, its lease is lost, or `kill` cuts it off.
pub(super) async fn process(
    handler: &Handler,
    execution: Execution,
    held: &Held,
    kill: &CancellationToken,
) -> Ended {
    let trace = execution.traceparent.clone().unwrap_or_else(Traceparent::root);
    // Created inside, so that a panic before the first await is caught as well.
    let run = async { (handler.run)(execution).await };
    let run = telemetry::in_trace(trace, AssertUnwindSafe(run).catch_unwind());
    tokio::select! {
        biased;
        () = held.lost() => Ended { ran: Ran::LeaseLost, error: None, fault: Some(faults::LEASE_LOST) },
        ended = within(handler.timeout, run) => ended,
        () = kill.cancelled() => Ended { ran: Ran::ShutDown, error: None, fault: Some(faults::SHUTDOWN) },
    }
}

async fn within<F>(timeout: Option<Duration>, run: F) -> Ended
where
    F: Future<Output = std::thread::Result<HandlerResult>>,
{
    let Some(timeout) = timeout else {
        return ended(run.await);
    };
    match tokio::time::timeout(timeout, run).await {
        Ok(result) => ended(result),
        Err(_) => failed(format!("timed out after {timeout:?}"), faults::TIMEOUT),
    }
}

fn ended(result: std::thread::Result<HandlerResult>) -> Ended {
    match result {
        Ok(Ok(())) => Ended { ran: Ran::Completed, error: None, fault: None },
        Ok(Err(error)) => {
            let ran = error.ran();
            Ended { ran, error: Some(text(error.message())), fault: fault(ran) }
        }
        Err(panic) => failed(format!("panicked: {}", panic_message(panic.as_ref())), faults::PANIC),
    }
}

fn fault(ran: Ran) -> Option<&'static str> {
    match ran {
        Ran::Completed | Ran::NotYet(_) => None,
        Ran::Failed(_) => Some(faults::ERROR),
        Ran::Gone => Some(faults::GONE),
        Ran::LeaseLost => Some(faults::LEASE_LOST),
        Ran::ShutDown => Some(faults::SHUTDOWN),
    }
}

fn failed(error: String, fault: &'static str) -> Ended {
    Ended { ran: Ran::Failed(None), error: Some(text(&error)), fault: Some(fault) }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// The text as Postgres can store it: cut to length, and without NUL.
fn text(error: &str) -> String {
    error.chars().filter(|character| *character != '\0').take(ERROR_MAX).collect()
}
