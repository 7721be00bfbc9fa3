//! Derives the key of a fence, and the address of every row a command touches.
//! Never joins fields by plain concatenation: every component carries its length,
//! so no value can spill into its neighbour, and the tenant is always inside.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

use crate::scope::Scope;

const VERSION_TAG: &[u8] = b"fencepost/1";

/// Whose key it is. Taken from a credential, never from a body alone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(Arc<str>);

impl Tenant {
    /// Names a tenant.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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

/// What a row holds; the first part of its address. What is known of each stands in the table of [`crate::row`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A fence under its key.
    Fence = 1,
    /// The last sealed version of a source.
    VersionHead = 2,
    /// The last deliberate repetition of an effect.
    AgainHead = 3,
    /// A name that stands for a sealed fence.
    Alias = 4,
    /// Approximate counts of what was only read.
    Trace = 5,
    /// Where the events of a warehouse go.
    Route = 6,
    /// How far a lane has come.
    Lane = 7,
    /// The last position of a lane; only an append moves it.
    Tail = 8,
    /// An event under its position in a lane.
    Entry = 9,
    /// An event that left its lane undelivered.
    DeadLetter = 10,
    /// That an event was cancelled.
    Cancelled = 11,
    /// A word from one node to another that a lane of its has something new.
    Poke = 12,
    /// A figure that additions move.
    Counter = 13,
}

/// The address of one row in a store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RowKey {
    /// What the row holds.
    pub kind: Kind,
    /// Which one of its kind.
    pub id: [u8; 32],
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

    /// Where the events of a planner's warehouse go.
    pub fn route(planner: &Tenant, warehouse: &str) -> Self {
        Self { kind: Kind::Route, id: LaneId::of(planner, &["route", warehouse]).at(0) }
    }

    /// How far a lane has come.
    pub fn lane(lane: LaneId) -> Self {
        Self { kind: Kind::Lane, id: lane.at(0) }
    }

    /// The last position of a lane.
    pub fn tail(lane: LaneId) -> Self {
        Self { kind: Kind::Tail, id: lane.at(0) }
    }

    /// The event at a position of a lane. Those of a lane lie side by side, in order.
    pub fn entry(lane: LaneId, seq: u64) -> Self {
        Self { kind: Kind::Entry, id: lane.at(seq) }
    }

    /// The event that left its lane at this position.
    pub fn dead_letter(lane: LaneId, seq: u64) -> Self {
        Self { kind: Kind::DeadLetter, id: lane.at(seq) }
    }

    /// Whether the event at this position was cancelled.
    pub fn cancelled(lane: LaneId, seq: u64) -> Self {
        Self { kind: Kind::Cancelled, id: lane.at(seq) }
    }

    /// A word to a node about a lane. All that are meant for one node lie side by side.
    pub fn poke(node: &str, lane: LaneId) -> Self {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&Self::pokes_to(node));
        id[8..].copy_from_slice(&lane.0);
        Self { kind: Kind::Poke, id }
    }

    /// What the ids of all words to a node begin with.
    pub fn pokes_to(node: &str) -> [u8; 8] {
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&digest(&[node])[..8]);
        prefix
    }

    /// The lane that a row of a lane belongs to, and the position, where the row is about one.
    pub fn place(&self) -> (LaneId, u64) {
        let (mut lane, mut seq) = ([0; 24], [0; 8]);
        lane.copy_from_slice(&self.id[..24]);
        seq.copy_from_slice(&self.id[24..]);
        (LaneId(lane), u64::from_be_bytes(seq))
    }

    /// The version head of a source: the tenant, the scope and what names the source.
    pub fn version_head(tenant: &Tenant, scope: &str, source: &[&str]) -> Self {
        let mut parts = vec![tenant.as_str(), scope];
        parts.extend_from_slice(source);
        Self { kind: Kind::VersionHead, id: digest(&parts) }
    }
}

/// An ordered log of one planner. It begins with a digest of the planner, so that all lanes of one lie side by side.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub [u8; 24]);

impl LaneId {
    /// The lane of a warehouse, for transports that push.
    pub fn warehouse(planner: &Tenant, warehouse: &str) -> Self {
        Self::of(planner, &["warehouse", warehouse])
    }

    /// The lane that an executor polls.
    pub fn executor(planner: &Tenant, executor: &str) -> Self {
        Self::of(planner, &["executor", executor])
    }

    /// What all lanes of a planner begin with.
    pub fn prefix(planner: &Tenant) -> [u8; 8] {
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&digest(&["planner", planner.as_str()])[..8]);
        prefix
    }

    /// The lane behind its digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut lane = [0; 24];
        let digits = text.as_bytes();
        if digits.len() != 48 || digits.iter().any(|digit| !matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (byte, pair) in lane.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(lane))
    }

    fn of(planner: &Tenant, parts: &[&str]) -> Self {
        let mut lane = [0; 24];
        lane[..8].copy_from_slice(&Self::prefix(planner));
        let mut all = vec![planner.as_str()];
        all.extend_from_slice(parts);
        lane[8..].copy_from_slice(&digest(&all)[..16]);
        Self(lane)
    }

    fn at(self, seq: u64) -> [u8; 32] {
        let mut id = [0; 32];
        id[..24].copy_from_slice(&self.0);
        // Big-endian, so that byte order is the lane's order.
        id[24..].copy_from_slice(&seq.to_be_bytes());
        id
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
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

fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(VERSION_TAG);
    for part in parts {
        component(&mut hash, part);
    }
    hash.finalize().into()
}

fn component(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text.as_bytes());
}
