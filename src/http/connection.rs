//! Wraps a connection for hyper: limits how long headers, idle times and receiving an answer may
//! take, and replaces the errors that hyper answers by itself with problem details.
//!
//! Only passes bytes on and measures time; of a request, it only knows when it begins and ends.

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

use super::answer;
use super::client::Proxies;

/// Longer than any answer that hyper writes by itself, in bytes.
const BARE_MAX: usize = 256;

/// Time limits of a connection.
#[derive(Clone)]
pub(super) struct Pace {
    /// From the first byte of a request to the end of its header; for the first request, from the
    /// start of the connection.
    pub(super) header: Duration,
    /// Between two requests.
    pub(super) rest: Duration,
    /// For receiving an answer, once the kernel's buffers are full.
    pub(super) answer: Duration,
    /// The permits for connections. When few are left, connections may only be idle for as long as
    /// a header may take.
    pub(super) room: Arc<Semaphore>,
    /// How many are few.
    pub(super) little: usize,
}

impl Pace {
    /// When to check next. Idle connections are checked repeatedly, since permits may run short
    /// meanwhile.
    fn of(&self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::Header => Some(self.header),
            Phase::Rest => Some(self.rest.min(self.header)),
            Phase::Request => None,
        }
    }

    /// Whether a phase may continue after this long.
    fn goes_on(&self, phase: Phase, lasted: Duration) -> bool {
        let crowded = self.room.available_permits() < self.little;
        phase == Phase::Rest && !crowded && lasted < self.rest
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    /// From its header to its answer, a request has timeouts of its own; an endless answer has
    /// none.
    Request,
    Rest,
}

/// The state of a connection, shared between the stream and the service.
#[derive(Clone)]
pub(super) struct Turns(Arc<Mutex<Turn>>);

struct Turn {
    phase: Phase,
    /// Incremented with each phase, so that a timeout only applies to its own.
    number: u64,
    /// Whether part of the API's own answer may still have to be sent.
    unsent: bool,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Turn { phase: Phase::Header, number: 0, unsent: false })))
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, phase: Phase) {
        let mut turn = self.turn();
        turn.phase = phase;
        turn.number += 1;
        turn.unsent |= phase == Phase::Rest;
    }

    fn received(&self) {
        if self.turn().phase == Phase::Rest {
            self.enter(Phase::Header);
        }
    }

    fn flushed(&self) {
        let mut turn = self.turn();
        turn.unsent &= turn.phase == Phase::Request;
    }

    /// Whether anything written now can't be an answer of the API.
    fn is_unasked(&self) -> bool {
        let turn = self.turn();
        turn.phase != Phase::Request && !turn.unsent
    }
}

/// Marks an answer that is written until the caller disconnects. The connection ends with it, so no
/// idle phase follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endless;

/// The API as a service that reports when a request begins and ends.
pub(super) struct Telling {
    pub(super) router: Router,
    pub(super) turns: Turns,
    pub(super) peer: SocketAddr,
    pub(super) proxies: Proxies,
}

impl Service<Request<Incoming>> for Telling {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let client = self.proxies.client(self.peer, request.headers());
        request.extensions_mut().insert(client);
        let turns = self.turns.clone();
        turns.enter(Phase::Request);
        let answering = TowerToHyperService::new(self.router.clone()).call(request);
        Box::pin(async move {
            let answer = answering.await;
            let is_endless =
                answer.as_ref().is_ok_and(|answer| answer.extensions().get::<Endless>().is_some());
            if !is_endless {
                turns.enter(Phase::Rest);
            }
            answer
        })
    }
}

/// A stream that fails when the peer is too slow.
pub(super) struct Paced<S> {
    stream: S,
    turns: Turns,
    pace: Pace,
    /// The timer of the current phase.
    reading: Option<Watch>,
    writing: Option<Pin<Box<Sleep>>>,
    instead: Option<Instead>,
}

/// The timer of a phase.
struct Watch {
    number: u64,
    since: Instant,
    sleep: Pin<Box<Sleep>>,
}

/// Replaces an answer that hyper wrote.
struct Instead {
    bytes: Vec<u8>,
    written: usize,
    /// The length of the replaced answer.
    of: usize,
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S, turns: Turns, pace: Pace) -> Self {
        Self { stream, turns, pace, reading: None, writing: None, instead: None }
    }

    pub(super) fn into_stream(self) -> S {
        self.stream
    }

    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let (phase, number) = {
            let turn = self.turns.turn();
            (turn.phase, turn.number)
        };
        let Some(limit) = self.pace.of(phase) else { return Poll::Pending };
        let now = Instant::now();
        let watch = self.reading.get_or_insert_with(|| Watch {
            number,
            since: now,
            sleep: Box::pin(sleep_until(now + limit)),
        });
        if watch.number != number {
            (watch.number, watch.since) = (number, now);
            watch.sleep.as_mut().reset(now + limit);
        }
        loop {
            ready!(watch.sleep.as_mut().poll(context));
            if !self.pace.goes_on(phase, watch.since.elapsed()) {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            watch.sleep.as_mut().reset(Instant::now() + limit);
        }
    }
}

