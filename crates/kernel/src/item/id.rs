//! The addresses of items and of the rows about them.
//! Never joins texts by plain concatenation: each carries its length. Called by `item`, `fencepost::ingest`, the stores.

use std::fmt;

use crate::{
    fence::FenceKey,
    key::{Kind, RowKey, Tenant, digest},
};

const TENANT_LEN: usize = 5;
/// So many leading bytes are the same in the ids of one collection of one tenant.
pub const COLLECTION_LEN: usize = 8;
const DIGEST_LEN: usize = 16;

/// Names an item within all tenants and collections. The items of a tenant are a range, and those of one of its collections are
/// a range within it. Ranges of two tenants may share a prefix: a reader compares the tenant in the row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(pub [u8; Self::LEN]);

impl ItemId {
    pub const LEN: usize = COLLECTION_LEN + DIGEST_LEN;

    /// The id of an item of that source id.
    pub fn new(tenant: &Tenant, collection: &str, source_id: &str) -> Self {
        Self::under(Self::collection_prefix(tenant, collection), tenant, collection, source_id)
    }

    /// The same, where the prefix of the collection is known already.
    pub fn under(prefix: [u8; COLLECTION_LEN], tenant: &Tenant, collection: &str, source_id: &str) -> Self {
        let mut id = [0; Self::LEN];
        id[..COLLECTION_LEN].copy_from_slice(&prefix);
        id[COLLECTION_LEN..].copy_from_slice(&digest(&[tenant.as_str(), collection, source_id])[..DIGEST_LEN]);
        Self(id)
    }

    /// The bytes that the ids of all items of a tenant begin with.
    pub fn tenant_prefix(tenant: &Tenant) -> [u8; TENANT_LEN] {
        let mut prefix = [0; TENANT_LEN];
        prefix.copy_from_slice(&digest(&["items", tenant.as_str()])[..TENANT_LEN]);
        prefix
    }

    /// The bytes that the ids of all items of a tenant's collection begin with.
    pub fn collection_prefix(tenant: &Tenant, collection: &str) -> [u8; COLLECTION_LEN] {
        let mut prefix = [0; COLLECTION_LEN];
        prefix[..TENANT_LEN].copy_from_slice(&Self::tenant_prefix(tenant));
        let rest = COLLECTION_LEN - TENANT_LEN;
        prefix[TENANT_LEN..].copy_from_slice(&digest(&["items", tenant.as_str(), collection])[..rest]);
        prefix
    }

    /// The id that partners see: the same for the whole life of the item.
    pub fn internal(&self) -> String {
        format!("itm_{}", hex(self.digest()))
    }

    /// The id in hexadecimal, for cursors.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }

    /// Reads [`ItemId::hex`].
    pub fn from_hex(text: &str) -> Option<Self> {
        unhex(text).map(Self)
    }

    fn digest(&self) -> &[u8] {
        &self.0[COLLECTION_LEN..]
    }
}

impl fmt::Debug for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Names one stay of an item in quarantine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QuarantineId {
    pub item: ItemId,
    /// Tells the stays of one item apart: it grows with each.
    pub number: u64,
}

impl QuarantineId {
    /// Reads the id as partners see it.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; ItemId::LEN + 8] = unhex(text.strip_prefix("qrn_")?)?;
        let (item, number) = bytes.split_at(ItemId::LEN);
        Some(Self { item: ItemId(item.try_into().ok()?), number: u64::from_be_bytes(number.try_into().ok()?) })
    }
}

impl fmt::Display for QuarantineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qrn_{}{:016x}", hex(&self.item.0), self.number)
    }
}

pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut padded = [0; 32];
    padded[..bytes.len()].copy_from_slice(bytes);
    FenceKey(padded).hex()[..2 * bytes.len()].to_owned()
}

impl RowKey {
    /// The row of an item, with its present version.
    pub fn item(item: ItemId) -> Self {
        Self { kind: Kind::Item, id: with_number(item, 0) }
    }

    /// The row of the `seq`th accepted version of an item, once another has replaced it. The newest comes first.
    pub fn item_version(item: ItemId, seq: u64) -> Self {
        Self { kind: Kind::ItemVersion, id: with_number(item, !seq) }
    }

    /// The row of an item's stay in quarantine; it has one at a time.
    pub fn quarantine(item: ItemId) -> Self {
        Self { kind: Kind::Quarantine, id: with_number(item, 0) }
    }

    /// The row which says that `waiting` waits for `missing`.
    pub fn waiting(missing: ItemId, waiting: ItemId) -> Self {
        let mut id = [0; 32];
        id[..DIGEST_LEN].copy_from_slice(missing.digest());
        id[DIGEST_LEN..].copy_from_slice(waiting.digest());
        Self { kind: Kind::Waiting, id }
    }

    /// The bytes that the ids of all rows begin with which say that something waits for `missing`.
    pub fn waiting_prefix(missing: &ItemId) -> &[u8] {
        missing.digest()
    }

    /// The row which says that an item has arrived that others wait for.
    pub fn arrival(item: ItemId) -> Self {
        Self { kind: Kind::Arrival, id: with_number(item, 0) }
    }

    /// The number that the row of a replaced version is kept under.
    pub fn version_number(&self) -> u64 {
        let mut number = [0; 8];
        number.copy_from_slice(&self.id[ItemId::LEN..]);
        !u64::from_be_bytes(number)
    }

    /// The item that the row of an item, a version, a quarantine or an arrival is about.
    pub fn item_id(&self) -> ItemId {
        let mut id = [0; ItemId::LEN];
        id.copy_from_slice(&self.id[..ItemId::LEN]);
        ItemId(id)
    }
}

fn with_number(item: ItemId, number: u64) -> [u8; 32] {
    let mut id = [0; 32];
    id[..ItemId::LEN].copy_from_slice(&item.0);
    id[ItemId::LEN..].copy_from_slice(&number.to_be_bytes());
    id
}
