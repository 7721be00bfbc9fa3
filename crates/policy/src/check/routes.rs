//! Lints routes: against their scope, alone, and against each other.
//! Never decides which route serves a request: the first in the file that fits does.
//! Called by `check`.

use std::net::{IpAddr, SocketAddr};

use super::{Lints, Understood, near, suspicious};
use crate::duration;
use crate::finding::{Finding, Severity};
use crate::names::{self, Looks};
use crate::pattern;
use crate::routes::{FieldOrigin, GatewayRule};
use crate::scopes::{ParsedScope, is_own};
use crate::settings::GlobalSettings;

/// Methods that pass through without a fence.
const READS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// Runs every lint on routes.
pub fn lint(lints: &mut Lints<'_>, understood: &Understood<'_>) {
    let routes = understood.routes;
    for (index, route) in routes.iter().enumerate() {
        lints.unread = understood.unread_of(index);
        route_scope(lints, route, understood);
        route_alone(lints, route);
        required(lints, route, understood.settings);
        route_order(lints, route, &routes[..index]);
    }
    lints.findings.extend(understood.listen.map(|listen| loops(routes, listen)).unwrap_or_default());
}

/// Routes whose upstream is the address that the gateway itself listens on.
pub fn loops(routes: &[GatewayRule], listen: SocketAddr) -> Vec<Finding> {
    let own = |route: &&GatewayRule| {
        let uri = route.upstream.parse::<http::Uri>().ok();
        let authority = uri.as_ref().and_then(http::Uri::authority);
        let port = authority.and_then(|authority| authority.port_u16()).unwrap_or(match &uri {
            Some(uri) if uri.scheme_str() == Some("https") => 443,
            _ => 80,
        });
        let host = authority.map_or("", |authority| authority.host()).trim_matches(['[', ']']);
        let ip = host.parse::<IpAddr>().ok();
        let loopback = host.eq_ignore_ascii_case("localhost") || ip.is_some_and(|ip| ip.is_loopback());
        let here = ip == Some(listen.ip()) || (loopback && (listen.ip().is_loopback() || listen.ip().is_unspecified()));
        here && port == listen.port()
    };
    let said = |route: &GatewayRule| {
        let message = format!("the upstream {} is where this server listens: requests would go round", route.upstream);
        let fix = "name the application's own address, or let the server listen elsewhere".to_owned();
        route.mark.finding(Severity::Error, "upstream-loop", message, Some(fix))
    };
    routes.iter().filter(own).map(said).collect()
}

fn route_scope(lints: &mut Lints<'_>, route: &GatewayRule, understood: &Understood<'_>) {
    let scopes: &[ParsedScope] = understood.scopes;
    if is_own(&route.scope) {
        let message =
            format!("{} is sealed by Fencepost itself: an answer sealed there would be read as its own", route.scope);
        return lints.error(&route.scope_mark, "own-scope", message, "name a scope of your own");
    }
    let Some(read) = scopes.iter().find(|read| *read.scope.name == *route.scope) else {
        let names: Vec<String> = scopes.iter().map(|read| read.scope.name.to_string()).collect();
        let message = format!("no scope is called {}", route.scope);
        return lints.error(&route.scope_mark, "unknown-scope", message, near(&route.scope, &names));
    };
    let scope = &read.scope;
    for field in scope.key.iter().filter(|field| !route.key.iter().any(|(name, ..)| name == *field)) {
        let message = format!("this route does not say where `{field}` of {} comes from", scope.name);
        lints.error(
            &route.key_mark,
            "key-incomplete",
            message,
            format!("add `{field}: \"body:/…\"` (or header:, path:, query:)"),
        );
    }
    for (field, from, mark) in &route.key {
        if !scope.key.contains(field) {
            let message = format!("`{field}` is no key field of {}", scope.name);
            lints.error(mark, "key-too-much", message, near(field, &scope.key));
        } else if !read.allowed.iter().any(|(allowed, _)| allowed.text == *field) && names::look(field) == Looks::Fine {
            // The scope's lint has judged the field's own name. This judges the name of its source.
            let put = match from {
                FieldOrigin::Header(name) | FieldOrigin::Query(name) | FieldOrigin::Path(name) => name.as_str(),
                FieldOrigin::Body(pointer) => pointer.rsplit('/').next().unwrap_or_default(),
                FieldOrigin::Const(_) | FieldOrigin::Request(_) => continue,
            };
            let put = if put.eq_ignore_ascii_case("date") && matches!(from, FieldOrigin::Header(_)) {
                "timestamp"
            } else {
                put
            };
            suspicious(lints, put, field, &scope.name, mark);
        }
    }
    if let Some(timeout) = route.timeout.or(understood.timeout)
        && timeout.as_millis() > u128::from(scope.lease_ms)
    {
        let lease = duration::display(scope.lease_ms);
        let timeout = duration::display(timeout.as_millis().try_into().unwrap_or(u64::MAX));
        let message = format!("the upstream may take {timeout}, longer than the lease of {} ({lease})", scope.name);
        let fix = "raise the scope's `lease` above the `timeout`, or lower `timeout` of the route or the gateway";
        lints.warning(&route.mark, "lease-under-timeout", message, fix);
    }
}

