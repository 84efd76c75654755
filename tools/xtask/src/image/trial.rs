//! Runs the image as a user would: as a user other than root, on a read-only file system, beside a
//! Postgres and an emulator of its own, until an event was handled.
//!
//! It must never leave anything running.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use wakeq_testbed::{AtEnd, Cluster, ClusterOptions, OwnEmulator, free_port};

use super::target::Target;
use crate::docker::{Engine, USER, said};

/// How long each step may take.
const TIMEOUT: Duration = Duration::from_secs(30);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

/// The exit code of `wakeq events show` for an event that does not exist.
const NOT_FOUND: i32 = 3;

/// Prepares a database, then runs the image's default command.
pub(super) async fn run(engine: &Engine, image: &str) -> Result<()> {
    let postgres = Cluster::start(ClusterOptions::default()).await?;
    let emulator = OwnEmulator::start().await?;
    let target = Target::listen()?;
    let port = free_port()?;
    let name = format!("wakeq-image-{}", std::process::id());
    let mut trial = Trial { engine, image, name, port, variables: Vec::new() };
    let key = trial.run_once(&["secrets", "new-key"])?;
    trial.variables = vec![
        ("DATABASE_URL", postgres.url("postgres")),
        ("PUBSUB_EMULATOR_HOST", emulator.host()),
        ("PORT", port.to_string()),
        ("WAKEQ_LISTEN", Ipv4Addr::LOCALHOST.to_string()),
        ("WAKEQ_SECRET_KEY", key),
        ("WAKEQ_DELIVER_HTTP", "1".to_owned()),
        ("WAKEQ_DELIVER_TO", format!("*={}", target.address)),
        // In a build for tests, the process would end at that point, before it publishes what it
        // emitted; this build ignores the variable.
        ("WAKEQ_FAULT", "emit.committed".to_owned()),
    ];
    for command in [&["migrate"][..], &["topics", "create"], &["doctor"]] {
        let began = Instant::now();
        trial.run_once(command)?;
        println!("`wakeq {}`: exit code 0 after {:.1} s", command.join(" "), began.elapsed().as_secs_f64());
    }
    trial.run_default_command(&target).await
}

/// The image and the environment of its containers.
struct Trial<'a> {
    engine: &'a Engine,
    image: &'a str,
    name: String,
    port: u16,
    variables: Vec<(&'static str, String)>,
}

impl Trial<'_> {
    /// Runs a command, which has to succeed; returns its output.
    fn run_once(&self, arguments: &[&str]) -> Result<String> {
        Ok(said(self.command().arg(self.image).args(arguments))?.trim().to_owned())
    }

    /// Runs the image's default command: it has to become ready and healthy, handle an event, and
    /// shut down gracefully on SIGTERM.
    async fn run_default_command(&self, target: &Target) -> Result<()> {
        let began = Instant::now();
        let removed = self.engine.at_end(&["rm", "--force", &self.name])?;
        let mut command = self.command();
        // Ctrl-C is for this command, which then ends the container.
        command.args(["--name", &self.name, self.image]).process_group(0);
        let mut container = Container { trial: self, child: command.spawn()?, _removed: removed };
        let answer = container.retry_until(|| ready(self.port)).await?;
        println!(
            "the default command: /readyz answers {answer} after {:.1} s",
            began.elapsed().as_secs_f64()
        );
        container.check_process()?;
        container.check_event(target).await?;
        container.retry_until(|| self.healthy()).await?;
        println!("the image's health check: healthy after {:.1} s", began.elapsed().as_secs_f64());
        container.stop().await
    }

    /// `docker run`, up to the name of the image.
    fn command(&self) -> Command {
        let mut command = self.engine.client();
        command.args(["run", "--rm", "--read-only", "--network", "host", "--cap-drop", "ALL"]);
        command.args(["--security-opt", "no-new-privileges"]);
        for (name, value) in &self.variables {
            command.arg("--env").arg(format!("{name}={value}"));
        }
        command
    }

    /// A command in the running container, beside its main process.
    fn inside(&self, arguments: &[&str]) -> Command {
        let mut command = self.engine.client();
        command.args(["exec", &self.name, "/wakeq"]).args(arguments);
        command
    }

    fn is_gone(&self, event: &str) -> Result<()> {
        let status = self.inside(&["events", "show", event]).output()?.status;
        ensure!(status.code() == Some(NOT_FOUND), "`wakeq events show {event}` exited with {status}");
        Ok(())
    }

    fn healthy(&self) -> Result<()> {
        let health = self.inspected("{{.State.Health.Status}}")?;
        ensure!(health == "healthy", "the health check says {health}");
        Ok(())
    }

    /// A field that the engine reports of the running container.
    fn inspected(&self, field: &str) -> Result<String> {
        let mut inspect = self.engine.client();
        Ok(said(inspect.args(["container", "inspect", "--format", field, &self.name]))?.trim().to_owned())
    }
}

