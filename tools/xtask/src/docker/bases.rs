//! The Dockerfile's build and runtime bases: equivalents of its defaults, made of what is installed
//! here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{Engine, Files, Import, said};
use crate::root;

/// What Rust's official image has besides the toolchain.
const PACKAGES: [&str; 5] = ["coreutils", "dash", "findutils", "gcc", "libc6-dev"];

/// Makes the image with a shell, a C compiler and this repository's toolchain; returns its
/// reference.
pub(crate) fn builder(engine: &Engine) -> Result<&'static str> {
    let toolchain = said(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()))?;
    let toolchain = PathBuf::from(toolchain.trim());
    let programs = toolchain.join("bin");
    let mut files = Files::default();
    files.packages(&PACKAGES)?;
    // Belongs to no package: it is a link of the alternatives system.
    files.add(Path::new("/usr/bin/cc"));
    files.certificates()?;
    files.folder(&programs, &[])?;
    files.folder(&toolchain.join("lib"), &[])?;
    let changes = [
        format!("ENV PATH={}:/usr/bin:/bin", programs.display()),
        "ENV CARGO_HOME=/usr/local/cargo".to_owned(),
    ];
    let reference = "wakeq-test-builder:installed";
    Import { reference, files: &files, script: None, writable: &[], changes: &changes }.make(engine)
}

/// Makes the image with the libraries that a Rust program links to (this command is one) and
/// certificates; returns its reference.
pub(crate) fn runtime(engine: &Engine) -> Result<&'static str> {
    let mut files = Files::default();
    files.libraries(&std::env::current_exe()?)?;
    files.certificates()?;
    let reference = "wakeq-test-runtime:installed";
    Import { reference, files: &files, script: None, writable: &[], changes: &[] }.make(engine)
}
