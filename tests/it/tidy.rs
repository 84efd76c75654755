//! Holds the tree to its own rules: arrows between modules, circles of files, sizes, headers,
//! leftovers and documents.
//!
//! Each rule is a function from text to a list of complaints, with a test on a bad sample, and one
//! test here that applies it to the tree. A rule never changes a file; one test, which runs only
//! when asked for, writes the table of requirements.

mod arrows;
mod builds;
mod circles;
mod documents;
mod faults;
mod front;
mod markup;
mod names;
mod prose;
mod recipes;
mod requirements;
mod source;
mod sql;
mod types;
mod upkeep;
mod waits;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::support::repository::root;
use source::Source;

const FOLDERS: [&str; 8] =
    ["src", "streams", "service", "nats", "clients/rust", "emulator", "tools", "tests"];
const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
/// How many functions are called `what_…`. It may only get lower.
const WITHOUT_SUBJECT: usize = 87;
/// Where `cargo xtask long` looks for tests.
const MARKED: [&str; 4] = ["tests/it/", "src/", "streams/src/", "service/src/"];
/// Above each test that `cargo xtask long` runs.
const LONG: &str = "#[ignore = \"long: `cargo xtask long` runs it\"]";
const LEFTOVERS: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];
/// Documents whose every file and function has to exist.
const ABOUT_CODE: [&str; 9] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/chores.md",
    "docs/design/invariants.md",
    "docs/design/statements.md",
    "docs/design/walks.md",
    "docs/state_machine.md",
    "migrations/README.md",
];
/// Of the repository and of its packages.
const READMES: [&str; 11] = [
    "README.md",
    "clients/python/README.md",
    "clients/rust/README.md",
    "clients/typescript/README.md",
    "emulator/README.md",
    "emulator/npm/README.md",
    "emulator/pypi/README.md",
    "emulator/testcontainers/README.md",
    "nats/README.md",
    "service/README.md",
    "streams/README.md",
];

#[test]
#[ignore = "long: `cargo xtask long` runs it"]
fn modules_import_only_along_the_arrows() {
    pass(&arrows::complaints(&packages()));
}

#[test]
#[ignore = "long: `cargo xtask long` runs it"]
fn no_files_but_the_listed_import_in_a_circle() {
    pass(&circles::complaints(&packages()));
}

#[test]
fn the_libraries_show_few_names_each_at_one_path() {
    let faces = ["src/lib.rs", "streams/src/lib.rs"].map(|name| Source::new(name, &read(&root().join(name))));
    pass(&faces.iter().flat_map(front::complaints).collect::<Vec<_>>());
}

#[test]
fn no_type_name_is_twice_in_a_folder() {
    pass(&types::complaints(sources()));
}

#[test]
fn files_and_functions_are_small() {
    pass(&sources().iter().flat_map(size_complaints).collect::<Vec<_>>());
}

#[test]
fn migrations_are_small_and_define_each_function_once() {
    pass(&sql::complaints(&migrations()));
}

/// In a list of tests `what_was_kept_comes_back` says of nothing what it is.
#[test]
fn names_without_a_subject_become_fewer() {
    let functions = sources().iter().flat_map(Source::functions);
    let count = functions.filter(|function| function.name.starts_with("what_")).count();
    assert!(count <= WITHOUT_SUBJECT, "{count} functions are called `what_…`: begin with what it is");
    assert_eq!(count, WITHOUT_SUBJECT, "fewer are called `what_…`: lower WITHOUT_SUBJECT");
}

#[test]
fn every_file_says_what_it_is_for() {
    pass(&sources().iter().filter_map(header_complaint).collect::<Vec<_>>());
}

#[test]
fn nothing_unfinished_is_left() {
    pass(&sources().iter().flat_map(leftover_complaints).collect::<Vec<_>>());
}

#[test]
fn no_test_waits_without_an_end() {
    pass(&sources().iter().flat_map(waits::complaints).collect::<Vec<_>>());
}

#[test]
fn links_in_documents_lead_somewhere() {
    let documents = files_with_extension(&root(), "md");
    assert!(!documents.is_empty(), "no document was read");
    let complaints = documents.iter().flat_map(|path| {
        let at = |target: &str| path.parent().unwrap().join(target);
        let (exists, text_of) = (|target: &str| at(target).exists(), |target: &str| read(&at(target)));
        documents::link_complaints(&name_of(path), &read(path), exists, text_of)
    });
    pass(&complaints.collect::<Vec<_>>());
}

