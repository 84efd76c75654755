//! `cargo xtask`: the repository's longer checks and chores, one file per verb.
//!
//! A verb may use what is installed, and says what to do if something is missing; it never installs
//! tools on the machine. This crate must not depend on `wakeq`, not even through another crate:
//! `prepare` has to run while `wakeq` does not compile.
#![allow(clippy::print_stdout, reason = "a command talks to its user")]

mod bench;
mod book;
mod chaos;
mod compose;
mod containers;
mod deploy;
mod deps;
mod dev;
mod docker;
mod edge;
mod field;
mod guide;
mod http;
mod image;
mod links;
mod long;
mod package;
mod pictures;
mod prepare;
mod pubsub;
mod requirements;
mod sdk;
mod site;
mod tenants;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Parser;

/// Longer checks and chores of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Verb {
    /// Measure the queue beside a handwritten one, on a private Postgres: 40 minutes.
    Bench(bench::Options),
    /// Build the documents as a site with mdBook, into target/book, and check the site's links.
    Book,
    /// Run the crash tests at full size and print their figures; all of them take half an hour.
    Chaos {
        #[arg(help = format!("One of: {}; the last one is not part of all, and is compiled for release", chaos::names()))]
        name: Option<String>,
    },
    /// Run the lines of docs/container.md with Docker Compose, on bases built without a registry.
    Compose {
        /// Use the images that compose.yaml and the Dockerfile name, from their registries.
        #[arg(long)]
        registry: bool,
    },
    /// Run the tests with Postgres and the Pub/Sub emulator in containers, from images built
    /// without a registry.
    Containers {
        /// Which emulator is in the image.
        #[arg(long, value_enum, default_value = "own")]
        emulator: containers::Emulator,
        /// Only test how services are found and started; does not compile the queue.
        #[arg(long)]
        quick: bool,
        /// Only the tests whose names contain one of these words.
        words: Vec<String>,
    },
    /// Check deploy/ as far as possible without a cloud: Terraform, Kustomize, alert rules,
    /// dashboard.
    Deploy,
    /// Check the dependency tree against deny.toml: duplicate and banned crates; with cargo-deny
    /// also licenses and advisories.
    Deps,
    /// Run the long tests of the HTTP API's edge and print figures: load, slow connections,
    /// requests generated from the document.
    Edge {
        /// One of: document, matrix, garbage, leaks, memory, slow, worst, schemathesis, page, pages
        name: Option<String>,
    },
    /// Run the release binary where the field is rough, and print figures: statistics of an empty
    /// table, old snapshots, floods, receivers that hang or refuse, large pages: an hour.
    Field {
        #[arg(help = format!("One of: {}", field::names()))]
        name: Option<String>,
        /// For how long the old snapshot is held once it is there
        #[arg(long, default_value_t = 12)]
        minutes: u64,
    },
    /// Run `cargo dev` for two minutes, follow docs/guide.md beside it line by line, and check what
    /// both print.
    Guide,
    /// Build the Dockerfile on bases built without a registry, run the image and process one event.
    Image,
    /// Run the tests that take five seconds and more, which `cargo test` leaves out.
    Long,
    /// Pack the packages that are published, and build each from its packed files, as publishing
    /// them would.
    Package {
        /// Only pack them; build nothing.
        #[arg(long)]
        quick: bool,
    },
    /// Run `cargo dev --demo` and take the pictures of its pages with Chromium, into docs/pictures.
    Pictures(pictures::Options),
    /// Describe every query against the migrations in a private Postgres, and bring .sqlx up to
    /// date.
    Prepare {
        /// Change nothing; fail if .sqlx is not up to date.
        #[arg(long)]
        check: bool,
    },
    /// Run our tests with the official Go client, as Debian has it, against the emulator.
    PubsubGo {
        /// Run against Google's emulator instead of ours.
        #[arg(long)]
        google: bool,
    },
    /// Run the official Node client's system tests and our script with it against the emulator;
    /// installs the client into emulator/tests/node, and the tests into target/pubsub-node.
    PubsubNode {
        /// Run against Google's emulator instead of ours.
        #[arg(long)]
        google: bool,
    },
    /// Run the official Python client's system tests and our script with it against the emulator;
    /// installs both into target/pubsub-python.
    PubsubPython {
        /// Run against Google's emulator instead of ours.
        #[arg(long)]
        google: bool,
    },
    /// Run generated sequences of calls on our emulator and on Google's, which has to be installed;
    /// where they differ, print the shortest such sequence that is found.
    PubsubSequences {
        /// How many: 100,000 take some hours.
        #[arg(long, default_value_t = 1_000)]
        sequences: u32,
    },
    /// Write the tests that show each requirement into docs/requirements.md, from the ids above
    /// the tests.
    Requirements,
    /// Emit through the HTTP API with the official CloudEvents SDK for Python, and verify
    /// deliveries with the Standard Webhooks library; installs both into target/sdk.
    Sdk,
    /// Compare what a tenant is answered with and without a second one; then replace each canvas
    /// condition in the SQL by true, one at a time, and check that a test fails.
    Tenants {
        /// Only those whose file and line contain this, such as `control.rs:44`.
        place: Option<String>,
    },
}

fn main() -> ExitCode {
    let outcome = match Verb::parse() {
        Verb::Bench(options) => bench::run(&options),
        Verb::Book => book::run(),
        Verb::Chaos { name } => chaos::run(name.as_deref()),
        Verb::Compose { registry } => compose::run(registry),
        Verb::Containers { emulator, quick, words } => containers::run(emulator, quick, &words),
        Verb::Deploy => deploy::run(),
        Verb::Deps => deps::run(),
        Verb::Edge { name } => edge::run(name.as_deref()),
        Verb::Field { name, minutes } => field::run(name.as_deref(), minutes),
        Verb::Guide => guide::run(),
        Verb::Image => image::run(),
        Verb::Long => long::run(),
        Verb::Package { quick } => package::run(quick),
        Verb::Pictures(options) => pictures::run(&options),
        Verb::Prepare { check } => prepare::run(check),
        Verb::PubsubGo { google } => pubsub::go(google),
        Verb::PubsubNode { google } => pubsub::node(google),
        Verb::PubsubPython { google } => pubsub::python(google),
        Verb::PubsubSequences { sequences } => pubsub::sequences(sequences),
        Verb::Requirements => requirements::run(),
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
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."))
}

/// The `cargo` that runs this command, in the root of the repository.
fn cargo() -> Command {
    let mut command =
        Command::new(std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from));
    command.current_dir(root());
    command
}

/// `cargo test` of the tests in `tests/it`; the next arguments are cargo's. Of all packages: the
/// features of one alone would compile its dependencies anew.
fn integration_tests() -> Command {
    let mut tests = cargo();
    tests.args(["test", "--quiet", "--test", "it"]);
    tests
}

/// Makes a virtual environment of Python in a folder, unless there is one, and installs the
/// packages that a file pins; returns its `python`.
fn install_python(folder: &Path, requirements: &Path) -> Result<PathBuf> {
    let python = folder.join("bin/python");
    if !python.is_file() {
        succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))
            .context("Python 3.10 or newer with its module `venv` is needed")?;
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
    succeed(Command::new(&python).args(install).arg(requirements))?;
    Ok(python)
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
