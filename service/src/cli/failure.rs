//! Failures of commands: an exit code per kind of failure, and a message for standard error.

use crate::access::{AccessError, InvalidKeyId, InvalidScope};
use crate::delivery::{InvalidAllowedAudience, InvalidIpRange, RefusedTarget};
use crate::resources::crons::wire::InvalidCron;
use crate::resources::hooks::wire::InvalidHook;
use crate::resources::log::wire::InvalidAppend;
use crate::resources::pulls::wire::InvalidPull;
use crate::resources::queues::wire::InvalidQueue;
use crate::resources::targets::wire::InvalidTarget;

use super::text;
use wakeq::control::InvalidQuota;
use wakeq::events::{BatchError, InvalidName};
use wakeq::limits::{InvalidLimitName, InvalidOnFull};
use wakeq::listeners::ListenError;
use wakeq::log::LogError;
use wakeq::notify::NotifyError;
use wakeq::{AdminError, EmitError, EventError, StoreError};
use wakeq_streams::{EntityError, GroupError};

/// A request that can't be fulfilled, with a message for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The arguments make no sense together, or not here.
    #[error("{0}")]
    Usage(String),
    /// It does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The credential does not allow it.
    #[error("{0}")]
    Refused(String),
    /// It conflicts with the current state.
    #[error("{0}")]
    Conflict(String),
    /// The server is unavailable or overloaded.
    #[error("{0}")]
    Unavailable(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// Exit codes for scripts. Listed in `wakeq --help` and docs/cli.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Refused = 4,
    Conflict = 5,
    Unavailable = 6,
}

impl Failure {
    /// The failure for an answer of the API with this status.
    pub(crate) fn of_status(status: u16, words: String) -> Self {
        match status {
            400 | 413 | 415 | 422 => Self::Usage(words),
            401 | 403 => Self::Refused(words),
            404 => Self::NotFound(words),
            409 | 410 => Self::Conflict(words),
            408 | 429 | 503 => Self::Unavailable(words),
            _ => Self::Failed(words),
        }
    }
}

impl Exit {
    /// The exit code of an error, from the first of its causes that has one.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        error.chain().find_map(Self::of_cause).unwrap_or(Self::Failed)
    }

    fn of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Self> {
        None.or_else(|| cause.downcast_ref().map(of_failure))
            .or_else(|| cause.downcast_ref().map(of_admin))
            .or_else(|| cause.downcast_ref().map(of_access))
            .or_else(|| cause.downcast_ref().map(of_emit))
            .or_else(|| cause.downcast_ref().map(of_batch))
            .or_else(|| cause.downcast_ref().map(of_group))
            .or_else(|| cause.downcast_ref().map(of_entity))
            .or_else(|| cause.downcast_ref().map(of_log))
            .or_else(|| cause.downcast_ref().map(of_store))
            .or_else(|| cause.downcast_ref().map(|_: &NotifyError| Self::Unavailable))
            .or_else(|| cause.downcast_ref().map(of_listening))
            .or_else(|| is_of_the_arguments(cause).then_some(Self::Usage))
    }
}

/// Errors that a server would report as an invalid request: the arguments have to be changed.
fn is_of_the_arguments(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<EventError>()
        || cause.is::<InvalidName>()
        || cause.is::<InvalidKeyId>()
        || cause.is::<InvalidScope>()
        || cause.is::<InvalidTarget>()
        || cause.is::<InvalidQueue>()
        || cause.is::<RefusedTarget>()
        || cause.is::<InvalidIpRange>()
        || cause.is::<InvalidAllowedAudience>()
        || cause.is::<InvalidCron>()
        || cause.is::<InvalidHook>()
        || cause.is::<InvalidAppend>()
        || cause.is::<InvalidPull>()
        || cause.is::<InvalidQuota>()
        || cause.is::<InvalidLimitName>()
        || cause.is::<InvalidOnFull>()
}

fn of_failure(failure: &Failure) -> Exit {
    match failure {
        Failure::Usage(_) => Exit::Usage,
        Failure::NotFound(_) => Exit::NotFound,
        Failure::Refused(_) => Exit::Refused,
        Failure::Conflict(_) => Exit::Conflict,
        Failure::Unavailable(_) => Exit::Unavailable,
        Failure::Failed(_) => Exit::Failed,
    }
}

