//! A running emulator: starting, inspecting, injecting faults, stopping.
//!
//! It combines the broker and the server, and contains no rules of either.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::broker::{Broker, Faults, Saved, Time};
use crate::clock::Clock;
use crate::provision::Provision;
use crate::server::{Core, DataFile, Journal, Server, ServerOptions, Tokens, written};

/// Options of an emulator. By default it has no topics and no faults, and uses the machine's time.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The initial faults.
    pub faults: Faults,
    /// The initial schemas, topics and subscriptions.
    pub provision: Provision,
    /// The issuer in the tokens of authenticated pushes; `https://accounts.google.com` by default.
    pub oidc_issuer: Option<String>,
    /// The origins of pages that may use it in a browser, like `http://localhost:9090`, or `*` for
    /// all; pages of other origins can't read its answers, and change nothing.
    pub allowed_origins: Vec<String>,
    /// Whether it writes a line to stderr for each request, once that has ended.
    pub log_requests: bool,
    /// Whether it stores and returns settings that need what it does not have, like
    /// `kms_key_name` and `bigquery_config`, instead of refusing them. It does not carry them out,
    /// and says so once on stderr for each resource, and in the overview.
    pub accept_unsupported: bool,
    /// The folder where it keeps topics, subscriptions, snapshots, schemas and messages, so that
    /// they outlive it; in memory alone by default. A call answers when the system has what it
    /// changed, which then survives this process, whatever ends that. Faults are not kept there.
    pub data: Option<PathBuf>,
    /// The source of its time.
    pub clock: Clock,
}

/// A Pub/Sub service in this process, which is stopped when it is dropped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use wakeq_emulator::{Emulator, Options};
///
/// let emulator = Emulator::start("127.0.0.1:0".parse().unwrap(), Options::default()).await?;
/// println!("PUBSUB_EMULATOR_HOST={}", emulator.host());
/// // … clients do their work over gRPC or REST …
/// emulator.stop().await;
/// # Ok(())
/// # }
/// ```
pub struct Emulator {
    address: SocketAddr,
    core: Arc<Core>,
    server: JoinHandle<()>,
    /// Cancels what the server waits for.
    stop: DropGuard,
}

/// Starts an emulator with these faults, and otherwise default options.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use wakeq_emulator::Faults;
///
/// let emulator = wakeq_emulator::start("127.0.0.1:0".parse().unwrap(), Faults::default()).await?;
/// # Ok(())
/// # }
/// ```
pub async fn start(address: SocketAddr, faults: Faults) -> io::Result<Emulator> {
    Emulator::start(address, Options { faults, ..Options::default() }).await
}

impl Emulator {
    /// Starts an emulator in the current runtime; it is ready when this returns. Port 0 selects any
    /// free one, which [`Emulator::address`] returns.
    ///
    /// # Errors
    ///
    /// If it cannot listen there, cannot create one of its initial resources, cannot use its data
    /// folder, or one of the allowed origins is none; the message says what to do.
    pub async fn start(address: SocketAddr, options: Options) -> io::Result<Self> {
        match Self::begin(address, options) {
            Ok(emulator) => {
                emulator.core.saved().await.map_err(io::Error::other)?;
                Ok(emulator)
            }
            Err(error) => {
                // The process may end now, and notices about its initial resources with it.
                written().await;
                Err(error)
            }
        }
    }

    fn begin(address: SocketAddr, options: Options) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let (saved, journal) = match &options.data {
            Some(folder) => {
                let (file, saved) = DataFile::open(folder)?;
                (Some(saved), Some(Journal::start(file)?))
            }
            None => (None, None),
        };
        let core = Core::new(Broker::new(options.faults), options.clock, stop.clone());
        let core = Arc::new(core.with_journal(journal));
        core.with(|broker, now| {
            broker.number_from(now);
            if options.accept_unsupported {
                broker.accept_unsupported();
            }
            if let Some(saved) = saved {
                take_over(broker, now, saved)?;
            }
            options.provision.apply(broker, now).map_err(invalid)?;
            io::Result::Ok(())
        })?;
        let tokens = Tokens::new(options.oidc_issuer);
        let server_options =
            ServerOptions { allowed_origins: options.allowed_origins, logs_requests: options.log_requests };
        let server = Server::bind(address, Arc::clone(&core), tokens, server_options)?;
        let address = server.address();
        let server = tokio::spawn(server.serve());
        Ok(Self { address, core, server, stop: stop.drop_guard() })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The value of `PUBSUB_EMULATOR_HOST` for clients on this machine, like `127.0.0.1:8085`. If
    /// the emulator listens on all addresses, this is the loopback one.
    pub fn host(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            let loopback: std::net::IpAddr = match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            };
            address.set_ip(loopback);
        }
        address.to_string()
    }

    /// Inspects or changes the broker directly, with the emulator's time; wakes the requests that
    /// wait for what has changed. All other requests are blocked meanwhile, so `work` should be
    /// short. What it changes is written to the data folder soon, and at the latest by
    /// [`Emulator::stop`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # use wakeq_emulator::{Emulator, Options};
    /// # let emulator = Emulator::start("127.0.0.1:0".parse().unwrap(), Options::default()).await?;
    /// let overview = emulator.broker(|broker, now| broker.overview(now));
    /// assert!(overview.topics.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn broker<T>(&self, work: impl FnOnce(&mut Broker, Time) -> T) -> T {
        self.core.with(work)
    }

    /// Replaces the faults.
    pub fn set_faults(&self, faults: Faults) {
        self.broker(|broker, _| broker.set_faults(faults));
    }

    /// Removes all topics, subscriptions and messages, like a restart of an emulator without
    /// persistence.
    pub fn forget_everything(&self) {
        self.broker(|broker, _| broker.forget_everything());
    }

    /// Shuts down: open streams and pulls end with UNAVAILABLE, connections are closed, and the
    /// port and the data folder are free when this returns.
    pub async fn stop(self) {
        drop(self.stop);
        // A panic of the server has already been reported, and it has ended then too.
        let _over = self.server.await;
        self.core.close().await;
    }
}

/// Takes over what was in the data folder. Notes what is too old for that, and what changes from
/// then on.
fn take_over(broker: &mut Broker, now: Time, saved: Saved) -> io::Result<()> {
    broker.note_changes();
    broker.load(now, saved).map_err(invalid)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

impl std::fmt::Debug for Emulator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Emulator").field("address", &self.address).finish_non_exhaustive()
    }
}
