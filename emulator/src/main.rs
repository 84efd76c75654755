//! `pubsub-emulator`: the emulator as a program.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use tokio::net::lookup_host;
use tokio::signal::unix::{SignalKind, signal};
use wakeq_emulator::{Emulator, Options};

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

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    // Before anything is said: whoever waits for the line below may at once send a signal.
    let mut terminate = signal(SignalKind::terminate()).context("cannot hear SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot hear Ctrl-C")?;
    let address = resolve(&arguments.host, arguments.port).await?;
    let emulator = Emulator::start(address, Options::default()).await?;
    say(&emulator)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    emulator.stop().await;
    Ok(())
}

/// An address, or the first that a name has.
async fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let mut addresses =
        lookup_host((host, port)).await.with_context(|| format!("--host {host}: no such name"))?;
    // Clients that are told `localhost` often try IPv4 only.
    let (mut first, mut v4) = (None, None);
    for address in addresses.by_ref() {
        first = first.or(Some(address));
        v4 = v4.or(Some(address).filter(SocketAddr::is_ipv4));
    }
    v4.or(first).with_context(|| format!("--host {host}: the name has no address"))
}

fn say(emulator: &Emulator) -> anyhow::Result<()> {
    let (address, host) = (emulator.address(), emulator.host());
    let line = format!("pubsub-emulator: listening on {address}; export PUBSUB_EMULATOR_HOST={host}");
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).context("cannot write to the standard output")
}
