//! Several nodes on one PostgreSQL: each lane is driven by one of them, and by another one when that is gone.

use std::time::{Duration, Instant};

use fencepost_rig::PostgresServer;
use rustix::process::Signal;

use super::{
    super::server::{Serve, Server, until},
    planner::{Planner, event},
    publishers::{Outbox, since},
    receiver::{Receiver, Say},
    rounds::{all_drained, assert_kept},
};

/// The lease of a node and a second, with room for a loaded machine.
pub const TAKEOVER_MAX: Duration = Duration::from_secs(15);

pub struct Town {
    pub nodes: Vec<Option<Server>>,
    pub store: String,
    pub postgres: PostgresServer,
    pub receiver: Receiver,
}

impl Town {
    pub fn start(count: usize) -> Self {
        Self::with(count, &[])
    }

    fn with(count: usize, settings: &[&str]) -> Self {
        // Nothing here is about power cuts. Without fsync, a disk that stalls for longer than a node's lease stops no
        // heartbeat, so that a node is taken for dead only where a test pauses or kills it.
        let postgres = PostgresServer::start_with(&[&["fsync=off"], settings].concat());
        let store = postgres.fresh_database();
        let nodes = (0..count).map(|_| Some(Serve::sharing(&store).start())).collect();
        Self { nodes, store, postgres, receiver: Receiver::start() }
    }

    pub fn node(&self, seat: usize) -> &Server {
        self.nodes[seat].as_ref().unwrap()
    }

    pub fn outbox(&self) -> Outbox {
        let outbox = Outbox::default();
        self.publish(&outbox);
        outbox
    }

    pub fn publish(&self, outbox: &Outbox) {
        *outbox.nodes.write().unwrap() = self.nodes.iter().flatten().map(|node| node.address).collect();
    }

    pub fn planner(&self, seat: usize) -> Planner {
        Planner::of(self.node(seat))
    }

    /// The seat of the node that drives a lane, as one that runs knows it.
    pub fn owner(&self, warehouse: &str, asked: usize) -> usize {
        let lane = self.planner(asked).lane(warehouse);
        let owner = lane["owner"].as_str().unwrap_or_else(|| panic!("{lane}"));
        let named = |node: &Server| owner.contains(&format!("-{}-", node.address.port()));
        self.nodes.iter().position(|node| node.as_ref().is_some_and(named)).unwrap_or_else(|| panic!("{owner} is gone"))
    }
}

#[test]
fn three_nodes_publish_into_the_same_lanes_and_each_is_delivered_in_order() {
    const LANES: usize = 12;
    let town = Town::start(3);
    for lane in 0..LANES {
        town.planner(lane % 3).pushed(&format!("WH-{lane}"), &town.receiver);
    }
    let (outbox, begun) = (town.outbox(), Instant::now());
    outbox.load(LANES, 7, |outbox| assert!(outbox.hear(600, Duration::from_secs(60))));
    all_drained(town.node(1));
    assert_kept(&outbox.sent(), &town.receiver, "three nodes");
    let owners: Vec<usize> = (0..LANES).map(|lane| town.owner(&format!("WH-{lane}"), 0)).collect();
    eprintln!(
        "nodes: {} events over three nodes, published and delivered in {}; lanes are with {owners:?}",
        outbox.told(),
        since(begun)
    );
    // A lane is with the node that its first event came through.
    assert!(owners.iter().any(|owner| *owner != owners[0]), "one node drives everything: {owners:?}");
}

