//! Derives the key of a fence, and the addresses of the rows beside it.
//! Never joins fields by plain concatenation: every component carries its length, so no value can spill into its neighbour,
//! and the tenant is always inside.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

use super::scope::Scope;
use crate::key::{Kind, RowKey, Tenant, VERSION_TAG, component, digest};

/// The SHA-256 under which a fence is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FenceKey(pub [u8; 32]);

/// Hexadecimal digits, lower case.
pub struct Hex([u8; 64]);

impl std::ops::Deref for Hex {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FenceKey {
    /// The key as clients see it.
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
    /// The row of a fence.
    pub fn fence(key: FenceKey) -> Self {
        Self { kind: Kind::Fence, id: key.0 }
    }

    /// The lazily written counts beside a fence.
    pub fn trace(key: FenceKey) -> Self {
        Self { kind: Kind::Trace, id: key.0 }
    }

    /// The row of an alias: a name within a tenant.
    pub fn alias(tenant: &Tenant, name: &str) -> Self {
        Self { kind: Kind::Alias, id: digest(&[tenant.as_str(), name]) }
    }

    /// The version head of a source: the tenant, the scope and what names the source.
    pub fn version_head(tenant: &Tenant, scope: &str, source: &[&str]) -> Self {
        let mut parts = vec![tenant.as_str(), scope];
        parts.extend_from_slice(source);
        Self { kind: Kind::VersionHead, id: digest(&parts) }
    }
}

/// One key field: its name and its value as text. An integer is its decimal digits and a boolean is
/// `true` or `false`, so that a lookup by query string finds what a JSON claim made.
pub type Field = (String, String);

/// Why a set of fields is not a key of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongFields {
    /// Declared by the scope, absent from the request.
    pub missing: Vec<String>,
    /// In the request, unknown to the scope.
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

/// What a command acts on: one fence of one tenant, with everything needed to find its rows.
#[derive(Clone, Debug)]
pub struct Target {
    /// The fence itself.
    pub key: FenceKey,
    /// The rules of its kind of effect.
    pub scope: Arc<Scope>,
    /// Whose it is.
    pub tenant: Tenant,
    /// The key fields, sorted by name.
    pub fields: Arc<[Field]>,
    /// Which deliberate repetition is meant; none for the effect itself.
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

    /// The value of a key field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The same effect without its repetition: what `seq` 1 repeats.
    pub fn base(&self) -> FenceKey {
        derive(&self.tenant, &self.scope.name, &self.fields, None)
    }

    /// The key of one of this effect's repetitions.
    pub fn repetition(&self, seq: u64) -> FenceKey {
        derive(&self.tenant, &self.scope.name, &self.fields, Some(seq))
    }

    /// Where the last repetition of this effect is remembered.
    pub fn again_head(&self) -> RowKey {
        RowKey { kind: Kind::AgainHead, id: self.base().0 }
    }
}

// Names are hashed beside the values, sorted: neither the order of attributes in a request nor the order
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
    // A repetition is marked after a counted list of fields, so no field value can imitate one.
    if let Some(seq) = seq {
        hash.update(b"again");
        hash.update(seq.to_be_bytes());
    }
    FenceKey(hash.finalize().into())
}
