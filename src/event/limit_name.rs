//! What limits are named by: the keys that emits name, and the names of limits. Plain text, checked
//! when it is read.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::handler::is_dots;
use super::{HandlerScope, InvalidName, Name};

/// Maximum number of keys of an event.
pub(super) const KEYS_MAX: usize = 3;
/// Longest key, in bytes.
const KEY_MAX: usize = 200;
/// The limit of all events of a canvas.
const CANVAS: &str = "canvas";
/// What the limits of handlers begin with.
const HANDLER: &str = "handler:";

/// A key of an event, such as `customer:7`, by which limits count it: 1 to 200 of the characters
/// `A-Z a-z 0-9 _ . : @ = + ~ -`. It is neither `.` nor `..`, nor `canvas`, and begins with neither
/// `canvas:` nor `handler:`, which name other limits.
///
/// The limit of a key is the one that has exactly its name. If there is none, it is the one that is
/// named as its [family](Self::family), and then every key of the family has as much as that limit
/// says. A key without a limit is not limited.
///
/// ```
/// use wakeq::limits::LimitKey;
///
/// let key: LimitKey = "customer:7".parse().unwrap();
/// assert_eq!(key.family(), Some("customer"));
/// assert!("handler:WORKER/greet".parse::<LimitKey>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct LimitKey(Box<str>);

/// A text that is not the key of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a limit's key has 1 to 200 of the characters A-Z a-z 0-9 _ . : @ = + ~ -, is neither ., .. nor canvas, \
     and begins with neither canvas: nor handler: (their limits always count, so shorten or encode the key)"
)]
pub struct InvalidLimitKey;

impl LimitKey {
    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the first `:`, whose limit counts for the key if it has none of its own.
    pub fn family(&self) -> Option<&str> {
        self.0.split_once(':').map(|(family, _)| family)
    }
}

impl FromStr for LimitKey {
    type Err = InvalidLimitKey;

    fn from_str(text: &str) -> Result<Self, InvalidLimitKey> {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:@=+~-".contains(&byte);
        let is_reserved = text.split(':').next() == Some(CANVAS) || text.starts_with(HANDLER);
        let is_key =
            (1..=KEY_MAX).contains(&text.len()) && text.bytes().all(valid) && !is_dots(text) && !is_reserved;
        if is_key { Ok(Self(text.into())) } else { Err(InvalidLimitKey) }
    }
}

impl TryFrom<String> for LimitKey {
    type Error = InvalidLimitKey;

    fn try_from(text: String) -> Result<Self, InvalidLimitKey> {
        text.parse()
    }
}

displayed_as_text!(LimitKey);

/// What a limit limits, as text: `canvas` for all events of its canvas, `handler:WORKER/send-mail`
/// for those of a handler with all its modifiers, or a [key](LimitKey) or family of keys that emits
/// name.
///
/// ```
/// use wakeq::HandlerScope;
/// use wakeq::limits::LimitName;
///
/// let scope = HandlerScope::worker(Default::default(), "send-mail").unwrap();
/// assert_eq!(LimitName::of_handler(&scope).as_str(), "handler:WORKER/send-mail");
/// assert_eq!("canvas".parse(), Ok(LimitName::of_canvas()));
/// assert!("customer".parse::<LimitName>().is_ok());
/// assert!("handler:send-mail".parse::<LimitName>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct LimitName(Box<str>);

/// A text that is not the name of a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLimitName {
    /// It is not the key or the family of keys that emits could name.
    #[error(
        "a limit is named canvas, handler:MODULE/NAME, or as a key or a family of keys that emits name: \
         1 to 200 of the characters A-Z a-z 0-9 _ . : @ = + ~ -, and not . or .. alone"
    )]
    Key,
    /// It names no handler.
    #[error("the limit of a handler is named handler:MODULE/NAME, as in handler:WORKER/send-mail")]
    Handler,
    /// A part of the handler's address is not a valid name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// It names what has no events of its own.
    #[error(
        "no events have the module {0}: in_flight_max of its facets limits copies in a queue, and the limit \
         canvas the events of a canvas"
    )]
    Module(Name),
}

