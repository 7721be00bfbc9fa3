//! Turns rows into stored bytes and back: version, revision, content, checksum.
//! Never panics on any bytes, and never takes a damaged or misplaced row for a good one.
//! Called by every store that keeps bytes.
//!
//! A row is `format (1) | revision (8) | content | checksum (4)`. The checksum covers the row's address too, so
//! that a whole row under the wrong key is damage. The content begins with what a compaction needs to know.
//!
//! Formats: 1 is the first; 2 packs long receipts; 3 marks doubts that a caller was told of; 4 counts duplicates with
//! another body and keeps the trace of a holder; 5 keeps the audit and what was forgotten; 6 keeps items; 7 keeps jobs. Nodes of two releases share a
//! store while both write the older format; a node that meets a newer one than it reads refuses the row and names the reason.

mod audit;
mod counter;
mod fence;
mod heads;
mod item;
mod job;
mod lanes;
mod pack;
mod wire;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use fencepost_kernel::{
    Millis, Row, RowKey, audit as acts, dispatch, item as items, job as jobs,
    key::Kind,
    lane,
    row::{CommitId, Ids, Record},
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub use wire::Damage;
use wire::Reader;

/// The newest format. This release reads and can write this one and every one before it.
pub const VERSION: u8 = 7;

/// From this format on, receipts of some length are kept packed.
const PACKS_RECEIPTS: u8 = 2;

/// From this format on, a fence says that a caller was told of its doubt. In an older one only its revision tells.
const MARKS_DOUBTS: u8 = 3;

/// From this format on, a trace counts duplicates with another body. In an older one they are duplicates like all others.
const COUNTS_OTHER_BODIES: u8 = 4;

/// From this format on, a pending fence keeps the trace of the request that holds it.
const KEEPS_TRACES: u8 = 4;

/// From this format on, a fence keeps that a person gave up its outcome. In an older one a person has released it.
const KEEPS_FORGOTTEN: u8 = 5;

const CHECKSUM_LEN: usize = 4;
const NEWER: Damage = Damage("it was written by a newer release of Fencepost; run that one");

/// The part of a row that a store reads without decoding the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The write that made it.
    pub revision: CommitId,
    /// From when on it may be dropped.
    pub expires: Option<Millis>,
    /// When somebody should look at it.
    pub due: Option<Millis>,
    /// The start of the next merge: the last position of a lane, or the value of a counter.
    pub figure: i128,
}

/// The bytes under which a record is kept at `key`, in a format of `1..=VERSION`.
pub fn encode(key: &RowKey, record: &Record, revision: CommitId, format: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(192);
    encode_into(&mut out, key, record, revision, format);
    out
}

/// Appends the bytes of [`encode`].
pub fn encode_into(out: &mut Vec<u8>, key: &RowKey, record: &Record, revision: CommitId, format: u8) {
    // A row under a format that no release reads would be lost: stop before it is written.
    assert!((1..=VERSION).contains(&format), "row format {format} is not one of 1 to {VERSION}");
    let begin = out.len();
    out.push(format);
    out.extend_from_slice(&revision.0.to_le_bytes());
    match record {
        Record::Fence(fencepost_kernel::fence::Record::Fence(fence)) => fence::put(out, fence, format),
        Record::Fence(fencepost_kernel::fence::Record::VersionHead(head)) => heads::put_version_head(out, head),
        Record::Fence(fencepost_kernel::fence::Record::AgainHead(head)) => heads::put_again_head(out, head),
        Record::Fence(fencepost_kernel::fence::Record::Alias(alias)) => heads::put_alias(out, alias, format),
        Record::Fence(fencepost_kernel::fence::Record::Trace(trace)) => heads::put_trace(out, trace, format),
        Record::Dispatch(dispatch::Record::Transport(transport)) => lanes::put_transport(out, transport),
        Record::Lane(lane::Record::Lane(lane)) => lanes::put_lane(out, lane),
        Record::Lane(lane::Record::Tail(tail)) => lanes::put_tail(out, tail),
        Record::Lane(lane::Record::Entry(entry)) => lanes::put_entry(out, entry),
        Record::Lane(lane::Record::DeadLetter(letter)) => lanes::put_dead_letter(out, letter),
        Record::Lane(lane::Record::Cancelled(cancelled)) => lanes::put_cancelled(out, cancelled),
        Record::Lane(lane::Record::LaneNotice) => {}
        Record::Counter(figure) => counter::put(out, figure),
        Record::Audit(acts::Record::Entry(entry)) => audit::put(out, entry),
        Record::Item(items::Record::Item(found)) => item::put_item(out, found),
        Record::Item(items::Record::Replaced(replaced)) => item::put_replaced(out, replaced),
        Record::Item(items::Record::Quarantined(quarantined)) => item::put_quarantined(out, quarantined),
        Record::Item(items::Record::Waiting(waiting)) => item::put_waiting(out, waiting),
        Record::Item(items::Record::Arrival(arrival)) => item::put_arrival(out, arrival),
        Record::Job(jobs::Record::Job(found)) => job::put_job(out, found),
        Record::Job(jobs::Record::Chunk(chunk)) => job::put_chunk(out, chunk),
        Record::Job(jobs::Record::Results(results)) => job::put_results(out, results),
    }
    let sum = checksum(key, &out[begin..]);
    out.extend_from_slice(&sum);
}

