//! Differences between two policies: for people who reload one, in the log and in the answer.
//! Never applies anything, and never shows a secret: only names are told.
//! Called when a server is told to read its configuration again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Policy;
use super::collections::Collection;
use super::finding::{Finding, Severity};
use super::routes::GatewayRule;
use crate::WES_DISPATCH;

/// Names that came, went, or mean something else now.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Named {
    /// Those that are new.
    pub added: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
    /// Those that say something else.
    pub changed: Vec<String>,
}

impl Named {
    fn between<T: PartialEq>(old: &BTreeMap<String, T>, new: &BTreeMap<String, T>) -> Self {
        let fresh = |name: &&String| !old.contains_key(*name);
        let other = |name: &&String| new.get(*name).is_some_and(|now| Some(now) != old.get(*name));
        Self {
            added: new.keys().filter(fresh).cloned().collect(),
            removed: old.keys().filter(|name| !new.contains_key(*name)).cloned().collect(),
            changed: old.keys().filter(other).cloned().collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }

    fn json(&self) -> Value {
        json!({ "added": self.added, "removed": self.removed, "changed": self.changed })
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marked = |mark: &'static str, names: &[String]| {
            names.iter().map(|name| format!("{mark}{name}")).collect::<Vec<String>>()
        };
        let all = [marked("+", &self.added), marked("-", &self.removed), marked("~", &self.changed)].concat();
        f.write_str(&all.join(", "))
    }
}

/// Everything that is different.
#[derive(PartialEq, Eq, Debug)]
pub struct Changes {
    /// Scopes by name.
    pub scopes: Named,
    /// Routes by their `match`.
    pub routes: Named,
    /// Collections by name.
    pub collections: Named,
    /// Whether routes that stay are tried in another order.
    pub reordered: bool,
    /// Identities by id.
    pub identities: Named,
    /// Sections that apply to all.
    pub settings: Vec<&'static str>,
    /// Shown before it is in force.
    pub warnings: Vec<String>,
    /// Settings that cannot change under a running server.
    pub restart: Vec<&'static str>,
}

/// Said of each whose earlier keys no longer count.
const FORGETS: &str = "key changed: retries of earlier requests will not be recognised";

impl Changes {
    pub fn between(old: &Policy, new: &Policy) -> Self {
        let (before, after) = (routes(old), routes(new));
        let identities = |policy: &Policy| -> BTreeMap<String, _> {
            policy.identities.iter().map(|holder| (holder.identity.id.clone(), holder.clone())).collect()
        };
        let order = |policy: &Policy, other: &BTreeMap<String, &GatewayRule>| -> Vec<String> {
            let names = policy.routes.iter().map(|route| route.pattern.to_string());
            names.filter(|name| other.contains_key(name)).collect()
        };
        let named = |all: &[(&'static str, bool)]| -> Vec<&'static str> {
            all.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect()
        };
        Self {
            scopes: Named::between(&old.scopes, &new.scopes),
            routes: Named::between(&before, &after),
            collections: Named::between(&collections(old), &collections(new)),
            reordered: order(old, &after) != order(new, &before),
            identities: Named::between(&identities(old), &identities(new)),
            settings: named(&[
                ("require_headers", old.require_headers != new.require_headers),
                ("logging", old.logging != new.logging),
                ("on_conflict", old.on_conflict != new.on_conflict),
                ("audit_retention", old.audit_retention_ms != new.audit_retention_ms),
                ("gateway", old.gateway != new.gateway),
                ("ingest", old.ingest != new.ingest),
                ("stores.settle_for", old.stores.settle_for != new.stores.settle_for),
            ]),
            warnings: warnings(old, new, &before, &after),
            restart: named(&[
                ("server", old.server != new.server),
                ("stores.fence", old.stores.fence != new.stores.fence),
                ("stores.url", old.stores.url != new.stores.url),
                ("dispatch", old.dispatch != new.dispatch),
                ("gateway.connect_timeout", old.gateway.connect_timeout != new.gateway.connect_timeout),
                ("gateway.in_flight_max", old.gateway.in_flight_max != new.gateway.in_flight_max),
                ("gateway.idle_connections_max", old.gateway.idle_connections_max != new.gateway.idle_connections_max),
                ("gateway.ca", old.gateway.ca != new.gateway.ca),
                // The driver of the lanes holds this scope for as long as it runs.
                ("scopes.WES_DISPATCH", old.scopes.get(WES_DISPATCH) != new.scopes.get(WES_DISPATCH)),
            ]),
        }
    }

    /// Whether nothing is different that a request could notice.
    pub fn is_empty(&self) -> bool {
        let named = [&self.scopes, &self.routes, &self.collections, &self.identities];
        named.iter().all(|named| named.is_empty()) && !self.reordered && self.settings.is_empty()
    }

    /// Why a running server cannot take them, where it cannot.
    pub fn refused(&self, file: &str) -> Vec<Finding> {
        let finding = |section: &&'static str| Finding {
            severity: Severity::Error,
            rule: "restart",
            file: file.to_owned(),
            line: 0,
            col: 0,
            message: format!("`{section}` is different, and is read at start only"),
            fix: Some("restart the server, or put it back as it was".to_owned()),
        };
        self.restart.iter().map(finding).collect()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let mut routes = self.routes.json();
        routes["reordered"] = self.reordered.into();
        json!({
            "changed": !self.is_empty(),
            "scopes": self.scopes.json(),
            "routes": routes,
            "collections": self.collections.json(),
            "identities": self.identities.json(),
            "settings": self.settings,
            "warnings": self.warnings,
        })
    }

    /// For the log: each part that changed, with its changes.
    pub fn parts(&self) -> Vec<(&'static str, String)> {
        let reordered = if self.reordered { "other order" } else { "" };
        let parts = [
            ("scopes", self.scopes.to_string()),
            ("routes", self.routes.to_string()),
            ("collections", self.collections.to_string()),
            ("routes_order", reordered.to_owned()),
            ("identities", self.identities.to_string()),
            ("settings", self.settings.join(", ")),
            ("warnings", self.warnings.join("; ")),
        ];
        parts.into_iter().filter(|(_, said)| !said.is_empty()).collect()
    }
}

fn routes(policy: &Policy) -> BTreeMap<String, &GatewayRule> {
    policy.routes.iter().map(|route| (route.pattern.to_string(), route)).collect()
}

fn collections(policy: &Policy) -> BTreeMap<String, &Arc<Collection>> {
    policy.collections.iter().map(|collection| (collection.name.to_string(), collection)).collect()
}

fn warnings(
    old: &Policy,
    new: &Policy,
    before: &BTreeMap<String, &GatewayRule>,
    after: &BTreeMap<String, &GatewayRule>,
) -> Vec<String> {
    let scopes = old.scopes.iter().filter_map(|(name, was)| match new.scopes.get(name) {
        None => Some(format!("scope {name}: removed: its claims can no longer be sealed, nor its receipts replayed")),
        Some(now) if now.key != was.key => Some(format!("scope {name}: {FORGETS}")),
        Some(_) => None,
    });
    let routes = before.iter().filter_map(|(name, was)| {
        let now = after.get(name)?;
        let same = (&now.scope, &now.key, &now.tenant) == (&was.scope, &was.key, &was.tenant);
        (!same).then(|| format!("route {name}: {FORGETS}"))
    });
    let collections = old.collections.iter().filter(|was| new.collections.get(&was.name).is_none());
    let collections =
        collections.map(|was| format!("collection {}: removed: its items can no longer be read", was.name));
    scopes.chain(routes).chain(collections).collect()
}
