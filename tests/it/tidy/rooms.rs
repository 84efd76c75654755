//! The rooms of `src/store`: each imports only those below it, and none what the store exports to
//! the rest of the package. Few know that there is a test kit.

use super::source::{Source, is_word};

/// The rooms, lowest first. Those on one floor do not know each other.
const FLOORS: [&[&str]; 6] = [
    &["kernel"],
    &["log", "minute", "quotas"],
    &["events", "targets"],
    &["crons", "order", "queues"],
    &["memory"],
    &["seam"],
];

/// The rooms that may have code for the feature `testing`: where a store keeps the kit, the kit's
/// tables, and what chooses them.
const OF_THE_KIT: [&str; 3] = ["kernel", "memory", "seam"];
const FEATURE: &str = "testing";

pub(super) fn complaints(sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(check).collect()
}

fn check(source: &Source) -> Vec<String> {
    let inside = source.name.strip_prefix("src/store/").and_then(|name| name.split_once('/'));
    let Some((room, file)) = inside.filter(|(room, _)| *room != "tests") else { return Vec::new() };
    let Some(own) = floor(room) else {
        return vec![format!("{}: add the room `{room}` to tests/it/tidy/rooms.rs", source.name)];
    };
    let code = source.code_outside_inline_modules();
    let mut complaints = Vec::new();
    for (start, path) in code.match_indices("crate::store::") {
        let name: String = code[start + path.len()..].chars().take_while(|c| is_word(*c)).collect();
        if name != room && floor(&name).is_none_or(|floor| floor >= own) {
            let line = source.line_at(start);
            complaints
                .push(format!("{}:{line}: `{room}` must not import `{name}` of the store", source.name));
        }
    }
    if !OF_THE_KIT.contains(&room) {
        let is_feature = |text: &str| text.trim_end_matches('"') == FEATURE;
        for literal in source.strings.iter().filter(|literal| is_feature(&literal.text)) {
            complaints.push(format!("{}:{}: `{room}` must not know `{FEATURE}`", source.name, literal.line));
        }
    }
    if file == "mod.rs" {
        let ways_out = code.match_indices("super::").map(|(start, _)| source.line_at(start));
        complaints.extend(ways_out.map(|line| format!("{}:{line}: write `crate::store::…`", source.name)));
    }
    complaints
}

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

#[cfg(test)]
fn found(name: &str, text: &str) -> Vec<String> {
    complaints(&[Source::new(name, text)])
}

#[test]
fn an_import_from_above_is_found() {
    let up = "use crate::store::events::InsertOutcome;";
    for (name, text, part) in [
        ("src/store/kernel/session.rs", up, "session.rs:1: `kernel` must not import `events`"),
        ("src/store/targets/lookup.rs", up, "`targets` must not import `events`"),
        ("src/store/log/read.rs", "fn a() {\n    crate::store::minute::b()\n}", "read.rs:2: `log` must not"),
        ("src/store/queues/turns.rs", "use crate::store::Store;", "must not import `Store` of the store"),
        ("src/store/queues/turns.rs", "use crate::store::{Store, StoreError};", "must not import `` of"),
        ("src/store/order/mod.rs", "use super::kernel::Store;", "mod.rs:1: write `crate::store::…`"),
        ("src/store/novelty/mod.rs", "", "add the room `novelty`"),
        ("src/store/memory/dead.rs", "use crate::store::seam::a;", "`memory` must not import `seam`"),
    ] {
        let found = found(name, text);
        assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
    }
}

#[test]
fn imports_from_below_pass() {
    let down = "pub(in crate::store) use crate::store::kernel::Store;\nuse super::claims::fences;";
    for (name, text) in [
        ("src/store/events/claims.rs", down),
        ("src/store/kernel/usage/mod.rs", "use crate::store::kernel::Store;"),
        ("src/store/kernel/route.rs", "mod tests {\n    use crate::store::{Store, StoreConfig};\n}"),
        ("src/store/tests/log.rs", "use crate::store::{LogBatch, Store};"),
        ("src/store/mod.rs", "pub use events::Rule;"),
    ] {
        assert_eq!(found(name, text), Vec::<String>::new());
    }
}

#[test]
fn few_rooms_know_the_test_kit() {
    let code = "fn a() {\n    #[cfg(feature = \"testing\")]\n    b();\n    c(\"testing them\")\n}";
    let complaint = "src/store/events/load.rs:2: `events` must not know `testing`";
    assert_eq!(found("src/store/events/load.rs", code), [complaint]);
    for name in ["src/store/kernel/session.rs", "src/store/seam/runs.rs", "src/store/tests/log.rs"] {
        assert_eq!(found(name, code), Vec::<String>::new());
    }
}
