//! `cargo xtask bench`: builds the benchmark for release and runs it; it starts a private Postgres
//! itself.
//!
//! Peers are built and installed only into `target/bench`, with the versions in
//! `tools/bench/peers` and `tools/bench/node`; they need npm and Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, root, succeed};

/// The recorded ratios.
const RECORDED: &str = "tools/bench/recorded.json";
/// The charts of a recorded run with all peers, and of growth.
const PLOTS: &str = "docs/performance";
/// Contains the SQL of pgmq.
const PGMQ: &str = "pgmq==1.1.4";

/// What runs beside the benchmark, and what happens to its figures.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Compare with the recorded ratios to a handwritten queue, and fail on a regression.
    #[arg(long, conflicts_with = "record")]
    check: bool,
    /// Record the ratios, and with all peers the charts.
    #[arg(long)]
    record: bool,
    /// Run other queues as well.
    #[arg(long)]
    peers: bool,
    /// Run the phases of growth only, and record their charts.
    #[arg(long, conflicts_with_all = ["check", "record", "peers"])]
    growth: bool,
    /// Phases, and options of the benchmark after `--`; `-- --help` lists them.
    arguments: Vec<String>,
}

/// Builds and runs it.
pub(crate) fn run(options: &Options) -> Result<()> {
    let target = target();
    // Apart: together they would be built with each other's features.
    for selected in [["--package", "wakeq-bench"], ["--bin", "wakeq"]] {
        succeed(cargo().args(["build", "--release"]).args(selected))?;
    }
    let mut bench = Command::new(target.join("release/wakeq-bench"));
    bench.arg("--api").arg(target.join("release/wakeq"));
    bench.current_dir(root()).args(&options.arguments);
    let folder = target.join("bench");
    let draws = options.growth || options.record && options.peers;
    let plots = if draws { root().join(PLOTS) } else { folder.clone() };
    bench.arg("--json").arg(folder.join("figures.json")).arg("--plots").arg(plots);
    if options.growth {
        bench.arg("grow");
    }
    if options.check {
        bench.args(["--check", RECORDED]);
    }
    if options.record {
        bench.args(["--record", RECORDED]);
    }
    if options.peers {
        bench.arg("--peers-rust").arg(rust_peers(&folder)?);
        bench.arg("--peers-node").arg(node_peers(&folder)?);
        bench.arg("--pgmq").arg(pgmq(&folder)?);
    }
    succeed(&mut bench)
}

/// Where this cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |target| root().join(target))
}

fn rust_peers(folder: &Path) -> Result<PathBuf> {
    let target = folder.join("rust");
    let manifest = root().join("tools/bench/peers/Cargo.toml");
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--manifest-path"]).arg(manifest);
    succeed(build.arg("--target-dir").arg(&target))?;
    Ok(target.join("release/wakeq-bench-peers"))
}

fn node_peers(folder: &Path) -> Result<PathBuf> {
    let folder = folder.join("node");
    fs::create_dir_all(&folder)?;
    for entry in fs::read_dir(root().join("tools/bench/node"))? {
        let path = entry?.path();
        fs::copy(&path, folder.join(path.file_name().unwrap_or_default()))?;
    }
    let install = ["ci", "--no-audit", "--no-fund"];
    succeed(Command::new("npm").args(install).current_dir(&folder)).context("npm is needed")?;
    Ok(folder)
}

fn pgmq(folder: &Path) -> Result<PathBuf> {
    // Named after the version, so that a new version is installed separately.
    let folder = folder.join(PGMQ.replace("==", "-"));
    let file = folder.join("pgmq/sql/pgmq.sql");
    if file.is_file() {
        return Ok(file);
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"];
    succeed(Command::new("python3").args(install).arg(&folder).arg(PGMQ))
        .context("Python 3 with its module `pip` is needed")?;
    Ok(file)
}
