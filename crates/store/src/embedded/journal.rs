//! Reads the journals before fjall does, and tells a torn end from damage.
//! Never lets an acknowledged batch be cut off in silence, and never keeps a store shut over an unacknowledged one.
//! Called when a store is opened, under its lock.
//!
//! fjall cuts a journal at the first entry that it cannot parse, wherever that is, and refuses one whose last batch
//! was torn by a power cut in the middle. But a batch is synced before the next one begins. So: if a whole batch
//! follows the bad place, acknowledged data is damaged, and the store must not open; if none does, what is
//! there was never acknowledged, and is cut off.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::Xxh3;

use super::open::{damaged, unusable};
use crate::Error;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: [u8; 4] = *b"FJL\x03";

/// Checks every journal in `path`, oldest first.
pub(super) fn check(path: &Path) -> Result<(), Error> {
    let mut torn: Option<Torn> = None;
    let mut previous = None;
    let mut seqno = None;
    for (id, file) in journals(path)? {
        if previous.is_some_and(|previous| previous + 1 != id) {
            return Err(damaged(path, &format!("the journal before {} is missing", file.display())));
        }
        previous = Some(id);
        let found = walk(&file, &mut seqno).map_err(|error| unusable(&file, &error))?;
        if let Some(at) = found.out_of_order {
            let place = format!("{} at byte {at}", file.display());
            return Err(damaged(path, &format!("the commits in its journal {place} are out of order")));
        }
        let goes_on = found.batches > 0 || found.torn.as_ref().is_some_and(|torn| torn.goes_on);
        if let Some(torn) = torn.as_ref().filter(|_| goes_on).or(found.torn.as_ref().filter(|torn| torn.goes_on)) {
            let place = format!("{} at byte {}", torn.file.display(), torn.at);
            return Err(damaged(path, &format!("its journal {place} cannot be read, and whole commits follow")));
        }
        torn = torn.or(found.torn);
    }
    torn.map_or(Ok(()), |torn| torn.cut().map_err(|error| unusable(&torn.file, &error)))
}

struct Torn {
    file: PathBuf,
    at: u64,
    /// Whether a whole batch follows in the same file.
    goes_on: bool,
}

impl Torn {
    fn cut(&self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.file)?;
        file.set_len(self.at)?;
        file.sync_all()
    }
}

#[derive(Default)]
struct Walked {
    batches: u64,
    torn: Option<Torn>,
    /// Where a whole batch is numbered no higher than one before it.
    out_of_order: Option<u64>,
}

/// The journals in `path`, oldest first.
pub(super) fn journals(path: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| unusable(path, &error))? {
        let file = entry.map_err(|error| unusable(path, &error))?.path();
        if file.extension().is_some_and(|extension| extension == "jnl") {
            let id = file.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            found.push((id.ok_or_else(|| damaged(path, &format!("{} is no journal", file.display())))?, file));
        }
    }
    found.sort();
    Ok(found)
}

// The number of a batch is not part of its checksum, but numbers only grow. One that is changed and still lies between
// its neighbours changes no order, so it does no harm.
fn walk(path: &Path, last: &mut Option<u64>) -> io::Result<Walked> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut walked = Walked::default();
    let mut at = 0;
    while at < len {
        match batch(&mut reader, len - at)? {
            Some(batch) if last.is_some_and(|last| batch.seqno <= last) => {
                walked.out_of_order = Some(at);
                break;
            }
            Some(batch) => {
                at += batch.size;
                *last = Some(batch.seqno);
                walked.batches += 1;
            }
            None => {
                reader.seek(SeekFrom::Start(at))?;
                if !only_zeros(&mut reader)? {
                    reader.seek(SeekFrom::Start(at))?;
                    let mut rest = Vec::new();
                    reader.read_to_end(&mut rest)?;
                    let rest = without_zeros_after(&rest);
                    walked.torn = Some(Torn { file: path.into(), at, goes_on: holds_a_batch(&rest[1..])? });
                }
                break;
            }
        }
    }
    Ok(walked)
}

// A journal is made longer than it needs to be, so it usually ends in zeros.
fn only_zeros(reader: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            return Ok(true);
        }
        if !without_zeros_after(chunk).is_empty() {
            return Ok(false);
        }
        let len = chunk.len();
        reader.consume(len);
    }
}

// Tens of megabytes of them are usual: compared by the page.
fn without_zeros_after(mut bytes: &[u8]) -> &[u8] {
    const PAGE: [u8; 4096] = [0; 4096];
    while let Some(before) = bytes.strip_suffix(&PAGE) {
        bytes = before;
    }
    &bytes[..bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}

fn holds_a_batch(bytes: &[u8]) -> io::Result<bool> {
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == START && batch(&mut &bytes[at..], (bytes.len() - at) as u64)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

struct Batch {
    size: u64,
    seqno: u64,
}

/// The whole, sound batch that comes next; none where there is no such batch.
fn batch(reader: &mut impl Read, left: u64) -> io::Result<Option<Batch>> {
    let mut entries = Entries { reader: reader.take(left), hash: Xxh3::new() };
    match entries.batch() {
        Ok(seqno) => Ok(seqno.map(|seqno| Batch { size: left - entries.reader.limit(), seqno })),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

struct Entries<R> {
    reader: io::Take<R>,
    hash: Xxh3,
}

impl<R: Read> Entries<R> {
    fn batch(&mut self) -> io::Result<Option<u64>> {
        if self.array::<1>()? != [START] {
            return Ok(None);
        }
        let count = u32::from_le_bytes(self.array()?);
        let seqno = u64::from_le_bytes(self.array()?);
        for _ in 0..count {
            match self.array::<1>()? {
                [ITEM] => self.item()?,
                [CLEAR] => {
                    let keyspace = self.array::<8>()?;
                    self.hash.update(&[CLEAR]);
                    self.hash.update(&keyspace);
                }
                _ => return Ok(None),
            }
        }
        if self.array::<1>()? != [END] {
            return Ok(None);
        }
        let sum = u64::from_le_bytes(self.array()?);
        Ok((self.array::<4>()? == TRAILER && sum == self.hash.digest()).then_some(seqno))
    }

    // Kind (1), compression (1), keyspace (8), then the lengths of the key (2), of the value (4) and of the value
    // as it is stored (4).
    fn item(&mut self) -> io::Result<()> {
        let head = self.array::<20>()?;
        self.hash.update(&[ITEM]);
        self.hash.update(&head);
        let key_len = u16::from_le_bytes([head[10], head[11]]);
        let value_len = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
        let mut left = u64::from(key_len) + u64::from(value_len);
        if left > self.reader.limit() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut chunk = [0; 4096];
        while left > 0 {
            let part = &mut chunk[..left.min(4096) as usize];
            self.reader.read_exact(part)?;
            self.hash.update(part);
            left -= part.len() as u64;
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
