//! `cargo xtask pubsub-go`: tests of ours that use the official Go client, as Debian has it.
//!
//! Debian's packages are the sources, so nothing is downloaded: `golang-go` and
//! `golang-google-cloud-dev`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{root, succeed};

/// Where Debian installs the sources of Go packages.
const SOURCES: &str = "/usr/share/gocode";

/// Runs them against our emulator, or against Google's to see what passes there.
pub(crate) fn run(google: bool) -> Result<()> {
    let client = Path::new(SOURCES).join("src/cloud.google.com/go/pubsub");
    ensure!(client.is_dir(), "the client is missing: apt-get install golang-go golang-google-cloud-dev");
    super::with_emulator(google, |host| {
        let mut go = Command::new("go");
        go.args(["test", "-v", "-count=1", "-timeout=120s", "."])
            .current_dir(root().join("emulator/tests/go"));
        go.envs([("GO111MODULE", "off"), ("GOPATH", SOURCES), ("PUBSUB_EMULATOR_HOST", host)]);
        succeed(&mut go).context("not all tests passed")
    })
}