#[test]
fn prose_wraps_and_is_plain() {
    let documents = files_with_extension(&root(), "md");
    let documents = documents.iter().flat_map(|path| {
        let text = read(path);
        prose::complaints(&name_of(path), &prose::of_document(&text))
    });
    let comments = sources()
        .iter()
        .flat_map(|source| prose::complaints(&source.name, &prose::of_comments(&source.text, "//")));
    let migrations = migrations();
    let in_sql =
        migrations.iter().flat_map(|(name, text)| prose::complaints(name, &prose::of_comments(text, "--")));
    pass(&documents.chain(comments).chain(in_sql).collect::<Vec<_>>());
}

/// Whoever uses wakeq learns no more words than these.
#[test]
fn users_have_few_words_to_learn() {
    let name = "docs/words.md";
    pass(&documents::word_complaints(name, &read(&root().join(name))));
}

/// The site has no other pages. It shows decisions below their own list.
#[test]
fn every_document_is_in_the_list_of_its_folder() {
    let documents: Vec<_> =
        files_with_extension(&root().join("docs"), "md").iter().map(|path| name_of(path)).collect();
    let (decisions, others): (Vec<_>, Vec<_>) =
        documents.into_iter().partition(|name| name.starts_with("docs/adr/0"));
    assert!(!decisions.is_empty() && !others.is_empty(), "no document was read");
    let complaints = [("docs/SUMMARY.md", others), ("docs/adr/README.md", decisions)]
        .map(|(index, documents)| documents::unlisted(index, &read(&root().join(index)), &documents));
    pass(&complaints.concat());
}

/// Decisions, requirements and routes are lists that grow.
#[test]
fn pages_are_short() {
    let pages = files_with_extension(&root().join("docs"), "md");
    let pages = pages.iter().map(|path| name_of(path)).filter(|name| !name.starts_with("docs/adr/"));
    let pages = pages.filter(|name| !["docs/requirements.md", "docs/routes.md"].contains(&name.as_str()));
    let others = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"].map(str::to_owned);
    let pages: BTreeSet<_> = pages.chain(others).collect();
    for reference in documents::REFERENCES {
        assert!(pages.contains(reference), "{reference} was not read");
    }
    let complaints =
        pages.iter().filter_map(|name| documents::length_complaint(name, &read(&root().join(name))));
    pass(&complaints.collect::<Vec<_>>());
}

/// Decisions are exempt, which stay as they were written.
#[test]
fn pages_are_of_sentences() {
    let pages = files_with_extension(&root().join("docs"), "md");
    let pages = pages.iter().map(|path| name_of(path)).filter(|name| !name.starts_with("docs/adr/0"));
    let pages: BTreeSet<_> = pages.chain(READMES.map(str::to_owned)).collect();
    let complaints =
        pages.iter().filter_map(|name| documents::colons_complaint(name, &read(&root().join(name))));
    pass(&complaints.collect::<Vec<_>>());
}

#[test]
fn documents_name_files_and_functions_that_exist() {
    let tree = names::Tree::new(paths(), sources(), &migrations());
    let complaints =
        ABOUT_CODE.iter().flat_map(|name| names::complaints(name, &read(&root().join(name)), &tree));
    pass(&complaints.collect::<Vec<_>>());
}

#[test]
fn the_recipe_for_a_field_names_every_place_of_one() {
    let migrations = migrations();
    let migrations = migrations.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let sources = sources().iter().map(|source| (source.name.as_str(), source.text.as_str()));
    pass(&recipes::complaints(&read(&root().join("CONTRIBUTING.md")), migrations.chain(sources)));
}

#[test]
fn every_file_that_pins_versions_is_watched() {
    let files = ["lock", "json", "txt"].map(|extension| files_with_extension(&root(), extension));
    let files = files.concat().into_iter().map(|path| name_of(&path));
    let files: Vec<_> = files
        .filter(|name| name.rsplit('/').next().is_some_and(|name| upkeep::ecosystem(name).is_some()))
        .collect();
    for some in ["Cargo.lock", "tools/bench/node/package-lock.json", "tests/edge/requirements.txt"] {
        assert!(files.contains(&some.to_owned()), "{some} was not found");
    }
    pass(&upkeep::unwatched(&read(&root().join(".github/dependabot.yml")), &files));
}

#[test]
fn every_requirement_names_the_tests_that_show_it() {
    pass(&requirements::complaints(&read(&requirements_page()), sources()));
}

