//! The server of the API: connections, their limits, and an orderly shutdown. HTTP/1.1 without TLS:
//! the load balancer in front of it has the certificate.

mod api;
mod config;
mod error;
mod local;

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::answer;
use crate::http::client::{Client, Proxies};
use crate::http::connection::{ConnectionState, ReportingService, TimedStream};
use crate::http::problem::{Kind, Problem};
use crate::http::shares::{Reservation, Tally};
use wakeq::Store;
use wakeq::notify::Notifier;

pub use crate::page::{InvalidTraceUrl, TraceUrl};
pub use api::{HttpApi, MountedApi};
pub use config::HttpConfig;
pub use error::HttpError;
pub(crate) use local::{CallError, LocalApi};

/// Maximum size of a request's line and headers, in bytes.
const HEADER_BYTES: usize = 32 * 1024;
/// Maximum number of header fields.
const HEADER_FIELDS: usize = 64;
/// How long, and for how many bytes, a closing connection is still read. Closing it with unread
/// bytes would reset it, and the peer would lose the answer.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1024 * 1024;
/// Maximum number of connections being refused with an answer; beyond it they are closed without
/// one.
const TURNED_AWAY_MAX: usize = 64;
/// Minimum time between two warnings that connections can't be accepted, and the pause after each
/// failure.
const COMPLAINT: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves the API.
///
/// ```no_run
/// use std::sync::Arc;
/// use wakeq_service::server::{HttpConfig, HttpServer};
/// use wakeq::{Store, notify::Notifier};
///
/// # async fn example(store: Store, notifier: Arc<dyn Notifier>) -> Result<(), Box<dyn std::error::Error>> {
/// let server = HttpServer::bind(store, notifier, HttpConfig::default()).await?;
/// println!("listening on {}", server.local_address());
/// let (signal, stop) = (wakeq::shutdown_signal()?, server.stop_token());
/// tokio::spawn(async move {
///     signal.await;
///     stop.cancel();
/// });
/// server.run().await;
/// # Ok(())
/// # }
/// ```
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    api: HttpApi,
}

impl HttpServer {
    /// Listens on the address; connections are accepted once [`HttpServer::run`] is called.
    pub async fn bind(
        store: Store,
        notifier: Arc<dyn Notifier>,
        config: HttpConfig,
    ) -> Result<Self, HttpError> {
        let api = HttpApi::new(store, notifier, config).await?;
        let address = api.config().address;
        let failed = |source| HttpError::Address { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, api })
    }

    /// Accepts Pub/Sub's pushes from the callers of
    /// [`AccessConfig::push`](crate::access::AccessConfig::push): `run` is called with each
    /// message, and the push is acknowledged when it returns `Ok`. If the caller disconnects, the
    /// future is dropped: `run` has to see to it that its work continues, as
    /// [`wakeq::workers::PushRunner`] does.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use wakeq::{Handlers, QueueWorker, Store, WorkerConfig, notify::Notifier};
    /// use wakeq_service::server::{HttpConfig, HttpServer};
    ///
    /// # async fn example(
    /// #     store: Store, notifier: Arc<dyn Notifier>, handlers: Handlers, config: HttpConfig,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let worker = QueueWorker::new(store.clone(), notifier.clone(), handlers, WorkerConfig::default())?;
    /// let pushes = worker.into_push_runner().await?;
    /// let taking = pushes.clone();
    /// let server = HttpServer::bind(store, notifier, config).await?.on_push(move |message: Vec<u8>| {
    ///     let pushes = taking.clone();
    ///     async move { pushes.run(&message).await }
    /// })?;
    /// let (signal, stop) = (wakeq::shutdown_signal()?, server.stop_token());
    /// tokio::spawn(async move {
    ///     signal.await;
    ///     stop.cancel();
    ///     pushes.shut_down().await;
    /// });
    /// server.run().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_push<F, R, E>(mut self, run: F) -> Result<Self, HttpError>
    where
        F: Fn(Vec<u8>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        self.api = self.api.on_push(run)?;
        Ok(self)
    }

    /// The address that it listens on, with the actual port if port 0 was configured.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Cancelling this token shuts the server down.
    pub fn stop_token(&self) -> CancellationToken {
        self.api.stop_token()
    }

    /// Serves until [`HttpServer::stop_token`] is cancelled. Then it accepts no new connections,
    /// lets requests finish within the grace period, and cuts off the rest.
    pub async fn run(self) {
        let Self { listener, api, .. } = self;
        let (config, stop) = (api.config().clone(), api.stop_token());
        let api = api.mount();
        let router = api.bare_router();
        let permits = Arc::new(Semaphore::new(config.max_connections));
        let refusal_permits = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        let limits = config.connection_limits(&permits);
        let connections = TaskTracker::new();
        let cut = CancellationToken::new();
        let addresses = Tally::new(config.share_of(config.max_connections));
        let proxies = Proxies::new(&config.trusted_proxies);
        while let Some((stream, peer)) = accept(&listener, &stop).await {
            let permit = match Arc::clone(&permits).try_acquire_owned() {
                Ok(permit) => reserve_for_address(&addresses, &proxies, peer.ip()).map(|own| (permit, own)),
                Err(_) => Err(Problem::new(
                    Kind::Unavailable,
                    "this process is at its limit of connections: try again",
                )),
            };
            let permit = match permit {
                Ok(permit) => permit,
                Err(problem) => {
                    if let Ok(permit) = Arc::clone(&refusal_permits).try_acquire_owned() {
                        connections.spawn(async move {
                            turn_away(stream, &problem).await;
                            drop(permit);
                        });
                    }
                    continue;
                }
            };
            // Answers are written as a whole, which Nagle's algorithm would only delay.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended at once");
                continue;
            }
            let state = ConnectionState::new();
            let service = ReportingService {
                router: router.clone(),
                state: state.clone(),
                peer,
                proxies: proxies.clone(),
            };
            let stream = TimedStream::new(stream, state, limits.clone());
            let serving = serve(stream, service, stop.clone());
            let cut = cut.clone();
            connections.spawn(async move {
                cut.run_until_cancelled(serving).await;
                drop(permit);
            });
        }
        // New connections are refused from now on, so that clients turn to another process.
        drop(listener);
        connections.close();
        if tokio::time::timeout(config.shutdown_grace, connections.wait()).await.is_err() {
            tracing::warn!(connections = connections.len(), "requests cut off: they outlasted the grace");
            cut.cancel();
            connections.wait().await;
        }
        api.finish().await;
    }
}

