//! Small servers on loopback that answer as no library would: with given bytes, too many of them,
//! or none; with TLS, too. Hence they are raw.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::task::AbortOnDropHandle;
use wakeq::targets::TargetUrl;

/// What a server does with each request.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// These bytes, then the end of the connection.
    Bytes(Vec<u8>),
    /// These bytes to each request, on one connection.
    KeepAlive(&'static str),
    /// The first bytes to the first request on each connection, and the others to the second, which
    /// end the connection.
    OneMore(&'static str, &'static str),
    /// These bytes as soon as a client connects, and nothing else.
    Greeting(&'static str),
    /// Nothing, for as long as the client waits.
    Silence,
    /// The first bytes, then the others one by one, for as long as the client reads.
    Drip(&'static str, &'static str),
    /// These bytes, then up to this many zeros, for as long as the client reads.
    Flood(String, u64),
    /// These bytes, then a reset of the connection.
    Reset(&'static str),
}

/// A server that runs until it is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Traffic>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Traffic {
    connections: AtomicUsize,
    requests: Mutex<Vec<Request>>,
    /// Bytes of floods that the client took.
    flooded: AtomicUsize,
}

/// A request as it was received.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) head: String,
    pub(super) body: String,
}

impl Request {
    /// The value of a header that must occur once.
    pub(super) fn header(&self, name: &str) -> &str {
        let values: Vec<_> =
            self.head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect();
        let [value] = values[..] else { panic!("{name} is there {} times: {}", values.len(), self.head) };
        value
    }
}

impl Server {
    /// On 127.0.0.1.
    pub(super) async fn start(answer: Answer) -> Self {
        Self::start_with(answer, None).await
    }

    /// With a certificate for `target.example` from an authority that only tests know.
    pub(super) async fn start_tls(answer: Answer) -> Self {
        Self::start_with(answer, Some(tls())).await
    }

    async fn start_with(answer: Answer, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Traffic::default());
        let serving = serve(listener, tls, answer, seen.clone());
        Self { address, seen, _task: AbortOnDropHandle::new(tokio::spawn(serving)) }
    }

    pub(super) fn url(&self) -> TargetUrl {
        format!("http://{}/events?source=queue", self.address).parse().unwrap()
    }

    /// Its URL with the name in its certificate.
    pub(super) fn tls_url(&self) -> TargetUrl {
        format!("https://target.example:{}/events", self.address.port()).parse().unwrap()
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().unwrap().clone()
    }

    pub(super) fn flooded(&self) -> usize {
        self.seen.flooded.load(Ordering::SeqCst)
    }
}

/// The authority of the certificate, as DER.
pub(super) fn authority() -> Vec<u8> {
    CertificateDer::from_pem_slice(include_bytes!("tls/authority.pem")).unwrap().to_vec()
}

fn tls() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/target.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/target.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, answer: Answer, seen: Arc<Traffic>) {
    let mut connections = JoinSet::new();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        seen.connections.fetch_add(1, Ordering::SeqCst);
        let (tls, answer, seen) = (tls.clone(), answer.clone(), seen.clone());
        connections.spawn(async move {
            match tls {
                Some(tls) => {
                    // A client that does not trust the certificate hangs up.
                    if let Ok(stream) = tls.accept(tcp).await {
                        converse(Box::pin(stream), &answer, &seen).await;
                    }
                }
                None => plain(tcp, &answer, &seen).await,
            }
        });
    }
}

async fn plain(mut tcp: TcpStream, answer: &Answer, seen: &Traffic) {
    if let Answer::Reset(first) = answer {
        read(&mut Box::pin(&mut tcp), &mut Vec::new(), seen).await;
        tcp.write_all(first.as_bytes()).await.unwrap();
        tcp.set_zero_linger().unwrap();
    } else {
        converse(Box::pin(tcp), answer, seen).await;
    }
}

trait Stream: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

/// Answers until the client hangs up or the answer ends the connection.
async fn converse(mut stream: Pin<Box<dyn Stream>>, answer: &Answer, seen: &Traffic) {
    let (mut unread, mut answered) = (Vec::new(), 0);
    if let Answer::Greeting(text) = answer {
        stream.write_all(text.as_bytes()).await.unwrap();
    }
    while read(&mut stream, &mut unread, seen).await {
        match answer {
            Answer::Bytes(bytes) => {
                stream.write_all(bytes).await.ok();
                stream.shutdown().await.ok();
                return;
            }
            Answer::KeepAlive(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
            }
            Answer::OneMore(first, second) => {
                answered += 1;
                let is_last = answered == 2;
                stream.write_all(if is_last { second } else { first }.as_bytes()).await.ok();
                if is_last {
                    stream.shutdown().await.ok();
                    return;
                }
            }
            Answer::Greeting(_) | Answer::Silence | Answer::Reset(_) => {}
            Answer::Drip(first, then) => drip(&mut stream, first, then).await,
            Answer::Flood(first, length) => flood(&mut stream, first, *length, seen).await,
        }
    }
}

/// Reads one request; returns whether there was another.
async fn read<S: AsyncRead + ?Sized>(stream: &mut Pin<Box<S>>, unread: &mut Vec<u8>, seen: &Traffic) -> bool {
    loop {
        if let Some((request, end)) = parse(unread) {
            unread.drain(..end);
            seen.requests.lock().unwrap().push(request);
            return true;
        }
        if !matches!(stream.read_buf(unread).await, Ok(read) if read > 0) {
            return false;
        }
    }
}

fn parse(bytes: &[u8]) -> Option<(Request, usize)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let end_of_body = end + length.map_or(0, |length| length.parse().unwrap());
    let body = String::from_utf8(bytes.get(end..end_of_body)?.to_vec()).unwrap();
    Some((Request { head, body }, end_of_body))
}

async fn drip(stream: &mut Pin<Box<dyn Stream>>, first: &str, then: &str) {
    if stream.write_all(first.as_bytes()).await.is_err() {
        return;
    }
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    for byte in then.bytes().cycle() {
        pace.tick().await;
        if stream.write_all(&[byte]).await.is_err() {
            return;
        }
    }
}

async fn flood(stream: &mut Pin<Box<dyn Stream>>, first: &str, length: u64, seen: &Traffic) {
    if stream.write_all(first.as_bytes()).await.is_err() {
        return;
    }
    let chunk = [b'0'; 16 * 1024];
    for _ in 0..length / chunk.len() as u64 {
        if stream.write_all(&chunk).await.is_err() {
            return;
        }
        seen.flooded.fetch_add(chunk.len(), Ordering::SeqCst);
    }
}
