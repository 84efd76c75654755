//! Which names the loopback interface has. A page of any site can give its own name the address
//! 127.0.0.1, and would then read what is served there to anyone on this machine.
//!
//! It protects against pages only: programs can send any header.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::http::uri::Authority;

/// The names by which container engines reach the loopback interface of their host.
const HOST_OF_CONTAINERS: [&str; 2] = ["host.docker.internal", "host.containers.internal"];

/// Whether a request may be answered by a listener at this address: on the loopback interface, only
/// one that calls it by a name of that interface, or by none.
pub(super) fn is_answered(listener: SocketAddr, headers: &HeaderMap) -> bool {
    !listener.ip().is_loopback() || headers.get(HOST).is_none_or(|host| is_local(host.as_bytes()))
}

/// With a port or without.
fn is_local(host: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(host) else { return false };
    let name = authority.host().trim_matches(['[', ']']);
    if let Ok(address) = name.parse::<IpAddr>().map(|address| address.to_canonical()) {
        return address.is_loopback() || address.is_unspecified();
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || HOST_OF_CONTAINERS.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn on_the_loopback_interface_no_other_name_is_answered() {
        let (loopback, all) =
            (SocketAddr::from(([127, 0, 0, 1], 9464)), SocketAddr::from(([0, 0, 0, 0], 9464)));
        for (host, expected) in [
            ("localhost:9464", true),
            ("wakeq.localhost", true),
            ("127.0.0.1:9464", true),
            ("[::1]:9464", true),
            ("host.docker.internal:9464", true),
            ("evil.example:9464", false),
            ("127.0.0.1.evil.example", false),
            ("localhost@evil.example", false),
            ("10.0.0.1:9464", false),
        ] {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            assert_eq!(is_answered(loopback, &headers), expected, "{host}");
            assert!(is_answered(all, &headers), "{host}");
        }
        assert!(is_answered(loopback, &HeaderMap::new()), "old programs name no host");
    }
}
