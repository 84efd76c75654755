//! Opens the connections to targets; no other code does. Resolves the name, checks every address,
//! and connects to a checked address without resolving again. Supports neither proxies nor
//! redirects.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use wakeq::CanvasId;
use wakeq::internals::{SharedPermit, SharedPermits};

use super::address;
use super::clock::AttemptClock;
use super::lookups::{Lookup, Lookups};
use super::rules::{RefusedTarget, Rules};
use super::tls::{self, Tls};
use super::watched::Watched;

/// Maximum wait for a connection permit and for the lookup to start. Other targets cause this wait,
/// so it does not count towards the target's timeout.
pub(super) const CAPACITY_WITHIN: Duration = Duration::from_secs(60);
/// For name resolution and TCP together.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
const TLS_WITHIN: Duration = Duration::from_secs(10);
/// For each address, if a name has several.
const ADDRESS_WITHIN: Duration = Duration::from_secs(3);
/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 4;

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Refused(#[from] RefusedTarget),
    #[error("the name of its host could not be resolved")]
    Unresolved(#[source] io::Error),
    #[error("the name of its host has no address")]
    NoAddress,
    #[error("its host could not be connected to")]
    Unreachable(#[source] io::Error),
    #[error("this worker had no capacity for another connection or lookup within {} s", CAPACITY_WITHIN.as_secs())]
    NoCapacity,
    #[error("its host could not be resolved and connected to within {} s", CONNECT_WITHIN.as_secs())]
    TimedOut,
    #[error("a TLS connection to it could not be set up: {0}")]
    Tls(&'static str),
    #[error("its TLS handshake took longer than {} s", TLS_WITHIN.as_secs())]
    TlsTimedOut,
    #[error("this machine has no CA certificates: install ca-certificates, or set SSL_CERT_FILE")]
    NoAuthorities,
    /// A failure at an address that is not public.
    #[error(transparent)]
    NonPublic(Box<Self>),
}

impl ConnectError {
    /// Whether the error would reveal something about the workers' internal network to the target's
    /// owner: which names exist, where they lead, and what answers there.
    pub(super) fn reveals_internal_network(&self) -> bool {
        match self {
            Self::NonPublic(_)
            | Self::Unresolved(_)
            | Self::NoAddress
            | Self::TimedOut
            | Self::Refused(
                RefusedTarget::Address(_)
                | RefusedTarget::Metadata
                | RefusedTarget::LinkLocal
                | RefusedTarget::PortNotOpened(_),
            ) => true,
            Self::Refused(
                RefusedTarget::PlainHttp
                | RefusedTarget::Port(_)
                | RefusedTarget::MetadataName
                | RefusedTarget::Unclear
                | RefusedTarget::Audience { .. }
                | RefusedTarget::TokenInClear,
            )
            | Self::Unreachable(_)
            | Self::NoCapacity
            | Self::Tls(_)
            | Self::TlsTimedOut
            | Self::NoAuthorities => false,
        }
    }

    /// Marks the error as internal unless the address is public.
    fn at(self, is_public: bool) -> Self {
        if is_public { self } else { Self::NonPublic(Box::new(self)) }
    }
}

/// Opens connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connector {
    inner: Arc<ConnectorState>,
}

struct ConnectorState {
    rules: Rules,
    shared: Shared,
}

/// Shared by all connectors of a process, whatever their rules.
#[derive(Clone)]
pub(super) struct Shared {
    inner: Arc<SharedInner>,
}

struct SharedInner {
    lookups: Lookups,
    tls: Tls,
    permits: SharedPermits,
    connects: AtomicU64,
}

impl Shared {
    pub(super) fn new(lookups: Lookups, tls: Tls, connections_max: usize) -> Self {
        let permits = SharedPermits::new(connections_max);
        Self { inner: Arc::new(SharedInner { lookups, tls, permits, connects: AtomicU64::new(0) }) }
    }

    /// How many connections were attempted.
    pub(super) fn connects(&self) -> u64 {
        self.inner.connects.load(Ordering::SeqCst)
    }
}

impl Connector {
    pub(super) fn new(rules: Rules, shared: &Shared) -> Self {
        Self { inner: Arc::new(ConnectorState { rules, shared: shared.clone() }) }
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.inner.rules
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (inner, clock) = (Arc::clone(&self.inner), AttemptClock::current());
        Box::pin(async move { inner.connect(&uri, &clock).await })
    }
}

impl ConnectorState {
    async fn connect(&self, uri: &Uri, clock: &AttemptClock) -> Result<Stream, ConnectError> {
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let (permit, found) = {
            let _pause = clock.pause();
            timeout(CAPACITY_WITHIN, self.begin(clock.canvas(), host, port))
                .await
                .map_err(|_| ConnectError::NoCapacity)??
        };
        let opening = async { self.open(&self.addresses(host, port, found).await?, port).await };
        let (tcp, is_public) =
            timeout(CONNECT_WITHIN, opening).await.map_err(|_| ConnectError::TimedOut)??;
        if !is_tls {
            return Ok(Stream::new(Box::new(tcp), permit));
        }
        let io = self.encrypted(host, tcp).await.map_err(|error| error.at(is_public))?;
        Ok(Stream::new(io, permit))
    }

    /// Performs the TLS handshake on a connection.
    async fn encrypted(&self, host: &str, tcp: TcpStream) -> Result<Box<dyn Io>, ConnectError> {
        let name = ServerName::try_from(host.trim_end_matches('.').to_owned())
            .map_err(|_| ConnectError::Tls("the name of its host can't be in a certificate"))?;
        let connector = self.shared.inner.tls.connector().ok_or(ConnectError::NoAuthorities)?;
        let handshake = timeout(TLS_WITHIN, connector.connect(name, tcp));
        let tls = handshake.await.map_err(|_| ConnectError::TlsTimedOut)?.map_err(|error| {
            // The error contains names from the target's certificate, so only the operator gets to
            // see it.
            tracing::debug!(host, %error, "a TLS connection to a target could not be set up");
            ConnectError::Tls(tls::fault(&error))
        })?;
        Ok(Box::new(tls))
    }

    /// Acquires a connection permit and, if the host is a name, starts its lookup.
    async fn begin(
        &self,
        canvas: CanvasId,
        host: &str,
        port: u16,
    ) -> Result<(SharedPermit, ParsedHost), ConnectError> {
        if let Ok(address) = host.parse() {
            let address = self.rules.check_address("", port, address)?;
            return Ok((self.shared.inner.permits.acquire(canvas).await, ParsedHost::Address(address)));
        }
        self.rules.check_name(host)?;
        let permit = self.shared.inner.permits.acquire(canvas).await;
        Ok((permit, ParsedHost::Name(self.shared.inner.lookups.begin(canvas, host).await)))
    }

    /// The checked addresses of a host that is a name, or the one that is its address.
    async fn addresses(&self, host: &str, port: u16, found: ParsedHost) -> Result<Vec<IpAddr>, ConnectError> {
        let lookup = match found {
            ParsedHost::Address(checked) => return Ok(vec![checked]),
            ParsedHost::Name(lookup) => lookup,
        };
        let found = lookup.addresses().await.map_err(ConnectError::Unresolved)?;
        let mut checked = self.rules.check_addresses(host, port, &found).inspect_err(|refused| {
            // Only the operator may learn where the name leads.
            tracing::info!(
                host, addresses = ?found, %refused,
                "a target's name resolves to an address that nothing is sent to"
            );
        })?;
        if checked.is_empty() {
            return Err(ConnectError::NoAddress);
        }
        checked.truncate(ADDRESSES_MAX);
        Ok(checked)
    }

    /// Connects to the first address that accepts, and returns whether all of them are public.
    async fn open(&self, addresses: &[IpAddr], port: u16) -> Result<(TcpStream, bool), ConnectError> {
        let is_public = addresses.iter().all(|address| address::is_public(*address));
        let mut failure = io::Error::other("no address was tried");
        let within = if addresses.len() > 1 { ADDRESS_WITHIN } else { CONNECT_WITHIN };
        for address in addresses {
            self.shared.inner.connects.fetch_add(1, Ordering::SeqCst);
            match timeout(within, TcpStream::connect(SocketAddr::new(*address, port))).await {
                Ok(Ok(tcp)) => {
                    // A delivery is a single write, which Nagle's algorithm would only delay.
                    tcp.set_nodelay(true).map_err(ConnectError::Unreachable)?;
                    return Ok((tcp, is_public));
                }
                Ok(Err(error)) => failure = error,
                Err(_) => failure = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(ConnectError::Unreachable(failure).at(is_public))
    }
}

/// A parsed host.
enum ParsedHost {
    /// An IP address that was checked.
    Address(IpAddr),
    /// A name whose lookup has started.
    Name(Lookup),
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A plain or TLS connection. Holds its connection permit until it is dropped.
pub(super) struct Stream {
    io: TokioIo<Watched<Box<dyn Io>>>,
    _permit: SharedPermit,
}

impl Stream {
    fn new(io: Box<dyn Io>, permit: SharedPermit) -> Self {
        Self { io: TokioIo::new(Watched::new(io)), _permit: permit }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.io.inner().passed())
    }
}

impl hyper::rt::Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        hyper::rt::Read::poll_read(Pin::new(&mut self.io), context, buffer)
    }
}

impl hyper::rt::Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        hyper::rt::Write::poll_write(Pin::new(&mut self.io), context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        hyper::rt::Write::poll_flush(Pin::new(&mut self.io), context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        hyper::rt::Write::poll_shutdown(Pin::new(&mut self.io), context)
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::delivery::{DeliveryConfig, Resolve};

    /// Finds no address for any name, after a delay.
    #[derive(Debug)]
    struct Slow;

    #[async_trait]
    impl Resolve for Slow {
        async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
            sleep(Duration::from_secs(if name == "slow.example" { 40 } else { 1 })).await;
            Ok(Vec::new())
        }
    }

    fn connector() -> Connector {
        let rules = Rules::of(&DeliveryConfig::default(), None);
        Connector::new(rules, &Shared::new(Lookups::new(Arc::new(Slow), 1), Tls::new(&[]).unwrap(), 2))
    }

    async fn connect(connector: &Connector, uri: &'static str, clock: &AttemptClock) -> ConnectError {
        connector.inner.connect(&Uri::from_static(uri), clock).await.err().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_lookup_does_not_use_up_other_timeouts() {
        let (connector, begun) = (connector(), Instant::now());
        let clocks = [AttemptClock::new(CanvasId::DEFAULT), AttemptClock::new(CanvasId::DEFAULT)];
        let (slow, healthy) = tokio::join!(
            connect(&connector, "https://slow.example/", &clocks[0]),
            connect(&connector, "https://healthy.example/", &clocks[1]),
        );
        assert!(matches!(slow, ConnectError::TimedOut), "{slow}");
        assert!(matches!(healthy, ConnectError::NoAddress), "it was resolved: {healthy}");
        assert_eq!(begun.elapsed().as_secs(), 41);
        assert_eq!((clocks[0].waited().as_secs(), clocks[1].waited().as_secs()), (0, 40));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_capacity_is_bounded() {
        let (connector, clock) = (connector(), AttemptClock::new(CanvasId::DEFAULT));
        let permits = &connector.inner.shared.inner.permits;
        let all = [permits.acquire(CanvasId::DEFAULT).await, permits.acquire(CanvasId::DEFAULT).await];
        let refused = connect(&connector, "https://healthy.example/", &clock).await;
        assert!(matches!(refused, ConnectError::NoCapacity), "{refused}");
        assert_eq!(clock.waited(), CAPACITY_WITHIN);
        drop(all);
        assert!(matches!(
            connect(&connector, "https://healthy.example/", &clock).await,
            ConnectError::NoAddress
        ));
    }
}
