//! What a form gives: a field that is left empty is not given.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;

use super::time;
use crate::http::problem::Problem;

/// The text of a field, without the blanks around it.
pub(crate) fn text(given: &str) -> Option<&str> {
    Some(given.trim()).filter(|text| !text.is_empty())
}

/// The text of a field that has to be given.
pub(crate) fn required<'g>(label: &str, given: &'g str) -> Result<&'g str, Problem> {
    text(given).ok_or_else(|| Problem::bad_request(format!("{label} is missing: fill it in")))
}

/// The number in a field.
pub(crate) fn number<T: FromStr>(label: &str, given: &str) -> Result<Option<T>, Problem> {
    let number = text(given).map(str::parse::<T>).transpose();
    number.map_err(|_| {
        Problem::bad_request(format!("{label} is not such a number: write digits, or leave it empty"))
    })
}

/// The moment in a field or an address: a time, or how far it is from `now`.
pub(crate) fn moment(label: &str, given: &str, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, Problem> {
    let Some(text) = text(given) else { return Ok(None) };
    time::written(text, now).map(Some).ok_or_else(|| {
        Problem::bad_request(format!(
            "`{label}` can't be read: write a length, such as `1 h` for an hour ago or `in 2 d`, or a time in \
             UTC, such as 2030-01-31T08:00"
        ))
    })
}

/// The JSON in a field, as it was written.
pub(crate) fn json(label: &str, given: &str) -> Result<Option<Box<RawValue>>, Problem> {
    let json = text(given).map(|text| RawValue::from_string(text.to_owned())).transpose();
    json.map_err(|error| Problem::bad_request(format!("{label} is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_is_not_given() {
        assert_eq!(text(" \r\n"), None);
        assert_eq!(number::<u32>("weight", "").unwrap(), None);
        assert!(json("value", " ").unwrap().is_none());
        assert!(required("name", " ").unwrap_err().detail().contains("name is missing"));
        assert_eq!(required("name", " a ").unwrap(), "a");
    }

    #[test]
    fn numbers_and_json_are_read_as_they_are_written() {
        assert_eq!(number("weight", " 7 ").unwrap(), Some(7_u32));
        assert!(number::<u32>("weight", "-1").unwrap_err().detail().starts_with("weight is not such"));
        let value = json("value", " {\"n\": 1.10} ").unwrap().unwrap();
        assert_eq!(value.get(), "{\"n\": 1.10}");
        assert!(json("value", "{").unwrap_err().detail().starts_with("value is not JSON"));
    }
}
