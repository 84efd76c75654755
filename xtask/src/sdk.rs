//! `cargo xtask sdk`: the official CloudEvents SDK for Python emits through the HTTP API, and the
//! official Standard Webhooks library for Python verifies deliveries.
//!
//! Their versions are pinned in `tests/sdk/requirements.txt`; they are installed only into
//! `target/sdk`. What is sent and the expected results are in `tests/sdk`, `tests/it/http_sdk.rs`
//! and `tests/it/delivery/signatures.rs`.

use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, root, succeed};

const TESTS: [&str; 2] =
    ["http_sdk::the_official_sdk_emits", "delivery::signatures::the_official_library_verifies"];

/// Installs both and runs the tests that need them.
pub(crate) fn run() -> Result<()> {
    let folder = root().join("target/sdk");
    let python = folder.join("bin/python");
    if !python.is_file() {
        let python = ["-m", "venv", "--clear"];
        succeed(Command::new("python3").args(python).arg(&folder))
            .context("Python 3.10 or newer with its module `venv` is needed")?;
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
    succeed(Command::new(&python).args(install).arg(root().join("tests/sdk/requirements.txt")))?;
    let mut test = cargo();
    test.args([
        "test",
        "--quiet",
        "--package",
        "wakeq-service",
        "--test",
        "it",
        "--",
        "--exact",
        "--nocapture",
        "--ignored",
    ]);
    succeed(test.args(TESTS).env("WAKEQ_SDK_PYTHON", python))
}
