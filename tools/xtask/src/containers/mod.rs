//! `cargo xtask containers`: runs the tests with Postgres and the Pub/Sub emulator in containers.
//! The images are made here from what is installed, without a registry.
//!
//! It uses the engine that answers, else starts one of its own, without a bridge, and stops it. It
//! must never leave a container or an engine of its own behind, nor touch an image or a container
//! that it did not create.

mod images;

use anyhow::{Result, ensure};

use crate::docker::{Engine, Network, postgres};
use crate::{cargo, long, succeed};

/// Which emulator is in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Emulator {
    /// Ours.
    Own,
    /// Google's, with a JVM.
    Google,
}

/// Arguments of `cargo test`: the tests of the queue, and those of the testbed, which compile
/// nothing of the queue.
const TESTS_OF_WAKEQ: [&str; 3] = ["--lib", "--test", "it"];
const TESTS_OF_TESTBED: [&str; 6] = ["--test", "containers", "--test", "database", "--test", "emulators"];
/// The tests of the testcontainers module, whose image is our emulator's.
const TESTS_OF_MODULE: [&str; 2] = ["--test", "module"];

/// Runs the tests whose names contain one of the words, or all of them.
pub(crate) fn run(emulator: Emulator, quick: bool, words: &[String]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // Ctrl-C is for the tests, which it ends; this process then shuts down gracefully what it
    // started.
    runtime.spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });
    let engine = runtime.block_on(Engine::find_or_start(Network::Host))?;
    println!("{engine}");
    let tested = test(&engine, emulator, quick, words);
    let left = runtime.block_on(engine.left_containers());
    runtime.block_on(engine.end())?;
    tested?;
    let left = left?;
    ensure!(left.is_empty(), "containers were left behind: {}", left.join(", "));
    println!("no container was left behind");
    Ok(())
}

fn test(engine: &Engine, emulator: Emulator, quick: bool, words: &[String]) -> Result<()> {
    let postgres = postgres(engine)?;
    let pubsub = match emulator {
        Emulator::Own => images::own_emulator(engine)?,
        Emulator::Google => images::google_emulator(engine)?,
    };
    // The same packages as in other commands, so that no dependency is compiled twice.
    let tests_of = |targets: &[&str]| {
        let mut tests = cargo();
        tests.args(["test", "--features", "wakeq-testbed/containers"]).args(targets);
        tests.env("TEST_POSTGRES", "container").env("TEST_PG_IMAGE", postgres);
        tests.env("TEST_EMULATOR", "container").env("TEST_PUBSUB_IMAGE", pubsub);
        engine.reach(&mut tests);
        tests
    };
    let mut tests = tests_of(&TESTS_OF_TESTBED);
    if emulator == Emulator::Own {
        tests.args(TESTS_OF_MODULE).env("TEST_OWN_PUBSUB_IMAGE", pubsub);
    }
    if !quick {
        tests.args(TESTS_OF_WAKEQ);
    }
    succeed(tests.arg("--").args(words))?;
    let mut long = long::marked()?;
    long.retain(|test| words.is_empty() || words.iter().any(|word| test.contains(word)));
    if quick || long.is_empty() {
        return Ok(());
    }
    succeed(tests_of(&["--test", "it", "--", "--ignored", "--exact"]).args(long))
}
