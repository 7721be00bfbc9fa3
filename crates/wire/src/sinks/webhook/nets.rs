//! Nets by their beginning, and which of them are not the public internet.
//! Never resolves a name, and never allows: the exceptions are the judge's. Called by `judge`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All addresses of one family that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Net {
    base: IpAddr,
    bits: u32,
}

impl Net {
    /// `10.0.0.0/8`, `fd00::/8`, or a single address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base.parse().ok()?, bits.parse().ok()?),
            None => (text.parse().ok()?, u32::MAX),
        };
        let bits_max = if matches!(base, IpAddr::V4(_)) { 32 } else { 128 };
        let net = Self { base, bits: if bits == u32::MAX { bits_max } else { bits } };
        // A base with bits past its length was meant as another net.
        (net.bits <= bits_max && net.bare()).then_some(net)
    }

    /// Whether an address is of it. An IPv4 address within an IPv6 one counts as IPv6.
    pub(super) fn holds(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => v4_alike(base, address, self.bits),
            (IpAddr::V6(base), IpAddr::V6(address)) => v6_alike(base, address, self.bits),
            _ => false,
        }
    }

    fn bare(&self) -> bool {
        match self.base {
            IpAddr::V4(base) => base.to_bits().checked_shl(self.bits).unwrap_or(0) == 0,
            IpAddr::V6(base) => base.to_bits().checked_shl(self.bits).unwrap_or(0) == 0,
        }
    }
}

fn v4_alike(base: Ipv4Addr, address: Ipv4Addr, bits: u32) -> bool {
    (base.to_bits() ^ address.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
}

fn v6_alike(base: Ipv6Addr, address: Ipv6Addr, bits: u32) -> bool {
    (base.to_bits() ^ address.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
}

/// What is wrong with an address; none where it is on the public internet.
pub(super) fn nature(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            V4.iter().find(|(base, bits, _)| v4_alike(Ipv4Addr::from(*base), address, *bits)).map(|net| net.2)
        }
        IpAddr::V6(address) => {
            // ISATAP, in any network.
            if matches!(address.segments(), [_, _, _, _, 0 | 0x200, 0x5efe, _, _]) {
                return Some("an IPv4 address within IPv6");
            }
            let found = V6.iter().find(|(base, bits, _)| v6_alike(Ipv6Addr::from(*base), address, *bits));
            let public = v6_alike(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), address, 3);
            found.map(|net| net.2).or((!public).then_some("an address that is not in use"))
        }
    }
}

/// What the registries of IANA set apart, and a few that clouds have taken. The first that fits counts.
const V4: [([u8; 4], u32, &str); 20] = [
    ([0, 0, 0, 0], 8, "an unspecified address"),
    ([10, 0, 0, 0], 8, "a private address"),
    ([100, 64, 0, 0], 10, "an address behind a carrier's NAT"),
    ([127, 0, 0, 0], 8, "a loopback address"),
    ([168, 63, 129, 16], 32, "a cloud's own service"),
    ([169, 254, 0, 0], 16, "a link-local address"),
    ([172, 16, 0, 0], 12, "a private address"),
    ([192, 0, 0, 0], 24, "a reserved address"),
    ([192, 0, 2, 0], 24, "an address for documentation"),
    ([192, 31, 196, 0], 24, "a reserved address"),
    ([192, 52, 193, 0], 24, "a reserved address"),
    ([192, 88, 99, 0], 24, "a relay into IPv6"),
    ([192, 168, 0, 0], 16, "a private address"),
    ([192, 175, 48, 0], 24, "a reserved address"),
    ([198, 18, 0, 0], 15, "an address for benchmarks"),
    ([198, 51, 100, 0], 24, "an address for documentation"),
    ([203, 0, 113, 0], 24, "an address for documentation"),
    ([224, 0, 0, 0], 4, "a multicast address"),
    ([255, 255, 255, 255], 32, "the broadcast address"),
    ([240, 0, 0, 0], 4, "a reserved address"),
];

/// Only 2000::/3 is in use for hosts; the others have names here for who reads the refusal.
const V6: [([u16; 8], u32, &str); 16] = [
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, "an unspecified address"),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "a loopback address"),
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "an IPv4 address within IPv6"),
    ([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, "an IPv4 address within IPv6"),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, "an IPv4 address within IPv6"),
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "an IPv4 address within IPv6"),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "an IPv4 address within IPv6"),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "an IPv4 address within IPv6"),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "an IPv4 address within IPv6"),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "a reserved address"),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "an address for documentation"),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "an address for documentation"),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "a private address"),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "a link-local address"),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "a site-local address"),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "a multicast address"),
];
