//! Rules for the migrations: sizes, headers, one definition for each function, and rights taken
//! from `public`.
//!
//! It is a scanner of lines, not a parser: what a function does is for the tests of the store.

use std::collections::BTreeMap;

use super::{FILE_LINES_MAX, FUNCTION_LINES_MAX};

/// Columns of a line.
const COLUMNS_MAX: usize = 120;
const CREATE: &str = "create function ";
/// The last statement of a file with functions: `wakeq.grant_rights` gives some to named roles.
const REVOKE: &str = "revoke all on all functions in schema wakeq from public;";

/// A function of a migration.
struct Function<'a> {
    name: &'a str,
    /// The line of its `create function`, from 1.
    line: usize,
    /// Lines up to its last, which ends with the closing `$$`, or with a `;` if its body is one
    /// `return`.
    lines: usize,
    has_header: bool,
}

/// Complaints about migrations, each with its name and text.
pub(super) fn complaints(files: &[(String, String)]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, text) in files {
        complaints.extend(of_file(name, text));
        for function in functions(text) {
            complaints.extend(of_function(name, &function));
            places.entry(function.name).or_default().push(format!("{name}:{}", function.line));
        }
    }
    let twice = places.iter().filter(|(_, places)| places.len() > 1);
    complaints.extend(twice.map(|(name, places)| format!("`{name}` stands twice: {}", places.join(", "))));
    complaints
}

fn of_file(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        complaints.push(format!("{name}: {lines} lines, at most {FILE_LINES_MAX}; split it by feature"));
    }
    if !text.starts_with("-- ") {
        complaints.push(format!("{name}: open the file with `--`: what it holds and why"));
    }
    for (number, line) in (1..).zip(text.lines()) {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            complaints.push(format!("{name}:{number}: {columns} columns, at most {COLUMNS_MAX}"));
        }
        if line.to_lowercase().starts_with("create or replace ") {
            complaints.push(format!("{name}:{number}: a function stands once: change it where it is"));
        }
    }
    if text.contains(CREATE) && !text.trim_end().ends_with(REVOKE) {
        complaints.push(format!("{name}: end it with `{REVOKE}`"));
    }
    complaints
}

fn of_function(file: &str, function: &Function<'_>) -> Vec<String> {
    let Function { name, line, lines, has_header } = function;
    let mut complaints = Vec::new();
    if *lines > FUNCTION_LINES_MAX {
        complaints.push(format!("{file}:{line}: `{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}"));
    }
    if !has_header {
        complaints.push(format!("{file}:{line}: say above `{name}` what it does"));
    }
    complaints
}

fn functions(text: &str) -> Vec<Function<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.strip_prefix(CREATE) else { continue };
        let mut is_quoted = false;
        let is_last = |line: &&str| {
            is_quoted ^= line.matches("$$").count() % 2 == 1;
            !is_quoted && line.ends_with(';') && !line.trim_start().starts_with("--")
        };
        let length = lines[at..].iter().position(is_last).map_or(lines.len() - at, |last| last + 1);
        functions.push(Function {
            name: rest.split('(').next().unwrap_or(rest),
            line: at + 1,
            lines: length,
            has_header: at > 0 && lines[at - 1].starts_with("-- "),
        });
    }
    functions
}

#[test]
fn functions_are_measured_to_their_closing_quotes() {
    let text = "-- A.\ncreate function a(\n    -- Of it;\n    b integer\n)\nreturns integer language sql\nreturn b;\n\n\
                create function c() as $$\nbegin\n    d;\nend\n$$;\nselect c();\n";
    let found: Vec<_> =
        functions(text).iter().map(|function| (function.name, function.line, function.lines)).collect();
    assert_eq!(found, [("a", 2, 6), ("c", 9, 5)]);
    let complaints = complaints(&[("1.sql".to_owned(), format!("{text}{REVOKE}\n"))]);
    assert_eq!(complaints, ["1.sql:9: say above `c` what it does"]);
}

#[test]
fn a_migration_out_of_bounds_is_found() {
    let long = format!("-- A.\ncreate function a() as $$\n{}$$;\n", "    b;\n".repeat(70));
    let wide = format!("select 1;{}\n", " ".repeat(112));
    let again = "-- A.\ncreate function a() returns integer language sql return 1;\n\
                 create or replace function b() returns integer language sql return 1;\n";
    let files = [("1.sql", long), ("2.sql", format!("{wide}{again}{REVOKE}\n"))];
    let found = complaints(&files.map(|(name, text)| (name.to_owned(), text)));
    assert_eq!(
        found,
        [
            "1.sql: end it with `revoke all on all functions in schema wakeq from public;`",
            "1.sql:2: `a` has 72 lines, at most 70",
            "2.sql: open the file with `--`: what it holds and why",
            "2.sql:1: 121 columns, at most 120",
            "2.sql:4: a function stands once: change it where it is",
            "`a` stands twice: 1.sql:2, 2.sql:3",
        ]
    );
}
