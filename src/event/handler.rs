//! The address of an event's handler, made of validated names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::CanvasId;

/// Modules whose events only wakeq itself emits, so that their handlers can trust the content:
/// ticks of crons, answers of entities, and copies in registered queues; and that of switches,
/// which has no events. Every way to emit refuses them, plain SQL included.
pub(crate) const RESERVED_MODULES: [&str; 4] = ["ANSWER", "CANVAS", "CRON", "QUEUE"];

/// One part of a handler's address: `[A-Za-z0-9_.-]{1,128}`, but neither `.` nor `..`, which no
/// path can contain.
///
/// ```
/// use wakeq::Name;
///
/// assert_eq!("send-email".parse::<Name>().unwrap().as_str(), "send-email");
/// assert!("no spaces".parse::<Name>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(Box<str>);

/// A text that is not a valid part of a handler's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a valid name: use 1 to 128 of the characters A-Z a-z 0-9 _ . -, and not . or .. alone"
)]
pub struct InvalidName {
    /// The refused text, cut to 128 characters.
    pub text: String,
}

impl Name {
    /// `WORKER`, the module of events that user code emits.
    pub fn worker() -> Self {
        Self("WORKER".into())
    }

    /// The module of events that crons emit.
    pub(crate) fn cron() -> Self {
        Self("CRON".into())
    }

    /// The module of events with which entities report the outcome of other events.
    pub(crate) fn answer() -> Self {
        Self("ANSWER".into())
    }

    /// The name of an erasure in an entity's inbox. The name alone does not make it one.
    #[doc(hidden)]
    pub fn erasure() -> Self {
        Self("wakeq.erase".into())
    }

    /// Whether only wakeq itself emits events of this module: see [`RESERVED_MODULES`].
    pub(crate) fn is_reserved_module(&self) -> bool {
        RESERVED_MODULES.contains(&self.as_str())
    }

    /// The module under which the HTTP targets of queues are registered.
    pub(crate) fn queue() -> Self {
        Self("QUEUE".into())
    }

    /// The module of the rules that stop whole canvases, in which there are no events.
    pub(crate) fn canvas() -> Self {
        Self("CANVAS".into())
    }

    /// The lock of the coordinator of consumer groups.
    #[doc(hidden)]
    pub fn coordinator() -> Self {
        Self("coordinator".into())
    }

    /// `_`, the modifier that means "none".
    pub fn no_modifier() -> Self {
        Self("_".into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether the text is `.` or `..`: in a path these mean something else, so that nothing of this
/// name could be shown or changed over HTTP.
pub(super) fn is_dots(text: &str) -> bool {
    matches!(text, "." | "..")
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if (1..=128).contains(&text.len()) && text.bytes().all(valid) && !is_dots(text) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidName { text: text.chars().take(128).collect() })
        }
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

displayed_as_text!(Name);

/// A handler with all its modifiers, to which rules and counts apply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerScope {
    /// The tenant.
    pub canvas: CanvasId,
    /// The module: `WORKER` for events that user code emits.
    pub module: Name,
    /// The handler's name.
    pub name: Name,
}

impl HandlerScope {
    /// The handler `name` of module `WORKER` on a canvas.
    ///
    /// ```
    /// use wakeq::{CanvasId, HandlerScope};
    ///
    /// let scope = HandlerScope::worker(CanvasId::DEFAULT, "send-email").unwrap();
    /// assert_eq!(scope.to_string(), "WORKER/send-email");
    /// ```
    pub fn worker(canvas: CanvasId, name: &str) -> Result<Self, InvalidName> {
        Ok(Self { canvas, module: Name::worker(), name: name.parse()? })
    }

    /// What the rules of a whole canvas are stored under.
    pub(crate) fn of_canvas(canvas: CanvasId) -> Self {
        Self { canvas, module: Name::canvas(), name: Name::no_modifier() }
    }

    /// What the rules on everything are stored under.
    pub(crate) fn of_everything() -> Self {
        Self::of_canvas(CanvasId::OF_ALL)
    }

    /// What a rule that is stored under this stops.
    pub(crate) fn reach(&self) -> RuleReach {
        match (self.module == Name::canvas(), self.canvas.is_reserved()) {
            (false, _) => RuleReach::Handler,
            (true, false) => RuleReach::Canvas,
            (true, true) => RuleReach::Everything,
        }
    }
}

impl fmt::Display for HandlerScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{}/{}", self.module, self.name))
    }
}

/// What a rule stops. The wider is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleReach {
    /// A handler, with all its modifiers.
    Handler,
    /// A whole canvas.
    Canvas,
    /// Every canvas, and every queue.
    Everything,
}

/// The exact handler that runs an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerAddress {
    /// Canvas, module and name.
    pub scope: HandlerScope,
    /// Distinguishes handlers of the same name; `_` if there is only one.
    pub modifier: Name,
}

impl fmt::Display for HandlerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{}/{}", self.scope, self.modifier))
    }
}
