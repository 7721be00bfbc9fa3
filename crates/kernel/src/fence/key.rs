//! Derives the key of a fence, and the keys of the rows that belong to it.
//! Never joins fields by plain concatenation: every component carries its length, so no value can run into its
//! neighbour. The tenant is always inside. Called by `law`, the capabilities, the stores and `fencepost`.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

use super::scope::Scope;
use crate::{
    audit::Subject,
    key::{Kind, RowKey, Tenant, VERSION_TAG, component, digest},
};

/// The SHA-256 that names a fence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FenceKey(pub [u8; 32]);

/// 64 hexadecimal digits in lower case.
pub struct Hex([u8; 64]);

impl std::ops::Deref for Hex {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FenceKey {
    /// The key as clients see it, in hexadecimal.
    pub fn hex(&self) -> Hex {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0u8; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Hex(hex)
    }
}

impl fmt::Display for FenceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Debug for FenceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl RowKey {
    /// The key of the row that holds a fence.
    pub fn fence(key: FenceKey) -> Self {
        Self { kind: Kind::Fence, id: key.0 }
    }

    /// The key of the counts beside a fence, which are written lazily.
    pub fn trace(key: FenceKey) -> Self {
        Self { kind: Kind::Trace, id: key.0 }
    }

    /// The key of an alias's row: a name within a tenant.
    pub fn alias(tenant: &Tenant, name: &str) -> Self {
        Self { kind: Kind::Alias, id: digest(&[tenant.as_str(), name]) }
    }

    /// The key of a source's last sealed version: the tenant, the scope and the values that name the source.
    pub fn version_head(tenant: &Tenant, scope: &str, source: &[&str]) -> Self {
        let mut parts = vec![tenant.as_str(), scope];
        parts.extend_from_slice(source);
        Self { kind: Kind::VersionHead, id: digest(&parts) }
    }
}

/// One key field: its name and its value as text. An integer is its decimal digits, a boolean `true` or `false`: so a
/// lookup by query string finds the fence of a JSON claim.
pub type Field = (String, String);

/// The fields do not match the key of the scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongFields {
    /// Fields of the scope that the request lacks.
    pub missing: Vec<String>,
    /// Fields of the request that the scope does not have.
    pub unexpected: Vec<String>,
}

impl fmt::Display for WrongFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (what, names) in [("missing", &self.missing), ("unexpected", &self.unexpected)] {
            if !names.is_empty() {
                write!(f, "{separator}{what}: {}", names.join(", "))?;
                separator = "; ";
            }
        }
        Ok(())
    }
}

/// The fence that a command acts on, with all that names its rows.
#[derive(Clone, Debug)]
pub struct Target {
    /// The fence's own key.
    pub key: FenceKey,
    /// The scope, with the rules for this kind of effect.
    pub scope: Arc<Scope>,
    /// The tenant whose fence it is.
    pub tenant: Tenant,
    /// The key fields, sorted by name.
    pub fields: Arc<[Field]>,
    /// The number of a deliberate repetition; `None` for the effect itself.
    pub seq: Option<u64>,
}

impl Target {
    /// Derives the key from exactly the scope's fields, in any order.
    pub fn new(
        tenant: Tenant,
        scope: Arc<Scope>,
        mut fields: Vec<Field>,
        seq: Option<u64>,
    ) -> Result<Self, WrongFields> {
        fields.sort();
        let missing: Vec<_> =
            scope.key.iter().filter(|name| !fields.iter().any(|(given, _)| given == *name)).cloned().collect();
        let mut seen: Option<&str> = None;
        let mut unexpected = Vec::new();
        for (name, _) in &fields {
            if !scope.key.contains(name) || seen == Some(name) {
                unexpected.push(name.clone());
            }
            seen = Some(name);
        }
        if !missing.is_empty() || !unexpected.is_empty() {
            return Err(WrongFields { missing, unexpected });
        }
        let key = derive(&tenant, &scope.name, &fields, seq);
        Ok(Self { key, scope, tenant, fields: fields.into(), seq })
    }

    /// The fence as the thing that a command is about, for the audit.
    pub(crate) fn subject(&self) -> Subject {
        let on = format!("{}/{}", self.scope.name, &*self.key.hex());
        Subject { tenant: Some(self.tenant.clone()), on, why: None }
    }

    /// The value of the key field with this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The key of the effect itself, which repetition 1 repeats.
    pub fn base(&self) -> FenceKey {
        derive(&self.tenant, &self.scope.name, &self.fields, None)
    }

    /// The key of this effect's repetition `seq`.
    pub fn repetition(&self, seq: u64) -> FenceKey {
        derive(&self.tenant, &self.scope.name, &self.fields, Some(seq))
    }

    /// The row that remembers the last repetition of this effect.
    pub fn again_head(&self) -> RowKey {
        RowKey { kind: Kind::AgainHead, id: self.base().0 }
    }
}

// Field names are hashed beside their values, in sorted order: neither the order of attributes in a request nor that
// of fields in a policy file can change a key.
fn derive(tenant: &Tenant, scope: &str, fields: &[Field], seq: Option<u64>) -> FenceKey {
    let mut hash = Sha256::new();
    hash.update(VERSION_TAG);
    component(&mut hash, tenant.as_str());
    component(&mut hash, scope);
    hash.update((fields.len() as u64).to_be_bytes());
    for (name, value) in fields {
        component(&mut hash, name);
        component(&mut hash, value);
    }
    // The mark of a repetition follows a counted list of fields, so no field value can imitate it.
    if let Some(seq) = seq {
        hash.update(b"again");
        hash.update(seq.to_be_bytes());
    }
    FenceKey(hash.finalize().into())
}
