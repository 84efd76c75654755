//! `cargo xtask tenants`: the long comparisons of what a tenant is answered with and without a
//! second one; and the tests of that are checked: each condition on a canvas is disabled in turn,
//! and at least one of them has to fail.
//!
//! It holds no tests itself: they are in `tests/it/canvases`, and nothing is recompiled for a
//! condition.

use anyhow::Result;

use crate::{integration_tests, succeed};

/// Compares and tries every condition, or only tries those at a place.
pub(crate) fn run(place: Option<&str>) -> Result<()> {
    let mut test = integration_tests();
    test.args(["--", "--nocapture", "--include-ignored"]).env("TEST_LIMIT_S", "10800");
    match place {
        Some(place) => test.arg("canvases::mutants").env("WAKEQ_MUTANT", place),
        None => test.arg("canvases::"),
    };
    succeed(&mut test)
}
