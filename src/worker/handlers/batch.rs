//! Handlers that receive several events in one call: how these gather, and what such a handler
//! returns. When a batch begins is decided elsewhere.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::worker::answers::{Completion, HandlerError, HandlerOutput, HandlerResult};
use crate::worker::execution::Execution;

/// Limits of [`Batch`].
const MAX_MAX: usize = 10_000;
const WAIT_MAX: Duration = Duration::from_secs(60);
const BYTES_MAX: std::ops::RangeInclusive<usize> = 1024..=1024 * 1024 * 1024;

/// How the events for a [batch handler](crate::Handlers::on_batch) gather.
///
/// ```
/// use std::time::Duration;
/// use wakeq::workers::Batch;
///
/// let batch = Batch { max: 500, wait: Duration::from_millis(20), ..Batch::default() };
/// assert_eq!(batch.bytes_max, 1024 * 1024);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Maximum number of events in a call, from 1 to 10,000. Default 100. A call never has more
    /// than run at once, which is the smaller one of the worker's
    /// [capacity](crate::WorkerConfig::capacity) and the route's
    /// [concurrency](crate::Route::concurrency).
    pub max: usize,
    /// How long the first event waits for others, at most 60 s. Default 100 ms; with zero it waits
    /// only for those that arrive in the same moment. It has to be shorter than the route's
    /// time-out, which includes it.
    pub wait: Duration,
    /// Maximum bytes of the values in a call, from 1 KiB to 1 GiB. Default 1 MiB. A larger value is
    /// in a call of its own.
    pub bytes_max: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self { max: 100, wait: Duration::from_millis(100), bytes_max: 1024 * 1024 }
    }
}

impl Batch {
    /// What is wrong with it for a route with this time-out, if anything.
    pub(super) fn fault(&self, timeout: Option<Duration>) -> Option<&'static str> {
        if !(1..=MAX_MAX).contains(&self.max) {
            return Some("`max` must be 1 to 10,000");
        }
        if self.wait > WAIT_MAX {
            return Some("`wait` must be 60 s at most");
        }
        if !BYTES_MAX.contains(&self.bytes_max) {
            return Some("`bytes_max` must be 1 KiB to 1 GiB");
        }
        timeout
            .is_some_and(|timeout| timeout <= self.wait)
            .then_some("its time-out includes `wait`: make it longer than that")
    }
}

/// What a batch handler returns for its events if it succeeds: `()` if all of them are complete, or
/// a result for each, in their order.
///
/// ```
/// use wakeq::workers::{Batch, IntoResults};
/// use wakeq::{Execution, HandlerError, HandlerResult, Handlers};
///
/// async fn send(events: Vec<Execution>) -> Result<Vec<HandlerResult>, HandlerError> {
///     let each = |event: &Execution| -> HandlerResult {
///         match event.value::<String>()?.as_str() {
///             "" => Err(HandlerError::value("no address")), // completed
///             _ => Ok(()),
///         }
///     };
///     Ok(events.iter().map(each).collect())
/// }
///
/// let handlers = Handlers::new().on_batch("send", Batch::default(), send);
/// assert_eq!(().into_results(3).len(), 3);
/// ```
pub trait IntoResults {
    /// The results of this many events.
    fn into_results(self, events: usize) -> Vec<HandlerResult<Completion>>;
}

impl IntoResults for () {
    fn into_results(self, events: usize) -> Vec<HandlerResult<Completion>> {
        vec![Ok(Completion::default()); events]
    }
}

impl<O: HandlerOutput> IntoResults for Vec<HandlerResult<O>> {
    fn into_results(self, _events: usize) -> Vec<HandlerResult<Completion>> {
        self.into_iter().map(|result| result.map(HandlerOutput::completion)).collect()
    }
}

/// The form of a batch handler.
pub(super) type BoxedBatch =
    Arc<dyn Fn(Vec<Execution>) -> BoxFuture<'static, Vec<HandlerResult<Completion>>> + Send + Sync>;

/// A batch handler in a list of handlers.
#[derive(Clone)]
pub(super) struct BatchHandler {
    pub(super) batch: Batch,
    pub(super) run: BoxedBatch,
}

impl BatchHandler {
    pub(super) fn new<F, R, O>(batch: Batch, handler: F) -> Self
    where
        F: Fn(Vec<Execution>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, HandlerError>> + Send + 'static,
        O: IntoResults,
    {
        let run = move |executions: Vec<Execution>| -> BoxFuture<'static, Vec<HandlerResult<Completion>>> {
            let events = executions.len();
            let running = handler(executions);
            Box::pin(async move {
                match running.await {
                    Ok(results) => results.into_results(events),
                    Err(error) => vec![Err(error); events],
                }
            })
        };
        Self { batch, run: Arc::new(run) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_out_of_range_are_named() {
        let fault = |batch: Batch, timeout_s: Option<u64>| {
            batch.fault(timeout_s.map(Duration::from_secs)).unwrap_or_default()
        };
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        let usual = Batch::default();
        assert_eq!(fault(usual, None), "");
        assert_eq!(fault(Batch { max: 10_000, wait: minute, bytes_max: 1024 }, Some(61)), "");
        assert!(fault(Batch { max: 0, ..usual }, None).contains("`max`"));
        assert!(fault(Batch { max: 10_001, ..usual }, None).contains("`max`"));
        assert!(fault(Batch { wait: hour, ..usual }, None).contains("`wait`"));
        assert!(fault(Batch { bytes_max: 1023, ..usual }, None).contains("`bytes_max`"));
        assert!(fault(Batch { wait: minute, ..usual }, Some(60)).contains("time-out"));
    }
}
