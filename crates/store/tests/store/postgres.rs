//! Guarantees of the PostgreSQL store alone: tables that many may make and people may read, faults told truly, time
//! from the database, connections that come back.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use fencepost_kernel::{
    Millis, RowKey, Tenant, Version, Write,
    fence::{self, Fence, VersionHead, scope::OnLapse},
    key::Kind,
    row::{CommitId, Record},
};
use fencepost_store::{
    Durability, Error, Store,
    Verdict::{Applied, Held, Moved},
    WriteSet, codec,
    postgres::Postgres,
};
use fencepost_testkit::until_within;
use futures::executor::block_on;

use super::postgres_rig::{DAY_MS, NOW, Rig, key, opener, pending, put, sealed, set};

fn broken(outcome: Result<Arc<Postgres>, Error>) -> String {
    match outcome.map(drop) {
        Err(Error::Broken(why)) => why,
        other => panic!("it should be refused for good: {other:?}"),
    }
}

fn revision(store: &Postgres, number: u64) -> Option<u64> {
    block_on(store.load(&[key(number)])).unwrap().remove(0).map(|row| row.revision.0)
}

#[test]
fn eight_nodes_that_start_at_once_make_the_tables_once() {
    let rig = Rig::new();
    let url = rig.server.fresh_database();
    thread::scope(|scope| {
        let nodes: Vec<_> = (0..8)
            .map(|node| {
                let (rig, url) = (&rig, &url);
                scope.spawn(move || rig.open(url, &format!("node-{node}")))
            })
            .collect();
        for (number, node) in nodes.into_iter().enumerate() {
            let number = number as u64;
            let store = node.join().unwrap();
            let write = set(number + 1, [put(number, None, sealed(number, u64::MAX))]);
            assert_eq!(block_on(store.commit(&[write], Millis(NOW))).unwrap(), [Applied]);
        }
    });
    assert_eq!(rig.server.sql(&url, "SELECT count(*), max(version) FROM fencepost_migrations"), "8|8");
    assert_eq!(rig.server.sql(&url, "SELECT count(*) FROM fencepost_nodes"), "8");
    assert_eq!(rig.server.sql(&url, "SELECT count(*) FROM fencepost_fences"), "8");
}

#[test]
fn tables_and_rows_of_a_newer_release_are_refused_and_left_alone() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("old");
    drop(store);
    let newer = codec::VERSION + 1;
    rig.server.sql(&url, &format!("UPDATE fencepost_meta SET format = {newer}"));
    let why = broken(rig.try_open(&url, &opener("old")));
    assert!(why.contains(&format!("row format {newer}")) && why.contains("newer release"), "{why}");
    rig.server.sql(
        &url,
        &format!("UPDATE fencepost_meta SET format = {}; INSERT INTO fencepost_migrations VALUES (9)", codec::VERSION),
    );
    let why = broken(rig.try_open(&url, &opener("old")));
    assert!(why.contains("version 9") && why.contains("newer release"), "{why}");
}

// The rows of each batch in another order, some new and some to be changed, from both sides at once.
#[test]
fn crossing_batches_of_two_nodes_wait_for_one_another_and_never_deadlock() {
    // A deadlock is noticed before anybody has waited long enough to give up.
    let rig = Rig::with(&["deadlock_timeout=1ms", "log_lock_waits=on"]);
    let (one, url) = rig.fresh("one");
    let other = rig.open(&url, "other");
    let (rounds, keys) = (30u64, 200u64);
    let together = Barrier::new(2);
    let mut wins = Vec::new();
    let mut done = 0;
    let log = loop {
        wins.resize(((done + rounds) * keys) as usize, 0);
        thread::scope(|scope| {
            let nodes = [&one, &other].into_iter().enumerate().map(|(node, store)| {
                let together = &together;
                scope.spawn(move || {
                    let mut won = Vec::new();
                    for round in done..done + rounds {
                        // This round's keys are new; last round's exist, and whoever loads them last may change them.
                        let base = round * keys;
                        let last: Vec<u64> = (base.saturating_sub(keys)..base).collect();
                        let loaded = block_on(store.load(&last.iter().map(|n| key(*n)).collect::<Vec<_>>())).unwrap();
                        let id = |number: u64, change: u64| 1 + (number * 2 + change) * 2 + node as u64;
                        let mut sets: Vec<_> = last
                            .iter()
                            .zip(loaded)
                            .filter_map(|(n, row)| row.map(|row| (*n, row.revision.0)))
                            .map(|(n, seen)| set(id(n, 1), [put(n, Some(seen), sealed(n, u64::MAX))]))
                            .collect();
                        sets.extend((base..base + keys).map(|n| set(id(n, 0), [put(n, None, sealed(n, u64::MAX))])));
                        // Every second batch hangs together, and takes the other way through the store.
                        if round % 2 == 1 {
                            let head =
                                Record::Fence(fence::Record::VersionHead(VersionHead { version: Version::Integer(1) }));
                            let head_key = RowKey { kind: Kind::VersionHead, id: key(base).id };
                            let write = Write { key: head_key, expect: None, put: Some(head) };
                            sets.last_mut().unwrap().writes.push(write);
                        }
                        if node == 1 {
                            sets.reverse();
                        }
                        together.wait();
                        let verdicts = block_on(store.commit(&sets, Millis(NOW))).unwrap();
                        let new = sets
                            .iter()
                            .zip(verdicts)
                            .filter(|(set, verdict)| set.writes[0].expect.is_none() && *verdict == Applied);
                        won.extend(new.map(|(set, _)| ((set.id.0 - 1) / 4) as usize));
                    }
                    won
                })
            });
            for node in nodes.collect::<Vec<_>>() {
                node.join().unwrap().into_iter().for_each(|number: usize| wins[number] += 1);
            }
        });
        done += rounds;
        let log = rig.server.sql(&url, "SELECT pg_read_file('../../log')");
        // A wait shorter than a millisecond is not told.
        if log.contains("still waiting for") {
            break log;
        }
        assert!(done < 50 * rounds, "the nodes never met");
    };
    assert!(wins.iter().all(|wins| *wins == 1), "every new row has one winner: {wins:?}");
    let deadlocks: Vec<_> = log.lines().filter(|line| line.contains("deadlock detected")).collect();
    assert!(deadlocks.is_empty(), "{deadlocks:?}");
}

