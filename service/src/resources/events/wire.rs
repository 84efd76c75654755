//! Events, singly and in lists.

pub(crate) mod attempt;
pub(crate) mod checkpoint;
pub(crate) mod due;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::emit::wire::OptionsJson;
use crate::resources::events::wire::attempt::AttemptJson;
use crate::resources::events::wire::checkpoint::CheckpointJson;
use crate::resources::handlers::wire::RuleJson;
use crate::resources::limits::wire::LimitWaitJson;
use crate::resources::objects::wire::{LinkJson, PlaceJson};
use crate::resources::queues::wire::Copied;
use crate::resources::workers::wire::WorkerProcessJson;
use wakeq::EventId;
use wakeq::control::{CancelResult, EventCount, Explanation, LiveEvent, RuleKind};
use wakeq::events::{EndedEvent, EndedOutcome, EventOptions};
use wakeq::machine::CheckResult;

/// An event in a list.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = EventSummary)]
pub(crate) struct EventSummaryJson {
    pub(crate) id: Uuid,
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "send-email")]
    pub(crate) name: String,
    #[schema(example = "_")]
    pub(crate) modifier: String,
    pub(crate) state: EventState,
    /// When the event was emitted.
    pub(crate) enqueued_at: DateTime<Utc>,
    /// When the event is due.
    pub(crate) delay_until: DateTime<Utc>,
    /// Retries so far: failed attempts that another one follows.
    #[schema(minimum = 0)]
    pub(crate) retries: i32,
    /// Claims that were lost because a worker died or stalled; for a pulled copy, leases that
    /// expired.
    #[schema(minimum = 0)]
    pub(crate) losses: i32,
    /// The worker that has claimed the event; omitted for a copy that is leased over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "orders-6d4cf-x7k2p-1f0c5a9e")]
    pub(crate) worker: Option<String>,
    /// The event's object, and its link there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<PlaceJson>,
    /// If it is a copy in a registered queue: the queue, and the event it was copied from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copy_of: Option<Copied>,
    /// The event's tags; omitted if it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["customer:7"]))]
    pub(crate) tags: Vec<String>,
}

/// What an event waits for, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventState {
    /// Due, and free to run.
    Ready,
    /// Waiting for an earlier event of its object to end.
    Behind,
    /// Its object is halted by a dead event.
    Halted,
    /// Its canvas receives nothing from the queue now: it is paused there, or at its in-flight
    /// limit.
    Held,
    /// Not due yet.
    Delayed,
    /// Running on a worker.
    Running,
    /// Due, and held by a pause.
    Paused,
    /// Due, and held by a block.
    Blocked,
    /// Due, and waiting for a place of a limit.
    Limited,
    /// No longer retried, and kept.
    Dead,
    /// Completed, and kept.
    Completed,
    /// Completed with an error value, and kept.
    Failed,
    /// Cancelled, and kept.
    Cancelled,
    /// Completed, cancelled or purged; known because its chosen id is remembered, or because it is
    /// the last one of its cron.
    Gone,
}

/// How many events meet a filter.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = EventCount)]
pub(crate) struct EventCountJson {
    /// How many of the examined events meet the filter.
    #[schema(minimum = 0)]
    pub(crate) count: u64,
    /// How many events were examined.
    #[schema(minimum = 0)]
    pub(crate) looked_at: u64,
    /// Where the next request goes on. Null if all were examined.
    pub(crate) next_cursor: Option<String>,
}

impl From<EventCount> for EventCountJson {
    fn from(counted: EventCount) -> Self {
        Self {
            count: counted.count,
            looked_at: counted.looked_at,
            next_cursor: counted.next.map(|cursor| cursor.to_string()),
        }
    }
}

/// The tags that an event gets in place of its own.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetTags {
    /// Up to ten tags of 1 to 100 printable ASCII characters, without commas.
    #[schema(max_items = 10, example = json!(["customer:7"]))]
    pub(crate) tags: Vec<String>,
}

