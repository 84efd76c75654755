//! The well-known types of `google.protobuf` that the service's messages have: as on the wire, and
//! in the JSON form that proto3 prescribes.
//!
//! What is no JSON form is refused with words that say what one looks like. Whether a value makes
//! sense where it stands is for others.

mod duration;
mod field_mask;
mod structure;
#[cfg(test)]
mod tests;
mod timestamp;

pub use duration::Duration;
pub use field_mask::FieldMask;
pub use structure::{ListValue, Struct, Value, value};
pub use timestamp::Timestamp;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// `google.protobuf.Empty`: nothing. In JSON `{}`.
#[derive(Clone, Copy, Deserialize, Eq, Hash, PartialEq, Serialize, prost::Message)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// `google.protobuf.Any`: a message and what it is, on the wire only.
#[derive(Clone, Eq, Hash, PartialEq, prost::Message)]
pub struct Any {
    /// `type.googleapis.com/`, and the message's full name.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// What follows the seconds: nothing, or a point and as many digits as are needed of 3, 6 and 9.
fn fraction(nanos: u32) -> String {
    match nanos {
        0 => String::new(),
        _ if nanos.is_multiple_of(1_000_000) => format!(".{:03}", nanos / 1_000_000),
        _ if nanos.is_multiple_of(1_000) => format!(".{:06}", nanos / 1_000),
        _ => format!(".{nanos:09}"),
    }
}

/// The nanoseconds that one to nine digits after a point say.
fn nanos(digits: &str) -> Option<u32> {
    let digit_count = u32::try_from(digits.len()).ok().filter(|count| (1..=9).contains(count))?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse::<u32>().ok()? * 10_u32.pow(9 - digit_count))
}
