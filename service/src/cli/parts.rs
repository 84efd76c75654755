//! The parts of a process that its program's handlers can use, and those that the program can add.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::anyhow;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::BoxError;
use wakeq::{Handlers, Queue, Store};
use wakeq_streams::EventBroker;

/// Makes a program's handlers, from the parts that their process has.
pub(crate) trait MakeHandlers: AsyncFnOnce(Parts) -> Result<Handlers, BoxError> {}

impl<F: AsyncFnOnce(Parts) -> Result<Handlers, BoxError>> MakeHandlers for F {}

/// Waits until it has ended. Once `stop` is cancelled, `halt` tells it to end.
pub(crate) async fn until_stopped<T>(
    running: impl Future<Output = T>,
    stop: CancellationToken,
    halt: CancellationToken,
) -> T {
    let mut running = std::pin::pin!(running);
    tokio::select! {
        ended = &mut running => return ended,
        () = stop.cancelled() => halt.cancel(),
    }
    running.await
}

/// Something that a process runs until it is told to stop.
pub(crate) struct ProcessPart {
    pub(crate) name: &'static str,
    pub(crate) running: BoxFuture<'static, anyhow::Result<()>>,
}

/// The parts that the process which runs a program's handlers already has, so that the program need
/// not create them again.
#[derive(Clone)]
pub struct Parts {
    /// The database.
    pub store: Store,
    /// For emitting. Shares its signals with the rest of the process.
    pub queue: Queue,
    /// Cancelled at SIGTERM, and when a part of the process has ended.
    pub stop: CancellationToken,
    pub(super) own: Arc<Mutex<Vec<ProcessPart>>>,
}

impl Parts {
    pub(crate) fn new(store: Store, queue: Queue, stop: CancellationToken) -> Self {
        Self { store, queue, stop, own: Arc::default() }
    }

    /// Adds a part to the process. It is started together with the worker, has to end soon after
    /// [`stop`](Self::stop) is cancelled, and is waited for. If it ends earlier, the process ends
    /// too.
    pub fn run(&self, name: &'static str, part: impl Future<Output = Result<(), BoxError>> + Send + 'static) {
        let running = Box::pin(async move { part.await.map_err(|error| anyhow!(error)) });
        self.own.lock().unwrap_or_else(PoisonError::into_inner).push(ProcessPart { name, running });
    }

    /// Runs a broker as part of the process, with the consumers and processors registered with it.
    pub fn run_broker(&self, broker: EventBroker) {
        let (stop, halt) = (self.stop.clone(), broker.stop_token());
        self.run("the broker", async move { Ok(until_stopped(broker.run(), stop, halt).await?) });
    }

    /// Takes the parts that were added.
    pub(crate) fn take(&self) -> Vec<ProcessPart> {
        std::mem::take(&mut *self.own.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
