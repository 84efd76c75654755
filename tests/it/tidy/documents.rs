//! Rules for documents: links lead somewhere, decisions are listed, requirements name tests that
//! exist.
//!
//! Nothing here looks at the wording: that is for people to judge.

use std::collections::{BTreeMap, BTreeSet};

use super::prose;

/// The documents that requirements come from, and how many requirements each has.
const ROWS: [(&str, usize); 6] =
    [("CARD", 10), ("DRV", 27), ("ENT", 30), ("EV2", 64), ("ORD", 34), ("SUB", 58)];

/// Relative links of a document whose target does not exist according to `exists`.
pub(super) fn link_complaints(name: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in prose::of_document(text) {
        for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split(['#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains(':') && !exists(target) {
                complaints.push(format!("{name}:{number}: nothing is at `{link}`"));
            }
        }
    }
    complaints
}

/// Decisions that the index does not link to.
pub(super) fn unlisted_decisions(index: &str, decisions: &[String]) -> Vec<String> {
    let file = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
    let unlisted = decisions
        .iter()
        .filter(|path| file(path) != "README.md" && !index.contains(&format!("({})", file(path))));
    unlisted.map(|path| format!("{path}: link to it in docs/adr/README.md")).collect()
}

/// Modules and tests that macros generate from one function, for each store.
const MADE: [&str; 4] = ["in_memory", "in_postgres", "memory", "postgres"];

fn required() -> impl Iterator<Item = String> {
    ROWS.iter()
        .flat_map(|(document, count)| (1..=*count).map(move |number| format!("{document}-{number:02}")))
}

/// The faults of the table of requirements. A row is `| EV2-01 | effect | where it is shown |`; the
/// third cell has test paths, separated by commas, or `feature 2` if a later feature brings it.
/// Rows from none of the documents have ids of their own kind, such as `KIT-01`. A path may also
/// name a function from which a macro generates tests, one for each store.
pub(super) fn requirement_complaints(
    table: &str,
    tests: &BTreeSet<String>,
    functions: &BTreeSet<String>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| Id ");
    for line in table.lines().filter(is_row) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [id, effect, shown] = cells[..] else {
            complaints.push(format!("three cells, please: {line}"));
            continue;
        };
        *rows.entry(id).or_default() += 1;
        if effect.is_empty() {
            complaints.push(format!("{id}: say what the effect is"));
        }
        complaints.extend(shown_complaints(id, shown, (tests, functions)));
    }
    let expected: BTreeSet<_> = required().collect();
    let missing = expected.iter().filter(|id| !rows.contains_key(id.as_str()));
    complaints.extend(missing.map(|id| format!("{id}: 0 rows, one is needed")));
    for (id, count) in rows {
        let document = id.split_once('-').map_or(id, |(document, _)| document);
        if count > 1 {
            complaints.push(format!("{id}: {count} rows, one is needed"));
        }
        // Ours, in addition to those of the document.
        let is_ours = id.contains("-X");
        if !is_ours && !expected.contains(id) && ROWS.iter().any(|(known, _)| *known == document) {
            complaints.push(format!("{id}: unknown"));
        }
    }
    complaints
}

fn shown_complaints(
    id: &str,
    shown: &str,
    (tests, functions): (&BTreeSet<String>, &BTreeSet<String>),
) -> Vec<String> {
    if shown
        .strip_prefix("feature ")
        .is_some_and(|number| number.starts_with(|digit: char| digit.is_ascii_digit()))
    {
        return Vec::new();
    }
    let names = shown.split(',').map(|path| path.trim().trim_matches('`'));
    let exists = |name: &&str| {
        let modules: Vec<_> = name.split("::").filter(|part| !MADE.contains(part)).collect();
        let made_of = modules.join("::");
        is_among(name, tests) || (made_of != **name && is_among(&made_of, functions))
    };
    let missing = names.filter(|name| !exists(name));
    missing.map(|name| format!("{id}: no test is called `{name}`")).collect()
}

/// Whether one of these paths is this one or ends with it.
fn is_among(path: &str, paths: &BTreeSet<String>) -> bool {
    let is_it = |known: &String| {
        known.strip_suffix(path).is_some_and(|before| before.is_empty() || before.ends_with("::"))
    };
    !path.is_empty() && paths.iter().any(is_it)
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

/// Words in the rows of a table that look like names of tests but are not: in backticks, with three
/// underscores or more.
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
    let tests = BTreeSet::from(["a::worker::runs_once".to_owned()]);
    let row = |id: &str| format!("| {id} | it works | `worker::runs_once`, runs_once |\n");
    let good: String = required().chain(["KIT-01".into()]).map(|id| row(&id)).collect();
    let functions = BTreeSet::from(["a::on_both".to_owned()]);
    let complaints = |table: &str| requirement_complaints(table, &tests, &functions);
    assert_eq!(complaints(&good), Vec::<String>::new());

    let check = |from: &str, to: &str, complaint: &str| {
        assert_ne!(good, good.replace(from, to));
        assert_eq!(complaints(&good.replace(from, to)), [complaint]);
    };
    check(&row("EV2-07"), "", "EV2-07: 0 rows, one is needed");
    check(&row("EV2-07"), &row("EV2-07").repeat(2), "EV2-07: 2 rows, one is needed");
    check(&row("CARD-01"), &(row("CARD-01") + &row("CARD-11")), "CARD-11: unknown");
    check(&row("SUB-09"), "", "SUB-09: 0 rows, one is needed");
    for wrong in ["counts::all", "counts::runs_once", "once", "a::on_both"] {
        for id in ["EV2-09", "SUB-09", "KIT-01"] {
            let complaint = format!("{id}: no test is called `{wrong}`");
            check(&row(id), &format!("| {id} | it works | {wrong} |\n"), &complaint);
        }
    }
    check(&row("EV2-09"), "| EV2-09 | it works |  |\n", "EV2-09: no test is called ``");
    check(&row("EV2-09"), "| EV2-09 |  | runs_once |\n", "EV2-09: say what the effect is");
    let later = good.replace(&row("EV2-09"), "| EV2-09 | it works | feature 2 |\n");
    assert_eq!(complaints(&later), Vec::<String>::new());
    let made =
        good.replace(&row("SUB-09"), "| SUB-09 | it works | a::postgres::on_both, `on_both::in_memory` |\n");
    assert_eq!(complaints(&made), Vec::<String>::new());
}