/// A running container, which is removed when this is dropped.
struct Container<'a> {
    trial: &'a Trial<'a>,
    /// `docker run`, which exits with the exit code of the container.
    child: Child,
    _removed: AtEnd,
}

impl Container<'_> {
    /// Retries until an attempt succeeds; returns its result.
    async fn retry_until<T>(&mut self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        let began = Instant::now();
        loop {
            let error = match attempt() {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if let Some(status) = self.child.try_wait()? {
                bail!("the container exited with {status}");
            }
            ensure!(began.elapsed() < TIMEOUT, "after {TIMEOUT:?}: {error:#}");
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        }
    }

    /// Registers a target and emits an event: the target has to receive it, after which the event
    /// is gone.
    async fn check_event(&mut self, target: &Target) -> Result<()> {
        said(&mut self.trial.inside(&["handlers", "put", "greet", &format!("http://{}/", target.address)]))?;
        let began = Instant::now();
        let id = said(&mut self.trial.inside(&["emit", "greet", r#""Ada""#]))?.trim().to_owned();
        let request = target.request_within(TIMEOUT)?;
        ensure!(
            request.id == id && request.body.contains("Ada"),
            "{id} was emitted, but {} was received: {}",
            request.id,
            request.body
        );
        let trial = self.trial;
        self.retry_until(|| trial.is_gone(&id)).await?;
        println!(
            "event {id}: handled {:.1} s after the command that emitted it",
            began.elapsed().as_secs_f64()
        );
        Ok(())
    }

    /// Checks what the kernel reports of the process.
    fn check_process(&self) -> Result<()> {
        let process = PathBuf::from("/proc").join(self.trial.inspected("{{.State.Pid}}")?);
        let status = fs::read_to_string(process.join("status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
        };
        let (users, capabilities) = (field("Uid:"), field("CapEff:"));
        // The real, effective, saved and file-system user ids.
        ensure!(users.split(' ').all(|user| user == USER.to_string()), "it runs as {users}");
        ensure!(capabilities.chars().all(|digit| digit == '0'), "it has capabilities: {capabilities}");
        let mounts = fs::read_to_string(process.join("mountinfo"))?;
        let is_root = |line: &&str| line.split(' ').nth(4) == Some("/");
        let options =
            mounts.lines().rfind(is_root).and_then(|line| line.split(' ').nth(5)).unwrap_or_default();
        ensure!(options.split(',').any(|option| option == "ro"), "its root is mounted {options}");
        let memory = field("VmRSS:");
        println!("its process: user {USER}, no capabilities, root read-only, {memory} resident");
        Ok(())
    }

    /// Stops the container with the signal that the image names.
    async fn stop(mut self) -> Result<()> {
        let began = Instant::now();
        said(self.trial.engine.client().args(["stop", "--time", "30", &self.trial.name]))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "after SIGTERM it exited with {status}");
        println!("after SIGTERM: exit code 0 after {:.1} s", began.elapsed().as_secs_f64());
        Ok(())
    }
}

/// The first line of a successful answer.
fn ready(port: u16) -> Result<String> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    write!(connection, "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    connection.take(64 * 1024).read_to_string(&mut answer)?;
    let line = answer.lines().next().unwrap_or_default();
    ensure!(line.split(' ').nth(1).is_some_and(|status| status.starts_with('2')), "/readyz answers {line:?}");
    Ok(line.to_owned())
}
