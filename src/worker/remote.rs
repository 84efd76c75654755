//! Handlers that run elsewhere. This is the only way in which a worker learns of handlers that are
//! not functions of its program.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::execution::BoxedHandler;
use super::handlers::{Handler, PATIENCE};
use crate::event::{HandlerAddress, Keep};
use crate::machine::RetryPolicy;
use crate::store::StoreError;

/// Looks up handlers that run elsewhere. `wakeq-service` implements it for the registered HTTP
/// targets.
///
/// The layers of [`Handlers`](crate::Handlers) are not put around these, because a handler is
/// looked up for each event, so what a layer keeps between runs would be lost, and because what is
/// delivered has to be what was emitted. To run code around them, implement this trait around
/// another implementation of it, and wrap [`RemoteHandler::run`].
pub trait RemoteHandlers: Send + Sync + 'static {
    /// The handler at an address now, if there is one.
    fn find<'a>(
        &'a self,
        address: &'a HandlerAddress,
    ) -> BoxFuture<'a, Result<Option<RemoteHandler>, StoreError>>;
}

/// A handler that runs elsewhere, and how it is called.
pub struct RemoteHandler {
    /// Calls it once.
    pub run: BoxedHandler,
    /// When and how often a failed event is retried.
    pub retry: RetryPolicy,
    /// Longest duration of a call; then it is cut off as an operational error. For an event that
    /// asks for a timeout of its own, that is added, so `run` has to heed
    /// [`EventOptions::timeout`](crate::events::EventOptions::timeout) of its execution.
    pub timeout: Duration,
    /// Limits how many of its events run at once.
    pub concurrency: Option<Arc<Semaphore>>,
    /// Whether the death of an event halts its lane.
    pub halts: bool,
    /// How long its events are kept after they have ended.
    pub keep: Keep,
    /// The revision of its registration: if it is gone, only this revision is paused.
    pub revision: Uuid,
}

impl From<RemoteHandler> for Handler {
    fn from(handler: RemoteHandler) -> Self {
        let RemoteHandler { run, retry, timeout, concurrency, halts, keep, revision } = handler;
        Self {
            run,
            retry,
            timeout: Some(timeout),
            concurrency,
            halts,
            patience: PATIENCE,
            keep,
            urgent: false,
            revision: Some(revision),
        }
    }
}
