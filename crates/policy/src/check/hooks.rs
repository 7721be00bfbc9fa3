//! Lints how a route handles failures, replays and signatures: no sender may learn that an effect is done before it is.
//! Never verifies a signature, and never shows a secret.
//! Called by `check`.

use std::time::Duration;

use fencepost_kernel::fence::scope::{OnLapse, RequiredDurability, Scope};

use super::{Lints, Understood};
use crate::finding::Severity;
use crate::routes::{FieldOrigin, GatewayRule, OnError, Scheme, Verify};
use crate::settings::FenceStore;
use crate::signature::Secret;

/// A shorter secret can be guessed.
const SECRET_BYTES_MIN: usize = 8;
/// With a longer tolerance, a third party has too much time to send a recorded delivery again.
const TOLERANCE_MAX: Duration = Duration::from_secs(3_600);

/// Runs every lint on the answers that senders rely on.
pub fn lint(lints: &mut Lints<'_>, understood: &Understood<'_>) {
    for (index, route) in understood.routes.iter().enumerate() {
        lints.unread = understood.unread_of(index);
        let scope = understood.scopes.iter().map(|read| &read.scope).find(|scope| *scope.name == *route.scope);
        outcomes(lints, route, scope);
        if let Some(verify) = &route.verify {
            secrets(lints, route, verify);
            unsigned(lints, route, verify);
            tenant(lints, route, &understood.routes[..index]);
            durable(lints, route, scope, understood.settings.stores.fence);
        }
    }
}

fn outcomes(lints: &mut Lints<'_>, route: &GatewayRule, scope: Option<&Scope>) {
    let done = route.replay.status.filter(|status| (200..300).contains(status));
    if let (None, Some(status)) = (done, route.replay.status) {
        let message =
            format!("a duplicate of something done is answered {status}: its sender takes that for a failure");
        lints.warning(&route.mark, "replay-status", message, "use a status from 200 to 299, or leave it out");
    }
    match (route.on_error, done) {
        (OnError::Seal, Some(status)) => {
            let message = format!("a failure is sealed, and its retries are answered {status}: told done, never done");
            let fix = "use `on_error: unknown`, or leave out `replay.status`";
            lints.error(&route.mark, "ack-before-seal", message, fix);
        }
        (OnError::Seal, None) if route.verify.is_some() => {
            let message = "a failure is sealed: no retry of this webhook would reach the application again".into();
            let fix = "use `on_error: unknown`, or `release` where a failure means that nothing happened";
            lints.warning(&route.mark, "seal-on-error", message, fix);
        }
        _ => {}
    }
    if route.on_error == OnError::Release && scope.is_some_and(|scope| scope.on_lapse == OnLapse::Hold) {
        let message = format!(
            "{} holds what is unknown for a person, but a timeout here frees the key to run again",
            route.scope
        );
        let fix = "use `on_error: unknown`; an upstream that knows better answers `Fencepost-Outcome: not-applied`";
        lints.error(&route.mark, "release-under-hold", message, fix);
    }
}

// A third party that recorded a delivery can change its unsigned parts, and each change would be a new effect.
fn unsigned(lints: &mut Lints<'_>, route: &GatewayRule, verify: &Verify) {
    let named = route.pattern.names().next().is_some();
    for (field, origin, mark) in &route.key {
        let place = match origin {
            FieldOrigin::Header(name)
                if verify.scheme == Scheme::StandardWebhooks
                    && (name.eq_ignore_ascii_case("webhook-id") || name.eq_ignore_ascii_case("svix-id")) =>
            {
                continue;
            }
            FieldOrigin::Header(name) => format!("the header {name}"),
            FieldOrigin::Query(name) => format!("the query's {name}"),
            FieldOrigin::Path(name) => format!("the path's {name}"),
            FieldOrigin::Request(part) if part == "path" && named => "the path".to_owned(),
            FieldOrigin::Request(part) if part == "method" && route.pattern.method.is_none() => "the method".to_owned(),
            FieldOrigin::Request(_) | FieldOrigin::Const(_) | FieldOrigin::Body(_) => continue,
        };
        let message = format!("`{field}` comes from {place}, which the signature does not cover");
        let fix = if verify.scheme.is_timed() {
            "take it from the body, or use request:digest: whoever records a delivery can send it again under another key while its signed time \
             counts"
        } else {
            "take it from the body, or use request:digest: whoever records a delivery can send it again under another key; Fencepost refuses \
             that (409) for as long as the scope remembers, and not after"
        };
        lints.warning(mark, "unsigned-key", message, fix);
    }
}

