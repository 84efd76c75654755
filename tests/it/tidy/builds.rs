//! The rule that neither `cargo test` nor a command for all packages compiles again what `cargo
//! dev` has compiled.
//!
//! A crate is compiled with the union of the features that all of a build ask for. Tests, and the
//! packages that are not selected by default, bring crates of their own, which ask for more. Where
//! that reaches one of the first crates, nearly everything is compiled twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Crates that two builds compile with different features. Each build is a list of
/// `package|features`.
fn differences(before: &str, after: &str) -> Vec<String> {
    let after = features(after);
    let differing = |(package, before): (String, Vec<String>)| {
        let after = after.get(&package)?;
        (after != &before).then(|| format!("{package}: {before:?}, then {after:?}"))
    };
    features(before).into_iter().filter_map(differing).collect()
}

/// With which features a build compiles each package. There are several for one that is compiled
/// for build scripts and for programs.
fn features(build: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in build.lines() {
        let line = line.trim_end_matches(" (*)");
        if let Some((package, features)) = line.split_once('|') {
            let of_package = found.entry(package.to_owned()).or_default();
            if !of_package.iter().any(|seen| seen == features) {
                of_package.push(features.to_owned());
                of_package.sort_unstable();
            }
        }
    }
    found
}

/// What cargo would compile for these options.
fn tree(options: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["tree", "--color=never", "--offline", "--locked", "--prefix=none", "--format={p}|{f}"];
    let output = Command::new(cargo).args(arguments).args(options).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Features that differ go into `tools/dev/Cargo.toml`, which each command selects.
#[test]
fn everything_is_compiled_with_the_features_of_cargo_dev() {
    // Features only add up: if these two agree, so does everything in between.
    let before = tree(&["--edges=normal,build"]);
    let after = tree(&["--edges=normal,build,dev", "--workspace"]);
    assert!(before.lines().count() > 300, "{before}");
    assert_eq!(differences(&before, &after), Vec::<String>::new());
}

#[test]
fn a_feature_that_only_tests_ask_for_is_found() {
    let before = "syn v2.0.1|full\nurl v2.5.8|\nurl v2.5.8| (*)\nonly-before v1.0.0|";
    let after = "syn v2.0.1|fold,full\nurl v2.5.8|\nonly-after v1.0.0|std";
    assert_eq!(differences(before, after), ["syn v2.0.1: [\"full\"], then [\"fold,full\"]"]);
}
