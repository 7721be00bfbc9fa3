//! Opens and makes the directory of an embedded store.
//! Never repairs what it does not understand: a store that is damaged, newer or in use is left as it is.
//! Called by `Embedded::open`.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, ErrorKind},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use fjall::{Database, Keyspace, PersistMode};

use super::{
    Embedded, Options,
    fault::{WHAT_TO_DO, io_error},
    journal::{self, Mark},
    journal_zeros::JournalZeros,
    tuning,
};
use crate::{Error, hot::Hot, private};

/// The layout of keyspaces and addresses; rows carry the version of their own bytes.
const LAYOUT: u32 = 1;
const LAYOUT_KEY: &[u8] = b"layout";
pub(super) const TIME_FLOOR: &[u8] = b"time-floor";
/// Has no value; a compaction writes it, to have something to flush.
pub(super) const COMPACTED: &[u8] = b"compacted";

const LOCK: &str = "lock";
const DATA: &str = "db";
/// A file that exists while a store is being created; the data of an unfinished store does not count.
const UNFINISHED: &str = "db.new";
/// The name of everything that a store keeps in its directory.
pub const FILES: [&str; 3] = [LOCK, DATA, UNFINISHED];

/// Whether a directory holds a store, whole or damaged. A `db` alone proves nothing: other programs use that name too.
pub fn is_store(dir: &Path) -> bool {
    let data = dir.join(DATA);
    data.join("version").is_file() || data.join("keyspaces").is_dir()
}

pub(super) fn open(dir: &Path, options: &Options) -> Result<Embedded, Error> {
    private::create_dir(dir).map_err(|error| unusable(dir, &error))?;
    let lock = lock(dir)?;
    // Under the lock: while another server uses the store, its files are not ours to restrict.
    private::tighten(dir, &FILES).map_err(|error| unusable(dir, &error))?;
    let path = dir.join(DATA);
    // Only the name counts: a link whose target is not mounted yet is an unavailable store, not a new one.
    let named = match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        named => named.map(|_| true).map_err(|error| unusable(dir, &error))?,
    };
    let unfinished = dir.join(UNFINISHED).is_file();
    let time_floor = Arc::new(AtomicU64::new(0));
    let (opened, is_new) = match named.then(|| existing(&path, options, &time_floor)) {
        Some(Ok(opened)) => (opened, false),
        // An unfinished store is created anew if it cannot be read, not if reading it could not be tried.
        Some(Err(error)) if !unfinished || matches!(error, Error::NotApplied(_)) => return Err(error),
        _ => (create(dir, &path, options, &time_floor)?, true),
    };
    // The store is whole: its creator stopped before it could remove the marker file.
    if unfinished && !is_new {
        let removed = fs::remove_file(dir.join(UNFINISHED)).and_then(|()| File::open(dir)?.sync_all());
        removed.map_err(|error| unusable(dir, &error))?;
    }
    let (db, [fences, rows, due, meta]) = opened;
    let (floor, mark) = floor(&path, &meta)?;
    time_floor.store(floor, Ordering::Release);
    let persist = if options.unsynced_loses_acknowledged_writes { PersistMode::Buffer } else { PersistMode::SyncData };
    let zeros = options.journal_zeros.then(|| JournalZeros::new(&path, !is_new)).transpose()?;
    Ok(Embedded {
        db,
        fences,
        rows,
        due,
        meta,
        path,
        persist,
        time_floor,
        // Random, so that no client can know it.
        mark: mark.unwrap_or_else(|| RandomState::new().build_hasher().finish().to_be_bytes()),
        commit_steps: AtomicU64::new(0),
        hot: Hot::new(options.hot_bytes),
        ready: Hot::new(options.ready_bytes),
        absent: Default::default(),
        fault: Default::default(),
        commit: Mutex::new(zeros),
        _lock: lock,
    })
}

type Opened = (Database, [Keyspace; 4]);

fn existing(path: &Path, options: &Options, time_floor: &Arc<AtomicU64>) -> Result<Opened, Error> {
    check_files(path)?;
    journal::check(path)?;
    let db = guarded(path, || tuning::database(path, options, time_floor).open())?;
    for name in tuning::KEYSPACES {
        if !db.keyspace_exists(name) {
            return Err(damaged(path, &format!("its keyspace `{name}` is missing")));
        }
    }
    let keyspaces = keyspaces(path, &db)?;
    match number(path, &keyspaces[3], LAYOUT_KEY)? {
        None => Err(damaged(path, "it does not say which release wrote it")),
        Some(layout) if layout > u64::from(LAYOUT) => Err(Error::Broken(format!(
            "the store in {} was written by a newer release of Fencepost (layout {layout}; this one knows {LAYOUT}). \
             Run that release; nothing was changed",
            path.display()
        ))),
        Some(_) => Ok((db, keyspaces)),
    }
}

