//! The gateway's rules of one policy, prepared: finds the rule that takes a request, and holds its fixed values.
//! Never reads a body. Called by the gateway; built once for each policy that comes into force.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencepost::policy::{
    Policy,
    identity::{Identity, Role, Warehouses},
    near::Near,
    routes::{self, FieldOrigin, GatewayRule},
};
use http::{HeaderName, HeaderValue, Method, StatusCode, header, uri};

use crate::{http::call::Call, log::Level};

/// The rules of a policy.
pub(super) struct Table {
    pub(super) policy: Arc<Policy>,
    pub(super) entries: Vec<Arc<Entry>>,
}

/// One rule with the values that follow from it.
pub(super) struct Entry {
    pub(super) route: GatewayRule,
    /// The paths that a careless server may read as the rule's own.
    near: Near,
    /// Its `match`, as metrics and the log name it.
    pub(super) endpoint: Arc<str>,
    pub(super) scheme: uri::Scheme,
    /// HTTP/2 without TLS, because the policy says so.
    pub(super) h2c: bool,
    pub(super) authority: uri::Authority,
    pub(super) host: HeaderValue,
    /// Put before the request's own path.
    pub(super) prefix: String,
    /// The tenant of an incoming webhook's keys; none for other rules.
    pub(super) signer: Option<Arc<Identity>>,
    pub(super) replay_status: Option<StatusCode>,
    pub(super) replay_header: Option<(HeaderName, HeaderValue)>,
    /// The longest silence of the upstream.
    pub(super) timeout: Duration,
    /// Whether the rule reads a value out of a JSON body.
    pub(super) reads_json: bool,
    /// Whether the log has warned that cookies pass.
    warned_of_cookies: AtomicBool,
}

impl Entry {
    /// Warns once if cookies pass upstream under a rule that does not tell users apart. Only a request can show this.
    pub(super) fn warn_of_cookies(&self, call: &Call) {
        let passes = self.signer.is_none() && call.parts.headers.contains_key(header::COOKIE);
        if passes && !self.warned_of_cookies.swap(true, Ordering::Relaxed) {
            let app = &call.app;
            let said =
                "cookies pass to the upstream, and the rule names no `principal`: users of one tenant share answers";
            app.log.line(Level::Warn, app.fencepost.engine().now().0, said).text("endpoint", &self.endpoint);
        }
    }
}

