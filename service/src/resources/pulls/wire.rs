//! Copies of pulled queues: lease, extend, complete and release.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::events::wire::checkpoint::CheckpointJson;
use crate::resources::objects::wire::PlaceJson;
use crate::resources::targets::wire::OnDeath;
use crate::resources::targets::wire::keep::{KeepJson, whole_seconds_schema};
use wakeq::queues::{InvalidLeaseToken, LeaseToken, PullPolicy};

/// How copies of a pulled queue, or events of a pulled handler, that are released with an error are
/// retried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields, from = "GivenPull")]
pub(crate) struct Pull {
    /// Retries after the first failure.
    #[schema(maximum = 1000, default = 2)]
    pub(crate) retries: u32,
    /// Delay after the first failure, in seconds. Default: 300, or `delay_max_s` if shorter.
    #[schema(minimum = 0, maximum = 2_592_000, default = 300)]
    pub(crate) delay_s: f64,
    /// Multiplier of each further delay.
    #[schema(minimum = 1, maximum = 100, default = 1)]
    pub(crate) factor: u32,
    /// Maximum delay, also of one that a release requests, in seconds.
    #[schema(minimum = 0, maximum = 2_592_000, default = 86_400)]
    pub(crate) delay_max_s: f64,
    /// What happens to what comes later on an object when a copy or event of it dies.
    pub(crate) on_death: OnDeath,
    /// How long events of a pulled handler are kept after they have ended; left out of a queue.
    #[serde(skip_serializing_if = "KeepJson::is_nothing")]
    #[schema(schema_with = whole_seconds_schema)]
    pub(crate) keep_s: KeepJson<u32>,
}

/// As deserialized, with defaults for missing fields.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GivenPull {
    retries: u32,
    delay_s: Option<f64>,
    factor: u32,
    delay_max_s: f64,
    on_death: OnDeath,
    keep_s: KeepJson<u32>,
}

/// How many copies to lease, for how long, and how long to wait for them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LeaseRequest {
    /// Maximum number of copies.
    #[schema(minimum = 1, maximum = 100, default = 1)]
    pub(crate) max: u32,
    /// Length of the lease, in seconds.
    #[schema(minimum = 1, maximum = 3600, default = 60)]
    pub(crate) lease_s: f64,
    /// How long to wait for them, in seconds.
    #[schema(minimum = 0, maximum = 20, default = 0)]
    pub(crate) wait_s: f64,
}

/// The leased copies.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Leased {
    /// The copies in the order of their turns; empty if there are none to lease.
    #[schema(max_items = 100)]
    pub(crate) copies: Vec<LeasedCopyJson>,
}

/// A leased copy: no one else receives it until its lease ends.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = LeasedCopy)]
pub(crate) struct LeasedCopyJson {
    /// The copy's own id, which can serve as a key for effects that must not happen twice.
    pub(crate) id: Uuid,
    /// The token that extends, completes and releases the copy.
    #[schema(pattern = "^[0-9a-f]{40}$")]
    pub(crate) lease: String,
    /// When the lease ends.
    pub(crate) lease_until: DateTime<Utc>,
    /// The number of this attempt. Expired leases are not counted.
    #[schema(minimum = 1)]
    pub(crate) attempt: u32,
    pub(crate) canvas: Uuid,
    #[schema(example = "email_event")]
    pub(crate) module: String,
    #[schema(example = "opened_email")]
    pub(crate) name: String,
    #[schema(example = "_")]
    pub(crate) modifier: String,
    /// The value that was emitted, verbatim.
    #[schema(value_type = Value)]
    pub(crate) value: Box<RawValue>,
    /// What the attempts before have left, if they have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<CheckpointJson>,
    /// The event that was copied.
    pub(crate) origin: Uuid,
    /// The event's object, and its link there, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<PlaceJson>,
    /// The W3C trace context of the emit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
    pub(crate) emitted_at: DateTime<Utc>,
    /// When the copy was due.
    pub(crate) due_at: DateTime<Utc>,
}

