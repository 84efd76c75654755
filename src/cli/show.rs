//! How the command line writes: plain, aligned lines to standard output.

use std::fmt::Display;
use std::io::Write;

use clap::Args;

use crate::event::{CanvasId, HandlerScope, Timestamp};

/// Writes a line; a closed pipe ends the command quietly.
pub(super) fn line(text: impl Display) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A moment, to the second.
pub(super) fn moment(moment: Timestamp) -> String {
    moment.format("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// A handler: `name`, or `MODULE/name`.
#[derive(Args, Clone)]
pub(super) struct HandlerArg {
    /// The handler: its name, or MODULE/name when the module is not WORKER
    handler: String,
}

impl HandlerArg {
    pub(super) fn scope(&self, canvas: CanvasId) -> anyhow::Result<HandlerScope> {
        scope(canvas, &self.handler)
    }
}

/// Reads `name` or `MODULE/name`.
pub(super) fn scope(canvas: CanvasId, handler: &str) -> anyhow::Result<HandlerScope> {
    let (module, name) = handler.split_once('/').unwrap_or(("WORKER", handler));
    Ok(HandlerScope { canvas, module: module.parse()?, name: name.parse()? })
}
