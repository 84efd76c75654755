//! Runs the image as a stranger would: unpacked from its archive, by a container runtime of this machine, as a user that
//! is not root, on a file system that can't be written to, with no network but the loopback.
//!
//! It says which runtime that was. It must never need the network of this machine, nor leave anything running.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use wakeq_services::{Cluster, ClusterOptions, OwnEmulator};

use super::bundle::Bundle;
use super::{PORT, USER};
use crate::{root, succeed};

/// What can run a bundle of the Open Container Initiative, with the same words.
const RUNTIMES: [&str; 2] = ["runc", "crun"];

/// How long the container may take to be ready, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts the trial in a network of its own, which has a loopback and nothing else.
pub(super) fn enter() -> Result<()> {
    runtime()?;
    let user = Command::new("id").arg("-u").output().context("`id` can't be started")?.stdout;
    ensure!(
        user.trim_ascii() == b"0",
        "only root may run a container here: use sudo, or --no-run and `docker load`"
    );
    let mut inside = Command::new("unshare");
    inside.args(["--net", "--", "sh", "-c", r#"ip link set lo up && exec "$0" image --trial"#]);
    succeed(inside.arg(env::current_exe()?))
}

pub(super) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(trial())
}

async fn trial() -> Result<()> {
    let runtime = runtime()?;
    let bundle = Bundle::unpack(&root().join("target/image.tar"))?;
    let postgres = Cluster::start(ClusterOptions::default()).await?;
    let emulator = OwnEmulator::start().await?;
    let (database_url, emulator_host) = (postgres.url("postgres"), emulator.host());
    let container = Container { runtime, bundle, database_url, emulator_host };
    println!(
        "run by {}, as user {USER} without capabilities, read-only, in a network of its own with a loopback only",
        container.runtime_version()?
    );
    for command in [&["migrate"][..], &["topics", "create"], &["doctor"]] {
        container.once(command)?;
    }
    container.stays().await
}

fn runtime() -> Result<&'static str> {
    let is_there = |name: &&&str| {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    let found = RUNTIMES.iter().find(is_there);
    found
        .copied()
        .context("no container runtime: install runc (Docker brings it, too) or crun; or use --no-run")
}

struct Container {
    runtime: &'static str,
    bundle: Bundle,
    database_url: String,
    emulator_host: String,
}

impl Container {
    fn runtime_version(&self) -> Result<String> {
        let output = output(Command::new(self.runtime).arg("--version"))?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
    }

    /// Runs a command to its end, which has to be a good one.
    fn once(&self, arguments: &[&str]) -> Result<()> {
        let began = Instant::now();
        let output = self.command("once", arguments)?.output()?;
        let words =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(
            output.status.success(),
            "`wakeq {}` ended with {}:\n{words}",
            arguments.join(" "),
            output.status
        );
        println!("`wakeq {}`: exit code 0 after {:.1} s", arguments.join(" "), began.elapsed().as_secs_f64());
        Ok(())
    }

    /// Runs the image's own command: it becomes ready, is healthy, and ends in good order on SIGTERM.
    async fn stays(&self) -> Result<()> {
        let began = Instant::now();
        let mut running = Running { runtime: self.runtime, child: self.command("stays", &[])?.spawn()? };
        let answer = running.answer("/readyz").await?;
        println!(
            "the default command: /readyz answers {answer} after {:.1} s",
            began.elapsed().as_secs_f64()
        );
        output(Command::new(self.runtime).args(["exec", "wakeq-stays", "/wakeq", "health"]))?;
        println!("the health check `wakeq health`, in the container: exit code 0");
        running.look_inside()?;
        let began = Instant::now();
        output(Command::new(self.runtime).args(["kill", "wakeq-stays", "TERM"]))?;
        let status = running.ended().await?;
        ensure!(status.code() == Some(0), "after SIGTERM it ended with {status}");
        println!("after SIGTERM: exit code 0 after {:.1} s", began.elapsed().as_secs_f64());
        Ok(())
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Result<Command> {
        let variables = [
            ("DATABASE_URL", self.database_url.clone()),
            ("PUBSUB_EMULATOR_HOST", self.emulator_host.clone()),
        ];
        let folder = self.bundle.configure(name, arguments, &variables)?;
        let mut command = Command::new(self.runtime);
        command.arg("run").arg("--bundle").arg(folder).arg(format!("wakeq-{name}"));
        // Ctrl-C is for this command, which then ends the container.
        command.process_group(0);
        Ok(command)
    }
}

/// A container that stays; it is killed if the trial ends before it.
struct Running {
    runtime: &'static str,
    child: Child,
}

impl Running {
    /// The first good answer to a path.
    async fn answer(&mut self, path: &str) -> Result<String> {
        let began = Instant::now();
        loop {
            let answer = ask(path).unwrap_or_else(|error| error.to_string());
            if answer.split(' ').nth(1).is_some_and(|status| status.starts_with('2')) {
                return Ok(answer);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the container ended with {status}");
            }
            ensure!(began.elapsed() < PATIENCE, "{path} answers {answer:?} after {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What the kernel says of the process.
    fn look_inside(&self) -> Result<()> {
        let state = output(Command::new(self.runtime).args(["state", "wakeq-stays"]))?;
        let state: Value = serde_json::from_slice(&state.stdout)?;
        let process = PathBuf::from(format!("/proc/{}", state["pid"]));
        let status = fs::read_to_string(process.join("status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
        };
        let (users, capabilities) = (field("Uid:"), field("CapEff:"));
        // Real, effective, saved, and that of the file system.
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

    async fn ended(&mut self) -> Result<std::process::ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(began.elapsed() < PATIENCE, "it does not end within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let killed = output(Command::new(self.runtime).args(["kill", "wakeq-stays", "KILL"]));
        if let Err(error) = killed.and_then(|_| Ok(self.child.wait()?)) {
            eprintln!("the container wakeq-stays may still run: {error:#}");
        }
    }
}

/// The first line of the answer.
fn ask(path: &str) -> Result<String> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, PORT))?;
    connection.set_read_timeout(Some(PATIENCE))?;
    write!(connection, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    connection.take(64 * 1024).read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

fn output(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("{command:?} can't be started"))?;
    ensure!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(output)
}
