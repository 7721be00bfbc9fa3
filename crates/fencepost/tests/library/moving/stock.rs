//! Rows of every kind to move, and a target that is cut off in the middle of it.

use std::sync::Arc;

use bytes::Bytes;
use fencepost::{
    kernel::{
        FenceKey, Millis, Row, RowKey, Tenant, Version, Write,
        fence::{self, AgainHead, Alias, Fence, Receipt, Sighting, State, Token, Trace, VersionHead, scope::OnLapse},
        key::Kind,
        row::{CommitId, Record},
    },
    store::{Embedded, Memory, Store, Verdict, WriteSet, embedded},
};
use fencepost_testkit::Faults;
use tempfile::TempDir;

pub const NOW: u64 = 1_767_225_600_000;
pub const FENCES: u64 = 1_200;

pub fn fence(number: u64, state: State) -> Record {
    Record::from(Fence {
        tenant: Tenant::new("acme"),
        scope: "JOB".into(),
        fields: vec![("id".to_owned(), number.to_string())].into(),
        seq: None,
        first_seen: Millis(NOW),
        token: Token(NOW + number),
        attempt: 1,
        body: None,
        source: None,
        version: None,
        state,
        events: Vec::new(),
    })
}

pub fn receipt(number: u64) -> Receipt {
    let body = if number.is_multiple_of(3) { vec![number as u8; 2_000].into() } else { Bytes::from_static(b"{}") };
    Receipt { effect_id: format!("E-{number}"), body }
}

pub fn sealed(number: u64, expires: u64) -> Record {
    fence(number, State::Sealed { receipt: receipt(number), at: Millis(NOW), expires: Millis(expires) })
}

pub fn pending(number: u64, on_lapse: OnLapse) -> Record {
    let forget_at = (on_lapse == OnLapse::Recover).then_some(Millis(u64::MAX));
    fence(
        number,
        State::Pending { lease_expires: Millis(NOW - 1), on_lapse, forget_at, doubted_at: None, held_by: None },
    )
}

pub fn key(kind: Kind, number: u64) -> RowKey {
    let mut id = [0; 32];
    // Spread over the whole range, as digests are.
    id[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    RowKey { kind, id }
}

/// Rows of every kind: 1,202 fences of which two are open, one of each other kind, and one whose time is over.
pub fn rows() -> Vec<(RowKey, Record)> {
    let mut rows: Vec<_> = (0..FENCES).map(|n| (key(Kind::Fence, n), sealed(n, u64::MAX))).collect();
    let alias = Alias {
        tenant: Tenant::new("acme"),
        name: "latest".to_owned(),
        scope: "JOB".to_owned(),
        target: FenceKey([1; 32]),
        receipt: receipt(3),
        at: Millis(NOW),
    };
    let recent = vec![(Millis(NOW), Sighting::Duplicate)];
    rows.extend([
        (key(Kind::Fence, 5_000), pending(5_000, OnLapse::Recover)),
        (key(Kind::Fence, 5_001), pending(5_001, OnLapse::Hold)),
        (key(Kind::Fence, 5_002), sealed(5_002, NOW - 1)),
        (
            key(Kind::VersionHead, 1),
            Record::Fence(fence::Record::VersionHead(VersionHead { version: Version::Integer(7) })),
        ),
        (
            key(Kind::AgainHead, 1),
            Record::Fence(fence::Record::AgainHead(AgainHead { last: 2, sealed: true, expires: None })),
        ),
        (key(Kind::Alias, 1), Record::Fence(fence::Record::Alias(alias.into()))),
        (
            key(Kind::Trace, 1),
            Record::Fence(fence::Record::Trace(Trace { replays: 3, recent, ..Trace::default() }.into())),
        ),
    ]);
    rows
}

pub async fn put(store: &dyn Store, rows: impl IntoIterator<Item = (RowKey, Record)>) {
    for (number, (key, record)) in (900_000..).zip(rows) {
        let write = Write { key, expect: None, put: Some(record) };
        let set = WriteSet::new(CommitId(number), vec![write]);
        assert_eq!(store.commit(&[set], Millis(NOW)).await.unwrap(), [Verdict::Applied]);
    }
}

pub async fn stocked() -> Arc<dyn Store> {
    let store = Memory::default();
    put(&store, rows()).await;
    Arc::new(store)
}

pub fn embedded() -> (TempDir, Arc<dyn Store>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), embedded::Options::default()).unwrap();
    (dir, Arc::new(store))
}

/// The live rows of a store, without revisions: those are each store's own.
pub async fn content(store: &dyn Store) -> Vec<(RowKey, Record)> {
    let mut all = Vec::new();
    for kind in [Kind::Fence, Kind::VersionHead, Kind::AgainHead, Kind::Alias, Kind::Trace] {
        all.extend(store.scan(kind, None, usize::MAX).await.unwrap());
    }
    let alive = |row: &Row| row.record.expires_at().is_none_or(|expires| expires > Millis(NOW));
    all.into_iter().filter(|(_, row)| alive(row)).map(|(key, row)| (key, row.record.clone())).collect()
}

/// A store that a power cut reaches with this commit: it lands, but nobody hears of it.
pub fn cut_after(commits: usize) -> Arc<dyn Store> {
    cut_with([commits])
}

/// Cut with each of these commits, counted from the first of all.
pub fn cut_with(cuts: impl IntoIterator<Item = usize>) -> Arc<dyn Store> {
    let faults = Faults::default();
    faults.lose_answers(cuts);
    faults.over_memory()
}
