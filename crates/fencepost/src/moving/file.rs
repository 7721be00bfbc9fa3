//! The backup file: a magic line, a header line, rows, a trailer and a SHA-256 over all of it.
//! Never trusts a length or a row that it reads. Called by `backup` to write, by `verify` and `restore` to read.
//!
//! ```text
//! fencepost backup 2\n
//! {"release":…,"row_format":…,"store":…,"started_at_ms":…,"wall_ms":…,"time_floor_ms":…}\n
//! kind (1) | id (32) | length (4, little-endian) | the row as the codec writes it        for each row
//! 0 | {"ended_at_ms":…,"rows":[…]}\n                                                     the trailer
//! SHA-256 of everything before (32)
//! ```

use std::{io::Read, sync::Arc};

use bytes::Bytes;
use fencepost_kernel::{
    Millis, Row, RowKey,
    fence::{self, Phase},
    json::{self, JsonNode, Value, write_string},
    key::Kind,
    row::{self, Record},
};
use fencepost_store::{Found, codec};
use sha2::{Digest, Sha256};

use super::{
    Error, KeysNeeded, RowCounts,
    rows::{PAGE_BYTES_MAX, PAGE_ROWS_MAX, Pages},
};

const MAGIC: &str = "fencepost backup ";
/// The first format had no rows of lanes; nothing else differs.
const FORMATS: [&str; 2] = ["1", "2"];
const LINE_BYTES_MAX: usize = 4_096;
/// Far more than any row: a damaged length must not fill the memory.
const ROW_BYTES_MAX: u32 = 256 << 20;

/// The header line of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The release that wrote it.
    pub release: String,
    /// The format of its rows.
    pub row_format: u8,
    /// The store that held the rows, in its own words.
    pub store: String,
    /// When it was begun, in store time: each row is as it was then, or later.
    pub started_at: Millis,
    /// When it was begun, by the wall clock.
    pub wall: Millis,
    /// The store's time floor when it was begun: rows that have expired by it are left out.
    pub time_floor: Millis,
}

impl Header {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = format!("{MAGIC}{}\n{{\"release\":", FORMATS[1]).into_bytes();
        write_string(&mut out, &self.release);
        out.extend_from_slice(format!(",\"row_format\":{},\"store\":", self.row_format).as_bytes());
        write_string(&mut out, &self.store);
        let (started_at, wall, floor) = (self.started_at.0, self.wall.0, self.time_floor.0);
        let times = format!(",\"started_at_ms\":{started_at},\"wall_ms\":{wall},\"time_floor_ms\":{floor}}}\n");
        out.extend_from_slice(times.as_bytes());
        out
    }

    fn read(line: &[u8]) -> Option<Self> {
        let said = json::parse(line).ok()?;
        let text = |name| said.get(name).and_then(JsonNode::as_str).map(str::to_owned);
        let number = |name| said.get(name).and_then(JsonNode::as_u64);
        Some(Self {
            release: text("release")?,
            row_format: number("row_format")?.try_into().ok()?,
            store: text("store")?,
            started_at: Millis(number("started_at_ms")?),
            wall: Millis(number("wall_ms")?),
            time_floor: Millis(number("time_floor_ms")?),
        })
    }
}

/// Appends one row.
pub(super) fn put_row(out: &mut Vec<u8>, key: &RowKey, row: &Row) {
    out.push(key.kind as u8);
    out.extend_from_slice(&key.id);
    let length = out.len();
    out.extend_from_slice(&[0; 4]);
    codec::encode_into(out, key, &row.record, row.revision, codec::VERSION);
    let bytes = (out.len() - length - 4) as u32;
    out[length..length + 4].copy_from_slice(&bytes.to_le_bytes());
}

/// The trailer, without the SHA-256.
pub(super) fn trailer(ended_at: Millis, counts: &RowCounts) -> Vec<u8> {
    let counts: Vec<_> = row::BACKUP.iter().map(|kind| counts.of(*kind).to_string()).collect();
    format!("\0{{\"ended_at_ms\":{},\"rows\":[{}]}}\n", ended_at.0, counts.join(",")).into_bytes()
}

/// The contents of a whole backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// Its header line.
    pub header: Header,
    /// When it was ended, in store time. A row may be of any moment between its begin and this.
    pub ended_at: Millis,
    /// How many rows it holds.
    pub rows: RowCounts,
    /// Fences whose holder's lease was running when it was begun.
    pub pending: u64,
    /// Fences whose holder's lease had run out.
    pub lapsed: u64,
    /// Fences that waited for a person.
    pub in_doubt: u64,
    /// The latest moment or token in any row.
    pub latest: Millis,
    /// The keys that its transports are sealed with. The keys themselves are not in it.
    pub keys: KeysNeeded,
}

/// Reads a backup to its end and checks all of it: every row, the counts, the sum.
pub fn verify(file: impl Read) -> Result<Contents, Error> {
    let mut reader = Reader::open(file)?;
    while reader.next()?.is_some() {}
    Ok(reader.contents)
}

/// Reads a backup row by row; fails at the end where the checksum or the counts do not fit.
pub(super) struct Reader<R> {
    file: R,
    digest: Sha256,
    contents: Contents,
    is_over: bool,
}

