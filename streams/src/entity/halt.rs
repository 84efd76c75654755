//! Why the owner of a type stops for now, and which failures of the database are permanent. The
//! reaction is decided elsewhere.

use super::run::FatalError;
use super::warm::LoadError;
use crate::consumer::ConsumerError;
use wakeq::StoreError;
use wakeq::internals::lacks_partition;

/// Why the owner stops for now.
pub(super) enum Halt {
    /// The database or the provider did not answer: it is tried again.
    Unavailable(&'static str, Box<dyn std::error::Error + Send + Sync>),
    /// Another owner has the inbox.
    Fenced,
    /// The inbox was withdrawn, or the owner gives it up for a while.
    Withdrawn,
    /// A person has to act first.
    Fatal(FatalError),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        if error.is_data() && !lacks_partition(&error) {
            // Data that is refused once is always refused.
            let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            return Self::Fatal(FatalError(format!("{error}: {why}")));
        }
        Self::Unavailable("the database", Box::new(error))
    }
}

impl From<FatalError> for Halt {
    fn from(fatal: FatalError) -> Self {
        Self::Fatal(fatal)
    }
}

impl From<ConsumerError> for Halt {
    fn from(error: ConsumerError) -> Self {
        match error {
            ConsumerError::Fenced { .. } => Self::Fenced,
            error @ ConsumerError::Unavailable { .. } => Self::Unavailable("the log", Box::new(error)),
        }
    }
}

impl From<LoadError> for Halt {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Store(error) => error.into(),
            LoadError::Fatal(fatal) => fatal.into(),
        }
    }
}

/// The error of the store, also if a provider has wrapped it.
pub(super) fn of_the_store<'a>(
    error: &'a (dyn std::error::Error + Send + Sync + 'static),
) -> Option<&'a StoreError> {
    error.downcast_ref().or_else(|| match error.downcast_ref()? {
        ConsumerError::Unavailable { source, .. } => source.downcast_ref(),
        ConsumerError::Fenced { .. } => None,
    })
}

/// Whether the database timed out.
pub(super) fn is_time_out(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    matches!(of_the_store(error), Some(StoreError::TimedOut { .. }))
}

/// The text of a refusal. `None` if there was no answer at all, or if the cause may pass by itself.
pub(super) fn refusal(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<String> {
    let error = of_the_store(error)?;
    // A full disk, or a server that shuts down, is not a refusal of what was asked.
    let passes =
        error.code().is_some_and(|code| ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class)));
    let refused = matches!(error, StoreError::Refused { .. }) && !error.is_contention() && !passes;
    let why = || std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    refused.then(|| format!("{error}: {}", why()))
}
