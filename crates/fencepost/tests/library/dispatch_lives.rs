//! One lane and one receiver, through the moments that plans hit only by chance: starts, stops, bursts, pauses.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fencepost::{
    dispatch::{Alarm, Delivery, DriverSettings, SealAnew, Sink, Vault, key_file},
    kernel::{
        LaneId,
        dispatch::{LetterVerdict, Transport, WarehouseTransport},
        lane::{Act, AfterDead, AttemptFailure, DeadLetter, Lane, Pause, Trouble},
    },
    store::{Store, memory::Memory},
};

use futures::{FutureExt, future::BoxFuture};

use super::{
    dispatch_receiver::{Ledger, Receiver, Weather},
    dispatch_world::{
        DAY_MS, HOUR_MS, Node, SECOND_MS, Virtual, host_of, in_virtual_time, lane_of, pass, planner, route,
    },
};

/// A store, a warehouse with its weather, and the processes that come and go.
struct House {
    store: Arc<dyn Store>,
    clock: Arc<Virtual>,
    weather: Weather,
    ledger: Arc<Ledger>,
    lives: usize,
    alarm: Arc<Told>,
    vault: Arc<Vault>,
}

/// The driver's alarms.
#[derive(Default)]
struct Told {
    blocked: Mutex<Vec<(u64, u32)>>,
    /// Positions of heads whose receiver has paused their lane.
    halted: Mutex<Vec<u64>>,
    /// Of each failed attempt its number, and in how many seconds the next one is due.
    failed: Mutex<Vec<(u32, Option<u64>)>>,
    missing: Mutex<Vec<String>>,
}

impl Alarm for Told {
    fn died(&self, _: &str, _: (LaneId, u64), _: &DeadLetter) {}
    fn blocked(&self, _: &str, seq: u64, trouble: &Trouble) {
        self.blocked.lock().unwrap().push((seq, trouble.attempts));
    }
    fn halted(&self, _: &str, seq: u64, pause: &Pause, trouble: Option<&Trouble>) {
        assert!(pause.is_by_receiver() && trouble.is_some_and(|trouble| trouble.answer.status == Some(410)));
        self.halted.lock().unwrap().push(seq);
    }
    fn key_missing(&self, lane: &str, key: &str) {
        self.missing.lock().unwrap().push(format!("{lane} {key}"));
    }
    fn attempted(&self, _: &str, _: Result<(), &AttemptFailure>, _: Duration) {}
    fn failed(&self, _: &str, _: u64, trouble: &Trouble, paused: Option<&Pause>) {
        let due_s = trouble.next_at.since(trouble.last_at) / SECOND_MS;
        self.failed.lock().unwrap().push((trouble.attempts, paused.is_none().then_some(due_s)));
    }
}

impl House {
    fn new(weather: Weather) -> Self {
        let (store, ledger) = (Arc::new(Memory::new()), Arc::default());
        Self {
            store,
            clock: Virtual::new(),
            weather,
            ledger,
            lives: 0,
            alarm: Arc::default(),
            vault: Vault::fixed([7; 32]).into(),
        }
    }

    async fn start(&mut self) -> (Node, Arc<AtomicBool>) {
        let dead = Arc::new(AtomicBool::new(false));
        let (clock, weather) = (self.clock.clone(), self.weather);
        let sink = Receiver { clock, weather, ledger: self.ledger.clone(), dead: dead.clone() };
        self.lives += 1;
        let first_commit_id = self.lives as u64 * 1_000_000;
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let alarm = self.alarm.clone();
        let (vault, sink, settings) = (self.vault.clone(), Arc::new(sink), DriverSettings::default());
        let node = Node::with_vault(vault, store, clock, sink, alarm, settings, first_commit_id).await;
        if self.lives == 1 {
            node.route("w", "host", AfterDead::Continue).await;
        }
        (node, dead)
    }

