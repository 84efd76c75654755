//! `cargo xtask package`: packs the packages that are published, and builds each from its packed
//! files. Cargo does both as `cargo publish` would, with a registry of the packed files.
//!
//! It must never send anything.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{cargo, docker::said, succeed};

/// What a package that is published has to bring, besides what it needs to compile.
const NEEDED: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// `quick` leaves out the builds.
pub(crate) fn run(quick: bool) -> Result<()> {
    let mut package = cargo();
    package.args(["package", "--locked", "--allow-dirty"]);
    if quick {
        package.arg("--no-verify");
    }
    for name in published()? {
        let files = said(cargo().args(["package", "--list", "--allow-dirty", "--package", &name]))?;
        for needed in NEEDED {
            ensure!(files.lines().any(|file| file == needed), "{name}: {needed} is not packed");
        }
        package.args(["--package", &name]);
    }
    succeed(&mut package)
}

/// The members that may be published: those whose manifest has no `publish = false`.
fn published() -> Result<Vec<String>> {
    let metadata = said(cargo().args(["metadata", "--no-deps", "--locked", "--format-version=1"]))?;
    let workspace: Value = serde_json::from_str(&metadata)?;
    let packages = workspace["packages"].as_array().context("`cargo metadata` listed no packages")?;
    let published = packages.iter().filter(|package| package["publish"].is_null());
    let names = published.filter_map(|package| package["name"].as_str()).map(str::to_owned);
    Ok(names.collect())
}
