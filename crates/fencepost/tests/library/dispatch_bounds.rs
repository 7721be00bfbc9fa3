//! The driver with many lanes: bounds that are never passed, and no lane waits for another's receiver.
//! Under virtual time, so that counts are exact. `FENCEPOST_LONG=1` has more lanes.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use fencepost::{
    dispatch::{Delivery, DriverSettings, Sink},
    kernel::{
        dispatch::WarehouseTransport,
        lane::{Act, AfterDead, AttemptFailure, ReceiverAnswer},
    },
    store::memory::Memory,
};
use futures::future::{BoxFuture, join_all};

use super::dispatch_world::{HOUR_MS, Node, SECOND_MS, Virtual, host_of, in_virtual_time, lane_of, pass};

/// How each host answers: after so many milliseconds, and whether with yes.
type Hosts = HashMap<&'static str, (u64, bool)>;

/// Counts what is under way, and when each lane was first tried and each event taken.
#[derive(Default)]
struct Counted {
    now: HashMap<String, usize>,
    most: HashMap<String, usize>,
    most_in_all: usize,
    tried: HashSet<String>,
    attempts: usize,
    /// Whether everybody answers with yes by now.
    healed: bool,
    /// Milliseconds from the beginning to each yes, by host.
    taken_ms: HashMap<String, Vec<u64>>,
}

struct Counter {
    hosts: Hosts,
    begin: tokio::time::Instant,
    counted: Arc<Mutex<Counted>>,
}

impl Sink for Counter {
    fn host(&self, route: &WarehouseTransport) -> String {
        host_of(route)
    }

    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, Result<(), AttemptFailure>> {
        let host = host_of(&delivery.transport);
        let (takes_ms, yes) = self.hosts[host.as_str()];
        // Some are known by name: one that never gets a yes, and one that gets it the second time.
        let yes = match delivery.entry.subject.split('-').next() {
            Some("never") => false,
            Some("twice") => delivery.attempt > 1,
            _ => yes,
        };
        let (counted, begin) = (self.counted.clone(), self.begin);
        {
            let mut counted = counted.lock().unwrap();
            counted.attempts += 1;
            counted.tried.insert(delivery.entry.subject.clone());
            *counted.now.entry(host.clone()).or_default() += 1;
            let (own, all) = (counted.now[&host], counted.now.values().sum());
            let most = counted.most.entry(host.clone()).or_default();
            *most = own.max(*most);
            counted.most_in_all = counted.most_in_all.max(all);
        }
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(takes_ms)).await;
            let mut counted = counted.lock().unwrap();
            *counted.now.entry(host.clone()).or_default() -= 1;
            if yes || counted.healed {
                let after_ms = begin.elapsed().as_millis() as u64;
                counted.taken_ms.entry(host).or_default().push(after_ms);
                return Ok(());
            }
            Err(AttemptFailure::Later { answer: ReceiverAnswer::default(), wish_ms: None })
        })
    }
}

async fn node(hosts: Hosts, settings: DriverSettings) -> (Node, Arc<Mutex<Counted>>) {
    let counted = Arc::<Mutex<Counted>>::default();
    let sink = Counter { hosts, begin: tokio::time::Instant::now(), counted: counted.clone() };
    let store = Arc::new(Memory::new());
    let node = Node::start(store, Virtual::new(), Arc::new(sink), Arc::new(()), settings, 1).await;
    (node, counted)
}

/// So many lanes to a host, each with one event.
async fn fill(node: &Node, host: &str, lanes: usize) {
    let one = async |n: usize| {
        let warehouse = format!("{host}-{n}");
        node.route(&warehouse, host, AfterDead::Continue).await;
        node.publish(&warehouse, &warehouse, None).await;
    };
    // Many at a time, so that they share commits.
    for first in (0..lanes).step_by(500) {
        join_all((first..lanes.min(first + 500)).map(one)).await;
    }
}

#[test]
fn the_bounds_in_all_and_per_host_are_reached_and_never_passed() {
    for (in_flight_max, per_host_max) in [(1, 1), (7, 3), (10, 10), (64, 5)] {
        in_virtual_time(async {
            let hosts = Hosts::from([("a", (100, true)), ("b", (15_000, false)), ("c", (1, false)), ("d", (40, true))]);
            let settings = DriverSettings { in_flight_max, per_host_max, ..DriverSettings::default() };
            let (node, counted) = node(hosts, settings).await;
            for host in ["a", "b", "c", "d"] {
                fill(&node, host, 40).await;
            }
            pass(3 * HOUR_MS).await;
            let counted = counted.lock().unwrap();
            assert_eq!(counted.most_in_all, in_flight_max.min(4 * per_host_max), "in all");
            for (host, most) in &counted.most {
                assert!(*most <= per_host_max, "{most} to {host}");
            }
            assert_eq!(counted.tried.len(), 160, "everybody was tried");
            assert_eq!(counted.taken_ms["a"].len() + counted.taken_ms["d"].len(), 80);
            assert_eq!(node.dispatch.counts().busy, 80);
        });
    }
}

