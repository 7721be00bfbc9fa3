//! Keeps zeros on disk ahead of where fjall writes its journal, so that the sync of a commit is the commit's bytes alone.
//! Never writes where something was written: only into holes, on file systems that tell of them truly, while no commit is
//! under way. Costs nothing but speed when it fails.
//! Called by the embedded store before each commit.
//!
//! fjall makes a journal as one large hole. A write into a hole allocates blocks, and its sync must then write the file
//! system's own journal too: half as much time again. A journal that was there when the store was opened is left alone:
//! fjall appends to that one, and whatever lies after its end would be in the way.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use super::journal;
use crate::Error;

/// How much is made ready at a time: seldom enough, and no commit waits long for it.
const STEP_BYTES: u64 = 1 << 20;
/// How much is written before fjall's next journal is looked for again.
const LOOK_BYTES: u64 = 128 << 10;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

pub(super) struct Runway {
    dir: PathBuf,
    /// The next journal to look for, and what is written until then.
    next: u64,
    unlooked: u64,
    journal: Option<Journal>,
}

struct Journal {
    file: File,
    /// No less than what fjall has written to it.
    used: u64,
    ready: u64,
}

impl Runway {
    /// For a store that was just made, or, with `appended`, for one whose journal fjall found and appends to.
    pub(super) fn new(dir: &Path, appended: bool) -> Result<Self, Error> {
        let last = journal::journals(dir)?.pop().map_or(0, |(id, _)| id);
        Ok(Self { dir: dir.to_owned(), next: last + u64::from(appended), unlooked: LOOK_BYTES, journal: None })
    }

    /// Before a commit that takes up to `bytes` in the journal.
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
        // One without a length is still being made.
        if let Some(file) = newer.ok().filter(|file| file.metadata().is_ok_and(|metadata| metadata.len() > 0)) {
            self.next += 1;
            self.journal = Journal::new(file).ok().flatten();
        }
    }
}

impl Journal {
    // None where the file system has no holes to tell of, or may not tell the truth.
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
            // Zeros that were made holes again are no help.
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

// ZFS keeps zeros as holes, and has called a hole what was just written; what sits on another file system says what that
// one says.
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