/// The row behind stored bytes. Receipts and kept bodies that are not packed share `bytes` instead of being copied.
pub fn decode(key: &RowKey, bytes: &Bytes) -> Result<Row, Damage> {
    decode_up_to(VERSION, key, bytes)
}

/// [`decode`] as a release does it whose newest format is `format_max`: rows of a newer one are refused.
pub fn decode_up_to(format_max: u8, key: &RowKey, bytes: &Bytes) -> Result<Row, Damage> {
    let Opened { mut reader, format, revision } = open(key, bytes, format_max)?;
    let record = match key.kind {
        Kind::Fence => Record::from(fence::take(&mut reader, bytes, format)?),
        Kind::VersionHead => {
            Record::Fence(fencepost_kernel::fence::Record::VersionHead(heads::take_version_head(&mut reader)?))
        }
        Kind::AgainHead => {
            Record::Fence(fencepost_kernel::fence::Record::AgainHead(heads::take_again_head(&mut reader)?))
        }
        Kind::Alias => {
            Record::Fence(fencepost_kernel::fence::Record::Alias(heads::take_alias(&mut reader, bytes, format)?.into()))
        }
        Kind::Trace => {
            Record::Fence(fencepost_kernel::fence::Record::Trace(heads::take_trace(&mut reader, format)?.into()))
        }
        Kind::Transport => {
            Record::Dispatch(dispatch::Record::Transport(lanes::take_transport(&mut reader, bytes)?.into()))
        }
        Kind::Lane => Record::Lane(lane::Record::Lane(lanes::take_lane(&mut reader)?.into())),
        Kind::Tail => Record::Lane(lane::Record::Tail(lanes::take_tail(&mut reader)?)),
        Kind::Entry => Record::Lane(lane::Record::Entry(lanes::take_entry(&mut reader, bytes)?.into())),
        Kind::DeadLetter => Record::Lane(lane::Record::DeadLetter(lanes::take_dead_letter(&mut reader, bytes)?.into())),
        Kind::Cancelled => Record::Lane(lane::Record::Cancelled(lanes::take_cancelled(&mut reader)?)),
        Kind::LaneNotice => Record::Lane(lane::Record::LaneNotice),
        Kind::Counter => Record::Counter(counter::take(&mut reader)?),
        Kind::Audit => audit::take(&mut reader)?.into(),
        Kind::Item => items::Record::Item(item::take_item(&mut reader, bytes)?.into()).into(),
        Kind::ItemVersion => items::Record::Replaced(item::take_replaced(&mut reader, bytes)?.into()).into(),
        Kind::Quarantine => items::Record::Quarantined(item::take_quarantined(&mut reader, bytes)?.into()).into(),
        Kind::Waiting => items::Record::Waiting(item::take_waiting(&mut reader)?.into()).into(),
        Kind::Arrival => items::Record::Arrival(item::take_arrival(&mut reader)?.into()).into(),
        Kind::Job => jobs::Record::Job(job::take_job(&mut reader)?.into()).into(),
        Kind::JobChunk => jobs::Record::Chunk(job::take_chunk(&mut reader, bytes)?.into()).into(),
        Kind::JobResults => jobs::Record::Results(job::take_results(&mut reader, bytes)?.into()).into(),
    };
    reader.end()?;
    Ok(Row { record, revision })
}