fn route_alone(lints: &mut Lints<'_>, route: &GatewayRule) {
    let key = route.key.iter().map(|(field, from, mark)| (field.as_str(), from, mark));
    let order = route.order.iter().map(|from| ("order", from, &route.order_mark));
    let source = route.source.iter().map(|from| ("source", from, &route.source_mark));
    for (field, from, mark) in key.chain(order).chain(source) {
        if let FieldOrigin::Path(name) = from
            && !route.pattern.names().any(|known| known == name)
        {
            let known: Vec<String> = route.pattern.names().map(Into::into).collect();
            let message = format!("`{field}` comes from `path:{name}`, but `match` has no `{{{name}}}`");
            lints.error(mark, "path-name", message, near(name, &known));
        }
    }
    if route.order.is_some() && route.source.is_none() {
        let message = "`order` without `source`: all requests of this route wait for each other".to_owned();
        let fix = "name what has an order of its own: `source: \"body:/…\"`";
        lints.warning(&route.order_mark, "order-without-source", message, fix);
    }
    if let Some(method) = route.pattern.method.as_deref().filter(|method| READS.contains(method)) {
        let message = format!("{method} passes through without a fence, so this route's key is never used");
        lints.warning(&route.mark, "read-route", message, "match the method that writes");
    }
    if route.verify.is_none() && route.tenant.is_some() {
        let message = "`tenant` is for routes with `verify`: elsewhere the credential says whose key it is".into();
        lints.error(&route.mark, "tenant-without-verify", message, "remove `tenant`, or add `verify`");
    }
    let varies = |from: &FieldOrigin| match from {
        FieldOrigin::Const(_) => false,
        FieldOrigin::Request(part) => match part.as_str() {
            "method" => route.pattern.method.is_none(),
            "path" => route.pattern.names().next().is_some(),
            _ => true,
        },
        _ => true,
    };
    if !route.key.is_empty() && !route.key.iter().any(|(_, from, _)| varies(from)) {
        let message = "every request of this route has the same key: the first would be the only one to run".into();
        let fix = "take a field from what differs: header:Idempotency-Key, body:/…, path: or query:";
        lints.error(&route.key_mark, "constant-key", message, fix);
    }
}

/// A rule that takes its key from `Idempotency-Key` should require that header.
fn required(lints: &mut Lints<'_>, route: &GatewayRule, settings: &GlobalSettings) {
    const KEY: &str = "Idempotency-Key";
    let reads = route.pattern.method.as_deref().is_some_and(|method| READS.contains(&method));
    let listed = route.requires(&settings.require_headers).iter().any(|name| name.eq_ignore_ascii_case(KEY));
    if reads || listed || route.verify.is_some() {
        return;
    }
    let keyed = |from: &FieldOrigin| matches!(from, FieldOrigin::Header(name) if name.eq_ignore_ascii_case(KEY));
    if let Some((field, _, mark)) = route.key.iter().find(|(_, from, _)| keyed(from)) {
        let message = format!("`{field}` comes from {KEY}, which `require_headers` does not ask for");
        let fix = format!("add `require_headers: [{KEY}]`: a client without it is then told so");
        lints.warning(mark, "header-not-required", message, fix);
    }
}

/// Paths that Fencepost itself answers, before any route.
const OWN: [&str; 8] = [
    "/v1/{*rest}",
    "/admin/{*rest}",
    "/wes/v1/{*rest}",
    "/console/{*rest}",
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
];

fn route_order(lints: &mut Lints<'_>, route: &GatewayRule, earlier: &[GatewayRule]) {
    let own = OWN.iter().filter_map(|path| pattern::parse(&format!("* {path}")).ok());
    let tunnel = matches!(route.pattern.method.as_deref(), Some("CONNECT" | "TRACE"));
    if tunnel || own.into_iter().any(|own| own.covers(&route.pattern)) {
        let message = "this route is never reached: Fencepost itself answers there".to_owned();
        return lints.error(&route.mark, "unreachable-route", message, "give it another path or method");
    }
    if let Some(first) = earlier.iter().find(|first| first.pattern.covers(&route.pattern)) {
        let line = first.mark.line;
        let message = format!("this route is never reached: the one on line {line} takes all of its requests");
        lints.error(&route.mark, "unreachable-route", message, "put the narrower route first, or remove one");
    } else if let Some(first) =
        earlier.iter().find(|first| first.pattern.overlaps(&route.pattern) && !route.pattern.covers(&first.pattern))
    {
        let line = first.mark.line;
        let message = format!("some requests fit this route and the one on line {line}, which takes them");
        lints.warning(
            &route.mark,
            "overlapping-routes",
            message,
            "make the two apart, or check that the order is meant",
        );
    }
}
