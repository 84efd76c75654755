//! The kit's worker, which runs one notification on request. It is made once per set of handlers,
//! not per drain, and decides nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::notifier::MemoryNotifier;
use crate::event::Notification;
use crate::store::{Store, StoreError};
use crate::worker::{Driver, Handlers, QueueWorker, RunReport, WorkerConfig, WorkerError};

pub(super) struct Stepper {
    worker: QueueWorker,
    driver: Driver,
    /// Whether the handlers are registered in the database.
    registered: AtomicBool,
}

impl Stepper {
    pub(super) fn new(
        store: &Store,
        notifier: &MemoryNotifier,
        handlers: Handlers,
    ) -> Result<Self, WorkerError> {
        let (store, notifier) = (store.clone(), Arc::new(notifier.clone()));
        let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default())?;
        let driver = worker.driver().without_jitter();
        Ok(Self { worker, driver, registered: AtomicBool::new(false) })
    }

    /// Before the test has set handlers.
    pub(super) fn without_handlers(store: &Store, notifier: &MemoryNotifier) -> Self {
        match Self::new(store, notifier, Handlers::new()) {
            Ok(stepper) => stepper,
            Err(error) => unreachable!("no handlers and the defaults make a worker: {error}"),
        }
    }

    /// Registers the handlers, as a worker does at its start: events that waited for one of them
    /// can be woken. Once is enough, because no event waits for a handler that is registered.
    pub(super) async fn register(&self) -> Result<(), StoreError> {
        if !self.registered.load(Ordering::Relaxed) {
            self.worker.register().await?;
            self.registered.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) async fn run(&self, notification: Notification) -> RunReport {
        self.driver.run(notification).await
    }
}
