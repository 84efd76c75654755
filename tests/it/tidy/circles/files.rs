//! The arrows between the files of a package, as far as their texts tell: the files that define
//! what a file imports, or names by a path.
//!
//! A name that a file only passes on (`pub use`) is followed to the file that defines it, and is
//! not an arrow of the file that passes it on. Nor is a declaration (`mod a;`). Tests are left out.
//! What only a compiler knows is not seen: methods, fields, and what a macro makes.

use std::collections::{BTreeMap, BTreeSet};

use super::components::Arrows;
use crate::tidy::arrows::FACES;
use crate::tidy::source::{Source, is_word, words};

/// How many imports of imports are followed.
const STEPS_MAX: usize = 12;

/// Of each file of a package, but those that only name its modules, the files that it imports from.
pub(super) fn arrows(folder: &str, sources: &[Source]) -> Arrows {
    let tree = Tree::new(folder, sources);
    let files = tree.files.iter().filter(|(_, file)| !FACES.contains(&file.name));
    let arrows = files.map(|(module, file)| {
        let used = file.uses.iter().filter(|used| !used.is_passed_on || file.mentions(&used.name));
        let paths = used.map(|used| used.path.clone()).chain(paths(&file.code));
        let found = paths.filter_map(|path| match tree.resolve(module, &path, 0)? {
            Found::Module(_) => None,
            Found::File(name) => Some(name),
        });
        let others = found.filter(|name| *name != file.name && !FACES.contains(name));
        (file.name.to_owned(), others.map(str::to_owned).collect::<BTreeSet<_>>())
    });
    arrows.collect()
}

/// The modules of a package by their paths, as in `store::events`; the root is the empty one.
struct Tree<'s> {
    files: BTreeMap<String, File<'s>>,
    /// Also those without a file of their own.
    modules: BTreeSet<String>,
}

struct File<'s> {
    name: &'s str,
    uses: Vec<Used>,
    /// Its code without tests, imports and declarations of modules.
    code: String,
}

/// A name that a file imports.
struct Used {
    path: Vec<String>,
    name: String,
    is_passed_on: bool,
    /// It is not inside a function, so that other files can import it from here.
    is_outer: bool,
}

/// What a path leads to.
enum Found<'s> {
    Module(String),
    /// The file that defines it.
    File(&'s str),
}

impl<'s> Tree<'s> {
    fn new(folder: &str, sources: &'s [Source]) -> Self {
        let (mut files, mut tests) = (BTreeMap::new(), Vec::new());
        for source in sources {
            let Some(module) = source.name.strip_prefix(folder).and_then(module) else { continue };
            let code = source.code_outside_tests();
            let kept = declared(&code);
            let all = declared(&source.code_outside_inline_modules());
            tests.extend(all.difference(&kept).map(|name| join(&module, name)));
            files.insert(module, File::new(source, &code));
        }
        files.retain(|module, _| !tests.contains(module));
        let mut modules = BTreeSet::new();
        for module in files.keys() {
            let ends = module.match_indices("::").map(|(end, _)| end).chain([module.len()]);
            modules.extend(ends.map(|end| module[..end].to_owned()));
        }
        Self { files, modules }
    }

    /// What a path leads to, if that is in the package; `from` is the module that it is written in.
    fn resolve(&self, from: &str, path: &[String], steps: usize) -> Option<Found<'s>> {
        let (first, rest) = path.split_first()?;
        let mut module = match first.as_str() {
            _ if steps > STEPS_MAX => return None,
            "crate" => String::new(),
            "self" => from.to_owned(),
            "super" => parent(from),
            name => match self.step(from, name, (rest.is_empty(), true), steps)? {
                Found::Module(module) => module,
                file @ Found::File(_) => return Some(file),
            },
        };
        for (at, name) in rest.iter().enumerate() {
            let is_last = at + 1 == rest.len();
            match name.as_str() {
                "self" => {}
                "super" => module = parent(&module),
                name => match self.step(&module, name, (is_last, false), steps) {
                    Some(Found::Module(found)) => module = found,
                    Some(file @ Found::File(_)) => return Some(file),
                    None => return self.files.get(&module).map(|file| Found::File(file.name)),
                },
            }
        }
        Some(Found::Module(module))
    }

    /// What a name means in a module: a module in it, or what it imports. A name that is both, as
    /// of a function and of its file, is a module unless the path ends with it.
    fn step(
        &self,
        module: &str,
        name: &str,
        (is_last, is_inside): (bool, bool),
        steps: usize,
    ) -> Option<Found<'s>> {
        let imported = self.files.get(module).and_then(|file| file.imported(name, is_inside));
        let inner = join(module, name);
        if self.modules.contains(&inner) && !(is_last && imported.is_some_and(|path| path.len() > 1)) {
            return Some(Found::Module(inner));
        }
        let path = imported.filter(|path| path.len() > 1 || path[0] != name)?;
        self.resolve(module, path, steps + 1)
    }
}