/// A leased copy, without its value and the token of its lease.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Lease)]
pub(crate) struct LeaseJson {
    pub(crate) id: Uuid,
    /// When the lease ends.
    pub(crate) lease_until: DateTime<Utc>,
    /// The number of this attempt. Expired leases are not counted.
    #[schema(minimum = 1)]
    pub(crate) attempt: u32,
    pub(crate) canvas: Uuid,
    #[schema(example = "email_event")]
    pub(crate) module: String,
    #[schema(example = "opened_email")]
    pub(crate) name: String,
    #[schema(example = "_")]
    pub(crate) modifier: String,
    /// The event that was copied.
    pub(crate) origin: Uuid,
    /// The event's object, and its link there, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<PlaceJson>,
}

/// The new length of a lease.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtendRequest {
    /// The token of the lease.
    pub(crate) lease: String,
    /// Length of the lease from now, in seconds.
    #[serde(default = "usual_lease_s")]
    #[schema(minimum = 1, maximum = 3600, default = 60)]
    pub(crate) lease_s: f64,
}

/// When a lease ends.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Extended {
    pub(crate) lease_until: DateTime<Utc>,
}

/// The lease under which to complete a copy.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteRequest {
    /// The token of the lease.
    pub(crate) lease: String,
}

/// Why and for how long to release a copy or event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseRequest {
    /// The token of the lease.
    pub(crate) lease: String,
    /// The error; counts as a failed attempt. Without it nothing is counted. The first 4,000
    /// characters are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Least delay before it can be leased again, in seconds, at most the policy's `delay_max_s`.
    /// After an error the policy's delay applies if that is longer, and either is up to 20 %
    /// longer. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 2_592_000)]
    pub(crate) retry_s: Option<f64>,
    /// No retry can help: it dies now. It needs an `error`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dead: bool,
}

/// What happened to a copy or event that was released.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Released {
    /// Whether it died: it had no retries left, or none could help, and it is among the dead events
    /// of its canvas.
    pub(crate) died: bool,
    /// Delay before it can be leased again, in seconds; null if it died.
    #[schema(minimum = 0)]
    pub(crate) retry_s: Option<f64>,
}

