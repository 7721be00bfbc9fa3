//! Copy, backup and restore over the stores that need no server.

#[path = "moving/lanes.rs"]
mod lanes;
#[path = "moving/stock.rs"]
mod stock;

use std::{
    io::{Cursor, Read, Seek},
    sync::Arc,
};

use fencepost::{
    Claimed, Fencepost,
    clock::Clock,
    engine::EngineLimits,
    kernel::{
        FenceKey, Millis, RowKey, Version, Write,
        fence::{self, Fence, FenceEvent, State, Token, VersionHead, What, scope::OnLapse},
        key::Kind,
        row::{CommitId, Record},
    },
    moving::{self, Backup, Copied, Error, Restored, RowCounts},
    store::{self, Memory, Store, WriteSet},
};

use fencepost_testkit::clock::ManualClock;

use super::world::over;
use stock::{FENCES, NOW, content, cut_after, cut_with, embedded, key, pending, put, rows, sealed, stocked};

async fn copy(from: &Arc<dyn Store>, to: &Arc<dyn Store>) -> Result<Copied, Error> {
    moving::copy(from, to, &*ManualClock::at(NOW), &mut |_| {}).await
}

async fn backup(store: &Arc<dyn Store>, clock: Arc<ManualClock>) -> Vec<u8> {
    let mut backup = Backup::of(store, clock).await.unwrap();
    let mut file = Vec::new();
    while let Some(piece) = backup.next().await.unwrap() {
        file.extend_from_slice(&piece);
    }
    file
}

async fn restore(file: &[u8], to: &Arc<dyn Store>, clock: &ManualClock) -> Result<Restored, Error> {
    moving::restore(&mut Cursor::new(file), to, clock, &mut |_| {}).await
}

// Everything but the claims that are under way, which a restore ends.
async fn settled(store: &Arc<dyn Store>) -> Vec<(RowKey, Record)> {
    let under_way = |record: &Record| matches!(record, Record::Fence(fence::Record::Fence(fence)) if matches!(fence.state, State::Pending { .. }));
    content(&**store).await.into_iter().filter(|(_, record)| !under_way(record)).collect()
}

fn of_each_kind(counts: &RowCounts) -> [u64; 5] {
    [Kind::Fence, Kind::VersionHead, Kind::AgainHead, Kind::Alias, Kind::Trace].map(|kind| counts.of(kind))
}

#[tokio::test]
async fn a_copy_there_and_back_is_the_same_store() {
    let memory = stocked().await;
    let (_dir, disk) = embedded();
    let copied = copy(&memory, &disk).await.unwrap();
    assert_eq!(of_each_kind(&copied.rows), [FENCES + 2, 1, 1, 1, 1]);
    assert_eq!((copied.already, copied.expired, copied.unserved), (0, 1, 0));
    let back: Arc<dyn Store> = Arc::new(Memory::default());
    copy(&disk, &back).await.unwrap();
    assert_eq!(content(&*back).await, content(&*memory).await);
    // The highest token is past the last commit: the copy's time must not be below it.
    assert_eq!(back.time_floor().await.unwrap(), Millis(NOW + 5_001));
    assert_eq!(
        back.due(Kind::Fence, Millis(NOW), None, 9).await.unwrap().len(),
        1,
        "what is in doubt is found by its time"
    );
}

#[tokio::test]
async fn a_target_that_holds_anything_else_is_refused_and_left_as_it_is() {
    let from = stocked().await;
    let to: Arc<dyn Store> = Arc::new(Memory::default());
    put(&*to, [(key(Kind::Fence, 77_777), sealed(1, u64::MAX))]).await;
    let refused = copy(&from, &to).await.unwrap_err();
    assert!(matches!(refused, Error::NotEmpty(1)) && refused.to_string().contains("not empty"), "{refused}");
    let file = backup(&from, ManualClock::at(NOW)).await;
    let refused = restore(&file, &to, &ManualClock::at(NOW)).await.unwrap_err();
    assert!(matches!(refused, Error::NotEmpty(1)), "{refused}");
    assert_eq!(content(&*to).await.len(), 1);

    let to: Arc<dyn Store> = Arc::new(Memory::default());
    put(&*to, [(key(Kind::Fence, 7), sealed(8, u64::MAX))]).await;
    let refused = copy(&from, &to).await.unwrap_err();
    let name = FenceKey(key(Kind::Fence, 7).id).to_string();
    assert!(matches!(refused, Error::Differs(_)) && refused.to_string().contains(&name), "{refused}");
    assert!(matches!(restore(&file, &to, &ManualClock::at(NOW)).await, Err(Error::Differs(_))));
    assert_eq!(content(&*to).await.len(), 1);
}

