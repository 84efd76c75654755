//! What goes wrong between a consumer and what it reads from and writes to.

use std::error::Error;

/// Why a provider or a store of positions did not do what it was asked for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConsumerError {
    /// Somebody else has the source by now: its position stands under a higher epoch, or was moved by another. Whoever is
    /// told this has to stop working on the source.
    #[error("the position of {source_key} is another's: it stands under epoch {epoch}")]
    Fenced {
        /// The source.
        source_key: String,
        /// The epoch of the position now.
        epoch: i64,
    },
    /// It failed, and may work later.
    #[error("{what}")]
    Unavailable {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: std::sync::Arc<dyn Error + Send + Sync>,
    },
}

impl ConsumerError {
    /// It failed for this reason, and may work later.
    pub fn unavailable(what: &'static str, source: impl Error + Send + Sync + 'static) -> Self {
        Self::Unavailable { what, source: std::sync::Arc::new(source) }
    }
}
