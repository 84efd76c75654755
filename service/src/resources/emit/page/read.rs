//! Reads the fields of a new event.

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;

use crate::http::problem::Problem;
use crate::page::time;
use crate::resources::emit::wire::{NewEvent, OnConflictJson, OptionsJson, UniqueJson, UniqueUntil};
use crate::resources::events::page::split;
use crate::resources::targets::wire::keep::KeepJson;

/// Fields that are folded away if none of them is filled in.
const MORE: [&str; 12] = [
    "modifier",
    "batch",
    "unique_key",
    "unique_until",
    "on_conflict",
    "retries",
    "delays",
    "timeout",
    "not_after",
    "keep",
    "limits",
    "urgent",
];

/// The fields as they were filled in.
pub(super) struct GivenFields(Vec<(String, String)>);

impl GivenFields {
    pub(super) fn new(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    /// What was written into a field.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(given, _)| given == name).map_or("", |(_, value)| value)
    }

    pub(super) fn has_more(&self) -> bool {
        MORE.iter().any(|name| !self.get(name).trim().is_empty())
    }

    /// The request to emit it. Lengths of time are counted from `now`.
    pub(super) fn event(&self, now: DateTime<Utc>) -> Result<NewEvent, Problem> {
        let (delay_s, delay_until) = self.due(now)?;
        Ok(NewEvent {
            module: self.text("module"),
            name: self.text("name").ok_or_else(|| Problem::bad_request("name the handler of the event"))?,
            modifier: self.text("modifier"),
            value: self.value()?,
            delay_s,
            delay_until,
            object: self.text("object"),
            unique: self.unique()?,
            options: Some(self.options(now)?).filter(|options| *options != OptionsJson::default()),
            batch: self.text("batch"),
            ..NewEvent::default()
        })
    }

