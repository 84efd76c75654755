//! Starts Google's own Pub/Sub emulator, knows when it answers, and ends it.
//!
//! It keeps everything in memory: whoever kills it loses every topic, subscription and message. It must never be
//! reachable from another machine.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::locate::{Installation, NotInstalled, find};
use crate::process::{Guard, Guarded, Launch, ProcessError, free_port};

const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(3);
const STARTED: &str = "Server started, listening on";
/// It says so, and then stays without serving anybody.
const PORT_TAKEN: &str = "Address already in use";
/// Another process may take a free port before the emulator does.
const PORTS_TRIED: u32 = 5;
/// Half the start-up time of the defaults, and no more memory than a laptop can spare.
const JVM_SETTINGS: [&str; 4] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m"];

/// Why Google's emulator could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// It isn't there.
    #[error(transparent)]
    NotInstalled(#[from] NotInstalled),
    /// Its process could not be started or ended.
    #[error("Google's Pub/Sub emulator")]
    Process(#[from] ProcessError),
    /// No port.
    #[error("no free port on 127.0.0.1 for Google's Pub/Sub emulator")]
    Port(#[source] io::Error),
    /// It ended, or found its port taken, before it answered.
    #[error("Google's Pub/Sub emulator could not start; its last words:\n{0}")]
    Failed(String),
    /// It runs but does not answer.
    #[error("Google's Pub/Sub emulator does not answer; its last words:\n{0}")]
    Silent(String),
}

/// Google's emulator, running as our child. It ends with this value, and with this process.
///
/// ```no_run
/// # async fn example() -> Result<(), wakeq_services::EmulatorError> {
/// let mut emulator = wakeq_services::GoogleEmulator::start(None).await?;
/// println!("PUBSUB_EMULATOR_HOST={}", emulator.host());
/// emulator.restart().await?; // empty, at the same address
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct GoogleEmulator {
    installation: Installation,
    guard: Guard,
    process: Guarded,
    port: u16,
}

impl GoogleEmulator {
    /// Starts it on the given port of 127.0.0.1, or on a free one, and waits until it answers.
    pub async fn start(port: Option<u16>) -> Result<Self, EmulatorError> {
        let installation = find()?;
        let guard = Guard::new(None)?;
        let mut attempt = 1;
        loop {
            let chosen = port.map_or_else(free_port, Ok).map_err(EmulatorError::Port)?;
            match launch(&installation, &guard, chosen).await {
                Ok(process) => return Ok(Self { installation, guard, process, port: chosen }),
                Err(EmulatorError::Failed(_)) if port.is_none() && attempt < PORTS_TRIED => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it answers, as `PUBSUB_EMULATOR_HOST` wants it: `127.0.0.1:PORT`.
    pub fn host(&self) -> String {
        host(self.port)
    }

    /// Its version: `0.8.20`.
    pub fn version(&self) -> &str {
        &self.installation.version
    }

    /// The process id of its JVM.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills it; everything in it is lost, and nothing answers at its address until [`restart`](Self::restart).
    pub async fn kill_9(&self) -> Result<(), EmulatorError> {
        Ok(self.process.kill_9().await?)
    }

    /// Kills it, if it runs, and starts an empty one at the same address.
    pub async fn restart(&mut self) -> Result<(), EmulatorError> {
        self.kill_9().await?;
        self.process = launch(&self.installation, &self.guard, self.port).await?;
        Ok(())
    }

    /// Ends it in good order.
    pub async fn stop(self) -> Result<(), EmulatorError> {
        Ok(self.process.stop(ENDS_WITHIN).await?)
    }
}

async fn launch(installation: &Installation, guard: &Guard, port: u16) -> Result<Guarded, EmulatorError> {
    let (sender, started) = oneshot::channel();
    let mut sender = Some(sender);
    let process = guard.start(
        Launch::new(&installation.java)
            .arguments(JVM_SETTINGS)
            .argument("-jar")
            .argument(&installation.jar)
            .arguments(["--host=127.0.0.1", &format!("--port={port}")])
            .on_line(move |line| {
                if line.contains(PORT_TAKEN) {
                    sender = None;
                } else if line.contains(STARTED)
                    && let Some(sender) = sender.take()
                {
                    let _ = sender.send(());
                }
            }),
    )?;
    let ready = async {
        // The channel closes when the process ends or finds its port taken.
        started.await.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        first_answer(port).await
    };
    match timeout(READY_WITHIN, ready).await {
        Ok(Ok(())) => Ok(process),
        Ok(Err(_)) => Err(EmulatorError::Failed(process.last_lines())),
        Err(_) => Err(EmulatorError::Silent(process.last_lines())),
    }
}

/// Lists the topics of a project that nobody uses. The first request takes the emulator longer than all later ones.
async fn first_answer(port: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect(host(port)).await?;
    let request = format!(
        "GET /v1/projects/ready/topics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        host(port)
    );
    stream.write_all(request.as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    if &status == b"HTTP/1.1 200" { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn host(port: u16) -> String {
    format!("127.0.0.1:{port}")
}
