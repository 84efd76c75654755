//! The rules of a deployment for its requests: schemes, ports, names, addresses and audiences.
//! Pure: resolves nothing.

use std::net::IpAddr;

use url::Host;

use super::address::{self, AddressKind, IpRange};
use super::allowed::{AllowedPlace, CanvasFilter, is_http_port};
use super::audience::AllowedAudience;
use super::{DeliveryConfig, names};
use wakeq::CanvasId;
use wakeq::targets::TargetUrl;

/// Ports of other protocols, whose servers might misread a request as their own. Browsers refuse
/// them as well.
const PORTS_REFUSED: &[u16] = &[
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103,
    104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514,
    515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723,
    2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
];

/// Why nothing is sent to a target, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedTarget {
    /// Plain HTTP is not allowed by the deployment.
    #[error(
        "plain http is refused: use https, or have the operator allow it with --deliver-http (WAKEQ_DELIVER_HTTP), which \
         a command on the database needs as well as the workers"
    )]
    PlainHttp,
    /// Not a usual HTTP port, and not opened.
    #[error(
        "port {0} is refused: by default targets may use 443, 80 or one of 8000 to 8999; the \
         operator opens others with --deliver-to CANVAS=HOST:{0} (WAKEQ_DELIVER_TO)"
    )]
    PortNotOpened(u16),
    /// The port belongs to another protocol.
    #[error("port {0} is refused: it belongs to a protocol other than HTTP")]
    Port(u16),
    /// The host is a metadata service's name.
    #[error("its host names a metadata service: this is never allowed")]
    MetadataName,
    /// The host leads to a metadata service's address.
    #[error("its host resolves to an address of a metadata service: this is never allowed")]
    Metadata,
    /// The host leads to a link-local address.
    #[error("its host resolves to a link-local address, as metadata services use: this is never allowed")]
    LinkLocal,
    /// The host leads to another non-public address.
    #[error(
        "its host resolves to an address that is {0}: the operator allows such addresses, by \
         canvas, range and port, with --deliver-to CANVAS=RANGE:PORT (WAKEQ_DELIVER_TO)"
    )]
    Address(AddressKind),
    /// The HTTP client would parse the URL differently from the check.
    #[error("its URL can't be sent as it is: percent-encode its unusual characters (%20 and so on)")]
    Unclear,
    /// The canvas may not have tokens for this audience sent to this origin.
    #[error(
        "a token for this audience says that it comes from this deployment's workers, so the operator has to allow it, with \
         --deliver-audience CANVAS=AUDIENCE={origin} (WAKEQ_DELIVER_AUDIENCE)"
    )]
    Audience {
        /// The URL's origin.
        origin: String,
    },
    /// A token would be sent over plain HTTP.
    #[error("a token is sent over https only")]
    TokenInClear,
}

impl From<AddressKind> for RefusedTarget {
    fn from(kind: AddressKind) -> Self {
        match kind {
            AddressKind::Metadata => Self::Metadata,
            AddressKind::LinkLocal => Self::LinkLocal,
            AddressKind::Loopback
            | AddressKind::Private
            | AddressKind::Shared
            | AddressKind::Unspecified
            | AddressKind::Multicast
            | AddressKind::Documentation
            | AddressKind::Benchmarking
            | AddressKind::Tunnelled
            | AddressKind::Reserved => Self::Address(kind),
        }
    }
}

/// The rules of a deployment for the targets of one canvas, or of all canvases without permissions
/// of their own.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    allow: Vec<AllowedPlace>,
    allow_http: bool,
    audiences: Vec<AllowedAudience>,
}

impl Rules {
    /// The rules of a canvas; with `None`, only those that apply to all canvases.
    pub(super) fn of(config: &DeliveryConfig, canvas: Option<CanvasId>) -> Self {
        let counts = |filter: CanvasFilter| filter.single().is_none_or(|single| canvas == Some(single));
        Self {
            allow: config.allow.iter().filter(|place| counts(place.applies_to)).cloned().collect(),
            allow_http: config.allow_http,
            audiences: config
                .audiences
                .iter()
                .filter(|audience| counts(audience.applies_to))
                .cloned()
                .collect(),
        }
    }