impl<S: AsyncWrite + Unpin> Paced<S> {
    fn poll_write_some(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(context, bytes) {
            return Poll::Ready(written);
        }
        let limit = self.pace.answer;
        let sleep = self.writing.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        sleep.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            if buffer.filled().len() > before {
                this.turns.received();
            }
            return Poll::Ready(read);
        }
        this.poll_patience(context).map(Err)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.instead.is_none()
            && this.turns.is_unasked()
            && let Some(status) = bare_status(bytes)
        {
            this.instead = Some(Instead { bytes: answer::bare(status), written: 0, of: bytes.len() });
        }
        let Some(mut instead) = this.instead.take() else { return this.poll_write_some(context, bytes) };
        while instead.written < instead.bytes.len() {
            match this.poll_write_some(context, &instead.bytes[instead.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => instead.written += written,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    this.instead = Some(instead);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(instead.of))
    }

    /// hyper flushes once everything that it had has been written.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        this.writing = None;
        this.turns.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// The status of an answer without a body that closes the connection: what hyper sends if it can't
/// parse a request.
fn bare_status(bytes: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() < BARE_MAX)?;
    let is_whole = text.ends_with("\r\n\r\n") && text.contains("content-length: 0\r\n");
    let status = text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    (is_whole && (400..500).contains(&status)).then_some(status)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pace(places: usize) -> Pace {
        let (header, rest, answer) =
            (Duration::from_secs(10), Duration::from_secs(600), Duration::from_secs(30));
        Pace { header, rest, answer, room: Arc::new(Semaphore::new(places)), little: 5 }
    }

    fn paced(places: usize) -> (Paced<tokio::io::DuplexStream>, tokio::io::DuplexStream, Turns) {
        let (here, there) = tokio::io::duplex(16);
        let turns = Turns::new();
        (Paced::new(here, turns.clone(), pace(places)), there, turns)
    }

    /// Seconds until the connection is closed.
    async fn given_up(stream: &mut Paced<tokio::io::DuplexStream>) -> u64 {
        let begin = Instant::now();
        while stream.read_u8().await.map_err(|error| error.kind()) != Err(io::ErrorKind::TimedOut) {}
        begin.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_has_its_time_however_its_bytes_trickle() {
        let (mut stream, mut there, _) = paced(100);
        let trickle = tokio::spawn(async move {
            while there.write_u8(b'x').await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        assert_eq!(given_up(&mut stream).await, 10);
        trickle.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_is_longer_where_there_is_room() {
        for (places, expected) in [(100, 600), (3, 10)] {
            let (mut stream, there, turns) = paced(places);
            turns.enter(Phase::Request);
            turns.enter(Phase::Rest);
            assert_eq!(given_up(&mut stream).await, expected);
            drop(there);
        }
        let (mut stream, mut there, turns) = paced(100);
        turns.enter(Phase::Rest);
        there.write_u8(b'G').await.unwrap();
        assert_eq!(given_up(&mut stream).await, 10, "a header begun after a rest");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_ends_when_room_becomes_little_during_it() {
        let (mut stream, _there, turns) = paced(100);
        turns.enter(Phase::Rest);
        let room = Arc::clone(&stream.pace.room);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(95)).await;
            room.forget_permits(98);
        });
        assert_eq!(given_up(&mut stream).await, 100);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_takes_is_given_up() {
        let (mut stream, mut there, turns) = paced(100);
        turns.enter(Phase::Request);
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

    #[tokio::test]
    async fn only_what_hyper_refuses_by_itself_is_told_anew() {
        const BARE: &[u8] =
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let written = async |before: &[Phase], bytes: &[u8]| {
            let (here, mut there) = tokio::io::duplex(4096);
            let turns = Turns::new();
            before.iter().for_each(|phase| turns.enter(*phase));
            let mut stream = Paced::new(here, turns, pace(100));
            assert_eq!(stream.write(bytes).await.unwrap(), bytes.len());
            drop(stream);
            let mut text = String::new();
            there.read_to_string(&mut text).await.unwrap();
            text
        };
        let told = written(&[], BARE).await;
        assert!(
            told.contains("urn:wakeq:problem:headers-too-large") && told.starts_with("HTTP/1.1 431 "),
            "{told}"
        );
        assert!(!written(&[Phase::Request], BARE).await.contains("urn:"), "the API's own");
        assert!(!written(&[Phase::Request, Phase::Rest], BARE).await.contains("urn:"), "not all sent yet");
        assert_eq!(written(&[], b"HTTP/1.1 100 Continue\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    }
}