#[test]
fn a_sweep_is_bounded_and_believes_the_databases_clock_over_ours() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let past = |number| put(number, None, sealed(number, NOW + number));
    let lapsed = |number| put(number, None, pending(number, NOW, OnLapse::Recover));
    let mut writes: Vec<_> = (0..40).map(past).chain((40..50).map(lapsed)).collect();
    // Still to come by the database's clock, whatever ours says; and a doubt, which never goes.
    writes.push(put(100, None, sealed(100, u64::MAX - 1)));
    writes.push(put(101, None, sealed(101, NOW + 100 * 365 * DAY_MS)));
    writes.push(put(102, None, pending(102, NOW, OnLapse::Hold)));
    let sets: Vec<_> = writes.into_iter().enumerate().map(|(at, write)| set(at as u64 + 1, [write])).collect();
    block_on(store.commit(&sets, Millis(NOW))).unwrap();
    let sweep = |now: u64, limit| block_on(store.sweep(Millis(now), limit)).unwrap().unwrap();
    assert_eq!(sweep(NOW + 9, 100), 10, "only what is past at that time");
    assert_eq!(sweep(u64::MAX, 7), 7);
    assert_eq!(sweep(u64::MAX, 1_000), 33);
    assert_eq!(sweep(u64::MAX, 1_000), 0);
    assert_eq!(rig.server.sql(&url, "SELECT count(*) FROM fencepost_fences"), "3");
}

