//! The shared vocabulary: ids, handler addresses, events, rules and notifications.
//!
//! Everything here is plain data, validated when it is constructed. No I/O, no SQL, no clock.

/// Displays types as what their `as_str` returns.
macro_rules! displayed_as_text {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.as_str())
            }
        }
    };
}
pub(crate) use displayed_as_text;

/// Displays and parses types as the UUIDs that they hold.
macro_rules! displayed_as_uuid {
    ($($name:ident),*) => {$(
        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(formatter)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse::<uuid::Uuid>().map($name)
            }
        }
    )*};
}

mod actor;
mod asked;
mod batch;
mod broadcast;
mod checkpoint;
mod chosen;
mod counts;
mod draft;
mod ended_filter;
mod error_group;
mod filter;
mod handler;
mod headers;
mod histogram;
mod hook;
mod idempotency;
mod json;
mod keep;
mod limit;
mod limit_name;
mod log;
mod metadata;
mod object;
mod operation;
mod options;
mod own;
mod pull;
mod queue;
mod quota;
mod schedule;
mod sealed;
mod seconds;
mod spelled;
mod spread;
mod tag;
mod target;
mod unique;
mod value_condition;
mod waiting_max;

pub use actor::Actor;
pub(crate) use batch::ended_value;
pub use batch::{BatchCounts, BatchName, InvalidBatchName};
pub use broadcast::{Broadcast, MalformedBroadcast};
pub use checkpoint::{Checkpoint, InvalidCheckpoint};
pub use chosen::ChosenIdTaken;
pub(crate) use counts::CountedRun;
pub use counts::EventCounts;
pub(crate) use draft::DELAY_MAX;
pub use draft::{Due, Event, EventError, EventFields, NewEvent, answer_event};
pub use ended_filter::EndedFilter;
pub use error_group::ErrorGroupId;
pub(crate) use error_group::error_fingerprint;
#[cfg(any(test, feature = "testing"))]
pub(crate) use filter::EventFacts;
pub use filter::{EventFilter, EventState, SearchText};
pub use handler::{HandlerAddress, HandlerScope, InvalidName, Name, RuleReach};
pub use headers::{InvalidHeaders, TargetHeaders};
pub use histogram::DurationHistogram;
pub use hook::{HookKind, HookSecret, InvalidHookKind, InvalidHookSecret};
pub use idempotency::{IdempotencyKey, InvalidIdempotencyKey};
pub use json::JsonError;
pub use json::check as check_json;
pub use keep::{EndedOutcome, Keep};
pub(crate) use limit::HeldLimit;
pub use limit::{InvalidLimit, InvalidOnFull, Limit, LimitUse, LimitWait, NewLimit, OnFull, Rate};
pub use limit_name::{InvalidLimitKey, InvalidLimitName, LimitKey, LimitName};
pub use log::stable_hash;
pub use log::{
    AppendCondition, Appended, Category, EventSequencePartitioner, EventSource, InvalidCondition,
    InvalidLogName, InvalidSource, LogEvent, LogEventError, LogPage, NewLogEvent, PageLimit, Partition,
    SourceList, StreamAppend, StreamId, StreamName,
};
pub use metadata::{InvalidMetadata, Metadata, Traceparent};
pub use object::{InvalidObjectKey, Lane, Link, ObjectKey, Place, Turn};
pub use operation::{NewOperation, Operation, OperationId, OperationKind, OperationPreview, OperationState};
pub use options::{EventOptions, InvalidOptions};
pub use own::{OwnDeployment, OwnTarget};
pub(crate) use pull::CANCEL_GRACE;
pub use pull::{InvalidLeaseToken, LeaseToken, PullPolicy};
pub use queue::{CopyOf, InvalidPattern, QueuePattern};
pub(crate) use queue::{QueuePatterns, target_of_queue};
pub use quota::{InvalidQuota, Quota, QuotaExceeded};
pub use schedule::{Cause, Claim, InvalidTiming, RuleKind, Schedule, Timing};
pub use sealed::SealError;
pub use sealed::{InvalidSecretKeys, NewSecretKey, SecretKeys};
pub(crate) use sealed::{OpenError, SealedSecret};
pub use spelled::Spelled;
pub use spread::spread;
pub(crate) use tag::TAGS_MAX;
pub use tag::{InvalidTag, Tag};
pub use target::{
    InvalidSecret, InvalidTargetUrl, NoSecret, Secret, Secrets, Target, TargetPolicy, TargetUrl,
};
pub use unique::{InvalidUnique, OnConflict, Unique, UniqueOutcome};
pub use value_condition::{InvalidFilter, ValueCondition};
pub use waiting_max::WaitingMaxReached;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A moment, on the database's clock unless stated otherwise.
pub type Timestamp = chrono::DateTime<chrono::Utc>;

