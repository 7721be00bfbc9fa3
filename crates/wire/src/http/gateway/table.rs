//! The routes of one policy, made ready: which one takes a request, and what it needs that never changes.
//! Never reads a body. Built once for each policy that comes into force.

use std::sync::Arc;
use std::time::Duration;

use fencepost::policy::{
    Policy,
    identity::{Identity, Role, Warehouses},
    routes::{Origin, Route},
};
use http::{HeaderName, HeaderValue, Method, StatusCode, uri};

/// The routes of a policy.
pub(super) struct Table {
    pub(super) policy: Arc<Policy>,
    pub(super) entries: Vec<Arc<Entry>>,
}

/// One route with what follows from it.
pub(super) struct Entry {
    pub(super) route: Route,
    /// Its `match`, as it is counted and logged.
    pub(super) endpoint: Arc<str>,
    pub(super) scheme: uri::Scheme,
    /// HTTP/2 without TLS, because the policy says so.
    pub(super) h2c: bool,
    pub(super) authority: uri::Authority,
    pub(super) host: HeaderValue,
    /// What stands before the request's own path.
    pub(super) prefix: String,
    /// Whose keys an incoming webhook's are.
    pub(super) signer: Option<Arc<Identity>>,
    pub(super) replay_status: Option<StatusCode>,
    pub(super) replay_header: Option<(HeaderName, HeaderValue)>,
    /// The longest silence of the upstream.
    pub(super) timeout: Duration,
    /// Whether something of the request's JSON is needed.
    pub(super) reads_json: bool,
}

