//! Listens, serves connections, and ends them.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admin;
use super::calls::Calls;
use super::core::Core;
use super::cors::AllowedOrigins;
use super::head_start::LastPublish;
use super::origin::Guard;
use super::port::Port;
use super::push::{Pushing, Tokens};
use super::stderr;

/// The most connections that are served at once. If there are more, those that have not asked
/// anything yet are closed; beyond that, more wait to be accepted.
const MOST_CONNECTIONS: usize = 4_096;

/// The most connections that the system queues until they are accepted.
const BACKLOG: u32 = 1_024;

/// How long a connection has to end gracefully.
const FAREWELL: Duration = Duration::from_secs(1);

/// The delay after the system could not provide another connection, or while there are too many.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// How much a client may send ahead on one call, on one connection, and in one frame: so much that
/// large requests rarely have to wait for the server.
const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
const FRAME_BYTES: u32 = 1024 * 1024;

/// How much is encoded ahead for one call: a response or two, so that the client's window decides
/// how much is in flight.
const SEND_BUFFER_BYTES: usize = 1024 * 1024;

/// The most calls at once on one connection.
const MOST_STREAMS: u32 = 1_000;

/// A silent client is pinged after the first of these, and counts as gone, along with its streams,
/// if it has not answered after the second: a suspended machine or a stopped process closes no
/// connection.
const SILENCE: Duration = Duration::from_secs(20);
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// How long a connection may be open before its first request, and an HTTP/1 connection before the
/// next one.
const IDLE: Duration = Duration::from_secs(60);

/// What a server is told besides its address.
#[derive(Debug, Default)]
pub(crate) struct ServerOptions {
    pub(crate) allowed_origins: Vec<String>,
    pub(crate) logs_requests: bool,
}

/// A listener that is bound to its port, and what it serves.
pub(crate) struct Server {
    listener: Listener,
    address: SocketAddr,
    core: Arc<Core>,
    tokens: Arc<Tokens>,
    allowed_origins: AllowedOrigins,
    logs_requests: bool,
    most_connections: usize,
}