fn secrets(lints: &mut Lints<'_>, route: &GatewayRule, verify: &Verify) {
    let read = match verify.scheme {
        Scheme::StandardWebhooks => Secret::base64,
        Scheme::Fgai => Secret::new,
        Scheme::Stripe | Scheme::Github => Secret::literal,
    };
    for (number, secret) in (1..).zip(&verify.secrets) {
        if secret.trim().is_empty() || read(secret.as_bytes()).is_err() {
            let message = format!("secret {number} of this route cannot verify anything: it is blank, or not base64");
            let fix = "copy it whole; what follows `whsec_` is base64";
            lints.error(&route.mark, "secret-form", message, fix);
        } else if secret.len() < SECRET_BYTES_MIN {
            let message =
                format!("secret {number} of this route has fewer than {SECRET_BYTES_MIN} bytes: it can be guessed");
            let fix = "make one with `openssl rand -hex 32`, and give it to the sender";
            lints.warning(&route.mark, "short-secret", message, fix);
        }
    }
    if verify.scheme.is_timed() && verify.tolerance > TOLERANCE_MAX {
        let message = "a delivery may be signed more than an hour ago: whoever recorded one can send it again".into();
        lints.warning(&route.mark, "long-tolerance", message, "lower `tolerance`; senders sign anew for each try: 5m");
    }
}

/// Senders that share a scope need a tenant each, or a constant in the key, to keep their keys apart.
fn tenant(lints: &mut Lints<'_>, route: &GatewayRule, earlier: &[GatewayRule]) {
    if route.tenant.is_some() {
        return;
    }
    let constant = |route: &GatewayRule, name: &str| {
        let from = route.key.iter().find(|(field, ..)| field == name).map(|(_, from, _)| from.clone());
        from.and_then(|from| if let FieldOrigin::Const(text) = from { Some(text) } else { None })
    };
    let apart = |other: &GatewayRule| {
        route.key.iter().any(|(name, ..)| {
            let (one, two) = (constant(route, name), constant(other, name));
            one.is_some() && two.is_some() && one != two
        })
    };
    let shares = |other: &&GatewayRule| {
        let senders = other.verify.is_some() && other.verify != route.verify;
        senders && other.tenant.is_none() && other.scope == route.scope && !apart(other)
    };
    if let Some(other) = earlier.iter().find(shares) {
        let line = other.mark.line;
        let message = format!(
            "the webhooks of this route and of line {line} share their keys: one sender's event could pass for the other's"
        );
        lints.warning(
            &route.mark,
            "no-tenant",
            message,
            "name a `tenant` for each, or put `const:PROVIDER` into the key",
        );
    } else {
        let message = format!("the keys of this webhook belong to the tenant `webhook:{}`", route.scope);
        let fix = "name one with `tenant:` to keep senders apart";
        lints.say(Severity::Note, &route.mark, "no-tenant", message, fix);
    }
}

/// A webhook's sender never retries after a 2xx: by then the seal must survive a crash of the store.
fn durable(lints: &mut Lints<'_>, route: &GatewayRule, scope: Option<&Scope>, store: FenceStore) {
    if store == FenceStore::Redis && scope.is_some_and(|scope| scope.durability != RequiredDurability::Synced) {
        let message = format!(
            "the sender is acknowledged before the seal of {} is sure to survive a crash of Redis",
            route.scope
        );
        let fix = "give the scope `durability: synced`, which `serve` then insists on, or keep fences in another store";
        lints.warning(&route.mark, "ack-before-seal", message, fix);
    }
}
