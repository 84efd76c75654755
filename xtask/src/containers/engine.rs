//! The container engine: the one that answers, or one of our own for this command.
//!
//! Its own needs root, and has neither a bridge nor rules in the firewall: its containers are on the machine's network.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use wakeq_services::{Guard, Guarded, Launch, program_on_path};

use crate::succeed;

/// What the tests call their containers.
const NAMES: &str = "wakeq-test-";
const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(30);
const REMOVED_WITHIN: Duration = Duration::from_secs(30);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

/// An engine that answers.
pub(super) struct Engine {
    version: String,
    /// If it is ours.
    started: Option<Started>,
}

struct Started {
    process: Guarded,
    folder: PathBuf,
}

impl Engine {
    pub(super) async fn find_or_start() -> Result<Self> {
        program_on_path("docker").context("`docker` is not on PATH: install Docker (Debian: docker.io)")?;
        match version(None) {
            Ok(version) => Ok(Self { version, started: None }),
            Err(_) => Self::start().await,
        }
    }

    async fn start() -> Result<Self> {
        let program = program_on_path("dockerd")
            .context("no engine answers, and there is no `dockerd` to start one with: install Docker")?;
        let is_root =
            Command::new("id").arg("-u").output().is_ok_and(|user| user.stdout.trim_ascii() == b"0");
        ensure!(is_root, "no engine answers, and only root may start one: start Docker, or use sudo");
        let folder = std::env::temp_dir().join(format!("wakeq-engine-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
        let place = |option: &str, name: &str| format!("--{option}={}", folder.join(name).display());
        let launch = Launch::new(program)
            .argument(format!("--host={}", address(&folder)))
            .arguments([place("data-root", "data"), place("exec-root", "exec"), place("pidfile", "pid")])
            .arguments(["--iptables=false", "--bridge=none", "--log-level=warn"]);
        let process = Guard::new(None)?.start(launch)?;
        let mut started = Started { process, folder };
        match started.answer().await {
            Ok(version) => Ok(Self { version, started: Some(started) }),
            Err(error) => {
                started.end().await?;
                Err(error)
            }
        }
    }

    /// The client of this engine.
    pub(super) fn client(&self) -> Command {
        let mut client = Command::new("docker");
        self.reach(&mut client);
        client
    }

    /// Tells a command where it is, and which network its containers can have.
    pub(super) fn reach(&self, command: &mut Command) {
        if let Some(started) = &self.started {
            command.env("DOCKER_HOST", address(&started.folder)).env("TEST_DOCKER_NETWORK", "host");
        }
    }

    /// The names of the tests' containers that are still there when their removal has had its time: nobody waits for it.
    pub(super) async fn left_containers(&self) -> Result<Vec<String>> {
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
        let output = list.output().context("`docker ps`")?;
        ensure!(output.status.success(), "docker ps: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
    }

    /// Ends it, if it is ours, with everything that it has.
    pub(super) async fn end(self) -> Result<()> {
        match self.started {
            Some(started) => started.end().await,
            None => Ok(()),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.started.is_some() { "started for this, without a bridge" } else { "found" };
        write!(formatter, "Docker {}, {whose}", self.version)
    }
}

impl Started {
    async fn answer(&mut self) -> Result<String> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if let Ok(version) = version(Some(&self.folder)) {
                return Ok(version);
            }
            if !self.process.is_running() || Instant::now() > deadline {
                bail!("dockerd does not answer; its last words:\n{}", self.process.last_lines());
            }
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        }
    }

    async fn end(self) -> Result<()> {
        self.process.stop(ENDS_WITHIN).await?;
        // dockerd leaves the network of its containers mounted. If it was not made, there is nothing to unmount.
        let network = self.folder.join("exec/netns/default");
        if network.exists() {
            succeed(Command::new("umount").arg(network))?;
        }
        std::fs::remove_dir_all(&self.folder).with_context(|| format!("remove {}", self.folder.display()))
    }
}

fn address(folder: &Path) -> String {
    format!("unix://{}", folder.join("socket").display())
}

/// Of the engine, not of the client.
fn version(folder: Option<&Path>) -> Result<String> {
    let mut ask = Command::new("docker");
    ask.args(["version", "--format", "{{.Server.Version}}"]);
    if let Some(folder) = folder {
        ask.env("DOCKER_HOST", address(folder));
    }
    let output = ask.output().context("`docker` can't be started")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
