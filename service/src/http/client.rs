//! The address of a request's client: the peer of its connection or, behind trusted proxies, the
//! address that they report. No one else's report is trusted.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::Response;

use super::problem::Problem;
use crate::delivery::IpRange;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Proxies whose `x-forwarded-for` is trusted. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxies(Arc<[IpRange]>);

impl Proxies {
    pub(crate) fn new(ranges: &[IpRange]) -> Self {
        Self(ranges.into())
    }

    /// Whether the address is one of them.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|range| range.contains(address))
    }

    /// Each proxy appends the address that it was called from, so read from the right, the first
    /// address that is not a trusted proxy is the client's. Anything further left may be forged.
    pub(super) fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> Client {
        let mut client = peer.ip().to_canonical();
        let hops = headers.get_all(FORWARDED_FOR).iter().rev().flat_map(|line| {
            line.to_str().unwrap_or_default().rsplit(',').map(|hop| address(hop.trim())).collect::<Vec<_>>()
        });
        for hop in hops {
            let Some(hop) = hop.filter(|_| self.has(client)) else { break };
            client = hop;
        }
        Client(client)
    }
}

/// Parses an address as proxies write it: alone, with a port, or in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let alone = bare.parse::<IpAddr>().ok();
    alone.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip())).map(|address| address.to_canonical())
}

/// The address of a request's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client(pub(crate) IpAddr);

impl Client {
    /// The address that the connection put into the request's extensions.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self(IpAddr::V6(Ipv6Addr::UNSPECIFIED)))
    }

    /// The unit for counting clients: the address, or for IPv6 its /64 network, since a client has
    /// all addresses of it.
    pub(crate) fn network(self) -> IpAddr {
        match self.0 {
            IpAddr::V4(_) => self.0,
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        }
    }
}

/// Finds out the client of a request from its connection, as a server that is not of this package
/// knows it.
pub(crate) async fn known(State(proxies): State<Proxies>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get().map(|ConnectInfo(peer): &ConnectInfo<SocketAddr>| *peer);
    if let Some(peer) = peer {
        let client = proxies.client(peer, request.headers());
        request.extensions_mut().insert(client);
    }
    next.run(request).await
}

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self::of(&parts.extensions))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn client(peer: &str, trusted: &[&str], lines: &[&'static str]) -> String {
        let ranges: Vec<IpRange> = trusted.iter().map(|range| range.parse().unwrap()).collect();
        let lines = lines.iter().map(|line| (FORWARDED_FOR, HeaderValue::from_static(line)));
        let headers = lines.fold(HeaderMap::new(), |mut headers, (name, line)| {
            headers.append(name, line);
            headers
        });
        let peer = SocketAddr::new(peer.parse().unwrap(), 4711);
        Proxies::new(&ranges).client(peer, &headers).0.to_string()
    }

    #[test]
    fn without_trusted_proxies_the_peer_counts() {
        assert_eq!(client("203.0.113.7", &[], &[]), "203.0.113.7");
        assert_eq!(client("203.0.113.7", &[], &["198.51.100.1"]), "203.0.113.7", "a forged header");
        assert_eq!(client("203.0.113.7", &["10.0.0.0/8"], &["198.51.100.1"]), "203.0.113.7");
        assert_eq!(client("::ffff:203.0.113.7", &[], &[]), "203.0.113.7");
    }

    #[test]
    fn behind_trusted_proxies_the_rightmost_untrusted_address_counts() {
        let of = |lines: &[&'static str]| client("10.1.2.3", &["10.0.0.0/8", "fd00::/8"], lines);
        assert_eq!(of(&["198.51.100.1"]), "198.51.100.1");
        assert_eq!(
            of(&["1.1.1.1, 198.51.100.1, 10.9.9.9"]),
            "198.51.100.1",
            "1.1.1.1 is the client's own word"
        );
        assert_eq!(of(&["1.1.1.1", "198.51.100.1"]), "198.51.100.1", "two lines are one list");
        assert_eq!(of(&["198.51.100.1:4711, fd00::1"]), "198.51.100.1");
        assert_eq!(of(&["[2001:db8::1]:4711"]), "2001:db8::1");
        assert_eq!(of(&["2001:db8::1"]), "2001:db8::1");
        assert_eq!(of(&[]), "10.1.2.3", "a proxy's own request");
        assert_eq!(of(&["1.1.1.1, unknown"]), "10.1.2.3", "the list ends at what is not an address");
        assert_eq!(of(&["1.1.1.1, , 10.4.4.4"]), "10.4.4.4");
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let network = |text: &str| Client(text.parse().unwrap()).network().to_string();
        assert_eq!(
            (network("2001:db8:1:2:3::4"), network("203.0.113.7")),
            ("2001:db8:1:2::".into(), "203.0.113.7".into())
        );
    }
}