#[test]
fn while_the_server_is_down_everything_fails_soon_and_afterwards_the_store_comes_back() {
    let mut rig = Rig::new();
    let (store, _) = rig.fresh("one");
    let claim = |number| [set(number, [put(number, None, sealed(number, u64::MAX))])];
    block_on(store.commit(&claim(1), Millis(NOW))).unwrap();
    assert_eq!(revision(&store, 1), Some(1));
    rig.server.kill();
    let began = Instant::now();
    for turn in 0..3 {
        assert!(matches!(block_on(store.load(&[key(1)])), Err(Error::NotApplied(_))));
        match block_on(store.commit(&claim(2), Millis(NOW))) {
            Err(Error::NotApplied(_)) => {}
            // The first may still be sent, into a connection whose end nobody has noticed.
            Err(Error::Unknown(_)) if turn == 0 => {}
            outcome => panic!("{outcome:?}"),
        }
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    rig.server.restart();
    until_within(Duration::from_secs(5), "the store comes back", || block_on(store.load(&[key(1)])).is_ok());
    assert_eq!(revision(&store, 1), Some(1));
    assert_eq!(block_on(store.commit(&claim(2), Millis(NOW))).unwrap(), [Applied]);
}

#[test]
fn a_frozen_server_leaves_a_commit_unknown_and_a_load_undone_within_their_time() {
    let rig = Rig::new();
    let (store, _) = rig.fresh("one");
    let claim = [set(1, [put(1, None, sealed(1, u64::MAX))])];
    block_on(store.commit(&[], Millis(NOW))).unwrap();
    rig.server.freeze(true);
    let began = Instant::now();
    assert!(matches!(block_on(store.commit(&claim, Millis(NOW))), Err(Error::Unknown(_))));
    assert!(matches!(block_on(store.load(&[key(1)])), Err(Error::NotApplied(_))));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    rig.server.freeze(false);
    // The first try may run only now; the second finds it, or is it.
    let commit = || block_on(store.commit(&claim, Millis(NOW))).ok();
    assert_eq!(until_within(Duration::from_secs(5), "the commit has an outcome", commit), [Applied]);
}

#[test]
fn promises_follow_the_servers_settings_and_commits_are_synchronous_whatever_the_database_says() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    assert_eq!(store.promises().durability, Durability::Synced);
    let name = url.rsplit('/').next().unwrap();
    rig.server.sql(&url, &format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    rig.server.sql(
        &url,
        "CREATE FUNCTION strict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF current_setting('synchronous_commit') <> 'on' THEN RAISE EXCEPTION 'not synchronous'; END IF;
            RETURN NEW; END $$;
         CREATE TRIGGER strict BEFORE INSERT ON fencepost_fences FOR EACH ROW EXECUTE FUNCTION strict()",
    );
    let store = rig.open(&url, "two");
    let claim = [set(1, [put(1, None, sealed(1, u64::MAX))])];
    assert_eq!(block_on(store.commit(&claim, Millis(NOW))).unwrap(), [Applied]);

    let rig = Rig::with(&["fsync=off"]);
    let promises = rig.fresh("one").0.promises();
    assert_eq!(promises.durability, Durability::Delayed);
    assert!(promises.because.contains("fsync is off"), "{}", promises.because);
}

#[test]
fn people_can_ask_in_sql() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let far = NOW + 100 * 365 * DAY_MS;
    let Record::Fence(fence::Record::Fence(odd)) = sealed(6, far) else { unreachable!() };
    // PostgreSQL knows no NUL in texts; a fence may well have one.
    let odd = Fence {
        tenant: Tenant::new("nul\0tenant"),
        fields: vec![("a\0b".to_owned(), "\0\"x".to_owned())].into(),
        seq: Some(3),
        ..Fence::clone(&odd)
    };
    let rows = [
        pending(1, far, OnLapse::Recover),
        pending(2, NOW + 1, OnLapse::Hold),
        pending(3, u64::MAX - DAY_MS, OnLapse::Recover),
        sealed(4, far),
        sealed(5, NOW + 1),
        odd.clone().into(),
    ];
    let sets: Vec<_> = (1..).zip(rows).map(|(number, record)| set(number, [put(number, None, record)])).collect();
    block_on(store.commit(&sets, Millis(NOW))).unwrap();
    let ask = |sql: &str| rig.server.sql(&url, sql);
    let phases = "SELECT fields ->> 'booking', phase FROM fencepost_status WHERE tenant = 'acme' ORDER BY 1";
    assert_eq!(ask(phases), "1|pending\n2|in_doubt\n3|pending\n4|sealed\n5|expired");
    let sealed = "SELECT effect_id, extract(epoch FROM sealed_at)::bigint FROM fencepost_fences WHERE effect_id = 'E4'";
    assert_eq!(ask(sealed), format!("E4|{}", NOW / 1_000));
    assert_eq!(ask("SELECT tenant, seq FROM fencepost_status WHERE seq = 3"), "nul\u{fffd}tenant|3");
    assert_eq!(block_on(store.load(&[key(6)])).unwrap().remove(0).unwrap().record, odd.into());
    assert_eq!(ask("SELECT lease_expires FROM fencepost_fences WHERE fields ->> 'booking' = '3'"), "infinity");
}

#[test]
fn a_damaged_row_is_told_as_damage_and_a_missing_server_is_not() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    block_on(store.commit(&[set(1, [put(1, None, sealed(1, u64::MAX))])], Millis(NOW))).unwrap();
    rig.server.sql(&url, "UPDATE fencepost_fences SET record = set_byte(record, 20, get_byte(record, 20) # 1)");
    let outcome = block_on(store.load(&[key(1)]));
    assert!(matches!(&outcome, Err(Error::Broken(why)) if why.contains("checksum")), "{outcome:?}");
    let nobody = rig.try_open("postgres://postgres@127.0.0.1:1/none", &opener("one")).map(drop);
    assert!(matches!(nobody, Err(Error::NotApplied(_))), "{nobody:?}");
}

