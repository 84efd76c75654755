//! `pubsub-emulator`: the emulator as a program.

mod health;
mod stop;

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use health::Health;
use stop::stop_requests;
use tokio::net::lookup_host;
use wakeq_emulator::{Config, Emulator, Faults, Options, Provision};

/// A Google Cloud Pub/Sub emulator: gRPC and REST on one port.
///
/// Set PUBSUB_EMULATOR_HOST=host:port for clients; any project id works. Nothing is stored on disk,
/// and all messages are lost when it exits, unless --data names a folder for them.
#[derive(Debug, Parser)]
#[command(name = "pubsub-emulator", version, args_conflicts_with_subcommands = true)]
struct Program {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    arguments: Arguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts the emulator, as no command does, with the same options
    Start(Box<Arguments>),
    /// Asks the emulator on this machine, or in this container, whether it answers: exit code 0 if
    /// it does
    Health(Health),
}

// Not documented: clap would show it instead of what is said about the program.
#[derive(Args, Debug)]
struct Arguments {
    /// Address or name to listen on: 127.0.0.1 for local clients only, 0.0.0.0 or :: for all
    /// interfaces
    #[arg(long, default_value = "127.0.0.1", env = "PUBSUB_EMULATOR_LISTEN_HOST")]
    host: String,

    /// Port to listen on; 0 picks a free port and prints it
    #[arg(long, default_value_t = 8085, env = "PUBSUB_EMULATOR_PORT")]
    port: u16,

    /// Both, as Google's emulator takes them: HOST:PORT, HOST or :PORT; it overrides the other two
    #[arg(long, value_name = "HOST:PORT")]
    host_port: Option<HostPort>,

    /// Configuration file with initial schemas, topics, subscriptions and faults: TOML, or JSON
    /// (.json), or YAML (.yaml, .yml)
    #[arg(long, value_name = "FILE", env = "PUBSUB_EMULATOR_CONFIG")]
    config: Option<PathBuf>,

    /// File with initial faults, in the same formats; overrides the faults in --config
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

    /// Origin of pages that may use the emulator in a browser, such as http://localhost:9090; * is
    /// all
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,

    /// Store settings that need what the emulator does not have, such as kmsKeyName and
    /// bigqueryConfig, instead of refusing them; they are returned, but not carried out
    #[arg(long, env = "PUBSUB_EMULATOR_ACCEPT_UNSUPPORTED", value_parser = yes_or_no)]
    accept_unsupported: bool,

    /// Folder to keep topics, subscriptions, snapshots, schemas and messages in, so that they
    /// survive the end of the process, even by kill -9; it is made if it is not there
    #[arg(long, value_name = "FOLDER", env = "PUBSUB_EMULATOR_DATA")]
    data: Option<PathBuf>,

    /// Write a line to the standard error for each request, with what came of it
    #[arg(long)]
    log_requests: bool,
}

/// An address and a port, either of which may be left out.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct HostPort {
    host: Option<String>,
    port: Option<u16>,
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The last colon of an address like [::1] belongs to it.
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            Some(_) | None => (text, ""),
        };
        if host.contains(':') && !host.starts_with('[') {
            return Err(format!("an IPv6 address is written in brackets, as in [::1]:8085, not as `{text}`"));
        }
        let port = match port {
            "" => None,
            port => Some(port.parse::<u16>().map_err(|_| format!("`{port}` is not a port"))?),
        };
        Ok(Self { host: (!host.is_empty()).then(|| host.to_owned()), port })
    }
}

/// The value of a flag's variable. An empty one is as none.
fn yes_or_no(word: &str) -> Result<bool, String> {
    match word.to_ascii_lowercase().as_str() {
        "y" | "yes" | "t" | "true" | "on" | "1" => Ok(true),
        "" | "n" | "no" | "f" | "false" | "off" | "0" => Ok(false),
        _ => Err("write yes, true, on or 1, or else no, false, off or 0".to_owned()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let program = Program::parse();
    let done = match program.command {
        None => run(program.arguments).await,
        Some(Command::Start(arguments)) => run(*arguments).await,
        Some(Command::Health(health)) => health.run().await,
    };
    match done {
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
    let stopped = stop_requests()?;
    let HostPort { host, port } = arguments.host_port.clone().unwrap_or_default();
    let host = host.as_deref().unwrap_or(&arguments.host);
    let address = resolve(host, port.unwrap_or(arguments.port)).await?;
    let emulator = Emulator::start(address, options(arguments)?).await?;
    let said = say(&emulator);
    if said.is_ok() {
        stopped.await;
    }
    emulator.stop().await;
    said
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
        allowed_origins: arguments.allow_origin,
        accept_unsupported: arguments.accept_unsupported,
        log_requests: arguments.log_requests,
        data: arguments.data,
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

/// The second line is that of Google's emulator, which programs wait for. Both are written at once,
/// as a program may close the pipe after the first.
fn say(emulator: &Emulator) -> anyhow::Result<()> {
    let (address, host, port) = (emulator.address(), emulator.host(), emulator.address().port());
    let lines = format!(
        "pubsub-emulator: listening on {address}; export PUBSUB_EMULATOR_HOST={host}\n\
         Server started, listening on {port}\n"
    );
    let mut output = std::io::stdout().lock();
    let written = output.write_all(lines.as_bytes()).and_then(|()| output.flush());
    written.context("cannot write to the standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_may_be_given_together_or_one_of_them() {
        let table = [
            ("0.0.0.0:8085", Some("0.0.0.0"), Some(8085)),
            ("localhost:0", Some("localhost"), Some(0)),
            ("localhost", Some("localhost"), None),
            (":8085", None, Some(8085)),
            ("[::1]:8085", Some("[::1]"), Some(8085)),
            ("[::1]", Some("[::1]"), None),
        ];
        for (text, host, port) in table {
            let expected = HostPort { host: host.map(str::to_owned), port };
            assert_eq!(text.parse::<HostPort>(), Ok(expected), "{text}");
        }
        assert_eq!("localhost:http".parse::<HostPort>(), Err("`http` is not a port".to_owned()));
        for text in ["::1", "::", "::1:8085", "fe80::1"] {
            assert!(text.parse::<HostPort>().is_err_and(|words| words.contains("[::1]:8085")), "{text}");
        }
    }

    #[test]
    fn a_variable_is_yes_or_no_in_the_usual_words_and_never_by_a_slip() {
        for word in ["1", "on", "true", "YES", "y", "T"] {
            assert_eq!(yes_or_no(word), Ok(true), "{word}");
        }
        for word in ["", "0", "off", "False", "NO", "n", "f"] {
            assert_eq!(yes_or_no(word), Ok(false), "{word}");
        }
        for word in ["flase", "2", " ", "enabled"] {
            assert!(yes_or_no(word).is_err_and(|words| words.contains("false")), "{word}");
        }
    }
}
