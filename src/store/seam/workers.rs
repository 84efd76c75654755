//! The rows of worker processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::on_backing;
use crate::event::Name;
use crate::store::kernel::{Store, StoreError};
use crate::store::minute::{Attendance, NewWorker, WorkerSummary};

impl Store {
    /// Adds a worker's row, or writes it if it is there; does nothing once the worker leaves. It
    /// goes on if the caller is dropped, since the server would, and a row that is added after its
    /// deletion would stay.
    pub(crate) async fn enter_worker(&self, seen: &Attendance) -> Result<(), StoreError> {
        let turn = Arc::clone(&seen.worker.row.turn).lock_owned().await;
        if seen.worker.row.has_left.load(Ordering::Acquire) {
            return Ok(());
        }
        let (store, seen) = (self.clone(), seen.clone());
        let adding = tokio::spawn(async move {
            let _turn = turn;
            store.add_worker(&seen).await
        });
        adding.await.unwrap_or(Err(StoreError::Defect))
    }

    async fn add_worker(&self, seen: &Attendance) -> Result<(), StoreError> {
        on_backing!(self.enter_worker(seen))
    }

    /// Writes what a worker does; returns whether it has a row.
    pub(crate) async fn see_worker(&self, seen: &Attendance) -> Result<bool, StoreError> {
        on_backing!(self.see_worker(seen))
    }

    /// Deletes the row of a worker that has ended, after what adds it now.
    pub(crate) async fn leave_worker(&self, worker: &NewWorker) -> Result<(), StoreError> {
        worker.row.has_left.store(true, Ordering::Release);
        let _turn = worker.row.turn.lock().await;
        on_backing!(self.leave_worker(worker))
    }

    /// The worker of this name that was seen last.
    pub(crate) async fn seen_worker(&self, name: &Name) -> Result<Option<WorkerSummary>, StoreError> {
        on_backing!(self.seen_worker(name))
    }
}
