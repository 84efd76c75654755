//! The rows of worker processes.

use super::on_backing;
use crate::event::Name;
use crate::store::kernel::{Store, StoreError};
use crate::store::minute::{Attendance, NewWorker, WorkerSummary};

impl Store {
    /// Adds a worker's row, or writes it if it is there.
    pub(crate) async fn enter_worker(&self, seen: &Attendance) -> Result<(), StoreError> {
        on_backing!(self.enter_worker(seen))
    }

    /// Writes what a worker does; returns whether it has a row.
    pub(crate) async fn see_worker(&self, seen: &Attendance) -> Result<bool, StoreError> {
        on_backing!(self.see_worker(seen))
    }

    /// Deletes the row of a worker that has ended.
    pub(crate) async fn leave_worker(&self, worker: &NewWorker) -> Result<(), StoreError> {
        on_backing!(self.leave_worker(worker))
    }

    /// The worker of this name that was seen last.
    pub(crate) async fn seen_worker(&self, name: &Name) -> Result<Option<WorkerSummary>, StoreError> {
        on_backing!(self.seen_worker(name))
    }
}