/// How long each of fifty healthy lanes waits for its event to be taken, beside so many lanes of hosts that never answer.
fn waits_ms(dead_hosts: &[&'static str], lanes_each: usize) -> Vec<u64> {
    in_virtual_time(async {
        let mut hosts = Hosts::from([("well", (20, true))]);
        hosts.extend(dead_hosts.iter().map(|host| (*host, (15_000, false))));
        let (node, counted) = node(hosts, DriverSettings::default()).await;
        let begin = tokio::time::Instant::now();
        for host in dead_hosts {
            fill(&node, host, lanes_each).await;
        }
        // Until each of them has failed at least once.
        pass(700 * SECOND_MS).await;
        let mut waits_ms = Vec::new();
        for n in 0..50 {
            let (warehouse, sent_ms) = (format!("well-{n}"), begin.elapsed().as_millis() as u64);
            node.route(&warehouse, "well", AfterDead::Continue).await;
            node.publish(&warehouse, &warehouse, None).await;
            pass(SECOND_MS).await;
            let counted = counted.lock().unwrap();
            assert_eq!(counted.taken_ms["well"].len(), n + 1, "lane {n} was not served within a second");
            waits_ms.push(counted.taken_ms["well"][n] - sent_ms);
        }
        assert_eq!(counted.lock().unwrap().tried.len(), dead_hosts.len() * lanes_each + 50);
        waits_ms
    })
}

#[test]
fn ten_thousand_lanes_of_a_dead_receiver_keep_nobody_else_waiting() {
    let alone = waits_ms(&[], 0);
    assert_eq!(alone, [20; 50]);
    assert_eq!(waits_ms(&["dead"], 10_000), alone);
}

#[test]
fn many_dead_receivers_together_keep_nobody_else_waiting() {
    assert_eq!(waits_ms(&["d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7"], 500), [20; 50]);
}

#[test]
fn lanes_of_one_host_take_turns() {
    in_virtual_time(async {
        let (node, counted) =
            node(Hosts::from([("a", (10, true))]), DriverSettings { per_host_max: 1, ..DriverSettings::default() })
                .await;
        node.route("busy", "a", AfterDead::Continue).await;
        for n in 0..1_000 {
            node.publish("busy", &format!("busy-{n}"), None).await;
        }
        fill(&node, "a", 10).await;
        pass(250).await;
        assert_eq!(counted.lock().unwrap().tried.len(), 11, "one lane with a thousand events is one of eleven");
    });
}

#[test]
fn every_one_of_very_many_lanes_is_tried() {
    let lanes = if std::env::var("FENCEPOST_LONG").is_ok() { 100_000 } else { 20_000 };
    in_virtual_time(async {
        let (node, counted) = node(Hosts::from([("a", (5, true)), ("b", (5, false))]), DriverSettings::default()).await;
        fill(&node, "a", lanes / 2).await;
        fill(&node, "b", lanes / 2).await;
        pass(4 * SECOND_MS).await;
        {
            let counted = counted.lock().unwrap();
            assert_eq!(counted.tried.len(), lanes);
            assert_eq!(counted.attempts, lanes, "each once");
            assert_eq!(counted.taken_ms["a"].len(), lanes / 2);
        }
        // A restart would find them again: those that wait are all known.
        assert_eq!(node.dispatch.counts().busy, lanes / 2);
        assert_eq!(node.dispatch.counts().retrying, lanes / 2);
        node.dispatch.act(lane_of("b-0"), Act::Skip { seq: 1, by: "ada".into() }).await.unwrap();
        pass(1).await;
        assert_eq!(node.dispatch.counts().busy, lanes / 2 - 1);
    });
}

#[test]
fn a_host_that_is_down_is_tried_again_at_a_steady_pace_and_new_lanes_do_not_wait_for_that() {
    in_virtual_time(async {
        let (node, counted) = node(Hosts::from([("a", (1, false))]), DriverSettings::default()).await;
        fill(&node, "a", 10_000).await;
        pass(SECOND_MS).await;
        let attempts = || counted.lock().unwrap().attempts;
        assert_eq!(attempts(), 10_000, "first attempts are not slowed down");
        // All are due again from the fifth second on.
        pass(5 * SECOND_MS).await;
        let mut before = attempts();
        for _ in 0..4 {
            pass(SECOND_MS).await;
            let in_one_second = attempts() - before;
            assert!((300..=800).contains(&in_one_second), "{in_one_second} in one second");
            before = attempts();
        }
        node.route("new", "a", AfterDead::Continue).await;
        node.publish("new", "new", None).await;
        pass(5).await;
        assert!(counted.lock().unwrap().tried.contains("new"), "its place is not kept from a first attempt");
        counted.lock().unwrap().healed = true;
        // Only those wait that have failed twice, or just now.
        pass(3 * SECOND_MS).await;
        let busy = node.dispatch.counts().busy;
        assert!((1_000..4_000).contains(&busy), "{busy} were not taken");
        pass(130 * SECOND_MS).await;
        assert_eq!(node.dispatch.counts().busy, 0, "all were taken");
    });
}

#[test]
fn retries_have_their_turns_beside_a_backlog_of_first_attempts() {
    in_virtual_time(async {
        let (node, counted) = node(Hosts::from([("a", (2_000, true))]), DriverSettings::default()).await;
        for warehouse in (0..300).map(|n| format!("never-{n}")).chain(["twice-0".to_owned()]) {
            node.route(&warehouse, "a", AfterDead::Continue).await;
            node.publish(&warehouse, &warehouse, None).await;
        }
        // 128 in a second: these take most of a minute.
        fill(&node, "a", 6_000).await;
        pass(35 * SECOND_MS).await;
        let busy = node.dispatch.counts().busy;
        assert!(busy > 1_000, "the backlog is there: {busy}");
        let lane = node.dispatch.lane(lane_of("twice-0")).await.unwrap().unwrap();
        assert_eq!(lane.lane.settled, 1, "its retry did not wait for the end of the backlog");
        assert!(counted.lock().unwrap().taken_ms["a"].len() > 3_000, "nor did the backlog wait for retries");
    });
}