    /// When each attempt began, in milliseconds after the first.
    fn attempts_ms(&self) -> Vec<u64> {
        let seen = self.ledger.sightings();
        seen.iter().map(|attempt| attempt.began.since(seen[0].began)).collect()
    }

    fn taken(&self) -> usize {
        self.ledger.sightings().iter().filter(|seen| seen.taken).count()
    }
}

#[test]
fn the_whole_schedule_of_24_hours_passes_in_virtual_time() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Broken);
        let (node, _) = house.start().await;
        node.publish("w", "e1", None).await;
        pass(DAY_MS + SECOND_MS).await;
        let letter = node.dispatch.letter(lane_of("w"), 1).await.unwrap().expect("it is dead");
        assert_eq!(letter.at.since(letter.first_at) / SECOND_MS, 24 * 3_600);
        let attempts_ms = house.attempts_ms();
        assert_eq!(letter.attempts as usize, attempts_ms.len());
        // 24 by the hour without jitter; a tenth of each hour is jitter.
        assert!((27..=29).contains(&attempts_ms.len()), "{attempts_ms:?}");
        let expected = [0, 5, 30, 120, 600, 3_600].map(|at| at * SECOND_MS);
        for (at_ms, expected_ms) in attempts_ms.iter().zip(expected) {
            assert!((expected_ms..=expected_ms + expected_ms / 10 + 100).contains(at_ms), "{attempts_ms:?}");
        }
        assert_eq!(*attempts_ms.last().unwrap() / 100, DAY_MS / 100, "the last at the horizon");
    });
}

#[test]
fn somebody_is_told_of_a_head_that_fails_when_it_has_failed_for_long_and_once() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Broken);
        let (node, _) = house.start().await;
        node.publish("w", "e1", None).await;
        pass(14 * 60 * SECOND_MS).await;
        assert_eq!(*house.alarm.blocked.lock().unwrap(), []);
        // Between the attempt at ten minutes and the one at an hour.
        pass(2 * 60 * SECOND_MS).await;
        assert_eq!(*house.alarm.blocked.lock().unwrap(), [(1, 5)]);
        pass(20 * HOUR_MS).await;
        assert_eq!(*house.alarm.blocked.lock().unwrap(), [(1, 5)]);
        drop(node);
    });
}

#[test]
fn receiver_that_answers_410_is_told_of_at_once_again_after_a_resume_and_by_the_next_process() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Gone);
        let (node, _) = house.start().await;
        let halted = |house: &House| house.alarm.halted.lock().unwrap().len();
        node.publish("w", "e1", None).await;
        pass(SECOND_MS).await;
        assert_eq!(*house.alarm.halted.lock().unwrap(), [1]);
        // Told once however long it lasts, and not a second time as a head that fails for long.
        pass(2 * DAY_MS).await;
        node.publish("w", "e2", None).await;
        pass(SECOND_MS).await;
        assert_eq!((halted(&house), house.attempts_ms().len()), (1, 1));
        node.resume(lane_of("w")).await;
        pass(SECOND_MS).await;
        assert_eq!((halted(&house), house.attempts_ms().len()), (2, 2));
        node.crash();
        let (node, _) = house.start().await;
        pass(SECOND_MS).await;
        assert_eq!(
            (halted(&house), house.attempts_ms().len()),
            (3, 2),
            "a process that finds it so tells, and sends nothing"
        );
        assert_eq!((&*house.alarm.blocked.lock().unwrap(), &*house.alarm.failed.lock().unwrap()), (&vec![], &vec![]));
        // Under the pause the 24 hours stand still.
        assert!(node.dispatch.letter(lane_of("w"), 1).await.unwrap().is_none());
    });
}

#[test]
fn lane_that_fails_for_long_after_its_receivers_pause_was_lifted_is_told_of() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Gone);
        let (node, _) = house.start().await;
        node.publish("w", "e1", None).await;
        pass(HOUR_MS).await;
        node.crash();
        house.weather = Weather::Broken;
        let (node, _) = house.start().await;
        node.resume(lane_of("w")).await;
        pass(HOUR_MS).await;
        assert_eq!(house.alarm.blocked.lock().unwrap().len(), 1);
    });
}

