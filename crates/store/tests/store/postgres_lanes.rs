//! Lanes that several nodes share: no deadlock, no gap, and reads by an index.

use std::{sync::Barrier, thread};

use fencepost_kernel::{
    Millis, RowKey, Tenant, Write,
    key::Kind,
    lane::{self, Append, Entry, LaneId},
    law::Also,
    merge::Merge,
    row::{CommitId, Record},
};
use fencepost_store::{Loaded, Store, Verdict, WriteSet};
use futures::executor::block_on;

use super::postgres_rig::{NOW, Rig, key, put, sealed, set};

fn lane(number: u64) -> LaneId {
    LaneId::warehouse(&Tenant::new("acme"), &number.to_string())
}

fn entry(number: u64) -> Entry {
    Entry {
        correlation_id: format!("C-{number}"),
        kind: "SHIPPER_RELEASED".to_owned(),
        subject: "W1".to_owned(),
        body: format!("secret body {number}").into(),
        published: Millis(NOW),
        redrive_of: None,
    }
}

fn publish(id: u64, to: LaneId, number: u64, held: Vec<(RowKey, Option<CommitId>)>) -> WriteSet {
    let append = Append { lane: to, entry: entry(number).into(), position_row: key(number), driven: None };
    let writes = vec![put(number, None, sealed(number, u64::MAX))];
    WriteSet { id: CommitId(id), writes, also: Also { held, merges: vec![Merge::Append(append)], ..Also::default() } }
}

fn notice(number: u64) -> RowKey {
    RowKey::lane_notice("node", lane(number))
}

// Both nodes want the same fences, for the same lanes, in opposite orders. In every second round the lanes are new, and one
// node holds the words that the other drops.
#[test]
fn nodes_that_cross_on_many_lanes_never_deadlock_and_leave_no_gap() {
    let rig = Rig::with(&["deadlock_timeout=1ms", "log_lock_waits=on"]);
    let (one, url) = rig.fresh("one");
    let other = rig.open(&url, "other");
    let (rounds, lanes) = (20u64, 30u64);
    let together = Barrier::new(2);
    let batch = |node: u64, round: u64, said: &[Loaded]| {
        let number = |at: u64| 1 + round * 1_000 + at;
        let id = |at: u64| 2 * number(at) + node;
        let drops = round % 2 == 1;
        let lane = |at: u64| lane(at + if drops { number(0) } else { 0 });
        let mut sets = Vec::new();
        for (at, said) in (0..lanes).zip(said) {
            let held = said.iter().filter(|_| node == 0).map(|row| (notice(at), Some(row.revision)));
            sets.push(publish(id(at), lane(at), number(at), held.collect()));
            if said.is_none() && node == 0 {
                let write = Write { key: notice(at), expect: None, put: Some(Record::Lane(lane::Record::LaneNotice)) };
                sets.push(set(id(100 + at), [write]));
            }
        }
        if node == 1 && drops {
            let also = Also { drops: (0..lanes).map(notice).collect(), ..Also::default() };
            sets.push(WriteSet { id: CommitId(id(200)), writes: Vec::new(), also });
        }
        if node == 1 {
            sets.reverse();
        }
        sets
    };
    let ask = |sql: &str| rig.server.sql(&url, sql);
    let mut done = 0;
    let log = loop {
        thread::scope(|scope| {
            for (node, store) in (0..).zip([&one, &other]) {
                let (together, batch) = (&together, &batch);
                scope.spawn(move || {
                    let words: Vec<_> = (0..lanes).map(notice).collect();
                    for round in done..done + rounds {
                        let said = block_on(store.load(&words)).unwrap();
                        together.wait();
                        block_on(store.commit(&batch(node, round, &said), Millis(NOW))).unwrap();
                    }
                });
            }
        });
        done += rounds;
        let log = ask("SELECT pg_read_file('../../log')");
        // A wait shorter than a millisecond is not told.
        if log.contains("still waiting for") {
            break log;
        }
        assert!(done < 50 * rounds, "the nodes never met");
    };
    let deadlocks: Vec<_> = log.lines().filter(|line| line.contains("deadlock detected")).collect();
    assert!(deadlocks.is_empty(), "{deadlocks:?}");
    let gaps = "SELECT count(*) FROM (
            SELECT substr(id, 1, 24) AS lane, count(*) AS count, max((about ->> 'seq')::bigint) AS top
            FROM fencepost_rows WHERE kind = 9 GROUP BY 1
        ) entries FULL JOIN (
            SELECT substr(id, 1, 24) AS lane, (about ->> 'last')::bigint AS last FROM fencepost_rows WHERE kind = 8
        ) tails USING (lane) WHERE count IS DISTINCT FROM top OR count IS DISTINCT FROM last";
    assert_eq!(ask(gaps), "0", "lanes with a gap");
    let fences = ask("SELECT count(*) FROM fencepost_fences");
    assert_eq!(fences, ask("SELECT count(*) FROM fencepost_rows WHERE kind = 9"), "every fence has its event");
    assert_eq!(fences, (done * lanes).to_string(), "of the two, one published each");
}