// Somebody's transaction holds a row of the first event for longer than a commit waits: the commit is then taken apart.
#[test]
fn a_batch_keeps_its_order_also_where_somebody_is_in_the_way_of_its_first_event() {
    let town = Town::start(1);
    let sql = |statement: &str| town.postgres.sql(&town.store, statement);
    sql("CREATE TABLE in_the_way (id text)");
    sql("INSERT INTO in_the_way VALUES ('first')");
    sql("CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.fields::text LIKE '%\"first\"%' AND EXISTS (SELECT 1 FROM in_the_way) THEN
                RAISE EXCEPTION 'held' USING ERRCODE = 'lock_not_available';
            END IF;
            RETURN NEW;
        END $$");
    sql("CREATE TRIGGER held BEFORE INSERT ON fencepost_fences FOR EACH ROW EXECUTE FUNCTION held()");
    let mut planner = town.planner(0);
    planner.pushed("WH-1", &town.receiver);
    let batch = ["first", "second", "third"].map(|id| event(id, "WH-1"));
    let refused = planner.batch(&batch);
    assert_eq!(refused.status, 503, "{}", refused.text());
    sql("DELETE FROM in_the_way");
    let told = planner.batch(&batch).ok(202);
    let positions = told["results"].as_array().unwrap().iter().map(|result| result["seq"].as_u64().unwrap());
    assert_eq!(positions.collect::<Vec<_>>(), [1, 2, 3], "{told}");
    town.receiver.until(3);
    assert_eq!(town.receiver.heard().iter().map(|one| one.id()).collect::<Vec<_>>(), ["first", "second", "third"]);
}

#[test]
fn lanes_with_nothing_to_send_ask_the_database_nothing() {
    const LANES: usize = 50;
    /// How often the node looks for words from others in about five seconds. It looks at all nodes at every tenth, and at all
    /// lanes together twice a minute.
    const LOOKS: usize = 100;
    let town = Town::with(1, &["log_statement=all"]);
    let mut planner = town.planner(0);
    for lane in 0..LANES {
        planner.pushed(&format!("WH-{lane}"), &town.receiver);
        planner.release(&format!("e-{lane}"), &format!("WH-{lane}"));
    }
    all_drained(town.node(0));
    let ids: Vec<String> =
        (0..LANES).map(|lane| planner.lane(&format!("WH-{lane}"))["lane_id"].as_str().unwrap().to_owned()).collect();
    // A statement about one lane has its id among its parameters, and no other's.
    let names_one = |line: &&str| ids.iter().filter(|id| line.contains(id.as_str())).count() == 1;
    let log_after = |begin: usize, looks: usize| {
        until("the node looks for words", || {
            let log = town.postgres.log().split_off(begin);
            (log.matches("kind IN (6, 7, 10, 12)").count() >= looks).then_some(log)
        })
    };
    let busy = town.postgres.log();
    // The node looks some more times first, so that no statement belongs to the publications and questions above.
    let settled = busy.len() + log_after(busy.len(), LOOKS / 5).len();
    let idle = log_after(settled, LOOKS);
    assert!(busy.lines().filter(names_one).count() >= LANES, "publications do not show in the log");
    assert_eq!(idle.lines().filter(names_one).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_killed_node_loses_nothing_and_its_lanes_are_driven_by_another_within_the_lease() {
    const LANES: usize = 6;
    let mut town = Town::start(3);
    for lane in 0..LANES {
        town.planner(0).pushed(&format!("WH-{lane}"), &town.receiver);
    }
    let outbox = town.outbox();
    let killed = outbox.load(LANES, 11, |outbox| {
        assert!(outbox.hear(100, Duration::from_secs(60)));
        let owner = town.owner("WH-0", 1);
        let node = town.nodes[owner].take().unwrap();
        town.publish(outbox);
        node.kill();
        let killed = Instant::now();
        assert!(outbox.hear(100, Duration::from_secs(60)), "the others publish");
        killed
    });
    let seat = town.nodes.iter().position(Option::is_some).unwrap();
    all_drained(town.node(seat));
    let heard = town.receiver.heard();
    let first_after = |lane: usize| {
        let name = format!("fgai-wms:WH-{lane}");
        heard.iter().find(|one| one.lane() == name && one.at > killed).map(|one| one.at - killed)
    };
    let gaps: Vec<Option<Duration>> = (0..LANES).map(first_after).collect();
    eprintln!("nodes: after kill -9 of an owner the lanes went on after {gaps:?}");
    assert!(gaps.iter().flatten().all(|gap| *gap < TAKEOVER_MAX), "{gaps:?}");
    assert_kept(&outbox.sent(), &town.receiver, "a node was killed");
    // A new one in its place takes part.
    town.nodes.push(Some(Serve::sharing(&town.store).start()));
    let newest = town.nodes.len() - 1;
    town.planner(newest).pushed("WH-new", &town.receiver);
    town.planner(newest).release("new", "WH-new");
    town.planner(newest).drained("WH-new");
    assert_eq!(town.owner("WH-new", newest), newest);
}

#[test]
fn a_paused_owner_is_replaced_and_its_late_receipt_changes_nothing() {
    let town = Town::start(2);
    town.planner(0).pushed("WH-1", &town.receiver);
    town.receiver.script(|delivery| if delivery.seq() == 1 { Say::Hold } else { Say::Status(200) });
    town.planner(0).release("a", "WH-1");
    town.receiver.until(1);
    let owner = town.owner("WH-1", 0);
    let other = 1 - owner;
    town.planner(other).release("b", "WH-1");
    town.node(owner).pause();
    let paused = Instant::now();
    // The other one delivers the head again, and is not answered either: two attempts at one event are open.
    let again = town.receiver.until_for(2, TAKEOVER_MAX).swap_remove(1);
    eprintln!("nodes: a paused owner was replaced after {:?}", again.at - paused);
    assert_eq!((again.id().as_str(), again.seq()), ("a", 1));
    // Now both are answered. The old owner finds its answer when it wakes.
    town.receiver.release();
    let mut planner = town.planner(other);
    let lane = planner.drained("WH-1");
    assert_eq!(lane["settled"], 2);
    assert_eq!(town.owner("WH-1", other), other);
    town.receiver.say(Say::Hold);
    planner.release("c", "WH-1");
    town.receiver.until(4);
    town.node(owner).signal(Signal::CONT);
    // Its receipt for `a` comes now, under an old epoch, and nothing is settled by it: `c` is still open.
    let mut woken = town.planner(owner);
    woken.pushed("WH-2", &town.receiver);
    until("the woken node drives lanes again", || {
        let lane = woken.lane("WH-1");
        assert_eq!((&lane["settled"], &lane["backlog"]), (&2.into(), &1.into()), "{lane}");
        let ready = woken.0.get("/readyz");
        (ready.status == 200).then_some(())
    });
    woken.release("d", "WH-1");
    assert_eq!(woken.lane("WH-1")["settled"], 2);
    town.receiver.release();
    planner.drained("WH-1");
    assert_eq!(town.owner("WH-1", owner), other, "it stays where it is");
    let came: Vec<(String, u64)> = town.receiver.heard().iter().map(|one| (one.id(), one.seq())).collect();
    let wanted = [("a", 1), ("a", 1), ("b", 2), ("c", 3), ("d", 4)].map(|(id, seq)| (id.to_owned(), seq));
    assert_eq!(came, wanted, "each once more at most, in order");
}

#[test]
fn an_event_published_through_a_node_that_does_not_drive_the_lane_is_delivered() {
    let town = Town::start(3);
    town.planner(0).pushed("WH-1", &town.receiver);
    town.planner(0).release("first", "WH-1");
    town.receiver.until(1);
    let owner = town.owner("WH-1", 0);
    let mut took = Vec::new();
    for n in 0..20 {
        let seat = (owner + 1 + n % 2) % 3;
        let mut planner = town.planner(seat);
        let begun = Instant::now();
        planner.release(&format!("e-{n}"), "WH-1");
        took.push(town.receiver.nth(n + 2).at - begun);
    }
    took.sort();
    eprintln!("nodes: through another node, publish to delivery: p50 {:?}, worst {:?}", took[10], took[19]);
    assert!(took[19] < Duration::from_secs(5), "{took:?}");
    assert_eq!(town.owner("WH-1", 0), owner);
}

#[test]
fn a_persons_act_on_one_node_reaches_the_node_that_drives_the_lane() {
    let town = Town::start(2);
    town.planner(0).pushed("WH-1", &town.receiver);
    town.receiver.say(Say::Status(410));
    town.planner(0).release("a", "WH-1");
    town.planner(0).lane_where("WH-1", "the lane is stopped", |lane| lane["state"] == "paused");
    let other = 1 - town.owner("WH-1", 0);
    town.planner(other).release("b", "WH-1");
    town.receiver.say(Say::Status(200));
    town.planner(other).act("WH-1", "resume", serde_json::json!({})).ok(200);
    let came: Vec<String> = town.receiver.until(3).iter().map(|one| one.id()).collect();
    assert_eq!(came, ["a", "a", "b"]);
}

#[test]
fn a_node_that_was_silent_for_too_long_does_not_send_what_it_remembers() {
    let town = Town::start(2);
    town.receiver.say(Say::Status(503));
    town.planner(0).pushed("WH-1", &town.receiver);
    for id in ["e-1", "e-2", "e-3"] {
        town.planner(0).release(id, "WH-1");
    }
    // Its head has failed once: the node knows it, and when it is due.
    town.receiver.until(1);
    town.planner(1).lane_where("WH-1", "the failure is recorded", |lane| lane["head"]["attempts"] == 1);
    town.node(0).pause();
    town.receiver.release();
    town.planner(1).drained("WH-1");
    assert_eq!(town.owner("WH-1", 1), 1);
    let heard = town.receiver.count();
    town.node(0).signal(Signal::CONT);
    // It has heard that it was taken for dead when it answers for its own again.
    town.planner(0).pushed("WH-2", &town.receiver);
    town.planner(0).release("after", "WH-2");
    town.planner(0).drained("WH-2");
    let late: Vec<String> = town.receiver.heard()[heard..].iter().map(|delivery| delivery.id()).collect();
    assert_eq!(late, ["after"]);
}

#[test]
fn a_new_address_given_to_one_node_is_used_by_the_one_that_drives_the_lane() {
    let (town, elsewhere) = (Town::start(2), Receiver::start());
    town.planner(0).pushed("WH-1", &town.receiver);
    town.planner(0).release("e-1", "WH-1");
    town.planner(0).drained("WH-1");
    assert_eq!(town.owner("WH-1", 1), 0);
    town.planner(1).pushed("WH-1", &elsewhere);
    // Heard within a moment; until then the old address is a fair one.
    let mut count = 1;
    until("the new address is used", || {
        count += 1;
        town.planner(0).release(&format!("e-{count}"), "WH-1");
        town.planner(0).drained("WH-1");
        (elsewhere.count() > 0).then_some(())
    });
    assert_eq!(town.owner("WH-1", 1), 0);
}
