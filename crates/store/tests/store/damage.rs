//! A store that is damaged or newer refuses to open and says what to do; one that a power cut tore opens.

use std::{fs, path::Path};

use fencepost_kernel::{
    Millis,
    fence::{self, Fence, Receipt, State},
    row::Record,
};
use fencepost_store::{Error, Store};
use futures::executor::block_on;

use super::{
    embedded::{NOW, key, open, put, refusal, sealed},
    harness::{copy, journal, journal_end},
};

const COMMITS: u64 = 12;

/// A store of `COMMITS` acknowledged commits, closed; and where each ends in its journal.
fn written(dir: &Path) -> Vec<u64> {
    let store = open(dir).unwrap();
    let commit = |number| {
        let sets = [put(number, sealed(number, u64::MAX)), put(100 + number, sealed(number, u64::MAX))];
        block_on(store.commit(&sets, Millis(NOW + number))).unwrap();
        journal_end(dir)
    };
    let ends = (0..COMMITS).map(commit).collect();
    drop(store);
    // The next one cuts off the zeros behind the last commit, which are many and slow to copy.
    open(dir).unwrap();
    ends
}

fn rows(dir: &Path) -> Vec<u64> {
    let store = open(dir).unwrap();
    let there = |number: &u64| store.peek(&key(*number)).unwrap().unwrap().is_some();
    (0..COMMITS).filter(there).collect()
}

fn overwrite(dir: &Path, at: u64, change: impl Fn(u8) -> u8) {
    let path = journal(dir);
    let mut bytes = fs::read(&path).unwrap();
    bytes[at as usize] = change(bytes[at as usize]);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_bit_under_acknowledged_commits_keeps_the_store_shut_wherever_it_is() {
    let root = tempfile::tempdir().unwrap();
    let sound = root.path().join("sound");
    let ends = written(&sound);
    // Every byte of one batch in the middle: its tags, its lengths, its rows, its checksum.
    let (begin, end) = (ends[4], ends[5]);
    let damaged = root.path().join("damaged");
    copy(&sound, &damaged);
    for at in begin..end {
        overwrite(&damaged, at, |byte| byte ^ 0x10);
        let refused = refusal(&damaged);
        assert!(refused.contains("damaged") && refused.contains("backup"), "byte {at}: {refused}");
        overwrite(&damaged, at, |byte| byte ^ 0x10);
    }
    assert_eq!(rows(&damaged), (0..COMMITS).collect::<Vec<_>>(), "a refusal changes nothing");
}

#[test]
fn a_last_commit_torn_anywhere_is_gone_whole_and_the_others_stay() {
    let root = tempfile::tempdir().unwrap();
    let sound = root.path().join("sound");
    let ends = written(&sound);
    let (begin, end) = (ends[COMMITS as usize - 2], ends[COMMITS as usize - 1]);
    // A page that never reached the disk reads as zeros, also with later ones there.
    for (number, at) in (begin..end).step_by(17).enumerate() {
        let torn = root.path().join(number.to_string());
        copy(&sound, &torn);
        let path = journal(&torn);
        let mut bytes = fs::read(&path).unwrap();
        let hole = at as usize..(at as usize + 40).min(end as usize - 1);
        bytes[hole].fill(0);
        let changed = bytes != fs::read(&path).unwrap();
        fs::write(path, bytes).unwrap();
        let kept = if changed { COMMITS - 1 } else { COMMITS };
        assert_eq!(rows(&torn), (0..kept).collect::<Vec<_>>(), "a hole at byte {at} of {begin}..{end}");
        assert_eq!(rows(&torn), (0..kept).collect::<Vec<_>>(), "and again after the recovery");
    }
}

// Whatever a client chose to call its effect: it is not a commit.
#[test]
fn a_receipt_that_looks_like_a_commit_does_not_keep_a_torn_store_shut() {
    let dir = tempfile::tempdir().unwrap();
    let ends = written(dir.path());
    let planted = {
        // One batch that clears a keyspace, far ahead of all there is.
        let cleared = [&[4u8][..], &[0; 8]].concat();
        let sum = xxhash_rust::xxh3::xxh3_64(&cleared).to_le_bytes();
        [&[1, 1, 0, 0, 0][..], &[0x7f; 8], &cleared, &[3], &sum, b"FJL\x03"].concat()
    };
    let store = open(dir.path()).unwrap();
    let Record::Fence(fence::Record::Fence(fence)) = sealed(50, u64::MAX) else { panic!("no fence") };
    let receipt = Receipt { effect_id: "e".to_owned(), body: planted.clone().into() };
    let state = State::Sealed { receipt, at: Millis(NOW), expires: Millis(u64::MAX) };
    let sets = [put(50, Fence { state, ..Fence::clone(&fence) }.into()), put(51, sealed(51, u64::MAX))];
    block_on(store.commit(&sets, Millis(NOW + 50))).unwrap();
    drop(store);
    let bytes = fs::read(journal(dir.path())).unwrap();
    let at = bytes.windows(planted.len()).position(|part| part == planted).unwrap();
    assert!(at > *ends.last().unwrap() as usize);
    fs::write(journal(dir.path()), &bytes[..at + planted.len() + 10]).unwrap();
    assert_eq!(rows(dir.path()), (0..COMMITS).collect::<Vec<_>>());
}

#[test]
fn a_store_without_one_of_its_files_is_damaged_and_left_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    let sound = root.path().join("sound");
    written(&sound);
    for file in ["version", "keyspaces/1/current", "keyspaces/0/current", "keyspaces"] {
        let dir = root.path().join(file.replace('/', "-"));
        copy(&sound, &dir);
        let moved = root.path().join("moved");
        fs::rename(dir.join("db").join(file), &moved).unwrap();
        let refused = refusal(&dir);
        assert!(refused.contains("damaged") && refused.contains("move the directory aside"), "{file}: {refused}");
        fs::rename(&moved, dir.join("db").join(file)).unwrap();
        assert_eq!(rows(&dir), (0..COMMITS).collect::<Vec<_>>());
    }
}

