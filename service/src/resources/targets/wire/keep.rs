//! For how long events are kept after they have ended: one number of seconds for every outcome, or
//! one for each.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};

use wakeq::events::{EndedOutcome, Keep};

/// Longest time, in seconds: 90 days.
const LONGEST_S: i32 = 7_776_000;

/// Numbers of seconds, which are whole where the type is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "`keep_s` is a number of seconds, or an object with `completed`, `failed` and `cancelled`",
    bound(deserialize = "T: Deserialize<'de> + Default")
)]
pub(crate) enum KeepJson<T> {
    /// However an event has ended.
    All(T),
    Each(KeepByOutcome<T>),
}

/// What is left out is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, bound(deserialize = "T: Deserialize<'de> + Default"))]
pub(crate) struct KeepByOutcome<T> {
    pub(crate) completed: T,
    pub(crate) failed: T,
    pub(crate) cancelled: T,
}

/// A number of seconds.
pub(crate) trait Seconds: Copy + Default + PartialEq {
    fn of(time: Duration) -> Self;

    /// `None` if there is no duration of this length.
    fn time(self) -> Option<Duration>;
}

impl Seconds for f64 {
    fn of(time: Duration) -> Self {
        time.as_secs_f64()
    }

    fn time(self) -> Option<Duration> {
        Duration::try_from_secs_f64(self).ok()
    }
}

impl Seconds for u32 {
    fn of(time: Duration) -> Self {
        Self::try_from(time.as_secs()).unwrap_or(Self::MAX)
    }

    fn time(self) -> Option<Duration> {
        Some(Duration::from_secs(self.into()))
    }
}

impl<T: Seconds> Default for KeepJson<T> {
    fn default() -> Self {
        Self::All(T::default())
    }
}

impl<T: Seconds> From<Keep> for KeepJson<T> {
    fn from(keep: Keep) -> Self {
        match keep.single() {
            Some(time) => Self::All(T::of(time)),
            None => {
                let [completed, failed, cancelled] =
                    EndedOutcome::ALL.map(|outcome| T::of(keep.time(outcome)));
                Self::Each(KeepByOutcome { completed, failed, cancelled })
            }
        }
    }
}

impl<T: Seconds> KeepJson<T> {
    /// `None` if a number is that of no duration.
    pub(crate) fn read(self) -> Option<Keep> {
        let KeepByOutcome { completed, failed, cancelled } = self.by_outcome();
        Some(Keep { completed: completed.time()?, failed: failed.time()?, cancelled: cancelled.time()? })
    }

    /// Whether nothing is kept.
    pub(crate) fn is_nothing(&self) -> bool {
        self.by_outcome() == KeepByOutcome::default()
    }

    fn by_outcome(&self) -> KeepByOutcome<T> {
        match *self {
            Self::All(time) => KeepByOutcome { completed: time, failed: time, cancelled: time },
            Self::Each(times) => times,
        }
    }

    /// As people write it: `7days`, or `completed=7days,failed=30days`, with each time in the words
    /// of `time`.
    pub(crate) fn written(&self, time: impl Fn(T) -> String) -> String {
        match *self {
            Self::All(all) => time(all),
            Self::Each(KeepByOutcome { completed, failed, cancelled }) => {
                let [completed, failed, cancelled] = [completed, failed, cancelled].map(time);
                format!("completed={completed},failed={failed},cancelled={cancelled}")
            }
        }
    }

    /// Reads what people have written, each time by `time`.
    pub(crate) fn parse(text: &str, time: impl Fn(&str) -> Option<T>) -> Option<Self> {
        if !text.contains('=') {
            return time(text.trim()).map(Self::All);
        }
        let [mut completed, mut failed, mut cancelled] = [None; 3];
        for part in text.split(',') {
            let (outcome, written) = part.split_once('=')?;
            let place = match EndedOutcome::parse(outcome.trim())? {
                EndedOutcome::Completed => &mut completed,
                EndedOutcome::Failed => &mut failed,
                EndedOutcome::Cancelled => &mut cancelled,
            };
            if place.replace(time(written.trim())?).is_some() {
                return None;
            }
        }
        let [completed, failed, cancelled] = [completed, failed, cancelled].map(Option::unwrap_or_default);
        Some(Self::Each(KeepByOutcome { completed, failed, cancelled }))
    }
}