#[tokio::test]
async fn an_interrupted_move_goes_on_where_it_stopped() {
    let from = stocked().await;
    let to = cut_after(3);
    assert!(matches!(copy(&from, &to).await, Err(Error::Store(store::Error::Unknown(_)))));
    let there = content(&*to).await.len() as u64;
    assert!(0 < there && there < FENCES, "{there}");
    let copied = copy(&from, &to).await.unwrap();
    assert_eq!((copied.already, copied.rows.total()), (there, FENCES + 6));
    assert_eq!(content(&*to).await, content(&*from).await);

    let file = backup(&from, ManualClock::at(NOW)).await;
    let to = cut_after(2);
    assert!(restore(&file, &to, &ManualClock::at(NOW)).await.is_err());
    assert!(to.time_floor().await.unwrap() > Millis(NOW + 5_001), "the floor is there with the first rows");
    let restored = restore(&file, &to, &ManualClock::at(NOW)).await.unwrap();
    assert!(restored.already > 0);
    assert_eq!(settled(&to).await, settled(&from).await);
}

#[tokio::test]
async fn a_restore_that_is_interrupted_twice_goes_on_all_the_same() {
    let from: Arc<dyn Store> = Arc::new(Memory::default());
    put(&*from, (0..FENCES).map(|n| (key(Kind::Fence, n), pending(n, OnLapse::Recover)))).await;
    let file = backup(&from, ManualClock::at(NOW)).await;
    // With the first page, and then with the second one.
    let to = cut_with([1, 3]);
    for run in 0..2 {
        let cut = restore(&file, &to, &ManualClock::at(NOW + run * 60_000)).await;
        assert!(matches!(cut, Err(Error::Store(store::Error::Unknown(_)))), "{cut:?}");
    }
    for run in 2..4 {
        let restored = restore(&file, &to, &ManualClock::at(NOW + run * 60_000)).await.unwrap();
        assert!(restored.already > 0 && restored.rows.of(Kind::Fence) == FENCES);
        assert!(to.time_floor().await.unwrap() > Millis(NOW + run * 60_000), "also past what was given meanwhile");
    }
    let token = |(_, record)| match record {
        Record::Fence(fence::Record::Fence(fence)) => fence.token,
        other => panic!("{other:?}"),
    };
    let mut tokens: Vec<Token> = content(&*to).await.into_iter().map(token).collect();
    tokens.dedup();
    assert_eq!(tokens.len(), 1, "every run wrote what the first would have: {tokens:?}");
}

#[tokio::test]
async fn a_row_that_came_to_its_end_since_an_interrupted_restore_is_no_stranger() {
    let from: Arc<dyn Store> = Arc::new(Memory::default());
    let short = (key(Kind::Fence, 6_000), sealed(6_000, NOW + 3_600_000));
    put(&*from, [short, (key(Kind::Fence, 6_001), sealed(6_001, u64::MAX))]).await;
    let file = backup(&from, ManualClock::at(NOW)).await;
    let to = cut_after(1);
    assert!(restore(&file, &to, &ManualClock::at(NOW)).await.is_err());
    assert_eq!(content(&*to).await.len(), 2);
    let restored = restore(&file, &to, &ManualClock::at(NOW + 86_400_000)).await.unwrap();
    assert_eq!((restored.already, restored.expired), (1, 1));
}

#[tokio::test]
async fn a_source_that_changes_meanwhile_is_noticed() {
    let from = stocked().await;
    let to: Arc<dyn Store> = Arc::new(Memory::default());
    copy(&from, &to).await.unwrap();
    let changed = key(Kind::VersionHead, 1);
    let expect = from.load(&[changed]).await.unwrap()[0].as_ref().map(|row| row.revision);
    let newer = Record::Fence(fence::Record::VersionHead(VersionHead { version: Version::Integer(8) }));
    let write = Write { key: changed, expect, put: Some(newer) };
    let set = WriteSet::new(CommitId(1), vec![write]);
    from.commit(&[set], Millis(NOW)).await.unwrap();
    let refused = copy(&from, &to).await.unwrap_err();
    assert!(refused.to_string().contains("version head"), "{refused}");
}

