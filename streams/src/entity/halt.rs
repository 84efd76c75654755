//! Why the owner of a type stops for now, and what kind of failure that is. What is done about it
//! is decided elsewhere.

use super::run::FatalError;
use super::warm::LoadError;
use crate::consumer::ConsumerError;
use crate::machine::OwnerFailure;
use wakeq::StoreError;
use wakeq::internals::lacks_partition;

/// Why there was no answer.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why the owner stops for now.
pub(super) enum Halt {
    /// The database or the provider did not answer: it is tried again.
    Unavailable(&'static str, Cause),
    /// A write was refused: the position is elsewhere, or under another epoch.
    Elsewhere,
    /// Another owner has the inbox.
    Fenced,
    /// The inbox was withdrawn.
    Withdrawn,
    /// A person has to act first.
    Fatal(FatalError),
}

impl Halt {
    /// What kind of failure it is.
    pub(super) fn failure(&self) -> OwnerFailure {
        match self {
            Self::Unavailable(_, error) if is_time_out(&**error) => OwnerFailure::TimedOut,
            Self::Unavailable(_, error) => {
                refusal(&**error).map_or(OwnerFailure::Unavailable, OwnerFailure::Refused)
            }
            Self::Elsewhere => OwnerFailure::Elsewhere,
            Self::Fenced => OwnerFailure::Fenced,
            Self::Withdrawn => OwnerFailure::Withdrawn,
            Self::Fatal(_) => OwnerFailure::Fatal,
        }
    }

    /// What did not answer, and why, in words for operators.
    pub(super) fn into_cause(self) -> (&'static str, Cause) {
        match self {
            Self::Unavailable(what, error) => (what, error),
            Self::Elsewhere => ("the position", "the position was moved".into()),
            Self::Fenced => ("the inbox", "it has another owner".into()),
            Self::Withdrawn => ("the inbox", "it was withdrawn".into()),
            Self::Fatal(fatal) => ("the processor", Box::new(fatal)),
        }
    }
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
fn of_the_store<'a>(error: &'a (dyn std::error::Error + Send + Sync + 'static)) -> Option<&'a StoreError> {
    error.downcast_ref().or_else(|| match error.downcast_ref()? {
        ConsumerError::Unavailable { source, .. } => source.downcast_ref(),
        ConsumerError::Fenced { .. } => None,
    })
}

/// Whether the database timed out.
fn is_time_out(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    matches!(of_the_store(error), Some(StoreError::TimedOut { .. }))
}

/// The text of a refusal. `None` if there was no answer at all, or if the cause may pass by itself.
fn refusal(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<String> {
    let error = of_the_store(error)?;
    // A full disk, or a server that shuts down, is not a refusal of what was asked.
    let passes =
        error.code().is_some_and(|code| ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class)));
    let refused = matches!(error, StoreError::Refused { .. }) && !error.is_contention() && !passes;
    let why = || std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    refused.then(|| format!("{error}: {}", why()))
}
