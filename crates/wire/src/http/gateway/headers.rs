//! Which headers cross the gateway, each way. What belongs to one connection stays on it; what is ours to say is
//! never taken from somebody else. Called when a request leaves and when an answer comes.

use std::net::IpAddr;

use fencepost::Claim;
use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};

use super::Entry;
use crate::{server::PeerAddr, trace::TraceId};

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(super) const OUTCOME: HeaderName = HeaderName::from_static("fencepost-outcome");
pub(super) const EFFECT_ID: HeaderName = HeaderName::from_static("fencepost-effect-id");
const ATTEMPT: HeaderName = HeaderName::from_static("fencepost-attempt");
const TOKEN: HeaderName = HeaderName::from_static("fencepost-token");
const TENANT: HeaderName = HeaderName::from_static("fencepost-tenant");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const OURS: &str = "fencepost-";
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Takes out what is between the two ends of one connection.
pub(super) fn end_to_end(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|list| list.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    // Of two lengths the framing's own counts: the other would cut the body, or let it run into the next message.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// What an upstream hears of who asks, and for what.
pub(super) struct Leaving<'c> {
    pub(super) entry: &'c Entry,
    pub(super) trace: &'c TraceId,
    /// The right to act, where the request is fenced.
    pub(super) claim: Option<&'c Claim>,
    /// Whose credential it was, where it was one of ours: that never leaves.
    pub(super) tenant: Option<&'c str>,
}

impl Leaving<'_> {
    /// The headers of the request as it leaves.
    pub(super) fn headers(&self, parts: &mut Parts) -> HeaderMap {
        let mut headers = std::mem::take(&mut parts.headers);
        end_to_end(&mut headers);
        let ours: Vec<HeaderName> = headers.keys().filter(|name| is_ours(name.as_str())).cloned().collect();
        for name in ours {
            headers.remove(name);
        }
        // The body is here already, or streams: nobody upstream has to ask for it.
        headers.remove(header::EXPECT);
        if let Some(host) = headers.insert(header::HOST, self.entry.host.clone()) {
            headers.insert(FORWARDED_HOST, host);
        }
        if let Some(PeerAddr(peer)) = parts.extensions.get::<PeerAddr>() {
            forwarded_for(&mut headers, peer.ip());
        }
        // Also one of ours that has expired or was revoked.
        let ours =
            |value: &HeaderValue| value.as_bytes().get(..10).is_some_and(|b| b.eq_ignore_ascii_case(b"bearer fp_"));
        if self.tenant.is_some() || headers.get(header::AUTHORIZATION).is_some_and(ours) {
            headers.remove(header::AUTHORIZATION);
        }
        if let Some(tenant) = self.tenant {
            set(&mut headers, TENANT, tenant);
        }
        // One that cannot be read begins a trace of our own, which the log names.
        let mut told = headers.get_all(TRACEPARENT).iter();
        let kept = told.next().is_some_and(|value| TraceId::of(Some(value)) == *self.trace) && told.next().is_none();
        if !kept {
            let span = fastrand::u64(1..);
            set(&mut headers, TRACEPARENT, &format!("00-{}-{span:016x}-01", &**self.trace));
        }
        if let Some(claim) = self.claim {
            set(&mut headers, IDEMPOTENCY_KEY, &claim.target().key.hex());
            headers.insert(ATTEMPT, HeaderValue::from(claim.attempt()));
            headers.insert(TOKEN, HeaderValue::from(claim.token().0));
        }
        headers
    }
}

// Servers of the CGI kind read `_` and `-` as one.
fn is_ours(name: &str) -> bool {
    let same = |wanted: &str| {
        let plain = |byte: u8| if byte == b'_' { b'-' } else { byte };
        name.len() >= wanted.len() && name.bytes().map(plain).zip(wanted.bytes()).all(|(a, b)| a == b)
    };
    same(OURS) || (name.contains('_') && name.len() == IDEMPOTENCY_KEY.as_str().len() && same(IDEMPOTENCY_KEY.as_str()))
}

fn forwarded_for(headers: &mut HeaderMap, peer: IpAddr) {
    let peer = peer.to_string();
    let known = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let chain: Vec<&str> = known.chain([peer.as_str()]).collect();
    set(headers, FORWARDED_FOR, &chain.join(", "));
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_to_say_is_known_in_both_spellings() {
        for name in ["fencepost-token", "fencepost_tenant", "fencepost_", "idempotency_key"] {
            assert!(is_ours(name), "{name}");
        }
        for name in ["idempotency-key", "fencepos", "x-fencepost-token", "idempotency_key_2"] {
            assert!(!is_ours(name), "{name}");
        }
    }

    #[test]
    fn what_connection_names_stays_on_the_connection() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("x-end", "1"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        end_to_end(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-end"]);
    }
}
