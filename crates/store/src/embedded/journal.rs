//! Reads the journals before fjall does, and tells a torn end from damage.
//! Never lets an acknowledged batch be cut off in silence, and never keeps a store shut over an unacknowledged one.
//! Called when a store is opened, under its lock.
//!
//! fjall cuts a journal at the first entry that it cannot parse, wherever that is, and refuses one whose last batch
//! was torn by a power cut in the middle. But a batch is synced before the next one begins. So: if a whole batch
//! follows the bad place, acknowledged data is damaged, and the store must not open; if none does, the bytes there
//! were never acknowledged, and are cut off.
//!
//! Bytes that look like a whole batch may be part of a value that a client chose. So each commit carries the store's
//! mark, a random number that no client knows, and only bytes with that mark count as a batch.
//!
//! The last batch may be whole and yet only in the page cache of the operating system, which forgets that a sync has
//! failed. So it is written and synced once more before anything is appended to it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::Xxh3;

use super::open::{TIME_FLOOR, damaged, unusable};
use crate::Error;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: [u8; 4] = *b"FJL\x03";

/// The random number that every commit of a store carries after its time.
pub(super) type Mark = [u8; 8];
const FLOOR_BYTES: usize = size_of::<u64>() + size_of::<Mark>();

/// Checks every journal in `path`, oldest first.
pub(super) fn check(path: &Path) -> Result<(), Error> {
    let mut torn: Option<Torn> = None;
    let mut previous = None;
    let mut last: Option<Last> = None;
    let mut last_in = None;
    for (id, file) in journals(path)? {
        if previous.is_some_and(|previous| previous + 1 != id) {
            return Err(damaged(path, &format!("the journal before {} is missing", file.display())));
        }
        previous = Some(id);
        let found = walk(&file, &mut last).map_err(|error| unusable(&file, &error))?;
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
        if found.batches > 0 {
            last_in = Some(file);
        }
    }
    torn.map_or(Ok(()), |torn| torn.cut().map_err(|error| unusable(&torn.file, &error)))?;
    match last.zip(last_in) {
        Some((last, file)) => last.write_again(&file).map_err(|error| unusable(&file, &error)),
        None => Ok(()),
    }
}

/// The last sound batch so far.
#[derive(Clone, Copy)]
struct Last {
    at: u64,
    size: u64,
    seqno: u64,
    /// The store's mark, if a batch so far had one.
    mark: Option<Mark>,
}