/// The head of stored bytes: much cheaper than the row, and checked as strictly.
pub fn head(key: &RowKey, bytes: &[u8]) -> Result<Head, Damage> {
    let Opened { mut reader, format, revision } = open(key, bytes, VERSION)?;
    let mut head = Head { revision, expires: None, due: None, figure: 0 };
    match key.kind {
        Kind::Fence => (head.expires, head.due) = fence::take_head(&mut reader, format)?,
        Kind::AgainHead => head.expires = heads::take_again_head(&mut reader)?.expires,
        Kind::Trace => head.expires = heads::take_trace_expiry(&mut reader)?,
        Kind::DeadLetter => head.expires = lanes::take_dead_letter_expiry(&mut reader)?,
        Kind::Cancelled => head.expires = Some(lanes::take_cancelled(&mut reader)?.expires),
        Kind::Counter => {
            let counter = counter::take(&mut reader)?;
            (head.due, head.figure) = (counter.due, counter.value);
        }
        Kind::Audit => head.expires = Some(audit::take_expiry(&mut reader)?),
        Kind::Tail => head.figure = lanes::take_tail(&mut reader)?.last.into(),
        Kind::Quarantine => (head.expires, head.due) = item::take_quarantined_head(&mut reader)?,
        Kind::Arrival => head.due = Some(item::take_arrival_due(&mut reader)?),
        Kind::Job => (head.expires, head.due) = job::take_job_head(&mut reader)?,
        Kind::JobChunk | Kind::JobResults => head.expires = Some(job::take_expiry(&mut reader)?),
        Kind::VersionHead
        | Kind::Alias
        | Kind::Transport
        | Kind::Lane
        | Kind::Entry
        | Kind::LaneNotice
        | Kind::Item
        | Kind::ItemVersion
        | Kind::Waiting => {}
    }
    Ok(head)
}

/// The write that made sound bytes.
pub fn revision(bytes: &[u8]) -> Option<CommitId> {
    let revision = bytes.get(1..).and_then(|bytes| bytes.first_chunk())?;
    Some(CommitId(u64::from_le_bytes(*revision)))
}

struct Opened<'a> {
    reader: Reader<'a>,
    format: u8,
    revision: CommitId,
}

// The format is judged before the checksum: a newer format may sum its bytes in another way.
fn open<'a>(key: &RowKey, bytes: &'a [u8], format_max: u8) -> Result<Opened<'a>, Damage> {
    match bytes.first() {
        None => return Err(Damage("it is empty")),
        Some(0) => return Err(Damage("its format is zero")),
        Some(format) if *format > format_max => return Err(NEWER),
        Some(_) => {}
    }
    let (content, sum) =
        bytes.len().checked_sub(CHECKSUM_LEN).map(|end| bytes.split_at(end)).ok_or(Damage("it ends too early"))?;
    if checksum(key, content) != sum {
        return Err(Damage("its checksum does not match"));
    }
    let mut reader = Reader::new(content);
    let format = reader.byte()?;
    let revision = CommitId(u64::from_le_bytes(reader.array()?));
    Ok(Opened { reader, format, revision })
}

// The address enters as the seed. Where the id is a digest, eight bytes of it tell rows apart; those of a lane begin alike.
fn checksum(key: &RowKey, content: &[u8]) -> [u8; CHECKSUM_LEN] {
    let seed = match key.kind.spec().ids {
        Ids::Digests => {
            let mut seed = [0; 8];
            seed.copy_from_slice(&key.id[..8]);
            u64::from_le_bytes(seed)
        }
        Ids::Ranges | Ids::FewRanges => xxh3_64(&key.id),
    };
    let sum = xxh3_64_with_seed(content, seed ^ u64::from(key.kind as u8));
    (sum as u32).to_le_bytes()
}
