//! Lanes on the move: copied as they are, restored under the next epoch, and made whole where a backup caught them moving.

use std::sync::Arc;

use fencepost::{
    kernel::{
        Millis, RowKey, Tenant, Write,
        dispatch::{self, Transport, WarehouseTransport, Webhook},
        key::Kind,
        lane::{
            self, AfterDead, Append, Cancelled, DeadLetter, DeadLetterReason, Entry, Fate, Lane, LaneId, LanePurpose,
            Owner, ReceiverAnswer, Tail, Trouble,
        },
        law::Also,
        merge::{Merge, Merged},
        row::{CommitId, Record},
    },
    moving,
    store::{Memory, Store, Verdict, WriteSet},
};
use fencepost_testkit::clock::ManualClock;
use sha2::{Digest, Sha256};

use super::{
    backup, copy, restore,
    stock::{NOW, embedded, put, rows, stocked},
};

const EPOCH: u64 = 7;

fn planner() -> Tenant {
    Tenant::new("acme")
}

fn place() -> LanePurpose {
    LanePurpose::Warehouse("W1".to_owned())
}

fn lane_id() -> LaneId {
    place().lane(&planner())
}

fn entry(seq: u64) -> (RowKey, Record) {
    let entry = Entry {
        correlation_id: format!("C-{seq}"),
        kind: "SHIPPER_RELEASED".to_owned(),
        warehouse: "W1".to_owned(),
        body: vec![seq as u8; 3_000].into(),
        published: Millis(NOW),
        redrive_of: None,
    };
    (RowKey::entry(lane_id(), seq), Record::Lane(lane::Record::Entry(entry.into())))
}

fn lane(settled: u64, trimmed: u64) -> Lane {
    let answer = ReceiverAnswer::new(Some(503), "busy");
    let (first_at, last_at, next_at) = (Millis(NOW), Millis(NOW), Millis(NOW + 5_000));
    let trouble = Some(Trouble { attempts: 2, first_at, last_at, next_at, answer });
    let owner = Owner { node: "node-1".to_owned(), epoch: EPOCH };
    Lane { owner, settled, trimmed, trouble, ..Lane::new(planner(), place()) }
}

fn lane_row(lane: Lane) -> (RowKey, Record) {
    (RowKey::lane(lane_id()), Record::Lane(lane::Record::Lane(lane.into())))
}

fn tail(last: u64) -> (RowKey, Record) {
    (RowKey::tail(lane_id()), Record::Lane(lane::Record::Tail(Tail { last })))
}

fn letter(seq: u64, fate: Fate) -> (RowKey, Record) {
    let (_, Record::Lane(lane::Record::Entry(entry))) = entry(seq) else { panic!() };
    let letter = DeadLetter {
        planner: planner(),
        purpose: place(),
        entry,
        reason: DeadLetterReason::Horizon,
        attempts: 9,
        first_at: Millis(NOW),
        at: Millis(NOW),
        answer: ReceiverAnswer::default(),
        cancelled_by: None,
        fate,
        blocks: false,
    };
    (RowKey::dead_letter(lane_id(), seq), Record::Lane(lane::Record::DeadLetter(letter.into())))
}

fn route() -> (RowKey, Record) {
    let secrets = vec!["sealed".into()];
    let route = WarehouseTransport {
        planner: planner(),
        warehouse: "W1".to_owned(),
        executor: "dock".to_owned(),
        transport: Transport::Webhook(Webhook { url: "https://dock.example".to_owned(), secrets, standard: true }),
        after_dead: AfterDead::Continue,
        receiver_retain_ms: 7,
        at: Millis(NOW),
    };
    (RowKey::transport(&planner(), "W1"), Record::Dispatch(dispatch::Record::Transport(route.into())))
}

fn cancelled() -> (RowKey, Record) {
    let cancelled = Cancelled { by: "C-9".to_owned(), expires: Millis(NOW * 2) };
    (RowKey::cancelled(lane_id(), 2), Record::Lane(lane::Record::Cancelled(cancelled)))
}