    /// The checks of a URL that need no name resolution.
    pub(super) fn check(&self, url: &TargetUrl) -> Result<(), RefusedTarget> {
        if !url.is_https() && !self.allow_http {
            return Err(RefusedTarget::PlainHttp);
        }
        if PORTS_REFUSED.contains(&url.port()) {
            return Err(RefusedTarget::Port(url.port()));
        }
        let uri: hyper::Uri = url.as_str().parse().map_err(|_| RefusedTarget::Unclear)?;
        let host = url.host();
        if uri.host() != Some(host.to_string().as_str()) || uri.port_u16().unwrap_or(url.port()) != url.port()
        {
            return Err(RefusedTarget::Unclear);
        }
        let port = url.port();
        match host {
            Host::Domain(name) => self.check_name(name).and_then(|()| self.check_port(name, port)),
            Host::Ipv4(address) => self.check_address("", port, IpAddr::V4(address)).map(drop),
            Host::Ipv6(address) => self.check_address("", port, IpAddr::V6(address)).map(drop),
        }
    }

    /// Whether the port may be open at any address of the host.
    fn check_port(&self, host: &str, port: u16) -> Result<(), RefusedTarget> {
        if is_http_port(port) || self.allow.iter().any(|place| place.may_open(host, port)) {
            Ok(())
        } else {
            Err(RefusedTarget::PortNotOpened(port))
        }
    }

    /// Whether tokens for this audience may be sent to the URL.
    pub(super) fn check_audience(&self, url: &TargetUrl, audience: &str) -> Result<(), RefusedTarget> {
        let origin = url.origin();
        if !url.is_https() {
            return Err(RefusedTarget::TokenInClear);
        }
        if self.audiences.iter().any(|allowed| allowed.allows_at(audience, url)) {
            return Ok(());
        }
        Err(RefusedTarget::Audience { origin })
    }

    pub(super) fn check_name(&self, name: &str) -> Result<(), RefusedTarget> {
        if names::is_metadata_name(name) { Err(RefusedTarget::MetadataName) } else { Ok(()) }
    }

    /// Returns the address to connect to; `host` is the name that led there, if any.
    pub(super) fn check_address(
        &self,
        host: &str,
        port: u16,
        address: IpAddr,
    ) -> Result<IpAddr, RefusedTarget> {
        let ranges: Vec<IpRange> = self.allow.iter().flat_map(|place| place.ranges(host, port)).collect();
        let checked = address::check(address, &ranges)?;
        let is_open = is_http_port(port)
            || !address::is_public(checked)
            || self.allow.iter().any(|place| place.opens_public(host, checked, port));
        if is_open { Ok(checked) } else { Err(RefusedTarget::PortNotOpened(port)) }
    }

    /// Returns the addresses to connect to. One refused address refuses them all: a name that leads
    /// to both kinds of places is not trusted, and the outcome must not depend on their order.
    pub(super) fn check_addresses(
        &self,
        host: &str,
        port: u16,
        addresses: &[IpAddr],
    ) -> Result<Vec<IpAddr>, RefusedTarget> {
        addresses.iter().map(|address| self.check_address(host, port, *address)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], allow_http: bool) -> Rules {
        let allow = allow.iter().map(|place| place.parse().unwrap()).collect();
        let audiences = ["*=orders=https://orders-x.a.run.app", "*=https://orders-x.a.run.app"];
        let audiences = audiences.iter().map(|audience| audience.parse().unwrap()).collect();
        Rules { allow, allow_http, audiences }
    }

    fn checked(rules: &Rules, url: &str) -> Result<(), RefusedTarget> {
        rules.check(&url.parse().unwrap())
    }

    #[test]
    fn a_url_is_checked_without_resolving() {
        let strict = rules(&[], false);
        for url in [
            "https://a.example/",
            "https://1.1.1.1:8443/a?b=|{}\"<>^`",
            "https://[2606:4700::1111]/",
            "https://a_b.example./x",
        ] {
            assert_eq!(checked(&strict, url), Ok(()), "{url}");
        }
        for (url, refused) in [
            ("http://a.example/", RefusedTarget::PlainHttp),
            ("https://a.example:22/", RefusedTarget::Port(22)),
            ("https://a.example:0/", RefusedTarget::Port(0)),
            ("https://a.example:9200/", RefusedTarget::PortNotOpened(9200)),
            ("https://1.1.1.1:2375/", RefusedTarget::PortNotOpened(2375)),
            ("https://a.example:7999/", RefusedTarget::PortNotOpened(7999)),
            ("https://a.example:9000/", RefusedTarget::PortNotOpened(9000)),
            ("https://metadata.google.internal./", RefusedTarget::MetadataName),
            ("https://0xa9fea9fe/", RefusedTarget::Metadata),
            ("https://[::ffff:10.0.0.1]/", RefusedTarget::Address(AddressKind::Private)),
            ("https://017700000001/", RefusedTarget::Address(AddressKind::Loopback)),
        ] {
            assert_eq!(checked(&strict, url), Err(refused), "{url}");
        }
        let home = rules(&["*=127.0.0.1", "*=0.0.0.0/0"], true);
        assert_eq!(checked(&home, "http://127.1:8000/"), Ok(()));
        assert_eq!(checked(&home, "http://169.254.169.254/"), Err(RefusedTarget::Metadata));
        assert_eq!(checked(&home, "http://metadata/"), Err(RefusedTarget::MetadataName));
        assert_eq!(
            checked(&home, "http://a.example:22/"),
            Err(RefusedTarget::Port(22)),
            "never, however it is opened"
        );
    }

