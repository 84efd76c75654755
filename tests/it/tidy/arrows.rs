//! Which module may import which, and which may name which outside crate.
//!
//! The packages are walls: Cargo refuses an import of the streams or the service in the queue, and
//! of the service in the streams. A module that several packages have, such as `event`, is one
//! module here. So are the parts of the service's resources: `resources::wire` is the JSON of all
//! of them, and `resources::routes` and `resources::command` serve it and ask for it.
//!
//! The table is the rule. A module that is not in it, or an import that it does not list, is a
//! complaint; an omission allows nothing.

mod samples;

use std::collections::BTreeMap;

use super::source::{Source, is_word, words};

/// Each top-level module of the packages and the ones it may import, leaves first.
const ARROWS: &[(&str, &[&str])] = &[
    ("event", &[]),
    ("fault", &[]),
    ("telemetry", &["event"]),
    ("machine", &["event"]),
    ("cron", &["event"]),
    ("store", &["event"]),
    ("broadcast", &["event", "telemetry"]),
    ("notify", &["event", "broadcast", "store"]),
    ("observe", &["event", "telemetry", "store"]),
    ("wake", &["event", "fault", "telemetry", "cron", "store", "notify"]),
    ("explain", &["event", "machine", "store"]),
    ("emit", &["event", "fault", "telemetry", "store", "broadcast", "notify"]),
    ("admin", &["event", "fault", "cron", "machine", "store", "notify", "wake", "explain"]),
    ("worker", &["event", "fault", "telemetry", "store", "notify", "wake", "emit", "machine"]),
    ("delivery", &["event", "telemetry", "machine", "store", "worker"]),
    ("log", &["event", "store", "broadcast", "notify"]),
    ("consumer", &["event", "fault", "telemetry", "machine", "store", "log"]),
    (
        "entity",
        &[
            "event",
            "fault",
            "telemetry",
            "machine",
            "store",
            "broadcast",
            "notify",
            "emit",
            "consumer",
            "worker",
        ],
    ),
    ("broker", &["event", "fault", "telemetry", "machine", "store", "broadcast", "consumer"]),
    ("groups", &["event", "store", "admin"]),
    ("access", &["event", "store"]),
    ("resources", &[]),
    (
        "resources::wire",
        &["event", "machine", "cron", "store", "admin", "explain", "emit", "entity", "groups", "access"],
    ),
    (
        "http",
        &[
            "event",
            "access",
            "broadcast",
            "delivery",
            "telemetry",
            "store",
            "emit",
            "entity",
            "groups",
            "log",
            "admin",
        ],
    ),
    ("resources::routes", &["event", "access", "resources::wire", "http", "store", "emit", "admin"]),
    ("routes", &["event", "access", "telemetry", "http", "resources::routes"]),
    (
        "server",
        &[
            "event",
            "access",
            "routes",
            "broadcast",
            "delivery",
            "http",
            "store",
            "notify",
            "emit",
            "entity",
            "groups",
            "log",
            "admin",
        ],
    ),
    ("config", &["event", "access", "broadcast", "delivery", "server", "store", "notify", "worker"]),
    (
        "cli",
        &[
            "event",
            "access",
            "resources::wire",
            "telemetry",
            "broadcast",
            "config",
            "delivery",
            "http",
            "server",
            "store",
            "notify",
            "emit",
            "entity",
            "groups",
            "broker",
            "log",
            "admin",
            "worker",
            "observe",
        ],
    ),
    ("resources::command", &["event", "machine", "cron", "access", "resources::wire", "config", "cli"]),
    ("doctor", &["event", "store", "notify"]),
    (
        "commands",
        &[
            "event",
            "resources::wire",
            "resources::command",
            "broadcast",
            "config",
            "delivery",
            "server",
            "cli",
            "store",
            "notify",
            "emit",
            "admin",
            "wake",
            "worker",
            "doctor",
            "observe",
        ],
    ),
    ("main", &["commands", "worker"]),
    ("testing", &["event", "machine", "store", "broadcast", "notify", "explain", "emit", "admin", "worker"]),
];

/// The parts of a resource.
const PARTS: [&str; 3] = ["wire", "routes", "command"];

/// Outside crates that are confined to a few modules, by the prefix of their names.
const CONFINED: &[(&str, &[&str])] = &[
    ("sqlx", &["store", "emit", "log", "entity"]),
    ("google_cloud_", &["notify", "config", "delivery"]),
    ("axum", &["http", "resources::routes", "routes", "server", "cli"]),
    ("hyper", &["http", "server", "delivery", "cli"]),
    ("utoipa", &["http", "resources::routes", "routes", "resources::wire"]),
    ("jsonwebtoken", &["access"]),
    ("aws_lc_rs", &["access", "resources::routes", "delivery", "event", "notify"]),
    ("croner", &["cron"]),
    ("chrono_tz", &["cron"]),
    ("opentelemetry", &["telemetry", "cli"]),
    ("tracing_opentelemetry", &["telemetry", "cli"]),
    ("prometheus", &["cli"]),
    ("clap", &["config", "cli", "resources::command", "commands", "main"]),
    ("anyhow", &["config", "cli", "resources::command", "commands", "main"]),
];

