//! Pulled handlers, and their leased events.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::emit::wire::OptionsJson;
use crate::resources::events::wire::checkpoint::{CheckpointJson, even_null};
use crate::resources::handlers::wire::RuleKind;
use crate::resources::objects::wire::PlaceJson;
use crate::resources::pulls::wire::{InvalidPull, LeaseRequest, Pull};
use crate::resources::wire::wire_from;
use wakeq::events::EventOptions;
use wakeq::queues::LeaseToken;

/// A handler whose events programs lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = PulledHandler)]
pub(crate) struct PulledHandlerJson {
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "send-email")]
    pub(crate) name: String,
    pub(crate) policy: Pull,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) created_by: String,
    /// When it was last changed.
    pub(crate) updated_at: DateTime<Utc>,
    pub(crate) updated_by: String,
}

/// The result of registering a pulled handler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PutPulledAnswer {
    /// Whether it was not pulled before.
    pub(crate) new: bool,
    /// The handler as it is now.
    pub(crate) handler: PulledHandlerJson,
    /// The kind of the rule that still holds the handler.
    pub(crate) still: Option<RuleKind>,
}

/// How many events to lease, for how long, how long to wait for them, and who leases them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LeaseEventsRequest {
    /// Maximum number of events.
    #[schema(minimum = 1, maximum = 100, default = 1)]
    pub(crate) max: u32,
    /// Length of the lease, in seconds.
    #[schema(minimum = 1, maximum = 3600, default = 60)]
    pub(crate) lease_s: f64,
    /// How long to wait for them, in seconds.
    #[schema(minimum = 0, maximum = 20, default = 0)]
    pub(crate) wait_s: f64,
    /// The name of the program, any that it likes to have. It is shown with the events while they
    /// are leased and in their history, and the program is listed under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "mailer-6d4cf-x7k2p-31")]
    pub(crate) worker: Option<String>,
}

/// The leased events.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct LeasedEvents {
    /// The events in the order of their due times; empty if there are none to lease.
    #[schema(max_items = 100)]
    pub(crate) events: Vec<LeasedEventJson>,
}

/// A leased event: no one else receives it until its lease ends.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = LeasedEvent)]
pub(crate) struct LeasedEventJson {
    /// Its id, which can serve as a key for effects that must not happen twice.
    pub(crate) id: Uuid,
    /// The token that extends, completes and releases the event.
    #[schema(pattern = "^[0-9a-f]{40}$")]
    pub(crate) lease: String,
    /// When the lease ends.
    pub(crate) lease_until: DateTime<Utc>,
    /// The number of this attempt. Expired leases are not counted.
    #[schema(minimum = 1)]
    pub(crate) attempt: u32,
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "send-email")]
    pub(crate) name: String,
    #[schema(example = "_")]
    pub(crate) modifier: String,
    /// The value that was emitted, verbatim.
    #[schema(value_type = Value)]
    pub(crate) value: Box<RawValue>,
    /// What the attempts before have left, if they have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<CheckpointJson>,
    /// What its emit asked for in place of the policy, with its tags. The program itself sees to
    /// the timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) options: Option<OptionsJson>,
    /// The batch that it is a member of; omitted if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "import:42")]
    pub(crate) batch: Option<String>,
    /// The event's object, and its link there, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<PlaceJson>,
    /// The W3C trace context of the emit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
    pub(crate) emitted_at: DateTime<Utc>,
    /// When the event was due.
    pub(crate) due_at: DateTime<Utc>,
}

/// The lease under which to complete an event, and what came of it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteEventRequest {
    /// The token of the lease.
    pub(crate) lease: String,
    /// The result, at most 64 KiB of JSON. It is dropped unless the event is kept.
    #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, example = json!({"receipt": 7}))]
    pub(crate) result: Option<Box<RawValue>>,
}

/// When the lease of an event ends.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ExtendedEvent {
    pub(crate) lease_until: DateTime<Utc>,
    /// Whether somebody has cancelled the event: its program should stop.
    pub(crate) cancelled: bool,
}

wire_from! { wakeq::targets::PulledHandler => PulledHandlerJson, |handler| {
    created_at, created_by, updated_at, updated_by;
    module: handler.scope.module.to_string(),
    name: handler.scope.name.to_string(),
    policy: handler.policy.into(),
} }

impl Default for LeaseEventsRequest {
    fn default() -> Self {
        LeaseRequest::default().into()
    }
}

impl From<LeaseRequest> for LeaseEventsRequest {
    fn from(request: LeaseRequest) -> Self {
        let LeaseRequest { max, lease_s, wait_s } = request;
        Self { max, lease_s, wait_s, worker: None }
    }
}

impl LeaseEventsRequest {
    /// The length of the lease, and how long to wait for events.
    pub(crate) fn read(&self) -> Result<(Duration, Duration), InvalidPull> {
        LeaseRequest { max: self.max, lease_s: self.lease_s, wait_s: self.wait_s }.read()
    }
}

impl From<wakeq::targets::PutPulledResult> for PutPulledAnswer {
    fn from(registered: wakeq::targets::PutPulledResult) -> Self {
        let wakeq::targets::PutPulledResult { new, handler, still } = registered;
        Self { new, handler: handler.into(), still: still.map(RuleKind::from) }
    }
}

impl LeasedEvents {
    /// All events with their values, which were validated when they were emitted.
    pub(crate) fn of(events: Vec<wakeq::targets::LeasedEvent>) -> Result<Self, serde_json::Error> {
        Ok(Self { events: events.into_iter().map(LeasedEventJson::of).collect::<Result<_, _>>()? })
    }
}

impl LeasedEventJson {
    fn of(event: wakeq::targets::LeasedEvent) -> Result<Self, serde_json::Error> {
        let (scope, options) = (event.address.scope, event.options.as_deref());
        Ok(Self {
            id: event.id.0,
            lease: event.lease.reveal().to_owned(),
            lease_until: event.lease_until,
            attempt: event.attempt,
            module: scope.module.to_string(),
            name: scope.name.to_string(),
            modifier: event.address.modifier.to_string(),
            value: RawValue::from_string(event.value)?,
            checkpoint: event.checkpoint.map(|left| CheckpointJson::of(left, true)),
            options: options.and_then(OptionsJson::of_event),
            batch: options.and_then(EventOptions::batch).map(ToString::to_string),
            place: event.place.map(PlaceJson::from),
            traceparent: event.metadata.traceparent.map(|trace| trace.to_string()),
            emitted_at: event.emitted_at,
            due_at: event.due_at,
        })
    }
}

impl From<wakeq::targets::ExtendedLease> for ExtendedEvent {
    fn from(extended: wakeq::targets::ExtendedLease) -> Self {
        Self { lease_until: extended.until, cancelled: extended.cancelled }
    }
}

impl CompleteEventRequest {
    pub(crate) fn read(&self) -> Result<LeaseToken, InvalidPull> {
        Ok(self.lease.parse()?)
    }
}
