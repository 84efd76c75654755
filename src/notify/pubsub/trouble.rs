//! Why nothing can be received: said by the stream, and shown by the subscription.

use std::sync::{Arc, Mutex, PoisonError};

/// Why nothing can be received now, shared between the stream and its reader.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    pub(super) fn words(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Logs a change once, and not every repetition.
    pub(super) fn begin(&self, words: String) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref() != Some(&words) {
            tracing::warn!(reason = %words, "no notifications can be received");
            *current = Some(words);
        }
    }

    pub(super) fn end(&self) {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            tracing::info!("notifications can be received again");
        }
    }
}
