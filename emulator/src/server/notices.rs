//! The broker's lines for the log, on stderr: what a developer should know without having asked.
//!
//! It must never say what a message contains.

use std::io::Write as _;

/// Writes each as a line of its own.
pub(super) fn write(notices: &[String]) {
    for notice in notices {
        // At once, so that lines do not mix. Without stderr, there is nowhere to write it.
        let _unheard = std::io::stderr().write_all(format!("pubsub-emulator: {notice}\n").as_bytes());
    }
}
