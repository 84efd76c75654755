//! The HTTP client for pushes, and which answers acknowledge a message.
//!
//! It follows no redirects, uses no proxy, and reads only as much of an answer's body as keeps a
//! connection reusable.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Notify;

use super::request::Content;

/// If an answer is longer, its connection is closed.
const BODY_MAX_BYTES: usize = 64 * 1024;
/// Idle connections are closed after this.
const IDLE: Duration = Duration::from_secs(30);

type Plain = Client<HttpConnector, Full<Bytes>>;
type Secure = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Why a push failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum EndpointError {
    #[error(
        "`{0}` is not a push endpoint: it should look like https://host/path or http://localhost:8080/path"
    )]
    Url(String),
    #[error("TLS can't be used: {0}")]
    Tls(String),
    #[error("no answer within the acknowledgement deadline of {} s", .0.as_secs())]
    Late(Duration),
    #[error("{0}")]
    Failed(String),
    #[error("the endpoint answered {0}, which acknowledges nothing")]
    Status(StatusCode),
}

/// Sends to any endpoint, over pooled connections.
pub(super) struct Endpoints {
    plain: Plain,
    /// Created on first use, as it reads the system's certificates.
    secure: OnceLock<Result<Secure, String>>,
}

/// The rest of an answer whose status acknowledged the message.
pub(super) struct Rest(Option<Incoming>);

impl Endpoints {
    pub(super) fn new() -> Self {
        let plain = builder().build(HttpConnector::new());
        Self { plain, secure: OnceLock::new() }
    }

    /// Sends a message; succeeds if the endpoint acknowledges it.
    pub(super) async fn post(
        &self,
        url: &str,
        content: Content,
        within: Duration,
    ) -> Result<Rest, EndpointError> {
        let uri: Uri = url.parse().map_err(|_| EndpointError::Url(url.to_owned()))?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) | None => return Err(EndpointError::Url(url.to_owned())),
        };
        let mut request = Request::new(Full::new(content.body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = content.headers;
        let processing = Arc::new(Notify::new());
        let seen = Arc::clone(&processing);
        hyper::ext::on_informational(&mut request, move |answer| {
            if answer.status() == StatusCode::PROCESSING {
                seen.notify_one();
            }
        });
        let answered = async {
            if secure { self.secure()?.request(request).await } else { self.plain.request(request).await }
                .map_err(|error| EndpointError::Failed(causes(&error)))
        };
        let outcome = tokio::time::timeout(within, async {
            tokio::select! {
                () = processing.notified() => Ok(Rest(None)),
                answer = answered => judge(answer?),
            }
        });
        outcome.await.map_err(|_| EndpointError::Late(within))?
    }

    fn secure(&self) -> Result<&Secure, EndpointError> {
        let made = self.secure.get_or_init(|| {
            let provider = rustls::crypto::aws_lc_rs::default_provider();
            let connector = hyper_rustls::HttpsConnectorBuilder::new()
                .with_provider_and_platform_verifier(provider)
                .map_err(|error| error.to_string())?
                .https_only()
                .enable_http1()
                .build();
            Ok(builder().build(connector))
        });
        made.as_ref().map_err(|error| EndpointError::Tls(error.clone()))
    }
}

impl Rest {
    /// Reads the rest, so that the connection can be reused.
    pub(super) async fn read(self, within: Duration) {
        let Some(body) = self.0 else { return };
        // An error here only costs the connection.
        drop(tokio::time::timeout(within, Limited::new(body, BODY_MAX_BYTES).collect()).await);
    }
}

fn builder() -> hyper_util::client::legacy::Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
    builder
}

/// 102 is an interim answer, which is handled before this.
fn judge(answer: http::Response<Incoming>) -> Result<Rest, EndpointError> {
    match answer.status() {
        StatusCode::OK | StatusCode::CREATED | StatusCode::ACCEPTED | StatusCode::NO_CONTENT => {
            Ok(Rest(Some(answer.into_body())))
        }
        status => Err(EndpointError::Status(status)),
    }
}

/// An error with its causes: the outermost alone says little.
fn causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        words = format!("{words}: {inner}");
        cause = inner.source();
    }
    words
}
