//! Checks which payloads are accepted: JSON text of limited depth, whose strings and numbers every
//! consumer can represent.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Deepest nesting of arrays and objects in a payload.
const DEPTH_LIMIT: usize = 64;

/// Why a payload was refused. Nothing was stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The value has no JSON form, or the text is not JSON.
    #[error("the value is not JSON")]
    Invalid(#[source] serde_json::Error),
    /// The value is nested more than 64 levels deep.
    #[error("the value is nested deeper than {DEPTH_LIMIT} levels: flatten it, or pass a reference to it")]
    TooDeep,
    /// A string contains the character NUL, which Postgres and many consumers can't represent.
    #[error("the value has a NUL character (\\u0000) in a string: remove it, or encode the bytes as base64")]
    Nul,
    /// A string contains half of a surrogate pair, which is not a character.
    #[error(
        "the value has a lone surrogate (\\ud800 to \\udfff) in a string: write both halves of the pair, or none"
    )]
    Surrogate(#[source] serde_json::Error),
    /// A number is too large for a 64-bit float, which is how most consumers read numbers.
    #[error("the value has a number beyond 1.8e308: write it as a string")]
    Number(#[source] serde_json::Error),
}

/// Checks JSON text in one pass, without building the value.
pub fn check(text: &str) -> Result<(), JsonError> {
    let fault = Cell::new(None);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let checked = DepthCheck { depth: 0, fault: &fault }.deserialize(&mut deserializer);
    checked.and_then(|()| deserializer.end()).map_err(|error| match fault.get() {
        Some(JsonFault::TooDeep) => JsonError::TooDeep,
        Some(JsonFault::Nul) => JsonError::Nul,
        None => classify(error),
    })
}

/// The parser's errors can be told apart only by their text; tests notice if that changes.
fn classify(error: serde_json::Error) -> JsonError {
    let words = error.to_string();
    if words.starts_with("number out of range") {
        JsonError::Number(error)
    } else if words.contains("surrogate") || words.starts_with("unexpected end of hex escape") {
        JsonError::Surrogate(error)
    } else {
        JsonError::Invalid(error)
    }
}

#[derive(Clone, Copy)]
enum JsonFault {
    TooDeep,
    Nul,
}

/// Visits a value that is nested in `depth` arrays and objects.
#[derive(Clone, Copy)]
struct DepthCheck<'a> {
    depth: usize,
    fault: &'a Cell<Option<JsonFault>>,
}

impl DepthCheck<'_> {
    fn inside<E: Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH_LIMIT {
            return Err(self.stopped(JsonFault::TooDeep));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    fn stopped<E: Error>(self, fault: JsonFault) -> E {
        self.fault.set(Some(fault));
        E::custom("refused")
    }
}

impl<'de> DeserializeSeed<'de> for DepthCheck<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DepthCheck<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if text.contains('\0') { Err(self.stopped(JsonFault::Nul)) } else { Ok(()) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inside = self.inside()?;
        while items.next_element_seed(inside)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let inside = self.inside()?;
        while entries.next_key_seed(inside)?.is_some() {
            entries.next_value_seed(inside)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn depth_is_limited_at_64() {
        assert!(check(&nested(64)).is_ok());
        assert!(matches!(check(&nested(65)), Err(JsonError::TooDeep)));
        let objects = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        assert!(check(&objects(64)).is_ok());
        assert!(matches!(check(&objects(65)), Err(JsonError::TooDeep)));
        assert!(matches!(check(&nested(100_000)), Err(JsonError::TooDeep)));
        assert!(check(&format!("{:?}", "[".repeat(100))).is_ok(), "brackets in strings do not nest");
    }

    #[test]
    fn nul_is_refused_wherever_it_stands() {
        assert!(matches!(check(r#"{"a":"x\u0000"}"#), Err(JsonError::Nul)));
        assert!(matches!(check(r#"{"a\u0000":1}"#), Err(JsonError::Nul)));
        assert!(check(r#""\\u0000""#).is_ok(), "an escaped backslash before u0000 is plain text");
        assert!(matches!(check(r#""\\\u0000""#), Err(JsonError::Nul)));
    }

    #[test]
    fn half_a_surrogate_pair_is_refused() {
        for text in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800x""#,
            r#""\ud800\n""#,
            r#""\ud800\ud800""#,
            r#"{"\udfff":1}"#,
            r#"["\uD800\u0041"]"#,
        ] {
            let error = check(text).unwrap_err();
            assert!(matches!(error, JsonError::Surrogate(_)), "{text}: {error:?}");
        }
        assert!(check(r#""\ud83d\ude00""#).is_ok(), "both halves");
        assert!(check(r#""\\ud800""#).is_ok(), "plain text");
    }

    #[test]
    fn numbers_are_those_that_a_float_can_hold() {
        for text in ["1e999", "-1e999", "[1e309]", r#"{"a":1e400}"#] {
            let error = check(text).unwrap_err();
            assert!(matches!(error, JsonError::Number(_)), "{text}: {error:?}");
        }
        for text in ["1e308", "-0", "1e-999", "0.1", "18446744073709551615", &"9".repeat(300)] {
            assert!(check(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn rejects_invalid_json() {
        for text in [
            "",
            "{",
            "nul",
            "01",
            "1 2",
            "[1,]",
            "{1:2}",
            "'a'",
            "\"\u{1}\"",
            r#""\x""#,
            "NaN",
            "[1] x",
            r#""\u12""#,
        ] {
            let error = check(text).unwrap_err();
            assert!(matches!(error, JsonError::Invalid(_)), "{text}: {error:?}");
        }
        for text in ["null", " true ", "\"\"", r#"{"a":1,"a":[]}"#, "[[],{}]"] {
            assert!(check(text).is_ok(), "{text}");
        }
    }
}
