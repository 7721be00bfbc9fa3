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
    let came = town.receiver.until_for(2, TAKEOVER_MAX).swap_remove(1);
    eprintln!(
        "nodes: after SIGTERM of the owner the next event came {:?} after its end",
        came.at.duration_since(ended)
    );
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
    eprintln!("nodes: a head whose node was restarted was tried again {:?} after the start", came.at - started);
    assert_eq!((came.id().as_str(), came.attempt()), ("a", 2));
}

#[test]
fn an_event_that_was_being_published_while_its_lane_changed_hands_is_delivered() {
    const LANES: usize = 8;
    let mut town = Town::start(3);
    for lane in 0..LANES {
        town.planner(0).pushed(&format!("WH-{lane}"), &town.receiver);
        town.planner(0).release(&format!("first-{lane}"), &format!("WH-{lane}"));
    }
    all_drained(town.node(0));
    let dead = town.nodes[0].take().unwrap();
    let address = dead.address;
    dead.kill();
    let (postgres, store) = (&town.postgres, &town.store);
    let is = |question: &str| postgres.sql(store, question) == "t";
    // Just before the others take it for dead, whoever publishes still speaks to it.
    let silent = "SELECT extract(epoch FROM clock_timestamp() - seen) > 4.8 FROM fencepost_nodes WHERE address = ";
    until("its lease is almost over", || is(&format!("{silent}'{address}'")).then_some(()));
    thread::scope(|scope| {
        // Holds every publication up between its look at the lane and its commit, until the lane has been taken over.
        let hold =
            "SELECT count(*) FROM (SELECT 1 FROM fencepost_rows WHERE kind = 8 FOR UPDATE) tails; SELECT pg_sleep(2.5)";
        scope.spawn(|| postgres.sql(store, &format!("BEGIN; {hold}; COMMIT")));
        let asleep = "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        until("the tails are held", || is(asleep).then_some(()));
        for lane in 0..LANES {
            let node = town.node(2);
            scope.spawn(move || {
                let mut planner = Planner::of(node);
                planner.publish(event(&format!("second-{lane}"), &format!("WH-{lane}")).to_string()).ok(202);
            });
        }
    });
    let came = town.receiver.until_for(2 * LANES, TAKEOVER_MAX);
    let owners: Vec<usize> = (0..LANES).map(|lane| town.owner(&format!("WH-{lane}"), 1)).collect();
    eprintln!("handover: {} deliveries; the lanes are with {owners:?}", came.len());
}
