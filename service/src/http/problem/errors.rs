//! The problems that callers see for errors of the queue, the streams and access control.

use super::{Kind, Problem};
use crate::access::{AccessError, Denied, Unauthenticated};
use wakeq::events::{BatchError, InvalidIdempotencyKey, InvalidName, JsonError};
use wakeq::log::LogError;
use wakeq::{AdminError, EmitError, EventError, StoreError};
use wakeq_streams::{EntityError, GroupError};

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::of_store(&error).because(error)
    }
}

impl Problem {
    fn of_store(error: &StoreError) -> Self {
        match error {
            StoreError::Overloaded => {
                Self::new(Kind::Unavailable, "this process is at its limit of waiting emits: try again")
            }
            StoreError::Unavailable(_) | StoreError::TimedOut { .. } => Self::unavailable("the database"),
            StoreError::Quota(exceeded) => {
                let kind = if exceeded.quota.drains() { Kind::QuotaExceeded } else { Kind::QuotaReached };
                Self::new(kind, error.to_string())
            }
            StoreError::WaitingMax(_) => Self::new(Kind::LimitReached, error.to_string()),
            StoreError::NoBatch(_) => Self::new(Kind::Conflict, error.to_string()),
            StoreError::IdTaken(_) => Self::new(Kind::IdTaken, error.to_string()),
            StoreError::NotMigrated(_) => Self::unavailable("an up-to-date schema"),
            error if error.is_contention() => Self::unavailable("a lock in the database"),
            StoreError::Refused { .. }
            | StoreError::Migration(_)
            | StoreError::PartlyMigrated(_)
            | StoreError::UnsafeDurability { .. }
            | StoreError::RoleSettings { .. }
            | StoreError::PoolSettings { .. }
            | StoreError::ForeignEngine(_)
            | StoreError::Timing(_)
            | StoreError::OtherTiming { .. }
            | StoreError::Config(_)
            | StoreError::Defect
            | _ => Self::internal(),
        }
    }

    fn of_event(error: &EventError) -> Self {
        match error {
            EventError::TooLarge { .. } => Self::new(Kind::TooLarge, error.to_string()),
            // The parser's message may quote the payload.
            EventError::Value(JsonError::Invalid(_)) => Self::bad_request("the value is not JSON"),
            EventError::Name(_)
            | EventError::Object(_)
            | EventError::Value(_)
            | EventError::Metadata(_)
            | EventError::Unique(_)
            | EventError::Options(_)
            | EventError::TooLate
            | EventError::LogName(_)
            | EventError::ReservedCategory(_)
            | EventError::ReservedModule(_)
            | EventError::ReservedCanvas
            | _ => Self::invalid(error),
        }
    }
}

impl From<LogError> for Problem {
    fn from(error: LogError) -> Self {
        let problem = match &error {
            LogError::Condition { .. } => Self::new(Kind::ConditionFailed, error.to_string()),
            LogError::TooLarge { .. } | LogError::CallTooLarge { .. } => {
                Self::new(Kind::TooLarge, error.to_string())
            }
            LogError::Event(_)
            | LogError::TooMany(_)
            | LogError::Limit(_)
            | LogError::Category(_)
            | LogError::Canvas(_) => Self::invalid(&error),
            LogError::Busy(_) => Self::unavailable("a stream of the log, held by other transactions,"),
            LogError::Store(error) => Self::of_store(error),
            _ => Self::internal(),
        };
        problem.because(error)
    }
}

impl From<EventError> for Problem {
    fn from(error: EventError) -> Self {
        Self::of_event(&error).because(error)
    }
}

impl From<InvalidName> for Problem {
    fn from(error: InvalidName) -> Self {
        Self::invalid(&error).because(error)
    }
}

impl From<InvalidIdempotencyKey> for Problem {
    fn from(error: InvalidIdempotencyKey) -> Self {
        Self::invalid(error).because(error)
    }
}

impl From<AdminError> for Problem {
    fn from(error: AdminError) -> Self {
        let problem = match &error {
            AdminError::AdminOnly { .. } => Self::new(Kind::Forbidden, error.to_string()),
            AdminError::Invalid(words) => Self::bad_request(*words),
            AdminError::NotFound(_)
            | AdminError::NoCron(_)
            | AdminError::NoHook(_)
            | AdminError::NoBatch(_)
            | AdminError::NoTarget(_)
            | AdminError::NoQueue(_) => Self::not_found(),
            AdminError::NoCopy(_)
            | AdminError::NoLease(_)
            | AdminError::NoOperation(_)
            | AdminError::NoErrorGroup(_)
            | AdminError::NoKnownError(_)
            | AdminError::NoLimit(_)
            | AdminError::NoPulledHandler(_)
            | AdminError::NoWorker(_) => Self::new(Kind::NotFound, error.to_string()),
            AdminError::LeaseOver(_) | AdminError::EventLeaseOver(_) | AdminError::ClaimLost(_) => {
                Self::new(Kind::LeaseOver, error.to_string())
            }
            AdminError::LeasedCopy { .. }
            | AdminError::HasEnded(_)
            | AdminError::NotPulled(_)
            | AdminError::NotLeased(_)
            | AdminError::EventNotLeased(_)
            | AdminError::TooManyPulled
            | AdminError::TooManyLimits
            | AdminError::TooManyKnownErrors
            | AdminError::UnreadableCron(_)
            | AdminError::HookKind { .. }
            | AdminError::TooManyOperations(_)
            | AdminError::TooManyQueues
            | AdminError::TooCostlyPatterns
            | AdminError::QueuesChange => Self::new(Kind::Conflict, error.to_string()),
            AdminError::OwnTarget(_)
            | AdminError::Checkpoint(_)
            | AdminError::Limit(_)
            | AdminError::Cursor => Self::invalid(&error),
            AdminError::NotWaiting(_) => {
                let words =
                    "the event is running: cancel it with `running=true`, or try again when it has ended";
                Self::new(Kind::NotWaiting, words)
            }
            AdminError::IdempotencyMismatch => Self::new(Kind::IdempotencyMismatch, error.to_string()),
            AdminError::IdempotencyInProgress => Self::new(Kind::IdempotencyInProgress, error.to_string()),
            AdminError::NoSecretKey => Self::new(Kind::Unavailable, error.to_string()),
            AdminError::Store(error) => Self::of_store(error),
            AdminError::Wake(waking) => match waking.of_store() {
                Some(error) => Self::of_store(error).after_the_change(),
                None => Self::unavailable("Pub/Sub (the change was made, and workers continue)"),
            },
            AdminError::NoRandomness | _ => Self::internal(),
        };
        problem.because(error)
    }
}

