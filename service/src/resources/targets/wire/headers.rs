//! The headers of a target in a request: an object of names and values, in their order.
//!
//! No value is shown by `Debug`, and a name that is given twice is kept twice, to be refused.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use wakeq::targets::{InvalidHeaders, TargetHeaders};

/// Maximum number of headers that are read: one more than a target may have.
const READ_MAX: usize = TargetHeaders::COUNT_MAX + 1;

/// Headers as they are sent.
#[derive(Clone, Default)]
pub(crate) struct HeadersText(pub(crate) Vec<(String, String)>);

impl HeadersText {
    /// The headers, checked.
    pub(crate) fn read(self) -> Result<TargetHeaders, InvalidHeaders> {
        TargetHeaders::new(self.0)
    }
}

impl fmt::Debug for HeadersText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HeadersText(…)")
    }
}

impl Serialize for HeadersText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for HeadersText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeadersVisitor)
    }
}

struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = HeadersText;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of names and values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeadersText, A::Error> {
        let mut headers = Vec::new();
        while let Some((name, value)) = map.next_entry()? {
            if headers.len() < READ_MAX {
                headers.push((name, value));
            }
        }
        Ok(HeadersText(headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_an_object_in_its_order() {
        let text = r#"{"X-B":"1","x-a":"2"}"#;
        let headers: HeadersText = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&headers).unwrap(), text);
        assert_eq!(headers.read().unwrap().names().collect::<Vec<_>>(), ["x-b", "x-a"]);
        for other in ["[]", r#""x-a: 1""#, r#"{"x-a": 1}"#, r#"{"x-a": null}"#] {
            assert!(serde_json::from_str::<HeadersText>(other).is_err(), "{other}");
        }
        let many: Vec<_> = (0..1000).map(|number| format!("\"x-{number}\":\"1\"")).collect();
        let many: HeadersText = serde_json::from_str(&format!("{{{}}}", many.join(","))).unwrap();
        assert_eq!(many.read(), Err(InvalidHeaders::TooMany));
    }
}