impl LimitName {
    /// The limit of all events of a canvas.
    pub fn of_canvas() -> Self {
        Self(CANVAS.into())
    }

    /// The limit of a handler, with all its modifiers. On which canvas it holds is not part of its
    /// name.
    pub fn of_handler(scope: &HandlerScope) -> Self {
        Self(format!("{HANDLER}{scope}").into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a key that emits name, or a family of such keys.
    pub fn is_key(&self) -> bool {
        &*self.0 != CANVAS && !self.is_handler()
    }

    /// Whether it is the limit of a handler.
    pub(crate) fn is_handler(&self) -> bool {
        self.0.starts_with(HANDLER)
    }

    /// The module and the name of the handler, if it is the limit of one.
    pub(crate) fn handler(&self) -> Option<(Name, Name)> {
        let (module, name) = self.0.strip_prefix(HANDLER)?.split_once('/')?;
        Some((module.parse().ok()?, name.parse().ok()?))
    }
}

impl FromStr for LimitName {
    type Err = InvalidLimitName;

    fn from_str(text: &str) -> Result<Self, InvalidLimitName> {
        if text == CANVAS {
            return Ok(Self::of_canvas());
        }
        if let Some(handler) = text.strip_prefix(HANDLER) {
            let (module, name) = handler.split_once('/').ok_or(InvalidLimitName::Handler)?;
            let (module, _): (Name, Name) = (module.parse()?, name.parse()?);
            if module == Name::queue() || module == Name::canvas() {
                return Err(InvalidLimitName::Module(module));
            }
            return Ok(Self(text.into()));
        }
        text.parse::<LimitKey>().map(Self::from).map_err(|_| InvalidLimitName::Key)
    }
}

impl TryFrom<String> for LimitName {
    type Error = InvalidLimitName;

    fn try_from(text: String) -> Result<Self, InvalidLimitName> {
        text.parse()
    }
}

impl From<LimitKey> for LimitName {
    fn from(key: LimitKey) -> Self {
        Self(key.0)
    }
}

displayed_as_text!(LimitName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_limits_and_name_neither_canvas_nor_handler() {
        let long = "~".repeat(200);
        for text in
            ["customer:7", "a", "...", ":7", "handler", "canvases:1", "Canvas", "a=b@c+d-e_f.g", &long]
        {
            assert_eq!(text.parse::<LimitKey>().unwrap().as_str(), text);
        }
        let longer = "x".repeat(201);
        for text in [
            "",
            ".",
            "..",
            "a b",
            "a/b",
            "a,b",
            "é",
            "a\n",
            "canvas",
            "canvas:7",
            "handler:",
            "handler:a",
            &longer,
        ] {
            assert_eq!(text.parse::<LimitKey>(), Err(InvalidLimitKey), "{text:?}");
        }
        assert!(serde_json::from_str::<LimitKey>(r#""a,b""#).is_err());
    }

    #[test]
    fn a_family_is_what_stands_before_the_first_colon() {
        for (key, family) in
            [("customer:7", Some("customer")), ("a:b:c", Some("a")), ("a", None), (":7", Some(""))]
        {
            assert_eq!(key.parse::<LimitKey>().unwrap().family(), family, "{key}");
        }
    }

    #[test]
    fn names_are_a_canvas_a_handler_or_a_key() {
        let long = format!("handler:{0}/{0}", "x".repeat(128));
        for (text, is_key) in [
            ("canvas", false),
            ("handler:CRON/report", false),
            (long.as_str(), false),
            ("customer", true),
            ("a:1", true),
        ] {
            let name: LimitName = text.parse().unwrap();
            assert_eq!((name.as_str(), name.is_key()), (text, is_key));
        }
        for text in
            ["", "canvas:1", "a/b", "handler:", "handler:a", "handler:a/", "handler:/b", "handler:a/b/c"]
        {
            assert!(text.parse::<LimitName>().is_err(), "{text:?}");
        }
        for text in ["handler:QUEUE/mails", "handler:CANVAS/_"] {
            assert!(matches!(text.parse::<LimitName>(), Err(InvalidLimitName::Module(_))), "{text:?}");
        }
    }
}
