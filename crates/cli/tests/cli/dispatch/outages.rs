//! Three nodes and their PostgreSQL, with nodes killed and paused, the database killed and the receiver killed under load:
//! nothing acknowledged is lost, and every lane keeps its order.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{
    super::{ledger::seed, server::Serve},
    nodes::Town,
    publishers::{Outbox, since},
    rounds::{all_drained, assert_kept},
};

const LANES: usize = 8;
const RECOVERY: Duration = Duration::from_secs(30);
/// Past the lease of a node: when it wakes, its lanes are another's.
const PAUSE_MS: std::ops::Range<u64> = 6_500..8_000;

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillNode,
    PauseNode,
    KillDatabase,
    KillReceiver,
}

const FAULTS: [Fault; 4] = [Fault::KillNode, Fault::PauseNode, Fault::KillDatabase, Fault::KillReceiver];

fn strike(fault: Fault, town: &mut Town, outbox: &Outbox, random: &mut fastrand::Rng) {
    let seat = random.usize(..town.nodes.len());
    let mut a_while = |span| outbox.pass(Duration::from_millis(random.u64(span)));
    match fault {
        Fault::KillNode => {
            town.nodes[seat].take().unwrap().kill();
            town.publish(outbox);
            a_while(1..200);
            town.nodes[seat] = Some(Serve::sharing(&town.store).start());
            town.publish(outbox);
        }
        Fault::PauseNode => {
            town.node(seat).pause();
            a_while(PAUSE_MS);
            town.node(seat).signal(Signal::CONT);
        }
        Fault::KillDatabase => {
            town.postgres.kill();
            a_while(1..400);
            town.postgres.restart();
        }
        Fault::KillReceiver => {
            town.receiver.kill();
            a_while(1..200);
            town.receiver.restart();
        }
    }
}

fn rounds() -> u64 {
    let asked = std::env::var("FENCEPOST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let long = std::env::var("FENCEPOST_LONG").is_ok_and(|long| long == "1");
    asked.unwrap_or(if long { 40 } else { 4 })
}

#[test]
fn nothing_is_lost_or_reordered_whatever_fails_around_three_nodes() {
    let (seed, begun) = (seed(), Instant::now());
    let mut town = Town::start(3);
    for lane in 0..LANES {
        town.planner(lane % 3).pushed(&format!("WH-{lane}"), &town.receiver);
    }
    let outbox = town.outbox();
    let mut struck: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..rounds() {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(round));
        // Neighbouring rounds try every kind.
        let fault = FAULTS[(round % FAULTS.len() as u64) as usize];
        let said = format!("{fault:?}; FENCEPOST_SEED={seed}");
        outbox.load(LANES, random.u64(..), |outbox| {
            assert!(outbox.hear(random.usize(10..60), RECOVERY), "nothing is acknowledged before {said}");
            strike(fault, &mut town, outbox, &mut random);
            assert!(outbox.hear(40, RECOVERY), "nothing is acknowledged after {said}");
        });
        *struck.entry(format!("{fault:?}")).or_default() += 1;
    }
    all_drained(town.node(0));
    assert_kept(&outbox.sent(), &town.receiver, &format!("FENCEPOST_SEED={seed} FENCEPOST_ROUNDS={}", rounds()));
    let unheard = outbox.sent().iter().filter(|sent| sent.seq.is_none()).count();
    eprintln!(
        "outages: {} rounds in {}, {struck:?}; {} events acknowledged, {unheard} of unknown outcome, {} deliveries; 0 breaches",
        rounds(),
        since(begun),
        outbox.told(),
        town.receiver.count(),
    );
}
