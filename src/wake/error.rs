//! Why waking stopped.

use crate::notify::NotifyError;
use crate::store::StoreError;

/// Why waking stopped. The promises in the rows make up for it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WakeError {
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the notifier.
    #[error(transparent)]
    Notify(#[from] NotifyError),
}

impl WakeError {
    /// The database's error, if it was one.
    #[doc(hidden)]
    pub fn of_store(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error) => Some(error),
            Self::Notify(_) => None,
        }
    }
}
