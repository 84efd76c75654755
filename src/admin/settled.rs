//! Writes that may have taken effect although their answer was lost: only the caller does what
//! follows from them.

use std::time::Duration;

use tokio::time::Instant;

use super::Admin;
use crate::event::EventId;
use crate::store::{LoadedEvent, StoreError};

/// How long a write without an answer is repeated, and the pause between tries.
const REPEATED_FOR: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);

impl Admin {
    /// Repeats a write to one event until it is answered, and returns that answer if it reports a
    /// change. If it does not, an earlier try may have made the change: then the row decides.
    pub(super) async fn settled<T, F>(
        &self,
        id: EventId,
        write: impl Fn() -> F,
        changed: impl Fn(&T) -> bool,
        is_done: impl Fn(Option<LoadedEvent>) -> Option<T>,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let end = Instant::now() + REPEATED_FOR;
        let mut unanswered = false;
        loop {
            let answer = match write().await {
                Ok(answer) if !unanswered || changed(&answer) => Ok(answer),
                Ok(answer) => self.found(id).await.map(|found| is_done(found).unwrap_or(answer)),
                Err(error) => Err(error),
            };
            match answer {
                Err(error) if Instant::now() < end => {
                    tracing::warn!(error = &error as &dyn std::error::Error, event = %id, "no answer: asked again");
                    unanswered = true;
                    tokio::time::sleep(PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    /// An event by its own id, on any canvas.
    pub(super) async fn found(&self, id: EventId) -> Result<Option<LoadedEvent>, StoreError> {
        Ok(self.store.load(&[id]).await?.pop().flatten())
    }
}

/// The result of a removal whose answer was lost.
pub(super) fn is_gone(found: Option<LoadedEvent>) -> Option<bool> {
    Some(found.is_none())
}
