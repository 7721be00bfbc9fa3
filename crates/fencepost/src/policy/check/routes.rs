//! Lints of routes: against their scope, in themselves, and against each other.
//! Never decides which route serves a request: the first in the file that fits does.
//! Called by `check`.

use super::{Lints, near, suspicious};
use crate::policy::duration;
use crate::policy::finding::Severity;
use crate::policy::names::{self, Looks};
use crate::policy::routes::{Origin, Route};
use crate::policy::scopes::Read;

/// Runs every lint on routes.
pub fn lint(lints: &mut Lints<'_>, routes: &[Route], scopes: &[Read]) {
    for (index, route) in routes.iter().enumerate() {
        route_scope(lints, route, scopes);
        route_alone(lints, route);
        route_order(lints, route, &routes[..index]);
    }
}

fn route_scope(lints: &mut Lints<'_>, route: &Route, scopes: &[Read]) {
    let Some(read) = scopes.iter().find(|read| read.scope.name == route.scope) else {
        let names: Vec<String> = scopes.iter().map(|read| read.scope.name.clone()).collect();
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
            // The scope's own name for the field has been judged already; here, what is put into it.
            let put = match from {
                Origin::Header(name) | Origin::Query(name) | Origin::Path(name) => name.as_str(),
                Origin::Body(pointer) => pointer.rsplit('/').next().unwrap_or_default(),
                Origin::Const(_) | Origin::Request(_) => continue,
            };
            let put =
                if put.eq_ignore_ascii_case("date") && matches!(from, Origin::Header(_)) { "timestamp" } else { put };
            suspicious(lints, put, field, &scope.name, mark);
        }
    }
    if let Some(timeout) = route.timeout
        && timeout.as_millis() > u128::from(scope.lease_ms)
    {
        let lease = duration::display(scope.lease_ms);
        let message = format!("the upstream may take longer than the lease of {} ({lease})", scope.name);
        lints.warning(&route.mark, "lease-under-timeout", message, "raise `lease` above the route's `timeout`");
    }
}

fn route_alone(lints: &mut Lints<'_>, route: &Route) {
    for (field, from, mark) in &route.key {
        if let Origin::Path(name) = from
            && !route.pattern.names().any(|known| known == name)
        {
            let known: Vec<String> = route.pattern.names().map(Into::into).collect();
            let message = format!("`{field}` comes from `path:{name}`, but `match` has no `{{{name}}}`");
            lints.error(mark, "path-name", message, near(name, &known));
        }
    }
    if let Some(method) = route.pattern.method.as_deref().filter(|m| ["GET", "HEAD", "OPTIONS"].contains(m)) {
        let message = format!("{method} passes through without a fence, so this route's key is never used");
        lints.warning(&route.mark, "read-route", message, "match the method that writes");
    }
    match (&route.verify, &route.tenant) {
        (None, Some(_)) => {
            let message = "`tenant` is for routes with `verify`: elsewhere the credential says whose key it is".into();
            lints.error(&route.mark, "tenant-without-verify", message, "remove `tenant`, or add `verify`");
        }
        (Some(_), None) => {
            let message = format!("the keys of this webhook belong to the tenant `webhook:{}`", route.scope);
            lints.say(
                Severity::Note,
                &route.mark,
                "no-tenant",
                message,
                "name one with `tenant:` to keep senders apart",
            );
        }
        _ => {}
    }
}

fn route_order(lints: &mut Lints<'_>, route: &Route, earlier: &[Route]) {
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
