//! Standard output.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// The reader of standard output has closed it.
#[derive(Debug, thiserror::Error)]
#[error("standard output was closed")]
pub(crate) struct StdoutClosed;

/// Prints a line.
pub(crate) fn line(text: impl Display) -> anyhow::Result<()> {
    written(writeln!(std::io::stdout().lock(), "{text}"))
}

/// Prints a text without adding a line break.
pub(crate) fn raw(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

fn written(outcome: std::io::Result<()>) -> anyhow::Result<()> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(StdoutClosed.into()),
        outcome => Ok(outcome?),
    }
}
