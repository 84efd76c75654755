//! Decides which IP addresses a request may go to, however they were obtained. Only compares
//! ranges; does not resolve or connect.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

// Not a type of the crate ipnet: a single address is a range, too, and settings and messages keep
// the text and the error that they have here.

/// An IP range: `10.0.0.0/8`, `fd00::/8`, or a single address.
///
/// ```
/// use wakeq_service::delivery::IpRange;
///
/// let range: IpRange = "10.0.0.0/8".parse().unwrap();
/// assert!(range.contains("10.1.2.3".parse().unwrap()) && !range.contains("11.0.0.0".parse().unwrap()));
/// assert_eq!("::1".parse::<IpRange>().unwrap().to_string(), "::1/128");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    network: IpAddr,
    prefix: u8,
}

/// The text is not an IP range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a range of addresses looks like 10.0.0.0/8, fd00::/8 or 127.0.0.1, with no bits set after its prefix"
)]
pub struct InvalidIpRange;

impl IpRange {
    const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Self {
        Self { network: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
    }

    const fn v6(start: [u16; 4], prefix: u8) -> Self {
        let [a, b, c, d] = start;
        Self { network: IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)), prefix }
    }

    /// Both address families.
    pub(super) const EVERYTHING: [Self; 2] = [Self::v4(0, 0, 0, 0, 0), Self::v6([0; 4], 0)];

    /// Whether the range contains the address. An IPv4 address is never in an IPv6 range.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.network.is_ipv4() == address.is_ipv4()
            && (bits(self.network) ^ bits(address)) & mask(self.prefix) == 0
    }
}

/// The address as a number, aligned to the most significant bit.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn mask(prefix: u8) -> u128 {
    128_u32.checked_sub(u32::from(prefix)).and_then(|rest| u128::MAX.checked_shl(rest)).unwrap_or(0)
}

impl FromStr for IpRange {
    type Err = InvalidIpRange;

    fn from_str(text: &str) -> Result<Self, InvalidIpRange> {
        let (network, prefix) =
            text.split_once('/').map_or((text, None), |(network, prefix)| (network, Some(prefix)));
        let network: IpAddr = network.parse().map_err(|_| InvalidIpRange)?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= most).ok_or(InvalidIpRange)?
            }
            Some(_) => return Err(InvalidIpRange),
            None => most,
        };
        if bits(network) & !mask(prefix) != 0 {
            return Err(InvalidIpRange);
        }
        Ok(Self { network, prefix })
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.network, self.prefix)
    }
}

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// A cloud's metadata service, which hands credentials to any caller. Never allowed.
    Metadata,
    /// This machine.
    Loopback,
    /// A private network.
    Private,
    /// Shared by the customers of a carrier or a cloud.
    Shared,
    /// The machine's own network segment. Never allowed: many clouds have their metadata services
    /// there.
    LinkLocal,
    /// Not an address, or "this network".
    Unspecified,
    /// A group of machines.
    Multicast,
    /// Reserved for documentation.
    Documentation,
    /// Reserved for network benchmarks.
    Benchmarking,
    /// An IPv4 address embedded in an IPv6 address, which a gateway might extract.
    Tunnelled,
    /// Reserved for protocols, or not assigned yet.
    Reserved,
}

impl fmt::Display for AddressKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Metadata => "of a metadata service",
            Self::Loopback => "of the machine itself (loopback)",
            Self::Private => "private",
            Self::Shared => "shared (carrier-grade NAT)",
            Self::LinkLocal => "link-local",
            Self::Unspecified => "unspecified",
            Self::Multicast => "multicast",
            Self::Documentation => "for documentation",
            Self::Benchmarking => "for benchmarking",
            Self::Tunnelled => "of IPv4 inside IPv6",
            Self::Reserved => "reserved",
        })
    }
}

