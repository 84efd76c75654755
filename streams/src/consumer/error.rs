//! Errors between a consumer and its provider or position store.

use std::error::Error;

/// Why a provider or a position store failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsumerError {
    /// The position has another epoch, or is not where the caller expected it. Under a higher epoch
    /// another owner has the source, and the caller must stop reading it; under the caller's own
    /// epoch the position was moved from outside, and the caller opens it again.
    #[error("the position of {source_key} is owned under another epoch: its epoch is {epoch}")]
    Fenced {
        /// The source.
        source_key: String,
        /// The epoch of the position now.
        epoch: i64,
    },
    /// It failed, and may succeed later.
    #[error("{what}")]
    Unavailable {
        /// The operation that failed.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: std::sync::Arc<dyn Error + Send + Sync>,
    },
}

impl ConsumerError {
    /// It failed for this reason, and may succeed later.
    pub fn unavailable(what: &'static str, source: impl Error + Send + Sync + 'static) -> Self {
        Self::Unavailable { what, source: std::sync::Arc::new(source) }
    }
}
