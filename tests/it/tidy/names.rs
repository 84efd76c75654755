//! Names in documents: a file, or a function of Rust or SQL, that a document names in backticks is
//! in the tree.
//!
//! It knows names alone, and must never judge the wording. A path may begin anywhere: `rows.rs` is
//! any file of that name.

use std::collections::BTreeSet;
use std::iter::repeat_n;

use super::prose;
use super::source::{Source, is_word, words};

/// How the names of files end. What has a slash is a path without any.
const ENDINGS: [&str; 9] = [".rs", ".sql", ".md", ".toml", ".json", ".yaml", ".yml", ".py", ".ts"];
/// A folder that is there only after a build.
const BUILT: &str = "target/";

/// The schema of the functions in migrations, and how they begin there.
const SCHEMA: &str = "wakeq";
const CREATE: &str = "create function wakeq.";
/// Functions of Postgres that documents name.
const OF_POSTGRES: [&str; 2] = ["clock_timestamp", "statement_timestamp"];

/// What stands between the names of a list.
const BETWEEN: [&str; 5] = [",", "and", ", and", "or", ", or"];

/// What documents can name.
pub(super) struct Tree {
    /// Files and folders, from the root.
    paths: BTreeSet<String>,
    functions: BTreeSet<String>,
    /// Types, traits and modules.
    owners: BTreeSet<String>,
}

impl Tree {
    /// The tree with these paths, sources and migrations, each of which has a name and a text.
    pub(super) fn new(paths: BTreeSet<String>, sources: &[Source], migrations: &[(String, String)]) -> Self {
        let mut functions = names_after(sources, &["fn"]);
        let lines = migrations.iter().flat_map(|(_, text)| text.lines());
        functions.extend(lines.filter_map(|line| line.strip_prefix(CREATE)).map(first_name));
        functions.extend(OF_POSTGRES.map(str::to_owned));
        let owners = names_after(sources, &["struct", "enum", "trait", "type", "mod"]);
        Self { paths, functions, owners }
    }

    /// What is missing, if a span names a file or a function. `is_said` if the text before it says
    /// that it is a function.
    fn missing(&self, span: &str, is_said: bool) -> Option<String> {
        if is_path(span) {
            return (!self.has_path(span)).then(|| format!("nothing is at `{span}`"));
        }
        let called = span.strip_suffix("()");
        let name = called.unwrap_or(span);
        let parts: Vec<&str> = name.split("::").flat_map(|part| part.split('.')).collect();
        let (last, owners) = parts.split_last()?;
        let is_name = parts.iter().all(|part| !part.is_empty() && part.chars().all(is_word));
        // A variant or a constant is not a function.
        let is_function = is_said || called.is_some() || name.contains("::");
        if !is_function || !is_name || last.starts_with(char::is_uppercase) {
            return None;
        }
        let owner = owners.last().copied().filter(|owner| *owner != SCHEMA);
        let exists = self.functions.contains(*last) && owner.is_none_or(|owner| self.owners.contains(owner));
        (!exists).then(|| format!("no function is called `{span}`"))
    }

    fn has_path(&self, span: &str) -> bool {
        let path = span.trim_end_matches('/');
        let end = format!("/{path}");
        self.paths.contains(path) || self.paths.iter().any(|known| known.ends_with(&end))
    }
}

/// What a document names and the tree does not have.
pub(super) fn complaints(document: &str, text: &str, tree: &Tree) -> Vec<String> {
    let text = prose_of(text);
    let mut complaints = Vec::new();
    let (mut before, mut line) = ("", 1);
    let (mut is_span, mut is_said) = (false, false);
    // A span may go on in the next line.
    for piece in text.split('`') {
        if is_span {
            is_said = says_function(before) || is_said && BETWEEN.contains(&before.trim());
            let missing = tree.missing(piece, is_said);
            complaints.extend(missing.map(|missing| format!("{document}:{line}: {missing}")));
        }
        line += piece.matches('\n').count();
        before = piece;
        is_span = !is_span;
    }
    complaints
}

/// The lines of a document outside fenced code, each with the number that it has there.
fn prose_of(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut next = 1;
    for (number, line) in prose::of_document(text) {
        kept.extend(repeat_n('\n', number - next));
        kept.push_str(line);
        kept.push('\n');
        next = number + 1;
    }
    kept
}

fn says_function(before: &str) -> bool {
    let before = before.trim_end();
    before.ends_with("function") || before.ends_with("functions")
}

fn is_path(span: &str) -> bool {
    let is_like_one = span.contains('/') || ENDINGS.iter().any(|ending| span.ends_with(*ending));
    let is_plain = span.chars().all(|character| is_word(character) || "-./".contains(character));
    is_like_one && is_plain && !span.starts_with('/') && !span.starts_with(BUILT)
}

/// The names that follow these words in code.
fn names_after(sources: &[Source], keywords: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources {
        for keyword in keywords {
            let found = words(&source.code, keyword);
            names.extend(found.map(|start| first_name(&source.code[start + keyword.len()..])));
        }
    }
    names
}

fn first_name(text: &str) -> String {
    text.trim_start().chars().take_while(|character| is_word(*character)).collect()
}

/// A small tree.
fn tree() -> Tree {
    let code = "pub struct Store;\nimpl Store {\n    fn claim() {}\n}\nmod leases {\n    fn renew() {}\n}\n";
    let paths = ["src", "src/store", "src/store/rows.rs", ".ci", ".ci/run"].map(str::to_owned);
    let migration = "-- Parks.\ncreate function wakeq.park(id uuid) returns void\nlanguage sql;\n";
    let migrations = [("migrations/0001.sql".to_owned(), migration.to_owned())];
    Tree::new(paths.into(), &[Source::new("src/store/rows.rs", code)], &migrations)
}

#[test]
fn names_that_exist_pass() {
    let text = "`src/store/`, `store/rows.rs`, `rows.rs`, `.ci/run`, `target/book`, `/dev/shm`,\n\
                `claim()`, `Store::claim`, `leases::renew()`, `wakeq.park()`, `clock_timestamp()`,\n\
                the functions\n`claim`, `renew` and\n`park`. These are not names of the tree:\n\
                `gone`, `cargo\nxtask gone`, `Store::Gone`, `gone::*`, `a/b c`, `gone_at` and `gone!`.\n\
                ```sh\ncat `gone.rs`\n```\n";
    assert_eq!(complaints("a.md", text, &tree()), Vec::<String>::new());
}

#[test]
fn dead_names_are_found() {
    let text = "`src/rows.rs`, `gone.rs`,\n`gone/`\n```sh\n`code.rs`\n```\n\
                `gone()`, `Store::gone`, `Gone::claim`,\n\
                `wakeq.gone()` and the functions `claim`,\n`gone` and `lost`, `lost_too`\n";
    let found = complaints("a.md", text, &tree());
    let path = |line: usize, name: &str| format!("a.md:{line}: nothing is at `{name}`");
    let function = |line: usize, name: &str| format!("a.md:{line}: no function is called `{name}`");
    assert_eq!(
        found,
        [
            path(1, "src/rows.rs"),
            path(1, "gone.rs"),
            path(2, "gone/"),
            function(6, "gone()"),
            function(6, "Store::gone"),
            function(6, "Gone::claim"),
            function(7, "wakeq.gone()"),
            function(8, "gone"),
            function(8, "lost"),
            function(8, "lost_too"),
        ]
    );
}
