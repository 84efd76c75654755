//! `cargo xtask`: the repository's longer checks and chores, one file per verb.
//!
//! A verb may use what is installed and says what to do when something is missing; it never installs anything itself.
//! It must not depend on `wakeq`, not even through another crate: `prepare` has to run while `wakeq` does not compile.
#![allow(clippy::print_stdout, reason = "a command talks to its user")]

mod chaos;
mod containers;
mod deploy;
mod deps;
mod docker;
mod edge;
mod image;
mod prepare;
mod pubsub_python;
mod sdk;
mod tenants;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Parser;

/// Longer checks and chores of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Verb {
    /// Run the crash tests in their full sizes and print their figures; all of them take half an hour.
    Chaos {
        #[arg(help = format!("One of: {}; the last one is none of all, and is compiled for release", chaos::names()))]
        name: Option<String>,
    },
    /// Run the tests with Postgres and the Pub/Sub emulator from containers, of images made here without a registry.
    Containers {
        /// Which emulator is in the image.
        #[arg(long, value_enum, default_value = "own")]
        emulator: containers::Emulator,
        /// Only the tests of what finds and starts services; nothing of the queue is compiled.
        #[arg(long)]
        quick: bool,
        /// Only the tests whose names contain one of these words.
        words: Vec<String>,
    },
    /// Check deploy/ as far as that can be without a cloud: Terraform, Kustomize, alert rules, dashboard.
    Deploy,
    /// Hold the dependency tree to deny.toml: doubled and banned crates; with cargo-deny also licences and advisories.
    Deps,
    /// Check the edge of the HTTP API at length, with figures: load, slow connections, requests made from the document.
    Edge {
        /// One of: document, matrix, garbage, leaks, memory, slow, worst, schemathesis, page.
        name: Option<String>,
    },
    /// Build the Dockerfile on bases made here without a registry, and run the image: one event is handled.
    Image,
    /// Describe every query of src/ against the migrations in a private Postgres, and bring .sqlx up to date.
    Prepare {
        /// Change nothing; fail if .sqlx is not up to date.
        #[arg(long)]
        check: bool,
    },
    /// Run the official Python client's system tests and a script of ours with it against the emulator, installed into
    /// target/pubsub-python.
    PubsubPython {
        /// Against Google's emulator, to see what that passes.
        #[arg(long)]
        google: bool,
    },
    /// Emit through the HTTP API with the official CloudEvents SDK for Python, and verify deliveries with the library of
    /// Standard Webhooks; both installed into target/sdk.
    Sdk,
    /// Make each condition on a canvas in the SQL true, one at a time, and show that a test with a second tenant fails then.
    Tenants {
        /// Only those whose file and line contain this, such as `control.rs:44`.
        place: Option<String>,
    },
}

fn main() -> ExitCode {
    let outcome = match Verb::parse() {
        Verb::Chaos { name } => chaos::run(name.as_deref()),
        Verb::Containers { emulator, quick, words } => containers::run(emulator, quick, &words),
        Verb::Deploy => deploy::run(),
        Verb::Deps => deps::run(),
        Verb::Edge { name } => edge::run(name.as_deref()),
        Verb::Image => image::run(),
        Verb::Prepare { check } => prepare::run(check),
        Verb::PubsubPython { google } => pubsub_python::run(google),
        Verb::Sdk => sdk::run(),
        Verb::Tenants { place } => tenants::run(place.as_deref()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The `cargo` that runs this command, in the root of the repository.
fn cargo() -> Command {
    let mut command =
        Command::new(std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from));
    command.current_dir(root());
    command
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?} can't be started"))?;
    ensure!(status.success(), "{command:?} failed ({status})");
    Ok(())
}

fn read_toml(name: &str) -> Result<toml::Table> {
    let text = std::fs::read_to_string(root().join(name)).with_context(|| format!("{name} can't be read"))?;
    text.parse().with_context(|| format!("{name} is not valid TOML"))
}
