//! Tags: short texts by which events are found.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum number of tags of an event.
pub(crate) const TAGS_MAX: usize = 10;
/// Longest tag, in bytes.
const TAG_MAX: usize = 100;

/// A tag of an event, such as `customer:7`: 1 to 100 printable ASCII characters, without a comma,
/// and without a space at either end.
///
/// ```
/// use wakeq::events::Tag;
///
/// assert_eq!("customer:7".parse::<Tag>().unwrap().as_str(), "customer:7");
/// assert!("one,two".parse::<Tag>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Tag(Box<str>);

/// A text that is not a valid tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a tag has 1 to 100 printable ASCII characters, without a comma, and without a space at either end: \
     shorten or encode it"
)]
pub struct InvalidTag;

impl Tag {
    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tag {
    type Err = InvalidTag;

    fn from_str(text: &str) -> Result<Self, InvalidTag> {
        let valid = |byte: u8| matches!(byte, b' '..=b'~') && byte != b',';
        if (1..=TAG_MAX).contains(&text.len()) && text.bytes().all(valid) && text.trim_matches(' ') == text {
            Ok(Self(text.into()))
        } else {
            Err(InvalidTag)
        }
    }
}

impl TryFrom<String> for Tag {
    type Error = InvalidTag;

    fn try_from(text: String) -> Result<Self, InvalidTag> {
        text.parse()
    }
}

displayed_as_text!(Tag);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_have_limits() {
        let long = "~".repeat(100);
        for text in ["customer:7", "!", "two words", "a\"b", &long] {
            assert_eq!(text.parse::<Tag>().unwrap().as_str(), text);
        }
        for text in ["", " ", " a", "a ", "a,b", "é", "a\n", "\u{7f}", &"x".repeat(101)] {
            assert_eq!(text.parse::<Tag>(), Err(InvalidTag), "{text:?}");
        }
        assert!(serde_json::from_str::<Tag>(r#""a,b""#).is_err());
    }
}
