//! Compares the diagram in `docs/state_machine.md` with the code, in both directions.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::walk::{Edge, walk};
use crate::machine::Outcome;

const DOCUMENT: &str = include_str!("../../../docs/state_machine.md");

/// The edges of the original chart that are unchanged; all others are additions, drawn dotted.
const ORIGINAL: [Edge; 19] = [
    ("Queue", "Receive notification", "EventLoad"),
    ("EventLoad", "EventPresent", "DelayCheck"),
    ("EventLoad", "EventMissing", "End"),
    ("DelayCheck", "DelayNone", "LockCheck"),
    ("DelayCheck", "DelayNotYet", "Queue"),
    ("LockCheck", "LockNone", "RuleCheck"),
    ("LockCheck", "LockExpired", "RuleCheck"),
    ("LockCheck", "IsLocked", "Queue"),
    ("RuleCheck", "RulePaused", "End"),
    ("RuleCheck", "RuleBlocked", "End"),
    ("LockClaim", "LockClaimed", "Process"),
    ("LockClaim", "LockClaimFailed", "Queue"),
    ("Process", "ExecutesToCompletion", "Delete"),
    ("Process", "Exception", "RetryCheck"),
    ("RetryCheck", "RetryAllowed", "Queue"),
    ("RetryCheck", "RetryTooMany", "Delete"),
    ("RetryCheck", "Exception", "Queue"),
    ("Delete", "Deleted", "End"),
    // RuleNone led to LockClaim in the original; it is drawn through HandlerCheck here.
    ("RuleCheck", "RuleNone", "HandlerCheck"),
];

/// An edge in the diagram; the original's are solid, additions are dotted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    from: String,
    outcome: String,
    to: String,
    original: bool,
}

impl Line {
    fn of(edge: Edge) -> Self {
        let (from, outcome, to) = edge;
        let original = ORIGINAL.contains(&edge);
        Self { from: from.into(), outcome: outcome.into(), to: to.into(), original }
    }

    /// Parses `A -->|outcome| B`, or `A -.->|outcome| B` for an addition; `None` for others.
    fn parse(text: &str) -> Option<Self> {
        let (from, rest, original) = match text.split_once(" -->|") {
            Some((from, rest)) => (from, rest, true),
            None => text.split_once(" -.->|").map(|(from, rest)| (from, rest, false))?,
        };
        let (outcome, to) = rest.split_once('|')?;
        let [from, outcome, to] = [from, outcome, to].map(|part| part.trim().to_owned());
        Some(Self { from, outcome, to, original })
    }

    fn draw(&self) -> String {
        let arrow = if self.original { "-->" } else { "-.->" };
        format!("  {} {arrow}|{}| {}", self.from, self.outcome, self.to)
    }
}

/// The lines of the document's only mermaid block.
fn diagram(document: &str) -> impl Iterator<Item = &str> {
    document.lines().skip_while(|line| *line != "```mermaid").skip(1).take_while(|line| *line != "```")
}

/// The lines to add to the diagram and those to remove from it; empty if it matches the code.
fn difference(document: &str, code: &BTreeSet<Line>) -> String {
    let drawn: BTreeSet<Line> = diagram(document).filter_map(Line::parse).collect();
    let mut difference = String::new();
    for line in code.difference(&drawn) {
        let _ = writeln!(difference, "add    {}", line.draw());
    }
    for line in drawn.difference(code) {
        let _ = writeln!(difference, "remove {}", line.draw());
    }
    difference
}

fn code() -> BTreeSet<Line> {
    walk().edges.into_iter().map(Line::of).collect()
}

// Shows: CARD-05
#[test]
fn the_diagram_shows_every_edge_of_the_code_and_no_other() {
    let difference = difference(DOCUMENT, &code());
    assert!(difference.is_empty(), "docs/state_machine.md does not show the code:\n{difference}");
}

