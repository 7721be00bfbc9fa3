//! Lanes that several nodes and users share: no deadlock, positions within a user's own transaction, and what people read.

use std::{
    sync::{Arc, Barrier},
    thread,
};

use fencepost_kernel::{
    Command, Millis, Reply, RowKey, Tenant, Write,
    dispatch::{self, Publish, PutRoute, Route, Transport, Webhook},
    fence::{self, Claim, Target, scope::Scope},
    key::Kind,
    lane::{self, AfterDead, Append, Entry, Lane, LaneId, Members, Place},
    law::Also,
    merge::Merge,
    row::{CommitId, Record},
};
use fencepost_store::{Error, Loaded, Memory, Store, Verdict, WriteSet, postgres::in_tx};
use futures::executor::block_on;
use tokio_postgres::Transaction;

use super::{
    postgres_rig::{NOW, Rig, key, put, sealed, set},
    postgres_tx::client,
};

fn lane(number: u64) -> LaneId {
    LaneId::warehouse(&Tenant::new("acme"), &number.to_string())
}

fn entry(number: u64) -> Entry {
    Entry {
        correlation_id: format!("C-{number}"),
        kind: "SHIPPER_RELEASED".to_owned(),
        warehouse: "W1".to_owned(),
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

fn poke(number: u64) -> RowKey {
    RowKey::poke("node", lane(number))
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
            let held = said.iter().filter(|_| node == 0).map(|row| (poke(at), Some(row.revision)));
            sets.push(publish(id(at), lane(at), number(at), held.collect()));
            if said.is_none() && node == 0 {
                let write = Write { key: poke(at), expect: None, put: Some(Record::Lane(lane::Record::Poke)) };
                sets.push(set(id(100 + at), [write]));
            }
        }
        if node == 1 && drops {
            let also = Also { drops: (0..lanes).map(poke).collect(), ..Also::default() };
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
                    let words: Vec<_> = (0..lanes).map(poke).collect();
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

fn planner() -> Tenant {
    Tenant::new("acme")
}

pub fn put_route() -> Command {
    let secrets = vec!["hidden".into()];
    let route = Route {
        planner: planner(),
        warehouse: "W1".to_owned(),
        executor: "dock".to_owned(),
        transport: Transport::Webhook(Webhook { url: "https://dock.example".to_owned(), secrets, standard: false }),
        after_dead: AfterDead::Continue,
        receiver_retain_ms: 1,
        at: Millis(0),
    };
    Command::Dispatch(dispatch::Command::PutRoute(PutRoute { route, seen_to: None, over: None }.into()))
}

pub fn publication(number: u64) -> Command {
    let scope = Arc::new(Scope::new("PUBLISH", ["correlation_id"]));
    let fields = vec![("correlation_id".to_owned(), format!("C-{number}"))];
    let target = Target::new(planner(), scope, fields, None).unwrap();
    let claim = Claim { target, body: None, version: None, source: None, lease_ms: 30_000, trace: None };
    let members = Members { me: "user".to_owned(), alive: vec!["node-1".to_owned()] };
    let (entry, members) = (entry(number).into(), members.into());
    Command::Dispatch(dispatch::Command::Publish(Publish { claim, entry, cancels: None, members, served: None }.into()))
}

async fn ask(tx: &Transaction<'_>, command: &Command) -> Result<Reply, Error> {
    in_tx::ask(tx, "user", &Memory::new(), command, || CommitId(fastrand::u64(..))).await
}

async fn position(tx: &Transaction<'_>, number: u64) -> u64 {
    match ask(tx, &publication(number)).await.unwrap() {
        Reply::Dispatch(dispatch::Reply::Published { publication: dispatch::Publication { seq, .. }, .. }) => seq,
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn an_event_published_in_the_users_transaction_is_there_with_it_and_leaves_no_gap_without_it() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let mut client = client(&rig, &url);
    let lane = Place::Warehouse("W1".to_owned()).lane(&planner());
    rig.runtime.block_on(async {
        let tx = client.transaction().await.unwrap();
        assert!(matches!(ask(&tx, &publication(0)).await, Ok(Reply::Dispatch(dispatch::Reply::NoRoute))));
        assert!(matches!(ask(&tx, &put_route()).await, Ok(Reply::Dispatch(dispatch::Reply::Routed { replay: false }))));
        assert_eq!([position(&tx, 1).await, position(&tx, 2).await], [1, 2]);
        tx.commit().await.unwrap();
        let tx = client.transaction().await.unwrap();
        assert_eq!(position(&tx, 3).await, 3);
        tx.rollback().await.unwrap();
        let tx = client.transaction().await.unwrap();
        assert_eq!(position(&tx, 4).await, 3);
        let again = ask(&tx, &publication(1)).await.unwrap();
        assert!(matches!(again, Reply::Fence(fence::Reply::Duplicate { .. })), "{again:?}");
        tx.commit().await.unwrap();
        let page = store.scan(Kind::Entry, None, 10).await.unwrap();
        let found: Vec<_> = page.iter().map(|(key, row)| (key.place(), row.record.clone())).collect();
        let bodies = found.iter().map(|(place, record)| match record {
            Record::Lane(lane::Record::Entry(entry)) => (*place, entry.correlation_id.as_str()),
            record => panic!("{record:?}"),
        });
        let bodies: Vec<_> = bodies.collect();
        assert_eq!(bodies, [((lane, 1), "C-1"), ((lane, 2), "C-2"), ((lane, 3), "C-4")]);
        // A word for the node that shall drive it, since a user's process drives nothing.
        assert!(store.load(&[RowKey::poke("node-1", lane)]).await.unwrap()[0].is_some());
    });
}

// Each has position n only once n-1 is committed: they wait for one another, and none is left out.
#[test]
fn users_who_publish_to_one_new_lane_at_once_wait_for_one_another() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let mut clients: Vec<_> = (0..5).map(|_| client(&rig, &url)).collect();
    let mut positions = rig.runtime.block_on(async {
        let tx = clients[0].transaction().await.unwrap();
        ask(&tx, &put_route()).await.unwrap();
        tx.commit().await.unwrap();
        let publish = clients.iter_mut().enumerate().map(|(number, client)| async move {
            let mut positions = Vec::new();
            for turn in 0..6 {
                let tx = client.transaction().await.unwrap();
                positions.push(position(&tx, number as u64 * 10 + turn).await);
                tx.commit().await.unwrap();
            }
            positions
        });
        futures::future::join_all(publish).await.concat()
    });
    positions.sort_unstable();
    assert_eq!(positions, (1..=30).collect::<Vec<_>>());
    assert_eq!(block_on(store.scan(Kind::Entry, None, 100)).unwrap().len(), 30);
}

// Those who come in the middle of the first one's commit find its lane and not yet its fence.
#[test]
fn users_who_publish_one_event_at_once_publish_it_once_and_none_is_turned_away() {
    let rig = Rig::new();
    let (_store, url) = rig.fresh("one");
    let mut clients: Vec<_> = (0..6).map(|_| client(&rig, &url)).collect();
    rig.runtime.block_on(async {
        let tx = clients[0].transaction().await.unwrap();
        ask(&tx, &put_route()).await.unwrap();
        tx.commit().await.unwrap();
        for number in 1..=20 {
            let publish = clients.iter_mut().map(|client| async move {
                let tx = client.transaction().await.unwrap();
                let reply = ask(&tx, &publication(number)).await.unwrap();
                tx.commit().await.unwrap();
                matches!(reply, Reply::Dispatch(dispatch::Reply::Published { publication: dispatch::Publication { seq, .. }, .. }) if seq == number)
            });
            let published = futures::future::join_all(publish).await;
            assert_eq!(published.iter().filter(|new| **new).count(), 1);
        }
    });
}

#[test]
fn who_hears_a_word_does_not_wait_for_a_user_who_is_about_to_say_it_again() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let mut client = client(&rig, &url);
    let poke = RowKey::poke("node-1", Place::Warehouse("W1".to_owned()).lane(&planner()));
    let hear = async |id: u64| {
        let fence = put(id, None, sealed(1, u64::MAX));
        let also = Also { drops: vec![poke], ..Also::default() };
        let sets = [WriteSet { also, ..set(id, []) }, set(id + 1, [fence])];
        let verdicts = store.commit(&sets, Millis(NOW)).await.unwrap();
        (verdicts, store.load(&[poke]).await.unwrap()[0].is_some())
    };
    rig.runtime.block_on(async {
        let tx = client.transaction().await.unwrap();
        ask(&tx, &put_route()).await.unwrap();
        position(&tx, 1).await;
        tx.commit().await.unwrap();
        let tx = client.transaction().await.unwrap();
        assert_eq!(position(&tx, 2).await, 2);
        assert_eq!(hear(1 << 40).await, (vec![Verdict::Applied; 2], true), "the user leans on the word");
        tx.commit().await.unwrap();
        assert_eq!(hear(1 << 41).await, (vec![Verdict::Applied; 2], false));
    });
}

#[test]
fn a_lane_goes_on_while_a_user_publishes_to_it_and_stands_still_while_one_cancels() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let mut client = client(&rig, &url);
    let lane = RowKey::lane(Place::Warehouse("W1".to_owned()).lane(&planner()));
    // An acknowledgement, as far as the store sees it.
    let acknowledge = async |id: u64| {
        let row = store.load(&[lane]).await.unwrap().remove(0).unwrap();
        let write = Write { key: lane, expect: Some(row.revision), put: Some(row.record.clone()) };
        store.commit(&[set(id, [write])], Millis(NOW)).await.unwrap()
    };
    rig.runtime.block_on(async {
        let tx = client.transaction().await.unwrap();
        ask(&tx, &put_route()).await.unwrap();
        position(&tx, 1).await;
        tx.commit().await.unwrap();
        let tx = client.transaction().await.unwrap();
        assert_eq!(position(&tx, 2).await, 2);
        assert_eq!(acknowledge(u64::MAX).await, [Verdict::Applied]);
        assert_eq!(position(&tx, 3).await, 3);
        let (
            Command::Dispatch(dispatch::Command::Publish(mut cancel)),
            Command::Dispatch(dispatch::Command::Publish(original)),
        ) = (publication(4), publication(1))
        else {
            panic!("not publications")
        };
        cancel.cancels = Some(original.claim.target);
        let told = ask(&tx, &Command::Dispatch(dispatch::Command::Publish(cancel))).await.unwrap();
        assert!(
            matches!(
                told,
                Reply::Dispatch(dispatch::Reply::Published { publication: dispatch::Publication { seq: 4, .. }, .. })
            ),
            "{told:?}"
        );
        assert_eq!(acknowledge(u64::MAX - 1).await, [Verdict::Held]);
        tx.commit().await.unwrap();
        assert_eq!(acknowledge(u64::MAX - 2).await, [Verdict::Applied]);
        assert_eq!(store.range(Kind::Entry, &lane.place().0.0, None, 10).await.unwrap().len(), 4);
    });
}

#[test]
fn people_can_read_lanes_in_sql_but_neither_bodies_nor_secrets() {
    let rig = Rig::new();
    let (store, url) = rig.fresh("one");
    let mut client = client(&rig, &url);
    rig.runtime.block_on(async {
        let tx = client.transaction().await.unwrap();
        ask(&tx, &put_route()).await.unwrap();
        position(&tx, 1).await;
        tx.commit().await.unwrap();
    });
    let ask = |sql: &str| rig.server.sql(&url, sql);
    let entry =
        "SELECT about ->> 'seq', about ->> 'correlation_id', about ->> 'kind' FROM fencepost_rows WHERE kind = 9";
    assert_eq!(ask(entry), "1|C-1|SHIPPER_RELEASED");
    let lane = "SELECT about ->> 'name', about ->> 'settled', about ->> 'paused' FROM fencepost_rows WHERE kind = 7";
    assert_eq!(ask(lane), "acme:W1|0|false");
    assert_eq!(ask("SELECT about ->> 'transport' FROM fencepost_rows WHERE kind = 6"), "webhook");
    let all = ask("SELECT string_agg(about::text, ' ') FROM fencepost_rows");
    assert!(!all.contains("secret body") && !all.contains("hidden") && !all.contains("dock.example"), "{all}");
    let damage = "UPDATE fencepost_rows SET record = set_byte(record, 9, get_byte(record, 9) # 1) WHERE kind = 8";
    ask(damage);
    let lane = Lane::new(planner(), Place::Warehouse("W1".to_owned())).id();
    let outcome = block_on(store.commit(&[publish(9, lane, 9, Vec::new())], Millis(NOW)));
    assert!(matches!(&outcome, Err(Error::Broken(why)) if why.contains("checksum")), "{outcome:?}");
}

// The server writes down how it looked: by a range of one index each, so that nothing of others is passed.
#[test]
fn pages_of_a_lane_rows_of_few_kinds_and_what_is_due_are_found_by_a_range_of_an_index() {
    let rig = Rig::with(&["session_preload_libraries=auto_explain", "auto_explain.log_min_duration=0"]);
    let (store, url) = rig.fresh("one");
    // Rows of many lanes, and of what is not a lane's.
    let fill = "INSERT INTO fencepost_rows SELECT sha256(n::text::bytea), kind, 0, '{}', NULL, 'one', 1, ''
        FROM generate_series(1, 5000) AS n, unnest('{2,4,8,9,11}'::int[]) AS kind";
    rig.server.sql(&url, fill);
    // As many of one kind, each due at some time that has not come.
    let due = "INSERT INTO fencepost_rows (id, kind, bucket, about, node, revision, record, due_at)
        SELECT sha256(n::text::bytea), 13, 0, '{}', 'one', 1, '', '2100-01-01'::timestamptz + n * interval '1 day'
        FROM generate_series(1, 5000) AS n";
    rig.server.sql(&url, due);
    rig.server.sql(&url, "ANALYZE fencepost_rows");
    let looks: [(&str, &dyn Fn() -> usize, &str, &str); 5] = [
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
            &|| block_on(store.scan(Kind::Poke, Some(poke(1)), 5)).unwrap().len(),
            "fencepost_rows_few",
            "((kind = $4) AND (id > $1) AND (id <= $2))",
        ),
        (
            "what is due",
            &|| block_on(store.due(Kind::Counter, Millis(NOW), None, 5)).unwrap().len(),
            "fencepost_rows_due",
            "((kind = $3) AND (due_at <= $1))",
        ),
        (
            "what else is due",
            &|| block_on(store.due(Kind::Counter, Millis(NOW), Some((Millis(NOW), poke(1))), 5)).unwrap().len(),
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
fn what_is_guessed_after_an_append_is_what_is_there() {
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
