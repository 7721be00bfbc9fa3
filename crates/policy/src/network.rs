//! Networks of IP addresses, as settings name them: `10.0.0.0/8`, `fd00::/8`, or one address.
//! Never resolves a name. Called by `server` for trusted proxies, and by `egress` and the webhook sink for receivers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of one family, IPv4 or IPv6, that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    bits: u32,
}

impl Network {
    /// `10.0.0.0/8`, `fd00::/8`, or a single address.
    pub fn parse(text: &str) -> Option<Self> {
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base.parse().ok()?, bits.parse().ok()?),
            None => (text.parse().ok()?, u32::MAX),
        };
        let bits_max = if matches!(base, IpAddr::V4(_)) { 32 } else { 128 };
        let network = Self { base, bits: if bits == u32::MAX { bits_max } else { bits } };
        // A base with bits past the prefix length is a mistake for another network.
        (network.bits <= bits_max && network.is_bare()).then_some(network)
    }

    /// Whether an address is in the network. An IPv4-mapped IPv6 address counts as IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => v4_begin_alike(base, address, self.bits),
            (IpAddr::V6(base), IpAddr::V6(address)) => v6_begin_alike(base, address, self.bits),
            _ => false,
        }
    }

    fn is_bare(&self) -> bool {
        match self.base {
            IpAddr::V4(base) => base.to_bits().checked_shl(self.bits).unwrap_or(0) == 0,
            IpAddr::V6(base) => base.to_bits().checked_shl(self.bits).unwrap_or(0) == 0,
        }
    }
}

/// Whether the first `bits` of two addresses are the same.
pub fn v4_begin_alike(base: Ipv4Addr, address: Ipv4Addr, bits: u32) -> bool {
    (base.to_bits() ^ address.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
}

/// Whether the first `bits` of two addresses are the same.
pub fn v6_begin_alike(base: Ipv6Addr, address: Ipv6Addr, bits: u32) -> bool {
    (base.to_bits() ^ address.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_the_addresses_that_begin_alike() {
        for (network, address, within) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("192.168.1.7", "192.168.1.7", true),
            ("192.168.1.7", "192.168.1.8", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "10.0.0.1", false),
            ("::1", "::1", true),
        ] {
            assert_eq!(
                Network::parse(network).unwrap().contains(address.parse().unwrap()),
                within,
                "{network} {address}"
            );
        }
    }

    #[test]
    fn base_with_bits_past_its_length_is_no_network() {
        for text in ["10.0.0.1/8", "10.0.0.0/33", "10.0.0/8", "fd00::1/8", "proxy.internal", "10.0.0.0/", ""] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
