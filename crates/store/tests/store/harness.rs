//! How the suite opens, kills and reopens the stores of this crate.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use fencepost_kernel::Millis;
use fencepost_store::{Embedded, Memory, Store, WriteSet, conformance::Harness, embedded::Options};
use futures::FutureExt;
use tempfile::TempDir;

/// The memory store promises nothing after a crash.
pub struct Forgetful(Vec<Arc<Memory>>);

impl Forgetful {
    pub fn new() -> Self {
        Self(Vec::new())
    }
}

impl Harness for Forgetful {
    fn open(&mut self) -> Arc<dyn Store> {
        let store = Arc::new(Memory::new());
        self.0.push(store.clone());
        store
    }

    fn crash(&mut self, _: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        None
    }

    fn interrupt(&mut self, _: Arc<dyn Store>, _: &[WriteSet], _: Millis) -> Vec<Arc<dyn Store>> {
        Vec::new()
    }

    fn sweep(&mut self, _: &Arc<dyn Store>, _: Millis) {
        self.0.iter().for_each(|store| store.sweep());
    }
}

/// How an embedded store ends.
#[derive(Clone, Copy)]
pub enum End {
    /// Its files are copied while it runs, as a kill would leave them.
    Killed,
    /// It is closed in good order.
    Closed,
}

/// Embedded stores in directories of their own.
pub struct OnDisk {
    end: End,
    root: TempDir,
    stores: Vec<(PathBuf, Arc<Embedded>)>,
    count: usize,
}

impl OnDisk {
    pub fn new(end: End) -> Self {
        Self { end, root: tempfile::tempdir().unwrap(), stores: Vec::new(), count: 0 }
    }

    fn dir(&mut self) -> PathBuf {
        self.count += 1;
        self.root.path().join(self.count.to_string())
    }

    fn open_at(&mut self, dir: PathBuf) -> Arc<dyn Store> {
        let store = Arc::new(Embedded::open(&dir, Options::default()).unwrap());
        self.stores.push((dir, store.clone()));
        store
    }

    /// Takes back the store that was handed out last.
    fn take_last(&mut self, store: Arc<dyn Store>) -> (PathBuf, Arc<Embedded>) {
        let last = self.stores.pop().unwrap();
        assert!(
            Arc::ptr_eq(&store, &(last.1.clone() as Arc<dyn Store>)),
            "the suite ends the store that it opened last"
        );
        last
    }
}

impl Harness for OnDisk {
    fn open(&mut self) -> Arc<dyn Store> {
        let dir = self.dir();
        self.open_at(dir)
    }

    fn crash(&mut self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let (dir, own) = self.take_last(store);
        let reopened = match self.end {
            End::Killed => {
                let image = self.dir();
                copy(&dir, &image);
                image
            }
            End::Closed => dir,
        };
        drop(own);
        Some(self.open_at(reopened))
    }

    fn interrupt(&mut self, store: Arc<dyn Store>, sets: &[WriteSet], now: Millis) -> Vec<Arc<dyn Store>> {
        let (dir, own) = self.take_last(store);
        let before = journal_end(&dir);
        own.commit(sets, now).now_or_never().unwrap().unwrap();
        let after = journal_end(&dir);
        assert!(before < after, "the commit is in the journal");
        // Nothing of it, one byte, everything but one byte, all of it, and some places between.
        let cuts = [before, before + 1, (before + after) / 2, (before + 3 * after) / 4, after - 1, after];
        let mut images = Vec::new();
        for cut in cuts {
            let image = self.dir();
            copy(&dir, &image);
            cut_journal(&image, cut);
            images.push(self.open_at(image));
        }
        images
    }

    fn sweep(&mut self, _: &Arc<dyn Store>, _: Millis) {
        self.stores.last().unwrap().1.compact().unwrap();
    }
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The newest journal of the store in `dir`.
pub fn journal(dir: &Path) -> PathBuf {
    let id = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let journals = fs::read_dir(dir.join("db")).unwrap().map(|entry| entry.unwrap().path());
    journals.filter(|path| path.extension().is_some_and(|extension| extension == "jnl")).max_by_key(id).unwrap()
}

/// Where the written part of the journal ends; zeros follow.
pub fn journal_end(dir: &Path) -> u64 {
    let bytes = fs::read(journal(dir)).unwrap();
    let mut written = &bytes[..];
    while let Some(before) = written.strip_suffix(&[0; 4096]) {
        written = before;
    }
    written.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// Zeros from `cut` on, as if nothing more had reached the disk.
pub fn cut_journal(dir: &Path, cut: u64) {
    let path = journal(dir);
    let mut bytes = fs::read(&path).unwrap();
    bytes[cut as usize..].fill(0);
    fs::write(path, bytes).unwrap();
}
