//! Starts Google's own Pub/Sub emulator, waits until it is ready, and ends it.
//!
//! It keeps everything in memory: killing it loses every topic, subscription and message. It must
//! never be reachable from another machine.

use std::io;
use std::time::Duration;

use tokio::sync::{OnceCell, oneshot};
use tokio::time::timeout;

use super::locate::{Installation, find};
use super::{EmulatorError, PubSub, first_answer};
use crate::choice::{env_value, say};
use crate::process::{ChildProcess, Guard, Launch, free_port};

const REQUIRED_VARIABLE: &str = "REQUIRE_GOOGLE_EMULATOR";
const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(3);
const STARTED: &str = "Server started, listening on";
/// After this line it keeps running without serving anything.
const PORT_TAKEN: &str = "Address already in use";
/// Another process may take a free port before the emulator binds it.
const PORTS_TRIED: u32 = 5;
/// Halves the start-up time, and limits memory to what a laptop can spare.
const JVM_SETTINGS: [&str; 4] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m"];

/// Google's emulator as a child process. It ends with this value and with this process.
///
/// ```no_run
/// # async fn example() -> Result<(), wakeq_testbed::EmulatorError> {
/// let mut emulator = wakeq_testbed::GoogleEmulator::start(None).await?;
/// println!("PUBSUB_EMULATOR_HOST={}", emulator.host());
/// emulator.restart().await?; // empty, at the same address
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct GoogleEmulator {
    installation: Installation,
    guard: Guard,
    process: ChildProcess,
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

    /// The instance that all tests about Google's emulator share in this process: that of
    /// [`PubSub::shared`] if it is Google's. `None`, with a line on stderr, if Google's emulator is
    /// not installed and `REQUIRE_GOOGLE_EMULATOR` is not `1`.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), wakeq_testbed::EmulatorError> {
    /// let Some(emulator) = wakeq_testbed::GoogleEmulator::shared().await? else { return Ok(()) };
    /// let host = emulator.host();
    /// # Ok(()) }
    /// ```
    pub async fn shared() -> Result<Option<&'static Self>, EmulatorError> {
        static SHARED: OnceCell<Option<GoogleEmulator>> = OnceCell::const_new();
        if let PubSub::Google(emulator) = PubSub::shared().await? {
            return Ok(Some(emulator));
        }
        let started = SHARED.get_or_try_init(async || {
            let emulator = Self::start_if_installed("every test of Google's emulator").await?;
            if let Some(emulator) = &emulator {
                say(&format!("Pub/Sub: also Google's emulator {}, for its own tests", emulator.version()));
            }
            Ok::<_, EmulatorError>(emulator)
        });
        Ok(started.await?.as_ref())
    }

    /// Starts an instance for the caller alone. `None`, with a line on stderr that names what is
    /// `skipped`, if Google's emulator is not installed and `REQUIRE_GOOGLE_EMULATOR` is not `1`.
    pub async fn start_if_installed(skipped: &str) -> Result<Option<Self>, EmulatorError> {
        match Self::start(None).await {
            Ok(emulator) => Ok(Some(emulator)),
            Err(EmulatorError::NotInstalled(missing)) if !is_required() => {
                say(&format!("SKIPPED: {skipped}. {missing}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The address, in the format of `PUBSUB_EMULATOR_HOST`: `127.0.0.1:PORT`.
    pub fn host(&self) -> String {
        host(self.port)
    }

    /// The version, like `0.8.20`.
    pub fn version(&self) -> &str {
        &self.installation.version
    }

    /// The process id of the JVM.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills it; all its data is lost, and nothing answers at its address until
    /// [`restart`](Self::restart).
    pub async fn kill_9(&self) -> Result<(), EmulatorError> {
        Ok(self.process.kill_9().await?)
    }

    /// Kills it, if it is running, and starts an empty one at the same address.
    pub async fn restart(&mut self) -> Result<(), EmulatorError> {
        self.kill_9().await?;
        self.process = launch(&self.installation, &self.guard, self.port).await?;
        Ok(())
    }

    /// Shuts it down gracefully.
    pub async fn stop(self) -> Result<(), EmulatorError> {
        Ok(self.process.stop(ENDS_WITHIN).await?)
    }
}

/// Whether a missing emulator is an error.
fn is_required() -> bool {
    env_value(REQUIRED_VARIABLE).is_some_and(|value| value == "1")
}

async fn launch(
    installation: &Installation,
    guard: &Guard,
    port: u16,
) -> Result<ChildProcess, EmulatorError> {
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
        // The channel is closed when the process ends or finds its port taken.
        started.await.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        first_answer(&host(port)).await
    };
    match timeout(READY_WITHIN, ready).await {
        Ok(Ok(())) => Ok(process),
        Ok(Err(_)) => Err(EmulatorError::Failed(process.last_lines())),
        Err(_) => Err(EmulatorError::Silent(process.last_lines())),
    }
}

fn host(port: u16) -> String {
    format!("127.0.0.1:{port}")
}
