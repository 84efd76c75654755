//! `cargo xtask image`: a container image of the host's binary, from nothing but what it needs, without a container
//! engine; and a trial of it, as a stranger's container runtime would run it.
//!
//! `docker load --input target/image.tar` takes the result. For other machines than this one there is the Dockerfile.

pub(crate) mod archive;
mod bundle;
pub(crate) mod contents;
mod trial;

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{cargo, root, succeed};
use contents::Entry;

/// The user of the container; no machine knows it by name.
const USER: u32 = 65_532;

/// More than this and something slipped in.
const BYTES_MAX: u64 = 40_000_000;

/// The port that the API is served on.
const PORT: u16 = 8080;

/// Builds the image, and starts this command again for the trial, in a network of its own.
pub(crate) fn run(no_run: bool, trial: bool) -> Result<()> {
    if trial {
        return trial::run();
    }
    succeed(cargo().args([
        "build",
        "--locked",
        "--profile",
        "image",
        "--package",
        "wakeq",
        "--bin",
        "wakeq",
    ]))?;
    let entries = contents::collect(&root().join("target/image/wakeq"))?;
    let size: u64 = entries.iter().map(Entry::bytes).sum();
    for entry in entries.iter().filter(|entry| entry.bytes() > 0) {
        println!("{:>11}  {}", entry.bytes(), entry.path);
    }
    let layer = archive::layer(&entries)?;
    let image = root().join("target/image.tar");
    fs::write(&image, archive::image(&layer)?).with_context(|| format!("write {}", image.display()))?;
    let megabytes = size as f64 / 1e6;
    println!("{:>11}  altogether: {megabytes:.1} MB, uncompressed, in target/image.tar", size);
    ensure!(size <= BYTES_MAX, "the image has {megabytes:.1} MB, at most 40 MB: see above what grew");
    if no_run { Ok(()) } else { trial::enter() }
}
