//! What the Dockerfile builds on, and what it builds for: like its default bases, of what is installed here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::docker::{Engine, Files, Import, said};
use crate::root;

/// What Rust's official image has beside the toolchain.
const PACKAGES: [&str; 5] = ["coreutils", "dash", "findutils", "gcc", "libc6-dev"];

/// A shell, a C compiler and this repository's toolchain; its reference.
pub(super) fn builder(engine: &Engine) -> Result<&'static str> {
    let toolchain = said(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()))?;
    let toolchain = PathBuf::from(toolchain.trim());
    let programs = toolchain.join("bin");
    let mut files = Files::default();
    files.packages(&PACKAGES)?;
    // No package has it: a choice of the system's leads to it.
    files.add(Path::new("/usr/bin/cc"));
    files.certificates()?;
    files.folder(&programs, &[])?;
    files.folder(&toolchain.join("lib"), &[])?;
    let changes = [
        format!("ENV PATH={}:/usr/bin:/bin", programs.display()),
        "ENV CARGO_HOME=/usr/local/cargo".to_owned(),
    ];
    Import { reference: "wakeq-test-builder:installed", files: &files, script: None, changes: &changes }
        .make(engine)
}

/// The libraries that a program of Rust is linked to, of which this command is one, and certificates; its reference.
pub(super) fn runtime(engine: &Engine) -> Result<&'static str> {
    let mut files = Files::default();
    files.libraries(&std::env::current_exe()?)?;
    files.certificates()?;
    Import { reference: "wakeq-test-runtime:installed", files: &files, script: None, changes: &[] }
        .make(engine)
}
