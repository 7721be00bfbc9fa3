//! A primary with a synchronous standby is killed under load and the standby promoted, again and again: no acknowledged fence,
//! event or transaction of a user is lost, and every lane keeps its order.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fencepost_rig::Pair;

use super::{
    super::{
        dispatch::{
            planner::Planner,
            publishers::{Outbox, since},
            receiver::Receiver,
            rounds::{all_drained, assert_kept as assert_lanes_kept},
        },
        ledger::seed,
        server::{Serve, Server, until},
    },
    callers::{Addresses, Load},
    history::History,
    town::{assert_kept, audit},
    users::{Users, WAREHOUSE},
};

const NODES: usize = 2;
const LANES: usize = 4;
/// Far longer than a failover takes.
const RECOVERY: Duration = Duration::from_secs(30);

/// How many failovers: `FENCEPOST_ROUNDS`, else few, or many where `FENCEPOST_LONG=1` asks for it.
fn rounds() -> u64 {
    let asked = std::env::var("FENCEPOST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let long = std::env::var("FENCEPOST_LONG").is_ok_and(|long| long == "1");
    asked.unwrap_or(if long { 30 } else { 3 })
}

fn until_ready(nodes: &[Server]) {
    for node in nodes {
        let mut anybody = node.client("");
        until("every node is ready again", || (anybody.get("/readyz").status == 200).then_some(()));
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_a_synchronous_standby_takes_over_under_load() {
    let (seed, begun) = (seed(), Instant::now());
    let mut pair = Pair::start();
    let database = pair.primary.fresh_database();
    let url = pair.url(&database);
    pair.primary.sql(&database, "CREATE TABLE bookings (room bigint)");
    let nodes: Vec<Server> = (0..NODES).map(|_| Serve::sharing(&url).start()).collect();
    let (receiver, of_users) = (Receiver::start(), Receiver::start());
    for lane in 0..LANES {
        Planner::of(&nodes[lane % NODES]).pushed(&format!("WH-{lane}"), &receiver);
    }
    Planner::of(&nodes[0]).pushed(WAREHOUSE, &of_users);
    let addresses = Arc::new(Addresses::default());
    addresses.set(nodes.iter().map(|node| node.address).collect());
    let (history, outbox, users) = (History::default(), Outbox::default(), Users::default());
    *outbox.nodes.write().unwrap() = nodes.iter().map(|node| node.address).collect();
    let said = format!("FENCEPOST_SEED={seed} FENCEPOST_ROUNDS={}", rounds());
    let mut first_key = 0;
    for round in 0..rounds() {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(round));
        let (load_seed, publish_seed) = (random.u64(..), random.u64(..));
        let load = Load { history: &history, addresses: &addresses, seed: load_seed, first_key };
        first_key = load.run(|acks| {
            outbox.load(LANES, publish_seed, |outbox| {
                users.book(&url, || {
                    let alive = |when: &str| {
                        assert!(acks.hear(20, RECOVERY), "no seal {when}; {said}");
                        assert!(outbox.hear(20, RECOVERY), "no event {when}; {said}");
                    };
                    alive("before the failover");
                    acks.pass(Duration::from_millis(random.u64(1..300)));
                    pair.fail_over();
                    let booked = users.booked();
                    alive("after the failover");
                    until("a user books again", || (users.booked() > booked).then_some(()));
                    // The new primary has a standby again before it may be lost.
                    pair.add_standby();
                });
            });
        });
        until_ready(&nodes);
    }
    audit(&addresses, &history, 0..first_key);
    assert_kept(&history, NODES, 0, &said);
    all_drained(&nodes[0]);
    assert_lanes_kept(&outbox.sent(), &receiver, &said);
    assert_lanes_kept(&users.sent(), &of_users, &said);
    users.assert_kept(&pair.primary, &pair.url(&database));
    eprintln!(
        "failover: {} in {}; {} requests, {} events and {} users' transactions acknowledged; 0 breaches",
        rounds(),
        since(begun),
        history.ops().len(),
        outbox.told(),
        users.booked(),
    );
}
