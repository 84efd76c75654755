//! The contents of requests and answers. Fields that a newer service adds are ignored.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{Error, EventOptions, Outcome, Rule, Unique};

/// An event to be emitted.
///
/// ```
/// # fn example() -> Result<(), wakeq_client::Error> {
/// use std::time::Duration;
/// use wakeq_client::NewEvent;
///
/// let event = NewEvent::new("send-email", &["ada@example.com"])?
///     .on("user:1")
///     .delay(Duration::from_secs(60));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct NewEvent {
    name: String,
    value: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modifier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_until: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    only_queues: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique: Option<Unique>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<EventOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<String>,
}

impl NewEvent {
    /// An event for the handler with this name, in the module `WORKER`.
    ///
    /// Errors: [`Error::Invalid`] for a value that is not JSON, such as a map with other keys than
    /// strings.
    pub fn new(name: &str, value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let value = serde_json::value::to_raw_value(value);
        let value = value.map_err(|error| Error::Invalid(format!("the value can't be written: {error}")))?;
        Ok(Self {
            name: name.to_owned(),
            value,
            module: None,
            modifier: None,
            id: None,
            delay_until: None,
            delay_s: None,
            object: None,
            only_queues: false,
            unique: None,
            options: None,
            batch: None,
        })
    }

    /// Sets the handler's module.
    pub fn module(self, module: &str) -> Self {
        Self { module: Some(module.to_owned()), ..self }
    }

    /// Sets the handler's modifier. Default `_`.
    pub fn modifier(self, modifier: &str) -> Self {
        Self { modifier: Some(modifier.to_owned()), ..self }
    }

    /// Sets an id of your choice, unique on the canvas: emitting it again within 7 days adds
    /// nothing. The event's own id is in the answer.
    pub fn id(self, id: Uuid) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Sets the time before which the event does not run.
    pub fn at(self, moment: DateTime<Utc>) -> Self {
        Self { delay_until: Some(moment), delay_s: None, ..self }
    }

    /// Sets how long the event does not run, on the database's clock.
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay_s: Some(delay.as_secs_f64()), delay_until: None, ..self }
    }

    /// Sets the object: the event runs after all earlier ones on it for the same handler.
    pub fn on(self, object: &str) -> Self {
        Self { object: Some(object.to_owned()), ..self }
    }

    /// Only the registered queues that match receive it.
    pub fn only_to_queues(self) -> Self {
        Self { only_queues: true, ..self }
    }

    /// Gives the event a unique key: of the events for its handler, at most one has the key at a
    /// time. [`Emitted::outcome`] says what became of an event that has it already.
    pub fn unique(self, unique: Unique) -> Self {
        Self { unique: Some(unique), ..self }
    }

    /// Makes the event a member of a batch, which has to be open:
    /// [`Client::open_batch`](crate::Client::open_batch).
    pub fn batch(self, batch: &str) -> Self {
        Self { batch: Some(batch.to_owned()), ..self }
    }

    /// Sets what the event asks for in place of its handler's policy.
    pub fn options(self, options: EventOptions) -> Self {
        Self { options: Some(options), ..self }
    }
}

/// An emitted event, whose row is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Emitted {
    /// The event's id; if its unique key was taken, that of the event that has the key.
    pub id: Uuid,
    /// Whether the chosen id had been emitted before, so that nothing was added.
    pub duplicate: bool,
    /// Number of registered queues that received a copy.
    #[serde(default)]
    pub copies: u32,
    /// What was done, if the event has a unique key.
    pub outcome: Option<Outcome>,
    /// When the event is due now, if it was postponed.
    pub due: Option<DateTime<Utc>>,
}

/// What an event waits for, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventState {
    /// Due, and free to run.
    Ready,
    /// Waiting for an earlier event of its object to end.
    Behind,
    /// Its object is halted by a dead event.
    Halted,
    /// Its canvas receives nothing from the queue now.
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
    /// Completed, cancelled or purged; known because its chosen id is remembered.
    Gone,
    /// One that this version does not know.
    #[serde(other)]
    Other,
}

/// An event, and why it is not running.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct EventDetail {
    /// The event's id.
    pub id: Uuid,
    /// What it waits for.
    pub state: EventState,
    /// What happens next, as a sentence.
    pub next: String,
    /// Since when it has been in this state.
    pub since: Option<DateTime<Utc>>,
    /// Until when it stays in this state, if known.
    pub until: Option<DateTime<Utc>>,
    /// The handler's module.
    pub module: Option<String>,
    /// The handler's name.
    pub name: Option<String>,
    /// The handler's modifier.
    pub modifier: Option<String>,
    /// When it was emitted.
    pub enqueued_at: DateTime<Utc>,
    /// When it is due.
    pub delay_until: Option<DateTime<Utc>>,
    /// The rule that holds it.
    pub rule: Option<Rule>,
    /// The limit that it waits for: a place of it, or a start that its rate allows.
    pub limit: Option<LimitWait>,
    /// Retries so far: failed attempts that another one follows.
    pub retries: i32,
    /// Claims that were lost because a worker died or stalled.
    pub losses: i32,
    /// Who has cancelled it while it ran, such as `key:billing`.
    pub cancelled_by: Option<String>,
    /// The last error of its handler.
    pub last_error: Option<String>,
    /// Its unique key, if it has one.
    pub unique_key: Option<String>,
    /// The batch that it is a member of.
    pub batch: Option<String>,
    /// What its emit asked for in place of its handler's policy.
    pub options: Option<EventOptions>,
    /// What its attempts have left to the next one, if they have; its value only of
    /// [`Client::event`](crate::Client::event).
    pub checkpoint: Option<Checkpoint>,
    /// The value that was emitted, as JSON; only of [`Client::event`](crate::Client::event).
    pub value: Option<Box<RawValue>>,
    /// What its handler returned, as JSON, if it has ended and is kept; only of
    /// [`Client::event`](crate::Client::event).
    pub result: Option<Box<RawValue>>,
    /// Until when it is kept, if it has ended.
    pub kept_until: Option<DateTime<Utc>>,
    /// The last 100 attempts that failed or were too early.
    #[serde(default)]
    pub attempts: Vec<crate::Attempt>,
}

