//! `cargo xtask pubsub-node`: the official Node client's own system tests, and a script of ours
//! that uses that client, against our emulator or Google's.
//!
//! The client is pinned in `emulator/tests/node`, and installed there into `node_modules`. Its own
//! system tests are not in its package. They are fetched from its repository at a commit, and
//! compiled in `target/pubsub-node`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{root, succeed};

/// Where the system tests are, unless `PUBSUB_NODE_REPOSITORY` names a clone of it.
const REPOSITORY: &str = "https://github.com/googleapis/nodejs-pubsub";
const TAG: &str = "refs/tags/v5.3.0";
const COMMIT: &str = "775cc886500038f729048cc3b26b9bf18c81846d";
/// The number of system tests that run: all, except for one that its authors always skip.
const SYSTEM_TESTS: u32 = 44;
/// How many of them have to pass on our emulator.
const PASSED_LEAST: u32 = 44;

/// Runs everything against our emulator, or against Google's to see what passes there.
pub(crate) fn run(google: bool) -> Result<()> {
    succeed(&mut npm(&["ci", "--ignore-scripts", "--no-audit", "--no-fund"]))
        .context("Node 18 or newer with npm is needed")?;
    let folder = fetched()?;
    super::with_emulator(google, |host| {
        let passed = system_tests(&folder, host)?;
        println!("system tests: {passed} of {SYSTEM_TESTS} passed");
        ensure!(google || passed >= PASSED_LEAST, "at least {PASSED_LEAST} system tests have to pass");
        succeed(npm(&["test"]).env("PUBSUB_EMULATOR_HOST", host))
    })
}

fn npm(arguments: &[&str]) -> Command {
    let mut npm = Command::new("npm");
    npm.args(arguments).current_dir(root().join("emulator/tests/node"));
    npm
}

/// The folder with the system tests, as their authors have them.
fn fetched() -> Result<PathBuf> {
    let folder = root().join("target/pubsub-node");
    std::fs::create_dir_all(&folder)?;
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(arguments).current_dir(&folder);
        git
    };
    succeed(&mut git(&["init", "--quiet"]))?;
    let commit = format!("{COMMIT}^{{commit}}");
    if !git(&["cat-file", "-e", &commit]).output()?.status.success() {
        let repository = std::env::var("PUBSUB_NODE_REPOSITORY").unwrap_or_else(|_| REPOSITORY.to_owned());
        succeed(&mut git(&["fetch", "--quiet", "--depth=1", &repository, TAG]))
            .context("the system tests can't be fetched; PUBSUB_NODE_REPOSITORY may name a clone")?;
    }
    // Fails if the tag is another commit now.
    succeed(&mut git(&["checkout", "--quiet", COMMIT, "--", "system-test", "test/testResources.ts"]))?;
    Ok(folder)
}

/// Returns how many of the system tests passed.
fn system_tests(folder: &Path, host: &str) -> Result<u32> {
    let report = folder.join("report.txt");
    let mut tests = npm(&["run", "--silent", "system-test", "--"]);
    tests.arg(folder).env("PUBSUB_EMULATOR_HOST", host).stdout(File::create(&report)?);
    // It also fails if only some of the tests do; if none ran, none are counted.
    let _some_failed = tests.status()?;
    let said = std::fs::read_to_string(&report)?;
    print!("{said}");
    Ok(passed(&said))
}

/// Reads mocha's line `  37 passing (47s)`.
fn passed(said: &str) -> u32 {
    let count = said.lines().find_map(|line| line.trim().split_once(" passing (")?.0.parse().ok());
    count.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::passed;

    #[test]
    fn the_passed_ones_are_counted() {
        assert_eq!(passed("    ✔ should be listed\n\n\n  37 passing (47s)\n  1 pending\n  7 failing\n"), 37);
        assert_eq!(passed("  ✔ is 3 passing (1s)\n  2 passing (1s)\n"), 2);
        assert_eq!(passed("Error: Cannot find module"), 0);
    }
}
