//! The table of requirements: ids and effects are written by hand, the tests that show them come
//! from the tests, which name the rows' ids: `// Shows: EV2-01, EV2-41`.
//!
//! Nothing here looks at the wording: that is for people to judge.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;

/// The documents that requirements come from, and how many requirements each has.
const ROWS: [(&str, usize); 6] =
    [("CARD", 10), ("DRV", 27), ("ENT", 30), ("EV2", 64), ("ORD", 34), ("SUB", 58)];

/// Begins a line above a test; the ids of rows follow.
const SHOWS: &str = "// Shows:";

/// The tests that macros make of a function, one for each store; `*` is its name. A line above such
/// a function says which: `// Shows: SUB-10 as postgres::*`.
const MADE: [&str; 4] = ["memory::*", "postgres::*", "*::in_memory", "*::in_postgres"];

/// How parts of the third cell begin that are written by hand: a later feature, a command, a link.
const BY_HAND: [&str; 3] = ["feature ", "`cargo ", "["];

/// The paths of the tests that show each row, by its id.
pub(super) type Tests = BTreeMap<String, BTreeSet<String>>;

/// What the tests say, and the faults of the lines that say it.
pub(super) fn shown(sources: &[Source]) -> (Tests, Vec<String>) {
    let (mut tests, mut complaints) = (Tests::new(), Vec::new());
    for source in sources {
        let mut placed = 0;
        for (function, path) in source.paths() {
            for line in marks(source.above(&function)) {
                placed += 1;
                let Some((ids, paths)) = read(line, &path, source.is_test(&function)) else {
                    let place = format!("{}:{}", source.name, function.line);
                    complaints.push(format!("{place}: `{path}` has no such test: `{SHOWS} {line}`"));
                    continue;
                };
                for id in ids {
                    tests.entry(id.to_owned()).or_default().extend(paths.iter().cloned());
                }
            }
        }
        if placed != marks(&source.text).count() {
            complaints.push(format!("{}: a line with `{SHOWS}` is above no function", source.name));
        }
    }
    (tests, complaints)
}

/// What follows `// Shows:`, line by line.
fn marks(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim().strip_prefix(SHOWS)).map(str::trim)
}

/// The ids in a line above a function, and the paths of its tests, if it has any.
fn read<'a>(line: &'a str, path: &str, is_test: bool) -> Option<(Vec<&'a str>, Vec<String>)> {
    let Some((ids, made)) = line.split_once(" as ") else {
        return is_test.then(|| (line.split(", ").collect(), vec![path.to_owned()]));
    };
    let (modules, name) = path.rsplit_once("::")?;
    let made: Vec<_> = made.split(", ").collect();
    if is_test || made.iter().any(|made| !MADE.contains(made)) {
        return None;
    }
    let paths = made.iter().map(|made| format!("{modules}::{}", made.replace('*', name)));
    Some((ids.split(", ").collect(), paths.collect()))
}

/// The page with the tests of each row in its third cell, where what was written by hand stays.
pub(super) fn page(text: &str, tests: &Tests) -> String {
    let is_by_hand = |part: &&str| BY_HAND.iter().any(|start| part.starts_with(*start));
    let written = |line: &str| match cells(line).filter(|_| is_row(line)) {
        Some((id, effect, shown)) => {
            let by_hand = shown.split(", ").filter(is_by_hand).map(str::to_owned);
            let shown: Vec<_> = names(id, tests).into_iter().chain(by_hand).collect();
            format!("| {id} | {effect} | {} |\n", shown.join(", "))
        }
        None => format!("{line}\n"),
    };
    text.lines().map(written).collect()
}

fn names(id: &str, tests: &Tests) -> Vec<String> {
    tests.get(id).into_iter().flatten().map(|test| format!("`{test}`")).collect()
}

fn is_row(line: &str) -> bool {
    line.starts_with("| ") && !line.starts_with("| Id ")
}

/// Id, effect and what shows it, which is nothing in a new row.
fn cells(line: &str) -> Option<(&str, &str, &str)> {
    let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
    match cells[..] {
        [id, effect] => Some((id, effect, "")),
        [id, effect, shown] => Some((id, effect, shown)),
        _ => None,
    }
}

/// The faults of the page, whose rows are `| EV2-01 | effect | tests |`, and of what the tests say.
/// Rows from none of the documents have ids of their own kind, such as `KIT-01`.
pub(super) fn complaints(text: &str, sources: &[Source]) -> Vec<String> {
    let (tests, mut complaints) = shown(sources);
    let written = page(text, &tests);
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for (line, before) in written.lines().zip(text.lines()).filter(|(line, _)| is_row(line)) {
        let Some((id, effect, shown)) = cells(line) else {
            complaints.push(format!("three cells, please: {line}"));
            continue;
        };
        *rows.entry(id).or_default() += 1;
        if effect.is_empty() {
            complaints.push(format!("{id}: say what the effect is"));
        }
        if shown.is_empty() {
            complaints.push(format!("{id}: no test shows it: write `{SHOWS} {id}` above one that does"));
        } else if line != before {
            complaints.push(format!("{id}: its tests have changed: run `cargo xtask requirements`"));
        }
    }
    for id in tests.keys().filter(|id| !rows.contains_key(id.as_str())) {
        complaints.push(format!("{id}: write a row: {} shows it", names(id, &tests).join(", ")));
    }
    complaints.extend(count_complaints(&rows));
    complaints
}

