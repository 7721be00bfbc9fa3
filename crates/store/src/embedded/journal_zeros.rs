//! Writes zeros to disk ahead of fjall's journal, so that the sync of a commit writes only the commit's bytes.
//! Never overwrites data: writes only into holes, on file systems that report holes reliably, while no commit is under
//! way. A failure costs only speed.
//! Called by the embedded store before each commit.
//!
//! fjall makes a journal as one large hole. A write into a hole allocates blocks, and its sync must then write the file
//! system's own journal too, which takes half as long again. A journal that existed when the store was opened is left
//! alone: fjall appends to its end, and zeros after that end would be in the way.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use super::journal;
use crate::Error;

/// How many zeros are written at a time: enough to be seldom, few enough that no commit waits long.
const STEP_BYTES: u64 = 1 << 20;
/// How many bytes are committed between two looks for fjall's next journal.
const LOOK_BYTES: u64 = 128 << 10;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

pub(super) struct JournalZeros {
    dir: PathBuf,
    /// The number of the next journal, and the bytes committed since the last look for it.
    next: u64,
    unlooked: u64,
    journal: Option<Journal>,
}

struct Journal {
    file: File,
    /// At least as many bytes as fjall has written to it.
    used: u64,
    ready: u64,
}

impl JournalZeros {
    /// `appended`: fjall found the last journal there and appends to it. Else the store was just created.
    pub(super) fn new(dir: &Path, appended: bool) -> Result<Self, Error> {
        let last = journal::journals(dir)?.pop().map_or(0, |(id, _)| id);
        Ok(Self { dir: dir.to_owned(), next: last + u64::from(appended), unlooked: LOOK_BYTES, journal: None })
    }

    /// Called before a commit that adds up to `bytes` to the journal.
    pub(super) fn prepare(&mut self, bytes: u64) {
        self.unlooked += bytes;
        if self.unlooked > LOOK_BYTES {
            self.unlooked = 0;
            self.look();
        }
        if self.journal.as_mut().is_some_and(|journal| journal.prepare(bytes).is_err()) {
            self.journal = None;
        }
    }

    fn look(&mut self) {
        let newer = OpenOptions::new().write(true).open(self.dir.join(format!("{}.jnl", self.next)));
        // A journal without a length is still being made.
        if let Some(file) = newer.ok().filter(|file| file.metadata().is_ok_and(|metadata| metadata.len() > 0)) {
            self.next += 1;
            self.journal = Journal::new(file).ok().flatten();
        }
    }
}

impl Journal {
    // None where the file system reports no holes, or may not report them truly.
    fn new(file: File) -> io::Result<Option<Self>> {
        if !is_trusted(&file)? {
            return Ok(None);
        }
        let hole = first_hole(&file)?;
        Ok((hole < file.metadata()?.len()).then_some(Self { file, used: hole, ready: hole }))
    }

    fn prepare(&mut self, bytes: u64) -> io::Result<()> {
        self.used += bytes;
        while self.used > self.ready {
            let hole = first_hole(&self.file)?;
            // The file system has turned the zeros into holes again: they are of no use there.
            if hole < self.ready {
                return Err(io::ErrorKind::Unsupported.into());
            }
            self.ready = hole + STEP_BYTES;
            for at in (hole..self.ready).step_by(ZEROS.len()) {
                write_at(&self.file, &ZEROS, at)?;
            }
        }
        Ok(())
    }
}

// ZFS stores zeros as holes, and has reported fresh data as one; a stacked file system reports what the lower one does.
#[cfg(target_os = "linux")]
fn is_trusted(file: &File) -> io::Result<bool> {
    const EXT4: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    Ok(matches!(rustix::fs::fstatfs(file)?.f_type as u64, EXT4 | XFS))
}

#[cfg(not(target_os = "linux"))]
fn is_trusted(_: &File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(target_os = "linux")]
fn first_hole(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(0))?)
}

#[cfg(not(target_os = "linux"))]
fn first_hole(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.len())
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(not(unix))]
fn write_at(_: &File, _: &[u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