#[tokio::test]
async fn a_backup_comes_back_whole_and_says_what_was_open() {
    let (_dir, from) = embedded();
    put(&*from, rows()).await;
    let file = backup(&from, ManualClock::at(NOW)).await;
    assert!(file.starts_with(b"fencepost backup 2\n{\"release\":"));
    let contents = moving::verify(&file[..]).unwrap();
    assert_eq!(of_each_kind(&contents.rows), [FENCES + 2, 1, 1, 1, 1]);
    assert_eq!((contents.pending, contents.lapsed, contents.in_doubt), (0, 1, 1));
    assert_eq!(contents.latest, Millis(NOW + 5_001));
    let to: Arc<dyn Store> = Arc::new(Memory::default());
    let restored = restore(&file, &to, &ManualClock::at(NOW + 60_000)).await.unwrap();
    assert_eq!(settled(&to).await, settled(&from).await);
    assert_eq!(content(&*to).await.len(), content(&*from).await.len());
    assert_eq!((restored.rows, &restored.contents), (contents.rows, &contents));
    assert!(restored.forgotten.0 <= Millis(NOW + 1) && restored.forgotten.1 >= Millis(NOW + 60_000));
    assert_eq!(to.time_floor().await.unwrap(), restored.floor);
}

fn small() -> Vec<(RowKey, Record)> {
    let of_kind = |kind| rows().into_iter().find(|(key, _)| key.kind == kind).unwrap();
    [Kind::Fence, Kind::VersionHead, Kind::AgainHead, Kind::Alias, Kind::Trace].map(of_kind).into()
}

#[tokio::test]
async fn a_bit_flipped_anywhere_in_a_backup_is_noticed() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    put(&*store, small()).await;
    let sound = backup(&store, ManualClock::at(NOW)).await;
    moving::verify(&sound[..]).unwrap();
    for place in 0..sound.len() * 8 {
        let mut file = sound.clone();
        file[place / 8] ^= 1 << (place % 8);
        let refused = moving::verify(&file[..]);
        assert!(matches!(refused, Err(Error::Damaged(_))), "bit {place}: {refused:?}");
    }
}

#[tokio::test]
async fn a_backup_that_is_cut_or_goes_on_is_refused_before_anything_is_written() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    put(&*store, small()).await;
    let sound = backup(&store, ManualClock::at(NOW)).await;
    let to: Arc<dyn Store> = Arc::new(Memory::default());
    for len in 0..sound.len() {
        let refused = restore(&sound[..len], &to, &ManualClock::at(NOW)).await;
        assert!(matches!(refused, Err(Error::Damaged(_))), "{len} bytes: {refused:?}");
    }
    let longer = [&sound[..], b"\n"].concat();
    assert!(matches!(restore(&longer, &to, &ManualClock::at(NOW)).await, Err(Error::Damaged(_))));
    assert!(content(&*to).await.is_empty() && to.time_floor().await.unwrap() == Millis(0));
}

/// A file that is sound when it is checked and another one when it is read again.
struct Swapped {
    first: Cursor<Vec<u8>>,
    second: Cursor<Vec<u8>>,
    seeks: usize,
}

impl Read for Swapped {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.seeks == 0 { self.first.read(into) } else { self.second.read(into) }
    }
}

impl Seek for Swapped {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.seeks += 1;
        self.second.seek(to)
    }
}

#[tokio::test]
async fn a_file_that_changes_under_a_restore_is_noticed() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    put(&*store, small()).await;
    let sound = backup(&store, ManualClock::at(NOW)).await;
    let mut other = sound.clone();
    let last = other.len() - 1;
    other[last] ^= 1;
    let mut file = Swapped { first: Cursor::new(sound), second: Cursor::new(other), seeks: 0 };
    let to: Arc<dyn Store> = Arc::new(Memory::default());
    let refused = moving::restore(&mut file, &to, &*ManualClock::at(NOW), &mut |_| {}).await;
    assert!(matches!(refused, Err(Error::Damaged(_))), "{refused:?}");
}

async fn token(fencepost: &Fencepost, id: &str) -> u64 {
    match fencepost.scope("JOB").key([("id", id)]).claim().await.unwrap() {
        Claimed::New(claim) => claim.token().0,
        _ => panic!("{id} should be free"),
    }
}