    fn text(&self, name: &str) -> Option<String> {
        Some(self.get(name).trim()).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// The value as it was written, so that its numbers stay exact.
    fn value(&self) -> Result<Option<Box<RawValue>>, Problem> {
        let Some(text) = self.text("value") else { return Ok(None) };
        let value = RawValue::from_string(text);
        value.map(Some).map_err(|error| Problem::bad_request(format!("the value is not JSON: {error}")))
    }

    /// A delay, or a moment.
    fn due(&self, now: DateTime<Utc>) -> Result<(Option<f64>, Option<DateTime<Utc>>), Problem> {
        let Some(text) = self.text("due") else { return Ok((None, None)) };
        let delay = text.strip_prefix("in ").unwrap_or(&text);
        if let Ok(delay) = humantime::parse_duration(delay) {
            return Ok((Some(delay.as_secs_f64()), None));
        }
        let words = "`due` can't be read: write a length, such as 10 min, or a moment in UTC, such as \
                     2030-01-31T08:00";
        let moment = time::written(&text, now).ok_or_else(|| Problem::bad_request(words))?;
        Ok((None, Some(moment)))
    }

    fn unique(&self) -> Result<Option<UniqueJson>, Problem> {
        let until = (self.get("unique_until") == "ended").then_some(UniqueUntil::Ended);
        let on_conflict = (self.get("on_conflict") == "replace").then_some(OnConflictJson::Replace);
        match self.text("unique_key") {
            Some(key) => Ok(Some(UniqueJson { key, until, on_conflict, ..UniqueJson::default() })),
            None if until.is_none() && on_conflict.is_none() => Ok(None),
            None => Err(Problem::bad_request("write the unique key, or leave its other fields as they were")),
        }
    }

    fn options(&self, now: DateTime<Utc>) -> Result<OptionsJson, Problem> {
        let retries = self.text("retries").map(|text| text.parse::<u32>()).transpose();
        let delays = split(self.get("delays"));
        let delays: Vec<_> = delays.iter().map(|text| seconds("delays", text)).collect::<Result<_, _>>()?;
        let length = |name: &'static str| self.text(name).map(|text| seconds(name, &text)).transpose();
        let words = "`not_after` can't be read: write a moment in UTC, such as 2030-01-31T08:00, or in 1 d";
        let not_after = self.text("not_after").map(|text| time::written(&text, now).ok_or(words)).transpose();
        Ok(OptionsJson {
            retries: retries
                .map_err(|_| Problem::bad_request("`retries` is a whole number from 0 to 1000"))?,
            delays_s: (!delays.is_empty()).then_some(delays),
            timeout_s: length("timeout")?,
            not_after: not_after.map_err(Problem::bad_request)?,
            keep_s: self.text("keep").map(|text| kept(&text)).transpose()?,
            tags: split(self.get("tags")),
            limits: split(self.get("limits")),
            urgent: self.get("urgent") == "true",
        })
    }
}

/// How long it is kept: one length of time, or one for each outcome.
fn kept(text: &str) -> Result<KeepJson<f64>, Problem> {
    let words =
        "`keep` can't be read: write a length, such as 7 d, or completed=7 d,failed=30 d,cancelled=1 d";
    KeepJson::parse(text, |part| seconds("keep", part).ok()).ok_or_else(|| Problem::bad_request(words))
}

/// A length of time in seconds.
fn seconds(name: &str, text: &str) -> Result<f64, Problem> {
    let words = || format!("`{name}` can't be read: write a length, such as 30 s, 10 min or 1 h 30 min");
    let length = humantime::parse_duration(text).map_err(|_| Problem::bad_request(words()))?;
    Ok(length.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> GivenFields {
        GivenFields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_900_000_000, 0).unwrap()
    }

    fn json(pairs: &[(&str, &str)]) -> serde_json::Value {
        let event = fields(pairs).event(now()).unwrap();
        serde_json::to_value(event).unwrap()
    }

    #[test]
    fn fields_become_a_request() {
        assert_eq!(
            json(&[("name", " mail "), ("module", ""), ("due", " ")]),
            serde_json::json!({"name": "mail"})
        );
        let whole = json(&[
            ("name", "mail"),
            ("value", "[1]"),
            ("due", "1 h 30 min"),
            ("tags", "a, b,"),
            ("unique_key", "k"),
            ("on_conflict", "replace"),
            ("retries", "3"),
            ("delays", "1 s, 500 ms"),
            ("keep", "1 d"),
            ("urgent", "true"),
        ]);
        assert_eq!(
            whole,
            serde_json::json!({
                "name": "mail", "value": [1], "delay_s": 5400.0,
                "unique": {"key": "k", "on_conflict": "replace"},
                "options": {"retries": 3, "delays_s": [1.0, 0.5], "keep_s": 86_400.0, "tags": ["a", "b"],
                            "urgent": true},
            })
        );
        let later = json(&[("name", "mail"), ("due", "2030-04-01"), ("not_after", "in 1 d")]);
        assert_eq!(later["delay_until"], "2030-04-01T00:00:00Z");
        assert_eq!(later["options"]["not_after"], "2030-03-18T17:46:40Z");
    }

    #[test]
    fn a_value_stays_as_it_was_written() {
        let event = fields(&[("name", "mail"), ("value", " {\"n\": 1.10, \"n\": 1e400} ")]).event(now());
        let event = event.unwrap();
        assert_eq!(event.value.unwrap().get(), r#"{"n": 1.10, "n": 1e400}"#);
    }

    #[test]
    fn what_can_not_be_read_is_refused_with_what_to_write() {
        for (pairs, words) in [
            (vec![], "name the handler"),
            (vec![("value", "{")], "not JSON"),
            (vec![("due", "soon")], "such as 10 min"),
            (vec![("retries", "-1")], "a whole number"),
            (vec![("delays", "1 s, x")], "`delays`"),
            (vec![("timeout", "1")], "`timeout`"),
            (vec![("not_after", "never")], "`not_after`"),
            (vec![("unique_until", "ended")], "the unique key"),
        ] {
            let named = if pairs.is_empty() { pairs } else { [vec![("name", "mail")], pairs].concat() };
            let refused = fields(&named).event(now()).unwrap_err();
            assert!(refused.detail().contains(words), "{}", refused.detail());
        }
    }
}