#[test]
fn the_comparison_notices_a_missing_a_wrong_and_a_wrongly_drawn_edge() {
    let missing = DOCUMENT.replace("  EventLoad -->|EventMissing| End\n", "");
    assert_eq!(difference(&missing, &code()), "add      EventLoad -->|EventMissing| End\n");
    let wrong = DOCUMENT.replace("LockCheck -->|IsLocked| Queue", "LockCheck -->|IsLocked| End");
    let expected = "add      LockCheck -->|IsLocked| Queue\nremove   LockCheck -->|IsLocked| End\n";
    assert_eq!(difference(&wrong, &code()), expected);
    let solid = DOCUMENT.replace("LockClaim -.->|Poison| Delete", "LockClaim -->|Poison| Delete");
    let expected = "add      LockClaim -.->|Poison| Delete\nremove   LockClaim -->|Poison| Delete\n";
    assert_eq!(difference(&solid, &code()), expected);
}

#[test]
fn the_original_chart_is_in_the_code() {
    let edges = walk().edges;
    for edge in ORIGINAL {
        assert!(edges.contains(&edge), "{edge:?} can't be reached");
    }
}

#[test]
fn states_of_ours_are_drawn_in_a_class_of_their_own() {
    let originals: BTreeSet<&str> = ["Queue", "EventLoad", "DelayCheck", "LockCheck", "RuleCheck"]
        .into_iter()
        .chain(["LockClaim", "Process", "RetryCheck", "Delete", "End"])
        .collect();
    let names: BTreeSet<&str> = walk().states.iter().map(|state| state.name()).collect();
    let ours: Vec<&str> = names.difference(&originals).copied().collect();
    assert!(originals.is_subset(&names), "a state of the original chart can't be reached");
    let class = format!("  class {} ours", ours.join(","));
    assert!(diagram(DOCUMENT).any(|line| line == class), "the diagram needs the line {class:?}");
    assert!(diagram(DOCUMENT).any(|line| line.starts_with("  classDef ours ")));
}

#[test]
fn the_table_has_a_row_for_every_state_and_names_every_outcome() {
    for state in walk().states {
        let row = format!("\n| `{}` |", state.name());
        assert!(DOCUMENT.contains(&row), "docs/state_machine.md has no table row for {}", state.name());
    }
    for outcome in every_outcome() {
        assert!(
            DOCUMENT.contains(&format!("`{outcome}`")),
            "docs/state_machine.md does not explain {outcome}"
        );
    }
}

#[test]
fn every_outcome_is_reached() {
    assert_eq!(walk().outcomes, every_outcome());
}

#[test]
fn the_list_of_outcomes_is_complete() {
    assert_eq!(BTreeSet::from(Outcome::ALL), every_outcome());
}

/// Lists the variants and, in a match without `_`, makes the compiler insist that none is missing.
macro_rules! every {
    ($($variant:ident),* $(,)?) => {{
        let listed = |outcome: Outcome| match outcome { $(Outcome::$variant => outcome),* };
        BTreeSet::from([$(Outcome::$variant),*].map(listed))
    }};
}

fn every_outcome() -> BTreeSet<Outcome> {
    every![
        EventMissing,
        EventPresent,
        DelayNone,
        DelayNotYet,
        EarlierLeft,
        ObjectHalted,
        FacetHeld,
        FacetRecalled,
        LockNone,
        LockExpired,
        IsLocked,
        RuleNone,
        RulePaused,
        RuleBlocked,
        RuleLifted,
        HandlerKnown,
        HandlerUnknown,
        Deferred,
        LockClaimed,
        LockClaimFailed,
        LimitFull,
        LimitRate,
        Poison,
        Expired,
        ExecutesToCompletion,
        Exception,
        Rejected,
        NotYet,
        Postponed,
        HandlerGone,
        HandlerPaused,
        LeaseLost,
        ShutDown,
        Cancelled,
        Released,
        RetryAllowed,
        RetryTooMany,
        Deleted,
        HandedOver,
        FencedOut,
    ]
}