    #[test]
    fn a_range_is_open_at_its_ports_and_for_its_canvas_alone() {
        let (ours, theirs) = (CanvasId(uuid::Uuid::from_u128(1)), CanvasId(uuid::Uuid::from_u128(2)));
        let allow = [
            &format!("{ours}=10.0.0.0/8:8080"),
            &format!("{ours}=orders.internal:9000"),
            "queues=10.0.0.1:80",
            "*=public:9443",
        ];
        let allow = allow.iter().map(|place| place.parse().unwrap()).collect();
        let config = DeliveryConfig { allow, ..DeliveryConfig::default() };
        let private = |canvas: Option<CanvasId>, host: &str, port: u16| {
            Rules::of(&config, canvas).check_address(host, port, "10.0.0.1".parse().unwrap()).is_ok()
        };
        let public = |host: &str, port: u16| {
            Rules::of(&config, Some(ours)).check_address(host, port, "1.1.1.1".parse().unwrap()).is_ok()
        };
        assert!(private(Some(ours), "", 8080) && private(Some(ours), "orders.internal", 9000));
        for (host, port) in [("", 443), ("", 80), ("", 2375), ("others.internal", 9000)] {
            assert!(!private(Some(ours), host, port), "{host}:{port}");
        }
        for canvas in [Some(theirs), None] {
            assert!(!private(canvas, "", 8080) && !private(canvas, "orders.internal", 9000));
        }
        assert!(private(Some(CanvasId::OF_QUEUES), "", 80) && !private(Some(CanvasId::OF_QUEUES), "", 8080));
        assert!(public("", 443) && public("", 9443) && public("orders.internal", 9000));
        assert!(!public("", 9444) && !public("", 9000));
    }

    #[test]
    fn one_address_that_is_refused_refuses_its_name() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let strict = rules(&[], false);
        let both = [address("1.1.1.1"), address("10.0.0.1")];
        assert_eq!(
            strict.check_addresses("a.example", 443, &both),
            Err(RefusedTarget::Address(AddressKind::Private))
        );
        assert_eq!(strict.check_addresses("a.example", 443, &both[..1]), Ok(both[..1].to_vec()));
        let mapped = address("::ffff:1.1.1.1");
        assert_eq!(
            strict.check_addresses("a.example", 443, &[mapped]),
            Ok(vec![both[0]]),
            "what was checked is connected to"
        );
    }

    #[test]
    fn an_audience_must_match_the_targets_origin() {
        let strict = rules(&[], true);
        let url: TargetUrl = "https://orders-x.a.run.app/events".parse().unwrap();
        let refused = |audience: &str| strict.check_audience(&url, audience).unwrap_err();
        assert_eq!(strict.check_audience(&url, "https://orders-x.a.run.app"), Ok(()));
        assert_eq!(strict.check_audience(&url, "https://orders-x.a.run.app/"), Ok(()));
        assert_eq!(strict.check_audience(&url, "orders"), Ok(()));
        for audience in
            ["https://payments-x.a.run.app", "https://orders-x.a.run.app.evil.example", "", "order"]
        {
            assert!(matches!(refused(audience), RefusedTarget::Audience { .. }), "{audience}");
        }
        for elsewhere in ["https://evil.example/", "https://orders-x.a.run.app:8443/"] {
            let refused = strict.check_audience(&elsewhere.parse().unwrap(), "orders").unwrap_err();
            assert!(matches!(refused, RefusedTarget::Audience { .. }), "{elsewhere}");
        }
        let plain: TargetUrl = "http://orders.example/".parse().unwrap();
        assert_eq!(strict.check_audience(&plain, "http://orders.example"), Err(RefusedTarget::TokenInClear));
    }
}
