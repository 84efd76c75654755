//! `GET /metrics`, on a listener of its own that serves nothing else. Needs no credential, so it
//! must not be reachable by strangers, nor by pages in a browser of this machine. Accepts a few
//! connections at once, for a few seconds each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use prometheus::TextEncoder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::SharedObserver;
use super::local::is_answered;

/// Maximum number of connections; further ones are closed without an answer.
const CONNECTIONS: usize = 16;
/// Maximum duration of a connection: one request and its answer.
const LASTS: Duration = Duration::from_secs(10);
/// Maximum size of a request's header in bytes, and number of fields.
const HEADER_BYTES: usize = 16 * 1024;
const HEADER_FIELDS: usize = 64;
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A listener for scrapers.
pub(super) struct Scraper {
    listener: TcpListener,
    address: SocketAddr,
}

impl Scraper {
    pub(super) async fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// With the actual port if port 0 was requested.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is dropped, together with its connections.
    pub(super) async fn run(self, registry: prometheus::Registry, observed: SharedObserver) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let router = Router::new()
            .route("/metrics", get(answer))
            .method_not_allowed_fallback(async || {
                (StatusCode::METHOD_NOT_ALLOWED, "only GET is supported here\n")
            })
            .fallback(async || (StatusCode::NOT_FOUND, "only /metrics is served here\n"))
            .with_state(ScrapeState { registry, observed, address: self.address });
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
                        let router = router.clone();
                        connections.spawn(async move {
                            // The outcome is irrelevant: scrapers try again.
                            let _ = tokio::time::timeout(LASTS, serve(stream, router)).await;
                            drop(place);
                        });
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

#[derive(Clone)]
struct ScrapeState {
    registry: prometheus::Registry,
    observed: SharedObserver,
    /// That of the listener.
    address: SocketAddr,
}

async fn serve(stream: TcpStream, router: Router) {
    let ended = http1::Builder::new()
        .keep_alive(false)
        .header_read_timeout(None)
        .max_header_size(HEADER_BYTES)
        .max_headers(HEADER_FIELDS)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = ended {
        tracing::debug!(error = &error as &dyn std::error::Error, "a scrape ended early");
    }
}

async fn answer(State(metrics): State<ScrapeState>, headers: HeaderMap) -> Response {
    if !is_answered(metrics.address, &headers) {
        let words =
            "this listener is on the loopback interface: use localhost or an address like 127.0.0.1\n";
        return (StatusCode::FORBIDDEN, words).into_response();
    }
    metrics.observed.refresh().await;
    // Thousands of lines: not on a thread that runs events.
    let encoding =
        tokio::task::spawn_blocking(move || TextEncoder::new().encode_to_string(&metrics.registry.gather()));
    let failed = |words: &'static str| (StatusCode::INTERNAL_SERVER_ERROR, words).into_response();
    match encoding.await {
        Ok(Ok(text)) => ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Ok(Err(error)) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the metrics could not be written");
            failed("the metrics could not be written: see the log\n")
        }
        Err(_) => failed("the metrics could not be collected: see the log\n"),
    }
}