#[test]
fn each_failed_attempt_is_told_with_its_number_and_the_time_of_the_next() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Broken);
        let (node, _) = house.start().await;
        node.publish("w", "e1", None).await;
        pass(SECOND_MS).await;
        assert_eq!(*house.alarm.failed.lock().unwrap(), [(1, Some(5))]);
        pass(10 * SECOND_MS).await;
        let failed = house.alarm.failed.lock().unwrap().clone();
        assert!(matches!(failed[..], [_, (2, Some(24..=28))]), "{failed:?}");
        drop(node);
    });
}

// A node whose only lane goes to a webhook that the first key has sealed.
async fn sealed(house: &mut House) -> Node {
    let (node, _) = house.start().await;
    let webhook = house.vault.seal_webhook(&planner(), "w", "http://host/hook", &["s3cret of the warehouse"], None);
    let transport = Transport::Webhook(webhook.unwrap());
    let route = WarehouseTransport { transport, ..route("w", "host", AfterDead::Continue) };
    assert_eq!(node.dispatch.put_transport(route, None).await.unwrap().decision(), "routed");
    node
}

#[test]
fn lane_whose_key_is_missing_spends_no_attempt_and_goes_on_when_the_key_is_back() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Up);
        let keys = tempfile::tempdir().unwrap();
        let (first, second) = (keys.path().join("first"), keys.path().join("second"));
        house.vault = Arc::new(Vault::open(&first).unwrap());
        sealed(&mut house).await.crash();
        let needed = house.vault.fingerprints().remove(0);
        // A copy of the store with a key of its own.
        house.vault = Arc::new(Vault::open(&second).unwrap());
        let (node, _) = house.start().await;
        for event in ["e1", "e2"] {
            node.publish("w", event, None).await;
        }
        assert_eq!(
            node.dispatch.reseal(SealAnew::Yes).await.unwrap().missing.into_iter().collect::<Vec<_>>(),
            [&*needed]
        );
        pass(2 * DAY_MS).await;
        let view = node.dispatch.lane(lane_of("w")).await.unwrap().unwrap();
        assert_eq!(
            (view.lane.trouble.as_ref(), view.lane.settled, view.missing_key.as_ref()),
            (None, 0, Some(&needed))
        );
        assert_eq!(*house.alarm.missing.lock().unwrap(), [format!("acme:w {needed}")], "told once");
        assert_eq!((node.dispatch.counts().without_key, node.dispatch.missing_keys().contains(&needed)), (1, true));
        assert!(house.ledger.sightings().is_empty());
        // The old key beside the new one.
        let both = [&second, &first].map(|path| std::fs::read_to_string(path).unwrap()).join("\n");
        std::fs::write(&second, both).unwrap();
        assert_eq!(node.dispatch.refresh_keys(), Ok(true));
        assert_eq!(node.dispatch.reseal(SealAnew::Yes).await.unwrap().resealed, 1);
        pass(SECOND_MS).await;
        assert_eq!((house.taken(), node.dispatch.counts().without_key), (2, 0));
        assert!(node.dispatch.missing_keys().is_empty());
    });
}

