//! Where the configuration lets the targets of a canvas be. Does not resolve names.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use url::Host;

use super::address::IpRange;
use wakeq::CanvasId;

/// HTTP ports, which need no permission.
const HTTP_PORTS: [RangeInclusive<u16>; 3] = [443..=443, 80..=80, 8000..=8999];

/// Whether it is a usual HTTP port: 443, 80, or 8000 to 8999.
pub(super) fn is_http_port(port: u16) -> bool {
    HTTP_PORTS.iter().any(|ports| ports.contains(&port))
}

/// The canvases whose targets a permission covers: `*` for all, `queues` for registered queues, or
/// a single canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CanvasFilter {
    All,
    Canvas(CanvasId),
}

impl CanvasFilter {
    /// Whether it covers this canvas.
    pub(super) fn includes(self, canvas: CanvasId) -> bool {
        match self {
            Self::All => true,
            Self::Canvas(allowed) => allowed == canvas,
        }
    }

    /// The canvas, if it covers a single one.
    pub(super) fn single(self) -> Option<CanvasId> {
        match self {
            Self::All => None,
            Self::Canvas(canvas) => Some(canvas),
        }
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        match text {
            "*" => Some(Self::All),
            "queues" => Some(Self::Canvas(CanvasId::OF_QUEUES)),
            canvas => canvas.parse().ok().filter(|canvas: &CanvasId| !canvas.is_reserved()).map(Self::Canvas),
        }
    }
}

/// A place where the targets of a canvas may be although it is not public, or its port is not a
/// usual HTTP port: `CANVAS=10.1.2.0/24:8080`, `CANVAS=orders.internal:9000-9010`,
/// `*=public:1024-65535`.
///
/// The first part says whose targets: a canvas, `queues` for those of registered queues, or `*` for
/// all. Then comes an IP range, the host in the URL (wherever its name leads), or `public` for
/// every public address. The ports follow; by default those of HTTP: 443, 80 and 8000 to 8999. An
/// IPv6 address with ports is put in brackets, `[fd00::/8]:9000`. Metadata services and link-local
/// addresses stay refused.
///
/// ```
/// use wakeq_service::delivery::{AllowedPlace, InvalidAllowedPlace};
///
/// for text in ["*=10.0.0.0/8", "queues=[fd00::/8]:8080", "*=orders.internal:9000-9010"] {
///     assert!(text.parse::<AllowedPlace>().is_ok());
/// }
/// assert_eq!("10.0.0.0/8".parse::<AllowedPlace>(), Err(InvalidAllowedPlace), "it lacks `CANVAS=`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedPlace {
    pub(super) applies_to: CanvasFilter,
    destination: Destination,
    ports: Option<RangeInclusive<u16>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Destination {
    Public,
    /// A host as in URLs, without a trailing dot.
    Name(String),
    Range(IpRange),
}

/// The text is not an allowed place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an allowed place for targets looks like CANVAS=10.1.2.0/24:8080 or \
     CANVAS=orders.internal:9000-9010: a canvas, or `queues`, or `*` for every canvas; a range of \
     addresses with no bits set after its prefix, a host, or `public`; and a port, or two with a \
     hyphen; IPv6 in brackets, [fd00::/8]:8080"
)]
pub struct InvalidAllowedPlace;

impl AllowedPlace {
    /// Whether it opens this port.
    fn opens(&self, port: u16) -> bool {
        self.ports.as_ref().map_or(is_http_port(port), |ports| ports.contains(&port))
    }

    /// Whether it might open this port of a host whose addresses are not known yet.
    pub(super) fn may_open(&self, host: &str, port: u16) -> bool {
        let may = match &self.destination {
            Destination::Public | Destination::Range(_) => true,
            Destination::Name(name) => is_host(name, host),
        };
        may && self.opens(port)
    }

    /// The ranges that it opens for this host and port; an IPv4 range opens no IPv6 addresses.
    pub(super) fn ranges(&self, host: &str, port: u16) -> Vec<IpRange> {
        match &self.destination {
            Destination::Range(range) if self.opens(port) => vec![*range],
            Destination::Name(name) if is_host(name, host) && self.opens(port) => {
                IpRange::EVERYTHING.to_vec()
            }
            Destination::Range(_) | Destination::Name(_) | Destination::Public => Vec::new(),
        }
    }

    /// Whether it opens this port at a public address.
    pub(super) fn opens_public(&self, host: &str, address: IpAddr, port: u16) -> bool {
        let is_there = match &self.destination {
            Destination::Public => true,
            Destination::Name(name) => is_host(name, host),
            Destination::Range(range) => range.contains(address),
        };
        is_there && self.opens(port)
    }
}

