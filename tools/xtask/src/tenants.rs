//! `cargo xtask tenants`: checks the tests with a second tenant: each condition on a canvas is
//! disabled in turn, and at least one of them has to fail.
//!
//! It holds no tests itself: they are in `tests/it/canvases`, and nothing is recompiled for a
//! condition.

use anyhow::Result;

use crate::{integration_tests, succeed};

/// Tries every condition, or those at a place.
pub(crate) fn run(place: Option<&str>) -> Result<()> {
    let mut test = integration_tests();
    test.args(["--", "--nocapture", "--include-ignored", "canvases::mutants"]);
    if let Some(place) = place {
        test.env("WAKEQ_MUTANT", place);
    }
    succeed(&mut test)
}
