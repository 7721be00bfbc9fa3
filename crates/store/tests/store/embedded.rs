//! Guarantees of the embedded store alone: one owner, a time floor on disk, and expired rows that leave it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
};

use fencepost_kernel::{
    Millis, Row, RowKey, Tenant, Write,
    fence::{
        self, Fence, Receipt, State, Token,
        body::{Body, KEPT_BYTES_MAX},
        scope::OnLapse,
    },
    json,
    key::Kind,
    row::{CommitId, Record},
};
use fencepost_store::{Embedded, Error, Store, Verdict, WriteSet, embedded::Options};
use futures::executor::block_on;

pub const NOW: u64 = 1_767_225_600_000;

pub fn key(number: u64) -> RowKey {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    RowKey { kind: Kind::Fence, id }
}

pub fn sealed(number: u64, expires: u64) -> Record {
    Record::from(Fence {
        tenant: Tenant::new("acme"),
        scope: "BOOKING".into(),
        fields: vec![("booking".to_owned(), number.to_string())].into(),
        seq: None,
        first_seen: Millis(NOW),
        token: Token(NOW),
        attempt: 1,
        body: None,
        source: None,
        version: None,
        state: State::Sealed {
            receipt: Receipt { effect_id: number.to_string(), body: vec![number as u8; 40].into() },
            at: Millis(NOW),
            expires: Millis(expires),
        },
        events: Vec::new(),
    })
}

pub fn put(number: u64, record: Record) -> WriteSet {
    let write = Write { key: key(number), expect: None, put: Some(record) };
    WriteSet::new(CommitId(1_000 + number), vec![write])
}

pub fn open(dir: &std::path::Path) -> Result<Embedded, Error> {
    Embedded::open(dir, Options::default())
}

pub fn refusal(dir: &std::path::Path) -> String {
    match open(dir) {
        Ok(_) => panic!("the store should not open"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_second_opener_is_told_that_the_store_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let refused = refusal(dir.path());
    assert!(refused.contains("in use") && refused.contains(&dir.path().display().to_string()), "{refused}");
    drop(first);
    open(dir.path()).unwrap();
}

#[test]
fn expired_rows_leave_the_disk_in_compaction_and_the_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let count = 2_000;
    // Every second row expires in a minute, the others in a week.
    let expires = |number| NOW + if number % 2 == 0 { 60_000 } else { 604_800_000 };
    let sets: Vec<_> = (0..count).map(|number| put(number, sealed(number, expires(number)))).collect();
    block_on(store.commit(&sets, Millis(NOW))).unwrap();
    let left = || block_on(store.scan(Kind::Fence, None, usize::MAX)).unwrap().len() as u64;

    block_on(store.commit(&[], Millis(NOW + 59_999))).unwrap();
    store.compact().unwrap();
    assert_eq!(left(), count, "nothing has expired yet");

    block_on(store.commit(&[], Millis(NOW + 60_000))).unwrap();
    assert_eq!(left(), count, "nothing is dropped outside a compaction");
    store.compact().unwrap();
    assert_eq!(left(), count / 2);
    for number in 0..count {
        let found = block_on(store.load(&[key(number)])).unwrap().remove(0);
        assert_eq!(found.map(|row| row.record.clone()), (number % 2 == 1).then(|| sealed(number, expires(number))));
    }

    // A key whose row was dropped is as free as one that never was.
    assert_eq!(block_on(store.commit(&[put(0, sealed(0, u64::MAX))], Millis(NOW))).unwrap(), [Verdict::Applied]);
}

#[test]
fn an_older_version_of_a_row_does_not_come_back_when_the_newer_one_expires() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    block_on(store.commit(&[put(1, sealed(1, u64::MAX))], Millis(NOW))).unwrap();
    store.compact().unwrap();
    let newer = Write { key: key(1), expect: Some(CommitId(1_001)), put: Some(sealed(1, NOW + 1)) };
    block_on(store.commit(&[WriteSet::new(CommitId(2), vec![newer])], Millis(NOW + 1))).unwrap();
    store.compact().unwrap();
    assert_eq!(block_on(store.load(&[key(1)])).unwrap(), [None]);
}

