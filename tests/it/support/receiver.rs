//! HTTP servers on loopback: one that gives its answers at once, and one that holds requests until
//! a test answers them.
//!
//! The second is a raw socket server: it holds back any number of answers, or hangs up without one,
//! which wiremock can't.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;
use wakeq::targets::{NewSecret, NewTarget, TargetPolicy};
use wakeq::{CanvasId, HandlerAddress, HandlerScope, Handlers, Name, QueueWorker, Store, WorkerConfig};
use wakeq_service::delivery::{Deliverer, DeliveryConfig, Targets};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::{RunningWorker, Stage, TIMEOUT};

pub(crate) struct Receiver {
    /// The URL to which events are sent.
    pub(crate) url: String,
    requests: mpsc::Receiver<PendingRequest>,
    _serving: AbortOnDropHandle<()>,
}

/// A request that has not been answered. Dropping it closes its connection without an answer.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    /// Method and path.
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
    answer: oneshot::Sender<String>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/events?from=queue", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::channel(1000);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(take(stream, sender.clone()));
            }
        });
        Self { url, requests, _serving: AbortOnDropHandle::new(serving) }
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> PendingRequest {
        let next = tokio::time::timeout(TIMEOUT, self.requests.recv()).await;
        next.expect("no request came in time").expect("it serves as long as it is there")
    }

    /// Whether no request is waiting.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.requests.try_recv().is_err()
    }
}

/// Gives these answers, each once and at once, and then 404. Not from wiremock's pool, which would
/// pass a server on to another test, together with requests that are still sent to it.
pub(crate) async fn answering(answers: impl IntoIterator<Item = ResponseTemplate>) -> MockServer {
    let server = MockServer::builder().start().await;
    for answer in answers {
        Mock::given(any()).respond_with(answer).up_to_n_times(1).mount(&server).await;
    }
    server
}

/// The configuration that lets a worker call these servers.
pub(crate) fn to_loopback() -> DeliveryConfig {
    let allow = vec!["*=127.0.0.1:1-65535".parse().unwrap()];
    DeliveryConfig { allow, allow_http: true, ..DeliveryConfig::default() }
}

/// A target with the defaults.
pub(crate) fn target(url: &str) -> NewTarget {
    let url = url.parse().unwrap();
    let (policy, secret) = (TargetPolicy::default(), NewSecret::Keep);
    NewTarget { url, policy, audience: None, secret, headers: None }
}

/// The address of a handler without a modifier.
pub(crate) fn address(canvas: CanvasId, name: &str) -> HandlerAddress {
    let scope = HandlerScope::worker(canvas, name).unwrap();
    HandlerAddress { scope, modifier: Name::no_modifier() }
}

/// A worker that calls these servers as targets, besides its functions.
pub(crate) fn calling(
    store: &Store,
    stage: &Stage,
    handlers: Handlers,
    config: WorkerConfig,
) -> RunningWorker {
    let worker = QueueWorker::new(store.clone(), stage.notifier.clone(), handlers, config).unwrap();
    let targets = Targets::new(store, Deliverer::new(to_loopback()).unwrap());
    RunningWorker::of(worker.remote_handlers(targets))
}

/// Reads one request and answers it, then closes the connection.
async fn take(mut stream: TcpStream, requests: mpsc::Sender<PendingRequest>) -> Option<()> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut lines = head.split("\r\n");
    let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length")?.parse().ok()?;
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    let (answer, answered) = oneshot::channel();
    let request = PendingRequest { line, headers, body: String::from_utf8(body).ok()?, answer };
    requests.send(request).await.ok()?;
    stream.write_all(answered.await.ok()?.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

impl PendingRequest {
    /// Answers with a status (`204 No Content`) and headers (`retry-after: 7`).
    pub(crate) fn answer(self, status: &str, headers: &[&str]) {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let answer = format!("HTTP/1.1 {status}\r\n{headers}content-length: 0\r\nconnection: close\r\n\r\n");
        // The client may be gone.
        let _ = self.answer.send(answer);
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.headers))
    }

    /// The number of signatures, and the index of the one by this secret, per Standard Webhooks.
    pub(crate) fn signed_by(&self, secret: &str) -> (usize, Option<usize>) {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let text =
            format!("{}.{}.{}", self.header("webhook-id"), self.header("webhook-timestamp"), self.body);
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), text.as_bytes());
        let expected = format!("v1,{}", STANDARD.encode(tag.as_ref()));
        let signatures: Vec<&str> = self.header("webhook-signature").split(' ').collect();
        (signatures.len(), signatures.iter().position(|signature| *signature == expected))
    }
}
