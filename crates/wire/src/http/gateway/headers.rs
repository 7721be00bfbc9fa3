//! Applies the tables of `crossing` to headers, in both directions. Never passes on a header of one connection, nor a
//! value from others that only the gateway may set. Called when a request leaves and when an answer comes.

use std::net::IpAddr;

use fencepost::{
    Claim,
    policy::{Policy, callers::Principal, routes::FieldOrigin},
};
use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};

use super::{
    Entry,
    crossing::{ANSWERS, Crossing, REQUESTS, crossing},
};
use crate::{
    problem::{Code, Problem},
    trace::TraceId,
};
use fencepost_front::{PeerAddr, Secured};

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(super) const OUTCOME: HeaderName = HeaderName::from_static("fencepost-outcome");
pub(super) const EFFECT_ID: HeaderName = HeaderName::from_static("fencepost-effect-id");
const ATTEMPT: HeaderName = HeaderName::from_static("fencepost-attempt");
const RECOVERING: HeaderName = HeaderName::from_static("fencepost-recovering");
const TOKEN: HeaderName = HeaderName::from_static("fencepost-token");
const TENANT: HeaderName = HeaderName::from_static("fencepost-tenant");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Refuses a request whose `Connection` names a header that is meant for the upstream. Without the header, the upstream
/// would read another request than the rule did; with it, the gateway would break HTTP. No client needs either.
pub(super) fn refuse_wrong_connection(policy: &Policy, entry: &Entry, headers: &HeaderMap) -> Result<(), Problem> {
    let wrong = |name: &HeaderName| {
        let listed = crossing(REQUESTS, name.as_str()).is_some_and(|crossing| crossing != Crossing::Hop);
        let required = || {
            entry.route.requires(&policy.require_headers).iter().any(|known| known.eq_ignore_ascii_case(name.as_str()))
        };
        listed || is_read_by(entry, name) || required()
    };
    match named_by_connection(headers).find(wrong) {
        None => Ok(()),
        Some(name) => {
            let detail =
                format!("Connection names {name}, which is meant for the upstream; leave it out of Connection");
            Err(Problem::new(Code::Malformed, detail))
        }
    }
}

/// Whether the rule reads a value from a header.
fn is_read_by(entry: &Entry, name: &HeaderName) -> bool {
    let route = &entry.route;
    let mut origins = route.key.iter().map(|(_, origin, _)| origin).chain(&route.source).chain(&route.order);
    let principal = route.callers.principal.as_ref().map(Principal::header);
    principal.is_some_and(|read| read.eq_ignore_ascii_case(name.as_str()))
        || origins.any(|origin| matches!(origin, FieldOrigin::Header(read) if read.eq_ignore_ascii_case(name.as_str())))
}

fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let lists = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).filter_map(|name| name.trim().parse().ok())
}

/// Removes the headers that `dropped` selects, and those that `Connection` names, except where they are `listed`.
fn drop_headers(headers: &mut HeaderMap, dropped: impl Fn(&str) -> bool, listed: impl Fn(&str) -> bool) {
    let named = named_by_connection(headers).filter(|name| !listed(name.as_str()));
    let dropped = headers.keys().filter(|name| dropped(name.as_str())).cloned();
    for name in named.chain(dropped).collect::<Vec<_>>() {
        headers.remove(name);
    }
}

/// Removes the headers of an upstream's answer that do not cross. An answer is never refused for its `Connection`: the
/// effect has happened.
pub(super) fn answer(headers: &mut HeaderMap) {
    // With chunked framing a Content-Length does not count: it would cut the body, or let it run into the next message.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let dropped = |name: &str| crossing(ANSWERS, name).is_some_and(|crossing| crossing != Crossing::Essential);
    drop_headers(headers, dropped, |name| crossing(ANSWERS, name).is_some());
}

