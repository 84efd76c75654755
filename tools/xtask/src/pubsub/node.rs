//! `cargo xtask pubsub-node`: a script of ours that uses the official Node client.
//!
//! The client is pinned in `emulator/tests/node`, and installed there into `node_modules`. Its own
//! system tests are not in its package.

use std::process::Command;

use anyhow::{Context, Result};

use crate::{root, succeed};

/// Runs it against our emulator, or against Google's to see what passes there.
pub(crate) fn run(google: bool) -> Result<()> {
    let folder = root().join("emulator/tests/node");
    let npm = |arguments: &[&str]| {
        let mut npm = Command::new("npm");
        npm.args(arguments).current_dir(&folder);
        npm
    };
    succeed(&mut npm(&["ci", "--ignore-scripts", "--no-audit", "--no-fund"]))
        .context("Node 18 or newer with npm is needed")?;
    super::with_emulator(google, |host| succeed(npm(&["test"]).env("PUBSUB_EMULATOR_HOST", host)))
}