#[test]
fn an_empty_commit_keeps_the_time_floor_across_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    block_on(store.commit(&[], Millis(NOW + 5))).unwrap();
    drop(store);
    assert_eq!(block_on(open(dir.path()).unwrap().time_floor()).unwrap(), Millis(NOW + 5));
}

#[test]
fn a_large_receipt_comes_back_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let body: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let Record::Fence(fence::Record::Fence(fence)) = sealed(1, u64::MAX) else { unreachable!() };
    let mut fence = Fence::clone(&fence);
    fence.state = State::Sealed {
        receipt: Receipt { effect_id: "large".to_owned(), body: body.into() },
        at: Millis(NOW),
        expires: Millis(u64::MAX),
    };
    let record = Record::from(fence);
    block_on(store.commit(&[put(1, record.clone())], Millis(NOW))).unwrap();
    for round in 0..2 {
        let found = block_on(store.load(&[key(1)])).unwrap().remove(0).unwrap();
        assert_eq!(found.record, record, "in the memtable first, then from a table (round {round})");
        store.compact().unwrap();
    }
}

// INVARIANT recent-is-current: loads beside commits never make a commit compare with what is no longer there.
#[test]
fn recent_is_current_while_engines_load_and_commit_beside_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()).unwrap());
    let (engines, rounds) = (4, 50);
    let barrier = Arc::new(Barrier::new(engines));
    let threads: Vec<_> = (0..engines as u64)
        .map(|engine| {
            let (store, barrier) = (store.clone(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                let mut applied = BTreeSet::new();
                for round in 0..rounds {
                    let current = block_on(store.load(&[key(1), key(2)])).unwrap().remove(0);
                    let id = CommitId(1 + engine * rounds + round);
                    let write = Write {
                        key: key(1),
                        expect: current.map(|row| row.revision),
                        put: Some(sealed(id.0, u64::MAX)),
                    };
                    let expect = write.expect;
                    let set = WriteSet::new(id, vec![write]);
                    if block_on(store.commit(&[set], Millis(NOW))).unwrap() == [Verdict::Applied] {
                        applied.insert(expect);
                    }
                }
                applied
            })
        })
        .collect();
    let mut followed = BTreeSet::new();
    for thread in threads {
        for expect in thread.join().unwrap() {
            assert!(followed.insert(expect), "two commits were both applied over revision {expect:?}");
        }
    }
}

// On ext4 and XFS; elsewhere nothing is prepared.
#[cfg(target_os = "linux")]
#[test]
fn zeros_lie_ahead_of_a_journal_that_the_store_made_and_never_after_one_that_it_appends_to() {
    use std::os::unix::fs::MetadataExt;

    let dir = tempfile::tempdir().unwrap();
    if !matches!(rustix::fs::statfs(dir.path()).unwrap().f_type as u64, 0xef53 | 0x5846_5342) {
        return;
    }
    let journal = || std::fs::metadata(super::harness::journal(dir.path())).unwrap();
    let taken = || journal().blocks() * 512;
    let step = 1 << 20;
    let write = |store: &Embedded, numbers: std::ops::Range<u64>| {
        for number in numbers {
            block_on(store.commit(&[put(number, sealed(number, u64::MAX))], Millis(NOW + number))).unwrap();
        }
    };
    let store = open(dir.path()).unwrap();
    write(&store, 0..1);
    assert!((step..2 * step).contains(&taken()), "{} bytes for one row", taken());
    let len = journal().len();
    // One commit that is larger than a step, and the next.
    let many: Vec<_> = (1..20_000).map(|number| put(number, sealed(number, u64::MAX))).collect();
    block_on(store.commit(&many, Millis(NOW + 1))).unwrap();
    write(&store, 20_000..20_002);
    let end = super::harness::journal_end(dir.path());
    assert!(end > 2 * step && (end..end + 2 * step).contains(&taken()), "{} bytes for {end}", taken());
    assert_eq!(journal().len(), len, "the file is as long as fjall made it");
    drop(store);

    let store = open(dir.path()).unwrap();
    write(&store, 20_002..20_010);
    assert_eq!(journal().len(), super::harness::journal_end(dir.path()), "nothing after the last commit");
    drop(store);

    let store = open(dir.path()).unwrap();
    assert_eq!(block_on(store.scan(Kind::Fence, None, usize::MAX)).unwrap().len(), 20_010);
}

