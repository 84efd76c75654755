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

    /// What it starts with, topics, subscriptions and faults: a file in TOML, or JSON (.json)
    #[arg(long, value_name = "FILE", env = "PUBSUB_EMULATOR_CONFIG")]
    config: Option<PathBuf>,

    /// What goes wrong from the start: a file in TOML, or JSON (.json); counts instead of the faults in --config
    #[arg(long, value_name = "FILE", env = "PUBSUB_EMULATOR_FAULTS")]
    faults: Option<PathBuf>,

    /// Topics of a project with their subscriptions, as in demo,orders:worker:audit,bills; what the variables
    /// PUBSUB_PROJECT1, PUBSUB_PROJECT2, … say is made as well
    #[arg(long, value_name = "PROJECT,TOPIC:SUBSCRIPTION…")]
    project: Vec<Provision>,

    /// A topic to start with: projects/PROJECT/topics/TOPIC
    #[arg(long, value_name = "NAME", value_parser = Provision::parse_topic)]
    topic: Vec<Provision>,

    /// A subscription to start with: projects/PROJECT/subscriptions/SUBSCRIPTION=TOPIC, and ,URL after it to push
    #[arg(long, value_name = "NAME=TOPIC", value_parser = Provision::parse_subscription)]
    subscription: Vec<Provision>,

    /// Who the tokens of authenticated pushes say has issued them
    #[arg(long, value_name = "URL", default_value = "https://accounts.google.com")]
    oidc_issuer: String,
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
    let emulator = Emulator::start(address, options(arguments)?).await?;
    say(&emulator)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    emulator.stop().await;
    Ok(())
}

/// What was said in files, in flags and in variables, in this order.
fn options(arguments: Arguments) -> anyhow::Result<Options> {
    let config = arguments.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    let faults = arguments.faults.as_deref().map(Faults::read).transpose()?;
    let flags = arguments.topic.into_iter().chain(arguments.subscription).chain(arguments.project);
    // Variables that are no text are none of ours.
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

/// `PUBSUB_PROJECT1`, `PUBSUB_PROJECT2`, …: what the popular images of Google's emulator start with.
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
