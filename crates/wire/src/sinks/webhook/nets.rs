//! Says which networks are not the public internet.
//! Never resolves a name, and never makes an exception: those are the judge's. Called by `judge`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fencepost::policy::network::{v4_begin_alike, v6_begin_alike};

/// The reason why an address is not on the public internet; none where it is.
pub(super) fn nature(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            V4.iter().find(|(base, bits, _)| v4_begin_alike(Ipv4Addr::from(*base), address, *bits)).map(|net| net.2)
        }
        IpAddr::V6(address) => {
            // ISATAP, in any network.
            if matches!(address.segments(), [_, _, _, _, 0 | 0x200, 0x5efe, _, _]) {
                return Some("an IPv4 address within IPv6");
            }
            let found = V6.iter().find(|(base, bits, _)| v6_begin_alike(Ipv6Addr::from(*base), address, *bits));
            let public = v6_begin_alike(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), address, 3);
            found.map(|net| net.2).or((!public).then_some("an address that is not in use"))
        }
    }
}

/// The networks that IANA's registries set apart, and a few that clouds have taken. The first that fits counts.
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

/// Only 2000::/3 is in use for hosts; networks outside it are listed to give the refusal a clearer reason.
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