/// Accepts the next connection; `None` once the server has to stop.
async fn accept(listener: &TcpListener, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
    let mut complained: Option<Instant> = None;
    loop {
        match stop.run_until_cancelled(listener.accept()).await? {
            Ok(accepted) => return Some(accepted),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Out of file descriptors or memory: this passes as connections end.
                if complained.is_none_or(|at| at.elapsed() >= COMPLAINT) {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "no connection can be accepted now");
                    complained = Some(Instant::now());
                }
                stop.run_until_cancelled(tokio::time::sleep(ACCEPT_PAUSE)).await?;
            }
        }
    }
}

/// Reserves one of the connections of a client address, of which trusted proxies need none;
/// otherwise returns why it is refused.
fn reserve_for_address(
    addresses: &Tally<IpAddr>,
    proxies: &Proxies,
    peer: IpAddr,
) -> Result<Option<Reservation>, Problem> {
    if proxies.has(peer) {
        return Ok(None);
    }
    let network = Client(peer.to_canonical()).network();
    addresses.reserve(&[network], 1).map(Some).map_err(|_| {
        Problem::new(
            Kind::TooManyRequests,
            "this address has reached its share of this process's connections: use those, or end some",
        )
    })
}

/// Serves a connection until it ends; after a shutdown request, until its current request ends.
async fn serve(stream: TimedStream<TcpStream>, service: ReportingService, stop: CancellationToken) {
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(HEADER_BYTES)
        .max_header_size(HEADER_BYTES)
        .max_headers(HEADER_FIELDS)
        .serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        ended = poll_fn(|context| connection.poll_without_shutdown(context)) => ended,
        () = stop.cancelled() => {
            Pin::new(&mut connection).graceful_shutdown();
            poll_fn(|context| connection.poll_without_shutdown(context)).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended early");
    }
    linger(connection.into_parts().io.into_inner().into_stream()).await;
}

/// Closes the connection once the peer has received the answer.
async fn linger(mut stream: TcpStream) {
    let ending = async {
        stream.shutdown().await?;
        let (mut scrap, mut left) = (vec![0; 8192], LINGER_BYTES);
        while left > 0 {
            match stream.read(&mut scrap).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        Ok::<(), std::io::Error>(())
    };
    // The outcome is irrelevant: no one is left to report it to.
    drop(tokio::time::timeout(LINGER, ending).await);
}

/// Answers before reading anything.
async fn turn_away(mut stream: TcpStream, problem: &Problem) {
    let answering = async {
        stream.write_all(&answer::unserved(problem)).await?;
        linger(stream).await;
        Ok::<(), std::io::Error>(())
    };
    drop(tokio::time::timeout(2 * LINGER, answering).await);
}
