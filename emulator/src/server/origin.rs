//! The page that a request comes from: pages of other sites may read from the emulator, but change
//! nothing.
//!
//! It refuses nothing itself, and does not protect against programs, which can send any header.

use axum::http::{HeaderMap, Uri, header};

/// Whether the request comes from another site's page: browsers say so. Programs do not, and are
/// let through.
pub(super) fn is_foreign(headers: &HeaderMap, uri: &Uri) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let host = headers.get(header::HOST).map(|host| host.as_bytes());
    let host = host.or_else(|| uri.authority().map(|authority| authority.as_str().as_bytes()));
    host.is_none() || origin.as_bytes().strip_prefix(b"http://") != host
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn accepts_only_the_origin_of_the_requested_address() {
        let table = [
            (None, Some("localhost:8085"), "/", false),
            (Some("http://localhost:8085"), Some("localhost:8085"), "/", false),
            (Some("http://localhost:8085"), None, "http://localhost:8085/", false),
            (Some("http://localhost:8085"), None, "/", true),
            (Some("http://localhost:80"), Some("localhost:8085"), "/", true),
            (Some("https://localhost:8085"), Some("localhost:8085"), "/", true),
            (Some("null"), Some("localhost:8085"), "/", true),
        ];
        for (origin, host, uri, expected) in table {
            let mut headers = HeaderMap::new();
            for (name, value) in [(header::ORIGIN, origin), (header::HOST, host)] {
                if let Some(value) = value {
                    headers.insert(name, HeaderValue::from_static(value));
                }
            }
            assert_eq!(is_foreign(&headers, &Uri::from_static(uri)), expected, "{origin:?} {host:?} {uri}");
        }
    }
}