/// An event, and why it is not running.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventDetail {
    pub(crate) id: Uuid,
    pub(crate) state: EventState,
    /// The state in the terms of the state machine.
    #[schema(example = "RulePaused")]
    pub(crate) outcome: Option<String>,
    /// Why the event died: `retries` (its handler failed too often), `rejected` (its handler said
    /// that no retry can help), `expired` (the moment had passed after which its emit wanted no
    /// attempt to start) or `poison` (its workers died or stalled too often while they ran it or,
    /// for a pulled copy, its leases expired too often).
    pub(crate) cause: Option<String>,
    /// Since when the event has been in this state.
    pub(crate) since: Option<DateTime<Utc>>,
    /// Until when the event stays in this state, if known.
    pub(crate) until: Option<DateTime<Utc>>,
    /// What happens next, as a sentence.
    #[schema(example = "is woken when the handler is unpaused")]
    pub(crate) next: String,
    #[schema(example = "WORKER")]
    pub(crate) module: Option<String>,
    #[schema(example = "send-email")]
    pub(crate) name: Option<String>,
    #[schema(example = "_")]
    pub(crate) modifier: Option<String>,
    /// When the event was emitted.
    pub(crate) enqueued_at: DateTime<Utc>,
    /// When the event is due.
    pub(crate) delay_until: Option<DateTime<Utc>>,
    /// When its notification is published again if nothing else happens; null while a rule holds
    /// the event.
    pub(crate) notify_at: Option<DateTime<Utc>>,
    /// The rule that holds the event.
    pub(crate) rule: Option<RuleJson>,
    /// The limit that the event waits for: a place of it, or a start that its rate allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<LimitWaitJson>,
    /// Retries so far: failed attempts that another one follows.
    #[schema(minimum = 0)]
    pub(crate) retries: i32,
    /// Claims that were lost because a worker died or stalled; for a pulled copy, leases that
    /// expired.
    #[schema(minimum = 0)]
    pub(crate) losses: i32,
    /// The worker that has claimed the event; omitted for a copy that is leased over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "orders-6d4cf-x7k2p-1f0c5a9e")]
    pub(crate) worker: Option<String>,
    /// The process of that worker; omitted if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) worker_process: Option<WorkerProcessJson>,
    /// When the attempt that ended the event began, and how long it took in seconds; omitted unless
    /// the event has ended and is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) took_s: Option<f64>,
    /// Until when the event is kept, if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept_until: Option<DateTime<Utc>>,
    /// The last 100 attempts that failed or were too early, in their order. Those whose numbers are
    /// missing completed the event, lost their worker, were shut down, or are no longer kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) attempts: Vec<AttemptJson>,
    /// Who has cancelled the event; omitted if nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "key:ada")]
    pub(crate) cancelled_by: Option<String>,
    /// The last error of its handler.
    pub(crate) last_error: Option<String>,
    /// If the event is dead: the group of those that died of the same error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error_group: Option<Uuid>,
    /// Since when a worker has known no handler for the event.
    pub(crate) unknown_since: Option<DateTime<Utc>>,
    /// The URL of its handler, if that is an HTTP target.
    #[schema(example = "https://mail.example/events")]
    pub(crate) target: Option<String>,
    /// The W3C trace context of the emit.
    pub(crate) traceparent: Option<String>,
    /// The event's object, and its link there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<PlaceJson>,
    /// The event's unique key, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "invoice:42")]
    pub(crate) unique_key: Option<String>,
    /// The batch that it is a member of; omitted if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "import:42")]
    pub(crate) batch: Option<String>,
    /// What its emit asked for in place of its handler's policy; omitted if that is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) options: Option<OptionsJson>,
    /// If it is a copy in a registered queue: the queue, and the event it was copied from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copy_of: Option<Copied>,
    /// The first remaining event of its object for the same handler, if it waits for that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first: Option<Uuid>,
    /// The link of that event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_link: Option<LinkJson>,
    /// What its attempts have left to the next one, if they have; the value only with `view=full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<CheckpointJson>,
    /// The value that was emitted, verbatim; only with `view=full`.
    #[serde(default, deserialize_with = "checkpoint::even_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) value: Option<Box<RawValue>>,
    /// What its handler returned, if the event has ended and is kept; only with `view=full`.
    #[serde(default, deserialize_with = "checkpoint::even_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) result: Option<Box<RawValue>>,
}