impl<'s> File<'s> {
    fn new(source: &'s Source, code: &str) -> Self {
        let (mut uses, mut rest) = (Vec::new(), code.to_owned());
        let statements = words(code, "use").filter(|start| !code[start + 3..].trim_start().starts_with('<'));
        for start in statements {
            let end = code[start..].find(';').map_or(code.len(), |length| start + length);
            let before = code[..start].rfind([';', '{', '}']).map_or(0, |end| end + 1);
            let is_passed_on = words(&code[before..start], "pub").next().is_some();
            let around = &source.code[..start];
            let is_outer = around.matches('{').count() == around.matches('}').count();
            for (path, name) in leaves(&code[start + 3..end], &[]) {
                uses.push(Used { path, name, is_passed_on, is_outer });
            }
            rest.replace_range(start..end, &" ".repeat(end - start));
        }
        let declarations: Vec<_> = declarations(&rest).map(|(start, end, _)| start..end).collect();
        for range in declarations {
            rest.replace_range(range.clone(), &" ".repeat(range.len()));
        }
        Self { name: &source.name, uses, code: rest }
    }

    /// The path of a name that the file imports; `is_inside` if the name is written in the file.
    fn imported(&self, name: &str, is_inside: bool) -> Option<&[String]> {
        let found = |used: &&Used| used.name == name && name != "*" && (is_inside || used.is_outer);
        self.uses.iter().rev().find(found).map(|used| used.path.as_slice())
    }

    fn mentions(&self, name: &str) -> bool {
        words(&self.code, name).next().is_some()
    }
}

/// The module of a file, by its path in the package; `None` for tests and for a program.
fn module(path: &str) -> Option<String> {
    let mut names: Vec<_> = path.strip_suffix(".rs")?.split('/').collect();
    if names.contains(&"tests") || names == ["main"] {
        return None;
    }
    names.pop_if(|name| *name == "mod");
    Some(if names == ["lib"] { String::new() } else { names.join("::") })
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

fn parent(module: &str) -> String {
    module.rsplit_once("::").map(|(parent, _)| parent.to_owned()).unwrap_or_default()
}

/// The modules that a file declares, without those that are written in it.
fn declared(code: &str) -> BTreeSet<String> {
    declarations(code).map(|(_, _, name)| name.to_owned()).collect()
}

fn declarations(code: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    words(code, "mod").filter_map(move |start| {
        let end = start + code[start..].find(';')?;
        let name = code[start + 3..end].trim();
        (!name.is_empty() && name.chars().all(is_word)).then_some((start, end + 1, name))
    })
}

/// The paths in `a::{b, c::{d as e, self}}`, each with the name that it gets.
fn leaves(tree: &str, before: &[String]) -> Vec<(Vec<String>, String)> {
    if let Some((head, group)) = tree.split_once('{') {
        let path = [before, names(head).as_slice()].concat();
        return parts(group).into_iter().flat_map(|part| leaves(part, &path)).collect();
    }
    let (own, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let own = names(own);
    if own.is_empty() {
        return Vec::new();
    }
    let mut path = [before, own.as_slice()].concat();
    path.pop_if(|name| *name == "self");
    let Some(last) = path.last() else { return Vec::new() };
    let name = if alias.is_empty() { last.clone() } else { alias.trim().to_owned() };
    vec![(path, name)]
}

/// What commas separate in a group, up to its closing brace.
fn parts(group: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&group[start..at]);
                return parts;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts
}

fn names(path: &str) -> Vec<String> {
    path.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

/// The paths of two names or more in code.
fn paths(code: &str) -> Vec<Vec<String>> {
    let (mut found, mut rest, mut before) = (Vec::new(), code, ' ');
    while let Some(next) = rest.chars().next() {
        if !is_word(next) {
            (before, rest) = (next, &rest[next.len_utf8()..]);
            continue;
        }
        let end = rest.find(|character: char| !is_word(character) && character != ':');
        let end = end.unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches(':');
        if path.contains("::") && !matches!(before, ':' | '.') {
            found.push(path.split("::").map(str::to_owned).collect());
        }
        before = rest[..end].chars().next_back().unwrap_or(' ');
        rest = &rest[end..];
    }
    found
}