fn required() -> impl Iterator<Item = String> {
    ROWS.iter()
        .flat_map(|(document, count)| (1..=*count).map(move |number| format!("{document}-{number:02}")))
}

fn count_complaints(rows: &BTreeMap<&str, usize>) -> Vec<String> {
    let expected: BTreeSet<_> = required().collect();
    let missing = expected.iter().filter(|id| !rows.contains_key(id.as_str()));
    let mut complaints: Vec<_> = missing.map(|id| format!("{id}: 0 rows, one is needed")).collect();
    for (id, count) in rows {
        let document = id.split_once('-').map_or(*id, |(document, _)| document);
        if *count > 1 {
            complaints.push(format!("{id}: {count} rows, one is needed"));
        }
        // Ours, in addition to those of the document.
        let is_ours = id.contains("-X");
        if !is_ours && !expected.contains(*id) && ROWS.iter().any(|(known, _)| *known == document) {
            complaints.push(format!("{id}: unknown"));
        }
    }
    complaints
}

/// A file with one test that shows these rows.
fn source(ids: &str) -> Vec<Source> {
    vec![Source::new("src/a.rs", &format!("// Shows: {ids}\n#[test]\nfn runs() {{}}\n"))]
}

fn row(id: &str) -> String {
    format!("| {id} | it works | `a::runs` |\n")
}

#[test]
fn each_fault_of_the_table_is_found() {
    let ids: Vec<_> = required().chain(["KIT-01".to_owned()]).collect();
    let good: String = ids.iter().map(|id| row(id)).collect();
    let ids = ids.join(", ");
    let check = |from: &str, to: &str, expected: &str| {
        assert_ne!(good, good.replace(from, to));
        assert_eq!(complaints(&good.replace(from, to), &source(&ids)).join("\n"), expected);
    };
    assert_eq!(complaints(&good, &source(&ids)), Vec::<String>::new());
    check(&row("KIT-01"), "", "KIT-01: write a row: `a::runs` shows it");
    let missing = "EV2-07: write a row: `a::runs` shows it\nEV2-07: 0 rows, one is needed";
    check(&row("EV2-07"), "", missing);
    check(&row("EV2-07"), &row("EV2-07").repeat(2), "EV2-07: 2 rows, one is needed");
    check(&row("EV2-09"), "| EV2-09 |  | `a::runs` |\n", "EV2-09: say what the effect is");
    check(&row("EV2-09"), &(row("EV2-09") + "| KIT-02 | it is to come | feature 2 |\n"), "");
    let none = "KIT-02: no test shows it: write `// Shows: KIT-02` above one that does";
    check(&row("EV2-09"), &(row("EV2-09") + &row("KIT-02")), none);
    let stale = "EV2-09: its tests have changed: run `cargo xtask requirements`";
    for shown in ["", "`a::stops`", "`a::runs`, `a::stops`", "runs"] {
        check(&row("EV2-09"), &format!("| EV2-09 | it works | {shown} |\n"), stale);
    }
    let unknown = good.replace(&row("CARD-01"), &(row("CARD-01") + &row("CARD-11")));
    assert_eq!(complaints(&unknown, &source(&format!("{ids}, CARD-11"))), ["CARD-11: unknown"]);
}

#[test]
fn rows_are_written_and_the_rest_stays() {
    let (tests, _) = shown(&source("EV2-01, KIT-01"));
    let text = "# Rows\n\n| Id | Effect | Shown by |\n|---|---|---|\n";
    let before = "| EV2-01 | it works |\n| KIT-01 | so too | `a::stops`, feature 2 |\n";
    let after = "| EV2-01 | it works | `a::runs` |\n| KIT-01 | so too | `a::runs`, feature 2 |\n";
    assert_eq!(page(&format!("{text}{before}"), &tests), format!("{text}{after}"));
}

#[test]
fn tests_of_macros_are_named_and_lines_above_no_test_are_found() {
    let of = |text: &str| shown(&[Source::new("tests/a.rs", text)]);
    let (first, second) = ("KIT-01 as postgres::*, *::in_memory", "KIT-02 as memory::*");
    let (tests, complaints) = of(&format!("// Shows: {first}\n// Shows: {second}\nasync fn on_both() {{}}"));
    assert_eq!(names("KIT-01", &tests), ["`a::on_both::in_memory`", "`a::postgres::on_both`"]);
    assert_eq!(names("KIT-02", &tests), ["`a::memory::on_both`"]);
    assert_eq!(complaints, Vec::<String>::new());
    for wrong in [
        "// Shows: KIT-01\nfn helps() {}",
        "// Shows: KIT-01 as sqlite::*\nfn on_both() {}",
        "// Shows: KIT-01 as memory::*\n#[test]\nfn runs() {}",
        "// Shows: KIT-01\nconst ONE: u8 = 1;\n",
        "#[test]\nfn runs() {\n    // Shows: KIT-01\n}",
    ] {
        let (tests, complaints) = of(wrong);
        assert_eq!((tests.len(), complaints.len()), (0, 1), "{wrong}");
    }
}