/// Addresses at which clouds hand credentials to any caller; allowed ranges do not open them.
/// Includes all link-local addresses: clouds place services anywhere among them, and targets are
/// never there.
const NEVER: &[(IpRange, AddressKind)] = &[
    (IpRange::v4(169, 254, 169, 0, 24), AddressKind::Metadata),
    (IpRange::v4(169, 254, 170, 0, 24), AddressKind::Metadata),
    (IpRange::v4(169, 254, 0, 0, 16), AddressKind::LinkLocal),
    (IpRange::v4(100, 100, 100, 200, 32), AddressKind::Metadata),
    (IpRange::v4(192, 0, 0, 192, 32), AddressKind::Metadata),
    (IpRange::v4(168, 63, 129, 16, 32), AddressKind::Metadata),
    (IpRange::v6([0xfd00, 0x0042, 0, 0], 32), AddressKind::Metadata),
    (IpRange::v6([0xfd00, 0x00c1, 0, 0], 32), AddressKind::Metadata),
    (IpRange::v6([0xfd00, 0x0100, 0, 0], 32), AddressKind::Metadata),
    (IpRange::v6([0xfd00, 0x0ec2, 0, 0], 32), AddressKind::Metadata),
    (IpRange::v6([0xfd00, 0xa9fe, 0xa9fe, 0], 48), AddressKind::Metadata),
    (IpRange::v6([0xfd20, 0x00ce, 0, 0], 64), AddressKind::Metadata),
    (IpRange::v6([0xfe80, 0, 0, 0], 10), AddressKind::LinkLocal),
];

/// Non-public ranges according to the special-purpose registries. The first matching range
/// determines the kind.
const SPECIAL: &[(IpRange, AddressKind)] = &[
    (IpRange::v4(0, 0, 0, 0, 8), AddressKind::Unspecified),
    (IpRange::v4(10, 0, 0, 0, 8), AddressKind::Private),
    (IpRange::v4(100, 64, 0, 0, 10), AddressKind::Shared),
    (IpRange::v4(127, 0, 0, 0, 8), AddressKind::Loopback),
    (IpRange::v4(172, 16, 0, 0, 12), AddressKind::Private),
    (IpRange::v4(192, 0, 0, 0, 24), AddressKind::Reserved),
    (IpRange::v4(192, 0, 2, 0, 24), AddressKind::Documentation),
    (IpRange::v4(192, 88, 99, 0, 24), AddressKind::Tunnelled),
    (IpRange::v4(192, 168, 0, 0, 16), AddressKind::Private),
    (IpRange::v4(198, 18, 0, 0, 15), AddressKind::Benchmarking),
    (IpRange::v4(198, 51, 100, 0, 24), AddressKind::Documentation),
    (IpRange::v4(203, 0, 113, 0, 24), AddressKind::Documentation),
    (IpRange::v4(224, 0, 0, 0, 4), AddressKind::Multicast),
    (IpRange::v4(240, 0, 0, 0, 4), AddressKind::Reserved),
    (IpRange::v6([0x64, 0xff9b, 1, 0], 48), AddressKind::Tunnelled),
    (IpRange::v6([0x2001, 0, 0, 0], 32), AddressKind::Tunnelled),
    (IpRange::v6([0x2001, 2, 0, 0], 48), AddressKind::Benchmarking),
    (IpRange::v6([0x2001, 0, 0, 0], 23), AddressKind::Reserved),
    (IpRange::v6([0x2001, 0xdb8, 0, 0], 32), AddressKind::Documentation),
    (IpRange::v6([0x2002, 0, 0, 0], 16), AddressKind::Tunnelled),
    (IpRange::v6([0x3fff, 0, 0, 0], 20), AddressKind::Documentation),
    (IpRange::v6([0xfc00, 0, 0, 0], 7), AddressKind::Private),
    (IpRange::v6([0xfec0, 0, 0, 0], 10), AddressKind::Private),
    (IpRange::v6([0xff00, 0, 0, 0], 8), AddressKind::Multicast),
];