impl Last {
    fn write_again(&self, file: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(file)?;
        let mut bytes = vec![0; self.size as usize];
        file.seek(SeekFrom::Start(self.at))?;
        file.read_exact(&mut bytes)?;
        file.seek(SeekFrom::Start(self.at))?;
        file.write_all(&bytes)?;
        file.sync_all()
    }
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
    /// The offset of a whole batch whose number is not above that of the batch before it.
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

// The number of a batch is not part of its checksum, but numbers only grow. A damaged number that still lies between
// its neighbours changes no order, so it does no harm.
fn walk(path: &Path, last: &mut Option<Last>) -> io::Result<Walked> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut walked = Walked::default();
    let mut at = 0;
    while at < len {
        match batch(&mut reader, len - at, Sum::Compared)? {
            Some(batch) if last.is_some_and(|last| batch.seqno <= last.seqno) => {
                walked.out_of_order = Some(at);
                break;
            }
            Some(Batch { size, seqno, mark }) => {
                let mark = mark.or(last.and_then(|last| last.mark));
                *last = Some(Last { at, size, seqno, mark });
                at += size;
                walked.batches += 1;
            }
            None => {
                reader.seek(SeekFrom::Start(at))?;
                if !only_zeros(&mut reader)? {
                    reader.seek(SeekFrom::Start(at))?;
                    let mut rest = Vec::new();
                    reader.read_to_end(&mut rest)?;
                    let rest = without_zeros_after(&rest);
                    let mark = last.and_then(|last| last.mark);
                    walked.torn = Some(Torn { file: path.into(), at, goes_on: holds_a_batch(&rest[1..], mark)? });
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

// Tens of megabytes of zeros are usual, so they are compared by the page.
fn without_zeros_after(mut bytes: &[u8]) -> &[u8] {
    const PAGE: [u8; 4096] = [0; 4096];
    while let Some(before) = bytes.strip_suffix(&PAGE) {
        bytes = before;
    }
    &bytes[..bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}

// A commit by an early release, which wrote no marks, counts too where no mark was read before it.
fn holds_a_batch(bytes: &[u8], mark: Option<Mark>) -> io::Result<bool> {
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == START) {
        let (rest, left) = (&bytes[at..], (bytes.len() - at) as u64);
        // Shape and mark rule out most candidates first: no client can make us sum up the same bytes again and again.
        let shaped = batch(&mut &*rest, left, Sum::Passed)?.is_some_and(|batch| mark.is_none() || batch.mark == mark);
        if shaped && batch(&mut &*rest, left, Sum::Compared)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

struct Batch {
    size: u64,
    seqno: u64,
    mark: Option<Mark>,
}

/// Whether a batch's checksum is compared, or only its shape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    Compared,
    Passed,
}

/// The next batch, if it is whole and sound.
fn batch(reader: &mut impl BufRead, left: u64, sum: Sum) -> io::Result<Option<Batch>> {
    let hash = (sum == Sum::Compared).then(Xxh3::new);
    let mut entries = Entries { reader: reader.take(left), hash, mark: None };
    match entries.batch() {
        Ok(seqno) => {
            let (size, mark) = (left - entries.reader.limit(), entries.mark);
            Ok(seqno.map(|seqno| Batch { size, seqno, mark }))
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

struct Entries<R> {
    reader: io::Take<R>,
    hash: Option<Xxh3>,
    mark: Option<Mark>,
}

impl<R: BufRead> Entries<R> {
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
                    self.sum(&[CLEAR]);
                    self.sum(&keyspace);
                }
                _ => return Ok(None),
            }
        }
        if self.array::<1>()? != [END] {
            return Ok(None);
        }
        let sum = u64::from_le_bytes(self.array()?);
        let sound = self.hash.as_ref().is_none_or(|hash| hash.digest() == sum);
        Ok((self.array::<4>()? == TRAILER && sound).then_some(seqno))
    }

    // Kind (1), compression (1), keyspace (8), then the lengths of the key (2), of the value (4) and of the value
    // as it is stored (4).
    fn item(&mut self) -> io::Result<()> {
        let head = self.array::<20>()?;
        self.sum(&[ITEM]);
        self.sum(&head);
        let key_len = usize::from(u16::from_le_bytes([head[10], head[11]]));
        let value_len = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
        if (key_len, value_len) == (TIME_FLOOR.len(), FLOOR_BYTES as u32) {
            return self.small_item();
        }
        let mut left = key_len as u64 + u64::from(value_len);
        if left > self.reader.limit() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while left > 0 {
            let chunk = self.reader.fill_buf()?;
            let part = &chunk[..chunk.len().min(left as usize)];
            if part.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(hash) = &mut self.hash {
                hash.update(part);
            }
            let len = part.len();
            self.reader.consume(len);
            left -= len as u64;
        }
        Ok(())
    }

    // An item of the time floor's size: perhaps the time floor, which carries the mark.
    fn small_item(&mut self) -> io::Result<()> {
        let bytes = self.array::<{ TIME_FLOOR.len() + FLOOR_BYTES }>()?;
        self.sum(&bytes);
        if let Some([_, _, _, _, _, _, _, _, mark @ ..]) = bytes.strip_prefix(TIME_FLOOR) {
            self.mark = mark.try_into().ok();
        }
        Ok(())
    }

    fn sum(&mut self, bytes: &[u8]) {
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
