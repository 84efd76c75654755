//! Pages of other sites that may use the emulator: which ones, and what their browsers are told.
//!
//! No browser is told anything about a page that was not allowed. Whether a request is answered is
//! decided in `origin`.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::http::uri::Authority;
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
    /// Takes origins as people write them.
    pub(super) fn new(origins: &[String]) -> io::Result<Self> {
        let origins = origins.iter().map(|origin| normal(origin).ok_or_else(|| malformed(origin)));
        Ok(Self(origins.collect::<io::Result<_>>()?))
    }

    /// The origin of a request, if it is allowed.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let allows = |allowed: &String| allowed == ANY || allowed.as_bytes() == origin.as_bytes();
        self.0.iter().any(allows).then(|| origin.clone())
    }
}

/// An origin as browsers send it: in lower case, without a path, and without the usual port of its
/// scheme. `None` if it is none.
fn normal(text: &str) -> Option<String> {
    let origin = text.trim_end_matches('/').to_ascii_lowercase();
    if origin == ANY {
        return Some(origin);
    }
    let (scheme, address) = origin.split_once("://")?;
    let authority = Authority::try_from(address).ok()?;
    let in_scheme = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_scheme = !scheme.is_empty() && scheme.bytes().all(in_scheme);
    let is_address = !authority.host().is_empty() && address.is_ascii() && !address.contains('@');
    if !is_scheme || !is_address {
        return None;
    }
    let usual_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    Some(format!("{scheme}://{}", address.strip_suffix(usual_port).unwrap_or(address)))
}

fn malformed(origin: &str) -> io::Error {
    let words = format!(
        "`{origin}` is not an origin to allow: write a scheme and a host without a path, such as \
         http://localhost:9090, or * for all"
    );
    io::Error::new(io::ErrorKind::InvalidInput, words)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_compared_as_browsers_send_it() {
        for (written, sent) in [
            ("http://localhost:9090", "http://localhost:9090"),
            ("http://localhost:9090/", "http://localhost:9090"),
            ("HTTP://UI.Example:80", "http://ui.example"),
            ("https://ui.example:443/", "https://ui.example"),
            ("https://ui.example:80", "https://ui.example:80"),
            ("http://[::1]:80", "http://[::1]"),
            ("http://[::80]", "http://[::80]"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
            ("*", "*"),
        ] {
            assert_eq!(normal(written).as_deref(), Some(sent), "{written}");
        }
        for wrong in ["", "null", "localhost:9090", "http://", "http://a/path", "http://a@b", "http://a b"] {
            let refusal = AllowedOrigins::new(&[wrong.to_owned()]).unwrap_err();
            assert!(refusal.to_string().contains("such as http://localhost:9090"), "{refusal}");
        }
    }
}
