//! The container engine: the one that answers, or one of our own for this command.
//!
//! Our own needs root, and makes no firewall rules. It must never outlive this command, nor may its
//! containers and its bridge, even if the command is killed.

use std::fmt;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use wakeq_testbed::{AtEnd, program_on_path};

use super::said;

/// The prefix of the names of the tests' containers.
const NAMES: &str = "wakeq-test-";
const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(60);
const REMOVED_WITHIN: Duration = Duration::from_secs(30);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);
/// The bridge that an engine makes unless told otherwise, and where the kernel lists it.
const BRIDGE: &str = "docker0";
const BRIDGE_INTERFACE: &str = "/sys/class/net/docker0";
const LOG: &str = "log";
const HOST: &str = "DOCKER_HOST";

/// The client on PATH may lack the plugin that builds; Debian's own needs none.
const CLIENTS: [&str; 2] = ["docker", "/usr/bin/docker"];
const BUILDKIT: (&str, &str) = ("DOCKER_BUILDKIT", "1");

/// Stops the engine that answers on `$0` and has the folder `$1`: first its containers and their
/// networks, which would survive it, then the engine, then the bridge `$2`, if it made one, then
/// its folder, in which the network of its containers is mounted.
const END_SCRIPT: &str = r#"
export DOCKER_HOST="$0"
containers=$(docker ps --all --quiet)
[ -z "$containers" ] || docker rm --force --volumes $containers
networks=$(docker network ls --quiet --filter type=custom)
[ -z "$networks" ] || docker network rm $networks
engine=$(cat "$1/pid")
if [ -n "$engine" ] && kill "$engine"; then
    attempt=0
    while kill -0 "$engine" && [ $attempt -lt 300 ]; do
        attempt=$((attempt + 1))
        sleep 0.1
    done
fi
umount "$1/exec/netns/default"
[ -z "$2" ] || ip link delete "$2"
rm -rf -- "$1"
"#;

/// The networks of an engine of our own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// Containers can only use the machine's network.
    Host,
    /// Containers have networks of their own, which reach nothing beyond this machine.
    Bridges,
}

/// An engine that answers.
pub(crate) struct Engine {
    version: String,
    /// Set if the engine is ours.
    started: Option<OwnEngine>,
}

/// Our own engine. It is stopped when this is dropped and when this command is killed;
/// [`OwnEngine::end`] waits for that.
struct OwnEngine {
    process: Child,
    folder: PathBuf,
    end: AtEnd,
}

impl Engine {
    pub(crate) async fn find_or_start(network: Network) -> Result<Self> {
        program_on_path("docker").context("`docker` is not on PATH: install Docker (Debian: docker.io)")?;
        match version(None) {
            Ok(version) => Ok(Self { version, started: None }),
            Err(_) => {
                let mut started = OwnEngine::start(network)?;
                match started.answer().await {
                    Ok(version) => Ok(Self { version, started: Some(started) }),
                    Err(error) => {
                        started.end().await?;
                        Err(error)
                    }
                }
            }
        }
    }

    /// The client of this engine.
    pub(crate) fn client(&self) -> Command {
        let mut client = Command::new("docker");
        self.reach(&mut client);
        client
    }

    /// A client that can build with BuildKit, with BuildKit enabled.
    pub(crate) fn building_client(&self) -> Result<Command> {
        let can_build = |client: &&str| {
            let mut ask = Command::new(client);
            said(ask.args(["build", "--help"]).env(BUILDKIT.0, BUILDKIT.1)).is_ok()
        };
        let found = CLIENTS.into_iter().find(|client| can_build(client));
        let mut client =
            Command::new(found.context("`docker` can't build with BuildKit: install docker-buildx")?);
        self.reach(&mut client);
        client.env(BUILDKIT.0, BUILDKIT.1);
        Ok(client)
    }

    /// Runs the client with these arguments when the returned value is dropped, and when this
    /// command is killed.
    pub(crate) fn at_end(&self, arguments: &[&str]) -> Result<AtEnd> {
        let host = self.started.as_ref().map(|started| format!("--host={}", address(&started.folder)));
        Ok(AtEnd::run("docker", host.as_deref().into_iter().chain(arguments.iter().copied()))?)
    }

    /// The uncompressed size of an image, in bytes.
    pub(crate) fn size(&self, image: &str) -> Result<u64> {
        let size = said(self.client().args(["image", "inspect", "--format", "{{.Size}}", image]))?;
        Ok(size.trim().parse()?)
    }

