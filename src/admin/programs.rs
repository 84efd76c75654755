//! The programs that lease events of pulled handlers under a name: noting them, at most once a
//! minute, and listing them. Nothing decides by what is noted, so no error here fails a call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Admin, AdminError, Cursor, LIST_MAX, Page};
use crate::event::{CanvasId, HandlerScope, Name};
use crate::store::{Program, Store};

/// How long a program that this process has noted is not noted again.
const NOTED_FOR: Duration = Duration::from_secs(60);
/// Maximum number of programs that a process remembers to have noted. Beyond, some are noted more
/// often.
const NOTES_MAX: usize = 10_000;

/// When this process has last noted each program. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramNotes(Arc<Mutex<HashMap<(HandlerScope, Name), Instant>>>);

impl ProgramNotes {
    /// Whether a program is to be noted now. If it is, it counts as noted.
    fn is_due(&self, scope: &HandlerScope, worker: &Name, now: Instant) -> bool {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let program = (scope.clone(), worker.clone());
        if noted.get(&program).is_some_and(|at| now < *at + NOTED_FOR) {
            return false;
        }
        if noted.len() >= NOTES_MAX {
            noted.retain(|_, at| now < *at + NOTED_FOR);
        }
        if noted.len() >= NOTES_MAX {
            noted.clear();
        }
        noted.insert(program, now);
        true
    }
}

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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// Each program of each canvas is noted by itself.
    #[test]
    fn a_program_is_noted_once_a_minute() {
        let notes = ProgramNotes::default();
        let now = Instant::now();
        for (canvas, worker, after_s, is_due) in [
            (6, "one", 0, true),
            (6, "one", 59, false),
            (6, "two", 59, true),
            (7, "one", 59, true),
            (6, "one", 60, true),
            (6, "one", 61, false),
            (7, "one", 118, false),
        ] {
            let scope = HandlerScope::worker(CanvasId(Uuid::from_u128(canvas)), "mail").unwrap();
            let (worker, at) = (worker.parse().unwrap(), now + Duration::from_secs(after_s));
            assert_eq!(notes.is_due(&scope, &worker, at), is_due, "{worker} of {canvas} after {after_s} s");
        }
    }

    #[test]
    fn a_bounded_number_of_programs_is_remembered() {
        let (notes, now) = (ProgramNotes::default(), Instant::now());
        let scope = HandlerScope::worker(CanvasId::DEFAULT, "mail").unwrap();
        for number in 0..2 * NOTES_MAX {
            assert!(notes.is_due(&scope, &format!("w-{number}").parse().unwrap(), now));
        }
        assert!(notes.0.lock().unwrap().len() <= NOTES_MAX);
    }
}
