//! `pubsub-emulator`: the emulator as a program.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use tokio::net::lookup_host;
use tokio::signal::unix::{SignalKind, signal};
use wakeq_emulator::{Config, Emulator, Faults, Options, Provision};

/// A Google Cloud Pub/Sub emulator: gRPC and REST on one port, in memory.
///
/// Set PUBSUB_EMULATOR_HOST=host:port for clients; any project id works. Nothing is stored on disk:
/// all messages are lost when it exits.
#[derive(Debug, Parser)]
#[command(name = "pubsub-emulator", version)]
struct Arguments {
    /// Address or name to listen on: 127.0.0.1 for local clients only, 0.0.0.0 or :: for all
    /// interfaces
    #[arg(long, default_value = "127.0.0.1", env = "PUBSUB_EMULATOR_LISTEN_HOST")]
    host: String,

    /// Port to listen on; 0 picks a free port and prints it
    #[arg(long, default_value_t = 8085, env = "PUBSUB_EMULATOR_PORT")]
    port: u16,

    /// Configuration file with initial topics, subscriptions and faults: TOML, or JSON (.json)
    #[arg(long, value_name = "FILE", env = "PUBSUB_EMULATOR_CONFIG")]
    config: Option<PathBuf>,

    /// File with initial faults: TOML, or JSON (.json); overrides the faults in --config
    #[arg(long, value_name = "FILE", env = "PUBSUB_EMULATOR_FAULTS")]
    faults: Option<PathBuf>,

    /// Topics of a project with their subscriptions, such as demo,orders:worker:audit,bills; the
    /// variables PUBSUB_PROJECT1, PUBSUB_PROJECT2, … add more
    #[arg(long, value_name = "PROJECT,TOPIC:SUBSCRIPTION…")]
    project: Vec<Provision>,

    /// Topic to create: projects/PROJECT/topics/TOPIC
    #[arg(long, value_name = "NAME", value_parser = Provision::parse_topic)]
    topic: Vec<Provision>,

    /// Subscription to create: projects/PROJECT/subscriptions/SUBSCRIPTION=TOPIC; append ,URL for
    /// push
    #[arg(long, value_name = "NAME=TOPIC", value_parser = Provision::parse_subscription)]
    subscription: Vec<Provision>,

    /// Issuer (iss) of the tokens of authenticated pushes
    #[arg(long, value_name = "URL", default_value = "https://accounts.google.com")]
    oidc_issuer: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without stderr, there is nowhere to report it.
            let _unheard = writeln!(std::io::stderr(), "pubsub-emulator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    // Before any output: a process that waits for the line below may send a signal at once.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let address = resolve(&arguments.host, arguments.port).await?;
    let emulator = Emulator::start(address, options(arguments)?).await?;
    say(&emulator)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    emulator.stop().await;
    Ok(())
}

/// Combines what was given in files, in flags and in variables, in this order.
fn options(arguments: Arguments) -> anyhow::Result<Options> {
    let config = arguments.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    let faults = arguments.faults.as_deref().map(Faults::read).transpose()?;
    let flags = arguments.topic.into_iter().chain(arguments.subscription).chain(arguments.project);
    // Variables that are not valid text are not ours.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let provision = flags.fold(config.provision, Provision::and);
    Ok(Options {
        faults: faults.or(config.faults).unwrap_or_default(),
        provision: provision.and(of_variables(variables)?),
        oidc_issuer: Some(arguments.oidc_issuer),
        ..Options::default()
    })
}

/// `PUBSUB_PROJECT1`, `PUBSUB_PROJECT2`, …: the variables of the popular images of Google's
/// emulator.
fn of_variables(variables: impl Iterator<Item = (String, String)>) -> anyhow::Result<Provision> {
    let mut projects: Vec<(u32, String)> = variables
        .filter_map(|(name, value)| Some((name.strip_prefix("PUBSUB_PROJECT")?.parse().ok()?, value)))
        .collect();
    projects.sort_unstable();
    projects.into_iter().try_fold(Provision::default(), |provision, (number, value)| {
        let project = value.parse().with_context(|| format!("PUBSUB_PROJECT{number}"))?;
        Ok(provision.and(project))
    })
}

/// An address, or the first one of a host name, preferring IPv4.
async fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let mut addresses = lookup_host((host, port))
        .await
        .with_context(|| format!("--host {host}: the name does not resolve"))?;
    // Clients that are given `localhost` often try IPv4 only.
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