impl Server {
    /// Binds the port.
    pub(crate) fn bind(
        address: SocketAddr,
        core: Arc<Core>,
        tokens: Tokens,
        options: ServerOptions,
    ) -> io::Result<Self> {
        let allowed_origins = AllowedOrigins::new(&options.allowed_origins)?;
        let listener = listen(address).map_err(|error| explain(address, &error))?;
        let address = listener.0.local_addr()?;
        Ok(Self {
            listener,
            address,
            core,
            tokens: Arc::new(tokens),
            allowed_origins,
            logs_requests: options.logs_requests,
            most_connections: MOST_CONNECTIONS,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the core is stopped; returns once every connection has ended.
    pub(crate) async fn serve(self) {
        let pages = admin::routes(&self.core, &self.tokens);
        let allowed = self.allowed_origins.clone();
        let guard = Guard { is_loopback: self.address.ip().is_loopback(), allowed };
        let calls = Calls::new(Arc::clone(&self.core));
        let port = Port::new(&calls, pages, guard, self.logs_requests);
        let tasks = TaskTracker::new();
        let driver = Arc::clone(&self.core);
        tasks.spawn(async move { driver.drive().await });
        tasks.spawn(Pushing::new(Arc::clone(&self.core), Arc::clone(&self.tokens)).run());
        let permits = Arc::new(Semaphore::new(self.most_connections));
        let crowded = Arc::new(Notify::new());
        while let Some((stream, permit)) = self.accept(&permits, &crowded).await {
            let crowded = Arc::clone(&crowded);
            let connection = connection(stream, port.clone(), crowded, self.core.stop().clone());
            tasks.spawn(async move {
                connection.await;
                drop(permit);
            });
        }
        drop(self.listener);
        tasks.close();
        tasks.wait().await;
        stderr::written().await;
    }

    /// The next connection, once there is a permit for it; `None` once the core is stopped.
    async fn accept(
        &self,
        permits: &Arc<Semaphore>,
        crowded: &Notify,
    ) -> Option<(TcpStream, OwnedSemaphorePermit)> {
        let next = async {
            let permit = loop {
                if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
                    break permit;
                }
                crowded.notify_waiters();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            };
            loop {
                match self.listener.0.accept().await {
                    Ok((stream, _)) => return Some((stream, permit)),
                    // The client has gone again, or the system is out of a resource: neither ends
                    // the server.
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                }
            }
        };
        tokio::select! {
            biased;
            () = self.core.stop().cancelled() => None,
            connection = next => connection,
        }
    }
}

/// Serves one connection until it ends, is idle for too long or in the way, or the server is
/// stopped.
async fn connection(stream: TcpStream, port: Port, crowded: Arc<Notify>, stop: CancellationToken) {
    // If it cannot be set, only latency suffers.
    let _slower = stream.set_nodelay(true);
    let asked = CancellationToken::new();
    let first = asked.clone();
    let publishes = LastPublish::default();
    let service = service_fn(move |mut request: Request<Incoming>| {
        first.cancel();
        request.extensions_mut().insert(publishes.clone());
        port.clone().answer(request)
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder
        .http2()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_concurrent_streams(MOST_STREAMS)
        .timer(TokioTimer::new())
        .keep_alive_interval(SILENCE)
        .keep_alive_timeout(PING_PATIENCE);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let idle = async {
        tokio::select! {
            biased;
            () = asked.cancelled() => std::future::pending().await,
            () = crowded.notified() => {}
            () = tokio::time::sleep(IDLE) => {}
        }
    };
    // Errors of a connection are its client's business.
    tokio::select! {
        _ended = served.as_mut() => return,
        () = idle => {}
        () = stop.cancelled() => {}
    }
    served.as_mut().graceful_shutdown();
    let _ended = tokio::time::timeout(FAREWELL, served).await;
}

/// Refuses connections from the moment it is dropped. Closing is not enough: a process that another
/// thread is just starting has a copy of the socket until its exec, and the system accepts
/// connections for that copy.
struct Listener(TcpListener);

impl Drop for Listener {
    fn drop(&mut self) {
        // Fails on systems that do not support it for listeners; the socket is closed right after.
        let _closed_only = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

fn listen(address: SocketAddr) -> io::Result<Listener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Otherwise the port could not be bound again for a minute after its last connection. Windows
    // allows that anyway, and with this option even lets two programs share the port.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG).map(Listener)
}

fn explain(address: SocketAddr, error: &io::Error) -> io::Error {
    let advice = ADVICE.iter().find(|(kind, _)| *kind == error.kind());
    let words = advice.map_or_else(|| error.to_string(), |(_, words)| (*words).to_owned());
    io::Error::new(error.kind(), format!("cannot listen on {address}: {words}"))
}

/// What to do about the usual errors.
const ADVICE: &[(io::ErrorKind, &str)] = &[
    (io::ErrorKind::AddrInUse, "the port is in use; choose another port, or 0 for any free one"),
    (
        io::ErrorKind::AddrNotAvailable,
        "this machine has no such address; 127.0.0.1, ::1, 0.0.0.0 and :: are usual",
    ),
    (io::ErrorKind::PermissionDenied, "choose another port, above 1023"),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use wakeq_testbed::TestTime;

    use super::*;
    use crate::broker::{Broker, Faults};
    use crate::clock::Clock;

    #[tokio::test]
    async fn connections_that_ask_nothing_make_room_for_one_that_asks() {
        let _time = TestTime::begin();
        let stop = CancellationToken::new();
        let core = Arc::new(Core::new(Broker::new(Faults::default()), Clock::system(), stop.clone()));
        let (tokens, options) = (Tokens::new(None), ServerOptions::default());
        let mut server = Server::bind("127.0.0.1:0".parse().unwrap(), core, tokens, options).unwrap();
        server.most_connections = 2;
        let address = server.address();
        let serving = tokio::spawn(server.serve());
        let mut idle = Vec::new();
        for _ in 0..2 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut asking = TcpStream::connect(address).await.unwrap();
        asking.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        asking.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        for mut connection in idle {
            assert_eq!(connection.read(&mut [0]).await.unwrap(), 0);
        }
        stop.cancel();
        serving.await.unwrap();
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_closed_listener_refuses_connections_even_if_its_socket_was_inherited() {
        use std::os::fd::AsFd as _;

        let _time = TestTime::begin();
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.0.local_addr().unwrap();
        let copy = listener.0.as_fd().try_clone_to_owned().unwrap(); // like a fork's until its exec

        drop(listener);
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

        let again = listen(address).unwrap();
        TcpStream::connect(address).await.unwrap();
        drop((again, copy));
    }
}
