//! Lanes that change hands on a shared store: after an orderly end, after a restart, and in the middle of a publication.

use std::{
    thread,
    time::{Duration, Instant},
};

use fencepost_rig::PostgresServer;
use rustix::process::Signal;
use serde_json::json;

use super::{
    super::server::{BINARY, Serve, command, until},
    nodes::{TAKEOVER_MAX, Town},
    planner::{Planner, event},
    receiver::{Receiver, Say},
    rounds::all_drained,
};

/// A node that beats every two seconds is taken for dead after six: sooner than this only where it said so itself.
const SILENCE_MIN: Duration = Duration::from_millis(3_900);
/// And after this long for sure.
const SILENCE_MAX: Duration = Duration::from_millis(6_500);
/// Every lane is looked at after half of this.
const LOOK_AT_ALL_MAX: Duration = Duration::from_secs(60);

#[test]
fn a_node_that_ends_in_order_hands_its_lanes_over() {
    let mut town = Town::start(2);
    town.planner(0).pushed("WH-1", &town.receiver);
    town.planner(0).release("a", "WH-1");
    town.receiver.until(1);
    town.planner(0).drained("WH-1");
    let owner = town.owner("WH-1", 0);
    let other = 1 - owner;
    let node = town.nodes[owner].take().unwrap();
    node.signal(Signal::TERM);
    assert_eq!(node.wait().0.code(), Some(0));
    let ended = Instant::now();
    town.planner(other).release("b", "WH-1");
    let came = town.receiver.until(2).swap_remove(1);
    let took = came.at.duration_since(ended);
    eprintln!("handover: after SIGTERM of the owner the next event came {took:?} after its end");
    assert!(took < SILENCE_MIN, "it was waited for until its lease was over: {took:?}");
    assert_eq!(came.id(), "b");
    town.planner(other).drained("WH-1");
}

#[test]
fn a_restart_on_a_shared_store_tries_a_head_at_once_though_its_receiver_asked_for_more_time() {
    let mut town = Town::start(1);
    town.planner(0).pushed("WH-1", &town.receiver);
    town.receiver.say(Say::With(503, "retry-after: 600\r\n".to_owned()));
    town.planner(0).release("a", "WH-1");
    town.planner(0).lane_where("WH-1", "the attempt failed", |lane| lane["state"] == "retrying");
    town.receiver.say(Say::Status(200));
    town.nodes[0].take().unwrap().kill();
    town.nodes[0] = Some(Serve::sharing(&town.store).start());
    let started = Instant::now();
    let came = town.receiver.until_for(2, TAKEOVER_MAX).swap_remove(1);
    eprintln!("handover: a head whose node was restarted was tried again {:?} after the start", came.at - started);
    assert_eq!((came.id().as_str(), came.attempt()), ("a", 2));
}

#[test]
fn an_event_that_was_being_published_while_its_lane_changed_hands_is_delivered() {
    const LANES: usize = 26;
    let mut town = Town::start(3);
    let mut lanes = Vec::new();
    for lane in 0..LANES {
        let warehouse = format!("WH-{lane}");
        town.planner(0).pushed(&warehouse, &town.receiver);
        town.planner(0).release(&format!("first-{lane}"), &warehouse);
        let id = town.planner(0).lane(&warehouse)["lane_id"].as_str().unwrap().to_owned();
        lanes.push((lane, warehouse, id));
    }
    all_drained(town.node(0));
    let dead = town.nodes[0].take().unwrap();
    let address = dead.address;
    dead.kill();
    let (postgres, store) = (&town.postgres, &town.store);
    let wait = |until_s: f64| {
        let then =
            format!("SELECT seen + interval '{until_s} seconds' FROM fencepost_nodes WHERE address = '{address}'");
        format!("SELECT pg_sleep_until(({then}))")
    };
    thread::scope(|scope| {
        for (lane, warehouse, id) in &lanes {
            // Until its lease is over, whoever publishes still speaks to the dead one. Publications are held up between the
            // look at the lane and the commit, and let go one after the other while the lanes are being taken over.
            let tail = format!("SELECT 1 FROM fencepost_rows WHERE kind = 8 AND about->>'lane_id' = '{id}' FOR UPDATE");
            let held = format!("{}; {tail}; {}", wait(5.7), wait(5.95 + *lane as f64 * 0.025));
            scope.spawn(move || postgres.sql(store, &held));
            let (begin, node) = (wait(5.8), town.node(2));
            scope.spawn(move || {
                postgres.sql(store, &begin);
                let (mut planner, event) = (Planner::of(node), event(&format!("second-{lane}"), warehouse));
                until("it is published", || (planner.publish(event.to_string()).status != 503).then_some(()));
            });
        }
    });
    let came = town.receiver.until_for(2 * LANES, TAKEOVER_MAX);
    let owners: Vec<usize> = lanes.iter().map(|(_, warehouse, _)| town.owner(warehouse, 1)).collect();
    eprintln!("handover: {} deliveries; the lanes are with {owners:?}", came.len());
}

// One event in each of so many lanes, which its receiver has not taken yet.
fn owed(town: &Town, seat: usize, lanes: usize) {
    town.receiver.say(Say::With(503, "retry-after: 600\r\n".to_owned()));
    for lane in 0..lanes {
        let warehouse = format!("WH-{lane}");
        town.planner(seat).pushed(&warehouse, &town.receiver);
        town.planner(seat).release(&format!("e-{lane}"), &warehouse);
    }
    town.receiver.until(lanes);
    town.receiver.say(Say::Status(200));
}

