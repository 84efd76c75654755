//! A receiver of deliveries that behaves as its path says: `/ok`, `/brief` (50 ms), `/hang`,
//! `/slow` (3 s), `/busy` (10 s), `/limited`, which takes 20 requests a second and refuses others
//! with 429 and `Retry-After: 1`, and `/fails`, which answers the first request with 500.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

pub(super) const BRIEF: Duration = Duration::from_millis(50);
pub(super) const SLOW: Duration = Duration::from_secs(3);
pub(super) const BUSY: Duration = Duration::from_secs(10);
const RATE: usize = 20;

/// It ends with the runtime.
#[derive(Clone)]
pub(super) struct Receiver {
    port: u16,
    seen: Arc<Mutex<Vec<(String, Instant, u16)>>>,
}

impl Receiver {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let receiver = Self { port: listener.local_addr()?.port(), seen: Arc::default() };
        let accepting = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(accepting.clone().serve(stream));
            }
        });
        Ok(receiver)
    }

    /// The address of a path, such as `ok`.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// When each request for a path arrived that was answered with success, or not at all.
    pub(super) fn taken(&self, path: &str) -> Vec<Instant> {
        self.answered(path, |status| status < 400)
    }

    /// When each request for a path arrived that was answered with a failure.
    pub(super) fn failed(&self, path: &str) -> Vec<Instant> {
        self.answered(path, |status| status >= 500)
    }

    fn answered(&self, path: &str, is_meant: impl Fn(u16) -> bool) -> Vec<Instant> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let meant =
            seen.iter().filter(|(of, _, status)| of.trim_start_matches('/') == path && is_meant(*status));
        meant.map(|(_, at, _)| *at).collect()
    }

    async fn serve(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        while let Ok(Some(path)) = read_request(&mut stream).await {
            let status = self.note(&path);
            match path.as_str() {
                "/hang" => std::future::pending().await,
                "/brief" => tokio::time::sleep(BRIEF).await,
                "/slow" => tokio::time::sleep(SLOW).await,
                "/busy" => tokio::time::sleep(BUSY).await,
                _ => {}
            }
            let answer = match status {
                429 => "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
                500 => "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
                _ => "HTTP/1.1 204 No Content\r\n\r\n",
            };
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    /// Returns the answer's status.
    fn note(&self, path: &str) -> u16 {
        let (now, mut seen) = (Instant::now(), self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        let lately = |(of, at, status): &&(String, Instant, u16)| {
            of == path && *status != 429 && now.duration_since(*at) < Duration::from_secs(1)
        };
        let taken = seen.iter().rev().take(4_000).filter(lately).count();
        let status = match path {
            "/limited" if taken >= RATE => 429,
            "/fails" if !seen.iter().any(|(of, ..)| of == path) => 500,
            _ => 204,
        };
        seen.push((path.to_owned(), now, status));
        status
    }
}

/// Reads a request with its body; returns its path, or `None` at the end of the connection.
async fn read_request(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<String>> {
    let mut lines = VecDeque::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        if line == "\r\n" {
            break;
        }
        lines.push_back(line);
    }
    let length = lines.iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    Ok(lines.front().and_then(|line| line.split(' ').nth(1)).map(str::to_owned))
}
