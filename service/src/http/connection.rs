//! Wraps a connection for hyper: limits how long headers, idle times and receiving an answer may
//! take. Passes bytes on and measures time; of a request, it only knows when it begins and ends.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep_until};

use super::client::Proxies;

/// Time limits of a connection, and the permits that they depend on.
#[derive(Clone)]
pub(crate) struct ConnectionLimits {
    /// From the first byte of a request to the end of its header; for the first request, from the
    /// start of the connection.
    pub(crate) header: Duration,
    /// Between two requests.
    pub(crate) idle: Duration,
    /// For receiving an answer, once the kernel's buffers are full.
    pub(crate) answer: Duration,
    /// The permits for connections. When few are left, connections may only be idle for as long as
    /// a header may take.
    pub(crate) permits: Arc<Semaphore>,
    /// Fewer free permits than this are few.
    pub(crate) low_mark: usize,
}

impl ConnectionLimits {
    /// When to check next. Idle connections are checked repeatedly, since permits may run short
    /// meanwhile.
    fn of(&self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::Header => Some(self.header),
            Phase::Idle => Some(self.idle.min(self.header)),
            Phase::Request => None,
        }
    }

    /// Whether a phase may continue after this long.
    fn may_continue(&self, phase: Phase, lasted: Duration) -> bool {
        let crowded = self.permits.available_permits() < self.low_mark;
        phase == Phase::Idle && !crowded && lasted < self.idle
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    /// From its header to its answer, a request has timeouts of its own; an endless answer has
    /// none.
    Request,
    Idle,
}

/// The state of a connection, shared by the stream and the service.
#[derive(Clone)]
pub(crate) struct ConnectionState(Arc<Mutex<PhaseState>>);

/// The current phase of a connection.
struct PhaseState {
    phase: Phase,
    /// Incremented with each phase, so that a timeout only applies to its own.
    number: u64,
}

impl ConnectionState {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(PhaseState { phase: Phase::Header, number: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, PhaseState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = phase;
        state.number += 1;
    }

    fn received(&self) {
        if self.lock().phase == Phase::Idle {
            self.enter(Phase::Header);
        }
    }
}

/// Marks an answer that is written until the caller disconnects. The connection ends with it, so no
/// idle phase follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endless;

/// The API as a service that reports when a request begins and ends.
pub(crate) struct ReportingService {
    pub(crate) router: Router,
    pub(crate) state: ConnectionState,
    pub(crate) peer: SocketAddr,
    pub(crate) proxies: Proxies,
}

impl Service<Request<Incoming>> for ReportingService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let client = self.proxies.client(self.peer, request.headers());
        request.extensions_mut().insert(client);
        let state = self.state.clone();
        state.enter(Phase::Request);
        let answering = TowerToHyperService::new(self.router.clone()).call(request);
        Box::pin(async move {
            let answer = answering.await;
            let is_endless =
                answer.as_ref().is_ok_and(|answer| answer.extensions().get::<Endless>().is_some());
            if !is_endless {
                state.enter(Phase::Idle);
            }
            answer
        })
    }
}

/// A stream that fails when the peer is too slow.
pub(crate) struct TimedStream<S> {
    stream: S,
    state: ConnectionState,
    limits: ConnectionLimits,
    /// The timer of the current phase.
    reading: Option<PhaseTimer>,
    writing: Option<Pin<Box<Sleep>>>,
}

/// The timer of a phase.
struct PhaseTimer {
    number: u64,
    since: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl<S> TimedStream<S> {
    pub(crate) fn new(stream: S, state: ConnectionState, limits: ConnectionLimits) -> Self {
        Self { stream, state, limits, reading: None, writing: None }
    }

    pub(crate) fn into_stream(self) -> S {
        self.stream
    }

    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let (phase, number) = {
            let state = self.state.lock();
            (state.phase, state.number)
        };
        let Some(limit) = self.limits.of(phase) else { return Poll::Pending };
        let now = Instant::now();
        let timer = self.reading.get_or_insert_with(|| PhaseTimer {
            number,
            since: now,
            sleep: Box::pin(sleep_until(now + limit)),
        });
        if timer.number != number {
            (timer.number, timer.since) = (number, now);
            timer.sleep.as_mut().reset(now + limit);
        }
        loop {
            ready!(timer.sleep.as_mut().poll(context));
            if !self.limits.may_continue(phase, timer.since.elapsed()) {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            timer.sleep.as_mut().reset(Instant::now() + limit);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            if buffer.filled().len() > before {
                this.state.received();
            }
            return Poll::Ready(read);
        }
        this.poll_timeout(context).map(Err)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Poll::Ready(written) = Pin::new(&mut this.stream).poll_write(context, bytes) {
            return Poll::Ready(written);
        }
        let limit = this.limits.answer;
        let sleep = this.writing.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        sleep.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// hyper flushes once everything that it had has been written.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        this.writing = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn limits(permits: usize) -> ConnectionLimits {
        let (header, idle, answer) =
            (Duration::from_secs(10), Duration::from_secs(600), Duration::from_secs(30));
        ConnectionLimits { header, idle, answer, permits: Arc::new(Semaphore::new(permits)), low_mark: 5 }
    }

    fn timed(
        permits: usize,
    ) -> (TimedStream<tokio::io::DuplexStream>, tokio::io::DuplexStream, ConnectionState) {
        let (here, there) = tokio::io::duplex(16);
        let state = ConnectionState::new();
        (TimedStream::new(here, state.clone(), limits(permits)), there, state)
    }

    /// Seconds until the connection is closed.
    async fn given_up(stream: &mut TimedStream<tokio::io::DuplexStream>) -> u64 {
        let begin = Instant::now();
        while stream.read_u8().await.map_err(|error| error.kind()) != Err(io::ErrorKind::TimedOut) {}
        begin.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_has_its_time_however_its_bytes_trickle() {
        let (mut stream, mut there, _) = timed(100);
        let trickle = tokio::spawn(async move {
            while there.write_u8(b'x').await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        assert_eq!(given_up(&mut stream).await, 10);
        trickle.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_live_longer_with_spare_capacity() {
        for (permits, expected) in [(100, 600), (3, 10)] {
            let (mut stream, there, state) = timed(permits);
            state.enter(Phase::Request);
            state.enter(Phase::Idle);
            assert_eq!(given_up(&mut stream).await, expected);
            drop(there);
        }
        let (mut stream, mut there, state) = timed(100);
        state.enter(Phase::Idle);
        there.write_u8(b'G').await.unwrap();
        assert_eq!(given_up(&mut stream).await, 10, "a header begun after a rest");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_ends_when_capacity_becomes_scarce() {
        let (mut stream, _there, state) = timed(100);
        state.enter(Phase::Idle);
        let permits = Arc::clone(&stream.limits.permits);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(95)).await;
            permits.forget_permits(98);
        });
        assert_eq!(given_up(&mut stream).await, 100);
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_answers_that_are_not_read() {
        let (mut stream, mut there, state) = timed(100);
        state.enter(Phase::Request);
        let slow = tokio::spawn(async move {
            while there.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        let begin = Instant::now();
        let failed = stream.write_all(&[b'x'; 4096]).await.unwrap_err();
        assert_eq!((failed.kind(), begin.elapsed().as_secs()), (io::ErrorKind::TimedOut, 30));
        slow.abort();
    }
}
