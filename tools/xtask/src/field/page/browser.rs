//! A browser of the pages, as far as a server can tell: it signs in with a key, carries the cookie
//! of its session, and holds the streams of live numbers open.
//!
//! Each request has a connection of its own and ends with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// What each renewal of a page begins with.
const EVENT: &str = "event: live";

/// Somebody who is signed in.
pub(super) struct Browser {
    port: u16,
    cookie: String,
}

/// An answer with its head.
pub(super) struct Shown {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

/// An open page: it is sent its live part again whenever that has changed.
pub(super) struct Open {
    pub(super) path: String,
    renewals: Arc<AtomicUsize>,
    reading: JoinHandle<()>,
}

impl Browser {
    /// Signs in as people do, with the form of `/sign-in`.
    pub(super) async fn sign_in(port: u16, key: &str) -> Result<Self> {
        let shown = ask(port, "POST /sign-in", "", &format!("key={key}")).await?;
        ensure!(shown.status == 303, "signing in: {} {:.500}", shown.status, shown.body);
        let cookie = shown.header("set-cookie").context("no cookie was set")?;
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        Ok(Self { port, cookie })
    }

    /// Asks for a page; a refused one is an answer like others.
    pub(super) async fn get(&self, path: &str) -> Result<Shown> {
        ask(self.port, &format!("GET {path}"), &format!("Cookie: {}\r\n", self.cookie), "").await
    }

    /// Opens a page and stays on it.
    pub(super) async fn open(&self, path: &str) -> Result<Open> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAccept: text/event-stream\r\nCookie: {}\r\n\r\n",
            self.port, self.cookie
        );
        stream.write_all(request.as_bytes()).await?;
        let renewals = Arc::new(AtomicUsize::new(0));
        let reading = tokio::spawn(read(stream, Arc::clone(&renewals)));
        Ok(Open { path: path.to_owned(), renewals, reading })
    }
}

impl Shown {
    fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.head.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

impl Open {
    /// How often its live part was sent.
    pub(super) fn renewals(&self) -> usize {
        self.renewals.load(Ordering::Relaxed)
    }

    /// Whether the server still holds it.
    pub(super) fn is_open(&self) -> bool {
        !self.reading.is_finished()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// Counts the events of a stream until its end.
async fn read(mut stream: TcpStream, renewals: Arc<AtomicUsize>) {
    let mut bytes = Vec::new();
    while matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
        renewals.fetch_add(String::from_utf8_lossy(&bytes).matches(EVENT).count(), Ordering::Relaxed);
        // What may be the beginning of another one stays.
        bytes.drain(..bytes.len().saturating_sub(EVENT.len() - 1));
    }
}

/// Asks by HTTP/1.0, so that the answer ends with the connection and has no chunks. What has a body
/// is a form.
async fn ask(port: u16, line: &str, headers: &str, form: &str) -> Result<Shown> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let length = form.len();
    let request = format!(
        "{line} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n{headers}\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{form}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8(answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("no answer: {answer:.100}"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("no status: {head:.100}"))?;
    Ok(Shown { status, head: head.to_owned(), body: body.to_owned() })
}