/// The limit that an event waits for: a place of it, or a start that its rate allows.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct LimitWait {
    /// The counted name: `canvas`, `handler:MODULE/NAME`, or a key that the emit named.
    pub name: String,
    /// Whether it counts the events of all canvases together.
    pub all_canvases: bool,
    /// Since when the event waits.
    pub since: DateTime<Utc>,
    /// The first of the events on this canvas that hold its places.
    pub holders: Vec<Uuid>,
    /// When the rate of the limit lets the event start, unless it may start now.
    pub next_start: Option<DateTime<Utc>>,
}

/// What the attempts of an event have left to the next one.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Size of the value, in bytes of JSON.
    pub bytes: u32,
    /// When it was stored.
    pub stored_at: DateTime<Utc>,
    /// The value, as JSON.
    pub value: Option<Box<RawValue>>,
}

/// The event that was cancelled.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Cancelled {
    /// The event's id.
    pub id: Uuid,
    /// What happens next, as a sentence, if its handler is running; `None` if it was deleted.
    pub next: Option<String>,
}

/// Which time statistics are of, and in which steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatisticsRange {
    /// Its beginning. Default: a day before the end.
    pub from: Option<DateTime<Utc>>,
    /// Its end. Default: now.
    pub to: Option<DateTime<Utc>>,
    /// The length of a step in seconds, which are whole minutes, and whole hours if the time begins
    /// more than a day ago. Default: a minute for the last day, else an hour.
    pub step_s: Option<u64>,
}

/// What happened in a time. All columns have an element for each step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Statistics {
    /// The length of a step, in seconds.
    pub step_s: u64,
    /// When each step begins.
    pub at: Vec<DateTime<Utc>>,
    /// Events that were emitted, by crons too.
    pub emitted: Vec<u64>,
    /// Events that completed, also with an error value.
    pub completed: Vec<u64>,
    /// Attempts that failed.
    pub failed: Vec<u64>,
    /// Attempts that failed and will be retried.
    pub retried: Vec<u64>,
    /// Events that became dead events.
    pub dead: Vec<u64>,
    /// How long events had been due when attempts at them began.
    pub wait: StatisticsTimes,
    /// How long attempts took.
    pub run: StatisticsTimes,
}

/// How long something took in each step, in seconds; `None` without attempts. Quantiles are
/// estimates.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct StatisticsTimes {
    /// Number of attempts.
    pub count: Vec<u64>,
    /// The mean.
    pub mean_s: Vec<Option<f64>>,
    /// The median.
    pub p50_s: Vec<Option<f64>>,
    /// The 95th percentile.
    pub p95_s: Vec<Option<f64>>,
    /// The 99th percentile.
    pub p99_s: Vec<Option<f64>>,
}

/// A page of a list.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Page<T> {
    /// Its items, possibly fewer than asked for although more follow.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` on the last one.
    pub next_cursor: Option<String>,
}

/// A dead event, which is no longer retried.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct DeadEvent {
    /// Its id, which a redrive keeps.
    pub id: Uuid,
    /// The handler's module.
    pub module: String,
    /// The handler's name.
    pub name: String,
    /// The handler's modifier.
    pub modifier: String,
    /// Why it died: `retries`, `rejected` if its handler said that no retry can help, `expired` if
    /// its emit wanted no later attempt, or `poison` if its workers died or stalled too often.
    pub cause: String,
    /// Failed attempts before the last one.
    pub retries: i32,
    /// Claims that were lost because a worker died or stalled.
    pub losses: i32,
    /// The last error of its handler.
    pub last_error: Option<String>,
    /// The group of those that died of the same error; `None` from a server that has none.
    #[serde(default)]
    pub error_group: Option<Uuid>,
    /// When it was emitted.
    pub enqueued_at: DateTime<Utc>,
    /// When it died.
    pub died_at: DateTime<Utc>,
    /// Its tags.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// Selects dead events, which are those that match all fields that are set.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeadFilter {
    /// The handler's module; requires `name`. Default `WORKER`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The handler's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Died at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<DateTime<Utc>>,
    /// Died before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<DateTime<Utc>>,
}

/// The result of a redrive.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Redriven {
    /// Number of events that were emitted again, at most 10,000.
    pub redriven: u64,
    /// Whether there are more: repeat it with `before`.
    pub more: bool,
    /// Before which time all of these had died.
    pub before: Option<DateTime<Utc>>,
}

/// The result of a deletion of dead events.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Deleted {
    /// Number of events that were deleted, at most 10,000.
    pub deleted: u64,
    /// Whether there are more: repeat it with `before`.
    pub more: bool,
    /// Before which time all of these had died.
    pub before: Option<DateTime<Utc>>,
}