/// The only part of IPv6 with public addresses.
const GLOBAL: IpRange = IpRange::v6([0x2000, 0, 0, 0], 3);
/// The NAT64 prefix, through which machines without IPv4 reach IPv4 addresses.
const NAT64: IpRange = IpRange::v6([0x64, 0xff9b, 0, 0], 96);
const NAT64_LOCAL: IpRange = IpRange::v6([0x64, 0xff9b, 1, 0], 48);

/// Returns the address to connect to, if it is public or in one of the `allowed` ranges. An IPv4
/// address in IPv6 notation is converted first. An IPv4 address that a gateway might extract from
/// an IPv6 address has to be allowed as well: an IPv6 range does not open IPv4 addresses in another
/// notation.
pub(super) fn check(address: IpAddr, allowed: &[IpRange]) -> Result<IpAddr, AddressKind> {
    let is_allowed = |address| allowed.iter().any(|range| range.contains(address));
    let refused = |inner: Ipv4Addr| {
        // Gateways do not forward to "this network" (0.0.0.0/8), which is what most of the wrong
        // readings of an address result in.
        let kind = special(IpAddr::V4(inner)).filter(|kind| *kind != AddressKind::Unspecified);
        kind.filter(|_| !is_allowed(IpAddr::V4(inner)))
    };
    let plain = address.to_canonical();
    if let Some(kind) = never(plain).or_else(|| embedded(plain).find_map(|inner| never(IpAddr::V4(inner)))) {
        return Err(kind);
    }
    let kind = if is_allowed(plain) { embedded(plain).find_map(refused) } else { special(plain) };
    kind.map_or(Ok(plain), Err)
}

/// Whether the address is public.
pub(super) fn is_public(address: IpAddr) -> bool {
    check(address, &[]).is_ok()
}

/// The kind of an address that no range opens; otherwise `None`.
fn never(address: IpAddr) -> Option<AddressKind> {
    NEVER.iter().find(|(range, _)| range.contains(address)).map(|(_, kind)| *kind)
}

/// The kind of a non-public address, apart from those that are never allowed; otherwise `None`.
fn special(address: IpAddr) -> Option<AddressKind> {
    if let Some((_, kind)) = SPECIAL.iter().find(|(range, _)| range.contains(address)) {
        return Some(*kind);
    }
    let IpAddr::V6(v6) = address else { return None };
    if NAT64.contains(address) {
        return embedded(address).find_map(|inner| special(IpAddr::V4(inner)));
    }
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(AddressKind::Unspecified),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(AddressKind::Loopback),
        [0, 0, 0, 0, 0 | 0xffff, 0, _, _] => Some(AddressKind::Tunnelled),
        _ if !GLOBAL.contains(address) => Some(AddressKind::Reserved),
        _ => embedded(address).find_map(|inner| special(IpAddr::V4(inner))).map(|_| AddressKind::Tunnelled),
    }
}

