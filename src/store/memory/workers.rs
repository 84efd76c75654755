//! The rows of worker processes, of which there are none in memory: a test knows its workers.

use super::Tables;
use crate::event::Name;
use crate::store::kernel::StoreError;
use crate::store::minute::{Attendance, NewWorker, WorkerSummary};

impl Tables {
    pub(in crate::store) fn enter_worker(&self, _seen: &Attendance) -> Result<(), StoreError> {
        Ok(())
    }

    /// As if it had one, so that nobody adds it.
    pub(in crate::store) fn see_worker(&self, _seen: &Attendance) -> Result<bool, StoreError> {
        Ok(true)
    }

    pub(in crate::store) fn leave_worker(&self, _worker: &NewWorker) -> Result<(), StoreError> {
        Ok(())
    }

    pub(in crate::store) fn seen_worker(&self, _name: &Name) -> Result<Option<WorkerSummary>, StoreError> {
        Ok(None)
    }
}