fn redriven(at: u64, seq: u64) -> Fate {
    Fate::Redriven { at: Millis(at), by: "ann".to_owned(), why: None, seq }
}

/// A lane of six: two trimmed, one settled, three waiting.
fn whole() -> Vec<(RowKey, Record)> {
    let mut rows = vec![route(), lane_row(lane(3, 2)), tail(6), letter(2, Fate::Waiting), cancelled()];
    rows.push(letter(1, redriven(NOW - 1, 4)));
    rows.extend((3..=6).map(entry));
    rows
}

async fn content(store: &dyn Store) -> Vec<(RowKey, Record)> {
    let mut all = Vec::new();
    for kind in Kind::ALL {
        let found = store.scan(kind, None, usize::MAX).await.unwrap();
        all.extend(found.into_iter().map(|(key, row)| (key, row.record.clone())));
    }
    all
}

fn sorted(mut rows: Vec<(RowKey, Record)>) -> Vec<(RowKey, Record)> {
    rows.sort_by_key(|(key, _)| *key);
    rows
}

async fn taken(rows: Vec<(RowKey, Record)>) -> Vec<u8> {
    let from = Memory::default();
    put(&from, rows).await;
    backup(&(Arc::new(from) as Arc<dyn Store>), ManualClock::at(NOW)).await
}

/// A store that was restored, and the floor that this went by.
async fn restored(rows: Vec<(RowKey, Record)>) -> (Arc<dyn Store>, Millis) {
    let file = taken(rows).await;
    let to: Arc<dyn Store> = Arc::new(Memory::default());
    let floor = restore(&file, &to, &ManualClock::at(NOW)).await.unwrap().floor;
    // Interrupted and begun again, it finds what it had written.
    for run in 1..=2 {
        let again = restore(&file, &to, &ManualClock::at(NOW + run * 60_000)).await.unwrap();
        assert_eq!(again.already, again.rows.total());
    }
    (to, floor)
}

async fn append(store: &dyn Store) -> Verdict {
    let position_row = RowKey::lane_notice("node-2", lane_id());
    let (_, Record::Lane(lane::Record::Entry(entry))) = entry(99) else { panic!() };
    let merges = vec![Merge::Append(Append { lane: lane_id(), entry, position_row, driven: None })];
    let writes = vec![Write { key: position_row, expect: None, put: Some(Record::Lane(lane::Record::LaneNotice)) }];
    let set = WriteSet { id: CommitId(1), writes, also: Also { merges, ..Also::default() } };
    store.commit(&[set], Millis(NOW)).await.unwrap().remove(0)
}

#[tokio::test]
async fn a_copied_lane_is_the_same_lane() {
    let memory: Arc<dyn Store> = Arc::new(Memory::default());
    put(&*memory, whole()).await;
    // Notices between nodes expire within moments and are not copied.
    put(&*memory, [(RowKey::lane_notice("node-1", lane_id()), Record::Lane(lane::Record::LaneNotice))]).await;
    let (_dir, disk) = embedded();
    let copied = copy(&memory, &disk).await.unwrap();
    assert_eq!(copied.rows.to_string(), "1 transport, 1 lane, 4 events, 1 lane end, 2 dead letters, 1 cancellation");
    let back: Arc<dyn Store> = Arc::new(Memory::default());
    copy(&disk, &back).await.unwrap();
    assert_eq!(content(&*back).await, sorted(whole()));
    assert_eq!(append(&*back).await, Verdict::Merged(vec![Merged::Position(7)]));
}

#[tokio::test]
async fn a_restored_lane_waits_for_the_same_events_under_a_later_epoch() {
    let (to, floor) = restored(whole()).await;
    let mut wanted: Vec<_> = whole().into_iter().filter(|(key, _)| *key != RowKey::entry(lane_id(), 3)).collect();
    let mut next = lane(3, 3);
    next.owner.epoch = floor.0;
    *wanted.iter_mut().find(|(key, _)| key.kind == Kind::Lane).unwrap() = lane_row(next);
    assert_eq!(content(&*to).await, sorted(wanted));
    assert_eq!(append(&*to).await, Verdict::Merged(vec![Merged::Position(7)]));
}

