//! The metadata of an event, which the queue passes on to its handler and its listeners.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The fields that an event carries beside its value, from its emitter to its readers. In the JSON
/// of listeners and of the log, its fields have the names that they have here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The trace that the event belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Traceparent>,
}

impl Metadata {
    /// What the columns of a row hold.
    pub(crate) fn of(traceparent: Option<&str>) -> Self {
        Self { traceparent: traceparent.and_then(|text| text.parse().ok()) }
    }

    /// That of an event that begins a trace.
    pub(crate) fn root() -> Self {
        Self::default().traced(|_| Traceparent::root())
    }

    /// The same in the trace that `trace` makes of its own.
    pub(crate) fn traced(mut self, trace: impl FnOnce(Option<Traceparent>) -> Traceparent) -> Self {
        self.traceparent = Some(trace(self.traceparent.take()));
        self
    }
}

/// A W3C `traceparent`: version, trace id, parent span id, flags.
///
/// ```
/// use wakeq::events::Traceparent;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let parent: Traceparent = text.parse().unwrap();
/// assert_eq!(parent.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Traceparent(Box<str>);

/// A text that is not valid in a field of [`Metadata`]: what it is not, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidMetadata(&'static str);

const NO_TRACEPARENT: InvalidMetadata = InvalidMetadata(
    "not a W3C traceparent: expected 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, in lower case",
);

impl Traceparent {
    /// The root of a new, sampled trace.
    pub fn root() -> Self {
        let span = &Uuid::new_v4().simple().to_string()[..16];
        Self(format!("00-{}-{span}-01", Uuid::new_v4().simple()).into())
    }

    /// The whole header value.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The trace id: 32 hexadecimal digits, shared by all spans of the trace.
    pub fn trace_id(&self) -> &str {
        &self.0[3..35]
    }
}

impl FromStr for Traceparent {
    type Err = InvalidMetadata;

    fn from_str(text: &str) -> Result<Self, InvalidMetadata> {
        let parts: Vec<&str> = text.split('-').collect();
        let hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let some = |part: &str| part.bytes().any(|byte| byte != b'0');
        match parts.as_slice() {
            [version, trace, span, flags]
                if [version.len(), trace.len(), span.len(), flags.len()] == [2, 32, 16, 2]
                    && parts.iter().all(|part| hex(part))
                    && *version != "ff"
                    && some(trace)
                    && some(span) =>
            {
                Ok(Self(text.into()))
            }
            _ => Err(NO_TRACEPARENT),
        }
    }
}

impl TryFrom<String> for Traceparent {
    type Error = InvalidMetadata;

    fn try_from(text: String) -> Result<Self, InvalidMetadata> {
        text.parse()
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_valid_and_new_each_time() {
        let root = Traceparent::root();
        assert_eq!(root.as_str().parse(), Ok(root.clone()));
        assert_ne!(root, Traceparent::root());
    }

    #[test]
    fn what_is_not_a_traceparent_is_refused() {
        for text in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(text.parse::<Traceparent>(), Err(NO_TRACEPARENT), "{text}");
        }
    }
}
