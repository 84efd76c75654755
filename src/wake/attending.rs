//! The row of this process's worker: its passes write what the worker does.

use super::Waker;
use crate::store::{Attendance, StoreError};

impl Waker {
    /// Writes the worker's row in each pass.
    pub(crate) fn attending(self, seen: impl Fn() -> Attendance + Send + Sync + 'static) -> Self {
        Self { worker: Some(std::sync::Arc::new(seen)), ..self }
    }

    /// What the worker of this process does now, for the first page of a pass.
    pub(super) fn seen(&self, again: bool) -> Option<Attendance> {
        self.worker.as_ref().filter(|_| !again).map(|seen| seen())
    }

    /// Adds a row that was deleted: the worker was taken for lost, or another database restored.
    pub(super) async fn enter_again(&self, worker: Option<&Attendance>) {
        let Some(worker) = worker else { return };
        log_failed(self.store.enter_worker(worker).await);
    }

    /// Writes the row by itself: while another process made the pass, that of this one was given
    /// up.
    pub(super) async fn attend_alone(&self, worker: Option<&Attendance>) {
        let Some(worker) = worker else { return };
        log_failed(self.store.see_worker(worker).await);
    }
}

fn log_failed<T>(written: Result<T, StoreError>) {
    if let Err(error) = written {
        let error = &error as &dyn std::error::Error;
        tracing::debug!(error, "the worker's row was not written; the next pass writes it");
    }
}