#[test]
fn key_that_is_taken_away_under_a_running_server_stops_its_lanes_before_the_next_attempt() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Up);
        let keys = tempfile::tempdir().unwrap();
        let path = keys.path().join("secret.key");
        house.vault = Arc::new(Vault::open(&path).unwrap());
        let node = sealed(&mut house).await;
        node.publish("w", "e1", None).await;
        pass(SECOND_MS).await;
        assert_eq!(house.taken(), 1);
        let kept = std::fs::read_to_string(&path).unwrap();
        key_file::change(&path, key_file::KeyChange::Rotate).unwrap();
        key_file::change(&path, key_file::KeyChange::DropOld).unwrap();
        assert_eq!(node.dispatch.refresh_keys(), Ok(true));
        node.publish("w", "e2", None).await;
        pass(HOUR_MS).await;
        assert_eq!((house.taken(), node.dispatch.counts().without_key), (1, 1));
        std::fs::write(&path, kept).unwrap();
        assert_eq!(node.dispatch.refresh_keys(), Ok(true));
        node.dispatch.reseal(SealAnew::No).await.unwrap();
        pass(SECOND_MS).await;
        assert_eq!(house.taken(), 2);
        assert_eq!(house.alarm.missing.lock().unwrap().len(), 1);
    });
}

#[test]
fn after_a_restart_heads_are_attempted_at_once() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Broken);
        let (node, _) = house.start().await;
        node.publish("w", "e1", None).await;
        pass(2 * HOUR_MS).await;
        let before = house.attempts_ms().len();
        node.crash();
        house.weather = Weather::Up;
        let restarted = house.clock.now();
        let (node, _) = house.start().await;
        pass(SECOND_MS).await;
        assert_eq!(house.attempts_ms().len(), before + 1);
        assert!(house.ledger.sightings()[before].began.since(restarted) < 10);
        assert_eq!(node.dispatch.lane(lane_of("w")).await.unwrap().unwrap().lane.settled, 1);
    });
}

#[test]
fn a_restart_tries_nothing_that_is_paused() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Broken);
        let (node, _) = house.start().await;
        node.publish("w", "e1", None).await;
        pass(SECOND_MS).await;
        node.pause(lane_of("w")).await;
        node.crash();
        let (node, _) = house.start().await;
        pass(DAY_MS).await;
        assert_eq!(house.attempts_ms().len(), 1);
        node.resume(lane_of("w")).await;
        pass(1).await;
        assert_eq!(house.attempts_ms().len(), 2);
    });
}

#[test]
fn an_attempt_under_way_when_the_driver_stops_is_recorded_and_not_sent_again() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Slow(10_000));
        let (node, _) = house.start().await;
        node.publish("w", "e1", None).await;
        node.publish("w", "e2", None).await;
        pass(SECOND_MS).await;
        node.dispatch.stop();
        pass(20 * SECOND_MS).await;
        assert_eq!(house.taken(), 1, "nothing new leaves");
        node.crash();
        let _node = house.start().await;
        pass(60 * SECOND_MS).await;
        let seen: Vec<_> = house.ledger.sightings().into_iter().map(|seen| seen.id).collect();
        assert_eq!(seen, ["e1", "e2"]);
    });
}

#[test]
fn an_attempt_under_way_when_the_process_died_is_sent_again() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Slow(10_000));
        let (node, dead) = house.start().await;
        node.publish("w", "e1", None).await;
        pass(SECOND_MS).await;
        dead.store(true, Ordering::Release);
        node.crash();
        let _node = house.start().await;
        pass(60 * SECOND_MS).await;
        assert_eq!((house.attempts_ms().len(), house.taken()), (2, 1));
    });
}

#[test]
fn a_burst_into_a_lane_that_nobody_has_read_yet_is_delivered() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Up);
        let (node, _) = house.start().await;
        let burst = (0..5).map(|n| format!("e{n}")).collect::<Vec<_>>();
        futures::future::join_all(burst.iter().map(|id| node.publish("w", id, None))).await;
        pass(SECOND_MS).await;
        assert_eq!(house.taken(), 5);
        node.crash();
        let (node, _) = house.start().await;
        // The lane was found, and something is new before its rows were read.
        node.publish("w", "late", None).await;
        pass(SECOND_MS).await;
        assert_eq!(house.taken(), 6);
    });
}

