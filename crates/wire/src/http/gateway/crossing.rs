//! Which headers cross the gateway: one table for requests on their way upstream, one for answers on their way back.
//! Holds rules only; `headers` applies them. A test sends every row through the gateway.

use Crossing::{Diverts, Essential, Forwarding, Hop, Ours};

/// The rule for a header. A header that no row names passes unchanged, unless `Connection` names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crossing {
    /// Belongs to one connection, or is answered by the gateway itself: never crosses.
    Hop,
    /// Set by the gateway alone: a received value is dropped, and a new one is set where there is one.
    Ours,
    /// Says where a request came from: dropped or set anew, unless a trusted proxy sent it.
    Forwarding,
    /// Would make the upstream act on a method, path, host or environment other than the one that chose the rule, or
    /// lead a client past the gateway: never crosses.
    Diverts,
    /// Passes unchanged; `Connection` may not name it. Two exceptions: a fenced request gets the fence's own
    /// Idempotency-Key, and a credential of Fencepost is removed.
    Essential,
}

/// One row: a name, a prefix (`fencepost-*`), or any name with a character that is no letter, digit or `-` (`*_*`).
#[derive(Clone, Copy, Debug)]
pub struct HeaderRule {
    /// In lower case.
    pub name: &'static str,
    pub crossing: Crossing,
}

impl HeaderRule {
    fn fits(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            None => self.name == name,
            Some("*_") => name.bytes().any(|byte| !byte.is_ascii_alphanumeric() && byte != b'-'),
            Some(beginning) => name.starts_with(beginning),
        }
    }
}

/// The crossing by the first row that fits a name in lower case; none where no row fits.
pub fn crossing(table: &[HeaderRule], name: &str) -> Option<Crossing> {
    table.iter().find(|row| row.fits(name)).map(|row| row.crossing)
}

const fn row(name: &'static str, crossing: Crossing) -> HeaderRule {
    HeaderRule { name, crossing }
}

/// Requests, from a client to an upstream.
pub const REQUESTS: &[HeaderRule] = &[
    row("connection", Hop),
    row("expect", Hop),
    row("http2-settings", Hop),
    row("keep-alive", Hop),
    row("proxy-authenticate", Hop),
    row("proxy-authentication-info", Hop),
    row("proxy-authorization", Hop),
    row("proxy-connection", Hop),
    row("te", Hop),
    row("trailer", Hop),
    row("transfer-encoding", Hop),
    row("upgrade", Hop),
    row("content-length", Ours),
    row("fencepost-*", Ours),
    row("host", Ours),
    // Any character but letters, digits and `-`. CGI, WSGI and similar servers read it as `-`: `X_Forwarded_For` or
    // `Fencepost.Tenant` would count beside the gateway's own header, or before it.
    row("*_*", Diverts),
    row("base-url", Diverts),
    // CGI turns it into the environment variable HTTP_PROXY.
    row("proxy", Diverts),
    row("request-uri", Diverts),
    row("x-host", Diverts),
    row("x-http-*", Diverts),
    row("x-method-override", Diverts),
    row("x-original-forwarded-for", Forwarding),
    row("x-original-*", Diverts),
    row("x-envoy-original-*", Diverts),
    row("x-override-*", Diverts),
    row("x-rewrite-*", Diverts),
    row("x-middleware-*", Diverts),
    row("cdn-real-ip", Forwarding),
    row("cf-connecting-*", Forwarding),
    row("cf-pseudo-ipv4", Forwarding),
    row("client-ip", Forwarding),
    row("fastly-client-ip", Forwarding),
    row("fly-client-ip", Forwarding),
    row("forwarded", Forwarding),
    row("forwarded-*", Forwarding),
    row("front-end-https", Forwarding),
    row("proxy-client-ip", Forwarding),
    row("true-client-ip", Forwarding),
    row("wl-proxy-*", Forwarding),
    row("x-appengine-user-ip", Forwarding),
    row("x-azure-clientip", Forwarding),
    row("x-azure-socketip", Forwarding),
    row("x-client-*", Forwarding),
    row("x-cluster-client-ip", Forwarding),
    row("x-envoy-external-address", Forwarding),
    row("x-custom-ip-*", Forwarding),
    row("x-forward-*", Forwarding),
    row("x-forwarded", Forwarding),
    row("x-forwarded-*", Forwarding),
    row("x-forwarder-for", Forwarding),
    row("x-originating-ip", Forwarding),
    row("x-proxyuser-ip", Forwarding),
    row("x-real-*", Forwarding),
    row("x-remote-addr", Forwarding),
    row("x-remote-ip", Forwarding),
    row("x-scheme", Forwarding),
    row("x-ssl-*", Forwarding),
    row("x-url-scheme", Forwarding),
    row("accept", Essential),
    row("accept-*", Essential),
    row("access-control-*", Essential),
    row("authorization", Essential),
    row("baggage", Essential),
    row("cache-control", Essential),
    row("content-*", Essential),
    row("cookie", Essential),
    row("date", Essential),
    row("digest", Essential),
    row("idempotency-key", Essential),
    row("if-*", Essential),
    row("origin", Essential),
    row("pragma", Essential),
    row("prefer", Essential),
    row("range", Essential),
    row("referer", Essential),
    row("repr-digest", Essential),
    row("signature", Essential),
    row("signature-input", Essential),
    row("stripe-signature", Essential),
    row("svix-*", Essential),
    row("traceparent", Essential),
    row("tracestate", Essential),
    row("user-agent", Essential),
    row("via", Essential),
    row("webhook-*", Essential),
    row("x-correlation-id", Essential),
    row("x-fgai-signature", Essential),
    row("x-github-*", Essential),
    row("x-hub-signature", Essential),
    row("x-hub-signature-256", Essential),
    row("x-request-id", Essential),
];

