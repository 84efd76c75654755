//! The outermost layer: every request gets an id, every failure a body, every answer its general headers.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;
use uuid::Uuid;

use super::problem::Problem;
use crate::telemetry::request_span;

/// The header with a request's id, both ways.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request's id: the caller's, if it has an acceptable form, else one made here.
#[derive(Clone, Debug)]
pub(super) struct RequestId(pub(super) Arc<str>);

impl RequestId {
    fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
        match given.filter(|text| acceptable(text)) {
            Some(text) => Self(text.into()),
            None => Self(Uuid::now_v7().to_string().into()),
        }
    }
}

fn acceptable(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

/// Runs a request under its id and completes the answer.
pub(super) async fn complete(mut request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    request.extensions_mut().insert(id.clone());
    let span = request_span!(request.method(), id.0);
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status();
    let mut response = with_body(response, &id);
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    span.in_scope(|| tracing::debug!(status = status.as_u16(), "answered"));
    response
}

/// A failure that no handler of ours described is described by its status.
fn with_body(response: Response, id: &RequestId) -> Response {
    if !response.status().is_client_error() && !response.status().is_server_error() {
        return response;
    }
    let (mut parts, _) = response.into_parts();
    let problem = parts.extensions.remove::<Problem>().unwrap_or_else(|| Problem::of_status(parts.status));
    parts.status = problem.kind.status();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = serde_json::to_vec(&problem.details(&id.0)).unwrap_or_default();
    Response::from_parts(parts, Body::from(body))
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