fn of_listening(error: &ListenError) -> Exit {
    match error {
        ListenError::Pattern(_) => Exit::Usage,
        ListenError::Off => Exit::NotFound,
        ListenError::Ending | ListenError::Broker { .. } => Exit::Unavailable,
        _ => Exit::Failed,
    }
}

fn of_admin(error: &AdminError) -> Exit {
    match error {
        AdminError::AdminOnly { .. } => Exit::Refused,
        AdminError::Invalid(_)
        | AdminError::Cursor
        | AdminError::Limit(_)
        | AdminError::OwnTarget(_)
        | AdminError::Checkpoint(_) => Exit::Usage,
        AdminError::NotFound(_)
        | AdminError::NoCron(_)
        | AdminError::NoHook(_)
        | AdminError::NoBatch(_)
        | AdminError::NoTarget(_)
        | AdminError::NoQueue(_)
        | AdminError::NoOperation(_)
        | AdminError::NoPulledHandler(_)
        | AdminError::NoLimit(_)
        | AdminError::NoWorker(_)
        | AdminError::NoCopy(_)
        | AdminError::NoLease(_)
        | AdminError::NoErrorGroup(_)
        | AdminError::NoKnownError(_) => Exit::NotFound,
        AdminError::NotWaiting(_)
        | AdminError::HasEnded(_)
        | AdminError::TooManyLimits
        | AdminError::TooManyOperations(_)
        | AdminError::TooManyQueues
        | AdminError::TooCostlyPatterns
        | AdminError::QueuesChange
        | AdminError::UnreadableCron(_)
        | AdminError::HookKind { .. }
        | AdminError::NotPulled(_)
        | AdminError::NotLeased(_)
        | AdminError::LeaseOver(_)
        | AdminError::TooManyPulled
        | AdminError::EventNotLeased(_)
        | AdminError::EventLeaseOver(_)
        | AdminError::ClaimLost(_)
        | AdminError::IdempotencyMismatch
        | AdminError::IdempotencyInProgress => Exit::Conflict,
        AdminError::Store(error) => of_store(error),
        AdminError::Wake(waking) => waking.of_store().map_or(Exit::Unavailable, of_store),
        AdminError::NoRandomness | AdminError::NoSecretKey | _ => Exit::Failed,
    }
}

fn of_batch(error: &BatchError) -> Exit {
    match error {
        BatchError::Taken(_) => Exit::Conflict,
        BatchError::Missing(_) => Exit::NotFound,
        BatchError::Store(error) => of_store(error),
        BatchError::Name(_) | BatchError::Event(_) | BatchError::OnEnd(_) | _ => Exit::Usage,
    }
}

fn of_group(error: &GroupError) -> Exit {
    match error {
        GroupError::Invalid(_) => Exit::Usage,
        GroupError::NoGroup(_) | GroupError::NoSource(..) => Exit::NotFound,
        GroupError::GroupInUse(_) => Exit::Conflict,
        GroupError::Store(error) => of_store(error),
        _ => Exit::Failed,
    }
}

fn of_access(error: &AccessError) -> Exit {
    match error {
        AccessError::Invalid(_) => Exit::Usage,
        AccessError::TwoLive { .. } | AccessError::Busy { .. } => Exit::Conflict,
        AccessError::Store(error) => of_store(error),
        AccessError::NoRandomness(_) | AccessError::Config(_) | AccessError::Tls(_) => Exit::Failed,
    }
}

fn of_emit(error: &EmitError) -> Exit {
    match error {
        EmitError::Event(_)
        | EmitError::OtherCanvas
        | EmitError::TooMany(_)
        | EmitError::IdempotencyMismatch
        | EmitError::IdempotencyKey(_) => Exit::Usage,
        EmitError::IdempotencyInProgress => Exit::Conflict,
        EmitError::Store(error) | EmitError::ObjectBusy(error) => of_store(error),
        _ => Exit::Failed,
    }
}

