//! Starts a NATS server with JetStream, waits until it is ready, and ends it.
//!
//! It must never listen on anything but 127.0.0.1.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::{OnceCell, oneshot};
use tokio::time::timeout;

use crate::choice::{env_value, say};
use crate::process::{ChildProcess, Guard, Launch, ProcessError, free_port, program_on_path};

const PROGRAM: &str = "nats-server";
/// Where Debian puts it, which is not on every user's `PATH`.
const DEBIANS: &str = "/usr/sbin/nats-server";
const REQUIRED_VARIABLE: &str = "REQUIRE_NATS";
const READY_WITHIN: Duration = Duration::from_secs(30);
const STARTED: &str = "Server is ready";
/// Another process may take a free port before the server binds it.
const PORTS_TRIED: u32 = 5;

/// Why the NATS server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// It is not installed.
    #[error("nats-server is not installed: on Debian, `apt-get install nats-server`")]
    NotInstalled,
    /// Its process could not be started or ended.
    #[error("the NATS server")]
    Process(#[from] ProcessError),
    /// No port is free.
    #[error("no free port on 127.0.0.1 for the NATS server")]
    Port(#[source] io::Error),
    /// It ended, or was not ready in time; its last lines of output.
    #[error("the NATS server could not start; its last output:\n{0}")]
    Failed(String),
}

/// A NATS server as a child process, with JetStream in a folder of its own. Both end with this
/// value and with this process.
///
/// ```no_run
/// # async fn example() -> Result<(), wakeq_testbed::NatsError> {
/// let mut server = wakeq_testbed::NatsServer::start().await?;
/// println!("{}", server.url()); // nats://127.0.0.1:21234
/// server.kill_9().await?;
/// server.restart().await?; // with what it had stored
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct NatsServer {
    program: PathBuf,
    guard: Guard,
    process: ChildProcess,
    folder: PathBuf,
    port: u16,
}

impl NatsServer {
    /// Starts it on a free port of 127.0.0.1, and waits until it is ready.
    pub async fn start() -> Result<Self, NatsError> {
        let program = program_on_path(PROGRAM).unwrap_or_else(|| DEBIANS.into());
        if !program.is_file() {
            return Err(NatsError::NotInstalled);
        }
        let random = RandomState::new().hash_one(std::process::id());
        let folder = std::env::temp_dir().join(format!("wakeq-nats-{random:016x}"));
        let guard = Guard::new(Some(&folder))?;
        let mut attempt = 1;
        loop {
            let port = free_port().map_err(NatsError::Port)?;
            match launch(&program, &guard, &folder, port).await {
                Ok(process) => return Ok(Self { program, guard, process, folder, port }),
                Err(NatsError::Failed(_)) if attempt < PORTS_TRIED => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`start`](Self::start). `None`, with a line on stderr that names what is `skipped`, if it
    /// is not installed and `REQUIRE_NATS` is not `1`.
    pub async fn start_if_installed(skipped: &str) -> Result<Option<Self>, NatsError> {
        match Self::start().await {
            Err(missing @ NatsError::NotInstalled)
                if env_value(REQUIRED_VARIABLE).is_none_or(|value| value != "1") =>
            {
                say(&format!("SKIPPED: {skipped}. {missing}"));
                Ok(None)
            }
            started => started.map(Some),
        }
    }

    /// The instance that the tests of this process share; as for
    /// [`start_if_installed`](Self::start_if_installed).
    pub async fn shared() -> Result<Option<&'static Self>, NatsError> {
        static SHARED: OnceCell<Option<NatsServer>> = OnceCell::const_new();
        let started = SHARED.get_or_try_init(|| Self::start_if_installed("every test of NATS"));
        Ok(started.await?.as_ref())
    }

    /// The address, `nats://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Kills it; nothing answers at its address until [`restart`](Self::restart).
    pub async fn kill_9(&self) -> Result<(), NatsError> {
        Ok(self.process.kill_9().await?)
    }

    /// Kills it, if it is running, and starts it again at the same address, with what it had
    /// stored.
    pub async fn restart(&mut self) -> Result<(), NatsError> {
        self.kill_9().await?;
        self.process = launch(&self.program, &self.guard, &self.folder, self.port).await?;
        Ok(())
    }
}

async fn launch(program: &Path, guard: &Guard, folder: &Path, port: u16) -> Result<ChildProcess, NatsError> {
    let (sender, started) = oneshot::channel();
    let mut sender = Some(sender);
    let process = guard.start(
        Launch::new(program)
            .arguments(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"])
            .argument(folder)
            .on_line(move |line| {
                if line.contains(STARTED)
                    && let Some(sender) = sender.take()
                {
                    let _ = sender.send(());
                }
            }),
    )?;
    // The channel is closed when the process ends.
    match timeout(READY_WITHIN, started).await {
        Ok(Ok(())) => Ok(process),
        Ok(Err(_)) | Err(_) => Err(NatsError::Failed(process.last_lines())),
    }
}
