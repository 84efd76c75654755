//! Bytes on a socket: what no HTTP library sends.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wakeq::CanvasId;
use wakeq_service::server::HttpConfig;

use crate::support::TIMEOUT;
use crate::support::service::Service;

/// A connection, and what was received but not examined yet.
pub(super) struct Raw {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// An answer: status, head and body.
pub(super) struct RawAnswer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Raw {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), unread: Vec::new() }
    }

    /// A connection to a service that has sent these bytes.
    pub(super) async fn sending(service: &Service, bytes: impl AsRef<[u8]>) -> Self {
        let mut raw = Self::connect(service.address).await;
        raw.send(bytes).await;
        raw
    }

    /// Sends bytes; errors are ignored, because the server may have hung up already.
    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        timeout(TIMEOUT, self.stream.write_all(bytes.as_ref())).await.expect("nobody reads").ok();
    }

    async fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let rest = self.unread.split_off(end + 4);
                return String::from_utf8(std::mem::replace(&mut self.unread, rest)).unwrap().to_lowercase();
            }
            let read = timeout(TIMEOUT, self.stream.read_buf(&mut self.unread)).await.expect("no answer");
            assert_ne!(read.unwrap(), 0, "no answer, but {:?}", String::from_utf8_lossy(&self.unread));
        }
    }

    pub(super) async fn answer(&mut self) -> RawAnswer {
        self.answer_to(false).await
    }

    pub(super) async fn answer_to(&mut self, without_body: bool) -> RawAnswer {
        let head = self.head().await;
        let status: u16 = head["http/1.1 ".len()..][..3].parse().unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map(|text| text.parse().unwrap());
        let length: usize = if without_body || status < 200 { 0 } else { length.unwrap_or(0) };
        while self.unread.len() < length {
            let read = timeout(TIMEOUT, self.stream.read_buf(&mut self.unread)).await.expect("no body");
            assert_ne!(read.unwrap(), 0, "half a body");
        }
        let rest = self.unread.split_off(length);
        let body = String::from_utf8(std::mem::replace(&mut self.unread, rest)).unwrap();
        RawAnswer { status, head, body }
    }

    /// The answer, unless the server hangs up without one.
    pub(super) async fn answer_if_any(&mut self) -> Option<RawAnswer> {
        loop {
            if self.unread.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                let answer = self.answer().await;
                if answer.status >= 200 {
                    return Some(answer);
                }
            }
            let read =
                timeout(TIMEOUT, self.stream.read_buf(&mut self.unread)).await.expect("it does not hang up");
            if !matches!(read, Ok(read) if read > 0) {
                return None;
            }
        }
    }

    /// Waits until the server hangs up; returns how many bytes it sent before.
    pub(super) async fn ended(&mut self) -> usize {
        let reading =
            async { while matches!(self.stream.read_buf(&mut self.unread).await, Ok(read) if read > 0) {} };
        timeout(TIMEOUT, reading).await.expect("it does not hang up");
        self.unread.len()
    }

    /// Closes the connection for writing.
    pub(super) async fn finish_writing(&mut self) {
        self.stream.shutdown().await.unwrap();
    }
}

impl RawAnswer {
    #[track_caller]
    pub(super) fn problem(&self) -> (u16, String) {
        let kind = "content-type: application/problem+json\r\n";
        assert!(self.head.contains(kind), "{}{}", self.head, self.body);
        let body: Value = serde_json::from_str(&self.body).unwrap();
        let id = format!("x-request-id: {}\r\n", body["request_id"].as_str().unwrap());
        assert!(self.head.contains(&id) && body["status"] == self.status, "{}{}", self.head, self.body);
        (self.status, body["type"].as_str().unwrap().strip_prefix("urn:wakeq:problem:").unwrap().to_owned())
    }
}