#[test]
fn a_store_that_was_never_finished_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("db.new/keyspaces")).unwrap();
    fs::write(dir.path().join("db.new/0.jnl"), "half a journal").unwrap();
    open(dir.path()).unwrap();
    assert!(!dir.path().join("db.new").exists());

    // As this release leaves it.
    fs::write(dir.path().join("db.new"), "").unwrap();
    fs::remove_file(dir.path().join("db/version")).unwrap();
    drop(open(dir.path()).unwrap());
    assert!(!dir.path().join("db.new").exists());

    // One that is whole is kept: only the mark was left.
    let other = dir.path().join("other");
    written(&other);
    fs::write(other.join("db.new"), "").unwrap();
    assert_eq!(rows(&other), (0..COMMITS).collect::<Vec<_>>());
    assert!(!other.join("db.new").exists());
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_not_a_new_store() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(dir.path().join("not mounted"), dir.path().join("db")).unwrap();
    assert!(refusal(dir.path()).contains("damaged"));
    assert!(dir.path().join("db").is_symlink());
}

#[test]
fn a_store_of_a_newer_release_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path());
    let db = fjall::Database::builder(dir.path().join("db")).open().unwrap();
    let meta = db.keyspace("meta", fjall::KeyspaceCreateOptions::default).unwrap();
    meta.insert("layout", 2u64.to_be_bytes()).unwrap();
    db.persist(fjall::PersistMode::SyncAll).unwrap();
    drop((meta, db));
    let refused = refusal(dir.path());
    assert!(refused.contains("newer release") && refused.contains("layout 2"), "{refused}");
}

#[test]
fn a_row_that_was_changed_on_disk_is_broken_and_its_neighbours_are_not() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path());
    let db = fjall::Database::builder(dir.path().join("db")).open().unwrap();
    let fences = db.keyspace("fences", fjall::KeyspaceCreateOptions::default).unwrap();
    let mut bytes = fences.get(key(3).id).unwrap().unwrap().to_vec();
    bytes[20] ^= 1;
    fences.insert(key(3).id, bytes).unwrap();
    drop((fences, db));
    let store = open(dir.path()).unwrap();
    let Some(Err(Error::Broken(why))) = store.peek(&key(3)) else { panic!("the row should be broken") };
    assert!(why.contains("checksum") && why.contains("backup"), "{why}");
    store.compact().unwrap();
    assert!(matches!(store.peek(&key(3)), Some(Err(Error::Broken(_)))), "a compaction does not hide it");
    assert!(matches!(store.peek(&key(4)), Some(Ok(Some(_)))));
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    let refused = refusal(&file);
    assert!(refused.contains(&file.display().to_string()), "{refused}");
}
