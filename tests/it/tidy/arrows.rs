//! Which module may import which, and which may name which outside crate.
//!
//! The tables in `table.rs` are the rule, one for each package. A module that has no row there, or
//! an import that its row does not list, is a complaint; an omission allows nothing.
//!
//! Some modules have parts with rows of their own. Those of the service's resources are `wire`, the
//! JSON of all of them, and `routes` and `command`, which serve it and ask for it. Those of the
//! queue's store are its rooms. What the store exports is for the rest of the package: no room
//! imports it, and few of them know that there is a test kit.

mod samples;
mod table;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::source::{Source, is_word, words};
pub(super) use table::PACKAGES;
use table::Package;

/// Outside crates that are confined to a few modules, by the prefix of their names.
const CONFINED: &[(&str, &[&str])] = &[
    ("sqlx", &["store", "emit", "log", "entity", "worker"]),
    ("google_cloud_", &["notify", "config", "delivery"]),
    ("axum", &["http", "page", "pages", "resources::page", "resources::routes", "routes", "server", "cli"]),
    ("hyper", &["http", "server", "delivery", "cli"]),
    ("tower_", &["worker", "http", "delivery"]),
    ("utoipa", &["http", "resources::routes", "routes", "resources::wire"]),
    ("jsonwebtoken", &["access"]),
    ("aws_lc_rs", &["access", "http", "page", "resources::routes", "delivery", "event", "notify"]),
    ("maud", &["page", "resources::page"]),
    ("croner", &["cron"]),
    ("chrono_tz", &["cron"]),
    ("opentelemetry", &["telemetry", "cli"]),
    ("tracing_opentelemetry", &["telemetry", "cli"]),
    ("prometheus", &["cli"]),
    ("clap", &["config", "cli", "resources::command", "commands", "main"]),
    ("rmcp", &["commands"]),
    ("anyhow", &["config", "cli", "resources::command", "commands", "main"]),
];

/// The pure modules, and the crates that each may name besides the standard library.
const PURE: &[(&str, &[&str])] =
    &[("machine", &["thiserror", "wakeq"]), ("cron", &["thiserror", "chrono", "chrono_tz", "croner"])];

/// Public modules with files of their own, which also name what others define.
const PUBLIC: [&str; 3] = ["src/log/mod.rs", "src/machine/mod.rs", "src/notify/mod.rs"];

