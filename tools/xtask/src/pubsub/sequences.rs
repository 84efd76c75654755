//! `cargo xtask pubsub-sequences`: generated sequences of calls, on our emulator and on Google's.
//!
//! The test does all of it: this only sets its variables.

use anyhow::Result;

use crate::{cargo, succeed};

const TEST: &str = "sequences::google_s_emulator_does_the_same";
/// More than 100,000 sequences take.
const LIMIT_S: &str = "36000";

/// Fails with the shortest sequence in which the emulators differ.
pub(crate) fn run(sequences: u32) -> Result<()> {
    let test = ["test", "--locked", "--package", "wakeq-emulator", "--test", "it", "--"];
    succeed(
        cargo()
            .args(test)
            .args(["--ignored", "--exact", TEST])
            .env("SEQUENCES", sequences.to_string())
            .env("REQUIRE_GOOGLE_EMULATOR", "1")
            .env("TEST_LIMIT_S", LIMIT_S),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    /// Without a test of that name, `cargo test` runs none and succeeds.
    #[test]
    fn there_is_such_a_test() {
        let (module, name) = TEST.split_once("::").unwrap();
        let file = root().join("emulator/tests/it").join(module).join("mod.rs");
        let source = std::fs::read_to_string(file).unwrap();
        let (before, _) = source.split_once(&format!("\nfn {name}() {{")).unwrap();
        assert!(before.lines().next_back().is_some_and(|line| line.starts_with("#[ignore = ")));
    }
}
