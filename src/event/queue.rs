//! Registered queues: which events are copied into them.

use std::str::FromStr;

use regex::{RegexBuilder, RegexSet, RegexSetBuilder};
use uuid::Uuid;

use super::{CanvasId, EventId, HandlerAddress, HandlerScope, Name};

/// Longest pattern, in bytes.
const PATTERN_MAX: usize = 1024;
/// Largest compiled pattern, in bytes: `\w{1000}` exceeds it.
const COMPILED_MAX: usize = 256 * 1024;
/// Maximum memory for all compiled patterns together, and for the cache used while matching, in
/// bytes.
const SET_MAX: usize = 64 * 1024 * 1024;

/// A regular expression that selects the events copied into a queue. It is searched for anywhere in
/// the topic unless anchored with `^` or `$`.
///
/// An event's topic is `canvas:module:name`. The syntax is that of the crate `regex`, which matches
/// in linear time: no look-around, no back-references. At most 1,024 bytes.
///
/// ```
/// use wakeq::queues::QueuePattern;
///
/// let emails: QueuePattern = ".*:email_event:.*".parse().unwrap();
/// assert_eq!(emails.as_str(), ".*:email_event:.*");
/// assert!("email_event(".parse::<QueuePattern>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuePattern(Box<str>);

/// Why a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPattern {
    /// It is empty or too long.
    #[error("a pattern must have 1 to {PATTERN_MAX} bytes; this one has {0}")]
    Length(usize),
    /// It contains a NUL, which Postgres can't store.
    #[error("a pattern can't contain the character NUL")]
    Nul,
    /// It is not a regular expression, or too expensive.
    #[error("{0}")]
    Syntax(String),
}

impl QueuePattern {
    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for QueuePattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        if !(1..=PATTERN_MAX).contains(&text.len()) {
            return Err(InvalidPattern::Length(text.len()));
        }
        if text.contains('\0') {
            return Err(InvalidPattern::Nul);
        }
        let compiled = RegexBuilder::new(text).size_limit(COMPILED_MAX).build();
        match compiled {
            Ok(_) => Ok(Self(text.into())),
            Err(regex::Error::CompiledTooBig(_)) => Err(InvalidPattern::Syntax(
                "the pattern is too costly: use smaller repetitions, or fewer alternatives".into(),
            )),
            Err(error) => Err(InvalidPattern::Syntax(error.to_string())),
        }
    }
}

displayed_as_text!(QueuePattern);

/// Identifies a copy of an event. Every registered queue that matches an event has its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyOf {
    /// The queue that contains the copy.
    pub queue: Name,
    /// The event that was emitted.
    pub origin: EventId,
}

impl CopyOf {
    /// Built from an event's columns, on which the schema enforces the same rules; `None` if the
    /// event is not a copy.
    pub(crate) fn of(queue: Option<&str>, origin: Option<Uuid>) -> Option<Self> {
        Some(Self { queue: queue?.parse().ok()?, origin: EventId(origin?) })
    }
}

/// The address at which the HTTP target of a queue is registered, on a canvas without events.
pub(crate) fn target_of_queue(queue: &Name) -> HandlerAddress {
    let scope = HandlerScope { canvas: CanvasId::OF_QUEUES, module: Name::queue(), name: queue.clone() };
    HandlerAddress { scope, modifier: Name::no_modifier() }
}

/// The topic by which an event is matched and broadcast, `canvas:module:name`.
pub(crate) fn topic(address: &HandlerAddress) -> String {
    let scope = &address.scope;
    format!("{}:{}:{}", scope.canvas, scope.module, scope.name)
}

/// All registered patterns with their queues, matched at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueuePatterns {
    set: RegexSet,
    /// The queue of each pattern, at the pattern's index.
    queues: Vec<Name>,
}

impl QueuePatterns {
    pub(crate) fn new(registered: &[(Name, String)]) -> Result<Self, regex::Error> {
        let patterns = registered.iter().map(|(_, pattern)| pattern);
        let set = RegexSetBuilder::new(patterns).size_limit(SET_MAX).dfa_size_limit(SET_MAX).build()?;
        Ok(Self { set, queues: registered.iter().map(|(queue, _)| queue.clone()).collect() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The queues that receive a copy, each once.
    pub(crate) fn matching(&self, address: &HandlerAddress) -> Vec<&Name> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut queues: Vec<&Name> =
            self.set.matches(&topic(address)).into_iter().filter_map(|at| self.queues.get(at)).collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn address(module: &str, name: &str) -> HandlerAddress {
        let (canvas, module, name) = (CanvasId::DEFAULT, module.parse().unwrap(), name.parse().unwrap());
        HandlerAddress { scope: HandlerScope { canvas, module, name }, modifier: Name::no_modifier() }
    }

    fn patterns(list: &[(&str, &str)]) -> QueuePatterns {
        let list = list.iter().map(|(queue, pattern)| (queue.parse().unwrap(), (*pattern).to_owned()));
        QueuePatterns::new(&list.collect::<Vec<_>>()).unwrap()
    }

    // DRV-14
    #[test]
    fn a_topic_names_canvas_module_and_name() {
        let topic = topic(&address("email_event", "opened_email"));
        assert_eq!(topic, "00000000-0000-0000-0000-000000000000:email_event:opened_email");
    }

    #[test]
    fn an_event_goes_once_into_each_queue_with_a_pattern_for_it() {
        let patterns = patterns(&[
            ("emails", ".*:email_event:.*"),
            ("emails", "opened"),
            ("openings", ":opened_email$"),
            ("pages", ":page:"),
        ]);
        let queues = |module, name| {
            patterns.matching(&address(module, name)).into_iter().map(Name::as_str).collect::<Vec<_>>()
        };
        assert_eq!(queues("email_event", "opened_email"), ["emails", "openings"]);
        assert_eq!(queues("page", "viewed"), ["pages"]);
        assert!(queues("WORKER", "greet").is_empty());
    }

    #[test]
    fn rejects_invalid_or_costly_patterns() {
        let long = "x".repeat(1025);
        for text in ["", "(", "[", "a\0b", "(?=a)", r"(a)\1", r"\w{1000}", "((a{100}){100}){100}", &long] {
            assert!(text.parse::<QueuePattern>().is_err(), "{text:?}");
        }
        for text in [".*", "^0:page:", "page|email", r"\bopened\b", &"x".repeat(1024)] {
            assert!(text.parse::<QueuePattern>().is_ok(), "{text:?}");
        }
    }
}