#[test]
#[ignore = "writes docs/requirements.md: `cargo xtask requirements` runs it"]
fn the_tests_of_every_requirement_are_written() {
    let (tests, complaints) = requirements::shown(sources());
    pass(&complaints);
    let page = requirements_page();
    fs::write(&page, requirements::page(&read(&page), &tests)).unwrap();
}

#[test]
fn every_row_of_the_asvs_names_tests_that_exist() {
    let tests = sources().iter().flat_map(Source::test_names).collect();
    pass(&documents::unknown_tests(&read(&root().join("docs/asvs.md")), &tests));
}

// Shows: CARD-03
#[test]
fn the_top_level_holds_what_was_agreed() {
    let listing: Vec<_> = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap()).collect();
    let holds = |name: &str, is_folder: bool| {
        let mut named = listing.iter().filter(|entry| entry.file_name() == name);
        named.any(|entry| entry.file_type().unwrap().is_dir() == is_folder)
    };
    for file in ["Cargo.toml", "Dockerfile", "README.md"] {
        assert!(holds(file, false), "{file} is missing");
    }
    for folder in ["src", "migrations", "tests", "emulator"] {
        assert!(holds(folder, true), "{folder}/ is missing");
    }
}

/// The queue knows neither streams nor service, and the streams no service, not even in tests.
#[test]
fn packages_depend_downwards_only() {
    let above: [(&str, &[&str]); 2] =
        [("Cargo.toml", &["wakeq-streams", "wakeq-service"]), ("streams/Cargo.toml", &["wakeq-service"])];
    for (name, above) in above {
        let manifest = read(&root().join(name));
        let of_package = ["dependencies]", "dev-dependencies]", "build-dependencies]"];
        let sections: Vec<_> = manifest
            .split("\n[")
            .filter(|section| of_package.iter().any(|header| section.starts_with(header)))
            .collect();
        assert!(sections.len() >= 2, "{name}: {sections:?}");
        for line in sections.iter().flat_map(|section| section.lines()) {
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
            assert!(!above.contains(&dependency), "{name}: {dependency} is above it");
        }
    }
}

/// `WAKEQ_FAULT` means nothing in a build for users.
#[test]
fn functions_that_end_the_process_are_in_builds_for_tests_only() {
    let of_library = sources().iter().filter(|source| {
        ["src/", "streams/src/", "service/src/"].iter().any(|folder| source.name.starts_with(folder))
    });
    let (complaints, guarded): (Vec<_>, Vec<_>) = of_library.map(faults::complaints).unzip();
    assert_eq!(guarded.iter().sum::<usize>(), 2, "src/fault.rs was not read: it has two such functions");
    let manifests = ["Cargo.toml", "streams/Cargo.toml", "service/Cargo.toml"];
    let of_manifests =
        manifests.iter().flat_map(|name| faults::manifest_complaints(name, &read(&root().join(name))));
    pass(&complaints.into_iter().flatten().chain(of_manifests).collect::<Vec<_>>());
}

/// What tenants write would otherwise act in the browsers of those who look at it.
#[test]
fn pages_escape_what_they_show() {
    let of_service = sources().iter().filter(|source| source.name.starts_with("service/src/"));
    let (complaints, needed): (Vec<_>, Vec<_>) = of_service.map(markup::complaints).unzip();
    assert_eq!(
        needed.iter().sum::<usize>(),
        markup::listed(),
        "a file needs nothing of what it is listed for"
    );
    pass(&complaints.into_iter().flatten().collect::<Vec<_>>());
}

fn size_complaints(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    let mut complaints = Vec::new();
    if lines > FILE_LINES_MAX {
        complaints.push(format!(
            "{}: {lines} lines, at most {FILE_LINES_MAX}; split it by responsibility",
            source.name
        ));
    }
    for function in source.functions() {
        if function.lines > FUNCTION_LINES_MAX {
            complaints.push(format!(
                "{}:{}: `{}` has {} lines, at most {FUNCTION_LINES_MAX}",
                source.name, function.line, function.name, function.lines
            ));
        }
    }
    complaints
}

fn header_complaint(source: &Source) -> Option<String> {
    (!source.text.starts_with("//! ")).then(|| {
        format!(
            "{}: open the file with `//!`: what it is responsible for and what it must never do",
            source.name
        )
    })
}