/// The start of a request that passes the guard.
pub(super) fn authorized(service: &Service, method: &str, path: &str) -> String {
    let (key, canvas) = (&service.key, CanvasId::DEFAULT);
    format!(
        "{method} /v1/canvases/{canvas}{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    )
}

fn quick() -> HttpConfig {
    let soon = Duration::from_millis(300);
    HttpConfig { header_timeout: soon, body_timeout: soon, write_timeout: soon, ..HttpConfig::default() }
}

#[tokio::test]
async fn malformed_http_is_refused_without_a_body() {
    let service = Service::start().await;
    let fields = "a: b\r\n".repeat(70);
    let long = "x".repeat(40_000);
    for (request, expected) in [
        ("GARBAGE\r\n\r\n".to_owned(), 400),
        ("GET /livez HTTP/9.9\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\na b: c\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nhost : x\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\na: \0\r\n\r\n".to_owned(), 400),
        ("GET /\0 HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".to_owned(), 400),
        ("POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n".to_owned(), 400),
        ("POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n".to_owned(), 400),
        ("POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n".to_owned(), 400),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked, identity\r\n\r\n".to_owned(), 400),
        ("POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), 400),
        (format!("GET / HTTP/1.1\r\n{fields}\r\n"), 431),
        (format!("GET / HTTP/1.1\r\na: {long}\r\n\r\n"), 431),
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), 431),
    ] {
        let mut raw = Raw::sending(&service, &request).await;
        let answer = raw.answer().await;
        let shown = &request[..request.len().min(60)];
        assert_eq!((answer.status, answer.body), (expected, String::new()), "{shown:?}");
        assert!(answer.head.contains("connection: close\r\n"), "{shown:?}");
        assert_eq!(raw.ended().await, 0, "{shown:?}");
    }
    // The first bytes of TLS and HTTP/2, and none at all: the server hangs up or answers, and
    // nothing breaks.
    for request in [&b"\x16\x03\x01\x02\x00\x01\x00\x01"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b""] {
        let mut raw = Raw::sending(&service, request).await;
        raw.finish_writing().await;
        raw.ended().await;
    }
    service.stop().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let service = Service::start().await;
    let mut raw = Raw::connect(service.address).await;
    let request = authorized(&service, "GET", "/handlers");
    raw.send(format!("GET /livez HTTP/1.1\r\n\r\n{request}\r\nGET /nowhere HTTP/1.1\r\n\r\n")).await;
    assert_eq!(raw.answer().await.status, 204);
    assert_eq!(raw.answer().await.body, r#"{"items":[],"next_cursor":null}"#);
    assert_eq!(raw.answer().await.problem(), (404, "not-found".into()));
    // A body has a length, and nothing can hide behind it.
    let emit = authorized(&service, "POST", "/events");
    raw.send(format!("{emit}content-length: 12\r\n\r\n{{\"name\":\"a\"}}GET /livez HTTP/1.1\r\n\r\n")).await;
    assert_eq!((raw.answer().await.status, raw.answer().await.status), (202, 204));
    for (path, expected) in [("/openapi.json", 200), ("/nowhere", 404), ("/readyz", 200)] {
        raw.send(format!("HEAD {path} HTTP/1.1\r\n\r\n")).await;
        let answer = raw.answer_to(true).await;
        assert_eq!(answer.status, expected);
        let has_length = |length: &str| answer.head.contains(&format!("content-length: {length}"));
        assert!(has_length("") && !has_length("0"), "{}", answer.head);
    }
    raw.send("GET /livez HTTP/1.0\r\n\r\n").await;
    raw.ended().await;
    service.stop().await;
}

#[tokio::test]
async fn a_refused_request_gets_no_100_continue() {
    let service = Service::start().await;
    let mut raw = Raw::connect(service.address).await;
    let stranger =
        format!("POST /v1/canvases/{}/events HTTP/1.1\r\nexpect: 100-continue\r\n", CanvasId::DEFAULT);
    raw.send(format!("{stranger}content-length: 1000\r\n\r\n")).await;
    assert_eq!(raw.answer().await.problem().0, 401);

    let mut raw = Raw::connect(service.address).await;
    let emit = authorized(&service, "POST", "/events");
    raw.send(format!("{emit}expect: 100-continue\r\ncontent-length: 1000000\r\n\r\n")).await;
    assert_eq!(raw.answer().await.problem(), (413, "too-large".into()));

    let mut raw =
        Raw::sending(&service, format!("{emit}expect: 100-continue\r\ncontent-length: 12\r\n\r\n")).await;
    assert_eq!(raw.answer().await.status, 100);
    raw.send(r#"{"name":"a"}"#).await;
    assert_eq!(raw.answer().await.status, 202);
    service.stop().await;
}

#[tokio::test]
async fn bodies_have_their_size_and_their_time() {
    let service = Service::with(quick()).await;
    let emit = authorized(&service, "POST", "/events");
    for (body, expected) in [
        ("content-length: 1000\r\n\r\n{".to_owned(), (408, "timeout")),
        ("transfer-encoding: chunked\r\n\r\n5\r\n{\"nam".to_owned(), (408, "timeout")),
        (
            format!("transfer-encoding: chunked\r\n\r\n{}", "1000\r\n".to_owned() + &"x".repeat(0x1000)),
            (408, "timeout"),
        ),
        (format!("transfer-encoding: chunked\r\n\r\n50000\r\n{}", "x".repeat(0x50000)), (413, "too-large")),
        (format!("content-length: 300000\r\n\r\n{}", "x".repeat(300_000)), (413, "too-large")),
        ("transfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(), (400, "bad-request")),
    ] {
        let mut raw = Raw::sending(&service, format!("{emit}{body}")).await;
        let answer = raw.answer().await;
        let shown = &body[..body.len().min(60)];
        assert_eq!(answer.problem(), (expected.0, expected.1.to_owned()), "{shown:?}");
        raw.ended().await;
    }
    // Half a body, and then the end.
    let mut raw = Raw::sending(&service, format!("{emit}content-length: 1000\r\n\r\n{{")).await;
    raw.finish_writing().await;
    raw.ended().await;
    assert_eq!(service.stage.rows().await, 0, "nothing was emitted");
    service.stop().await;
}

#[tokio::test]
async fn headers_and_answers_have_their_time() {
    let service = Service::with(quick()).await;
    for begun in ["", "G", "GET /livez HTTP/1.1\r\nhost"] {
        let mut raw = Raw::sending(&service, begun).await;
        assert_eq!(raw.ended().await, 0, "{begun}");
    }
    // A client that does not read answers is disconnected: the answers do not fit into the kernel's
    // buffers.
    let mut raw = Raw::connect(service.address).await;
    let requests = "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\n\r\n".repeat(16);
    raw.send(requests).await;
    let hung_up = async { while raw.stream.write_all(&[b'x'; 4096]).await.is_ok() {} };
    timeout(TIMEOUT, hung_up).await.expect("it waits for ever");
    // Other clients do not notice.
    let mut raw = Raw::sending(&service, "GET /livez HTTP/1.1\r\n\r\n").await;
    assert_eq!(raw.answer().await.status, 204);
    service.stop().await;
}

#[tokio::test]
async fn odd_paths_queries_and_headers_are_refused_in_form() {
    let service = Service::start().await;
    let canvas = CanvasId::DEFAULT;
    let long = "a".repeat(20_000);
    for (path, expected) in [
        ("/v1/canvases/%00/handlers".to_owned(), 404),
        ("/v1/canvases/%ff%fe/handlers".to_owned(), 404),
        (format!("/v1/canvases/{canvas}/handlers/%00/a"), 400),
        (format!("/v1/canvases/{canvas}/handlers/WORKER/%ff"), 404),
        (format!("/v1/canvases/{canvas}/handlers/WORKER/a%2fb"), 400),
        (format!("/v1/canvases/{canvas}/handlers/WORKER/%zz"), 400),
        (format!("/v1/canvases/{canvas}/handlers/WORKER/{long}"), 400),
        (format!("/v1/canvases/{canvas}/events/%00"), 400),
        (format!("/v1/canvases/{canvas}/events?cursor={long}"), 400),
        (format!("/v1/canvases/{canvas}/events?cursor=%00"), 400),
        (format!("/v1/canvases/{canvas}/events?name=%ff"), 400),
        (format!("/v1/canvases/{canvas}/events?limit=1&limit=2"), 400),
        (format!("/v1/canvases/{canvas}/events?limit=99999999999999999999"), 400),
        (format!("/v1/canvases/{canvas}/events?state=%F0%9F%92%A9"), 400),
        (format!("/v1/canvases/{canvas}/dead-events?since=-999999999-01-01T00:00:00Z"), 400),
        (format!("/v1/canvases/{canvas}/../../livez"), 404),
        ("*".to_owned(), 404),
    ] {
        let mut raw = Raw::connect(service.address).await;
        let key = &service.key;
        raw.send(format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n")).await;
        let answer = raw.answer().await;
        assert_eq!(answer.problem().0, expected, "{} {}", &path[..path.len().min(80)], answer.body);
    }
    service.stop().await;
}