/// What only names the modules of its package.
pub(super) const FACES: [&str; 5] = [
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

/// The rooms of the store that may have code for the feature `testing`: where a store keeps the
/// test kit, the kit's tables, and what chooses them.
const OF_THE_KIT: [&str; 3] = ["store::kernel", "store::memory", "store::seam"];
const FEATURE: &str = "testing";

/// Exported macros: they are at the crate's root, wherever they are written.
const MACROS: [&str; 2] = ["assert_dead", "assert_emitted"];

/// Of each package, the names that it exports, each with the module that it comes from.
type Exports = [BTreeMap<String, String>; 3];

/// What a path names: a module of a package, if it is one.
struct Import {
    name: String,
    package: usize,
    module: Option<String>,
    line: usize,
}

pub(super) fn complaints(sources: &[Source]) -> Vec<String> {
    let exports = PACKAGES.each_ref().map(|package| exports(package, sources));
    sources
        .iter()
        .filter(|source| !FACES.contains(&source.name.as_str()))
        .flat_map(|source| check(source, &exports))
        .collect()
}

fn exports(package: &Package, sources: &[Source]) -> BTreeMap<String, String> {
    let of_package = |source: &Source| source.name.starts_with(package.folder);
    let among = |names: &[&str]| {
        let named = sources.iter().filter(|source| names.contains(&source.name.as_str()));
        named.filter(|source| of_package(source)).flat_map(reexports).collect::<Vec<_>>()
    };
    let public = among(&PUBLIC).into_iter().filter(|(_, module)| package.has(module));
    public.chain(among(&FACES)).collect()
}

fn check(source: &Source, exports: &Exports) -> Vec<String> {
    let Some(own) = PACKAGES.iter().position(|package| source.name.starts_with(package.folder)) else {
        return vec![format!("{}: it is in no package of tests/it/tidy/arrows/table.rs", source.name)];
    };
    let package = &PACKAGES[own];
    let path = source.name[package.folder.len()..].trim_end_matches(".rs");
    let names: Vec<&str> = path.strip_suffix("/mod").unwrap_or(path).split('/').collect();
    let (mut module, depth) = package.module(&names);
    if let [whole, part, ..] = names[..]
        && depth == 1
        && part != "tests"
        && package.has_parts(whole)
    {
        module = format!("{whole}::{part}");
    }
    let Some((_, beside, below)) = package.row(&module) else {
        return vec![format!(
            "{}: add the module `{module}` to the table in tests/it/tidy/arrows/table.rs",
            source.name
        )];
    };
    let mut complaints = Vec::new();
    for Import { name, package: of, module: target, line } in imports(source, own, exports) {
        let Some(target) = target else {
            complaints.push(format!(
                "{}:{line}: `{name}` is no module; import it from the one that defines it",
                source.name
            ));
            continue;
        };
        let is_listed = match of.cmp(&own) {
            Ordering::Less => below.contains(&target.as_str()),
            Ordering::Equal => target == module || beside.contains(&target.as_str()),
            Ordering::Greater => false,
        };
        if !is_listed {
            let of = if of == own { String::new() } else { format!(" of `{}`", PACKAGES[of].name) };
            complaints.push(format!("{}:{line}: `{module}` must not import `{target}`{of}", source.name));
        }
    }
    complaints.extend(confined_complaints(source, &module));
    complaints.extend(pure_complaints(source, names[0]));
    complaints.extend(detour_complaints(source, names.len() == depth));
    complaints.extend(statement_complaints(source, names[0]));
    complaints.extend(kit_complaints(source, &module));
    complaints
}

/// What follows `crate::`, and the names of the packages or their `internals`.
fn imports(source: &Source, own: usize, exports: &Exports) -> Vec<Import> {
    let mut found = Vec::new();
    let packages = PACKAGES.iter().map(|package| package.name).enumerate();
    for (package, root) in packages.chain([(own, "crate")]) {
        for start in words(&source.code, root) {
            // `pub(in crate::a)` imports nothing.
            let is_reach = source.code[..start].ends_with("(in ");
            let path = source.code[start + root.len()..].strip_prefix("::");
            let Some(path) = path.filter(|_| !is_reach) else { continue };
            let path = path.strip_prefix("internals::").unwrap_or(path);
            let line = source.line_at(start);
            for member in members(path) {
                let named = named(member, &PACKAGES[package], &exports[package], root != "crate");
                let named = named.into_iter().filter(|(name, _)| !MACROS.contains(&name.as_str()));
                found.extend(named.map(|(name, module)| Import { name, package, module, line }));
            }
        }
    }
    found
}

/// The names that a path into a package leads to, each with its module; from outside and of a
/// public module, the names in it that others define.
fn named(
    path: &str,
    package: &Package,
    exports: &BTreeMap<String, String>,
    is_outside: bool,
) -> Vec<(String, Option<String>)> {
    let first = first_name(path);
    let inside = path[first.len()..].strip_prefix("::");
    let inside = inside.filter(|_| is_outside && !exports.contains_key(&first));
    let names = inside.map_or_else(|| vec![""], members).into_iter().map(first_name);
    let named = names.map(|name| {
        if let Some(module) = exports.get(&name) {
            return (name, Some(module.clone()));
        }
        let (module, _) = package.module(&path_names(path));
        let known = package.has(&module).then_some(&module).or_else(|| exports.get(&module)).cloned();
        (module, known)
    });
    named.collect()
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

/// The names of the path at the start of a text.
fn path_names(text: &str) -> Vec<&str> {
    let end = text.find(|character: char| !is_word(character) && character != ':').unwrap_or(text.len());
    text[..end].split("::").collect()
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
            if name.starts_with(prefix) && !is_within(module, modules) {
                complaints.push(format!("{}:{line}: `{name}` belongs in {modules:?} only", source.name));
            }
        }
    }
    complaints
}

/// Whether a module is one of these, or a part of one.
fn is_within(module: &str, modules: &[&str]) -> bool {
    let rest = |whole: &&str| module.strip_prefix(*whole);
    modules.iter().filter_map(rest).any(|rest| rest.is_empty() || rest.starts_with("::"))
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

/// Ways around the table: `super` from the file of a module or of a part, and `super::super`.
fn detour_complaints(source: &Source, is_top: bool) -> Vec<String> {
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

fn kit_complaints(source: &Source, module: &str) -> Vec<String> {
    if !module.starts_with("store::") || OF_THE_KIT.contains(&module) {
        return Vec::new();
    }
    let is_feature = |text: &str| text.trim_end_matches('"') == FEATURE;
    let found = source.strings.iter().filter(|literal| is_feature(&literal.text));
    found
        .map(|literal| format!("{}:{}: `{module}` must not know `{FEATURE}`", source.name, literal.line))
        .collect()
}

fn is_statement(text: &str) -> bool {
    let words = text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    STATEMENTS.iter().any(|(start, part)| words.starts_with(start) && words.contains(part))
}
