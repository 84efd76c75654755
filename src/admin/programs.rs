//! The programs that lease events of pulled handlers under a name: noting and listing them. Nothing
//! decides by what is noted, so no error here fails a call.

use tokio::time::Instant;

use super::{Admin, AdminError, Cursor, LIST_MAX, Page};
use crate::event::{CanvasId, HandlerScope, Name};
use crate::store::{Program, Store};

impl Admin {
    /// The programs of a canvas that lease events of pulled handlers under a
    /// [name](Admin::lease_events_as), by handler and name: those that leased, or spoke of a lease,
    /// within the last five minutes. Up to `limit`, 1 to [`LIST_MAX`].
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), wakeq::AdminError> {
    /// for program in admin.programs(wakeq::CanvasId::DEFAULT, None, 100).await?.items {
    ///     println!("{} leases events of {}", program.worker, program.scope);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn programs(
        &self,
        canvas: CanvasId,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Program>, AdminError> {
        let after = cursor.map(Cursor::program).transpose()?;
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let found = self.store.programs(canvas, after.as_ref(), limit as i64 + 1).await?;
        Ok(Page::of(found, limit, |last| {
            let HandlerScope { module, name, .. } = &last.scope;
            Cursor::of_program((module.clone(), name.clone(), last.worker.clone()))
        }))
    }

    /// Notes that a program of this name leases events of a handler, unless this process has done
    /// so within a minute.
    pub(super) async fn note_program(&self, scope: &HandlerScope, worker: &Name) {
        if !self.program_notes.is_due(scope, worker, Instant::now()) {
            return;
        }
        if let Err(error) = self.store.see_program(scope, worker).await {
            let error = &error as &dyn std::error::Error;
            tracing::info!(error, handler = %scope, %worker, "a program that leases events was not noted");
        }
    }

    /// The store for what a program does: its claims, and its attempts, have its name.
    pub(super) fn store_of(&self, worker: Option<&Name>) -> Store {
        match worker {
            Some(worker) => self.store.clone().claiming_as(worker.clone()),
            None => self.store.clone(),
        }
    }
}
