//! The worker processes. They work for every canvas: callers check the authorization.

use uuid::Uuid;

use super::{Admin, AdminError, Cursor, LIST_MAX, Page};
use crate::event::Name;
use crate::store::{Worker, WorkerSummary};

impl Admin {
    /// The worker processes, by name: up to `limit`, 1 to [`LIST_MAX`]. One that was killed is in
    /// the list, as [lost](crate::control::WorkerState::Lost), for a day.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), wakeq::AdminError> {
    /// for worker in admin.workers(None, 100).await?.items {
    ///     println!("{} {} runs {} of {}", worker.name, worker.release, worker.running, worker.capacity);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn workers(
        &self,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<WorkerSummary>, AdminError> {
        let after = cursor.map(Cursor::worker).transpose()?;
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let found = self.store.workers(after.as_ref(), limit as i64 + 1).await?;
        Ok(Page::of(found, limit, |last| Cursor::of_worker((last.name.clone(), last.instance))))
    }

    /// A worker process: that of this name which was seen last, or this instance of it. Shows its
    /// handlers, and events of every canvas that it ran then.
    pub async fn worker(&self, name: &Name, instance: Option<Uuid>) -> Result<Worker, AdminError> {
        let found = self.store.worker_named(name, instance).await?;
        found.ok_or_else(|| AdminError::NoWorker(name.clone()))
    }
}
