//! Our own emulator in this process, on a thread and a runtime of its own: it outlives the runtime
//! of the test that happens to start it, and can be killed like a process.
//!
//! It must never listen on anything but 127.0.0.1.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;
use wakeq_emulator::{Emulator, Options};

use super::EmulatorError;
use crate::process::free_port;

/// Another process may take a free port before the emulator binds it.
const PORTS_TRIED: u32 = 5;

/// Our emulator, running in this process. It ends with this value.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), wakeq_testbed::EmulatorError> {
/// let mut emulator = wakeq_testbed::OwnEmulator::start().await?;
/// println!("PUBSUB_EMULATOR_HOST={}", emulator.host());
/// emulator.restart().await?; // empty, at the same address
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct OwnEmulator {
    address: SocketAddr,
    running: Option<EmulatorThread>,
}

impl OwnEmulator {
    /// Starts it on a free port of 127.0.0.1.
    pub async fn start() -> Result<Self, EmulatorError> {
        let mut attempt = 1;
        loop {
            let port = free_port().map_err(EmulatorError::Own)?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            match EmulatorThread::start(address).await {
                Ok(running) => return Ok(Self { address, running: Some(running) }),
                Err(_) if attempt < PORTS_TRIED => attempt += 1,
                Err(error) => return Err(EmulatorError::Own(error)),
            }
        }
    }

    /// The address, in the format of `PUBSUB_EMULATOR_HOST`: `127.0.0.1:PORT`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// The client of each open streaming pull of a subscription, given as
    /// `projects/{project}/subscriptions/{id}`. A client with several has its name there as often.
    pub fn clients(&self, subscription: &str) -> Vec<String> {
        let emulator = self.running.as_ref().and_then(|running| running.emulator.as_ref());
        let Some(emulator) = emulator else { return Vec::new() };
        let overview = emulator.broker(|broker, now| broker.overview(now));
        let on_it = overview.streams.into_iter().filter(|stream| stream.subscription == subscription);
        on_it.map(|stream| stream.client_id).collect()
    }

    /// Ends it at once, without telling its clients; all its data is lost, and nothing answers at
    /// its address until [`restart`](Self::restart).
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Kills it, if it is running, and starts an empty one at the same address.
    pub async fn restart(&mut self) -> Result<(), EmulatorError> {
        self.kill();
        self.running = Some(EmulatorThread::start(self.address).await.map_err(EmulatorError::Own)?);
        Ok(())
    }
}

/// The emulator's thread. Dropping this stops it and waits for its end.
#[derive(Debug)]
struct EmulatorThread {
    /// `None` until it listens.
    emulator: Option<Arc<Emulator>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl EmulatorThread {
    async fn start(address: SocketAddr) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (sender, started) = oneshot::channel();
        let work = move || run(address, sender, stopped);
        let thread = thread::Builder::new().name("Pub/Sub emulator".to_owned()).spawn(work)?;
        let mut running = Self { emulator: None, stop: Some(stop), thread: Some(thread) };
        running.emulator = Some(started.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?);
        Ok(running)
    }
}

impl Drop for EmulatorThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its thread has printed any panic
        }
    }
}

/// Serves until the channel is closed. The runtime then drops all its tasks, connections included,
/// before this returns.
fn run(
    address: SocketAddr,
    started: oneshot::Sender<io::Result<Arc<Emulator>>>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error))),
    };
    runtime.block_on(async {
        match Emulator::start(address, Options::default()).await {
            Ok(emulator) => {
                let _ = started.send(Ok(Arc::new(emulator)));
                let _ = stopped.await;
            }
            Err(error) => drop(started.send(Err(error))),
        }
    });
}
