//! Why the owner of a type goes no further now, and which failures of the database are for ever. It decides nothing about what is
//! done then.

use super::shard::Broken;
use super::warm::ColdError;
use crate::consumer::ConsumerError;
use crate::store::{StoreError, lacks_partition};

/// Why it goes no further.
pub(super) enum Halt {
    /// The database or the provider gave no answer: tried again.
    Away(&'static str, Box<dyn std::error::Error + Send + Sync>),
    /// The inbox is another's.
    Fenced,
    /// It was told to end.
    Withdrawn,
    /// Somebody has to do something first.
    Broken(Broken),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        if error.is_data() && !lacks_partition(&error) {
            // What is refused once is refused for ever.
            let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            return Self::Broken(Broken(format!("{error}: {why}")));
        }
        Self::Away("the database", Box::new(error))
    }
}

impl From<Broken> for Halt {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl From<ConsumerError> for Halt {
    fn from(error: ConsumerError) -> Self {
        match error {
            ConsumerError::Fenced { .. } => Self::Fenced,
            error @ ConsumerError::Unavailable { .. } => Self::Away("the log", Box::new(error)),
        }
    }
}

impl From<ColdError> for Halt {
    fn from(error: ColdError) -> Self {
        match error {
            ColdError::Store(error) => error.into(),
            ColdError::Broken(broken) => broken.into(),
        }
    }
}

/// The store's error, for the owner of the entity and for operators who read the log.
pub(super) fn of_the_store<'a>(
    error: &'a (dyn std::error::Error + Send + Sync + 'static),
) -> Option<&'a StoreError> {
    error.downcast_ref().or_else(|| match error.downcast_ref()? {
        ConsumerError::Unavailable { source, .. } => source.downcast_ref(),
        ConsumerError::Fenced { .. } => None,
    })
}

/// Whether the database did not do it in time.
pub(super) fn is_time_out(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    matches!(of_the_store(error), Some(StoreError::TimedOut { .. }))
}

/// The words of a refusal; none, if there was no answer at all, or another one may come at any time.
pub(super) fn refusal(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<String> {
    let error = of_the_store(error)?;
    // A full disk, or a server that shuts down, is nothing that a program could be made to stand.
    let passes =
        error.code().is_some_and(|code| ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class)));
    let refused = matches!(error, StoreError::Refused { .. }) && !error.is_contention() && !passes;
    let why = || std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    refused.then(|| format!("{error}: {}", why()))
}
