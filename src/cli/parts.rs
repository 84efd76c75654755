//! What a program of somebody's gets of the process in which its handlers run, and what it adds to that.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::anyhow;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::BoxError;
use crate::broker::EventBroker;
use crate::emit::Queue;
use crate::store::Store;

/// Something that a process does until it is told to stop.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) running: BoxFuture<'static, anyhow::Result<()>>,
}

/// What the process has that runs the handlers of a program: so that the program makes none of it twice.
#[derive(Clone)]
pub struct Parts {
    /// The database.
    pub store: Store,
    /// What emits. Its signals are those of the process.
    pub queue: Queue,
    /// Cancelled at SIGTERM, and when a part of the process has ended.
    pub stop: CancellationToken,
    pub(super) own: Arc<Mutex<Vec<Part>>>,
}

impl Parts {
    pub(super) fn new(store: Store, queue: Queue, stop: CancellationToken) -> Self {
        Self { store, queue, stop, own: Arc::default() }
    }

    /// Has the process do this, too. It begins with the worker, ends soon after [`stop`](Self::stop) was cancelled, and is waited for; if it ends
    /// before, so does the process.
    pub fn run(&self, name: &'static str, part: impl Future<Output = Result<(), BoxError>> + Send + 'static) {
        let running = Box::pin(async move { part.await.map_err(|error| anyhow!(error)) });
        self.own.lock().unwrap_or_else(PoisonError::into_inner).push(Part { name, running });
    }

    /// Has the process run a broker, with the consumers and processors that are registered with it.
    pub fn run_broker(&self, broker: EventBroker) {
        let (stop, halt) = (self.stop.clone(), broker.stop_token());
        self.run("the broker", async move {
            let mut running = std::pin::pin!(broker.run());
            tokio::select! {
                ended = &mut running => return Ok(ended?),
                () = stop.cancelled() => halt.cancel(),
            }
            Ok(running.await?)
        });
    }

    /// What was added.
    pub(super) fn take(&self) -> Vec<Part> {
        std::mem::take(&mut *self.own.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