/// The event that a request acted on.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct TheEvent {
    pub(crate) id: Uuid,
}

/// The event that was cancelled.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CancelledEvent {
    pub(crate) id: Uuid,
    /// If the event is running: what happens next, as a sentence. Omitted if it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "its handler is told to stop, and the event is deleted when that has ended")]
    pub(crate) next: Option<String>,
}

impl From<CancelResult> for CancelledEvent {
    fn from(cancelled: CancelResult) -> Self {
        let next = "its handler is told to stop, and cut off after a grace of seconds; the event is deleted \
                    then, unless its handler completes it before";
        Self { id: cancelled.id.0, next: cancelled.running.then(|| next.to_owned()) }
    }
}

impl From<EndedOutcome> for EventState {
    fn from(outcome: EndedOutcome) -> Self {
        match outcome {
            EndedOutcome::Completed => Self::Completed,
            EndedOutcome::Failed => Self::Failed,
            EndedOutcome::Cancelled => Self::Cancelled,
        }
    }
}

impl From<CheckResult> for EventState {
    fn from(state: CheckResult) -> Self {
        match state {
            CheckResult::Ready => Self::Ready,
            CheckResult::Behind => Self::Behind,
            CheckResult::Halted => Self::Halted,
            CheckResult::FacetHeld => Self::Held,
            CheckResult::Limited => Self::Limited,
            CheckResult::Delayed => Self::Delayed,
            CheckResult::Running => Self::Running,
            CheckResult::Held(RuleKind::Pause) => Self::Paused,
            CheckResult::Held(RuleKind::Block) => Self::Blocked,
        }
    }
}

impl From<wakeq::control::EventSummary> for EventSummaryJson {
    fn from(event: wakeq::control::EventSummary) -> Self {
        Self {
            id: event.id.0,
            module: event.address.scope.module.to_string(),
            name: event.address.scope.name.to_string(),
            modifier: event.address.modifier.to_string(),
            state: event.state.into(),
            enqueued_at: event.enqueued_at,
            delay_until: event.delay_until,
            retries: event.retries,
            losses: event.losses,
            worker: event.worker.as_ref().map(ToString::to_string),
            place: event.place.map(PlaceJson::from),
            copy_of: event.copy_of.map(Copied::from),
            tags: event.tags.iter().map(ToString::to_string).collect(),
        }
    }
}

impl EventDetail {
    /// The description of an event, without its value; `None` if it does not exist.
    pub(crate) fn of(explanation: Explanation) -> Option<Self> {
        match explanation {
            Explanation::Live(live) => Some(Self::of_live(*live)),
            Explanation::Dead(dead) => Some(Self::of_dead(*dead)),
            Explanation::Ended(ended) => Some(Self::of_ended(*ended)),
            Explanation::Gone { id, emitted_at } => Some(Self::of_gone(id, emitted_at)),
            Explanation::Unknown => None,
        }
    }

    /// Whether the event has not ended and is not running.
    pub(crate) fn is_waiting(&self) -> bool {
        match self.state {
            EventState::Ready
            | EventState::Behind
            | EventState::Halted
            | EventState::Held
            | EventState::Limited
            | EventState::Delayed
            | EventState::Paused
            | EventState::Blocked => true,
            EventState::Running
            | EventState::Dead
            | EventState::Completed
            | EventState::Failed
            | EventState::Cancelled
            | EventState::Gone => false,
        }
    }

