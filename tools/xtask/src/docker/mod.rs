//! Docker for the chores that need it: an engine, and images of what is installed on this machine,
//! without a registry.
//!
//! It must never touch an image or a container that it did not create.

mod bases;
mod engine;
mod files;
mod import;
mod postgres;

pub(crate) use bases::{builder, runtime};
pub(crate) use engine::{Engine, Network};
pub(crate) use files::{Files, files_under};
pub(crate) use import::{Import, USER};
pub(crate) use postgres::postgres;

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The output of a command, or an error with its stderr.
pub(crate) fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?} can't be started"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
