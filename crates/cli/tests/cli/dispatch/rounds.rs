//! kill -9 of the server, the receiver and the publishers at random under load: the ledger has each event once, in order.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use super::{
    super::{
        ledger::seed,
        server::{Serve, Server, until},
    },
    checker::{Came, Sent, check},
    delivery::Delivery,
    planner::Planner,
    publishers::{Outbox, since},
    receiver::{Receiver, Say},
};

const LANES: usize = 24;
/// Far longer than a recovery takes.
const RECOVERY: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillServer,
    KillReceiver,
    KillBoth,
    EndServer,
}

const FAULTS: [Fault; 4] = [Fault::KillServer, Fault::KillReceiver, Fault::KillBoth, Fault::EndServer];

struct World<'d> {
    data: &'d Path,
    server: Option<Server>,
    receiver: Receiver,
}

impl World<'_> {
    fn server_again(&mut self, outbox: &Outbox) {
        let server = Serve::dev(self.data).start();
        *outbox.nodes.write().unwrap() = vec![server.address];
        self.server = Some(server);
    }

    fn kill_server(&mut self) {
        self.server.take().unwrap().kill();
    }

    fn strike(&mut self, fault: Fault, outbox: &Outbox, random: &mut fastrand::Rng) {
        let mut a_while = || outbox.pass(Duration::from_millis(random.u64(1..120)));
        match fault {
            Fault::KillServer => {
                self.kill_server();
                a_while();
            }
            Fault::KillReceiver => {
                self.receiver.kill();
                a_while();
                self.receiver.restart();
                return;
            }
            Fault::KillBoth => {
                self.receiver.kill();
                a_while();
                self.kill_server();
                a_while();
                self.receiver.restart();
            }
            Fault::EndServer => {
                let server = self.server.take().unwrap();
                server.signal(Signal::TERM);
                let (status, said) = server.wait();
                assert_eq!(status.code(), Some(0), "{status}: {said}");
            }
        }
        self.server_again(outbox);
    }
}

fn rounds() -> u64 {
    let asked = std::env::var("FENCEPOST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let long = std::env::var("FENCEPOST_LONG").is_ok_and(|long| long == "1");
    asked.unwrap_or(if long { 100 } else { 8 })
}

/// A delivery as the checker knows them.
pub fn came(delivery: &Delivery) -> Came {
    Came { id: delivery.id(), lane: delivery.lane().to_owned(), seq: delivery.seq(), body: delivery.body.clone() }
}

/// Fails with the first breaches, where there are any.
#[track_caller]
pub fn assert_kept(sent: &[Sent], receiver: &Receiver, said: &str) {
    let ledger: Vec<Came> = receiver.heard().iter().map(came).collect();
    let breaches = check(sent, &ledger);
    assert!(breaches.is_empty(), "{} breaches; {said}\n{:#?}", breaches.len(), &breaches[..breaches.len().min(5)]);
}

/// Returns when nothing is owed in any lane.
pub fn all_drained(server: &Server) {
    let mut planner = Planner::of(server);
    until("every lane is drained", || {
        let lanes = planner.0.get("/wes/v1/dispatch/lanes?limit=1000");
        // Just after an outage a node may still find its store away.
        let drained = |lanes: Value| lanes["items"].as_array().unwrap().iter().all(|lane| lane["backlog"] == 0);
        (lanes.status != 503 && drained(lanes.ok(200))).then_some(())
    });
}

#[test]
fn each_event_is_in_the_ledger_once_and_in_order_whoever_is_killed() {
    let (seed, begun) = (seed(), Instant::now());
    let dir = tempfile::tempdir().unwrap();
    let mut world = World { data: dir.path(), server: None, receiver: Receiver::start() };
    let outbox = Outbox::default();
    world.server_again(&outbox);
    for lane in 0..LANES {
        Planner::of(world.server.as_ref().unwrap()).pushed(&format!("WH-{lane}"), &world.receiver);
    }
    // Some answers are late: so that there is always something under way when something dies.
    let mut late = fastrand::Rng::with_seed(seed);
    world.receiver.script(move |_| match late.u8(..16) {
        0 => Say::Late(Duration::from_millis(late.u64(1..30))),
        _ => Say::Status(200),
    });
    let mut struck: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..rounds() {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(round));
        let faults: Vec<Fault> = (0..random.usize(1..4)).map(|_| FAULTS[random.usize(..FAULTS.len())]).collect();
        let alive =
            |outbox: &Outbox, count| assert!(outbox.hear(count, RECOVERY), "nothing is acknowledged: {faults:?}");
        outbox.load(LANES, random.u64(..), |outbox| {
            alive(outbox, random.usize(1..100));
            for fault in &faults {
                world.strike(*fault, outbox, &mut random);
                outbox.pass(Duration::from_millis(random.u64(1..60)));
                *struck.entry(format!("{fault:?}")).or_default() += 1;
            }
            alive(outbox, 40);
        });
    }
    // Lanes whose receiver was dead wait for their turn; a restart is a reason not to.
    world.kill_server();
    world.server_again(&outbox);
    all_drained(world.server.as_ref().unwrap());
    let sent = outbox.sent();
    let said = format!("FENCEPOST_SEED={seed} FENCEPOST_ROUNDS={}", rounds());
    assert_kept(&sent, &world.receiver, &said);
    let (unheard, deliveries) = (sent.iter().filter(|sent| sent.seq.is_none()).count(), world.receiver.count());
    eprintln!(
        "rounds: {} rounds in {}, {struck:?}; {} events acknowledged, {unheard} of unknown outcome, {deliveries} deliveries; 0 breaches",
        rounds(),
        since(begun),
        outbox.told(),
    );
    assert!(deliveries > outbox.told(), "nothing came twice: the faults did nothing");
}