/// How the gateway treats a request.
pub(super) enum Fit<'p> {
    /// A write, which is fenced, with the named values of its path.
    Fenced(&'p Arc<Entry>, Vec<(&'p str, &'p str)>),
    /// A read, which passes.
    Passing(&'p Arc<Entry>),
    /// The path is known, the method is not.
    OtherMethod,
    /// No rule takes it.
    None,
}

impl Table {
    /// Fails where a rule has no usable upstream: without that rule, a wider one would take its requests. A policy that
    /// was read from a file has no such rule.
    pub(super) fn new(policy: Arc<Policy>) -> Result<Self, String> {
        let entries = policy.routes.iter().map(|route| {
            let unfit = || format!("the route {} has no usable upstream: {}", route.pattern, route.upstream);
            entry(&policy, route).map(Arc::new).ok_or_else(unfit)
        });
        let entries = entries.collect::<Result<_, _>>()?;
        Ok(Self { policy, entries })
    }

    /// The first rule that takes a request.
    pub(super) fn fit<'p>(&'p self, method: &Method, path: &'p str) -> Fit<'p> {
        let reads = super::upstream::is_read(method);
        let mut fit = Fit::None;
        // CONNECT would open a tunnel; TRACE shows a client the headers that proxies added.
        if matches!(*method, Method::CONNECT | Method::TRACE) {
            return Fit::OtherMethod;
        }
        for (index, entry) in self.entries.iter().enumerate() {
            let pattern = &entry.route.pattern;
            let Some(bound) = pattern.bind(path) else { continue };
            let wanted = pattern.takes(method.as_str());
            match (reads, wanted) {
                (true, true) => return Fit::Passing(entry),
                // A later rule may be for reads; without one, reads go where the path's writes go.
                (true, false) if matches!(fit, Fit::None) => fit = Fit::Passing(entry),
                (true, false) => {}
                (false, true) if self.disputed(index, method, path) => return Fit::None,
                (false, true) => return Fit::Fenced(entry, bound),
                (false, false) => fit = Fit::OtherMethod,
            }
        }
        fit
    }

    /// The methods that the rules of a path take, for the `Allow` of a 405.
    pub(super) fn allowed(&self, path: &str) -> HeaderValue {
        let mut names = BTreeSet::new();
        for GatewayRule { pattern, .. } in self.entries.iter().map(|entry| &entry.route) {
            if pattern.bind(path).is_some() {
                names.extend(["GET", "HEAD", "OPTIONS"]);
                match &pattern.method {
                    Some(method) => names.extend([method.as_str()]),
                    None => names.extend(["DELETE", "PATCH", "POST", "PUT"]),
                }
            }
        }
        let names: Vec<&str> = names.into_iter().collect();
        HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static(""))
    }

    /// Whether another rule would take the path in a spelling that many servers read as the same. No rule may let in a
    /// path that another verifies, or fences in its own way.
    fn disputed(&self, index: usize, method: &Method, path: &str) -> bool {
        if self.entries.len() == 1 {
            return false;
        }
        let readings = Near::readings(path);
        (0..self.entries.len()).filter(|at| *at != index).any(|at| {
            let disputes = |near| self.bypasses(index, at, near) || self.contests(index, at, method, path, near);
            readings.iter().any(disputes)
        })
    }

    /// Whether a write would bypass a signature. A verified path owns the paths below it and its extensions, for every
    /// method that writes: only a rule that names a path there may take it.
    fn bypasses(&self, index: usize, at: usize, near: &Near) -> bool {
        let (entry, other) = (&self.entries[index], &self.entries[at]);
        let (asked, wanted) = (&entry.route.verify, &other.route.verify);
        wanted.is_some() && wanted != asked && other.near.owns(near) && !other.near.owns(&entry.near)
    }

    fn contests(&self, index: usize, at: usize, method: &Method, path: &str, near: &Near) -> bool {
        let (entry, other) = (&self.entries[index], &self.entries[at]);
        if !other.route.pattern.takes(method.as_str()) || !other.near.covers(near) {
            return false;
        }
        let own = entry.near.covers(near);
        let (asked, wanted) = (&entry.route.verify, &other.route.verify);
        let bypassed = wanted.is_some() && wanted != asked;
        let wider = other.near.covers(&entry.near);
        if at < index {
            // A policy may name two spellings of one path, or name one separately because it is verified.
            let named = wider && entry.near.covers(&other.near);
            bypassed || (wanted == asked && !named)
        } else if other.route.pattern.bind(path).is_some() {
            // As written, both rules match, and the first takes it. As read upstream, perhaps only the verifying one.
            bypassed && !own
        } else {
            // As read upstream, both may match. A later rule that covers all paths of this one is not meant for them.
            !own || (bypassed && !wider)
        }
    }
}

