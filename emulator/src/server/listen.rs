//! Listens, serves connections, and ends them.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admin;
use super::calls::Calls;
use super::core::Core;
use super::port::Port;
use super::push::{Pushing, Tokens};

/// Connections that are served at once; more wait to be accepted.
const MOST_CONNECTIONS: usize = 4_096;

/// Connections that the system holds until they are accepted.
const BACKLOG: u32 = 1_024;

/// How long a connection may take to hear that it is over.
const FAREWELL: Duration = Duration::from_secs(1);

/// Waited after the system had no means for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What a client may send ahead on one call, on one connection, and in one frame: a whole request of the largest size
/// need not stop half-way.
const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
const FRAME_BYTES: u32 = 1024 * 1024;

/// What is encoded ahead for one call: a response or two, so that the client's window decides how much is on the way.
const SEND_BUFFER_BYTES: usize = 1024 * 1024;

/// Calls at once on one connection.
const MOST_STREAMS: u32 = 1_000;

/// After so long without a word a client is asked whether it is still there, and after so long without an answer it is
/// gone, and its streams with it: a machine that sleeps, or a process that is stopped, closes no connection.
const SILENCE: Duration = Duration::from_secs(20);
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// A listener that has its port, and what it serves.
pub(crate) struct Server {
    listener: Listener,
    address: SocketAddr,
    core: Arc<Core>,
    tokens: Arc<Tokens>,
}

impl Server {
    /// Takes the port.
    pub(crate) fn bind(address: SocketAddr, core: Arc<Core>, tokens: Tokens) -> io::Result<Self> {
        let listener = listen(address).map_err(|error| explain(address, &error))?;
        let address = listener.0.local_addr()?;
        Ok(Self { listener, address, core, tokens: Arc::new(tokens) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the core is stopped; returns when every connection is over.
    pub(crate) async fn serve(self) {
        let pages = admin::routes(&self.core, &self.tokens);
        let port = Port::new(&Calls::new(Arc::clone(&self.core)), pages);
        let tasks = TaskTracker::new();
        let driver = Arc::clone(&self.core);
        tasks.spawn(async move { driver.drive().await });
        tasks.spawn(Pushing::new(Arc::clone(&self.core), Arc::clone(&self.tokens)).run());
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        while let Some((stream, place)) = self.accept(&room).await {
            let connection = connection(stream, port.clone(), self.core.stop().clone());
            tasks.spawn(async move {
                connection.await;
                drop(place);
            });
        }
        drop(self.listener);
        tasks.close();
        tasks.wait().await;
    }

    /// The next connection, when there is room for it; `None` once the core is stopped.
    async fn accept(&self, room: &Arc<Semaphore>) -> Option<(TcpStream, OwnedSemaphorePermit)> {
        let next = async {
            let place = Arc::clone(room).acquire_owned().await.ok()?;
            loop {
                match self.listener.0.accept().await {
                    Ok((stream, _)) => return Some((stream, place)),
                    // The client is gone again, or the system is short of something: neither ends the server.
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

/// Serves one connection until it ends or the server is stopped.
async fn connection(stream: TcpStream, port: Port, stop: CancellationToken) {
    // Only costs time where it can't be set.
    let _slower = stream.set_nodelay(true);
    let service = service_fn(move |request| port.clone().answer(request));
    let mut builder = Builder::new(TokioExecutor::new());
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
    // How a connection ends is its client's business.
    tokio::select! {
        _ended = served.as_mut() => {}
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            let _ended = tokio::time::timeout(FAREWELL, served).await;
        }
    }
}

/// Refuses connections from the moment it is dropped. Closing is not enough: a process that another thread is just
/// starting has a copy of the socket until it executes its program, and the system accepts connections for that copy.
struct Listener(TcpListener);

impl Drop for Listener {
    fn drop(&mut self) {
        // It fails where the system knows no such thing for a listener, which is closed right after.
        let _closed_only = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

fn listen(address: SocketAddr) -> io::Result<Listener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Or a port could not be taken again for a minute after its last connection.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG).map(Listener)
}

fn explain(address: SocketAddr, error: &io::Error) -> io::Error {
    let advice = ADVICE.iter().find(|(kind, _)| *kind == error.kind());
    let words = advice.map_or_else(|| error.to_string(), |(_, words)| (*words).to_owned());
    io::Error::new(error.kind(), format!("cannot listen on {address}: {words}"))
}

/// What to do about the usual reasons.
const ADVICE: &[(io::ErrorKind, &str)] = &[
    (io::ErrorKind::AddrInUse, "something listens there already; choose another port, or 0 for any free one"),
    (
        io::ErrorKind::AddrNotAvailable,
        "this machine has no such address; 127.0.0.1, ::1, 0.0.0.0 and :: are usual",
    ),
    (io::ErrorKind::PermissionDenied, "choose a port above 1023"),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[tokio::test]
    async fn nothing_listens_after_it_though_another_process_still_has_the_socket() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.0.local_addr().unwrap();
        let copy = listener.0.as_fd().try_clone_to_owned().unwrap(); // as a fork has it until it executes its program

        drop(listener);
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

        let again = listen(address).unwrap();
        TcpStream::connect(address).await.unwrap();
        drop((again, copy));
    }
}
