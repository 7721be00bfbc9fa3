//! Reads identities with their credentials, from a policy or from the credentials file.
//! Never accepts a token in place of its hash, and never echoes one it was given by mistake.
//! Called by `Policy::load` and by `credentials`.

use std::collections::{BTreeSet, HashMap};

use super::identity::{Credential, Holder, Identity, Planners, Role, Sha, Warehouses};
use super::read::Reader;
use super::yaml::{Mark, Node, Value};

/// Reads a list of identities, each with its place.
pub fn read(reader: &mut Reader, node: &Node) -> Vec<(Holder, Mark)> {
    let items = reader.items(node, "`identities`").unwrap_or_default();
    let mut holders: Vec<(Holder, Mark)> = Vec::new();
    let mut seen = HashMap::new();
    for item in items {
        let Some(holder) = holder(reader, item) else { continue };
        if holders.iter().any(|(earlier, _)| earlier.identity.id == holder.identity.id) {
            let message = format!("identity {} stands twice", holder.identity.id);
            reader.error(&item.mark, "duplicate", message, "put its credentials under one");
            continue;
        }
        for credential in holder.tokens.iter().chain(&holder.certificates) {
            if let Some(other) = seen.insert(credential.sha, holder.identity.id.clone()) {
                let message = format!("{} and {other} have the same credential", holder.identity.id);
                reader.error(&item.mark, "shared-credential", message, "give each its own");
            }
        }
        holders.push((holder, item.mark.clone()));
    }
    holders
}

fn holder(reader: &mut Reader, node: &Node) -> Option<Holder> {
    let known = ["id", "roles", "warehouses", "planners", "credentials", "certificates"];
    let fields = reader.fields(node, "an identity", &known)?;
    let Some(id) = fields.get("id") else {
        reader.error(&node.mark, "no-id", "this identity has no `id`", "write `id: acme`");
        return None;
    };
    let name = reader.text(id, "`id`")?;
    if !id_fits(&name) {
        let fix =
            "use 1 to 128 visible ASCII characters without blanks or quotes, not beginning with webhook: or queue:";
        reader.error(&id.mark, "identity-name", format!("`{name}` cannot name an identity"), fix);
        return None;
    }
    let mut roles = BTreeSet::new();
    match fields.get("roles") {
        Some(list) => {
            for role in reader.items(list, "`roles`")? {
                roles.extend(reader.word(role, "a role", &Role::NAMES));
            }
        }
        None => {
            let fix = "write `roles: [partner]`; known: admin, viewer, planner, executor, partner";
            reader.error(&node.mark, "no-roles", format!("identity {name} has no roles"), fix);
        }
    }
    let warehouses = match fields.get("warehouses") {
        None => Warehouses::unsaid(&roles),
        Some(Node { value: Value::Scalar { text, .. }, .. }) if text == "all" => Warehouses::All,
        Some(list) => Warehouses::Named(reader.texts(list, "`warehouses` (a list, or `all`)")?.into_iter().collect()),
    };
    let planners = match fields.get("planners") {
        None => BTreeSet::new(),
        Some(list) => {
            let named: BTreeSet<String> = reader.texts(list, "`planners`")?.into_iter().collect();
            if !named.is_empty() && !roles.contains(&Role::Executor) {
                let message = format!("identity {name} serves planners and is no executor");
                reader.error(&list.mark, "planners-without-executor", message, "add the role, or remove `planners`");
            }
            named
        }
    };
    let tokens = fields.get("credentials").map(|list| credentials(reader, list, "a credential")).unwrap_or_default();
    let certificates =
        fields.get("certificates").map(|list| credentials(reader, list, "a certificate")).unwrap_or_default();
    let identity = Identity::new(name, roles, warehouses).serving(Planners::Named(planners));
    Some(Holder { identity, tokens, certificates })
}

/// Tenants that are nobody's credential: a webhook's route and a queue's group have them by default.
const RESERVED: [&str; 2] = ["webhook:", "queue:"];

/// Ids are tenants: they go into keys, logs, metrics and query strings.
pub fn id_fits(id: &str) -> bool {
    let free = !RESERVED.iter().any(|reserved| id.starts_with(reserved));
    free && (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
}

fn credentials(reader: &mut Reader, list: &Node, what: &str) -> Vec<Credential> {
    let items = reader.items(list, "credentials").unwrap_or_default();
    items.iter().filter_map(|item| credential(reader, item, what)).collect()
}

fn credential(reader: &mut Reader, node: &Node, what: &str) -> Option<Credential> {
    if let Value::Scalar { text, .. } = &node.value {
        return Some(Credential { sha: sha(reader, node, text, what)?, created_ms: None, expires_ms: None });
    }
    let fields = reader.fields(node, what, &["sha256", "created", "expires"])?;
    let Some(hash) = fields.get("sha256") else {
        reader.error(&node.mark, "no-hash", format!("{what} has no `sha256`"), HASH_FIX);
        return None;
    };
    let text = reader.text(hash, "`sha256`")?;
    let mut at = |name: &str| -> Option<Option<u64>> {
        let Some(node) = fields.get(name) else { return Some(None) };
        let text = reader.text(node, &format!("`{name}`"))?;
        let parsed = instant(&text);
        reader.accept(node, &format!("`{name}`"), parsed, "write a UTC time: 2027-01-01T00:00:00Z").map(Some)
    };
    let (created_ms, expires_ms) = (at("created"), at("expires"));
    Some(Credential { sha: sha(reader, hash, &text, what)?, created_ms: created_ms?, expires_ms: expires_ms? })
}

const HASH_FIX: &str = "write the SHA-256 of it as 64 hexadecimal digits: printf %s \"$TOKEN\" | sha256sum";

fn sha(reader: &mut Reader, node: &Node, text: &str, what: &str) -> Option<Sha> {
    let sha = Sha::from_hex(text);
    if sha.is_none() {
        // The text itself is not shown: it may be the token.
        reader.error(&node.mark, "not-a-hash", format!("{what} is not a SHA-256 in hexadecimal"), HASH_FIX);
    }
    sha
}

/// An RFC 3339 time, in milliseconds since 1970.
pub fn instant(text: &str) -> Result<u64, String> {
    let parsed: jiff::Timestamp = text.parse().map_err(|_| format!("`{text}` is not a time"))?;
    u64::try_from(parsed.as_millisecond()).map_err(|_| format!("`{text}` is before 1970"))
}

/// Milliseconds since 1970 as an RFC 3339 time.
pub fn instant_text(ms: u64) -> String {
    let shown = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    shown.unwrap_or(jiff::Timestamp::MAX).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_not_named_like_a_tenant_without_a_credential() {
        assert!(id_fits("acme") && id_fits("webhooks") && id_fits("a:b"));
        assert!(!id_fits("webhook:WEBHOOK") && !id_fits("queue:orders") && !id_fits("") && !id_fits("a b"));
    }
}