/// A path with every letter, digit, `-`, `.`, `_` and `~` written as itself; none where it is already.
pub(super) fn spelled(path: &str) -> Option<String> {
    if !path.contains('%') {
        return None;
    }
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

fn entry(policy: &Policy, route: &GatewayRule) -> Option<Entry> {
    let h2c = route.upstream.starts_with("h2c://");
    let uri::Parts { scheme, authority, path_and_query, .. } = routes::address(&route.upstream)?.into_parts();
    let (scheme, authority) = (scheme?, authority?);
    let prefix = path_and_query.map(|path| path.path().trim_end_matches('/').to_owned()).unwrap_or_default();
    let signer = route.signer().map(|tenant| Arc::new(Identity::new(tenant, [Role::Partner], Warehouses::All)));
    let origins = route.key.iter().map(|(_, origin, _)| origin).chain(&route.order).chain(&route.source);
    let replay_header = route.replay.header.as_ref().and_then(|(name, value)| {
        Some((HeaderName::try_from(name.as_str()).ok()?, HeaderValue::try_from(value.as_str()).ok()?))
    });
    // A webhook's provider gets 200 for a duplicate, even if the application answered another success the first time.
    let replay_status = route.replay.status.or(route.verify.is_some().then_some(200));
    Some(Entry {
        endpoint: route.pattern.to_string().into(),
        scheme,
        h2c,
        host: HeaderValue::from_str(authority.as_str()).ok()?,
        authority,
        prefix,
        signer,
        replay_status: replay_status.and_then(|status| StatusCode::from_u16(status).ok()),
        replay_header,
        timeout: route.timeout.unwrap_or(policy.gateway.timeout),
        reads_json: origins.into_iter().any(|origin| matches!(origin, FieldOrigin::Body(_))),
        near: Near::from(&route.pattern),
        warned_of_cookies: AtomicBool::new(false),
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
        let table = Table::new(Arc::new(policy.unwrap())).unwrap();
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

    /// The index of the rule that takes a POST.
    fn taken(routes: &[(&str, &str)], path: &str) -> Option<usize> {
        taken_by(&Method::POST, routes, path)
    }

    fn taken_by(method: &Method, routes: &[(&str, &str)], path: &str) -> Option<usize> {
        let mut text = "scopes: {S: {key: [id]}}\nroutes:\n".to_owned();
        for (pattern, more) in routes {
            text += &format!(
                "- {{match: \"{pattern}\", upstream: \"http://h:1\", scope: S, key: {{id: \"body:/id\"}}{more}}}\n"
            );
        }
        let table = Table::new(Arc::new(Policy::parse("p.yml", &text).unwrap())).unwrap();
        match table.fit(method, path) {
            Fit::Fenced(taken, _) => table.entries.iter().position(|entry| Arc::ptr_eq(entry, taken)),
            _ => None,
        }
    }

    const VERIFIED: &str = ", tenant: t, verify: {scheme: github, secrets: [long enough]}";

    #[test]
    fn a_route_takes_no_near_spelling_of_a_later_one() {
        let shops = [("POST /shops/{shop}", ""), ("POST /shops/{shop}/stripe", VERIFIED)];
        for (path, wanted) in [
            ("/shops/7", Some(0)),
            ("/shops/a%2Fb", Some(0)),
            ("/shops/7/stripe", Some(1)),
            ("/shops/7%2Fstripe", None),
            ("/shops/7%5CStripe", None),
        ] {
            assert_eq!(taken(&shops, path), wanted, "{path}");
        }
        let cased = |more| [("POST /a/{x}", ""), ("POST /A/pay", more)];
        for (path, verified, plain) in
            [("/a/x", Some(0), Some(0)), ("/a/pay", None, Some(0)), ("/A/pay", Some(1), None)]
        {
            assert_eq!((taken(&cased(VERIFIED), path), taken(&cased(""), path)), (verified, plain), "{path}");
        }
        // Also where the later rule would take the path as it is written.
        let wide = [("POST /shops/{shop}", ""), ("POST /{*all}", VERIFIED)];
        for (path, wanted) in [("/shops/7", Some(0)), ("/shops/7%2Fstripe", None), ("/shops/7/stripe", Some(1))] {
            assert_eq!(taken(&wide, path), wanted, "{path}");
        }
    }

    #[test]
    fn a_later_route_for_more_of_the_same_takes_nothing_from_the_one_before() {
        for later in ["POST /Orders/{*rest}", "POST /{*all}", "POST /ORDERS/{number}", "POST /orders/{id}/"] {
            assert_eq!(taken(&[("POST /orders/{id}", ""), (later, "")], "/orders/7"), Some(0), "{later}");
        }
        let both = |first: &str| {
            let slashed = [("POST /orders/", first), ("POST /orders", "")];
            (taken(&slashed, "/orders/"), taken(&slashed, "/orders"))
        };
        assert_eq!((both(""), both(VERIFIED)), ((Some(0), Some(1)), (Some(0), None)));
        let coded = [("POST /orders/{id}", ""), ("POST /{*all}", "")];
        assert_eq!(taken(&coded, "/orders/a%2Fb"), Some(0));
    }

    #[test]
    fn a_character_and_its_code_are_one() {
        let narrow = [("POST /orders:refund", VERIFIED), ("POST /{*all}", "")];
        for (path, wanted) in [
            ("/orders:refund", Some(0)),
            ("/orders%3Arefund", Some(0)),
            ("/orders%3arefund", Some(0)),
            ("/Orders%3Arefund", None),
            ("/orders%3Arefund/", None),
            ("/orders%253Arefund", None),
        ] {
            assert_eq!(taken(&narrow, path), wanted, "{path}");
        }
        let coded = [("POST /hooks/café/%70ay", VERIFIED), ("POST /{*all}", "")];
        for (path, wanted) in [
            ("/hooks/caf%C3%A9/pay", Some(0)),
            ("/hooks/caf%c3%a9/pay", Some(0)),
            ("/hooks/caf%C3%A9%2Fpay", None),
            ("/hooks/caf%C3%89/pay", None),
            ("/hooks/caf%E9/pay", Some(1)),
        ] {
            assert_eq!(taken(&coded, path), wanted, "{path}");
        }
    }

    #[test]
    fn a_verified_path_owns_its_extensions_its_suffixes_and_what_lies_below_it() {
        let hooks = [
            ("POST /hooks/stripe", VERIFIED),
            ("POST /hooks/stripe/test", ""),
            ("POST /hooks/stripe.csv", ""),
            ("POST /{*all}", ""),
        ];
        for (path, wanted) in [
            ("/hooks/stripe", Some(0)),
            ("/hooks/stripe.json", None),
            ("/hooks/stripe.", None),
            ("/hooks/stripe%20", None),
            ("/hooks/stripe%3Fx", None),
            ("/hooks/stripe%23x", None),
            ("/hooks/stripe%00", None),
            ("/hooks/str%2569pe", None),
            ("/hooks%252Fstripe", None),
            ("/hooks%5Cstripe%5Cx", None),
            ("/hooks/stripe/x", None),
            ("/hooks/stripe/x/y", None),
            ("/hooks/stripe/..%3F/x", None),
            ("/x/%252e%252e/hooks/stripe", None),
            // The rules that the policy names there take their own paths.
            ("/hooks/stripe/test", Some(1)),
            ("/hooks/stripe/test.json", None),
            ("/hooks/stripe.csv", Some(2)),
            ("/hooks/stripes", Some(3)),
            ("/hooks/other", Some(3)),
            ("/hooks", Some(3)),
        ] {
            assert_eq!(taken(&hooks, path), wanted, "{path}");
        }
        let named = [("POST /shops/{shop}", VERIFIED), ("POST /shops/{shop}/orders/{*rest}", ""), ("POST /{*all}", "")];
        for (path, wanted) in
            [("/shops/7", Some(0)), ("/shops/7/orders/x", Some(1)), ("/shops/7/x", None), ("/shops", Some(2))]
        {
            assert_eq!(taken(&named, path), wanted, "{path}");
        }
    }

    #[test]
    fn a_verified_path_is_owned_for_every_method_that_writes() {
        let wide = [("POST /hooks/stripe", VERIFIED), ("* /{*all}", "")];
        for (method, path, wanted) in [
            (Method::PUT, "/hooks/stripe", None),
            (Method::PATCH, "/hooks/stripe.json", None),
            (Method::DELETE, "/hooks/stripe/x", None),
            (Method::PUT, "/hooks/other", Some(1)),
            (Method::POST, "/hooks/stripe", Some(0)),
        ] {
            assert_eq!(taken_by(&method, &wide, path), wanted, "{method} {path}");
        }
        let any = [("* /hooks/stripe", VERIFIED), ("PUT /hooks/{name}", "")];
        assert_eq!(taken_by(&Method::PUT, &any, "/hooks/stripe"), Some(0));
        assert_eq!(taken_by(&Method::PUT, &any, "/hooks/stripe.json"), None);
        let named = [("POST /hooks/stripe", VERIFIED), ("PUT /hooks/stripe", "")];
        assert_eq!(taken_by(&Method::PUT, &named, "/hooks/stripe"), Some(1));
    }

    #[test]
    fn a_route_without_an_address_is_not_passed_over() {
        let text = "scopes: {S: {key: [id]}}\nroutes:\n\
                    - {match: POST /a, upstream: \"http://h:1\", scope: S, key: {id: \"body:/id\"}}\n";
        let mut policy = Policy::parse("p.yml", text).unwrap();
        policy.routes[0].upstream += "/my app";
        assert!(Table::new(Arc::new(policy)).err().unwrap().contains("POST /a"));
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