    /// Sets the environment in which a command finds this engine and a network for its containers.
    pub(crate) fn reach(&self, command: &mut Command) {
        if let Some((name, value)) = self.host() {
            command.env(name, value).env("TEST_DOCKER_NETWORK", "host");
        }
    }

    /// The variable by which a client finds this engine, if it needs one.
    pub(crate) fn host(&self) -> Option<(&'static str, String)> {
        self.started.as_ref().map(|started| (HOST, address(&started.folder)))
    }

    /// The names of the tests' containers that still exist once their removal, which is not
    /// awaited, has had its time.
    pub(crate) async fn left_containers(&self) -> Result<Vec<String>> {
        let deadline = Instant::now() + REMOVED_WITHIN;
        loop {
            let names = self.containers()?;
            if names.is_empty() || Instant::now() > deadline {
                return Ok(names);
            }
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        }
    }

    fn containers(&self) -> Result<Vec<String>> {
        let mut list = self.client();
        list.args(["ps", "--all", "--format", "{{.Names}}", "--filter", &format!("name={NAMES}")]);
        Ok(said(&mut list)?.lines().map(str::to_owned).collect())
    }

    /// Stops the engine with everything in it, if it is ours.
    pub(crate) async fn end(self) -> Result<()> {
        match self.started {
            Some(started) => started.end().await,
            None => Ok(()),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.started.is_some() { "started for this" } else { "found" };
        write!(formatter, "Docker {}, {whose}", self.version)
    }
}

impl OwnEngine {
    fn start(network: Network) -> Result<Self> {
        let program = program_on_path("dockerd")
            .context("no engine answers, and there is no `dockerd` to start one with: install Docker")?;
        ensure!(is_root(), "no engine answers, and only root may start one: start Docker, or use sudo");
        let folder = std::env::temp_dir().join(format!("wakeq-engine-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| format!("can't create {}", folder.display()))?;
        let host = address(&folder);
        let makes_bridge = network == Network::Bridges && !Path::new(BRIDGE_INTERFACE).exists();
        let bridge = if makes_bridge { BRIDGE } else { "" };
        let arguments =
            ["-c".as_ref(), END_SCRIPT.as_ref(), host.as_ref(), folder.as_os_str(), bridge.as_ref()];
        let end = AtEnd::run("sh", arguments)?;
        let path_option = |option: &str, name: &str| format!("--{option}={}", folder.join(name).display());
        let log = File::create(folder.join(LOG))?;
        let mut engine = Command::new(program);
        engine.arg(format!("--host={host}"));
        engine.args([
            path_option("data-root", "data"),
            path_option("exec-root", "exec"),
            path_option("pidfile", "pid"),
        ]);
        engine.args(["--iptables=false", "--ip-forward=false", "--log-level=warn"]);
        if network == Network::Host {
            engine.arg("--bridge=none");
        }
        engine.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let process = engine.spawn().context("dockerd can't be started")?;
        Ok(Self { process, folder, end })
    }

    async fn answer(&mut self) -> Result<String> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if let Ok(version) = version(Some(&self.folder)) {
                return Ok(version);
            }
            if self.process.try_wait()?.is_some() || Instant::now() > deadline {
                let words = std::fs::read_to_string(self.folder.join(LOG)).unwrap_or_default();
                bail!("dockerd does not answer; its output:\n{words}");
            }
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        }
    }

    async fn end(self) -> Result<()> {
        let Self { mut process, folder, end } = self;
        drop(end);
        let deadline = Instant::now() + ENDS_WITHIN;
        // Reaped at once, or it would seem to be running.
        while process.try_wait()?.is_none() || folder.exists() {
            ensure!(
                Instant::now() < deadline,
                "{} is left behind: end its dockerd and remove it",
                folder.display()
            );
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        }
        Ok(())
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|user| user.stdout.trim_ascii() == b"0")
}

fn address(folder: &Path) -> String {
    format!("unix://{}", folder.join("socket").display())
}

/// The version of the engine, not of the client.
fn version(folder: Option<&Path>) -> Result<String> {
    let mut ask = Command::new("docker");
    ask.args(["version", "--format", "{{.Server.Version}}"]);
    if let Some(folder) = folder {
        ask.env(HOST, address(folder));
    }
    Ok(said(&mut ask)?.trim().to_owned())
}
