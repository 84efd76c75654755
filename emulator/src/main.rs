//! `pubsub-emulator`: the emulator as a program.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use tokio::net::lookup_host;
use tokio::signal::unix::{SignalKind, signal};
use wakeq_emulator::{Emulator, Faults, Options};

/// A Google Cloud Pub/Sub emulator: gRPC and REST on one port, in memory.
///
/// Point clients at it with PUBSUB_EMULATOR_HOST=host:port; any project id will do. Nothing is kept on disk: what was
/// published is gone when it ends.
#[derive(Debug, Parser)]
#[command(name = "pubsub-emulator", version)]
struct Arguments {
    /// The address or name to listen at: 127.0.0.1 for this machine alone, 0.0.0.0 or :: for everybody who can reach it
    #[arg(long, default_value = "127.0.0.1", env = "PUBSUB_EMULATOR_LISTEN_HOST")]
    host: String,

    /// The port; 0 is any free one, which is then printed
    #[arg(long, default_value_t = 8085, env = "PUBSUB_EMULATOR_PORT")]
    port: u16,

    /// What goes wrong from the start: a file in TOML or JSON (.json)
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With stderr gone there is nobody left to tell.
            let _unheard = writeln!(std::io::stderr(), "pubsub-emulator: {error:#}");
            ExitCode::FAILURE
        }
    }
}