fn of_entity(error: &EntityError) -> Exit {
    match error {
        EntityError::Event(_) | EntityError::Entity(_) | EntityError::Cursor(_) | EntityError::TooMany(_) => {
            Exit::Usage
        }
        EntityError::Taken(_) | EntityError::NotAsked { .. } => Exit::Conflict,
        EntityError::Store(error) | EntityError::Busy(_, error) => of_store(error),
        _ => Exit::Failed,
    }
}

fn of_log(error: &LogError) -> Exit {
    match error {
        LogError::Condition { .. } => Exit::Conflict,
        LogError::Event(_)
        | LogError::TooMany(_)
        | LogError::TooLarge { .. }
        | LogError::CallTooLarge { .. }
        | LogError::Limit(_)
        | LogError::Category(_)
        | LogError::Canvas(_) => Exit::Usage,
        LogError::Busy(error) | LogError::Store(error) => of_store(error),
        _ => Exit::Failed,
    }
}

fn of_store(error: &StoreError) -> Exit {
    match error {
        StoreError::Unavailable(_)
        | StoreError::TimedOut { .. }
        | StoreError::Overloaded
        | StoreError::WaitingMax(_) => Exit::Unavailable,
        error if error.is_contention() => Exit::Unavailable,
        StoreError::Quota(_) | StoreError::NoBatch(_) | StoreError::IdTaken(_) => Exit::Conflict,
        StoreError::Timing(_) => Exit::Usage,
        StoreError::Refused { .. }
        | StoreError::NotMigrated(_)
        | StoreError::Migration(_)
        | StoreError::PartlyMigrated(_)
        | StoreError::UnsafeDurability { .. }
        | StoreError::RoleSettings { .. }
        | StoreError::PoolSettings { .. }
        | StoreError::ForeignEngine(_)
        | StoreError::OtherTiming { .. }
        | StoreError::Config(_)
        | StoreError::Defect
        | _ => Exit::Failed,
    }
}

/// The error and its causes on one line, without causes that only repeat it.
pub(crate) fn words(error: &anyhow::Error) -> String {
    text::clean(&causes(&**error))
}

/// The same of an error of a library, whose text is not sanitized yet.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    each_once(anyhow::Chain::new(error).map(|cause| of_postgres(&cause.to_string())))
}

fn each_once(causes: impl Iterator<Item = String>) -> String {
    let mut words = String::new();
    for cause in causes {
        if !words.contains(without_line(&cause)) {
            words = if words.is_empty() { cause } else { format!("{words}: {cause}") };
        }
    }
    words.replace('\n', " ")
}

/// Postgres's message without the prefix of the client library and the line number.
fn of_postgres(cause: &str) -> String {
    match cause.strip_prefix("error returned from database: ") {
        Some(said) => without_line(said).to_owned(),
        None => cause.to_owned(),
    }
}

/// Without the line number that Postgres's messages end with, which refers to its own source.
fn without_line(said: &str) -> &str {
    match said.rsplit_once(" at line ") {
        Some((words, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => words,
        Some(_) | None => said,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn errors_are_printed_once_on_one_clean_line() {
        let error = anyhow!("error returned from database: no such role\u{1b}[31m at line 335")
            .context("Postgres is away\nnow")
            .context("Postgres is away\nnow");
        assert_eq!(words(&error), "Postgres is away now: no such role\\u{1b}[31m");
        let repeated = anyhow!("no such role at line 335")
            .context("error returned from database: no such role at line 335")
            .context("Postgres refused it");
        assert_eq!(words(&repeated), "Postgres refused it: no such role");
        assert_eq!(causes(&*repeated), "Postgres refused it: no such role");
        assert_eq!(Exit::of(&error), Exit::Failed);
        let missing = anyhow::Error::from(Failure::NotFound("x".into())).context("y");
        assert_eq!(Exit::of(&missing) as u8, 3);
        let late = anyhow::Error::from(EventError::TooLate).context("y");
        assert_eq!(Exit::of(&late) as u8, 2);
        let admin = anyhow::Error::from(AdminError::Store(StoreError::Overloaded));
        assert_eq!(Exit::of(&admin) as u8, 6);
    }
}