fn is_host(name: &str, host: &str) -> bool {
    name == host.trim_end_matches('.')
}

impl FromStr for AllowedPlace {
    type Err = InvalidAllowedPlace;

    fn from_str(text: &str) -> Result<Self, InvalidAllowedPlace> {
        let (applies_to, place) = text.split_once('=').ok_or(InvalidAllowedPlace)?;
        let applies_to = CanvasFilter::read(applies_to).ok_or(InvalidAllowedPlace)?;
        let (place, ports) = match place.strip_prefix('[').map(|place| place.split_once(']')) {
            Some(bracketed) => {
                let (place, ports) = bracketed.ok_or(InvalidAllowedPlace)?;
                let ports = if ports.is_empty() {
                    None
                } else {
                    Some(ports.strip_prefix(':').ok_or(InvalidAllowedPlace)?)
                };
                (place, ports)
            }
            // An IPv6 address without brackets has no ports.
            None if place.parse::<IpRange>().is_ok() => (place, None),
            None => place.rsplit_once(':').map_or((place, None), |(place, ports)| (place, Some(ports))),
        };
        let ports = ports.map(read_ports).transpose()?;
        Ok(Self { applies_to, destination: Destination::read(place)?, ports })
    }
}

impl Destination {
    fn read(text: &str) -> Result<Self, InvalidAllowedPlace> {
        if text == "public" {
            return Ok(Self::Public);
        }
        if let Ok(range) = text.parse() {
            return Ok(Self::Range(range));
        }
        match Host::parse(text.trim_end_matches('.')) {
            // A malformed range is not a name.
            Ok(Host::Domain(name)) if !text.contains('/') => Ok(Self::Name(name)),
            Ok(Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_)) | Err(_) => Err(InvalidAllowedPlace),
        }
    }
}

fn read_ports(text: &str) -> Result<RangeInclusive<u16>, InvalidAllowedPlace> {
    let port = |digits: &str| {
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u16>().ok().filter(|port| is_number && *port > 0).ok_or(InvalidAllowedPlace)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let ports = port(first)?..=port(last)?;
    if ports.is_empty() { Err(InvalidAllowedPlace) } else { Ok(ports) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_whole_or_not_at_all() {
        let canvas = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
        let opens = |text: &str, host: &str, port: u16| {
            let place: AllowedPlace = text.parse().unwrap();
            (!place.ranges(host, port).is_empty(), place.may_open(host, port))
        };
        assert_eq!(opens("*=10.0.0.0/8:8080", "a.example", 8080), (true, true));
        assert_eq!(opens("*=10.0.0.0/8:8080", "a.example", 443), (false, false));
        assert_eq!(opens("*=10.0.0.0/8", "a.example", 8999), (true, true));
        assert_eq!(opens("*=10.0.0.0/8", "a.example", 9200), (false, false));
        assert_eq!(opens("*=[fd00::/8]:9200", "a.example", 9200), (true, true));
        assert_eq!(opens("*=[::1]", "a.example", 80), (true, true));
        assert_eq!(opens("*=::1", "a.example", 80), (true, true));
        assert_eq!(opens("*=Orders.Internal.:9000-9010", "orders.internal", 9010), (true, true));
        assert_eq!(opens("*=orders.internal:9000-9010", "orders.internal.", 9011), (false, false));
        assert_eq!(opens("*=orders.internal:9000", "others.internal", 9000), (false, false));
        assert_eq!(opens("*=public:1024-65535", "a.example", 9443), (false, true));
        for (text, applies_to) in [
            ("*=10.0.0.1", None),
            ("queues=10.0.0.1", Some(CanvasId::OF_QUEUES)),
            (&format!("{canvas}=10.0.0.1"), Some(canvas.parse().unwrap())),
        ] {
            assert_eq!(text.parse::<AllowedPlace>().unwrap().applies_to.single(), applies_to, "{text}");
        }
        for text in [
            "",
            "10.0.0.0/8",
            "=10.0.0.0/8",
            "ada=10.0.0.0/8",
            "ffffffff-ffff-ffff-ffff-ffffffffffff=10.0.0.0/8",
            "*=",
            "*=10.0.0.1/8",
            "*=10.0.0.0/8:",
            "*=10.0.0.0/8:0",
            "*=10.0.0.0/8:+80",
            "*=10.0.0.0/8:90-80",
            "*=10.0.0.0/8:80-",
            "*=10.0.0.0/8:65536",
            "*=[fd00::/8",
            "*=[fd00::/8]8080",
            "*=a b",
            "*=https://a.example",
        ] {
            assert_eq!(text.parse::<AllowedPlace>(), Err(InvalidAllowedPlace), "{text}");
        }
    }
}
