//! Lints which callers a rule admits, and which user a stored answer is for.
//! Never looks at identities: credentials change without the policy.
//! Called by `check`.

use fencepost_kernel::fence::scope::{BodyMismatch, Scope};

use super::{Lints, Understood};
use crate::callers::Principal;
use crate::finding::Severity;
use crate::routes::{FieldOrigin, GatewayRule};
use crate::settings::GlobalSettings;

/// Headers in which a front end, or a browser behind it, names the user. `Authorization` is not among them: on a write
/// it is the tenant's own credential, which never reaches the upstream.
const USERS: [&str; 14] = [
    "cookie",
    "remote-user",
    "x-access-token",
    "x-auth-request-email",
    "x-auth-request-user",
    "x-auth-token",
    "x-csrf-token",
    "x-forwarded-email",
    "x-forwarded-user",
    "x-remote-user",
    "x-user",
    "x-user-id",
    "x-user-token",
    "x-xsrf-token",
];

/// Runs every lint on callers.
pub fn lint(lints: &mut Lints<'_>, understood: &Understood<'_>) {
    for (index, route) in understood.routes.iter().enumerate() {
        lints.unread = understood.unread_of(index);
        let scope = understood.scopes.iter().map(|read| &read.scope).find(|scope| *scope.name == *route.scope);
        match (&route.verify, &route.callers.mark) {
            (Some(_), Some(mark)) => {
                let message =
                    "`roles`, `tenants` and `principal` are for callers with a credential; a rule with `verify` \
                               takes none"
                        .to_owned();
                lints.error(mark, "caller-with-verify", message, "remove them, or remove `verify`");
            }
            (Some(_), None) => {}
            (None, _) => users(lints, route, scope, understood.settings),
        }
    }
}

fn users(lints: &mut Lints<'_>, route: &GatewayRule, scope: Option<&Scope>, settings: &GlobalSettings) {
    let (principal, mark) = match (&route.callers.principal, &route.callers.principal_mark) {
        (Some(principal), Some(mark)) => (principal, mark),
        _ => return no_principal(lints, route, settings),
    };
    if scope.is_some_and(|scope| scope.body_mismatch == BodyMismatch::Replay) {
        let message = format!(
            "{} answers the first receipt to another request: one user would get another's answer despite `principal`",
            route.scope
        );
        let fix = "give the scope `reject_on_body_mismatch: true`, or make the user a field of the key";
        lints.error(mark, "principal-not-compared", message, fix);
    }
    let header = principal.header();
    if header.eq_ignore_ascii_case("authorization") {
        let message =
            "the Authorization of a write is the tenant's own credential: it is the same for all of its users, \
                       and its rotation makes every retry a conflict"
                .to_owned();
        let fix = "let the front end send the user's id in a header of its own: `principal: header:X-User-Id`";
        lints.warning(mark, "principal-unstable", message, fix);
    } else if header.eq_ignore_ascii_case("cookie") {
        let message = "cookies change between a request and its retry, which is then a conflict".to_owned();
        let fix = "let the front end send the user's id in a header of its own: `principal: header:X-User-Id`";
        lints.warning(mark, "principal-unstable", message, fix);
    } else if matches!(principal, Principal::Token { .. }) {
        let message =
            format!("the token in {header} is read and not verified: it must be, before the request comes here");
        let fix =
            "verify it in the front end that holds the tenant's credential; the upstream is not asked for a replay";
        lints.say(Severity::Note, mark, "principal-unverified", message, fix);
    }
}

// Where the policy itself uses a header that names the user, the tenant has several users.
fn no_principal(lints: &mut Lints<'_>, route: &GatewayRule, settings: &GlobalSettings) {
    let user = |name: &&str| USERS.iter().any(|known| name.eq_ignore_ascii_case(known));
    let header = |from: &'_ FieldOrigin| if let FieldOrigin::Header(name) = from { Some(name.clone()) } else { None };
    // A key field from such a header keeps users apart already.
    let keyed = route.key.iter().filter_map(|(_, from, _)| header(from)).any(|name| user(&name.as_str()));
    let named = route
        .order
        .iter()
        .chain(&route.source)
        .filter_map(header)
        .chain(route.requires(&settings.require_headers).iter().cloned());
    if let Some(name) = named.filter(|name| user(&name.as_str())).find(|_| !keyed) {
        let message = format!(
            "{name} passes to the upstream, and no `principal` is named: a user who repeats another's key and request gets \
             the other's answer"
        );
        let fix = "name what stays the same for one user: `principal: header:X-User-Id`";
        lints.warning(&route.mark, "no-principal", message, fix);
    }
}