#[test]
fn a_node_that_serves_fences_only_inherits_no_lanes() {
    const LANES: usize = 12;
    let mut town = Town::start(1);
    let dir = tempfile::tempdir().unwrap();
    // It has no key for the secrets of webhooks.
    let here = || {
        let mut fences = command(BINARY);
        fences.current_dir(dir.path());
        fences
    };
    assert!(here().args(["credential", "create", "acme", "--role", "partner"]).output().unwrap().status.success());
    let mut fences = here();
    fences.args(["serve", "--listen", "127.0.0.1:0", "--store", &town.store]);
    let _fences = Serve::ready(fences).start();
    owed(&town, 0, LANES);
    town.nodes[0].take().unwrap().kill();
    town.nodes[0] = Some(Serve::sharing(&town.store).start());
    town.receiver.until_for(2 * LANES, TAKEOVER_MAX);
    all_drained(town.node(0));
}

#[test]
fn events_of_a_node_that_died_while_the_database_was_away_are_sent_by_another() {
    const LANES: usize = 8;
    let mut town = Town::start(2);
    owed(&town, 0, LANES);
    town.postgres.kill();
    town.nodes[0].take().unwrap().kill();
    // When it is back, no node has been seen for longer than a lease. A sleep, since only time passes meanwhile.
    thread::sleep(SILENCE_MAX);
    town.postgres.restart();
    town.receiver.until_for(2 * LANES, TAKEOVER_MAX);
    until("the store answers", || (town.planner(1).0.get("/wes/v1/dispatch/lanes").status == 200).then_some(()));
    all_drained(town.node(1));
}

#[test]
fn an_event_of_which_nobody_could_tell_the_owner_of_its_lane_is_late_and_not_lost() {
    let town = Town::start(2);
    town.planner(0).pushed("WH-1", &town.receiver);
    town.planner(0).release("a", "WH-1");
    town.planner(0).drained("WH-1");
    let other = 1 - town.owner("WH-1", 0);
    let sql = |statement: &str| town.postgres.sql(&town.store, statement);
    // By then each has seen the other, and has looked at all lanes for that.
    sql("SELECT pg_sleep_until(max(started) + interval '2 seconds') FROM fencepost_nodes");
    // A notice to another node is gone before that node can read it.
    sql("CREATE FUNCTION unheard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            DELETE FROM fencepost_rows WHERE id = NEW.id AND kind = NEW.kind;
            RETURN NULL;
        END $$");
    sql("CREATE TRIGGER unheard AFTER INSERT ON fencepost_rows FOR EACH ROW WHEN (NEW.kind = 12)
        EXECUTE FUNCTION unheard()");
    town.planner(other).release("b", "WH-1");
    town.receiver.until_for(2, LOOK_AT_ALL_MAX);
}

#[test]
fn a_database_whose_clock_is_set_back_stops_no_lane() {
    let postgres = PostgresServer::start();
    let store = postgres.fresh_database();
    let name = store.rsplit('/').next().unwrap().to_owned();
    let sql = |statement: &str| postgres.sql(&store, statement);
    // Its clock is ours to set.
    sql("CREATE TABLE back (by interval)");
    sql("INSERT INTO back VALUES ('0 s')");
    sql("CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql
        AS 'SELECT pg_catalog.clock_timestamp() - (SELECT by FROM public.back)'");
    sql(&format!("ALTER DATABASE {name} SET search_path = public, pg_catalog"));
    let town = Town { nodes: vec![Some(Serve::sharing(&store).start())], store, postgres, receiver: Receiver::start() };
    let mut planner = town.planner(0);
    planner.pushed("WH-1", &town.receiver);
    planner.release("before", "WH-1");
    town.receiver.until(1);
    town.postgres.sql(&town.store, "UPDATE back SET by = '30 s'");
    // Past what the node already knew that it may send: a time of its own clock, which shows nowhere.
    thread::sleep(SILENCE_MAX);
    planner.release("after", "WH-1");
    planner.pushed("WH-2", &town.receiver);
    planner.release("new", "WH-2");
    town.receiver.until_for(3, TAKEOVER_MAX);
}

#[test]
fn a_redrive_of_many_that_the_store_stops_says_how_far_it_came() {
    let town = Town::start(1);
    let mut planner = town.planner(0);
    planner.pushed("WH-1", &town.receiver);
    planner.release("first", "WH-1");
    planner.drained("WH-1");
    planner.act("WH-1", "pause", json!({"why": "repair"})).ok(200);
    for seq in 2..=4 {
        planner.release(&format!("e-{seq}"), "WH-1");
        planner.act("WH-1", "skip", json!({"seq": seq})).ok(200);
    }
    let sql = |statement: &str| town.postgres.sql(&town.store, statement);
    sql("CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'held' USING ERRCODE = 'lock_not_available';
        END $$");
    sql("CREATE TRIGGER held BEFORE UPDATE ON fencepost_rows FOR EACH ROW
        WHEN (NEW.kind = 10 AND NEW.about->>'correlation_id' = 'e-3') EXECUTE FUNCTION held()");
    let ids: Vec<_> = planner.letters("").iter().map(|letter| letter["id"].clone()).collect();
    let mut many = |after: &str| {
        let asked = json!({"ids": ids, "rate_per_second": 100, "after": after});
        planner.0.post("/wes/v1/dispatch/dlq/redrive", asked.to_string())
    };
    let told = many("").ok(200);
    assert_eq!((&told["redriven"], &told["next_cursor"]), (&json!(1), &ids[0]), "{told}");
    many(told["next_cursor"].as_str().unwrap()).problem(503, "store-unavailable");
    sql("DROP TRIGGER held ON fencepost_rows");
    let told = many(told["next_cursor"].as_str().unwrap()).ok(200);
    assert_eq!((&told["redriven"], &told["next_cursor"]), (&json!(2), &json!("")), "{told}");
}
