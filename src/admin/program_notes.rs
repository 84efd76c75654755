//! Which programs this process has noted lately: each is noted once a minute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::event::{HandlerScope, Name};

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
    pub(super) fn is_due(&self, scope: &HandlerScope, worker: &Name, now: Instant) -> bool {
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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::event::CanvasId;

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
