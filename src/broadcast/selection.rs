//! The selection of a listener: a pattern, and the canvases that it may see. It can also be written
//! as a filter of the broker, which saves traffic; but only the check here counts.

use super::TopicPattern;
use crate::event::{Broadcast, CanvasId};

/// Pub/Sub refuses longer filters.
#[cfg(any(feature = "pubsub", test))]
const FILTER_MAX_BYTES: usize = 256;

/// The events that a listener receives.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pattern: TopicPattern,
    /// `None` for every canvas.
    canvases: Option<Vec<CanvasId>>,
}

impl Selection {
    pub(super) fn new(pattern: TopicPattern, canvases: Option<Vec<CanvasId>>) -> Self {
        Self { pattern, canvases }
    }

    /// Whether a broadcast is for this listener.
    pub(super) fn selects(&self, broadcast: &Broadcast) -> bool {
        let canvas = broadcast.address.scope.canvas;
        // Signals, on a reserved canvas, are only for listeners that name that canvas.
        let may = self.canvases.as_ref().map_or(!canvas.is_reserved(), |canvases| canvases.contains(&canvas));
        may && self.pattern.matches(&broadcast.topic())
    }

    /// As much of it as fits into a filter of Pub/Sub, the canvases first. Empty if nothing fits.
    #[cfg(any(feature = "pubsub", test))]
    pub(crate) fn filter(&self) -> String {
        let canvases = self.canvases.as_ref().map(|canvases| one_of(canvases));
        let names = ["canvas", "module", "name"];
        let parts = names.into_iter().zip(self.pattern.parts()).map(|(name, (text, whole))| {
            // Only plain characters, which can't end or begin a string; no topic has others.
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
            (!text.is_empty() && text.chars().all(plain)).then(|| match whole {
                true => format!("attributes.{name} = \"{text}\""),
                false => format!("hasPrefix(attributes.{name}, \"{text}\")"),
            })
        });
        let mut filter = String::new();
        for clause in canvases.into_iter().chain(parts.flatten()) {
            let and = if filter.is_empty() { "" } else { " AND " };
            if !clause.is_empty() && filter.len() + and.len() + clause.len() <= FILTER_MAX_BYTES {
                filter.push_str(and);
                filter.push_str(&clause);
            }
        }
        filter
    }
}

#[cfg(any(feature = "pubsub", test))]
fn one_of(canvases: &[CanvasId]) -> String {
    let clauses: Vec<_> =
        canvases.iter().take(8).map(|canvas| format!("attributes.canvas = \"{canvas}\"")).collect();
    match (clauses.as_slice(), canvases.len()) {
        ([clause], 1) => clause.clone(),
        (clauses, count) if clauses.len() == count && count > 0 => format!("({})", clauses.join(" OR ")),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn filter(pattern: &str, canvases: Option<u128>) -> String {
        let canvases = canvases.map(|count| (0..count).map(|at| CanvasId(Uuid::from_u128(at))).collect());
        Selection::new(pattern.parse().unwrap(), canvases).filter()
    }

    #[test]
    fn a_filter_says_what_the_pattern_says_literally() {
        assert_eq!(filter("*:page:*", None), r#"attributes.module = "page""#);
        assert_eq!(
            filter("*:page:vi*", None),
            r#"attributes.module = "page" AND hasPrefix(attributes.name, "vi")"#
        );
        assert_eq!(filter("*", None), "");
        assert_eq!(filter("*page*", None), "");
    }

    #[test]
    fn the_filter_has_canvases_first_and_omits_what_does_not_fit() {
        let one = r#"attributes.canvas = "00000000-0000-0000-0000-000000000000""#;
        assert_eq!(filter("*", Some(1)), one);
        let two = filter("*:page:*", Some(2));
        assert!(
            two.starts_with(&format!("({one} OR ")) && two.ends_with(r#") AND attributes.module = "page""#)
        );
        assert_eq!(filter("*:page:*", Some(5)), r#"attributes.module = "page""#, "five are too long");
        let long = "n".repeat(128);
        assert_eq!(filter(&format!("*:{long}:{long}"), None), format!("attributes.module = \"{long}\""));
        assert_eq!(filter("*", Some(1_000)), "");
    }

    #[test]
    fn patterns_cannot_inject_into_the_filter() {
        for pattern in
            [r#"x" OR attributes.canvas != "y:*:*"#, r#"*:a\":*"#, "*:a b:*", "*:\u{0}:*", r"*:é:*"]
        {
            assert_eq!(filter(pattern, None), "", "{pattern}");
        }
    }

    #[test]
    fn a_selection_without_canvases_matches_nothing() {
        let body = br#"{"id":"00000000-0000-0000-0000-000000000001","canvasID":"00000000-0000-0000-0000-000000000000","module":"page",
            "name":"view","modifier":"_","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#;
        let broadcast = Broadcast::parse(body).unwrap();
        let selects = |pattern: &str, canvases: Option<&[u128]>| {
            let canvases = canvases.map(|ids| ids.iter().map(|id| CanvasId(Uuid::from_u128(*id))).collect());
            Selection::new(pattern.parse().unwrap(), canvases).selects(&broadcast)
        };
        assert!(selects("*", None) && selects("*:page:*", Some(&[1, 0])));
        assert!(!selects("*", Some(&[])) && !selects("*", Some(&[1])));
        assert!(!selects("*:mail:*", None) && !selects("*:mail:*", Some(&[0])));
    }
}
