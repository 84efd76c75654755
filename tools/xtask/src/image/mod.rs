//! `cargo xtask image`: builds the Dockerfile with a real engine, on bases made here of what is
//! installed, and runs the image as a user would.
//!
//! No image is pulled from a registry; crates come from their usual sources. It must never leave a
//! container or an engine of its own behind.

mod target;
mod trial;

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::docker::{Engine, Network, builder, runtime};
use crate::{root, succeed};

pub(crate) const IMAGE: &str = "wakeq-test-image:built";

/// The limit in bytes; a larger image contains something that it should not.
const BYTES_MAX: u64 = 60_000_000;

/// Builds the image and tries it.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let engine = Engine::find_or_start(Network::Host).await?;
        println!("{engine}");
        let tried = build_and_try(&engine).await;
        engine.end().await?;
        tried
    })
}

async fn build_and_try(engine: &Engine) -> Result<()> {
    let (builder, runtime) = (builder(engine)?, runtime(engine)?);
    let began = Instant::now();
    let mut build = engine.building_client()?;
    build.args(["build", "--network", "host", "--progress", "plain", "--tag", IMAGE]);
    for base in [format!("BUILDER={builder}"), format!("RUNTIME={runtime}")] {
        build.args(["--build-arg", &base]);
    }
    succeed(build.arg(root()))?;
    let size = engine.size(IMAGE)?;
    let megabytes = size as f64 / 1e6;
    println!("{IMAGE}: {megabytes:.1} MB, built in {:.0} s", began.elapsed().as_secs_f64());
    ensure!(size <= BYTES_MAX, "the image has {megabytes:.1} MB, at most 60 MB");
    trial::run(engine, IMAGE).await
}