impl From<GroupError> for Problem {
    fn from(error: GroupError) -> Self {
        let problem = match &error {
            GroupError::Invalid(words) => Self::bad_request(*words),
            GroupError::NoGroup(_) => Self::not_found(),
            GroupError::NoSource(..) => Self::invalid(&error),
            GroupError::GroupInUse(_) => Self::new(Kind::Conflict, error.to_string()),
            GroupError::Store(error) => Self::of_store(error),
            _ => Self::internal(),
        };
        problem.because(error)
    }
}

impl From<EmitError> for Problem {
    fn from(error: EmitError) -> Self {
        let problem = match &error {
            EmitError::Event(error) => Self::of_event(error),
            EmitError::Store(error) => Self::of_store(error),
            EmitError::ObjectBusy(_) => {
                let words = "others are emitting on this object or with this unique key, or a transaction \
                             holds it: try again";
                Self::new(Kind::Unavailable, words)
            }
            EmitError::IdempotencyMismatch => Self::new(Kind::IdempotencyMismatch, error.to_string()),
            EmitError::IdempotencyInProgress => Self::new(Kind::IdempotencyInProgress, error.to_string()),
            EmitError::IdempotencyKey(_) | EmitError::OtherCanvas | EmitError::TooMany(_) => {
                Self::invalid(&error)
            }
            _ => Self::internal(),
        };
        problem.because(error)
    }
}

impl From<BatchError> for Problem {
    fn from(error: BatchError) -> Self {
        let problem = match &error {
            BatchError::Event(error) => Self::of_event(error),
            BatchError::Store(error) => Self::of_store(error),
            BatchError::Name(_) | BatchError::OnEnd(_) => Self::invalid(&error),
            BatchError::Taken(_) => Self::new(Kind::Conflict, error.to_string()),
            BatchError::Missing(_) => Self::not_found(),
            _ => Self::internal(),
        };
        problem.because(error)
    }
}

impl From<EntityError> for Problem {
    fn from(error: EntityError) -> Self {
        let problem = match &error {
            EntityError::Event(error) => Self::of_event(error),
            EntityError::Store(error) => Self::of_store(error),
            EntityError::Busy(..) => Self::new(Kind::Unavailable, error.to_string()),
            EntityError::Taken(_) => Self::new(
                Kind::IdTaken,
                "the id belongs to an event of another entity, or to an erasure: choose another one",
            ),
            EntityError::Entity(_)
            | EntityError::Cursor(_)
            | EntityError::TooMany(_)
            | EntityError::NotAsked { .. } => Self::invalid(&error),
            _ => Self::internal(),
        };
        problem.because(error)
    }
}

impl From<AccessError> for Problem {
    fn from(error: AccessError) -> Self {
        let problem = match &error {
            AccessError::Invalid(words) => Self::bad_request(*words),
            AccessError::TwoLive { .. } | AccessError::Busy { .. } => {
                Self::new(Kind::Conflict, error.to_string())
            }
            AccessError::Store(error) => Self::of_store(error),
            AccessError::NoRandomness(_) | AccessError::Config(_) | AccessError::Tls(_) => Self::internal(),
        };
        problem.because(error)
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::NotFound => Self::not_found(),
            Denied::Forbidden { .. }
            | Denied::Narrow { .. }
            | Denied::Beyond { .. }
            | Denied::NotEverywhere { .. } => Self::new(Kind::Forbidden, denied.to_string()),
        }
    }
}

impl From<Unauthenticated> for Problem {
    fn from(error: Unauthenticated) -> Self {
        match error {
            Unauthenticated::Unavailable(_) => {
                Self::unavailable("the verification of credentials").because(error)
            }
            Unauthenticated::Missing | Unauthenticated::Malformed | Unauthenticated::Unknown(_) => Self::new(
                Kind::Unauthenticated,
                "send `Authorization: Bearer` with a key or a Google ID token that is valid here",
            ),
        }
    }
}
