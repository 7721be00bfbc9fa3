//! Addresses that webhooks may reach beside the public internet: one entry of `dispatch.egress_allow`.
//! Never resolves a name or connects. Read with the `dispatch` section; asked by the judge of outbound addresses.
//!
//! An entry is an address, a network or the name of a host, and may have a scheme before it and a port behind it:
//! `10.1.2.0/24`, `192.168.0.7:8443`, `[fd00::1]:443`, `https://hooks.internal`, `http://hooks.internal:8080`. A part
//! that is left out limits nothing.

use std::net::IpAddr;

use super::network::Network;

/// An exception to the rule that only public addresses are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressRule {
    /// Only over TLS, or only without it.
    tls: Option<bool>,
    port: Option<u16>,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Network(Network),
    /// In lower case, without a dot at its end.
    Host(String),
}

impl EgressRule {
    /// The entry that a person wrote.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refused = || format!("`{text}` is no address, network or host, with or without a scheme and a port");
        let (tls, rest) = match text.split_once("://") {
            None => (None, text),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Some(true), rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Some(false), rest),
            Some(_) => return Err(format!("`{text}`: the scheme must be http or https")),
        };
        let (place, port) = split_port(rest).ok_or_else(refused)?;
        let port = port.map(|port| {
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse().ok().filter(|number| digits && *number != 0);
            number.ok_or_else(|| format!("`{text}`: the port must be from 1 to 65535"))
        });
        Ok(Self { tls, port: port.transpose()?, place: read_place(place).ok_or_else(refused)? })
    }

    /// Whether a host may be reached by its name, wherever it leads.
    pub fn allows_host(&self, host: &str, port: u16, tls: bool) -> bool {
        self.fits(port, tls) && matches!(&self.place, Place::Host(known) if known == host)
    }

    /// Whether an address may be reached.
    pub fn allows_address(&self, address: IpAddr, port: u16, tls: bool) -> bool {
        self.fits(port, tls) && matches!(&self.place, Place::Network(network) if network.contains(address))
    }

    fn fits(&self, port: u16, tls: bool) -> bool {
        self.port.is_none_or(|own| own == port) && self.tls.is_none_or(|own| own == tls)
    }
}

// The host, and the port behind it. An IPv6 address with a port stands in brackets; one without may.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (place, after) = rest.split_once(']')?;
        return match (place.contains(':'), after.strip_prefix(':')) {
            (true, None) if after.is_empty() => Some((place, None)),
            (true, Some(port)) => Some((place, Some(port))),
            _ => None,
        };
    }
    if Network::parse(text).is_some() {
        return Some((text, None));
    }
    Some(text.rsplit_once(':').map_or((text, None), |(place, port)| (place, Some(port))))
}

fn read_place(text: &str) -> Option<Place> {
    if let Some(network) = Network::parse(text) {
        return Some(Place::Network(network));
    }
    let host = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    // Text of digits and dots alone was meant as an address.
    let named = host.bytes().any(|byte| byte.is_ascii_alphabetic());
    (named && is_host_name(&host)).then_some(Place::Host(host))
}

/// Letters, digits, hyphens and underscores between dots. `2130706433`, `0177.1` and `0x7f.1` are such names too: the
/// addresses they lead to are judged like any other.
pub fn is_host_name(host: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    host.len() <= 253 && host.split('.').all(|label| !label.is_empty() && label.bytes().all(fits))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_limits_what_it_says_and_nothing_else() {
        // The entry, what is reached, its port, over TLS, and whether it may be.
        for (entry, host, port, tls, allowed) in [
            ("10.1.2.0/24", "10.1.2.9", 80, false, true),
            ("10.1.2.0/24", "10.1.2.9", 8443, true, true),
            ("10.1.2.0/24", "10.1.3.9", 80, false, false),
            ("10.1.2.0/24:8443", "10.1.2.9", 8443, false, true),
            ("10.1.2.0/24:8443", "10.1.2.9", 443, true, false),
            ("https://10.1.2.0/24", "10.1.2.9", 9, true, true),
            ("https://10.1.2.0/24", "10.1.2.9", 9, false, false),
            ("192.168.0.7:8443", "192.168.0.7", 8443, true, true),
            ("192.168.0.7:8443", "192.168.0.7", 8444, true, false),
            ("192.168.0.7:8443", "192.168.0.8", 8443, true, false),
            ("fd00::1", "fd00::1", 1, false, true),
            ("[fd00::1]", "fd00::1", 1, false, true),
            ("[fd00::1]:443", "fd00::1", 443, true, true),
            ("[fd00::1]:443", "fd00::1", 80, false, false),
            ("http://[fd00::/8]:443", "fd12::9", 443, false, true),
            ("http://[fd00::/8]:443", "fd12::9", 443, true, false),
            ("hooks.internal", "hooks.internal", 5, false, true),
            ("Hooks.Internal.:5", "hooks.internal", 5, false, true),
            ("hooks.internal:5", "hooks.internal", 6, false, false),
            ("hooks.internal", "other.hooks.internal", 5, false, false),
            ("https://hooks.internal", "hooks.internal", 5, true, true),
            ("HTTPS://hooks.internal", "hooks.internal", 443, false, false),
            ("http://hooks.internal:8080", "hooks.internal", 8080, false, true),
            ("http://hooks.internal:8080", "hooks.internal", 8080, true, false),
            ("http://hooks.internal:8080", "hooks.internal", 80, false, false),
        ] {
            let rule = EgressRule::parse(entry).unwrap();
            let found = match host.parse() {
                Ok(address) => rule.allows_address(address, port, tls),
                Err(_) => rule.allows_host(host, port, tls),
            };
            assert_eq!(found, allowed, "{entry} {host}:{port} tls {tls}");
        }
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_refused() {
        for wrong in [
            "",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0",
            "10.0.0.1:0",
            "10.0.0.1:65536",
            "10.0.0.1:+80",
            "10.0.0.1:",
            "10.0.0.1:http",
            "ftp://10.0.0.1",
            "://10.0.0.1",
            "https://",
            "https://hooks.internal/path",
            "https://user@hooks.internal",
            "hooks internal",
            "hooks..internal",
            "*.internal",
            "[10.0.0.1]:80",
            "[hooks.internal]:80",
            "[fd00::1",
            "[fd00::1]80",
            "[fd00::1]:",
            "fd00::1/8",
            "fd00::g",
        ] {
            assert!(EgressRule::parse(wrong).is_err(), "{wrong}");
        }
    }
}