fn leftover_complaints(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in source.code.lines().enumerate() {
        for leftover in LEFTOVERS.iter().filter(|leftover| line.contains(**leftover)) {
            complaints.push(format!("{}:{}: finish it or drop it: `{leftover}`", source.name, index + 1));
        }
        if line.replace(' ', "").contains("#[ignore]") {
            complaints.push(format!("{}:{}: say why: `#[ignore = \"…\"]`", source.name, index + 1));
        }
    }
    for (index, line) in source.text.lines().enumerate() {
        let is_looked_at = MARKED.iter().any(|folder| source.name.starts_with(folder));
        let is_found = is_looked_at && line.trim() == LONG;
        if line.contains("ignore = \"long") && !is_found {
            let name = &source.name;
            complaints
                .push(format!("{name}:{}: `cargo xtask long` finds {LONG} in {MARKED:?} only", index + 1));
        }
    }
    complaints
}

fn pass(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaint(s):\n{}", complaints.len(), complaints.join("\n"));
}

fn requirements_page() -> PathBuf {
    root().join("docs/requirements.md")
}

/// Every source file, read once for all tests.
fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
        let all: Vec<_> = FOLDERS.iter().flat_map(|folder| sources_under(&root().join(folder))).collect();
        for folder in FOLDERS {
            assert!(all.iter().any(|source| source.name.starts_with(folder)), "{folder}/ was not read");
        }
        all
    });
    &SOURCES
}

/// The sources of the packages for users.
fn packages() -> Vec<Source> {
    let packages = ["src", "streams/src", "service/src"].map(|folder| sources_under(&root().join(folder)));
    assert!(packages.iter().all(|sources| sources.len() > 2), "a package was not read");
    packages.into_iter().flatten().collect()
}

/// Each migration: its name and text.
fn migrations() -> Vec<(String, String)> {
    let files = files_with_extension(&root().join("migrations"), "sql");
    assert!(!files.is_empty(), "no migration was read");
    files.iter().map(|path| (name_of(path), read(path))).collect()
}

fn sources_under(folder: &Path) -> Vec<Source> {
    files_with_extension(folder, "rs").iter().map(|path| Source::new(&name_of(path), &read(path))).collect()
}

/// Written by programs: no one reads them to learn how the project works.
const NOT_OURS: [&str; 3] = ["target", "generated", "node_modules"];

/// Files of the repository in a stable order, without build output, generated code and hidden
/// folders.
fn files_with_extension(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !NOT_OURS.contains(&name.as_str()) && !name.starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The names of all files and folders, apart from what is inside of build output and of `.git`.
fn paths() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = name_of(&path);
            let last = name.rsplit('/').next().unwrap_or_default();
            if path.is_dir() && !NOT_OURS.contains(&last) && ![".git", ".dev"].contains(&last) {
                folders.push(path);
            }
            found.insert(name);
        }
    }
    found
}

fn name_of(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().into_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_long_file_and_a_long_function_are_found() {
    let function = format!("//! It.\nfn long() {{\n{}}}\n", "    step();\n".repeat(FUNCTION_LINES_MAX - 1));
    assert_eq!(size_complaints(&Source::new("a.rs", &function)).len(), 1);
    let function = function.replacen("    step();\n", "", 1);
    assert_eq!(size_complaints(&Source::new("a.rs", &function)), Vec::<String>::new());
    assert_eq!(size_complaints(&Source::new("a.rs", &"//\n".repeat(FILE_LINES_MAX + 1))).len(), 1);
    assert_eq!(size_complaints(&Source::new("a.rs", &"//\n".repeat(FILE_LINES_MAX))).len(), 0);
}

#[test]
fn a_missing_header_is_found() {
    assert!(header_complaint(&Source::new("a.rs", "// It.\nfn a() {}")).is_some());
    assert!(header_complaint(&Source::new("a.rs", "//! It.\nfn a() {}")).is_none());
}

#[test]
fn leftovers_are_found_in_code_only() {
    let bad =
        Source::new("a.rs", "fn a() { todo!() }\nfn b() { dbg!(1); unimplemented!() }\n#[ignore]\nfn c() {}");
    assert_eq!(leftover_complaints(&bad).len(), 4);
    let good = "// todo! later\nfn a() { say(\"dbg!\") }\n#[ignore = \"needs a cloud\"]\nfn c() {}";
    assert_eq!(leftover_complaints(&Source::new("a.rs", good)), Vec::<String>::new());
    for (name, complaints) in [("tests/it/a.rs", 0), ("src/a.rs", 0), ("tools/a.rs", 1)] {
        assert_eq!(leftover_complaints(&Source::new(name, LONG)).len(), complaints);
    }
}