/// The pure modules, and the crates that each may name besides the standard library.
const PURE: &[(&str, &[&str])] =
    &[("machine", &["thiserror", "wakeq"]), ("cron", &["thiserror", "chrono", "chrono_tz", "croner"])];

/// Public modules with files of their own, which also name what others define.
const PUBLIC: [&str; 3] = ["src/log/mod.rs", "src/machine/mod.rs", "src/notify/mod.rs"];

/// What only names the modules of its package.
const FACES: [&str; 5] = [
    "src/lib.rs",
    "src/internals.rs",
    "streams/src/lib.rs",
    "streams/src/internals.rs",
    "service/src/lib.rs",
];

const MANIFESTS: [&str; 3] = [
    include_str!("../../../Cargo.toml"),
    include_str!("../../../streams/Cargo.toml"),
    include_str!("../../../service/Cargo.toml"),
];

const STATEMENTS: &[(&str, &str)] = &[
    ("select ", " from "),
    ("select ", "("),
    ("insert into ", ""),
    ("update ", " set "),
    ("delete from ", ""),
    ("with ", " as ("),
    ("create table", ""),
    ("truncate ", ""),
];

/// Exported macros: they are at the crate's root, wherever they are written.
const MACROS: [&str; 2] = ["assert_dead", "assert_emitted"];

pub(super) fn complaints(sources: &[Source]) -> Vec<String> {
    let among = |names: &'static [&'static str]| {
        sources.iter().filter(move |source| names.contains(&source.name.as_str())).flat_map(reexports)
    };
    let exports = among(&PUBLIC).filter(|(_, module)| is_module(module)).chain(among(&FACES)).collect();
    sources
        .iter()
        .filter(|source| !FACES.contains(&source.name.as_str()))
        .flat_map(|source| check(source, &exports))
        .collect()
}

fn check(source: &Source, exports: &BTreeMap<String, String>) -> Vec<String> {
    let module = module(in_package(source).trim_end_matches(".rs").split('/'));
    let module = module.as_str();
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == module) else {
        return vec![format!(
            "{}: add the module `{module}` to the table in tests/it/tidy/arrows.rs",
            source.name
        )];
    };
    let mut complaints = Vec::new();
    let imports = imports(source, exports).into_iter();
    for (name, line) in imports.filter(|(name, _)| !MACROS.contains(&name.as_str())) {
        let target =
            if is_module(&name) { name.clone() } else { exports.get(&name).cloned().unwrap_or_default() };
        if target.is_empty() {
            complaints.push(format!(
                "{}:{line}: `{name}` is no module; import it from the one that defines it",
                source.name
            ));
        } else if target != module && !allowed.contains(&target.as_str()) {
            complaints.push(format!("{}:{line}: `{module}` must not import `{target}`", source.name));
        }
    }
    complaints.extend(confined_complaints(source, module));
    complaints.extend(pure_complaints(source, module));
    complaints.extend(detour_complaints(source));
    complaints.extend(statement_complaints(source, module));
    complaints
}

/// The module of a path: its first name and, among the resources, the part of a resource.
fn module<'p>(path: impl Iterator<Item = &'p str>) -> String {
    let mut names = path.map(first_name);
    let first = names.next().unwrap_or_default();
    let part = (first == "resources").then(|| names.take(2).find(|name| PARTS.contains(&name.as_str())));
    part.flatten().map_or(first, |part| format!("resources::{part}"))
}

/// A file's name in the sources of its package.
fn in_package(source: &Source) -> &str {
    let name = source.name.trim_start_matches("streams/").trim_start_matches("service/");
    name.trim_start_matches("src/")
}

fn is_module(name: &str) -> bool {
    ARROWS.iter().any(|(module, _)| *module == name)
}

/// Modules after `crate::`, and after the names of the packages or their `internals`, with
/// their lines. Of a package's public module, the names in it that others define.
fn imports(source: &Source, exports: &BTreeMap<String, String>) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for root in ["crate", "wakeq", "wakeq_streams", "wakeq_service"] {
        for start in words(&source.code, root) {
            let Some(path) = source.code[start + root.len()..].strip_prefix("::") else { continue };
            let path = path.strip_prefix("internals::").unwrap_or(path);
            for member in members(path) {
                let name = first_name(member);
                let is_public = root != "crate" && !exports.contains_key(&name);
                let inside = member[name.len()..].strip_prefix("::").filter(|_| is_public);
                let names = inside.map_or(vec![""], members).into_iter().map(first_name);
                let names =
                    names.map(
                        |inner| if exports.contains_key(&inner) { inner } else { module(member.split("::")) },
                    );
                found.extend(names.map(|name| (name, source.line_at(start))));
            }
        }
    }
    found
}