// An executor that polled the first of them holds cursors that stand for other events in the second.
#[tokio::test]
async fn two_restores_of_one_backup_give_a_lane_different_epochs() {
    let file = taken(whole()).await;
    let mut epochs = vec![EPOCH];
    for restores in 0..2 {
        let to: Arc<dyn Store> = Arc::new(Memory::default());
        restore(&file, &to, &ManualClock::at(NOW + restores * 60_000)).await.unwrap();
        let own = to.load(&[RowKey::lane(lane_id())]).await.unwrap().remove(0).unwrap();
        let Record::Lane(lane::Record::Lane(own)) = &own.record else { panic!("{own:?}") };
        epochs.push(own.owner.epoch);
    }
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
}

// As a backup reads a lane that is delivering: events 6 to 8 went between its row and its entries, 13 to 15 came between
// its entries and its end, and a letter was sent again meanwhile.
#[tokio::test]
async fn a_lane_that_moved_while_it_was_backed_up_has_no_gap_after_the_restore() {
    let mut rows = vec![route(), lane_row(Lane { blocked: true, ..lane(5, 2) }), tail(15)];
    rows.extend([3, 4, 5].into_iter().chain(9..=12).map(entry));
    rows.push(letter(1, redriven(NOW + 1, 14)));
    let discarded = Fate::Discarded { at: Millis(NOW + 1), by: "bob".to_owned(), why: "old".to_owned() };
    rows.push(letter(2, discarded));
    let (to, floor) = restored(rows).await;
    let mut next = Lane { trouble: None, ..lane(8, 8) };
    next.owner.epoch = floor.0;
    let mut wanted = vec![route(), lane_row(next), tail(12), letter(1, Fate::Waiting), letter(2, Fate::Waiting)];
    wanted.extend((9..=12).map(entry));
    assert_eq!(content(&*to).await, sorted(wanted));
    assert_eq!(append(&*to).await, Verdict::Merged(vec![Merged::Position(13)]));
}

#[tokio::test]
async fn a_lane_that_was_drained_while_it_was_backed_up_goes_on_behind_its_end() {
    let (to, _) = restored(vec![lane_row(lane(5, 5)), tail(9)]).await;
    let found = to.load(&[RowKey::lane(lane_id()), RowKey::tail(lane_id())]).await.unwrap();
    let [Some(own), Some(end)] = found.as_slice() else { panic!("{found:?}") };
    assert!(
        matches!(&own.record, Record::Lane(lane::Record::Lane(lane)) if lane.settled == 9 && lane.trimmed == 9),
        "{own:?}"
    );
    assert_eq!(end.record, Record::Lane(lane::Record::Tail(Tail { last: 9 })));
}

#[tokio::test]
async fn a_lane_that_began_while_the_backup_was_taken_begins_anew() {
    let (to, _) = restored(vec![route(), entry(3), entry(4), tail(4)]).await;
    assert_eq!(content(&*to).await, [route()]);
    assert_eq!(append(&*to).await, Verdict::Merged(vec![Merged::Position(1)]));
}

// The file as the release before lanes wrote it: another number at its beginning, and no counts of lanes at its end.
#[tokio::test]
async fn a_backup_from_before_lanes_is_restored() {
    let from = stocked().await;
    let file = backup(&from, ManualClock::at(NOW)).await;
    let body = &file[..file.len() - 32];
    let text = b",0,0,0,0,0,0]}\n";
    assert!(body.starts_with(b"fencepost backup 2\n") && body.ends_with(text));
    let mut older = [b"fencepost backup 1\n", &body[19..body.len() - text.len()], b"]}\n"].concat();
    let sum = Sha256::digest(&older);
    older.extend_from_slice(&sum);
    assert_eq!(moving::verify(&older[..]).unwrap().rows.total(), rows().len() as u64 - 1);
    let to: Arc<dyn Store> = Arc::new(Memory::default());
    restore(&older, &to, &ManualClock::at(NOW)).await.unwrap();
    assert_eq!(content(&*to).await.len(), rows().len() - 1);
}
