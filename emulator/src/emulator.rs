//! A running emulator: started, asked, told to misbehave, stopped.
//!
//! It puts the broker and the server together, and holds neither's rules.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::broker::{Broker, Faults, Time};
use crate::clock::Clock;
use crate::provision::Provision;
use crate::server::{Core, Server, Tokens};

/// What an emulator starts with. The default is nothing: no topics, no faults, and the machine's time.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What goes wrong from the start.
    pub faults: Faults,
    /// The topics and subscriptions that are there from the start.
    pub provision: Provision,
    /// Who the tokens of authenticated pushes say has issued them; `https://accounts.google.com` if nothing is said.
    pub oidc_issuer: Option<String>,
    /// Whose time it goes by.
    pub clock: Clock,
}

/// A Pub/Sub service in this process, stopped when it is dropped.
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

/// Starts an emulator with these faults, and nothing else.
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
    /// Starts one in the present runtime. Port 0 is any free one: [`Emulator::address`] says which. It is ready when
    /// this returns.
    ///
    /// # Errors
    ///
    /// When it can't listen there, or can't make a resource that it is to start with; the words say what to do.
    pub async fn start(address: SocketAddr, options: Options) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let core = Arc::new(Core::new(Broker::new(options.faults), options.clock, stop.clone()));
        core.with(|broker, now| options.provision.apply(broker, now))
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let server = Server::bind(address, Arc::clone(&core), Tokens::new(options.oidc_issuer))?;
        let address = server.address();
        let server = tokio::spawn(server.serve());
        Ok(Self { address, core, server, stop: stop.drop_guard() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to set `PUBSUB_EMULATOR_HOST` to for clients on this machine: `127.0.0.1:8085`. An emulator that listens on
    /// all addresses is reached by the loopback one.
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

    /// Asks or changes the broker itself, at the emulator's time; whoever waits for what has changed is woken. Everything
    /// else waits meanwhile: be short.
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

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.broker(|broker, _| broker.set_faults(faults));
    }

    /// Topics, subscriptions, messages: all gone, as after a kill of an emulator that keeps nothing on disk.
    pub fn forget_everything(&self) {
        self.broker(|broker, _| broker.forget_everything());
    }

    /// Ends everything: open streams and pulls hear UNAVAILABLE, connections are closed, and the port is free when this
    /// returns.
    pub async fn stop(self) {
        drop(self.stop);
        // A panic of the server's has been said already, and it is over then as well.
        let _over = self.server.await;
    }
}

impl std::fmt::Debug for Emulator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Emulator").field("address", &self.address).finish_non_exhaustive()
    }
}
