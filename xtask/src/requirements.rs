//! `cargo xtask requirements`: brings docs/requirements.md up to date with the tests.
//!
//! It reads no test itself: `tests/it/tidy` does, and fails in `cargo test` if the page differs.

use anyhow::Result;

use crate::{cargo, succeed};

/// Runs the test that writes the page.
pub(crate) fn run() -> Result<()> {
    let mut test = cargo();
    test.args([
        "test",
        "--quiet",
        "--package",
        "wakeq-service",
        "--test",
        "it",
        "--",
        "--ignored",
        "--exact",
    ]);
    succeed(test.arg("tidy::the_tests_of_every_requirement_are_written"))
}
