//! The page that a request comes from. Unless their origin is allowed, pages of other sites change
//! nothing and read nothing: their requests to change something are refused, and without a header
//! of ours no browser shows them an answer.
//!
//! A page can give its own site's name the address 127.0.0.1, and then counts as a page of the
//! emulator's site. So an emulator on the loopback interface knows its own names, and refuses every
//! other one. It does not protect against programs, which can send any header.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{Request, header};

use super::cors::AllowedOrigins;

/// The names by which container engines reach the loopback interface of their host.
const HOST_OF_CONTAINERS: [&str; 2] = ["host.docker.internal", "host.containers.internal"];

const FOREIGN_PAGE: &str = "Pages of other sites must not change this emulator. It can be started with \
                            --allow-origin for the origin of this one.";
const FOREIGN_NAME: &str = "This emulator listens on the loopback interface, and is reached there by localhost or an \
                            address like 127.0.0.1 only, because a page of another site may be behind any other name. \
                            Use one of these, or listen on another address.";

/// Decides which requests are answered.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    /// Whether the listener is on the loopback interface.
    pub(super) is_loopback: bool,
    /// The origins of other sites' pages that may read and change everything.
    pub(super) allowed: AllowedOrigins,
}

impl Guard {
    /// Why a request is refused, if it is. gRPC clients may name any host, and send no origin, as
    /// browsers do.
    pub(super) fn refusal<B>(&self, request: &Request<B>, is_grpc: bool) -> Option<&'static str> {
        let origin = request.headers().get(header::ORIGIN).map(|origin| origin.as_bytes());
        // The host of the page: empty if it has none of ours, as one over TLS.
        let page = origin.map(|origin| origin.strip_prefix(b"http://").unwrap_or_default());
        let is_allowed = self.allowed.of(request.headers()).is_some();
        let host = host(request);
        let named = if is_grpc { page.filter(|_| !is_allowed) } else { host };
        if self.is_loopback && named.is_some_and(|name| !is_local(name)) {
            return Some(FOREIGN_NAME);
        }
        let foreign = page.is_some() && !is_allowed && (host.is_none() || page != host);
        (foreign && !is_grpc && !request.method().is_safe()).then_some(FOREIGN_PAGE)
    }
}

fn host<B>(request: &Request<B>) -> Option<&[u8]> {
    let host = request.headers().get(header::HOST).map(|host| host.as_bytes());
    host.or_else(|| request.uri().authority().map(|authority| authority.as_str().as_bytes()))
}

/// Whether this is a name or an address of the loopback interface, with a port or without.
fn is_local(host: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(host) else { return false };
    let name = authority.host().trim_matches(['[', ']']);
    if let Ok(address) = name.parse::<IpAddr>().map(|address| address.to_canonical()) {
        // Clients are often told the unspecified address that a server listens on.
        return address.is_loopback() || address.is_unspecified();
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || HOST_OF_CONTAINERS.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, origin: Option<&str>, host: Option<&str>, uri: &str) -> Request<()> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in [(header::ORIGIN, origin), (header::HOST, host)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        request.body(()).unwrap()
    }

    fn guard(is_loopback: bool) -> Guard {
        Guard { is_loopback, allowed: AllowedOrigins::default() }
    }

    #[test]
    fn only_pages_of_the_requested_address_change_something() {
        let table = [
            (None, Some("localhost:8085"), "/", None),
            (Some("http://localhost:8085"), Some("localhost:8085"), "/", None),
            (Some("http://localhost:8085"), None, "http://localhost:8085/", None),
            (Some("http://localhost:8085"), None, "/", Some(FOREIGN_PAGE)),
            (Some("http://localhost:80"), Some("localhost:8085"), "/", Some(FOREIGN_PAGE)),
            (Some("https://localhost:8085"), Some("localhost:8085"), "/", Some(FOREIGN_PAGE)),
            (Some("null"), Some("localhost:8085"), "/", Some(FOREIGN_PAGE)),
        ];
        for (origin, host, uri, expected) in table {
            for is_loopback in [true, false] {
                let guard = guard(is_loopback);
                let refusal = guard.refusal(&request("POST", origin, host, uri), false);
                assert_eq!(refusal, expected, "{origin:?} {host:?} {uri}");
                assert_eq!(guard.refusal(&request("GET", origin, host, uri), false), None);
            }
        }
    }

    #[test]
    fn a_page_of_an_allowed_origin_changes_something_but_by_no_name_that_is_not_ours() {
        let origin = "https://ui.example";
        for allowed in [origin, "*"] {
            let allowed = AllowedOrigins::new(&[allowed.to_owned()]).unwrap();
            let guard = Guard { is_loopback: true, allowed };
            let refusal =
                |host, is_grpc| guard.refusal(&request("POST", Some(origin), Some(host), "/"), is_grpc);
            assert_eq!(refusal("localhost:8085", false), None);
            assert_eq!(refusal("localhost:8085", true), None);
            assert_eq!(refusal("ui.example", false), Some(FOREIGN_NAME));
        }
        let allowed = AllowedOrigins::new(&[origin.to_owned()]).unwrap();
        let guard = Guard { is_loopback: true, allowed };
        for other in ["http://ui.example", "https://ui.example:8443", "null"] {
            let other = request("POST", Some(other), Some("localhost:8085"), "/");
            assert_eq!(guard.refusal(&other, false), Some(FOREIGN_PAGE));
        }
    }

    #[test]
    fn on_the_loopback_interface_no_other_name_is_answered() {
        let ours = [
            "localhost",
            "LOCALHOST.:8085",
            "emulator.localhost:8085",
            "127.0.0.1:8085",
            "127.9.9.9",
            "[::1]:8085",
            "[::ffff:127.0.0.1]",
            "0.0.0.0:8085",
            "host.docker.internal:8085",
        ];
        let others = [
            "evil.example:8085",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "10.0.0.1:8085",
            "[2001:db8::1]",
            "",
            "a b",
        ];
        for (hosts, expected) in [(&ours[..], None), (&others[..], Some(FOREIGN_NAME))] {
            for host in hosts {
                let origin = format!("http://{host}");
                let page = |method| request(method, Some(&origin), Some(host), "/");
                for method in ["GET", "POST"] {
                    let refusal = guard(true).refusal(&page(method), false);
                    assert_eq!(refusal, expected, "{method} {host}");
                    assert_eq!(guard(false).refusal(&page(method), false), None, "{host}");
                }
                assert_eq!(guard(true).refusal(&page("POST"), true), expected, "gRPC {host}");
                let program = request("POST", None, Some("pubsub.googleapis.com"), "/");
                assert_eq!(guard(true).refusal(&program, true), None, "without an origin");
            }
        }
        assert_eq!(guard(true).refusal(&request("GET", None, None, "/"), false), None);
    }
}
