//! Crons: schedules that emit events.

use chrono::{DateTime, FixedOffset, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::events::wire::EventState;
use crate::resources::wire::HIDDEN;
use wakeq::EventError;
use wakeq::crons::{CronEvent, CronEventState, CronSchedule, InvalidSchedule};

/// A cron to be created or replaced.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutCron {
    /// Minute, hour, day of the month, month and weekday; with six fields, the first is seconds.
    #[schema(max_length = 256, example = "30 8 * * MON-FRI")]
    pub(crate) expression: String,
    /// The time zone of the expression, by its name in the IANA database. Default `UTC`.
    #[serde(default = "utc")]
    #[schema(max_length = 64, example = "Europe/Berlin", default = "UTC")]
    pub(crate) zone: String,
    /// The value of each event, stored verbatim; at most 64 KiB. Default null.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) value: Option<Box<RawValue>>,
    /// The handler's modifier. Default `_`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "_")]
    pub(crate) modifier: Option<String>,
    /// How to handle ticks that were missed because no process was running.
    #[serde(default)]
    pub(crate) missed: Missed,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// How to handle ticks that were missed because no process was running: `skip` them, emit the last
/// one (`once`), or emit `all` of them, at most 1,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Missed {
    #[default]
    Skip,
    Once,
    All,
}

/// A request to pause a cron. The body is optional.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseCron {
    /// Reason to show to others.
    #[schema(max_length = 1000, example = "the warehouse moves")]
    pub(crate) reason: Option<String>,
}

/// A cron: it emits an event for the handler `CRON/name` at each tick.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Cron)]
pub(crate) struct CronJson {
    #[schema(example = "report")]
    pub(crate) name: String,
    #[schema(example = "30 8 * * MON-FRI")]
    pub(crate) expression: String,
    #[schema(example = "Europe/Berlin")]
    pub(crate) zone: String,
    #[schema(example = "_")]
    pub(crate) modifier: String,
    /// The value of each event; omitted in lists, and in responses to pausing and resuming.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) value: Option<Box<RawValue>>,
    /// Says that the value is hidden, and which scope shows it; omitted if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "hidden: this needs the scope `values`")]
    pub(crate) hidden: Option<String>,
    pub(crate) missed: Missed,
    /// The pause, if the cron is paused.
    pub(crate) paused: Option<CronPauseJson>,
    /// The next ticks: five, or one in lists. Empty while the cron is paused, or if the responding
    /// release can't read the schedule.
    pub(crate) next: Vec<CronTickJson>,
    /// The last tick.
    pub(crate) last: Option<DateTime<Utc>>,
    /// The event of the last tick, and what became of it.
    pub(crate) last_event: Option<CronEventJson>,
    /// Number of events emitted for ticks, including those ahead of their ticks and excluding those
    /// that were withdrawn.
    #[schema(minimum = 0)]
    pub(crate) ticks: u64,
    #[schema(example = "key:billing")]
    pub(crate) created_by: String,
    pub(crate) created_at: DateTime<Utc>,
    /// When the cron was last replaced.
    pub(crate) changed_at: DateTime<Utc>,
}

/// The pause of a cron.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = CronPause)]
pub(crate) struct CronPauseJson {
    pub(crate) since: DateTime<Utc>,
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
}

/// A time at which a cron ticks.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = CronTick)]
pub(crate) struct CronTickJson {
    pub(crate) at: DateTime<Utc>,
    /// The time in the cron's time zone.
    #[schema(example = "2030-01-31T08:30:00+01:00")]
    pub(crate) local: DateTime<FixedOffset>,
}

/// The event of a cron's last tick, and what became of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = CronEvent)]
pub(crate) struct CronEventJson {
    pub(crate) id: Uuid,
    /// `gone` if the event is kept nowhere: it completed, or was cancelled, purged or deleted.
    pub(crate) state: EventState,
    /// Retries so far: failed attempts that another one follows. 0 if the event is gone.
    #[schema(minimum = 0)]
    pub(crate) retries: i32,
}

/// The event of a cron that was run now.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = CronRun)]
pub(crate) struct CronRunJson {
    /// The id of the event.
    pub(crate) id: Uuid,
}

/// Why a request does not describe a cron.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidCron {
    /// Its expression or time zone.
    #[error(transparent)]
    Schedule(#[from] InvalidSchedule),
    /// Its name, modifier or value.
    #[error(transparent)]
    Event(#[from] EventError),
}

impl PutCron {
    /// The requested cron, with this name.
    pub(crate) fn named(self, name: &str) -> Result<wakeq::crons::NewCron, InvalidCron> {
        let schedule = CronSchedule::new(&self.expression, &self.zone)?;
        let value = self.value.as_deref().map_or("null", RawValue::get);
        let new = wakeq::crons::NewCron::from_json(name, schedule, value)?.missed(self.missed.into());
        Ok(match &self.modifier {
            Some(modifier) => new.modifier(modifier)?,
            None => new,
        })
    }
}

impl From<Missed> for wakeq::crons::MissedTicks {
    fn from(missed: Missed) -> Self {
        match missed {
            Missed::Skip => Self::Skip,
            Missed::Once => Self::Once,
            Missed::All => Self::All,
        }
    }
}

impl From<wakeq::crons::MissedTicks> for Missed {
    fn from(missed: wakeq::crons::MissedTicks) -> Self {
        match missed {
            wakeq::crons::MissedTicks::Skip => Self::Skip,
            wakeq::crons::MissedTicks::Once => Self::Once,
            wakeq::crons::MissedTicks::All => Self::All,
        }
    }
}

impl CronJson {
    /// For callers that may change crons but not read them.
    pub(crate) fn without_value(self) -> Self {
        Self { value: None, ..self }
    }

    /// For callers that may not see values.
    pub(crate) fn hidden(self) -> Self {
        Self { hidden: Some(HIDDEN.to_owned()), ..self.without_value() }
    }
}

impl CronEventJson {
    /// Whether an attempt has failed and the event waits for the next one.
    pub(crate) fn is_retrying(&self) -> bool {
        self.retries > 0 && matches!(self.state, EventState::Ready | EventState::Delayed)
    }
}

impl From<CronEvent> for CronEventJson {
    fn from(CronEvent { id, state, retries, .. }: CronEvent) -> Self {
        let state = match state {
            CronEventState::Live(state) => EventState::from(state),
            CronEventState::Dead => EventState::Dead,
            CronEventState::Ended(outcome) => EventState::from(outcome),
            CronEventState::Gone => EventState::Gone,
        };
        Self { id: id.0, state, retries }
    }
}

impl From<wakeq::crons::Cron> for CronJson {
    fn from(cron: wakeq::crons::Cron) -> Self {
        let pause = |wakeq::crons::CronPause { since, by, reason }| CronPauseJson { since, by, reason };
        let tick = |wakeq::crons::CronTick { at, local }| CronTickJson { at, local };
        Self {
            name: cron.name.to_string(),
            expression: cron.expression,
            zone: cron.zone,
            modifier: cron.modifier,
            value: cron.value.and_then(|value| RawValue::from_string(value).ok()),
            hidden: None,
            missed: cron.missed.into(),
            paused: cron.paused.map(pause),
            next: cron.next.into_iter().map(tick).collect(),
            last: cron.last,
            last_event: cron.last_event.map(CronEventJson::from),
            ticks: cron.ticks,
            created_by: cron.created_by,
            created_at: cron.created_at,
            changed_at: cron.changed_at,
        }
    }
}
