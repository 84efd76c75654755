//! `cargo xtask requirements`: brings docs/requirements.md up to date with the tests.
//!
//! It reads no test itself: `tests/it/tidy` does, and fails in `cargo test` if the page differs.

use anyhow::Result;

use crate::{integration_tests, succeed};

/// Runs the test that writes the page.
pub(crate) fn run() -> Result<()> {
    let test = ["--", "--ignored", "--exact", "tidy::the_tests_of_every_requirement_are_written"];
    succeed(integration_tests().args(test))
}
