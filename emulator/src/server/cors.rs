//! Pages of other sites that may use the emulator: which ones, and what their browsers are told.
//!
//! No browser is told anything about a page that was not allowed. Whether a request is answered is
//! decided in `origin`.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};

/// Allows any origin.
const ANY: &str = "*";

const METHODS: &str = "DELETE, GET, PATCH, POST, PUT";

/// How long a browser may remember what it was told, in seconds.
const MAX_AGE: &str = "600";

/// The origins whose pages may use the emulator: none by default.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowedOrigins(Arc<[String]>);

impl AllowedOrigins {
    pub(super) fn new(origins: Vec<String>) -> Self {
        Self(origins.into())
    }

    /// The origin of a request, if it is allowed.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let allows = |allowed: &String| allowed == ANY || allowed.as_bytes() == origin.as_bytes();
        self.0.iter().any(allows).then(|| origin.clone())
    }
}

/// The answer to a browser that asks whether a page may send a request. `None` if the request is no
/// such question.
pub(super) fn preflight<B>(request: &Request<B>) -> Option<Response<Body>> {
    let headers = request.headers();
    if request.method() != Method::OPTIONS || !headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answer = response.headers_mut();
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    if let Some(names) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    Some(response)
}

/// Lets the page of this origin read a response.
pub(super) fn allow(response: &mut Response<Body>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}
