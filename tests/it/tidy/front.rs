//! What a library shows first: few names at its root, and each public name at one path.

use std::collections::BTreeSet;

use super::source::{Source, words};

const ROOT_NAMES_MAX: usize = 45;

pub(super) fn complaints(lib: &Source) -> Vec<String> {
    let roots = reexported(&lib.code_outside_inline_modules()).len() + public_modules(&lib.code);
    let many = (roots > ROOT_NAMES_MAX)
        .then(|| format!("{}: {roots} names at the root, at most {ROOT_NAMES_MAX}; use a module", lib.name));
    let mut seen = BTreeSet::new();
    let twice = reexported(&lib.code).into_iter().filter(|name| !seen.insert(name.clone()));
    many.into_iter().chain(twice.map(|name| format!("{}: `{name}` has two paths", lib.name))).collect()
}

fn reexported(code: &str) -> Vec<String> {
    let statements = code.split(';').filter_map(|item| item.split_once("pub use "));
    let paths = statements.flat_map(|(_, statement)| statement.split(['{', '}', ',']));
    let names = paths.filter_map(|path| path.trim().rsplit([':', ' ']).next());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// How many `pub mod` there are, apart from hidden ones.
fn public_modules(code: &str) -> usize {
    let before = words(code, "mod").map(|start| &code[..start]);
    before.filter(|code| code.ends_with("pub ") && !code.ends_with("#[doc(hidden)]\npub ")).count()
}

#[test]
fn too_many_names_and_second_paths_are_found() {
    let names = |count| (0..count).map(|number| format!("N{number}")).collect::<Vec<_>>().join(", ");
    let lib = |names: &str| {
        let modules = "#[doc(hidden)]\npub mod internals;\npub mod log;\nmod event;\n";
        let inline = "pub mod order { pub use crate::event::{Lane, Place}; }\n";
        Source::new("src/lib.rs", &format!("{modules}pub use event::{{{names}}};\n{inline}"))
    };
    assert_eq!(complaints(&lib(&names(43))), Vec::<String>::new());
    let complaint = "src/lib.rs: 46 names at the root, at most 45; use a module";
    assert_eq!(complaints(&lib(&names(44))), [complaint]);
    assert_eq!(complaints(&lib("Event, Lane")), ["src/lib.rs: `Lane` has two paths"]);
}