/// The inputs for the headers of a request as it leaves.
pub(super) struct Leaving<'c> {
    pub(super) entry: &'c Entry,
    pub(super) policy: &'c Policy,
    pub(super) trace: &'c TraceId,
    /// The granted claim, where the request is fenced.
    pub(super) claim: Option<&'c Claim>,
    /// The tenant of the credential, where that is Fencepost's own: such a credential never leaves.
    pub(super) tenant: Option<&'c str>,
    /// The length of the body, where it is known; other bodies go out chunked.
    pub(super) body_bytes: Option<u64>,
}

impl Leaving<'_> {
    /// The headers of the request as it leaves.
    pub(super) fn headers(&self, parts: &mut Parts) -> HeaderMap {
        let mut headers = std::mem::take(&mut parts.headers);
        let has_length = headers.contains_key(header::CONTENT_LENGTH);
        // An HTTP/2 request may name its host in the target alone.
        let target = || parts.uri.authority().and_then(|name| HeaderValue::from_str(name.as_str()).ok());
        let host = headers.get(header::HOST).cloned().or_else(target);
        let peer = parts.extensions.get::<PeerAddr>().map(|peer| peer.0.ip().to_canonical());
        let trusted = peer.is_some_and(|peer| self.policy.server.trusts(peer));
        let dropped = |name: &str| match crossing(REQUESTS, name) {
            Some(Crossing::Hop | Crossing::Ours | Crossing::Diverts) => true,
            Some(Crossing::Forwarding) => !trusted,
            Some(Crossing::Essential) | None => false,
        };
        drop_headers(&mut headers, dropped, |name| crossing(REQUESTS, name).is_some());
        self.frame(&mut headers, has_length);
        headers.insert(header::HOST, self.entry.host.clone());
        let proto = if parts.extensions.get::<Secured>().is_some() { "https" } else { "http" };
        forwarding(&mut headers, peer, host, proto);
        // Also removes a token of Fencepost (`fp_`) that has expired or was revoked.
        let ours =
            |value: &HeaderValue| value.as_bytes().get(..10).is_some_and(|b| b.eq_ignore_ascii_case(b"bearer fp_"));
        if self.tenant.is_some() || headers.get(header::AUTHORIZATION).is_some_and(ours) {
            headers.remove(header::AUTHORIZATION);
        }
        if let Some(tenant) = self.tenant {
            set(&mut headers, TENANT, tenant);
        }
        // An invalid traceparent is replaced by one with the trace id that the log names.
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
            // The attempt number does not say this: it also grows where the upstream refused the earlier attempt.
            if claim.earlier().is_some() {
                headers.insert(RECOVERING, HeaderValue::from_static("true"));
            }
        }
        headers
    }

    /// States the body's length in one way only, in the shortest form: some servers read `0000011` as 11, others as 9.
    fn frame(&self, headers: &mut HeaderMap, has_length: bool) {
        match self.body_bytes {
            Some(0) if !has_length => {}
            Some(bytes) => drop(headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes))),
            // Without this header, hyper assumes that a read has no body. HTTP/2 does not need it.
            None => drop(headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))),
        }
    }
}

/// Sets the headers that say where a request came from. Values that are still there came from a trusted proxy.
fn forwarding(headers: &mut HeaderMap, peer: Option<IpAddr>, host: Option<HeaderValue>, proto: &'static str) {
    if let Some(peer) = peer {
        let peer = peer.to_string();
        let known = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let chain: Vec<&str> = known.chain([peer.as_str()]).collect();
        set(headers, FORWARDED_FOR, &chain.join(", "));
    }
    if let Some(host) = host {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
    headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static(proto));
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
    fn connection_of_an_answer_names_only_what_is_not_essential() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop, Content-Type"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("upgrade", "h2c"),
            ("fencepost-decision", "duplicate"),
            ("content-type", "text/plain"),
            ("x-end", "1"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        answer(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-type", "x-end"]);
    }
}
