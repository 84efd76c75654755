//! `cargo xtask sdk`: the official CloudEvents SDK for Python emits through the HTTP API.
//!
//! Its versions are pinned in `tests/sdk/requirements.txt`; they are installed into `target/sdk` and nowhere else. What is
//! sent and what has to come of it are in `tests/sdk` and `tests/it/http_sdk.rs`.

use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, root, succeed};

/// Installs the SDK and runs the test that needs it.
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
        "wakeq",
        "--test",
        "it",
        "--",
        "--exact",
        "--nocapture",
        "--ignored",
    ]);
    succeed(test.arg("http_sdk::the_official_sdk_emits").env("WAKEQ_SDK_PYTHON", python))
}
