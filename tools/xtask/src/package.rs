//! `cargo xtask package`: packs the packages that are published, and builds each from its packed
//! files. Cargo does both as `cargo publish` would, with a registry of the packed files. Except in
//! CI, it packs changes that are not committed, too, and says so.
//!
//! It must never send anything.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{cargo, docker::said, links, root, succeed};

/// The files that a published package must have, besides those that it needs to compile.
const NEEDED: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// `quick` leaves out the builds.
pub(crate) fn run(quick: bool) -> Result<()> {
    let dirty = allow_dirty();
    let mut package = cargo();
    package.args(["package", "--locked"]).args(dirty);
    if quick {
        package.arg("--no-verify");
    }
    for Published { name, readme, repository, is_root } in published()? {
        let files = said(cargo().args(["package", "--list", "--package", &name]).args(dirty))?;
        for needed in NEEDED {
            ensure!(files.lines().any(|file| file == needed), "{name}: {needed} is not packed");
        }
        let complaints = link_complaints(&readme, &repository, is_root, |path| root().join(path).exists());
        ensure!(complaints.is_empty(), "{name}: README.md: {}", complaints.join("; "));
        package.args(["--package", &name]);
    }
    succeed(&mut package)
}

/// Cargo's option to pack changes that are not committed, if a developer's machine has some. In CI
/// a step would have made them: they are refused, as `cargo publish` does.
fn allow_dirty() -> Option<&'static str> {
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    // Without Git, Cargo does not ask either.
    let changes = || said(Command::new("git").args(["status", "--porcelain"]).current_dir(root()));
    if is_ci || changes().map_or(true, |changes| changes.is_empty()) {
        return None;
    }
    println!("packing changes that are not committed");
    Some("--allow-dirty")
}

/// A package that may be published.
struct Published {
    name: String,
    /// The text of its README.
    readme: String,
    repository: String,
    /// Whether its manifest is the repository's own.
    is_root: bool,
}

/// The members whose manifest has no `publish = false`.
fn published() -> Result<Vec<Published>> {
    let metadata = said(cargo().args(["metadata", "--no-deps", "--locked", "--format-version=1"]))?;
    let workspace: Value = serde_json::from_str(&metadata)?;
    let packages = workspace["packages"].as_array().context("`cargo metadata` listed no packages")?;
    packages.iter().filter(|package| package["publish"].is_null()).map(described).collect()
}

fn described(package: &Value) -> Result<Published> {
    let text = |field: &str| {
        let text = package[field].as_str().map(str::to_owned);
        text.with_context(|| format!("{}: no `{field}`", package["name"]))
    };
    let manifest = text("manifest_path")?;
    let folder = Path::new(&manifest).parent().context("a manifest without a folder")?;
    let readme = folder.join(text("readme")?);
    let readme =
        fs::read_to_string(&readme).with_context(|| format!("{} can't be read", readme.display()))?;
    Ok(Published { name: text("name")?, readme, repository: text("repository")?, is_root: folder == root() })
}

/// Links that break on the package's page, or lead out of the repository that its manifest names.
/// crates.io resolves relative ones, but only from the repository's root.
fn link_complaints(
    readme: &str,
    repository: &str,
    is_root: bool,
    exists: impl Fn(&str) -> bool,
) -> Vec<String> {
    let complaint = |link: String| {
        let path =
            link.strip_prefix(repository).map(|rest| rest.strip_prefix("/blob/main/").unwrap_or_default());
        match path.map(|path| path.split_once('#').map_or(path, |(file, _)| file)) {
            Some(path) if exists(path) => None,
            Some(_) => Some(format!("nothing is at {link}")),
            None if link.starts_with('#') => None,
            None if !link.contains("://") => (!is_root).then(|| format!("{link} is relative")),
            None if host_and_name(&link) == host_and_name(repository) => {
                Some(format!("{link} is not in {repository}"))
            }
            None => None,
        }
    };
    links::targets(readme).into_iter().filter_map(complaint).collect()
}

fn host_and_name(url: &str) -> (Option<&str>, Option<&str>) {
    let mut parts = url.split('/').skip(2);
    (parts.next(), parts.nth(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_break_on_a_package_s_page_are_found() {
        let readme = "[a](docs/a.md) [b](#b) [c](https://x.example/ada/y/blob/main/c.md#d)\n\
                      [d](https://x.example/ada/y/blob/main/d.md) [e](https://x.example/ada/y)\n\
                      [f](https://x.example/OWNER/y) [g](https://z.example/crates/y)";
        let found = |is_root| {
            let exists = |path: &str| path.is_empty() || path == "c.md";
            link_complaints(readme, "https://x.example/ada/y", is_root, exists)
        };
        let always = [
            "nothing is at https://x.example/ada/y/blob/main/d.md",
            "https://x.example/OWNER/y is not in https://x.example/ada/y",
        ];
        assert_eq!(found(true), always);
        assert_eq!(found(false), ["docs/a.md is relative", always[0], always[1]]);
    }
}