#[test]
fn a_commit_too_large_for_one_transaction_is_several_and_all_of_it() {
    let rig = Rig::new();
    let (store, _) = rig.fresh("one");
    let large = |number: u64| {
        let Record::Fence(fence::Record::Fence(fence)) = sealed(number, u64::MAX) else { unreachable!() };
        let mut fence = Fence::clone(&fence);
        let fencepost_kernel::fence::State::Sealed { receipt, .. } = &mut fence.state else { unreachable!() };
        receipt.body =
            (0..2_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<_>>().into();
        Record::from(fence)
    };
    let sets: Vec<_> = (1..=20).map(|number| set(number, [put(number, None, large(number))])).collect();
    assert_eq!(block_on(store.commit(&sets, Millis(NOW))).unwrap(), vec![Applied; 20]);
    for number in [1, 20] {
        let found = block_on(store.load(&[key(number)])).unwrap().remove(0).unwrap();
        assert_eq!(found.record, large(number));
    }
}

// Told apart from a moved row: a set that waits behind a user's long transaction must not stop its neighbours.
#[test]
fn a_row_that_somebody_holds_stops_only_who_wants_it() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    block_on(store.commit(&[set(1, [put(1, None, sealed(1, u64::MAX))])], Millis(NOW))).unwrap();
    let mut client = super::postgres_tx::client(&rig, &url);
    let held = rig.runtime.block_on(client.transaction()).unwrap();
    rig.runtime.block_on(held.batch_execute("UPDATE fencepost_fences SET attempt = 9")).unwrap();
    let sets = [
        set(2, [put(2, None, sealed(2, u64::MAX))]),
        set(3, [put(1, Some(1), sealed(3, u64::MAX))]),
        set(4, [put(4, None, sealed(4, u64::MAX))]),
    ];
    assert_eq!(block_on(store.commit(&sets, Millis(NOW))).unwrap(), [Applied, Held, Applied]);
    rig.runtime.block_on(held.rollback()).unwrap();
    assert_eq!(block_on(store.commit(&sets, Millis(NOW))).unwrap(), vec![Applied; 3]);
}

fn held(mut set: WriteSet, number: u64, revision: u64) -> WriteSet {
    set.also.held.push((key(number), Some(CommitId(revision))));
    set
}

fn two_new(id: u64, number: u64) -> WriteSet {
    set(id, [number, number + 1].map(|number| put(number, None, sealed(number, u64::MAX))))
}

#[test]
fn a_row_that_has_appeared_stops_the_set_that_would_add_it_and_no_other() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let other = rig.open(&url, "other");
    block_on(other.commit(&[set(1, [put(4, None, sealed(4, u64::MAX))])], Millis(NOW))).unwrap();
    assert_eq!(
        block_on(store.commit(&[two_new(2, 1), two_new(3, 3), two_new(4, 5)], Millis(NOW))).unwrap(),
        [Applied, Moved, Applied]
    );
    assert_eq!(
        [1, 2, 3, 4, 5, 6].map(|number| revision(&store, number)),
        [2, 2, 0, 1, 4, 4].map(|id| (id > 0).then_some(id))
    );
}

#[test]
fn a_set_that_was_applied_is_found_although_what_it_held_has_moved_since() {
    let rig = Rig::new();
    let (store, _) = rig.fresh("one");
    let commit = |set: &WriteSet| block_on(store.commit(std::slice::from_ref(set), Millis(NOW))).unwrap().remove(0);
    assert_eq!(commit(&set(1, [put(9, None, sealed(9, u64::MAX))])), Applied);
    let adds = held(two_new(2, 1), 9, 1);
    assert_eq!(commit(&adds), Applied);
    assert_eq!(commit(&set(3, [put(9, Some(1), sealed(9, u64::MAX))])), Applied);
    assert_eq!(commit(&adds), Applied);
    assert_eq!(commit(&held(two_new(4, 3), 9, 1)), Moved, "and one that was not");
    assert_eq!(revision(&store, 3), None);
}

#[test]
fn a_commit_that_only_adds_shares_the_rows_that_it_holds_and_waits_for_one_that_changes_them() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let commit = |set: WriteSet| block_on(store.commit(&[set], Millis(NOW))).unwrap().remove(0);
    assert_eq!(commit(set(1, [put(9, None, sealed(9, u64::MAX))])), Applied);
    let mut client = super::postgres_tx::client(&rig, &url);
    let shared = rig.runtime.block_on(client.transaction()).unwrap();
    rig.runtime.block_on(shared.batch_execute("SELECT FROM fencepost_fences FOR SHARE")).unwrap();
    assert_eq!(commit(held(two_new(2, 1), 9, 1)), Applied);
    let [one, two] = [put(9, Some(1), sealed(9, u64::MAX)), put(3, None, sealed(3, u64::MAX))];
    assert_eq!(commit(set(3, [one, two])), Held);
    rig.runtime.block_on(shared.rollback()).unwrap();
    let changed = rig.runtime.block_on(client.transaction()).unwrap();
    rig.runtime.block_on(changed.batch_execute("UPDATE fencepost_fences SET attempt = 9")).unwrap();
    assert_eq!(commit(held(two_new(4, 5), 9, 1)), Held);
}
