//! The part of the W3C trace context that an event carries.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// A W3C `traceparent`: version, trace id, parent span id, flags.
///
/// ```
/// use wakeq::events::Traceparent;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let parent: Traceparent = text.parse().unwrap();
/// assert_eq!(parent.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Traceparent(Box<str>);

/// A text that is not a valid `traceparent`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a W3C traceparent: expected 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, in lower case")]
pub struct InvalidTraceparent;

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
    type Err = InvalidTraceparent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceparent> {
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
            _ => Err(InvalidTraceparent),
        }
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
            assert_eq!(text.parse::<Traceparent>(), Err(InvalidTraceparent), "{text}");
        }
    }
}
