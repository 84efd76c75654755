//! The rule that no two files of a folder define a type of the same name, so that a name in an
//! import, a backtrace or a search means one thing there.
//!
//! Types of tests and benchmarks are exempt, as are those inside of functions and inline modules.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, is_word};

const KEYWORDS: [&str; 5] = ["struct ", "enum ", "trait ", "type ", "union "];

/// Type names that several files of one folder define.
pub(super) fn complaints(sources: &[Source]) -> Vec<String> {
    let of_users = sources
        .iter()
        .filter(|source| !source.name.split('/').any(|part| ["tests", "benches"].contains(&part)));
    let mut files = BTreeMap::<(&str, String), BTreeSet<&str>>::new();
    for source in of_users {
        let (folder, file) = source.name.rsplit_once('/').unwrap_or(("", source.name.as_str()));
        for name in types(source) {
            files.entry((folder, name)).or_default().insert(file);
        }
    }
    let several = files.into_iter().filter(|(_, files)| files.len() > 1);
    let complaint = |((folder, name), files): ((&str, String), BTreeSet<&str>)| {
        let files = files.into_iter().collect::<Vec<_>>().join(" and ");
        format!("{folder}: `{name}` is in {files}: share it, or say in each name what it is")
    };
    several.map(complaint).collect()
}

/// The types at the top level of a file.
fn types(source: &Source) -> Vec<String> {
    let name = |line: &str| {
        let public = line.strip_prefix("pub").map(|rest| match rest.strip_prefix('(') {
            Some(rest) => rest.split_once(')').map_or(rest, |(_, rest)| rest),
            None => rest,
        });
        let item = public.map_or(line, str::trim_start);
        let rest = KEYWORDS.iter().find_map(|keyword| item.strip_prefix(keyword))?;
        Some(rest.chars().take_while(|character| is_word(*character)).collect::<String>())
    };
    source.code_outside_tests().lines().filter_map(name).collect()
}

#[test]
fn a_type_name_that_is_twice_in_a_folder_is_found() {
    let sources = [
        ("src/a/one.rs", "pub(super) struct Row<'a>(&'a str);\nenum Kind {}\nimpl A {\n    type B = u8;\n}"),
        ("src/a/two.rs", "struct Row;\nmod tests {\n    enum Kind {}\n}\nimpl A {\n    type B = u16;\n}"),
        ("src/a/three.rs", "pub trait Row {}\n#[cfg(a)]\ntype Way = u8;\n#[cfg(b)]\ntype Way = u16;"),
        ("src/b/one.rs", "pub struct Way;\nfn of() {\n    struct Row;\n}\n// struct Row;"),
        ("src/a/tests/one.rs", "struct Step;"),
        ("src/a/tests/two.rs", "struct Step;"),
    ]
    .map(|(name, text)| Source::new(name, text));
    assert_eq!(
        complaints(&sources),
        ["src/a: `Row` is in one.rs and three.rs and two.rs: share it, or say in each name what it is"]
    );
}
