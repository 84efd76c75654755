//! A condition on the value of an event: that what a path leads to equals a scalar. A path names
//! one place and has no wildcards, so that it costs no more than to read the value.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most steps of a path.
const STEPS_MAX: usize = 16;
/// Longest step of a path, in bytes.
const STEP_MAX: usize = 128;
/// Longest text that a value is compared with, in bytes.
const EQUALS_MAX: usize = 1000;

const MALFORMED: InvalidFilter =
    InvalidFilter(r#"a condition on the value looks like $.customer.id = "7" or $.lines[0].sku = 7"#);

/// A condition on an event's value, such as `$.customer.id = "7"`: the path leads to a string,
/// number, truth value or null that equals the one given. Numbers are compared as numbers.
///
/// A step of the path names a member of an object, or by its number an element of an array, as in
/// `$.lines[0].sku = 7`. Names with other characters than letters, digits, `_` and `-` are in
/// brackets and quotes, as in `$["first name"] = "Ada"`. `$ = 7` is about the whole value. A path
/// has at most 16 steps of 128 bytes, and a string at most 1,000 bytes.
///
/// ```
/// use wakeq::control::ValueCondition;
///
/// let condition: ValueCondition = r#"$.customer.id="7""#.parse().unwrap();
/// assert_eq!(condition.to_string(), r#"$.customer.id = "7""#);
/// assert!("$.customer.id > 7".parse::<ValueCondition>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct ValueCondition {
    path: Vec<String>,
    equals: Value,
}

/// What is wrong with a filter of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidFilter(pub(crate) &'static str);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    path: Vec<String>,
    equals: Value,
}

impl ValueCondition {
    /// A condition that the place to which the path leads equals a scalar.
    ///
    /// ```
    /// use wakeq::control::ValueCondition;
    ///
    /// let path = vec!["customer".to_owned(), "id".to_owned()];
    /// assert_eq!(ValueCondition::new(path, "7").unwrap().to_string(), r#"$.customer.id = "7""#);
    /// ```
    pub fn new(path: Vec<String>, equals: impl Into<Value>) -> Result<Self, InvalidFilter> {
        let equals = equals.into();
        if path.len() > STEPS_MAX || path.iter().any(|step| step.len() > STEP_MAX || step.contains('\0')) {
            return Err(InvalidFilter("a path into a value has at most 16 steps of 128 bytes, without NUL"));
        }
        match &equals {
            Value::String(text) if text.len() > EQUALS_MAX || text.contains('\0') => Err(InvalidFilter(
                "a string in a condition on the value has at most 1,000 bytes, without NUL",
            )),
            Value::Array(_) | Value::Object(_) => {
                Err(InvalidFilter("a value is compared with a string, a number, true, false or null"))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Self { path, equals }),
        }
    }

    /// Whether a value, as JSON text, meets it. One that is not JSON does not.
    pub(super) fn is_met_by(&self, value: &str) -> bool {
        let Ok(value) = serde_json::from_str::<Value>(value) else { return false };
        let found = self.path.iter().try_fold(&value, |value, step| stepped(value, step));
        found.is_some_and(|found| is_equal(found, &self.equals))
    }
}