// The server writes down how it looked: by a range of one index each, so that nothing of others is passed.
#[test]
fn pages_of_a_lane_rows_of_few_kinds_and_what_is_due_are_found_by_a_range_of_an_index() {
    let rig = Rig::with(&["session_preload_libraries=auto_explain", "auto_explain.log_min_duration=0"]);
    let (store, url) = rig.fresh("one");
    // Rows of many lanes, and of what is not a lane's.
    let fill = "INSERT INTO fencepost_rows SELECT sha256(n::text::bytea), kind, 0, '{}', NULL, 'one', 1, ''
        FROM generate_series(1, 5000) AS n, unnest('{2,4,8,9,11,15}'::int[]) AS kind";
    rig.server.sql(&url, fill);
    // As many of one kind, each due at some time that has not come.
    let due = "INSERT INTO fencepost_rows (id, kind, bucket, about, node, revision, record, due_at)
        SELECT sha256(n::text::bytea), 13, 0, '{}', 'one', 1, '', '2100-01-01'::timestamptz + n * interval '1 day'
        FROM generate_series(1, 5000) AS n";
    rig.server.sql(&url, due);
    rig.server.sql(&url, "ANALYZE fencepost_rows");
    let looks: [(&str, &dyn Fn() -> usize, &str, &str); 6] = [
        (
            "entries",
            &|| block_on(store.range(Kind::Entry, &lane(1).0, Some(RowKey::entry(lane(1), 7)), 5)).unwrap().len(),
            "fencepost_rows_pkey",
            "((id > $1) AND (id <= $2) AND (kind = $4))",
        ),
        (
            "lanes",
            &|| block_on(store.scan(Kind::Lane, Some(RowKey::lane(lane(1))), 5)).unwrap().len(),
            "fencepost_rows_few",
            "((kind = $4) AND (id > $1) AND (id <= $2))",
        ),
        (
            "words",
            &|| block_on(store.scan(Kind::LaneNotice, Some(notice(1)), 5)).unwrap().len(),
            "fencepost_rows_few",
            "((kind = $4) AND (id > $1) AND (id <= $2))",
        ),
        (
            "quarantine",
            &|| block_on(store.range(Kind::Quarantine, &[7], None, 5)).unwrap().len(),
            "fencepost_rows_quarantine",
            "((id > $1) AND (id <= $2))",
        ),
        (
            "what is due",
            &|| block_on(store.due(Kind::Counter, Millis(NOW), None, 5)).unwrap().len(),
            "fencepost_rows_due",
            "((kind = $3) AND (due_at <= $1))",
        ),
        (
            "what else is due",
            &|| block_on(store.due(Kind::Counter, Millis(NOW), Some((Millis(NOW), notice(1))), 5)).unwrap().len(),
            "fencepost_rows_due",
            "((kind = $3) AND (due_at <= $1) AND (ROW(due_at, id) > ROW($4, $5)))",
        ),
    ];
    for (what, look, index, range) in looks {
        let begun = rig.server.sql(&url, "SELECT length(pg_read_file('../../log'))");
        assert_eq!(look(), 0);
        let log = rig.server.sql(&url, &format!("SELECT substr(pg_read_file('../../log'), {begun})"));
        let plan: String = log.lines().skip_while(|line| !line.contains("Limit ")).take(4).collect();
        assert!(plan.contains(&format!("Index Scan using {index} on fencepost_rows")), "{what}: {log}");
        assert!(plan.contains(&format!("Index Cond: {range}")) && !plan.contains("Sort"), "{what}: {log}");
    }
}

#[test]
fn a_set_for_a_lane_is_not_taken_for_a_lone_put() {
    let rig = Rig::new();
    let (store, _) = rig.fresh("one");
    let verdicts = block_on(store.commit(&[publish(1, lane(1), 1, vec![(key(2), Some(CommitId(9)))])], Millis(NOW)));
    assert_eq!(verdicts.unwrap(), [Verdict::Moved]);
    assert_eq!(block_on(store.load(&[key(1)])).unwrap(), [None]);
}

#[test]
fn a_guess_after_an_append_is_the_stored_row() {
    let rig = Rig::new();
    let (store, _) = rig.fresh("one");
    let first = publish(1, lane(1), 1, Vec::new());
    let sets = [first.clone(), publish(2, lane(1), 2, Vec::new())];
    block_on(store.commit(&sets, Millis(NOW))).unwrap();
    for key in [key(1), key(2), RowKey::tail(lane(1))] {
        let loaded = block_on(store.load(&[key])).unwrap().remove(0);
        assert!(loaded.is_some());
        assert_eq!(store.guess(&key), Some(loaded));
    }
    // Of a repeated set nobody knows the position without looking.
    assert_eq!(block_on(store.commit(&[first], Millis(NOW))).unwrap(), [Verdict::Applied]);
    assert_eq!(store.guess(&key(1)), Some(None));
    let also = Also { drops: vec![RowKey::tail(lane(1))], ..Also::default() };
    block_on(store.commit(&[WriteSet { id: CommitId(3), writes: Vec::new(), also }], Millis(NOW))).unwrap();
    assert_eq!(store.guess(&RowKey::tail(lane(1))), Some(None));
}
