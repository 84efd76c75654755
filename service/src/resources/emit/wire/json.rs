//! Splits JSON text into its parts, each kept verbatim.
//!
//! Decodes nothing unless asked to, and errors do not repeat any of the text.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::refusal::{Fault, named};
use wakeq::{EventError, Timestamp};

/// Maximum number of fields of an object that is parsed field by field.
const FIELDS_MAX: usize = 100;

/// The fields of an object in their order, with their values verbatim.
pub(crate) type Fields<'a> = Vec<(String, &'a RawValue)>;

/// A body as text: UTF-8 without a byte-order mark.
pub(crate) fn text(body: &[u8]) -> Result<&str, Fault> {
    let text = std::str::from_utf8(body).map_err(|_| Fault::shape("the body", "UTF-8"))?;
    if text.starts_with('\u{feff}') {
        return Err(Fault::shape("the body", "UTF-8 without a byte-order mark"));
    }
    Ok(text)
}

/// Parses one JSON value, without surrounding whitespace.
pub(crate) fn value(text: &str) -> Result<&RawValue, Fault> {
    serde_json::from_str(text).map_err(|error| Fault::Syntax(error.to_string()))
}

/// The fields of an object, none of which may be repeated. `what` names the object in errors.
pub(crate) fn fields<'a>(object: &'a RawValue, what: &str) -> Result<Fields<'a>, Fault> {
    let mut parser = serde_json::Deserializer::from_str(object.get());
    let fields = parser.deserialize_map(FieldsVisitor).map_err(|error| match error.classify() {
        Category::Data => Fault::shape(what, "a JSON object"),
        Category::Syntax | Category::Eof | Category::Io => Fault::Syntax(without_position(&error)),
    })?;
    if fields.len() > FIELDS_MAX {
        return Err(Fault::TooManyFields(FIELDS_MAX));
    }
    for (at, (name, _)) in fields.iter().enumerate() {
        if fields[..at].iter().any(|(earlier, _)| earlier == name) {
            return Err(Fault::Repeated(named(name)));
        }
    }
    Ok(fields)
}

/// The elements of an array. `what` names it in errors.
pub(crate) fn elements<'a>(array: &'a RawValue, what: &str) -> Result<Vec<&'a RawValue>, Fault> {
    serde_json::from_str(array.get()).map_err(|_| Fault::shape(what, "a JSON array"))
}

/// A string, decoded.
pub(crate) fn string<'a>(value: &'a RawValue, what: impl fmt::Display) -> Result<Cow<'a, str>, Fault> {
    let text = value.get();
    let plain = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match plain {
        Some(plain) if !plain.contains('\\') => Ok(Cow::Borrowed(plain)),
        Some(_) => serde_json::from_str(text)
            .map(Cow::Owned)
            .map_err(|_| Fault::shape(what, "a string of whole Unicode characters")),
        None => Err(Fault::shape(what, "a string")),
    }
}

/// A number of seconds: finite, 0 or more.
pub(crate) fn seconds(text: &str, what: impl fmt::Display) -> Result<f64, Fault> {
    match serde_json::from_str::<f64>(text) {
        Ok(seconds) if seconds >= 0.0 => Ok(seconds),
        Ok(_) | Err(_) => Err(Fault::shape(what, "a number of seconds, 0 or more")),
    }
}

/// A moment from the text of a string.
pub(crate) fn timestamp(text: &str, what: &str) -> Result<Timestamp, Fault> {
    let moment = chrono::DateTime::parse_from_rfc3339(text);
    moment
        .map(|moment| moment.to_utc())
        .map_err(|_| Fault::shape(what, "a moment as in RFC 3339 (2030-01-31T08:00:00Z)"))
}

/// As a duration, if there is one of this length.
pub(crate) fn duration(seconds: f64) -> Result<Duration, Fault> {
    Duration::try_from_secs_f64(seconds).map_err(|_| EventError::TooLate.into())
}

pub(crate) fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// The parser's message without its position, which is relative to a part of the text.
fn without_position(error: &serde_json::Error) -> String {
    let words = error.to_string();
    words.rfind(" at line ").map_or(words.clone(), |end| words[..end].to_owned())
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key()? {
            if fields.len() > FIELDS_MAX {
                map.next_value::<IgnoredAny>()?;
            } else {
                fields.push((name, map.next_value()?));
            }
        }
        Ok(fields)
    }
}
