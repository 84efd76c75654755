//! The JSON of what an event asks for in place of its handler's policy, when it is emitted and when
//! it is shown.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, SchemaType, Type};

use super::json;
use super::refusal::{Fault, named};
use crate::resources::targets::wire::keep::{KeepByOutcome, KeepJson, seconds_schema};
use wakeq::events::{EventOptions, InvalidOptions};
use wakeq::{Event, EventError};

/// What an unknown field has to be.
const LEFT_OUT: &str =
    "left out: the fields are retries, delays_s, timeout_s, not_after, keep_s, tags, limits and urgent";

/// What an event asks for, in place of what its handler's route or target says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EventOptions)]
#[serde(deny_unknown_fields)]
pub(crate) struct OptionsJson {
    /// Retries after the first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000, example = 5)]
    pub(crate) retries: Option<u32>,
    /// Seconds before the retries, in their order; the last one counts for all further retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = delays_schema)]
    pub(crate) delays_s: Option<Vec<f64>>,
    /// Seconds after which an attempt is cut off: up to 30 days, or 600 for an HTTP target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.001, maximum = 2_592_000.0)]
    pub(crate) timeout_s: Option<f64>,
    /// Moment after which no attempt starts: the event then dies of the cause `expired`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_after: Option<DateTime<Utc>>,
    /// Seconds for which the event is kept after it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = seconds_schema)]
    pub(crate) keep_s: Option<KeepJson<f64>>,
    /// Tags by which the event is found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10, example = json!(["customer:7"]))]
    pub(crate) tags: Vec<String>,
    /// Keys under which limits count the event, beside its handler and its canvas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 3, example = json!(["customer:7"]))]
    pub(crate) limits: Vec<String>,
    /// Whether workers start the event before those that are not urgent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) urgent: bool,
}

/// The schema of delays, whose numbers have bounds, too.
fn delays_schema() -> Array {
    let delay = ObjectBuilder::new().schema_type(Type::Number).minimum(Some(0)).maximum(Some(2_592_000));
    ArrayBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Array, Type::Null]))
        .description(Some("Seconds before the retries; the last one counts for all further retries."))
        .items(delay)
        .min_items(Some(1))
        .max_items(Some(100))
        .build()
}

impl OptionsJson {
    /// Reads options. A field that is null counts as missing.
    pub(super) fn read(raw: &RawValue) -> Result<Self, Fault> {
        let mut new = Self::default();
        for (field, raw) in json::fields(raw, "`options`")? {
            let given = (!json::is_null(raw)).then_some(raw);
            match field.as_str() {
                "retries" => new.retries = given.map(retries).transpose()?,
                "delays_s" => new.delays_s = given.map(delays).transpose()?,
                "timeout_s" => {
                    let seconds = given.map(|raw| json::seconds(raw.get(), "`timeout_s`"));
                    new.timeout_s = seconds.transpose()?;
                }
                "not_after" => {
                    let moment = |raw| json::timestamp(&json::string(raw, "`not_after`")?, "`not_after`");
                    new.not_after = given.map(moment).transpose()?;
                }
                "keep_s" => new.keep_s = given.map(keep).transpose()?,
                "tags" => new.tags = given.map(|raw| texts(raw, "tags")).transpose()?.unwrap_or_default(),
                "limits" => {
                    new.limits = given.map(|raw| texts(raw, "limits")).transpose()?.unwrap_or_default();
                }
                "urgent" => new.urgent = given.map(urgent).transpose()?.unwrap_or_default(),
                _ => return Err(Fault::shape(format!("{} in `options`", named(&field)), LEFT_OUT)),
            }
        }
        Ok(new)
    }

    /// The event, which asks for this.
    pub(super) fn of(self, mut event: Event) -> Result<Event, Fault> {
        if let Some(retries) = self.retries {
            event = event.retries(retries)?;
        }
        if let Some(delays_s) = self.delays_s {
            let delays = delays_s.into_iter().map(|delay| duration(delay, InvalidOptions::Delays));
            event = event.delays(delays.collect::<Result<Vec<_>, _>>()?)?;
        }
        if let Some(timeout_s) = self.timeout_s {
            event = event.timeout(duration(timeout_s, InvalidOptions::Timeout)?)?;
        }
        if let Some(moment) = self.not_after {
            event = event.not_after(moment)?;
        }
        if let Some(keep_s) = self.keep_s {
            let keep = keep_s.read().ok_or(EventError::Options(InvalidOptions::Keep))?;
            event = event.keep(keep)?;
        }
        for tag in &self.tags {
            event = event.tag(tag)?;
        }
        for key in &self.limits {
            event = event.limit(key)?;
        }
        Ok(if self.urgent { event.urgent() } else { event })
    }
}

fn retries(raw: &RawValue) -> Result<u32, Fault> {
    serde_json::from_str(raw.get()).map_err(|_| Fault::shape("`retries`", "a whole number from 0 to 1000"))
}

fn delays(raw: &RawValue) -> Result<Vec<f64>, Fault> {
    let delays = json::elements(raw, "`delays_s`")?;
    delays.into_iter().map(|delay| json::seconds(delay.get(), "each of `delays_s`")).collect()
}

/// One number of seconds, or an object with some for outcomes.
fn keep(raw: &RawValue) -> Result<KeepJson<f64>, Fault> {
    if !raw.get().starts_with('{') {
        return json::seconds(raw.get(), "`keep_s`").map(KeepJson::All);
    }
    let mut times = KeepByOutcome::default();
    for (outcome, raw) in json::fields(raw, "`keep_s`")? {
        let time = match outcome.as_str() {
            "completed" => &mut times.completed,
            "failed" => &mut times.failed,
            "cancelled" => &mut times.cancelled,
            _ => {
                let what = format!("{} in `keep_s`", named(&outcome));
                return Err(Fault::shape(what, "left out: the fields are completed, failed and cancelled"));
            }
        };
        *time = json::seconds(raw.get(), "each of `keep_s`")?;
    }
    Ok(KeepJson::Each(times))
}

/// The strings of the field `name`.
fn texts(raw: &RawValue, name: &str) -> Result<Vec<String>, Fault> {
    let texts = json::elements(raw, &format!("`{name}`"))?;
    texts.into_iter().map(|text| Ok(json::string(text, format!("each of `{name}`"))?.into_owned())).collect()
}

fn urgent(raw: &RawValue) -> Result<bool, Fault> {
    serde_json::from_str(raw.get()).map_err(|_| Fault::shape("`urgent`", "true or false"))
}

/// As a duration, if there is one of this length.
fn duration(seconds: f64, refused: InvalidOptions) -> Result<Duration, Fault> {
    Duration::try_from_secs_f64(seconds).map_err(|_| EventError::Options(refused).into())
}

impl OptionsJson {
    /// What an event asks for in place of its handler's policy, if anything.
    pub(crate) fn of_event(options: &EventOptions) -> Option<Self> {
        Some(Self::from(options)).filter(|options| *options != Self::default())
    }
}

impl From<&EventOptions> for OptionsJson {
    fn from(options: &EventOptions) -> Self {
        let delays = options.delays();
        Self {
            retries: options.retries(),
            delays_s: delays.map(|delays| delays.iter().map(Duration::as_secs_f64).collect()),
            timeout_s: options.timeout().map(|timeout| timeout.as_secs_f64()),
            not_after: options.not_after(),
            keep_s: options.keep().map(KeepJson::from),
            tags: options.tags().iter().map(ToString::to_string).collect(),
            limits: options.limits().iter().map(ToString::to_string).collect(),
            urgent: options.is_urgent(),
        }
    }
}