/// Why a request about copies is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidPull {
    #[error(transparent)]
    Token(#[from] InvalidLeaseToken),
    #[error("`{0}` is not an allowed number of seconds: see /docs for the limits")]
    Seconds(&'static str),
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn usual_lease_s() -> f64 {
    60.0
}

impl Default for LeaseRequest {
    fn default() -> Self {
        Self { max: 1, lease_s: usual_lease_s(), wait_s: 0.0 }
    }
}

impl LeaseRequest {
    /// The length of the lease, and how long to wait for copies.
    pub(crate) fn read(self) -> Result<(Duration, Duration), InvalidPull> {
        Ok((seconds("lease_s", self.lease_s)?, seconds("wait_s", self.wait_s)?))
    }
}

impl ExtendRequest {
    pub(crate) fn read(&self) -> Result<(LeaseToken, Duration), InvalidPull> {
        Ok((self.lease.parse()?, seconds("lease_s", self.lease_s)?))
    }
}

impl CompleteRequest {
    pub(crate) fn read(&self) -> Result<LeaseToken, InvalidPull> {
        Ok(self.lease.parse()?)
    }
}

impl ReleaseRequest {
    pub(crate) fn read(self) -> Result<(LeaseToken, wakeq::queues::Release), InvalidPull> {
        let retry = self.retry_s.map(|retry_s| seconds("retry_s", retry_s)).transpose()?;
        Ok((self.lease.parse()?, wakeq::queues::Release { error: self.error, retry, dead: self.dead }))
    }
}

impl Pull {
    /// The policy to be stored.
    pub(crate) fn read(self) -> Result<PullPolicy, InvalidPull> {
        let Self { retries, delay_s, factor, delay_max_s, on_death, keep_s } = self;
        Ok(PullPolicy {
            retries,
            delay: seconds("delay_s", delay_s)?,
            factor,
            delay_max: seconds("delay_max_s", delay_max_s)?,
            halts: on_death == OnDeath::Halt,
            keep: keep_s.read().ok_or(InvalidPull::Seconds("keep_s"))?,
        })
    }
}

impl Default for Pull {
    fn default() -> Self {
        PullPolicy::default().into()
    }
}

impl Default for GivenPull {
    fn default() -> Self {
        let Pull { retries, delay_s: _, factor, delay_max_s, on_death, keep_s } = Pull::default();
        Self { retries, delay_s: None, factor, delay_max_s, on_death, keep_s }
    }
}

impl From<GivenPull> for Pull {
    fn from(given: GivenPull) -> Self {
        let GivenPull { retries, delay_s, factor, delay_max_s, on_death, keep_s } = given;
        let delay_s = delay_s.unwrap_or_else(|| Self::default().delay_s.min(delay_max_s));
        Self { retries, delay_s, factor, delay_max_s, on_death, keep_s }
    }
}

impl From<PullPolicy> for Pull {
    fn from(policy: PullPolicy) -> Self {
        let PullPolicy { retries, delay, factor, delay_max, halts, keep } = policy;
        let (delay_s, delay_max_s) = (delay.as_secs_f64(), delay_max.as_secs_f64());
        Self { retries, delay_s, factor, delay_max_s, on_death: halts.into(), keep_s: keep.into() }
    }
}

impl Leased {
    /// All copies with their values, which were validated when they were emitted.
    pub(crate) fn of(copies: Vec<wakeq::queues::LeasedCopy>) -> Result<Self, serde_json::Error> {
        Ok(Self { copies: copies.into_iter().map(LeasedCopyJson::of).collect::<Result<_, _>>()? })
    }
}

impl LeasedCopyJson {
    fn of(copy: wakeq::queues::LeasedCopy) -> Result<Self, serde_json::Error> {
        let scope = copy.address.scope;
        Ok(Self {
            id: copy.id.0,
            lease: copy.lease.reveal().to_owned(),
            lease_until: copy.lease_until,
            attempt: copy.attempt,
            canvas: scope.canvas.0,
            module: scope.module.to_string(),
            name: scope.name.to_string(),
            modifier: copy.address.modifier.to_string(),
            value: RawValue::from_string(copy.value)?,
            checkpoint: copy.checkpoint.map(|left| CheckpointJson::of(left, true)),
            origin: copy.origin.0,
            place: copy.place.map(PlaceJson::from),
            traceparent: copy.metadata.traceparent.map(|trace| trace.to_string()),
            emitted_at: copy.emitted_at,
            due_at: copy.due_at,
        })
    }
}

impl From<wakeq::queues::Lease> for LeaseJson {
    fn from(lease: wakeq::queues::Lease) -> Self {
        let wakeq::queues::Lease { id, lease_until, attempt, address, origin, place } = lease;
        let (scope, modifier) = (address.scope, address.modifier.to_string());
        Self {
            id: id.0,
            lease_until,
            attempt,
            canvas: scope.canvas.0,
            module: scope.module.to_string(),
            name: scope.name.to_string(),
            modifier,
            origin: origin.0,
            place: place.map(PlaceJson::from),
        }
    }
}

impl From<wakeq::queues::ReleaseResult> for Released {
    fn from(released: wakeq::queues::ReleaseResult) -> Self {
        match released {
            wakeq::queues::ReleaseResult::Again(delay) => {
                Self { died: false, retry_s: Some(delay.as_secs_f64()) }
            }
            wakeq::queues::ReleaseResult::Died => Self { died: true, retry_s: None },
        }
    }
}

/// Truncated to whole milliseconds, the precision that is stored.
fn seconds(field: &'static str, seconds: f64) -> Result<Duration, InvalidPull> {
    let read = Duration::try_from_secs_f64(seconds).map_err(|_| InvalidPull::Seconds(field))?;
    let milliseconds = u64::try_from(read.as_millis()).map_err(|_| InvalidPull::Seconds(field))?;
    Ok(Duration::from_millis(milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_fields_get_their_defaults() {
        let request: LeaseRequest = serde_json::from_str("{}").unwrap();
        let (lease, wait) = request.read().unwrap();
        assert_eq!((request.max, lease.as_secs(), wait.as_secs()), (1, 60, 0));
        let pull: Pull = serde_json::from_str(r#"{"delay_max_s": 10}"#).unwrap();
        assert_eq!((pull.retries, pull.read().unwrap().delay.as_secs()), (2, 10));
        assert!(serde_json::from_str::<Pull>(r#"{"timeout_s": 10}"#).is_err());
    }

    #[test]
    fn rejects_invalid_durations_and_lease_tokens() {
        let lease = LeaseRequest { lease_s: -1.0, ..LeaseRequest::default() };
        assert_eq!(lease.read(), Err(InvalidPull::Seconds("lease_s")));
        let complete = CompleteRequest { lease: "x".into() };
        assert_eq!(complete.read(), Err(InvalidPull::Token(InvalidLeaseToken)));
    }
}