/// A path, or the paths in `{a::b, c::{d, e}, f}`, each with what follows it.
fn members(path: &str) -> Vec<&str> {
    let Some(group) = path.strip_prefix('{') else { return vec![path] };
    let mut depth = 1;
    let mut members = Vec::new();
    let mut at_start = true;
    for (offset, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => at_start = true,
            _ if at_start && is_word(character) => {
                members.push(&group[offset..]);
                at_start = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    members
}

fn first_name(path: &str) -> String {
    path.trim_start().chars().take_while(|character| is_word(*character)).collect()
}

/// The names that a `lib.rs` or an `internals.rs` exports, each with the module it comes from.
fn reexports(lib: &Source) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for statement in
        lib.code.split(';').filter_map(|item| item.split_once("pub use ")).map(|(_, statement)| statement)
    {
        let module = first_name(statement.trim_start_matches("crate::"));
        let names = statement.split(['{', '}', ',']).filter_map(|path| path.trim().rsplit([':', ' ']).next());
        for name in names.filter(|name| !name.is_empty()) {
            exports.insert(name.to_owned(), module.clone());
        }
    }
    exports
}

fn confined_complaints(source: &Source, module: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, line) in path_roots(source, &source.code) {
        for (prefix, modules) in CONFINED {
            if name.starts_with(prefix) && !modules.contains(&module) {
                complaints.push(format!("{}:{line}: `{name}` belongs in {modules:?} only", source.name));
            }
        }
    }
    complaints
}

fn pure_complaints(source: &Source, module: &str) -> Vec<String> {
    let Some((_, allowed)) = PURE.iter().find(|(pure, _)| *pure == module) else { return Vec::new() };
    let crates: Vec<_> = MANIFESTS.into_iter().flat_map(dependencies).collect();
    let named = path_roots(source, &source.code_outside_inline_modules()).into_iter();
    let outside = named.filter(|(name, _)| crates.contains(name) && !allowed.contains(&name.as_str()));
    outside.map(|(name, line)| format!("{}:{line}: `{module}` must not know `{name}`", source.name)).collect()
}

/// Names of the crates that a manifest depends on, as code spells them.
fn dependencies(manifest: &str) -> Vec<String> {
    let sections = manifest.split("\n[").filter(|section| section.starts_with("dependencies]"));
    let lines = sections.flat_map(|section| section.lines().skip(1));
    lines.map(|line| first_name(&line.replace('-', "_"))).filter(|name| !name.is_empty()).collect()
}

/// Names that a path begins with (`name::…`), with their lines.
fn path_roots(source: &Source, code: &str) -> Vec<(String, usize)> {
    let mut roots = Vec::new();
    for (end, _) in code.match_indices("::") {
        let name: String = code[..end].chars().rev().take_while(|character| is_word(*character)).collect();
        let name: String = name.chars().rev().collect();
        let before = &code[..end - name.len()];
        if !name.is_empty() && !before.ends_with("::") && !before.ends_with('$') {
            roots.push((name, source.line_at(end)));
        }
    }
    roots
}

/// Ways around the table: `super` from a top-level file, and `super::super`.
fn detour_complaints(source: &Source) -> Vec<String> {
    let is_top = !in_package(source).trim_end_matches("/mod.rs").contains('/');
    let code = if is_top { source.code_outside_inline_modules() } else { source.code.clone() };
    let detour = if is_top { "super::" } else { "super::super" };
    let found = code.match_indices(detour).map(|(start, _)| source.line_at(start));
    found.map(|line| format!("{}:{line}: write `crate::…` instead of `{detour}`", source.name)).collect()
}

fn statement_complaints(source: &Source, module: &str) -> Vec<String> {
    if module == "store" {
        return Vec::new();
    }
    let mut lines: Vec<_> = source
        .strings
        .iter()
        .filter(|literal| is_statement(&literal.text))
        .map(|literal| literal.line)
        .collect();
    lines.extend(source.code.match_indices("sqlx::query").map(|(start, _)| source.line_at(start)));
    lines
        .into_iter()
        .map(|line| format!("{}:{line}: SQL lives in src/store/ and migrations/", source.name))
        .collect()
}

fn is_statement(text: &str) -> bool {
    let words = text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    STATEMENTS.iter().any(|(start, part)| words.starts_with(start) && words.contains(part))
}
