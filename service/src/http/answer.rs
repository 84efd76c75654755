//! The outermost layer: gives every request an id, every failure a body, and every answer the
//! common headers.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tracing::Instrument;
use uuid::Uuid;

use super::client::Client;
use super::mounted::{Placed, Root};
use super::problem::{DOCS, Problem};
use crate::telemetry::{HttpMetrics, RequestInfo, answered, known_method, request_span, server_span};
use wakeq::events::Traceparent;

/// What a proxy that ends TLS says of how it was asked.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// How long a browser shall come over TLS alone: a year.
const TLS_ONLY: &str = "max-age=31536000";

/// The header with a request's id, in requests and answers.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request's id: the caller's, if it is well-formed, otherwise a new one.
#[derive(Clone, Debug)]
pub(super) struct RequestId(pub(super) Arc<str>);

impl RequestId {
    fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
        given.filter(|text| acceptable(text)).map_or_else(Self::new, |text| Self(text.into()))
    }

    fn new() -> Self {
        Self(Uuid::now_v7().to_string().into())
    }
}

fn acceptable(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

/// Runs a request under its id, and completes the answer.
pub(crate) async fn complete(
    State(metrics): State<HttpMetrics>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = RequestId::of(request.headers());
    let root = Root::of(request.extensions(), request.uri());
    request.extensions_mut().insert(id.clone());
    let is_over_tls = request.headers().get(FORWARDED_PROTO).is_some_and(|proto| proto == "https");
    let method = known_method(request.method().as_str());
    let span = request_span!(method, id.0, Client::of(request.extensions()).0);
    let cause = cause(request.headers());
    if let Some(cause) = &cause {
        span.record("trace_id", cause.trace_id());
    }
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let requested =
        RequestInfo { method, route: matched.as_ref().map(MatchedPath::as_str), cause: cause.as_ref() };
    let traced = server_span(&requested);
    let answering = AssertUnwindSafe(next.run(request)).catch_unwind().instrument(traced.clone());
    let answering = answering.instrument(span.clone());
    // The panic hook has logged the message already; nothing that the panic left half done is used
    // again.
    let response = answering.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response());
    let status = response.status();
    let mut response = span.in_scope(|| traced.in_scope(|| with_body(response, &id, &root)));
    let is_placed = response.extensions().get::<Placed>().is_some();
    let headers = response.headers_mut();
    if !is_placed {
        place(headers, &root);
    }
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // A server that has more than the API decides this for itself.
    if is_over_tls && root.is_server() {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(TLS_ONLY));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answered(&traced, response.status().as_u16());
    metrics.answered(&requested, response.status().as_u16(), started.elapsed());
    span.in_scope(|| tracing::debug!(status = status.as_u16(), "answered"));
    response
}

/// The caller's trace. An invalid or repeated header is ignored.
fn cause(headers: &HeaderMap) -> Option<Traceparent> {
    let mut given = headers.get_all("traceparent").iter();
    let one = given.next().filter(|_| given.next().is_none())?;
    one.to_str().ok()?.parse().ok()
}

/// Puts the root before a location, which the routes know from there.
fn place(headers: &mut HeaderMap, root: &Root) {
    if let Some(location) = headers.get(header::LOCATION).filter(|_| !root.is_server())
        && let Some(own) = location.to_str().ok().filter(|location| location.starts_with('/'))
        && let Ok(location) = HeaderValue::from_str(&root.path(own))
    {
        headers.insert(header::LOCATION, location);
    }
}

/// Writes the body of a failure, and logs it: the problem attached by our code, or one derived from
/// the status.
/// JSON bodies and pages are kept: only our handlers write them, and they say more.
fn with_body(response: Response, id: &RequestId, root: &Root) -> Response {
    let failed = response.status().is_client_error() || response.status().is_server_error();
    let written = |kind: &HeaderValue| kind == "application/json" || kind == "text/html; charset=utf-8";
    if !failed || response.headers().get(header::CONTENT_TYPE).is_some_and(written) {
        return response;
    }
    let (mut parts, _) = response.into_parts();
    let problem = parts.extensions.remove::<Problem>().unwrap_or_else(|| Problem::of_status(parts.status));
    problem.log();
    let problem = if root.is_server() { problem } else { problem.below(&root.path(DOCS)) };
    parts.status = problem.kind.status();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = serde_json::to_vec(&problem.details(&id.0)).unwrap_or_default();
    Response::from_parts(parts, Body::from(body))
}

/// A complete answer as bytes, for a connection that is not served. The connection ends with it.
pub(crate) fn unserved(problem: &Problem) -> Vec<u8> {
    let (status, id) = (problem.kind.status(), RequestId::new().0);
    let body = serde_json::to_string(&problem.details(&id)).unwrap_or_default();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\nx-request-id: {id}\r\n\
         retry-after: 1\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_plain_ids_are_taken_over() {
        let id = |text: &'static str| {
            let headers = HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_static(text))]);
            RequestId::of(&headers).0.to_string()
        };
        assert_eq!(id("a-1_B.2"), "a-1_B.2");
        for text in ["", "with space", "a/b", "<script>"] {
            assert_ne!(id(text), text);
        }
        assert_ne!(RequestId::of(&HeaderMap::new()).0, RequestId::of(&HeaderMap::new()).0);
    }
}
