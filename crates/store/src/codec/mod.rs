//! Turns rows into stored bytes and back: version, revision, content, checksum.
//! Never panics on any bytes, and never takes a damaged or misplaced row for a good one.
//! Called by every store that keeps bytes.
//!
//! A row is `version (1) | revision (8) | content | checksum (4)`. The checksum covers the row's address too, so
//! that a whole row under the wrong key is damage. The content begins with what a compaction needs to know.

mod fence;
mod heads;
mod wire;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use fencepost_kernel::{Millis, Row, RowKey, command::CommitId, fence::Record, key::Kind};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use wire::Damage;
use wire::Reader;

/// The format that this release writes. It reads this one and every one before it.
pub const VERSION: u8 = 1;

const CHECKSUM_LEN: usize = 4;
const NEWER: Damage = Damage("it was written by a newer release of Fencepost; run that one");

/// What a store asks of a row without needing its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The write that made it.
    pub revision: CommitId,
    /// From when on it may be dropped.
    pub expires: Option<Millis>,
    /// When somebody should look at it.
    pub due: Option<Millis>,
}

/// The bytes under which a record is kept at `key`.
pub fn encode(key: &RowKey, record: &Record, revision: CommitId) -> Vec<u8> {
    let mut out = Vec::with_capacity(192);
    encode_into(&mut out, key, record, revision);
    out
}

/// Appends what [`encode`] gives.
pub fn encode_into(out: &mut Vec<u8>, key: &RowKey, record: &Record, revision: CommitId) {
    let begin = out.len();
    out.push(VERSION);
    out.extend_from_slice(&revision.0.to_le_bytes());
    match record {
        Record::Fence(fence) => fence::put(out, fence),
        Record::VersionHead(head) => heads::put_version_head(out, head),
        Record::AgainHead(head) => heads::put_again_head(out, head),
        Record::Alias(alias) => heads::put_alias(out, alias),
        Record::Trace(trace) => heads::put_trace(out, trace),
    }
    let sum = checksum(key, &out[begin..]);
    out.extend_from_slice(&sum);
}

/// The row behind stored bytes. Receipts and kept bodies share `bytes` instead of being copied.
pub fn decode(key: &RowKey, bytes: &Bytes) -> Result<Row, Damage> {
    let (mut reader, revision) = open(key, bytes)?;
    let record = match key.kind {
        Kind::Fence => Record::from(fence::take(&mut reader, bytes)?),
        Kind::VersionHead => Record::VersionHead(heads::take_version_head(&mut reader)?),
        Kind::AgainHead => Record::AgainHead(heads::take_again_head(&mut reader)?),
        Kind::Alias => Record::Alias(heads::take_alias(&mut reader, bytes)?),
        Kind::Trace => Record::Trace(heads::take_trace(&mut reader)?),
    };
    reader.end()?;
    Ok(Row { record, revision })
}

/// The head of stored bytes: much cheaper than the row, and checked as strictly.
pub fn head(key: &RowKey, bytes: &[u8]) -> Result<Head, Damage> {
    let (mut reader, revision) = open(key, bytes)?;
    let (expires, due) = match key.kind {
        Kind::Fence => fence::take_head(&mut reader)?,
        Kind::AgainHead => (heads::take_again_head(&mut reader)?.expires, None),
        Kind::Trace => (heads::take_trace_expiry(&mut reader)?, None),
        Kind::VersionHead | Kind::Alias => (None, None),
    };
    Ok(Head { revision, expires, due })
}

// The version is judged before the checksum: a newer format may sum its bytes in another way.
fn open<'a>(key: &RowKey, bytes: &'a [u8]) -> Result<(Reader<'a>, CommitId), Damage> {
    match bytes.first() {
        None => return Err(Damage("it is empty")),
        Some(0) => return Err(Damage("its format version is zero")),
        Some(version) if *version > VERSION => return Err(NEWER),
        Some(_) => {}
    }
    let (content, sum) =
        bytes.len().checked_sub(CHECKSUM_LEN).map(|end| bytes.split_at(end)).ok_or(Damage("it ends too early"))?;
    if checksum(key, content) != sum {
        return Err(Damage("its checksum does not match"));
    }
    let mut reader = Reader::new(content);
    reader.byte()?;
    let revision = CommitId(u64::from_le_bytes(reader.array()?));
    Ok((reader, revision))
}

// The address enters as the seed: its id is a digest, so eight bytes of it tell rows apart.
fn checksum(key: &RowKey, content: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut seed = [0; 8];
    seed.copy_from_slice(&key.id[..8]);
    let sum = xxh3_64_with_seed(content, u64::from_le_bytes(seed) ^ u64::from(key.kind as u8));
    (sum as u32).to_le_bytes()
}
