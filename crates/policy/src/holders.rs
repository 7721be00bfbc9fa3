//! Reads identities with their credentials, from a policy or from the credentials file.
//! Never accepts a token in place of its hash, and never echoes one it was given by mistake.
//! Called by `Policy::load` and by `credentials`.

use std::collections::{BTreeSet, HashMap};

use super::identity::{Credential, Holder, Identity, Planners, Role, Sha, Warehouses};
use super::read::{Fields, Reader, Unread};
use super::yaml::{Mark, YamlNode, YamlValue};

/// An identity as read.
pub struct ParsedIdentity {
    /// The identity and its credentials.
    pub holder: Holder,
    /// Its place in the file.
    pub mark: Mark,
    /// Its fields that could not be read.
    pub unread: Unread,
}

/// Reads a list of identities.
pub fn read(reader: &mut Reader, node: &YamlNode) -> Vec<ParsedIdentity> {
    let items = reader.items(node, "`identities`").unwrap_or_default();
    let mut holders: Vec<ParsedIdentity> = Vec::new();
    let mut seen = HashMap::new();
    for item in items {
        let Some(read) = holder(reader, item) else { continue };
        let (id, holder) = (&read.holder.identity.id, &read.holder);
        if holders.iter().any(|earlier| earlier.holder.identity.id == *id) {
            let message = format!("identity {id} stands twice");
            reader.error(&item.mark, "duplicate", message, "put its credentials under one");
            continue;
        }
        for credential in holder.tokens.iter().chain(&holder.certificates) {
            if let Some(other) = seen.insert(credential.sha, id.clone()) {
                let message = format!("{id} and {other} have the same credential");
                reader.error(&item.mark, "shared-credential", message, "give each its own");
            }
        }
        holders.push(read);
    }
    holders
}

// None without a usable `id`. The other fields are read all the same, so that their errors are found.
fn holder(reader: &mut Reader, node: &YamlNode) -> Option<ParsedIdentity> {
    let known = ["id", "roles", "warehouses", "planners", "credentials", "certificates"];
    let fields = reader.fields(node, "an identity", &known)?;
    let mut unread = Unread::new();
    let un = &mut unread;
    let name = id(reader, &fields);
    let of = name.as_deref().unwrap_or("here");
    let roles = reader.noting("roles", un, |reader| {
        let mut roles = BTreeSet::new();
        match fields.get("roles") {
            Some(list) => {
                for role in reader.items(list, "`roles`").unwrap_or_default() {
                    roles.extend(reader.word(role, "a role", &Role::NAMES));
                }
            }
            None => {
                let fix = "write `roles: [partner]`; known: admin, viewer, planner, executor, partner";
                reader.error(&node.mark, "no-roles", format!("identity {of} has no roles"), fix);
            }
        }
        roles
    });
    let warehouses = reader.noting("warehouses", un, |reader| match fields.get("warehouses") {
        None => Some(Warehouses::unsaid(&roles)),
        Some(YamlNode { value: YamlValue::Scalar { text, .. }, .. }) if text == "all" => Some(Warehouses::All),
        Some(list) => {
            Some(Warehouses::Named(reader.texts(list, "`warehouses` (a list, or `all`)")?.into_iter().collect()))
        }
    });
    let planners = reader.field(&fields, "planners", un, |reader, list| reader.texts(list, "`planners`"));
    let planners: BTreeSet<String> = planners.unwrap_or_default().into_iter().collect();
    if !planners.is_empty() && !roles.contains(&Role::Executor) && !un.contains("roles") {
        let message = format!("identity {of} serves planners and is no executor");
        let mark = fields.mark_of("planners");
        reader.error(mark, "planners-without-executor", message, "add the role, or remove `planners`");
    }
    let (tokens, certificates) = reader.noting("credentials", un, |reader| {
        let mut read =
            |name: &str, what: &str| fields.get(name).map(|list| credentials(reader, list, what)).unwrap_or_default();
        (read("credentials", "a credential"), read("certificates", "a certificate"))
    });
    let warehouses = warehouses.unwrap_or(Warehouses::All);
    let identity = Identity::new(name?, roles, warehouses).serving(Planners::Named(planners));
    Some(ParsedIdentity { holder: Holder { identity, tokens, certificates }, mark: node.mark.clone(), unread })
}

fn id(reader: &mut Reader, fields: &Fields<'_>) -> Option<String> {
    let Some(id) = fields.get("id") else {
        reader.error(fields.mark, "no-id", "this identity has no `id`", "write `id: acme`");
        return None;
    };
    let name = reader.text(id, "`id`")?;
    if !id_fits(&name) {
        let fix =
            "use 1 to 128 visible ASCII characters without blanks or quotes, not beginning with webhook: or queue:";
        reader.error(&id.mark, "identity-name", format!("`{name}` cannot name an identity"), fix);
        return None;
    }
    Some(name)
}

/// Prefixes of tenants that have no credential: the default tenants of a webhook's route and of a queue's group.
const RESERVED: [&str; 2] = ["webhook:", "queue:"];

/// Whether this can be an identity's id. Ids are tenants: they go into keys, logs, metrics and query strings.
pub fn id_fits(id: &str) -> bool {
    let free = !RESERVED.iter().any(|reserved| id.starts_with(reserved));
    free && (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
}

fn credentials(reader: &mut Reader, list: &YamlNode, what: &str) -> Vec<Credential> {
    let items = reader.items(list, "credentials").unwrap_or_default();
    items.iter().filter_map(|item| credential(reader, item, what)).collect()
}

fn credential(reader: &mut Reader, node: &YamlNode, what: &str) -> Option<Credential> {
    if let YamlValue::Scalar { text, .. } = &node.value {
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

fn sha(reader: &mut Reader, node: &YamlNode, text: &str, what: &str) -> Option<Sha> {
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
