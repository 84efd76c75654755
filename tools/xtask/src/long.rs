//! `cargo xtask long`: the tests that take longest, which `cargo test` leaves out.
//!
//! It holds no list of them: what is marked is run.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::{cargo, root, succeed};

/// The line above a long test.
const MARK: &str = "#[ignore = \"long: `cargo xtask long` runs it\"]";
/// Where marked tests are: the integration tests, and the unit tests in files of their own.
const TESTS: [&str; 4] = ["tests/it", "src", "streams/src", "service/src"];
/// As long as the longest of them takes on a busy machine, and longer than a short one may.
const LIMIT_S: &str = "1800";

/// Most of them start processes of their own, and would keep one another from their connections.
const AT_ONCE: &str = "4";

/// Runs all that are marked.
pub(crate) fn run() -> Result<()> {
    let marked = marked()?;
    // Of all packages: the features of one alone would compile its dependencies anew.
    let tests = ["test", "--locked", "--workspace", "--lib", "--test", "it", "--", "--ignored"];
    let listed = cargo().args(tests).args(["--list", "--format", "terse"]).output().context("cargo test")?;
    ensure!(
        listed.status.success(),
        "the tests can't be listed: {}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let listed = String::from_utf8_lossy(&listed.stdout);
    let known: Vec<_> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    if let Some(unknown) = marked.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no test {unknown}, though it is marked as long: move it into the module of its file");
    }
    println!("{} long tests", marked.len());
    let mut run = cargo();
    run.args(tests).arg("--exact").args(&marked);
    succeed(run.env("TEST_LIMIT_S", LIMIT_S).env("RUST_TEST_THREADS", AT_ONCE))
}

/// The paths of all that are marked.
pub(crate) fn marked() -> Result<Vec<String>> {
    let mut marked = Vec::new();
    for folder in TESTS {
        collect(&root().join(folder), "", &mut marked)?;
    }
    ensure!(!marked.is_empty(), "no test is marked as long");
    Ok(marked)
}

/// Adds the paths of the marked tests of a folder, whose modules are those of its files.
fn collect(folder: &Path, module: &str, marked: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            collect(&path, &format!("{module}{name}::"), marked)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let module = if name == "mod" { module.to_owned() } else { format!("{module}{name}::") };
            let source = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
            marked.extend(marked_in(&source).map(|test| format!("{module}{test}")));
        }
    }
    Ok(())
}

/// The names of the functions below the marks.
fn marked_in(source: &str) -> impl Iterator<Item = &str> {
    source.split(MARK).skip(1).filter_map(|below| below.split_once("fn ")?.1.split('(').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_below_a_mark_is_found() {
        let source =
            format!("#[tokio::test]\n{MARK}\nasync fn a() {{}}\nfn b() {{}}\n{MARK}\n#[test]\nfn c() {{}}");
        assert_eq!(marked_in(&source).collect::<Vec<_>>(), ["a", "c"]);
    }
}
