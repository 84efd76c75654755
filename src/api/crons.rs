//! Crons: schedules that emit events.

use chrono::{DateTime, FixedOffset, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::admin;
use crate::cron::{CronSchedule, InvalidSchedule};
use crate::event::EventError;

/// A cron to be put.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutCron {
    /// Minute, hour, day of the month, month and weekday; with seconds before them, if there are six fields.
    #[schema(max_length = 256, example = "30 8 * * MON-FRI")]
    pub(crate) expression: String,
    /// The zone on whose wall clock the expression is matched, by its name in the IANA database. Default `UTC`.
    #[serde(default = "utc")]
    #[schema(max_length = 64, example = "Europe/Berlin", default = "UTC")]
    pub(crate) zone: String,
    /// What each event carries, kept to the letter, in 64 KiB; null if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) value: Option<Box<RawValue>>,
    /// The handler's modifier, `_` if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "_")]
    pub(crate) modifier: Option<String>,
    /// What becomes of ticks that were missed because no process ran.
    #[serde(default)]
    pub(crate) missed: Missed,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// What becomes of ticks that were missed because no process ran: left out (`skip`), the last made up for (`once`), or
/// each, 1,000 at most (`all`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Missed {
    #[default]
    Skip,
    Once,
    All,
}

/// Why a cron is stopped. It may be left out.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseCron {
    /// Shown wherever the cron is.
    #[schema(max_length = 1000, example = "the warehouse moves")]
    pub(crate) reason: Option<String>,
}

/// A cron: at each tick it emits an event for the handler `CRON/name`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Cron {
    #[schema(example = "report")]
    pub(crate) name: String,
    #[schema(example = "30 8 * * MON-FRI")]
    pub(crate) expression: String,
    #[schema(example = "Europe/Berlin")]
    pub(crate) zone: String,
    #[schema(example = "_")]
    pub(crate) modifier: String,
    /// What each event carries; left out of lists, and of the answers to pause and unpause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) value: Option<Box<RawValue>>,
    pub(crate) missed: Missed,
    /// Who stopped it, if somebody did.
    pub(crate) paused: Option<CronPause>,
    /// The ticks ahead: five, in a list one, none while it is paused, nor where the release that answers can't read the
    /// schedule.
    pub(crate) next: Vec<CronTick>,
    /// Its last tick.
    pub(crate) last: Option<DateTime<Utc>>,
    /// How many events it has emitted: a few of them ahead of their ticks, none that was taken back.
    #[schema(minimum = 0)]
    pub(crate) ticks: u64,
    #[schema(example = "key:billing")]
    pub(crate) created_by: String,
    pub(crate) created_at: DateTime<Utc>,
    /// When it was last replaced.
    pub(crate) changed_at: DateTime<Utc>,
}

/// Why a cron does not tick.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CronPause {
    pub(crate) since: DateTime<Utc>,
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
}

/// A moment at which a cron ticks.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CronTick {
    pub(crate) at: DateTime<Utc>,
    /// As the clock of the cron's zone shows it.
    #[schema(example = "2030-01-31T08:30:00+01:00")]
    pub(crate) local: DateTime<FixedOffset>,
}

/// Why a request makes no cron.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidCron {
    /// Its expression or zone.
    #[error(transparent)]
    Schedule(#[from] InvalidSchedule),
    /// Its name, modifier or value.
    #[error(transparent)]
    Event(#[from] EventError),
}

impl PutCron {
    /// The cron of this name that is asked for.
    pub(crate) fn named(self, name: &str) -> Result<admin::NewCron, InvalidCron> {
        let schedule = CronSchedule::new(&self.expression, &self.zone)?;
        let value = self.value.as_deref().map_or("null", RawValue::get);
        let new = admin::NewCron::from_json(name, schedule, value)?.missed(self.missed.into());
        Ok(match &self.modifier {
            Some(modifier) => new.modifier(modifier)?,
            None => new,
        })
    }
}

impl From<Missed> for crate::cron::Missed {
    fn from(missed: Missed) -> Self {
        match missed {
            Missed::Skip => Self::Skip,
            Missed::Once => Self::Once,
            Missed::All => Self::All,
        }
    }
}

impl From<crate::cron::Missed> for Missed {
    fn from(missed: crate::cron::Missed) -> Self {
        match missed {
            crate::cron::Missed::Skip => Self::Skip,
            crate::cron::Missed::Once => Self::Once,
            crate::cron::Missed::All => Self::All,
        }
    }
}

impl Cron {
    /// As those may see it who change crons and may not read.
    pub(crate) fn without_value(self) -> Self {
        Self { value: None, ..self }
    }
}

impl From<admin::Cron> for Cron {
    fn from(cron: admin::Cron) -> Self {
        let pause = |admin::CronPause { since, by, reason }| CronPause { since, by, reason };
        let tick = |admin::CronTick { at, local }| CronTick { at, local };
        Self {
            name: cron.name.to_string(),
            expression: cron.expression,
            zone: cron.zone,
            modifier: cron.modifier,
            value: cron.value.and_then(|value| RawValue::from_string(value).ok()),
            missed: cron.missed.into(),
            paused: cron.paused.map(pause),
            next: cron.next.into_iter().map(tick).collect(),
            last: cron.last,
            ticks: cron.ticks,
            created_by: cron.created_by,
            created_at: cron.created_at,
            changed_at: cron.changed_at,
        }
    }
}
