//! The database goes away and comes back: 503 in time, nothing done, and no node needs a restart.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{
    super::server::{Server, until},
    callers::Load,
    history::{History, SCOPE},
    town::{Town, assert_kept},
};

/// A store that is down is 503 within 5 s; the rest is for a slow machine.
const ANSWERED: Duration = Duration::from_millis(5_900);

// Everything a node is asked at the same time, each answer in time.
fn refuses_in_time(node: &Server) {
    let timely = |what: &str, ask: &(dyn Fn() -> u16 + Sync), expected: u16| {
        let begun = Instant::now();
        assert_eq!(ask(), expected, "{what}");
        assert!(begun.elapsed() < ANSWERED, "{what} took {:?}", begun.elapsed());
    };
    let key = json!({"index_hash": "down"});
    thread::scope(|scope| {
        scope.spawn(|| {
            timely(
                "a claim",
                &|| {
                    let answer = node.acme().claim(SCOPE, &key);
                    answer.problem(503, "store-unavailable");
                    assert!(answer.header("retry-after").is_some(), "{answer:?}");
                    answer.status
                },
                503,
            )
        });
        scope.spawn(|| timely("readyz", &|| node.client("").get("/readyz").status, 503));
        scope.spawn(|| timely("nodes", &|| node.admin().get("/admin/nodes").status, 503));
        scope.spawn(|| timely("healthz", &|| node.client("").get("/healthz").status, 200));
    });
}

fn all_refuse_in_time(town: &Town) {
    thread::scope(|scope| {
        for node in town.nodes() {
            scope.spawn(move || refuses_in_time(node));
        }
    });
}

#[test]
fn while_the_database_is_down_every_node_refuses_in_time_and_then_goes_on_by_itself() {
    let mut town = Town::start(3);
    let key = json!({"index_hash": "before"});
    let token = town.node(0).acme().claim(SCOPE, &key).token();
    town.postgres.kill();
    all_refuse_in_time(&town);
    // Once more: those that were connected then are not now.
    all_refuse_in_time(&town);
    town.postgres.restart();
    town.until_ready();
    town.node(1).acme().seal(SCOPE, &key, token, "E", json!(1)).ok(200);
    for node in town.nodes() {
        assert_eq!(node.acme().claim(SCOPE, &key).ok(200)["receipt"], 1);
    }
}

#[test]
fn a_database_that_hangs_is_refused_in_time_too() {
    let town = Town::start(2);
    let key = json!({"index_hash": "before"});
    let token = town.node(0).acme().claim(SCOPE, &key).token();
    town.postgres.freeze(true);
    all_refuse_in_time(&town);
    town.postgres.freeze(false);
    town.until_ready();
    town.node(1).acme().seal(SCOPE, &key, token, "E", json!(1)).ok(200);
    assert_eq!(town.node(0).acme().claim(SCOPE, &key).ok(200)["receipt"], 1);
}

#[test]
fn sigterm_of_a_node_under_load_loses_nothing() {
    let mut town = Town::start(3);
    let history = History::default();
    let addresses = town.addresses.clone();
    let load = Load { history: &history, addresses: &addresses, seed: 5, first_key: 0 };
    let next = load.run(|acks| {
        for seat in 0..3 {
            assert!(acks.hear(40, ANSWERED * 4));
            town.retire(seat);
        }
        assert!(acks.hear(40, ANSWERED * 4));
    });
    town.audit(&history, 0..next);
    assert_kept(&history, 3, 0, "nodes were ended by SIGTERM");
}

#[test]
fn a_transaction_that_holds_one_key_keeps_nobody_else_waiting() {
    let town = Town::start(1);
    let node = town.node(0);
    let held = json!({"index_hash": "held"});
    let token = node.acme().claim(SCOPE, &held).token();
    let hold = "BEGIN; UPDATE fencepost_fences SET attempt = attempt; SELECT pg_sleep(4); ROLLBACK";
    thread::scope(|scope| {
        let holder = scope.spawn(|| town.postgres.sql(&town.database, hold));
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        until("the key is held", || (town.postgres.sql(&town.database, asleep) == "1").then_some(()));
        let refused = node.acme().seal(SCOPE, &held, token, "E", json!(1));
        refused.problem(503, "store-unavailable");
        assert!(!holder.is_finished(), "the key was held all the time");
        let begun = Instant::now();
        for other in 0..5 {
            node.acme().claim(SCOPE, &json!({"index_hash": other.to_string()})).token();
        }
        assert!(!holder.is_finished() && begun.elapsed() < Duration::from_secs(2), "others were kept waiting");
        holder.join().unwrap();
    });
    node.acme().seal(SCOPE, &held, token, "E", json!(1)).ok(200);
}