/// The schema of whole seconds.
pub(crate) fn whole_seconds_schema() -> RefOr<Schema> {
    let words = "How long events are kept after they have ended, in whole seconds: one number, or one for each \
                 outcome. The result is the body of a target's answer, if that is JSON of at most 65,536 bytes, \
                 or what a program completes the event with. Default: 0, not at all. Copies in queues are not kept.";
    schema(words, Type::Integer.into(), Type::Integer)
}

/// The schema of what an emit may ask for.
pub(crate) fn seconds_schema() -> RefOr<Schema> {
    let words = "Seconds for which the event is kept after it has ended, with its result: one number, or one for \
                 each outcome; 0 for not at all.";
    schema(words, SchemaType::from_iter([Type::Number, Type::Null]), Type::Number)
}

fn schema(words: &str, all: SchemaType, each: Type) -> RefOr<Schema> {
    let number =
        |kind: SchemaType| ObjectBuilder::new().schema_type(kind).minimum(Some(0)).maximum(Some(LONGEST_S));
    let outcomes = EndedOutcome::ALL.iter().fold(ObjectBuilder::new(), |object, outcome| {
        object.property(outcome.as_str(), number(each.clone().into()))
    });
    let outcomes = outcomes.additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
    let one_of = OneOfBuilder::new().description(Some(words)).item(number(all)).item(outcomes);
    RefOr::T(Schema::OneOf(one_of.build()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(text: &str) -> Option<u32> {
        text.strip_suffix('d')?.parse().ok()
    }

    #[test]
    fn one_time_is_a_number_and_several_are_an_object() {
        let second = Duration::from_secs(1);
        for (keep, json) in [
            (Keep::all(60 * second), "60"),
            (Keep { failed: 3 * second, ..Keep::all(second) }, r#"{"completed":1,"failed":3,"cancelled":1}"#),
        ] {
            assert_eq!(serde_json::to_string(&KeepJson::<u32>::from(keep)).unwrap(), json);
            assert_eq!(serde_json::from_str::<KeepJson<u32>>(json).unwrap().read(), Some(keep));
        }
        let failed: KeepJson<f64> = serde_json::from_str(r#"{"failed": 0.5}"#).unwrap();
        assert_eq!(failed.read(), Some(Keep { failed: second / 2, ..Keep::default() }));
        assert!(serde_json::from_str::<KeepJson<u32>>("0").unwrap().is_nothing());
        for wrong in ["0.5", "-1", r#""1""#, r#"{"dead": 1}"#, r#"{"failed": null}"#, "null"] {
            let error = serde_json::from_str::<KeepJson<u32>>(wrong).unwrap_err().to_string();
            assert!(error.contains("`keep_s` is a number of seconds"), "{wrong}: {error}");
        }
        assert_eq!(KeepJson::All(-1.0).read(), None);
    }

    #[test]
    fn people_write_one_time_or_one_for_each_outcome() {
        let parse = |text: &str| KeepJson::parse(text, days);
        assert_eq!(parse(" 7d "), Some(KeepJson::All(7)));
        let each = KeepJson::Each(KeepByOutcome { completed: 7, failed: 30, cancelled: 0 });
        assert_eq!(parse("failed=30d, completed = 7d"), Some(each));
        let written = each.written(|days| format!("{days}d"));
        assert_eq!(written, "completed=7d,failed=30d,cancelled=0d");
        assert_eq!(parse(&written), Some(each));
        for wrong in ["", "7", "dead=1d", "failed=1d,failed=2d", "failed=1d,7d", "failed="] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