    fn of_live(live: LiveEvent) -> Self {
        let next = live.next().to_owned();
        Self {
            state: live.state.into(),
            outcome: Some(live.state.outcome().to_string()),
            since: Some(live.since),
            until: live.until,
            next,
            module: Some(live.address.scope.module.to_string()),
            name: Some(live.address.scope.name.to_string()),
            modifier: Some(live.address.modifier.to_string()),
            delay_until: Some(live.delay_until),
            notify_at: live.notify_at,
            rule: live.rule.map(RuleJson::from),
            limit: live.limited.map(LimitWaitJson::from),
            retries: live.retries,
            losses: live.losses,
            worker: live.worker.as_ref().map(ToString::to_string),
            worker_process: live.worker_process.map(WorkerProcessJson::from),
            cancelled_by: live.cancelled_by,
            last_error: live.last_error,
            unknown_since: live.unknown_since,
            target: live.target,
            traceparent: live.metadata.traceparent.map(|trace| trace.to_string()),
            place: live.place.map(PlaceJson::from),
            unique_key: live.unique_key,
            batch: batch_of(live.options.as_deref()),
            options: live.options.as_deref().and_then(OptionsJson::of_event),
            copy_of: live.copy_of.map(Copied::from),
            first: live.first.map(|(id, _)| id.0),
            first_link: live.first.map(|(_, link)| link.into()),
            ..Self::of_gone(live.id, live.enqueued_at)
        }
    }

    fn of_dead(dead: wakeq::control::DeadEvent) -> Self {
        Self {
            state: EventState::Dead,
            cause: Some(dead.cause),
            since: Some(dead.died_at),
            next: if dead.halts {
                "its object is halted by it: a redrive returns it to its place, a skip lets the \
                 object's other events continue"
            } else {
                "is kept for a while; a redrive brings it back"
            }
            .to_owned(),
            module: Some(dead.address.scope.module.to_string()),
            name: Some(dead.address.scope.name.to_string()),
            modifier: Some(dead.address.modifier.to_string()),
            retries: dead.retries,
            losses: dead.losses,
            last_error: dead.last_error,
            error_group: Some(dead.error_group.0),
            traceparent: dead.metadata.traceparent.map(|trace| trace.to_string()),
            place: dead.place.map(PlaceJson::from),
            batch: batch_of(dead.options.as_deref()),
            options: dead.options.as_deref().and_then(OptionsJson::of_event),
            copy_of: dead.copy_of.map(Copied::from),
            ..Self::of_gone(dead.id, dead.enqueued_at)
        }
    }

    fn of_ended(ended: EndedEvent) -> Self {
        Self {
            state: ended.outcome.into(),
            since: Some(ended.ended_at),
            next: "has ended, and is kept for a while".to_owned(),
            module: Some(ended.address.scope.module.to_string()),
            name: Some(ended.address.scope.name.to_string()),
            modifier: Some(ended.address.modifier.to_string()),
            delay_until: Some(ended.due_at),
            retries: ended.retries,
            losses: ended.losses,
            worker: ended.worker.as_ref().map(ToString::to_string),
            started_at: ended.ran.map(|(started_at, _)| started_at),
            took_s: ended.ran.map(|(_, took)| took.as_secs_f64()),
            kept_until: Some(ended.kept_until),
            cancelled_by: ended.ended_by,
            last_error: ended.error,
            traceparent: ended.metadata.traceparent.map(|trace| trace.to_string()),
            batch: batch_of(ended.options.as_deref()),
            options: ended.options.as_deref().and_then(OptionsJson::of_event),
            place: ended.place.map(PlaceJson::from),
            ..Self::of_gone(ended.id, ended.enqueued_at)
        }
    }

    fn of_gone(id: EventId, enqueued_at: DateTime<Utc>) -> Self {
        Self {
            id: id.0,
            state: EventState::Gone,
            outcome: None,
            cause: None,
            since: None,
            until: None,
            next: "nothing: it completed, or was cancelled or purged".to_owned(),
            module: None,
            name: None,
            modifier: None,
            enqueued_at,
            delay_until: None,
            notify_at: None,
            rule: None,
            limit: None,
            retries: 0,
            losses: 0,
            worker: None,
            worker_process: None,
            started_at: None,
            took_s: None,
            kept_until: None,
            attempts: Vec::new(),
            cancelled_by: None,
            last_error: None,
            error_group: None,
            unknown_since: None,
            target: None,
            traceparent: None,
            place: None,
            unique_key: None,
            batch: None,
            options: None,
            copy_of: None,
            first: None,
            first_link: None,
            checkpoint: None,
            value: None,
            result: None,
        }
    }
}

/// The batch that an event with these options is a member of.
fn batch_of(options: Option<&EventOptions>) -> Option<String> {
    options?.batch().map(ToString::to_string)
}