#[test]
fn an_event_for_a_lane_that_was_paused_while_idle_waits() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Up);
        let (node, _) = house.start().await;
        node.publish("w", "e1", None).await;
        pass(SECOND_MS).await;
        node.pause(lane_of("w")).await;
        pass(SECOND_MS).await;
        node.publish("w", "e2", None).await;
        pass(DAY_MS).await;
        assert_eq!(house.taken(), 1);
        assert_eq!(node.dispatch.counts().standing, 1);
        node.resume(lane_of("w")).await;
        pass(SECOND_MS).await;
        assert_eq!(house.taken(), 2);
    });
}

/// Takes everything, and writes down which way each event came.
#[derive(Default)]
struct Ways(Mutex<Vec<(String, String)>>);

impl Sink for Ways {
    fn host(&self, route: &WarehouseTransport) -> String {
        host_of(route)
    }

    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, Result<(), AttemptFailure>> {
        self.0.lock().unwrap().push((delivery.entry.correlation_id.clone(), host_of(&delivery.transport)));
        Box::pin(std::future::ready(Ok(())))
    }
}

#[test]
fn an_event_leaves_over_the_route_that_it_was_published_over_also_where_another_node_has_changed_it() {
    in_virtual_time(async {
        let (store, clock, ways) = (Arc::new(Memory::new()), Virtual::new(), Arc::new(Ways::default()));
        let start =
            |id| Node::start(store.clone(), clock.clone(), ways.clone(), Arc::new(()), DriverSettings::default(), id);
        let node = start(1).await;
        node.route("w", "old", AfterDead::Continue).await;
        node.publish("w", "e1", None).await;
        pass(SECOND_MS).await;
        // Another's word reaches this node only later.
        start(1_000_000).await.route("w", "new", AfterDead::Continue).await;
        node.publish("w", "e2", None).await;
        pass(SECOND_MS).await;
        let expected = [("e1", "old"), ("e2", "new")].map(|(id, host)| (id.to_owned(), host.to_owned()));
        assert_eq!(*ways.0.lock().unwrap(), expected);
    });
}

// The caller goes away as soon as the command is in the queue.
fn ask_and_go<T>(asked: impl Future<Output = T>) {
    assert!(asked.now_or_never().is_none(), "it was answered at once");
}

async fn lane(node: &Node) -> Arc<Lane> {
    node.dispatch.lane(lane_of("w")).await.unwrap().unwrap().lane
}

#[test]
fn a_persons_act_on_a_lane_counts_although_they_do_not_wait_for_the_answer() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Up);
        let (node, _) = house.start().await;
        node.publish("w", "e1", None).await;
        pass(SECOND_MS).await;
        ask_and_go(node.dispatch.act(lane_of("w"), Act::Pause { by: "ada".into(), why: "tests".into() }));
        pass(SECOND_MS).await;
        node.publish("w", "e2", None).await;
        pass(SECOND_MS).await;
        assert_eq!(house.taken(), 1, "the lane is paused");
        ask_and_go(node.dispatch.act(lane_of("w"), Act::Resume));
        pass(SECOND_MS).await;
        assert_eq!(house.taken(), 2, "it goes on");
    });
}

#[test]
fn a_new_route_and_a_redrive_are_heard_also_where_nobody_waits_for_the_answer() {
    in_virtual_time(async {
        let mut house = House::new(Weather::Broken);
        let (node, _) = house.start().await;
        node.publish("w", "e1", None).await;
        pass(HOUR_MS).await;
        ask_and_go(node.dispatch.put_transport(route("w", "host", AfterDead::Block), None));
        pass(DAY_MS).await;
        assert!(lane(&node).await.blocked, "the head has died under the new route");
        let before = house.attempts_ms().len();
        ask_and_go(node.dispatch.decide_letter(lane_of("w"), 1, LetterVerdict::Redrive { force: None }, "ada"));
        pass(SECOND_MS).await;
        assert_eq!(house.attempts_ms().len(), before + 1, "the lane is not halted any more");
    });
}
