//! Batches: the names that many events share, how their members have ended, and the value of the
//! event that is emitted when the last of them has. Plain data, no store.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::handler::is_dots;

/// Longest name, in bytes.
const NAME_MAX: usize = 255;

/// The name of a batch, such as `import:42`: 1 to 255 visible ASCII characters, without spaces, but
/// neither `.` nor `..`, which no path can contain. It names one batch of its canvas.
///
/// ```
/// use wakeq::events::BatchName;
///
/// let name: BatchName = "import:42".parse().unwrap();
/// assert_eq!(name.as_str(), "import:42");
/// assert!("no spaces".parse::<BatchName>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BatchName(Box<str>);

/// A text that is not the name of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a batch's name has 1 to 255 visible ASCII characters, without spaces, and is neither . nor ..: \
     shorten or encode it"
)]
pub struct InvalidBatchName;

impl BatchName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BatchName {
    type Err = InvalidBatchName;

    fn from_str(text: &str) -> Result<Self, InvalidBatchName> {
        let is_name = (1..=NAME_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
            && !is_dots(text);
        if is_name { Ok(Self(text.into())) } else { Err(InvalidBatchName) }
    }
}

impl TryFrom<String> for BatchName {
    type Error = InvalidBatchName;

    fn try_from(text: String) -> Result<Self, InvalidBatchName> {
        text.parse()
    }
}

impl From<BatchName> for String {
    fn from(name: BatchName) -> Self {
        name.0.into()
    }
}

displayed_as_text!(BatchName);

/// How the members of a batch have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchCounts {
    /// Their handlers completed them.
    pub completed: u64,
    /// They died. A redrive changes nothing of that.
    pub dead: u64,
    /// They were cancelled, or purged.
    pub cancelled: u64,
}

impl BatchCounts {
    pub(crate) fn of(completed: u64, dead: u64, cancelled: u64) -> Self {
        Self { completed, dead, cancelled }
    }

    /// All that have ended.
    pub fn total(self) -> u64 {
        self.completed.saturating_add(self.dead).saturating_add(self.cancelled)
    }
}

/// The value of the event that is emitted at the end of a batch.
#[derive(Serialize)]
struct EndedValue<'a> {
    batch: &'a BatchName,
    completed: u64,
    dead: u64,
    cancelled: u64,
    total: u64,
    value: &'a RawValue,
}

/// The value of the event that is emitted at the end of a batch, as JSON: the counts, and the value
/// that the batch was opened with.
pub(crate) fn ended_value(batch: &BatchName, counts: BatchCounts, value: &str) -> String {
    let BatchCounts { completed, dead, cancelled } = counts;
    let value = serde_json::from_str(value).unwrap_or(RawValue::NULL);
    let ended = EndedValue { batch, completed, dead, cancelled, total: counts.total(), value };
    serde_json::to_string(&ended).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_visible_ascii_of_at_most_255_bytes() {
        for name in ["import:42", "a", "...", "a/b", "~!", &"x".repeat(255)] {
            assert_eq!(name.parse::<BatchName>().map(String::from), Ok(name.to_owned()));
        }
        for text in ["", ".", "..", "a b", "ä", "a\n", &"x".repeat(256)] {
            assert_eq!(text.parse::<BatchName>(), Err(InvalidBatchName), "{text:?}");
        }
    }

    #[test]
    fn a_name_is_read_from_json_as_strictly() {
        let name: BatchName = serde_json::from_str(r#""import:42""#).unwrap();
        assert_eq!(serde_json::to_string(&name).unwrap(), r#""import:42""#);
        assert!(serde_json::from_str::<BatchName>(r#""import 42""#).is_err());
    }

    #[test]
    fn the_value_at_the_end_has_the_counts_and_the_value_of_the_opening() {
        let counts = BatchCounts { completed: 5, dead: 2, cancelled: 1 };
        let value = ended_value(&r#"a"b"#.parse().unwrap(), counts, r#"{"file": 42.0}"#);
        assert_eq!(
            value,
            r#"{"batch":"a\"b","completed":5,"dead":2,"cancelled":1,"total":8,"value":{"file": 42.0}}"#
        );
    }
}
