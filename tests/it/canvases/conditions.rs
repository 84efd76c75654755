//! Finds each condition on a canvas in the SQL of the queue's and the streams' `store` and of the
//! functions in `migrations`.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use regex::Regex;

use super::proxy::{SentStatements, place_of};

/// Where the statements of each package are.
const STATEMENTS: [&str; 3] = ["src/store", "streams/src/store", "service/src/store"];

/// A statement of the store, or a part of one that is put together, or a function of a migration.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) text: String,
    pub(super) is_function: bool,
}

/// A condition in it, and the replacement that makes it always true.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) sql: Arc<Sql>,
    /// File and line.
    pub(super) place: String,
    pub(super) line: String,
    range: Range<usize>,
    changed: String,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.sql, &other.sql) && self.range == other.range
    }
}

impl Sql {
    /// The text with these conditions always true.
    pub(super) fn without(&self, conditions: &[Condition]) -> String {
        let mut conditions: Vec<_> = conditions.iter().collect();
        conditions.sort_by_key(|condition| std::cmp::Reverse(condition.range.start));
        let mut text = self.text.clone();
        for condition in conditions {
            text.replace_range(condition.range.clone(), &condition.changed);
        }
        text
    }

    /// The labels under which it was sent: for a function, those of each statement that calls it,
    /// directly or through other functions.
    pub(super) fn reach(&self, functions: &[String], sent: &SentStatements) -> BTreeSet<String> {
        if !self.is_function {
            let whole = sent.iter().filter(|(text, _)| place_of(&self.text, text).is_some());
            return whole.flat_map(|(_, asked)| asked.clone()).collect();
        }
        let mut calls = BTreeSet::from([call(&self.text)]);
        loop {
            let known = calls.len();
            let callers: Vec<_> = functions
                .iter()
                .filter(|function| names(function, &calls))
                .map(|function| call(function))
                .collect();
            calls.extend(callers);
            if calls.len() == known {
                break;
            }
        }
        sent.iter().filter(|(text, _)| names(text, &calls)).flat_map(|(_, asked)| asked.clone()).collect()
    }
}

/// The start of a call of this function.
fn call(function: &str) -> String {
    let name = function.trim_start_matches("create function ");
    name[..=name.find('(').unwrap()].to_owned()
}

fn names(text: &str, calls: &BTreeSet<String>) -> bool {
    calls.iter().any(|call| text.contains(call))
}

/// All conditions, and all functions.
pub(super) fn conditions() -> (Vec<Condition>, Vec<String>) {
    let root = crate::support::repository::root();
    let (mut conditions, mut all_functions) = (Vec::new(), Vec::new());
    for file in STATEMENTS.iter().flat_map(|folder| files(&root.join(folder), "rs")) {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        if ["store/tests", "store/memory"].iter().any(|part| name.contains(part)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for (start, literal) in literals(&text) {
            conditions.extend(of(literal, false, &name, text[..start].matches('\n').count()));
        }
    }
    for file in files(&root.join("migrations"), "sql") {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        for (start, function) in functions(&text) {
            let before = text[..start].matches('\n').count();
            conditions.extend(of(function.to_owned(), true, &name, before));
            all_functions.push(function.to_owned());
        }
    }
    (conditions, all_functions)
}

/// The conditions of a text that begins after this many lines of a file.
fn of(text: String, is_function: bool, file: &str, before: usize) -> Vec<Condition> {
    let sql = Arc::new(Sql { text, is_function });
    let condition = |(range, changed): (Range<usize>, String)| {
        let lines = sql.text[..range.start].matches('\n').count();
        Condition {
            sql: sql.clone(),
            place: format!("{file}:{}", before + lines + 1),
            line: sql.text.lines().nth(lines).unwrap_or_default().trim().to_owned(),
            range,
            changed,
        }
    };
    places(&sql.text).into_iter().map(condition).collect()
}

/// The conditions of a text, each with a replacement that is always true.
fn places(text: &str) -> Vec<(Range<usize>, String)> {
    let found = condition();
    let conditions = found.find_iter(text).filter(|found| {
        let before = text[..found.start()].trim_end();
        !found.as_str().contains("excluded.") && !before.ends_with(" set") && !before.ends_with("::")
    });
    let mut places: Vec<_> =
        conditions.map(|found| (found.range(), format!("({} or true)", found.as_str()))).collect();
    // If rows are compared, the canvas is compared with itself.
    let rows = Regex::new(r"\(([a-z_]+\.canvas_id),[^()]*\)\s*=\s*\(([a-z_]+\.canvas_id),").unwrap();
    places.extend(rows.captures_iter(text).map(|found| (found.get(2).unwrap().range(), found[1].to_owned())));
    places
}

/// What a canvas is compared with: a parameter, a column, a call, an element of an array, or an
/// expression in parentheses.
fn condition() -> Regex {
    let called = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)";
    let element = r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]";
    let named = format!(r"[a-z_]+(?:\.[a-z_]+)?(?:{called}|{element})?");
    let operand = format!(r"(?:\$\d+(?:::uuid)?|{named}|\((?:[^()]|\([^()]*\))*\))");
    let other = r"(?:any\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|case\b.*?\bend|OPERAND)"
        .replace("OPERAND", &operand);
    let column = r"(?:[a-z_]+\.)?canvas(?:_id)?";
    Regex::new(&format!(r"(?s)\b{column}\s*(?:=|is not distinct from)\s*{other}")).unwrap()
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The functions that a migration creates, and where each begins.
fn functions(text: &str) -> Vec<(usize, &str)> {
    let starts = text.match_indices("create function ").map(|(start, _)| start);
    let whole = |start: usize| {
        let rest = &text[start..];
        // A dollar-quoted body ends with its quotes; a single `return` ends with its statement.
        let quoted = rest.find("$$").filter(|quote| rest.find(";\n").is_none_or(|end| *quote < end));
        let end = match quoted {
            Some(quote) => quote + 2 + rest[quote + 2..].find("$$").unwrap() + 3,
            None => rest.find(";\n").unwrap() + 1,
        };
        (start, &rest[..end.min(rest.len())])
    };
    starts.map(whole).collect()
}