/// What a request is to the gateway.
pub(super) enum Fit<'p> {
    /// A write that is fenced, with the names of its path.
    Fenced(&'p Arc<Entry>, Vec<(&'p str, &'p str)>),
    /// A read, which passes.
    Passing(&'p Arc<Entry>),
    /// The path is known, the method is not.
    OtherMethod,
    /// Nothing of ours.
    None,
}

impl Table {
    pub(super) fn new(policy: Arc<Policy>) -> Self {
        // What cannot be an address was refused when the policy was read.
        let entries = policy.routes.iter().filter_map(|route| entry(&policy, route)).map(Arc::new).collect();
        Self { policy, entries }
    }

    /// The first route that takes a request.
    pub(super) fn fit<'p>(&'p self, method: &Method, path: &'p str) -> Fit<'p> {
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        let mut fit = Fit::None;
        // One would open a tunnel, the other tells a client what proxies added.
        if matches!(*method, Method::CONNECT | Method::TRACE) {
            return Fit::OtherMethod;
        }
        for (index, entry) in self.entries.iter().enumerate() {
            let pattern = &entry.route.pattern;
            let Some(bound) = pattern.bind(path) else { continue };
            let wanted = pattern.method.as_deref().is_none_or(|wanted| wanted == method.as_str());
            match (reads, wanted) {
                (true, true) => return Fit::Passing(entry),
                // Another route may be for reads; without one, they go where the path's writes go.
                (true, false) if matches!(fit, Fit::None) => fit = Fit::Passing(entry),
                (true, false) => {}
                (false, true) if self.stricter(index, method, path) => return Fit::None,
                (false, true) => return Fit::Fenced(entry, bound),
                (false, false) => fit = Fit::OtherMethod,
            }
        }
        fit
    }

    /// Whether a route before this one would take the path in another spelling that many servers read as the same: a
    /// wide route must not let in what a narrow one verifies.
    fn stricter(&self, index: usize, method: &Method, path: &str) -> bool {
        let near = nearest(path);
        self.entries[..index].iter().any(|earlier| {
            let pattern = &earlier.route.pattern;
            pattern.method.as_deref().is_none_or(|wanted| wanted == method.as_str())
                && pattern.in_lower_case().bind(&near).is_some()
        })
    }
}

// What a careless server may read a path as: coded slashes are slashes, nothing counts behind a semicolon, and neither do
// case and empty segments.
fn nearest(path: &str) -> String {
    let decoded = path.to_ascii_lowercase().replace("%2f", "/").replace("%5c", "/").replace("%3b", ";");
    let cut = decoded.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    cut.filter(|segment| !segment.is_empty()).fold(String::new(), |near, segment| near + "/" + segment)
}

/// A path with every letter, digit, `-`, `.`, `_` and `~` written as itself; none where it is already.
pub(super) fn spelled(path: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = path;
    while let Some((plain, coded)) = rest.split_once('%') {
        let byte = coded.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte.filter(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(byte)) {
            Some(byte) => {
                out.push_str(plain);
                out.push(char::from(byte));
                rest = &coded[2..];
            }
            None => {
                let end = plain.len() + 1;
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
        }
    }
    out.push_str(rest);
    (out != path).then_some(out)
}

fn entry(policy: &Policy, route: &Route) -> Option<Entry> {
    let h2c = route.upstream.starts_with("h2c://");
    let address = if h2c { route.upstream.replacen("h2c", "http", 1) } else { route.upstream.clone() };
    let uri::Parts { scheme, authority, path_and_query, .. } = address.parse::<uri::Uri>().ok()?.into_parts();
    let (scheme, authority) = (scheme?, authority?);
    let prefix = path_and_query.map(|path| path.path().trim_end_matches('/').to_owned()).unwrap_or_default();
    let signer = route.signer().map(|tenant| Arc::new(Identity::new(tenant, [Role::Partner], Warehouses::All)));
    let origins = route.key.iter().map(|(_, origin, _)| origin).chain(&route.order).chain(&route.source);
    let replay_header = route.replay.header.as_ref().and_then(|(name, value)| {
        Some((HeaderName::try_from(name.as_str()).ok()?, HeaderValue::try_from(value.as_str()).ok()?))
    });
    Some(Entry {
        endpoint: route.pattern.to_string().into(),
        scheme,
        h2c,
        host: HeaderValue::from_str(authority.as_str()).ok()?,
        authority,
        prefix,
        signer,
        replay_status: route.replay.status.and_then(|status| StatusCode::from_u16(status).ok()),
        replay_header,
        timeout: route.timeout.unwrap_or(policy.gateway.timeout),
        reads_json: origins.into_iter().any(|origin| matches!(origin, Origin::Body(_))),
        route: route.clone(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_route_does_not_take_a_near_spelling_of_a_narrower_one() {
        let policy = Policy::parse(
            "p.yml",
            "routes:\n\
             - { match: \"POST /hooks/Stripe\", upstream: \"http://127.0.0.1:1\", scope: API_WRITE, verify: { scheme: stripe, secrets: [\"whsec_one\"] }, tenant: t,\n    \
                 key: { method: \"request:method\", path: \"request:path\", idempotency_key: \"body:/id\" } }\n\
             - { match: \"POST /{*all}\", upstream: \"http://127.0.0.1:1\", scope: API_WRITE,\n    \
                 key: { method: \"request:method\", path: \"request:path\", idempotency_key: \"body:/id\" } }\n",
        );
        let table = Table::new(Arc::new(policy.unwrap()));
        let taken = |path: &str| match table.fit(&Method::POST, path) {
            Fit::Fenced(entry, _) => Some(entry.signer.is_some()),
            _ => None,
        };
        assert_eq!(taken("/hooks/Stripe"), Some(true));
        for near in ["/hooks/stripe", "/HOOKS/Stripe", "/hooks/Stripe/", "/hooks/Stripe;a=1", "/hooks;v=2/Stripe"] {
            assert_eq!(taken(near), None, "{near}");
        }
        assert_eq!(taken("/hooks/other"), Some(false));
    }

    #[test]
    fn a_letter_is_spelled_as_itself() {
        for (path, wanted) in [
            ("/hooks/%73tripe", Some("/hooks/stripe")),
            ("/a%2Db%7e", Some("/a-b~")),
            ("/a%2fb%20c", None),
            ("/a%2f%61", Some("/a%2fa")),
            ("/plain", None),
        ] {
            assert_eq!(spelled(path).as_deref(), wanted, "{path}");
        }
    }
}