/// Whether a moment can be stored in a row: in the years 1 to 9999, up to the end of the last
/// second. A leap second counts as the second after it, as it does when it is written.
pub(crate) fn is_storable(moment: Timestamp) -> bool {
    const FIRST_S: i64 = -62_135_596_800;
    const END_S: i64 = 253_402_300_800;
    let whole_s = moment.timestamp() + i64::from(moment.timestamp_subsec_nanos() / 1_000_000_000);
    (FIRST_S..END_S).contains(&whole_s)
}

/// A tenant. Nothing crosses canvases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CanvasId(pub Uuid);

impl CanvasId {
    /// The canvas of deployments that have only one.
    pub const DEFAULT: Self = Self(Uuid::nil());
    /// The reserved canvas on which the HTTP targets of queues are registered: no tenant has it,
    /// and no request may name it.
    pub const OF_QUEUES: Self = Self(Uuid::max());
    /// The canvas of the rules that stop everything.
    pub(crate) const OF_ALL: Self = Self::OF_QUEUES;
    /// The canvas on which signals between processes are broadcast.
    pub(crate) const OF_SIGNALS: Self = Self::OF_QUEUES;

    /// Whether the canvas is reserved: tenants can't have it.
    #[doc(hidden)]
    pub fn is_reserved(self) -> bool {
        self == Self::OF_QUEUES
    }
}

impl Default for CanvasId {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// An event's own id; not the id of a Pub/Sub message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventId(pub Uuid);

impl EventId {
    /// A new id, ordered by time (uuid version 7).
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Default for EventId {
    fn default() -> Self {
        Self::new()
    }
}

displayed_as_uuid!(CanvasId, EventId);

/// The message "now would be a good time to look at this event". Beside that it says only whether
/// the event is urgent, which decides in what order a worker looks. It may be lost, late,
/// duplicated, reordered or forged.
///
/// ```
/// use wakeq::notify::Notification;
/// use wakeq::{CanvasId, EventId};
///
/// let notification = Notification::new(EventId::new(), CanvasId(Default::default()));
/// assert_eq!(Notification::parse(&notification.body()).unwrap(), notification);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Notification {
    /// The event to look at.
    pub id: EventId,
    /// The canvas it belongs to.
    #[serde(rename = "canvasID")]
    pub canvas: CanvasId,
    /// Whether a worker is to look at it before others that are not urgent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub urgent: bool,
}

impl Notification {
    /// A notification of an event that is not urgent.
    pub const fn new(id: EventId, canvas: CanvasId) -> Self {
        Self { id, canvas, urgent: false }
    }

    /// The same, urgent or not.
    ///
    /// ```
    /// use wakeq::notify::Notification;
    /// use wakeq::{CanvasId, EventId};
    ///
    /// let notification = Notification::new(EventId::new(), CanvasId::DEFAULT).urgent_if(true);
    /// assert!(notification.urgent);
    /// assert_eq!(Notification::parse(&notification.body()).unwrap(), notification);
    /// ```
    pub const fn urgent_if(self, urgent: bool) -> Self {
        Self { urgent, ..self }
    }

    /// The message body, `{"id":"…","canvasID":"…"}`, and with `"urgent":true` if it is urgent.
    pub fn body(&self) -> Vec<u8> {
        let urgent = if self.urgent { r#","urgent":true"# } else { "" };
        format!(r#"{{"id":"{}","canvasID":"{}"{urgent}}}"#, self.id, self.canvas).into_bytes()
    }

    /// Parses a message body: a JSON object with both ids. Other fields are ignored, so publishers
    /// may add their own.
    pub fn parse(body: &[u8]) -> Result<Self, MalformedNotification> {
        serde_json::from_slice(body).map_err(|source| MalformedNotification { length: body.len(), source })
    }
}

/// A message that is not a notification. It is acknowledged and counted, and affects no other.
#[derive(Debug, thiserror::Error)]
#[error("a message of {length} bytes is not a notification")]
pub struct MalformedNotification {
    /// Length of the body in bytes; the body itself is not kept.
    pub length: usize,
    source: serde_json::Error,
}
