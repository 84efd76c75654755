//! Rules for documents: links lead somewhere, decisions are listed, requirements name tests that exist.
//!
//! What a document says is for people to judge; nothing here looks at its wording.

use std::collections::{BTreeMap, BTreeSet};

const EVENT_ROWS: usize = 64;
const CARD_ROWS: usize = 10;

/// Relative links of a document whose target does not exist, as `exists` tells.
pub(super) fn link_complaints(name: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split(['#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains(':') && !exists(target) {
                complaints.push(format!("{name}:{}: nothing is at `{link}`", index + 1));
            }
        }
    }
    complaints
}

/// Decisions that the list of decisions does not link to.
pub(super) fn unlisted_decisions(index: &str, decisions: &[String]) -> Vec<String> {
    let file = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
    let unlisted = decisions
        .iter()
        .filter(|path| file(path) != "README.md" && !index.contains(&format!("({})", file(path))));
    unlisted.map(|path| format!("{path}: link to it in docs/adr/README.md")).collect()
}

/// What is wrong with the table of requirements. A row is `| EV2-01 | effect | where it is shown |`; the third cell has
/// test paths, separated by commas, or `feature 2` where a later feature brings it.
pub(super) fn requirement_complaints(table: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with("| EV2-") || line.starts_with("| CARD-")) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [id, effect, shown] = cells[..] else {
            complaints.push(format!("three cells, please: {line}"));
            continue;
        };
        *rows.entry(id).or_default() += 1;
        if effect.is_empty() {
            complaints.push(format!("{id}: say what the effect is"));
        }
        complaints.extend(shown_complaints(id, shown, tests));
    }
    let events = (1..=EVENT_ROWS).map(|number| format!("EV2-{number:02}"));
    let cards = (1..=CARD_ROWS).map(|number| format!("CARD-{number:02}"));
    let expected: Vec<_> = events.chain(cards).collect();
    for id in &expected {
        let count = rows.get(id.as_str()).copied().unwrap_or_default();
        if count != 1 {
            complaints.push(format!("{id}: {count} rows, one is needed"));
        }
    }
    complaints.extend(
        rows.keys()
            .filter(|id| !expected.iter().any(|known| known == *id))
            .map(|id| format!("{id}: unknown")),
    );
    complaints
}

fn shown_complaints(id: &str, shown: &str, tests: &BTreeSet<String>) -> Vec<String> {
    if shown
        .strip_prefix("feature ")
        .is_some_and(|number| number.starts_with(|digit: char| digit.is_ascii_digit()))
    {
        return Vec::new();
    }
    let test = |path: &str| path.trim().trim_matches('`').rsplit("::").next().unwrap_or_default().to_owned();
    let missing = shown.split(',').map(test).filter(|name| !tests.contains(name));
    missing.map(|name| format!("{id}: no test is called `{name}`")).collect()
}

#[test]
fn a_dead_link_is_found() {
    let text = "[a](here.md) [b](gone.md#part) [c](https://example.com) [d](#part)\n```\n[e](code.md)\n```\n![f](gone.png)";
    let complaints = link_complaints("a.md", text, |target| target == "here.md");
    assert_eq!(complaints, ["a.md:1: nothing is at `gone.md#part`", "a.md:5: nothing is at `gone.png`"]);
}

#[test]
fn an_unlisted_decision_is_found() {
    let decisions = ["docs/adr/0001-a.md", "docs/adr/0002-b.md", "docs/adr/README.md"].map(str::to_owned);
    assert_eq!(
        unlisted_decisions("- [a](0001-a.md)", &decisions),
        ["docs/adr/0002-b.md: link to it in docs/adr/README.md"]
    );
}

/// What looks like the name of a test, in rows of a table, and is none: a word in backticks with three underscores or more.
pub(super) fn unknown_tests(table: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let words = rows.flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_name = |word: &&str| {
        word.matches('_').count() >= 3
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit())
    };
    let unknown = words.filter(is_name).filter(|word| !tests.contains(*word));
    unknown.map(|word| format!("no test is called `{word}`")).collect()
}

#[test]
fn a_row_that_names_no_test_is_found() {
    let tests = BTreeSet::from(["a_key_is_kept".to_owned()]);
    let table = "| 1.1 | a | `a_key_is_kept`, `deny_unknown_fields`, `TEST?`, `src/a_b_c_d.rs` |\n";
    assert_eq!(unknown_tests(table, &tests), Vec::<String>::new());
    let wrong = table.replace("a_key_is_kept", "a_key_is_lost");
    assert_eq!(unknown_tests(&wrong, &tests), ["no test is called `a_key_is_lost`"]);
}

#[test]
fn each_fault_of_the_requirements_is_found() {
    let tests = BTreeSet::from(["runs_once".to_owned()]);
    let row = |id: &str| format!("| {id} | it works | `worker::runs_once`, runs_once |\n");
    let cards = (1..=CARD_ROWS).map(|number| format!("CARD-{number:02}"));
    let ids = (1..=EVENT_ROWS).map(|number| format!("EV2-{number:02}")).chain(cards);
    let good: String = ids.map(|id| row(&id)).collect();
    assert_eq!(requirement_complaints(&good, &tests), Vec::<String>::new());

    let check = |from: &str, to: &str, complaint: &str| {
        assert_ne!(good, good.replace(from, to));
        assert_eq!(requirement_complaints(&good.replace(from, to), &tests), [complaint]);
    };
    check(&row("EV2-07"), "", "EV2-07: 0 rows, one is needed");
    check(&row("EV2-07"), &row("EV2-07").repeat(2), "EV2-07: 2 rows, one is needed");
    check(&row("CARD-01"), &(row("CARD-01") + &row("CARD-11")), "CARD-11: unknown");
    check(&row("EV2-09"), "| EV2-09 | it works | counts::all |\n", "EV2-09: no test is called `all`");
    check(&row("EV2-09"), "| EV2-09 | it works |  |\n", "EV2-09: no test is called ``");
    check(&row("EV2-09"), "| EV2-09 |  | runs_once |\n", "EV2-09: say what the effect is");
    let later = good.replace(&row("EV2-09"), "| EV2-09 | it works | feature 2 |\n");
    assert_eq!(requirement_complaints(&later, &tests), Vec::<String>::new());
}