#[test]
fn a_claim_with_a_large_body_is_recalled_as_a_small_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    for (number, size) in [(1, 10), (2, 8 << 10), (3, KEPT_BYTES_MAX - 2)] {
        let Record::Fence(fence::Record::Fence(fence)) = sealed(number, NOW) else { unreachable!() };
        let text = format!("\"{}\"", "x".repeat(size));
        let body = Some(Body::json(&json::parse(text.as_bytes()).unwrap(), &[]));
        let state = State::Pending {
            lease_expires: Millis(NOW),
            on_lapse: OnLapse::Recover,
            forget_at: None,
            doubted_at: None,
            held_by: None,
        };
        let claim = Record::from(Fence { body, state, ..Fence::clone(&fence) });
        block_on(store.commit(&[put(number, claim.clone())], Millis(NOW))).unwrap();
        let recalled = store.recall(&key(number)).unwrap().unwrap().unwrap();
        assert_eq!(recalled.record, claim, "{size}");
    }
}

#[cfg(unix)]
#[test]
fn a_store_is_its_owners_only_and_one_that_others_could_enter_is_closed() {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let dir = tempfile::tempdir().unwrap();
    let (data, db) = (dir.path().join("data"), dir.path().join("data").join("db"));
    drop(Embedded::open(&data, Options::default()).unwrap());
    assert_eq!((mode(&data), mode(&db), mode(&data.join("lock"))), (0o700, 0o700, 0o600));
    // As an earlier release left it.
    for path in [&data, &db] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    drop(Embedded::open(&data, Options::default()).unwrap());
    let mut paths = vec![data];
    while let Some(path) = paths.pop() {
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
}

// A load of several rows beside a commit reads a snapshot, a load of one row reads what was written lately.
#[test]
fn a_row_that_was_read_with_others_is_never_older_when_it_is_read_alone() {
    const COMMITS: u64 = 300;
    const ROWS: u64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    // Many rows in a commit: the last one of them is remembered long after the first is there.
    let write = |turn: u64, number: u64| {
        let id = |turn: u64| CommitId(turn * ROWS + number);
        let put = Some(sealed(number, u64::MAX));
        WriteSet::new(id(turn), vec![Write { key: key(number), expect: turn.checked_sub(1).map(id), put }])
    };
    let commit = |turn: u64| {
        let sets: Vec<WriteSet> = (1..ROWS).map(|number| write(turn, number)).collect();
        let verdicts = block_on(store.commit(&sets, Millis(NOW))).unwrap();
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Applied));
    };
    commit(0);
    let last = (1..ROWS).map(key).max().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let revision = |row: &Option<Arc<Row>>| row.as_ref().unwrap().revision;
            while !done.load(Ordering::Acquire) {
                let together = revision(&block_on(store.load(&[last, key(0)])).unwrap()[0]);
                let alone = revision(&store.peek(&last).unwrap().unwrap());
                assert!(alone >= together, "{together:?} was read with another row, and then {alone:?} alone");
            }
        });
        (1..COMMITS).for_each(commit);
        done.store(true, Ordering::Release);
    });
}
