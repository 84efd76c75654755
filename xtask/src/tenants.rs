//! `cargo xtask tenants`: what the tests with a second tenant are worth: each condition on a canvas is taken out, and one of
//! them has to fail.
//!
//! It holds no test itself: they are in `tests/it/tenants`, and nothing is compiled anew for a condition.

use anyhow::Result;

use crate::{cargo, succeed};

/// Tries every condition, or those at a place.
pub(crate) fn run(place: Option<&str>) -> Result<()> {
    let mut test = cargo();
    test.args([
        "test",
        "--quiet",
        "--package",
        "wakeq",
        "--test",
        "it",
        "--",
        "--nocapture",
        "--include-ignored",
    ]);
    test.arg("tenants::mutants");
    if let Some(place) = place {
        test.env("WAKEQ_MUTANT", place);
    }
    succeed(&mut test)
}