/// What a step leads to: as `#>` in Postgres, an index counts from the end if it is negative.
fn stepped<'v>(value: &'v Value, step: &str) -> Option<&'v Value> {
    match value {
        Value::Object(members) => members.get(step),
        Value::Array(elements) => {
            let index: i32 = step.trim_ascii_start().parse().ok()?;
            let from_end = if index < 0 { elements.len() } else { 0 };
            elements.get(from_end.checked_add_signed(index as isize)?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    }
}

impl TryFrom<Unchecked> for ValueCondition {
    type Error = InvalidFilter;

    fn try_from(Unchecked { path, equals }: Unchecked) -> Result<Self, InvalidFilter> {
        Self::new(path, equals)
    }
}

impl FromStr for ValueCondition {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, InvalidFilter> {
        let mut rest = text.trim_start().strip_prefix('$').ok_or(MALFORMED)?;
        let mut path = Vec::new();
        while rest.starts_with(['.', '[']) {
            if path.len() == STEPS_MAX {
                return Err(InvalidFilter("a path into a value has at most 16 steps"));
            }
            let (step, after) = parsed_step(rest).ok_or(MALFORMED)?;
            path.push(step);
            rest = after;
        }
        let equals = rest.trim_start().strip_prefix('=').ok_or(MALFORMED)?;
        Self::new(path, serde_json::from_str::<Value>(equals).map_err(|_| MALFORMED)?)
    }
}

/// The first step of the text, and what comes after it.
fn parsed_step(text: &str) -> Option<(String, &str)> {
    if let Some(named) = text.strip_prefix('.') {
        let end = named.find(|character: char| !is_plain(character)).unwrap_or(named.len());
        let (name, after) = named.split_at(end);
        return (!name.is_empty()).then(|| (name.to_owned(), after));
    }
    let inside = text.strip_prefix('[')?;
    if inside.starts_with('"') {
        let mut names = serde_json::Deserializer::from_str(inside).into_iter::<String>();
        let name = names.next()?.ok()?;
        let after = inside.get(names.byte_offset()..)?.strip_prefix(']')?;
        return Some((name, after));
    }
    let (index, after) = inside.split_once(']')?;
    let is_index = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    is_index.then(|| (index.to_owned(), after))
}

fn is_plain(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-')
}

impl fmt::Display for ValueCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("$")?;
        for step in &self.path {
            if !step.is_empty() && step.chars().all(is_plain) {
                write!(formatter, ".{step}")?;
            } else {
                write!(formatter, "[{}]", Value::from(step.as_str()))?;
            }
        }
        write!(formatter, " = {}", self.equals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &str =
        r#"{"customer":{"id":"7","first name":"Ada","note":null},"lines":[{"sku":7,"n":1.0},true]}"#;

    fn is_met(condition: &str) -> bool {
        condition.parse::<ValueCondition>().unwrap().is_met_by(ORDER)
    }

    #[test]
    fn a_path_leads_to_one_place() {
        for met in [
            r#"$.customer.id = "7""#,
            r#"  $.customer["first name"]="Ada""#,
            "$.customer.note = null",
            "$.lines[0].sku = 7",
            "$.lines[0].sku = 7.0",
            "$.lines[0].n = 1",
            "$.lines.0.sku = 7",
            "$.lines[1]=true",
            "$.lines.-1 = true",
        ] {
            assert!(is_met(met), "{met}");
        }
        for not_met in [
            "$.customer.id = 7",
            "$.customer.missing = null",
            "$.lines[2] = true",
            "$.lines.-3 = true",
            "$.lines.x = 7",
            "$.lines[1].x = true",
            "$ = 7",
        ] {
            assert!(!is_met(not_met), "{not_met}");
        }
        assert!("$ = 7".parse::<ValueCondition>().unwrap().is_met_by("7"));
        assert!(!"$ = 7".parse::<ValueCondition>().unwrap().is_met_by("not JSON"));
    }

    #[test]
    fn what_is_not_such_a_condition_is_refused() {
        for text in [
            "",
            "7",
            "customer = 7",
            "$.customer",
            "$.customer =",
            "$.customer = seven",
            "$. = 7",
            "$.a..b = 7",
            "$[ = 7",
            "$[a] = 7",
            "$[] = 7",
            "$[*] = 7",
            r#"$["a] = 7"#,
            r#"$["a" = 7"#,
            "$.a > 7",
            "$.a == 7",
            "$.a = [7]",
            "$.a = {}",
            "$.a = 7 7",
        ] {
            assert!(text.parse::<ValueCondition>().is_err(), "{text}");
        }
        let (long, deep) = (format!("$.{} = 7", "x".repeat(129)), format!("${} = 7", ".a".repeat(17)));
        let wide = format!("$.a = \"{}\"", "x".repeat(1001));
        for text in [long, deep, wide, r#"$["\u0000"] = 7"#.to_owned(), r#"$.a = "\u0000""#.to_owned()] {
            assert!(text.parse::<ValueCondition>().is_err(), "{text}");
        }
    }

    #[test]
    fn its_text_and_its_json_say_the_same() {
        for text in [r#"$.a-b.é["first name"][""]["\"]"].0 = "=\"7""#, "$ = null", "$.a = 7.5"] {
            let condition: ValueCondition = text.parse().unwrap();
            assert_eq!(condition.to_string(), text);
            let json = serde_json::to_string(&condition).unwrap();
            assert_eq!(serde_json::from_str::<ValueCondition>(&json).unwrap(), condition);
        }
        assert!(serde_json::from_str::<ValueCondition>(r#"{"path":["a"],"equals":[]}"#).is_err());
        assert!(serde_json::from_str::<ValueCondition>(r#"{"path":["a"]}"#).is_err());
    }
}