/// Answers, from an upstream to a client. The gateway reads the headers that are meant for it alone
/// (`Fencepost-Outcome`, `Fencepost-Effect-Id`) before this table applies.
pub const ANSWERS: &[HeaderRule] = &[
    row("connection", Hop),
    row("keep-alive", Hop),
    row("proxy-authenticate", Hop),
    row("proxy-authentication-info", Hop),
    row("proxy-authorization", Hop),
    row("proxy-connection", Hop),
    row("te", Hop),
    row("trailer", Hop),
    row("transfer-encoding", Hop),
    row("upgrade", Hop),
    row("fencepost-*", Ours),
    row("idempotency-expires", Ours),
    row("idempotency-replayed", Ours),
    // It offers clients another address under the gateway's own name.
    row("alt-svc", Diverts),
    row("access-control-*", Essential),
    row("allow", Essential),
    row("cache-control", Essential),
    row("content-*", Essential),
    row("date", Essential),
    row("etag", Essential),
    row("last-modified", Essential),
    row("location", Essential),
    row("retry-after", Essential),
    row("set-cookie", Essential),
    row("strict-transport-security", Essential),
    row("vary", Essential),
    row("www-authenticate", Essential),
    row("x-content-type-options", Essential),
    row("x-frame-options", Essential),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_whole_by_their_beginning_and_by_an_underscore() {
        for (name, wanted) in [
            ("host", Some(Ours)),
            ("hosts", None),
            ("content-length", Some(Ours)),
            ("content-type", Some(Essential)),
            ("fencepost-anything", Some(Ours)),
            ("fencepost_tenant", Some(Diverts)),
            ("x_forwarded_for", Some(Diverts)),
            ("idempotency_key", Some(Diverts)),
            ("x-forwarded-for", Some(Forwarding)),
            ("x-forwardedfor", None),
            ("x-anything", None),
        ] {
            assert_eq!(crossing(REQUESTS, name), wanted, "{name}");
        }
        assert_eq!(crossing(ANSWERS, "fencepost-decision"), Some(Ours));
        assert_eq!(crossing(ANSWERS, "x_anything"), None);
    }

    #[test]
    fn no_row_is_hidden_by_one_before_it() {
        for table in [REQUESTS, ANSWERS] {
            for (index, row) in table.iter().enumerate() {
                let name = row.name.trim_end_matches('*').replace("*_", "a_b");
                let hidden = table[..index].iter().find(|earlier| earlier.fits(&name));
                assert!(hidden.is_none(), "{row:?} after {hidden:?}");
                assert_eq!(row.name, row.name.to_ascii_lowercase());
            }
        }
    }

    #[test]
    fn names_that_a_cgi_server_reads_as_ours_do_not_cross() {
        for name in ["fencepost.tenant", "fencepost~tenant", "x.forwarded.for", "idempotency_key", "x_order"] {
            assert_eq!(crossing(REQUESTS, name), Some(Crossing::Diverts), "{name}");
        }
        assert_eq!(crossing(REQUESTS, "x-original-forwarded-for"), Some(Crossing::Forwarding));
        assert_eq!(crossing(REQUESTS, "x-original-url"), Some(Crossing::Diverts));
        assert_eq!(crossing(REQUESTS, "x-order-id"), None);
    }
}