/// The string literals of a file that are SQL about a canvas, as the compiler reads them, and where
/// each begins.
fn literals(text: &str) -> Vec<(usize, String)> {
    let raw = Regex::new(r##"(?s)r#"(.*?)"#"##).unwrap();
    let plain = Regex::new(r#"(?s)"((?:[^"\\]|\\.)*)""#).unwrap();
    let continued = Regex::new(r"\\\n\s*").unwrap();
    let comment = Regex::new(r"(?m)^\s*//.*$").unwrap();
    let blank = |text: &str, pattern: &Regex| {
        pattern
            .replace_all(text, |found: &regex::Captures<'_>| {
                found[0]
                    .chars()
                    .map(|character| if character == '\n' { '\n' } else { ' ' })
                    .collect::<String>()
            })
            .into_owned()
    };
    let text = blank(text, &comment);
    let of_raw = raw.captures_iter(&text).map(|found| (found.get(1).unwrap().start(), found[1].to_owned()));
    let mut literals: Vec<_> = of_raw.collect();
    let rest = blank(&text, &raw);
    literals.extend(plain.captures_iter(&rest).map(|found| {
        let read = continued.replace_all(&found[1], "").replace("\\\"", "\"").replace("\\\\", "\\");
        (found.get(1).unwrap().start(), read)
    }));
    literals.retain(|(_, literal)| literal.contains("canvas"));
    literals
}

#[test]
fn conditions_are_found_wherever_they_stand() {
    let text = "select 1 from t where canvas_id = $1 and ($2::uuid is null or t.canvas_id = $2::uuid) \
                and h.canvas_id = e.canvas_id and k.canvas_id is not distinct from $3 \
                and e.canvas_id = (select canvas_id from job where kind = 'lifted') and (u.canvas_id, u.name) = (w.canvas_id, w.name) \
                and e.canvas_id is not distinct from coalesce($1, ($2)[place(e.id, $3)]) and l.canvas_id = ids[of(l.id)] \
                on conflict do update set canvas_id = excluded.canvas_id";
    let found = of(text.to_owned(), false, "text", 0);
    let changed: Vec<_> =
        found.iter().map(|condition| condition.sql.without(std::slice::from_ref(condition))).collect();
    for part in [
        "(canvas_id = $1 or true)",
        "(t.canvas_id = $2::uuid or true)",
        "(h.canvas_id = e.canvas_id or true)",
        "(k.canvas_id is not distinct from $3 or true)",
        "kind = 'lifted') or true)",
        "(u.canvas_id, u.name) = (u.canvas_id, w.name)",
        "coalesce($1, ($2)[place(e.id, $3)]) or true)",
        "(l.canvas_id = ids[of(l.id)] or true)",
    ] {
        assert_eq!(changed.iter().filter(|text| text.contains(part)).count(), 1, "{part} in {changed:#?}");
    }
    assert_eq!(changed.len(), 8, "{changed:#?}");
}

#[test]
fn there_are_conditions_in_every_place() {
    let (conditions, _) = conditions();
    let of = |start: &str| conditions.iter().filter(|condition| condition.place.starts_with(start)).count();
    let counted = ["src/store/", "streams/src/store/", "service/src/store/", "migrations/"].map(of);
    assert!(counted.iter().zip([40, 10, 8, 20]).all(|(count, least)| *count > least), "{counted:?}");
}