#[tokio::test]
async fn a_token_after_a_restore_is_above_every_token_given_after_the_backup() {
    // Also where the store's time was far ahead of the wall: that lead is part of every token.
    for lead_ms in [0, 3_600_000] {
        let hand = ManualClock::at(NOW);
        let lost = Arc::new(Memory::default());
        lost.commit(&[], Millis(NOW + lead_ms)).await.unwrap();
        let fencepost = over(lost.clone(), hand.clone(), EngineLimits::default()).await;
        // Nothing was written for a while: the floor is behind the time that tokens are made from.
        hand.pass(100_000);
        let before = token(&fencepost, "before").await;
        hand.pass(100_000);
        let mut backup = fencepost.backup().await.unwrap();
        let mut file = Vec::new();
        while let Some(piece) = backup.next().await.unwrap() {
            file.extend_from_slice(&piece);
        }
        hand.pass(5_000);
        let after = token(&fencepost, "after").await;
        assert!(after >= NOW + lead_ms + 205_000);
        fencepost.close().await;

        let fresh: Arc<dyn Store> = Arc::new(Memory::default());
        let restored = restore(&file, &fresh, &hand).await.unwrap();
        assert_eq!(restored.contents.pending + restored.contents.lapsed, 1);
        let fencepost = over(fresh, hand, EngineLimits::default()).await;
        let again = token(&fencepost, "after").await;
        assert!(again > after && again > before, "{again} must be above {after}");
        fencepost.close().await;
    }
}

#[tokio::test]
async fn progress_is_told_at_most_twice_a_second() {
    /// Every look at the clock takes 100 ms.
    struct Slow(Arc<ManualClock>);
    impl Clock for Slow {
        fn wall_ms(&self) -> u64 {
            self.0.wall_ms()
        }
        fn monotonic_ms(&self) -> u64 {
            self.0.pass(100);
            self.0.monotonic_ms()
        }
    }
    let (from, to) = (stocked().await, Arc::new(Memory::default()) as Arc<dyn Store>);
    let slow = Slow(ManualClock::at(NOW));
    let mut told = Vec::new();
    let begun = slow.0.monotonic_ms();
    moving::copy(&from, &to, &slow, &mut |progress| told.push(progress)).await.unwrap();
    let took_ms = slow.0.monotonic_ms() - begun;
    assert!(!told.is_empty() && told.len() as u64 <= took_ms / 500, "{} times in {took_ms} ms", told.len());
    assert!(told.iter().any(|progress| progress.step == "copying" && progress.rows > 0 && progress.rows_per_s > 0));
}

#[tokio::test]
async fn a_made_up_token_moves_no_time() {
    // As an earlier release wrote it down.
    let mut fence = match sealed(1, NOW * 2) {
        Record::Fence(fence::Record::Fence(fence)) => Fence::clone(&fence),
        _ => panic!(),
    };
    fence.events.push(FenceEvent { at: Millis(NOW), token: Token(1 << 53), what: What::SealRefused });
    let from: Arc<dyn Store> = Arc::new(Memory::default());
    put(&*from, [(key(Kind::Fence, 1), fence.into())]).await;
    let to: Arc<dyn Store> = Arc::new(Memory::default());
    copy(&from, &to).await.unwrap();
    assert!(to.time_floor().await.unwrap() < Millis(NOW * 2));
    let restored: Arc<dyn Store> = Arc::new(Memory::default());
    let said = restore(&backup(&from, ManualClock::at(NOW)).await, &restored, &ManualClock::at(NOW)).await.unwrap();
    assert_eq!((said.expired, content(&*restored).await.len()), (0, 1));
}

#[tokio::test]
async fn a_claim_of_the_backup_is_over_after_the_restore() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let once = over(store.clone(), ManualClock::at(NOW), EngineLimits::default()).await;
    let Claimed::New(old) = once.scope("JOB").key([("id", "a")]).claim().await.unwrap() else { panic!() };
    let file = backup(&store, ManualClock::at(NOW)).await;

    let restored: Arc<dyn Store> = Arc::new(Memory::default());
    restore(&file, &restored, &ManualClock::at(NOW)).await.unwrap();
    // Interrupted and begun again, it finds what it had written.
    assert!(restore(&file, &restored, &ManualClock::at(NOW + 5_000)).await.unwrap().already > 0);
    let row = restored.scan(Kind::Fence, None, 1).await.unwrap().remove(0).1;
    let Record::Fence(fence::Record::Fence(fence)) = &row.record else { panic!() };
    assert!(fence.token > old.token() && fence.phase(Millis(NOW + 10_000)).name() == "lapsed");
    let again = over(restored, ManualClock::at(NOW + 60_000), EngineLimits::default()).await;
    let Claimed::New(next) = again.scope("JOB").key([("id", "a")]).claim().await.unwrap() else { panic!() };
    assert!(next.earlier().is_some() && next.token() > fence.token);
}