fn lock(dir: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(dir.join(LOCK)).map_err(|error| unusable(dir, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(in_use(dir)),
        Err(TryLockError::Error(error)) => Err(unusable(dir, &error)),
    }
}

// A marker file is there until the store is whole, so that half a store is never trusted.
fn create(dir: &Path, path: &Path, options: &Options, time_floor: &Arc<AtomicU64>) -> Result<Opened, Error> {
    let unfinished = dir.join(UNFINISHED);
    let synced = |dir: &Path| File::open(dir)?.sync_all();
    let begin = || {
        // An earlier release created the store itself under this name.
        absent(fs::remove_dir_all(&unfinished).or_else(|_| fs::remove_file(&unfinished)))?;
        File::create(&unfinished)?.sync_all()?;
        synced(dir)?;
        absent(fs::remove_dir_all(path))?;
        // Files in it get the modes of the process's umask; the mode of the directory keeps other users out.
        private::create_dir(path)
    };
    begin().map_err(|error| unusable(dir, &error))?;
    let db = guarded(path, || tuning::database(path, options, time_floor).open())?;
    let keyspaces = keyspaces(path, &db)?;
    guarded(path, || {
        keyspaces[3].insert(LAYOUT_KEY, u64::from(LAYOUT).to_be_bytes())?;
        db.persist(PersistMode::SyncAll)
    })?;
    let end = || {
        synced(dir)?;
        fs::remove_file(&unfinished)?;
        synced(dir)
    };
    end().map_err(|error| unusable(dir, &error))?;
    // The directory's own name must survive a power cut too.
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        synced(parent).map_err(|error| unusable(parent, &error))?;
    }
    Ok((db, keyspaces))
}

fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn keyspaces(path: &Path, db: &Database) -> Result<[Keyspace; 4], Error> {
    guarded(path, || {
        Ok([
            db.keyspace(tuning::FENCES, tuning::fences)?,
            db.keyspace(tuning::ROWS, tuning::others)?,
            db.keyspace(tuning::DUE, tuning::others)?,
            db.keyspace(tuning::META, tuning::others)?,
        ])
    })
}

// Without these files fjall would create an empty store or delete the keyspace: it takes their absence for a creation
// that never finished. Here an unfinished store has a marker file instead.
fn check_files(path: &Path) -> Result<(), Error> {
    let missing = |file: &Path| damaged(path, &format!("{} is missing", file.display()));
    let version = path.join("version");
    if !version.is_file() {
        return Err(missing(&version));
    }
    let trees = path.join("keyspaces");
    for entry in fs::read_dir(&trees).map_err(|_| missing(&trees))? {
        let tree = entry.map_err(|error| unusable(path, &error))?.path();
        let current = tree.join("current");
        if tree.is_dir() && !current.is_file() {
            return Err(missing(&current));
        }
    }
    Ok(())
}

// The time floor, and the mark of the store's commits, which early releases did not write.
fn floor(path: &Path, meta: &Keyspace) -> Result<(u64, Option<Mark>), Error> {
    let value = guarded(path, || meta.get(TIME_FLOOR))?;
    let Some((floor, mark)) = value.as_ref().map(|value| value.split_at_checked(8).unwrap_or_default()) else {
        return Ok((0, None));
    };
    let wrong = |_| damaged(path, "a number in it has the wrong length");
    let mark = if mark.is_empty() { None } else { Some(mark.try_into().map_err(wrong)?) };
    Ok((u64::from_be_bytes(floor.try_into().map_err(wrong)?), mark))
}

fn number(path: &Path, meta: &Keyspace, key: &[u8]) -> Result<Option<u64>, Error> {
    let Some(bytes) = guarded(path, || meta.get(key))? else { return Ok(None) };
    let bytes = bytes.as_ref().try_into().map_err(|_| damaged(path, "a number in it has the wrong length"))?;
    Ok(Some(u64::from_be_bytes(bytes)))
}

// fjall asserts much of what it reads at open: a panic there is damage, not a bug of the caller's.
fn guarded<T>(path: &Path, work: impl FnOnce() -> fjall::Result<T>) -> Result<T, Error> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(match (&error, io_error(&error)) {
            (_, Some(cause)) if cause.kind() == ErrorKind::StorageFull => {
                Error::Broken(format!("the disk under {} is full. Free some space, then restart", path.display()))
            }
            (_, Some(cause)) if matches!(cause.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
                unusable(path, cause)
            }
            (fjall::Error::Locked, _) => in_use(path),
            _ => damaged(path, &error.to_string()),
        }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it does not make sense");
            Err(damaged(path, text))
        }
    }
}

/// The words by which callers recognize the error of a directory that another process uses.
pub const IN_USE: &str = "is in use by another Fencepost";

fn in_use(dir: &Path) -> Error {
    let dir = dir.display();
    Error::NotApplied(format!("{dir} {IN_USE}: stop that one, or use another directory; one handle at a time opens it"))
}

pub(super) fn damaged(path: &Path, what: &str) -> Error {
    Error::Broken(format!("the store in {} is damaged: {what}. Nothing was changed. {WHAT_TO_DO}", path.display()))
}

pub(super) fn unusable(path: &Path, error: &io::Error) -> Error {
    Error::NotApplied(format!("{} cannot be used as a store: {error}", path.display()))
}

/// The bytes that the files under `path` really occupy: a journal is a large file with a hole in it.
pub(super) fn allocated_bytes(path: &Path) -> io::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => total += allocated_bytes(&entry.path())?,
            Ok(metadata) => total += file_bytes(&metadata),
            // A compaction may have removed it meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

#[cfg(unix)]
fn file_bytes(metadata: &fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    metadata.blocks() * 512
}

#[cfg(not(unix))]
fn file_bytes(metadata: &fs::Metadata) -> u64 {
    metadata.len()
}