/// The IPv4 addresses that gateways might extract from an IPv6 address.
fn embedded(address: IpAddr) -> impl Iterator<Item = Ipv4Addr> {
    let mut found = [None; 4];
    if let IpAddr::V6(v6) = address {
        let at = |places: [usize; 4]| Some(Ipv4Addr::from(places.map(|place| v6.octets()[place])));
        let last = at([12, 13, 14, 15]);
        found = match v6.segments() {
            [0, 0, 0, 0, 0 | 0xffff, 0, _, _] => [last, None, None, None],
            [0x2002, ..] => [at([2, 3, 4, 5]), None, None, None],
            [0x2001, 0, ..] => {
                [at([4, 5, 6, 7]), last.map(|client| Ipv4Addr::from_bits(!client.to_bits())), None, None]
            }
            // The length of a network-specific prefix may be 48, 56, 64 or 96.
            _ if NAT64_LOCAL.contains(address) => {
                [at([6, 7, 9, 10]), at([7, 9, 10, 11]), at([9, 10, 11, 12]), last]
            }
            _ if NAT64.contains(address) => [last, None, None, None],
            [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => [last, None, None, None],
            _ => found,
        };
    }
    found.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(address: &str, allowed: &[&str]) -> Result<String, AddressKind> {
        let allowed: Vec<IpRange> = allowed.iter().map(|range| range.parse().unwrap()).collect();
        check(address.parse().unwrap(), &allowed).map(|address| address.to_string())
    }

    #[test]
    fn public_addresses_pass() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::200e",
            "2001:200::1",
            "2001:4860:4860::8888",
            "3ffe::1",
            "2620:fe::fe",
        ] {
            assert_eq!(found(address, &[]), Ok(address.to_owned()));
        }
        assert_eq!(found("::ffff:1.1.1.1", &[]), Ok("1.1.1.1".to_owned()), "it is what it stands for");
        assert_eq!(
            found("64:ff9b::101:101", &[]),
            Ok("64:ff9b::101:101".to_owned()),
            "how one without IPv4 gets there"
        );
    }

    #[test]
    fn every_special_range_is_refused_from_its_first_address_to_its_last() {
        use AddressKind::*;
        for (first, last, kind) in [
            ("0.0.0.0", "0.255.255.255", Unspecified),
            ("10.0.0.0", "10.255.255.255", Private),
            ("100.64.0.0", "100.127.255.255", Shared),
            ("127.0.0.0", "127.255.255.255", Loopback),
            ("169.254.0.0", "169.254.255.255", LinkLocal),
            ("169.254.168.255", "169.254.171.0", LinkLocal),
            ("172.16.0.0", "172.31.255.255", Private),
            ("192.0.0.0", "192.0.0.255", Reserved),
            ("192.0.2.0", "192.0.2.255", Documentation),
            ("192.88.99.0", "192.88.99.255", Tunnelled),
            ("192.168.0.0", "192.168.255.255", Private),
            ("198.18.0.0", "198.19.255.255", Benchmarking),
            ("198.51.100.0", "198.51.100.255", Documentation),
            ("203.0.113.0", "203.0.113.255", Documentation),
            ("224.0.0.0", "239.255.255.255", Multicast),
            ("240.0.0.0", "255.255.255.255", Reserved),
            ("::", "::", Unspecified),
            ("::1", "::1", Loopback),
            ("::2", "::ffff:ffff", Tunnelled),
            ("::ffff:0:0:0", "::ffff:0:ffff:ffff", Tunnelled),
            ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", Tunnelled),
            ("100::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
            ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", Tunnelled),
            ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", Benchmarking),
            ("2001:1::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", Documentation),
            ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Tunnelled),
            ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", Documentation),
            ("4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
            ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Private),
            ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", LinkLocal),
            ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Private),
            ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Multicast),
        ] {
            assert_eq!(found(first, &[]), Err(kind), "{first}");
            assert_eq!(found(last, &[]), Err(kind), "{last}");
        }
    }

    #[test]
    fn an_address_of_ipv4_is_found_inside_one_of_ipv6() {
        use AddressKind::*;
        for (address, kind) in [
            ("::ffff:10.0.0.1", Private),
            ("::ffff:127.0.0.1", Loopback),
            ("64:ff9b::10.0.0.1", Private),
            ("64:ff9b::127.0.0.1", Loopback),
            ("2600::5efe:10.0.0.1", Tunnelled),
            ("2600::200:5efe:192.168.1.1", Tunnelled),
        ] {
            assert_eq!(found(address, &[]), Err(kind), "{address}");
        }
        assert_eq!(found("2600::5efe:1.1.1.1", &[]), Ok("2600::5efe:101:101".to_owned()));
    }

    #[test]
    fn metadata_is_refused_whatever_is_allowed() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "fd00:42::42",
            "fd00:c1::a9fe:a9fe",
            "fd00:100::100:200",
            "fd00:ec2::254",
            "fd00:a9fe:a9fe::1",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:a9:fe:a9fe::",
            "64:ff9b:1:0:a9:fea9:fe00:0",
            "2002:a9fe:a9fe::1",
            "2001:0:a9fe:a9fe::1",
            "2001::5601:5601",
            "2600::5efe:169.254.169.254",
        ] {
            assert_eq!(found(address, &["0.0.0.0/0", "::/0"]), Err(AddressKind::Metadata), "{address}");
        }
    }

    #[test]
    fn link_local_is_refused_whatever_is_allowed() {
        for address in [
            "169.254.0.23",
            "169.254.42.42",
            "169.254.255.255",
            "fe80::1",
            "fe80::a9fe:a9fe",
            "febf::1",
            "::ffff:169.254.42.42",
            "64:ff9b::169.254.42.42",
            "2002:a9fe:2a2a::1",
        ] {
            let allowed = ["0.0.0.0/0", "::/0", "169.254.0.0/16", "fe80::/10"];
            assert_eq!(found(address, &allowed), Err(AddressKind::LinkLocal), "{address}");
        }
    }

    #[test]
    fn a_range_opens_itself_and_no_more() {
        assert_eq!(found("127.0.0.1", &["127.0.0.1"]), Ok("127.0.0.1".to_owned()));
        assert_eq!(found("::ffff:127.0.0.1", &["127.0.0.1"]), Ok("127.0.0.1".to_owned()));
        assert_eq!(found("127.0.0.2", &["127.0.0.1"]), Err(AddressKind::Loopback));
        assert_eq!(found("::1", &["127.0.0.0/8"]), Err(AddressKind::Loopback));
        assert_eq!(found("::7f00:1", &["127.0.0.0/8"]), Err(AddressKind::Tunnelled));
        assert_eq!(found("64:ff9b::7f00:1", &["127.0.0.0/8"]), Err(AddressKind::Loopback));
        assert_eq!(found("::1", &["::1"]), Ok("::1".to_owned()));
        assert_eq!(found("fd12::1", &["fd00::/8"]), Ok("fd12::1".to_owned()));
        assert_eq!(found("10.9.8.7", &["::/0"]), Err(AddressKind::Private));
        assert_eq!(found("10.9.8.7", &["0.0.0.0/0"]), Ok("10.9.8.7".to_owned()));
    }

    #[test]
    fn a_range_of_ipv6_opens_no_address_of_ipv4() {
        for address in [
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::10.0.0.1",
            "64:ff9b:1:a00:0:100::",
            "2002:a00:1::1",
            "2001:0:a00:1::f5ff:fffe",
            "2600::5efe:10.0.0.1",
            "fd12::5efe:10.0.0.1",
        ] {
            assert_eq!(found(address, &["::/0"]), Err(AddressKind::Private), "{address}");
            assert!(found(address, &["::/0", "10.0.0.0/8"]).is_ok(), "{address} is allowed both ways");
            assert!(found(address, &["::/0", "10.0.0.0/31"]).is_ok(), "{address} is allowed both ways");
        }
        for address in ["::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "::127.0.0.1"] {
            assert_eq!(found(address, &["::/0"]), Err(AddressKind::Loopback), "{address}");
        }
        for address in ["64:ff9b:1::101:101", "64:ff9b:1:101:1:100::", "2002:101:101::1"] {
            assert_eq!(found(address, &["::/0"]), Ok(address.to_owned()), "what it stands for is public");
        }
    }

    #[test]
    fn a_range_is_read_whole_or_not_at_all() {
        for (text, written) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("127.0.0.1", "127.0.0.1/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("FD00::/8", "fd00::/8"),
        ] {
            assert_eq!(text.parse::<IpRange>().unwrap().to_string(), written);
        }
        for text in
            ["", "10/8", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "::1/127", "::/129", "a/8"]
        {
            assert_eq!(text.parse::<IpRange>(), Err(InvalidIpRange), "{text}");
        }
    }
}