impl<R: Read> Reader<R> {
    pub(super) fn open(mut file: R) -> Result<Self, Error> {
        let mut digest = Sha256::new();
        let magic = line(&mut file, &mut digest)?;
        let format = magic.strip_prefix(MAGIC.as_bytes()).ok_or_else(|| damaged("it does not begin like one"))?;
        if !FORMATS.iter().any(|known| known.as_bytes() == format) {
            return Err(damaged("it is of a newer release; restore it with that one"));
        }
        let header =
            Header::read(&line(&mut file, &mut digest)?).ok_or_else(|| damaged("its header cannot be read"))?;
        if header.row_format > codec::VERSION {
            return Err(damaged("its rows are of a newer release; restore it with that one"));
        }
        let ended_at = header.started_at;
        let rows = RowCounts::default();
        let (pending, lapsed, in_doubt) = (0, 0, 0);
        let (latest, keys) = (Millis(0), KeysNeeded::default());
        let contents = Contents { header, ended_at, rows, pending, lapsed, in_doubt, latest, keys };
        Ok(Self { file, digest, contents, is_over: false })
    }

    pub(super) fn started_at(&self) -> Millis {
        self.contents.header.started_at
    }

    /// The next row; none at the end, once the whole file was found sound.
    pub(super) fn next(&mut self) -> Result<Option<(RowKey, Arc<Row>)>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let [tag] = self.array()?;
        if tag == 0 {
            self.end()?;
            self.is_over = true;
            return Ok(None);
        }
        let kind = Kind::from_u8(tag).ok_or_else(|| damaged("it holds a row of an unknown kind"))?;
        let key = RowKey { kind, id: self.array()? };
        let length = u32::from_le_bytes(self.array()?);
        if length > ROW_BYTES_MAX {
            return Err(damaged("it holds a row that is too long"));
        }
        let mut bytes = Vec::new();
        (&mut self.file).take(length.into()).read_to_end(&mut bytes)?;
        if bytes.len() < length as usize {
            return Err(damaged("it ends too early"));
        }
        self.digest.update(&bytes);
        let row =
            codec::decode(&key, &Bytes::from(bytes)).map_err(|why| damaged(&format!("a row is damaged: {why}")))?;
        self.count(&key, &row.record);
        Ok(Some((key, Arc::new(row))))
    }

    fn count(&mut self, key: &RowKey, record: &Record) {
        let contents = &mut self.contents;
        contents.rows.add(key.kind);
        contents.latest = contents.latest.max(record.latest_at());
        contents.keys.add(record);
        if let Record::Fence(fence::Record::Fence(fence)) = record {
            match fence.phase(contents.header.started_at) {
                Phase::Pending => contents.pending += 1,
                Phase::Lapsed => contents.lapsed += 1,
                Phase::InDoubt => contents.in_doubt += 1,
                Phase::Sealed | Phase::Released | Phase::Expired => {}
            }
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        let said = line(&mut self.file, &mut self.digest)?;
        let (ended_at, counts) = read_trailer(&said).ok_or_else(|| damaged("its trailer cannot be read"))?;
        self.contents.ended_at = ended_at;
        let mut sum = [0; 32];
        self.file.read_exact(&mut sum)?;
        if self.digest.finalize_reset()[..] != sum {
            return Err(damaged("its SHA-256 does not match"));
        }
        if counts != self.contents.rows {
            return Err(damaged("it does not hold as many rows as it says"));
        }
        if self.file.read(&mut [0])? > 0 {
            return Err(damaged("it goes on past its end"));
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        self.file.read_exact(&mut array)?;
        self.digest.update(array);
        Ok(array)
    }
}

impl<R: Read> Pages for Reader<R> {
    async fn page(&mut self) -> Result<Found, Error> {
        let (mut page, mut bytes) = (Found::new(), 0);
        while page.len() < PAGE_ROWS_MAX && bytes < PAGE_BYTES_MAX {
            let Some((key, row)) = self.next()? else { break };
            bytes += row.record.weight_bytes();
            page.push((key, row));
        }
        Ok(page)
    }
}

fn read_trailer(line: &[u8]) -> Option<(Millis, RowCounts)> {
    let said = json::parse(line).ok()?;
    let Value::Array(rows) = &said.get("rows")?.value else { return None };
    let rows: Option<Vec<u64>> = rows.iter().map(JsonNode::as_u64).collect();
    let mut rows = rows?;
    // Kinds that came later are not counted in an older file.
    rows.resize(rows.len().max(row::BACKUP.len()), 0);
    Some((Millis(said.get("ended_at_ms")?.as_u64()?), RowCounts(rows.try_into().ok()?)))
}

// A line without its newline. Byte by byte: the bytes after it are not text, and the reader is buffered.
fn line(file: &mut impl Read, digest: &mut Sha256) -> Result<Vec<u8>, Error> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        file.read_exact(&mut byte)?;
        digest.update(byte);
        match byte {
            [b'\n'] => return Ok(line),
            [byte] if line.len() < LINE_BYTES_MAX => line.push(byte),
            _ => return Err(damaged("a line in it does not end")),
        }
    }
}

fn damaged(why: &str) -> Error {
    Error::Damaged(why.to_owned())
}
