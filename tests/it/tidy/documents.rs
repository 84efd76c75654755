//! Rules for documents: links lead somewhere, decisions are listed, tests that are named exist.
//!
//! Nothing here looks at the wording: that is for people to judge.

use std::collections::BTreeSet;

use super::prose;

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
