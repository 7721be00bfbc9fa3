//! Lanes that change hands on a shared store: after an orderly end, after a restart, and in the middle of a publication.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{
    super::server::{Serve, until},
    nodes::{TAKEOVER_MAX, Town},
    planner::{Planner, event},
    receiver::Say,
    rounds::all_drained,
};

/// A node that beats every two seconds is taken for dead after six: sooner than this only where it said so itself.
const SILENCE_MIN: Duration = Duration::from_millis(3_900);

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
