//! The JSON of a unique key, in an event to be emitted and in the answer.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::json;
use super::refusal::{Fault, named};
use wakeq::EventError;
use wakeq::events::{OnConflict, Unique, UniqueOutcome};

/// What an unknown field has to be.
const LEFT_OUT: &str =
    "left out: the fields are key, until, remember_s, on_conflict, postpone_s and at_most_s";
/// What the waits have to be.
const WITH_POSTPONE: &str = "given with `on_conflict` postpone, both of them, and only then";

/// A unique key of an event.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[schema(as = Unique)]
#[serde(deny_unknown_fields)]
pub(crate) struct UniqueJson {
    /// The key, among those of the handler on the canvas: 1 to 255 visible ASCII characters.
    #[schema(pattern = "^[!-~]{1,255}$", example = "invoice:42")]
    pub(crate) key: String,
    /// How long the key is taken. Default `started`, or `ended` with `remember_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<UniqueUntil>,
    /// Seconds for which the key stays taken after the event was due, even if it has ended: up to
    /// 366 days. Excludes `until` `started`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.001, maximum = 31_622_400.0)]
    pub(crate) remember_s: Option<f64>,
    /// What happens to an event that waits with the key. Default `keep`. One that runs or has ended
    /// is kept in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) on_conflict: Option<OnConflictJson>,
    /// With `postpone`, which needs it: seconds from now until the event is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.001, maximum = 3_162_240_000.0)]
    pub(crate) postpone_s: Option<f64>,
    /// With `postpone`, which needs it: seconds after the first emit at which the event is due at
    /// the latest. No less than `postpone_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.001, maximum = 3_162_240_000.0)]
    pub(crate) at_most_s: Option<f64>,
}

/// How long a unique key is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UniqueUntil {
    /// While its event waits.
    Started,
    /// Until its event has ended.
    Ended,
}

/// What happens to an event that waits with a unique key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = OnConflict)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnConflictJson {
    /// It stays as it is.
    Keep,
    /// It gets the new value and due time.
    Replace,
    /// It gets the new value, and is due later.
    Postpone,
}

/// What was done with an event that has a unique key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = UniqueOutcome)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UniqueOutcomeJson {
    /// The key was free: the event is new.
    Inserted,
    /// The event that has the key, or had it and is remembered, stays as it is.
    Kept,
    /// The event that waited with the key was replaced.
    Replaced,
    /// The event that waited with the key was postponed.
    Postponed,
}

impl UniqueJson {
    /// Reads a key. A field that is null counts as missing.
    pub(super) fn read(raw: &RawValue) -> Result<Self, Fault> {
        let (mut new, mut key) = (Self::default(), None);
        for (field, raw) in json::fields(raw, "`unique`")? {
            let given = (!json::is_null(raw)).then_some(raw);
            let seconds = |what| given.map(|raw| json::seconds(raw.get(), what)).transpose();
            match field.as_str() {
                "key" => key = given.map(|raw| json::string(raw, "`key`")).transpose()?.map(Into::into),
                "until" => new.until = given.map(until).transpose()?,
                "remember_s" => new.remember_s = seconds("`remember_s`")?,
                "on_conflict" => new.on_conflict = given.map(on_conflict).transpose()?,
                "postpone_s" => new.postpone_s = seconds("`postpone_s`")?,
                "at_most_s" => new.at_most_s = seconds("`at_most_s`")?,
                _ => return Err(Fault::shape(format!("{} in `unique`", named(&field)), LEFT_OUT)),
            }
        }
        Ok(Self { key: key.ok_or(Fault::Missing("`key` in `unique`"))?, ..new })
    }

    /// The key that it describes.
    pub(super) fn unique(self) -> Result<Unique, Fault> {
        let unique = Unique::key(&self.key).map_err(EventError::from)?;
        let unique = match (self.until, self.remember_s) {
            (Some(UniqueUntil::Started), Some(_)) => {
                return Err(Fault::Both("`until` started", "`remember_s`"));
            }
            (_, Some(time)) => unique.remembered_for(json::duration(time)?),
            (Some(UniqueUntil::Ended), None) => unique.until_ended(),
            (Some(UniqueUntil::Started) | None, None) => unique.while_waiting(),
        };
        let postpones = self.on_conflict == Some(OnConflictJson::Postpone);
        match (self.postpone_s, self.at_most_s) {
            (Some(by), Some(at_most)) if postpones => {
                let (by, at_most) = (json::duration(by)?, json::duration(at_most)?);
                Ok(unique.on_conflict(OnConflict::Postpone { by, at_most }))
            }
            (None, None) if !postpones => Ok(unique.on_conflict(match self.on_conflict {
                Some(OnConflictJson::Replace) => OnConflict::Replace,
                Some(OnConflictJson::Keep | OnConflictJson::Postpone) | None => OnConflict::Keep,
            })),
            _ => Err(Fault::shape("`postpone_s` and `at_most_s`", WITH_POSTPONE)),
        }
    }
}

fn until(raw: &RawValue) -> Result<UniqueUntil, Fault> {
    match raw.get() {
        "\"started\"" => Ok(UniqueUntil::Started),
        "\"ended\"" => Ok(UniqueUntil::Ended),
        _ => Err(Fault::shape("`until`", "started or ended")),
    }
}

fn on_conflict(raw: &RawValue) -> Result<OnConflictJson, Fault> {
    match raw.get() {
        "\"keep\"" => Ok(OnConflictJson::Keep),
        "\"replace\"" => Ok(OnConflictJson::Replace),
        "\"postpone\"" => Ok(OnConflictJson::Postpone),
        _ => Err(Fault::shape("`on_conflict`", "keep, replace or postpone")),
    }
}

impl From<UniqueOutcome> for UniqueOutcomeJson {
    fn from(outcome: UniqueOutcome) -> Self {
        match outcome {
            UniqueOutcome::Inserted => Self::Inserted,
            UniqueOutcome::Kept => Self::Kept,
            UniqueOutcome::Replaced => Self::Replaced,
            UniqueOutcome::Postponed { .. } => Self::Postponed,
        }
    }
}
