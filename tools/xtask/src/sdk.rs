//! `cargo xtask sdk`: the official CloudEvents SDK for Python emits through the HTTP API, and the
//! official Standard Webhooks library for Python verifies deliveries.
//!
//! Their versions are pinned in `tests/sdk/requirements.txt`; they are installed only into
//! `target/sdk`. What is sent and the expected results are in `tests/sdk`,
//! `tests/it/http/cloudevents_sdk.rs` and `tests/it/targets/delivery/signatures.rs`.

use anyhow::Result;

use crate::{install_python, integration_tests, root, succeed};

const TESTS: [&str; 2] = [
    "http::cloudevents_sdk::the_official_sdk_emits",
    "targets::delivery::signatures::the_official_library_verifies",
];

/// Installs both and runs the tests that need them.
pub(crate) fn run() -> Result<()> {
    let python = install_python(&root().join("target/sdk"), &root().join("tests/sdk/requirements.txt"))?;
    let mut test = integration_tests();
    test.args(["--", "--exact", "--nocapture", "--ignored"]);
    succeed(test.args(TESTS).env("WAKEQ_SDK_PYTHON", python))
}
