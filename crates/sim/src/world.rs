//! One world under one seed: starts nodes over what the last crash left, crashes them, jumps the wall, and at the
//! end looks at every key once more. Never uses real time, threads or any order that a second run could change.
//! Called by `run`.

use std::{sync::Arc, time::Duration};

use fencepost_kernel::key::Kind;
use fencepost_store::Store;
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    acts::{self, forgetter},
    callers::{Worker, housekeeper, operator, reader},
    client::{Client, Network},
    clock::Clocks,
    disk::Disk,
    faults::Faults,
    history::{Ask, History},
    items::{Items, PARTNERS, partner},
    lanes::{Lanes, pause_some, person, poller, publish, publisher, visit},
    nodes::{NODES_MAX, Nodes, Time},
    plant::Plant,
    recorder::Recorder,
    town::{Town, version_of},
    twin::Twin,
    users::user,
};

/// How long lanes are given to drain at least, and at most.
const DRAIN_S_MIN: u32 = 70;
const DRAIN_S_MAX: u32 = 600;
/// A lane that has not moved for so long does not move by itself: nodes have looked at it since.
const STILL_S: u32 = 40;
/// The same for the lane of a receiver that is down for good: each of its events dies a day after its first attempt.
const STILL_HOURS: u32 = 30;

struct World {
    clocks: Arc<Clocks>,
    network: Arc<Network>,
    rng: fastrand::Rng,
    runs: usize,
    plant: Option<Plant>,
    jump_ms_max: i64,
    time: Time,
}

pub(crate) fn live(seed: u64, plant: Option<Plant>, with_text: bool) -> Result<History, std::io::Error> {
    // The driver draws its jitter from the thread's generator.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(async move {
        let mut rng = fastrand::Rng::with_seed(seed);
        let clocks = Arc::new(Clocks::new(plant));
        let town = Arc::new(Town::draw(&mut rng));
        let jump_ms_max = [300, 5_000, 90_000, 7_200_000][rng.usize(0..4)];
        let faults = Faults::draw(&mut rng);
        let time = Time {
            skew_ms: [0, 0, 30, 200][rng.usize(0..4)],
            step_ms_max: [0, 400, 5_000, 45_000][rng.usize(0..4)],
            standby_lags: rng.u8(0..4) == 0,
            reads_linger: rng.bool(),
        };
        let history = History { rules: town.rules(), skew_ms: time.skew_ms, with_text, ..History::default() };
        let recorder = Arc::new(Recorder::new(clocks.clone(), history));
        recorder.note(format_args!("seed {seed} plant {plant:?} {faults:?} {time:?} {:?}", town.rules()));
        if town.single_rows {
            recorder.tally("single_row_store");
        }
        // From another generator: worlds without lanes stay as they are.
        let mut own = fastrand::Rng::with_seed(!seed);
        let lanes = (!town.single_rows && own.bool()).then(|| Lanes::draw(&mut own, clocks.clone()).into());
        let items = items_of(seed, &town, &recorder);
        let network =
            Arc::new(Network { live: None.into(), town, lanes, items, faults, plant, recorder: recorder.clone() });
        World { clocks, network, rng, runs: 0, plant, jump_ms_max, time }.unfold().await;
        recorder.take()
    }))
}

impl World {
    async fn unfold(mut self) {
        let workers = self.spawn_workers();
        let background = self.spawn_background();
        let mut disk = Disk::default();
        let crashes = self.rng.u32(1..=4);
        for _ in 0..crashes {
            let faults = self.network.faults.clone();
            disk = match self.start(disk, faults).await {
                Ok(nodes) => self.run_until_crash(nodes).await,
                Err(disk) => disk,
            };
            self.jump();
            let downtime_ms = self.rng.u64(0..1_500);
            sleep(Duration::from_millis(downtime_ms)).await;
        }
        // The last run has a sound machine; the callers, the network and the nodes stay as they are.
        if let Ok(mut nodes) = self.start(disk, Faults::none()).await {
            let done = async {
                for worker in workers {
                    let _ = worker.await;
                }
            };
            tokio::select! {
                biased;
                () = done => {}
                () = nodes.trouble() => {}
            }
            nodes.settle().await;
            // Stragglers on the network arrive.
            sleep(Duration::from_secs(4)).await;
            background.iter().for_each(|task| task.abort());
            self.look_again().await;
            self.items_end(&nodes).await;
            let Some(lanes) = self.network.lanes.clone() else { return drop(nodes.stop("the end")) };
            // A driver looks for a lost entry five times a second: for days, that takes too long.
            if nodes.twin.promises().shared || self.plant == Some(Plant::AppendLost) {
                self.drain(&lanes, &nodes).await;
                nodes.stop("the end");
            } else {
                self.days(&lanes, nodes).await;
            }
        }
    }

    // All that can leave does so within a minute: receivers are well, and nodes look at all lanes twice in that time. A head that
    // has failed may be due at any second of it, and then the lane moves on: it is waited for until no lane moves any more.
    async fn drain(&mut self, lanes: &Lanes, nodes: &Nodes) {
        lanes.heal();
        let mut calm = self.calm("person");
        visit(&mut calm).await;
        let left = async || nodes.twin.snapshot().await.map(|rows| lanes.left(&rows));
        let (mut settled, mut moved_s) = (0, 0);
        for second in 0..DRAIN_S_MAX {
            if let Ok(left) = left().await {
                let now: u64 = left.values().map(|lane| lane.settled).sum();
                if now != settled {
                    (settled, moved_s) = (now, second);
                }
                let is_empty = left.values().all(|lane| lane.polled || lane.settled == lane.tail);
                if is_empty || second >= DRAIN_S_MIN.max(moved_s + STILL_S) {
                    break;
                }
            }
            sleep(Duration::from_secs(1)).await;
        }
        if let Ok(left) = left().await {
            self.network.recorder.lanes_left(left, true);
        }
    }

    // Arrivals are followed up, also one that a node with a later time has dated.
    async fn items_end(&self, nodes: &Nodes) {
        let Some(items) = self.network.items.clone() else { return };
        for second in 0..120 {
            let Ok(rows) = nodes.twin.snapshot().await else { break };
            if second == 119 || !Items::any_arrival(&rows) {
                self.network.recorder.items_left(Items::left(&rows));
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        items.end();
    }

    // One machine for days, in which events reach their horizon; then all receivers are well but those that never are again.
    async fn days(&mut self, lanes: &Lanes, mut nodes: Nodes) {
        let recorder = self.network.recorder.clone();
        lanes.days_begin();
        let hours = self.rng.u32(30..60);
        let (mut settled, mut moved) = (0, 0);
        for hour in 0.. {
            if hour == hours {
                lanes.heal();
            }
            let mut calm = self.calm("days");
            if hour < 20 && self.rng.u8(0..3) == 0 {
                publish(&mut calm).await;
            }
            if hour < hours && self.rng.u8(0..8) == 0 {
                pause_some(&mut calm).await;
            }
            let wait_ms = self.rng.u64(0..3_600_000);
            sleep(Duration::from_millis(wait_ms)).await;
            if hour < hours && self.rng.u8(0..12) == 0 {
                let disk = nodes.stop("a crash among days");
                recorder.tally("crash_among_days");
                let Ok(started) = self.start_alone(disk).await else { return };
                nodes = started;
            }
            if hour >= hours || self.rng.u8(0..3) == 0 {
                visit(&mut self.calm("person")).await;
            }
            sleep(Duration::from_millis(3_600_000 - wait_ms)).await;
            let Ok(rows) = nodes.twin.snapshot().await else { return };
            let left = lanes.left(&rows);
            let now: u64 = left.values().map(|lane| lane.settled).sum();
            if now != settled {
                (settled, moved) = (now, hour);
            }
            let is_empty = left.values().all(|lane| lane.polled || lane.settled == lane.tail);
            if hour > hours && (is_empty || hour >= hours.max(moved) + STILL_HOURS) {
                recorder.tally("days");
                recorder.lanes_left(left, true);
                break;
            }
        }
        nodes.stop("the end");
    }

    async fn start_alone(&mut self, disk: Disk) -> Result<Nodes, Disk> {
        self.start_with(disk, Faults::none(), 0).await
    }

    // A client over a network that loses nothing.
    fn calm(&mut self, name: &str) -> Client {
        let mut client = self.client(name.to_owned());
        client.network = Arc::new(Network {
            live: self.network.live().into(),
            town: self.network.town.clone(),
            lanes: self.network.lanes.clone(),
            items: self.network.items.clone(),
            faults: Faults::none(),
            plant: self.plant,
            recorder: self.network.recorder.clone(),
        });
        client
    }

    fn spawn_workers(&mut self) -> Vec<JoinHandle<()>> {
        let count = self.rng.u32(3..=12);
        (0..count)
            .map(|number| {
                let steps = self.rng.u32(8..=22);
                tokio::spawn(Worker::new(self.client(format!("w{number}"))).live(steps))
            })
            .collect()
    }

    fn spawn_background(&mut self) -> Vec<JoinHandle<()>> {
        let (clocks, recorder) = (self.clocks.clone(), self.network.recorder.clone());
        let town = self.network.town.clone();
        let (mut rng, jump_ms_max) = (self.rng.fork(), self.jump_ms_max);
        let jumps = tokio::spawn(async move {
            loop {
                sleep(Duration::from_millis(rng.u64(200..9_000))).await;
                jump(&clocks, &recorder, &mut rng, jump_ms_max);
                if town.change_policy() {
                    recorder.count("policy_changed", "on_lapse or retain");
                }
            }
        });
        let operator = tokio::spawn(operator(self.client("operator".to_owned())));
        let reader = tokio::spawn(reader(self.client("reader".to_owned())));
        let user = tokio::spawn(user(self.client("user".to_owned())));
        let forgetter = tokio::spawn(forgetter(self.client("forgetter".to_owned())));
        let housekeeper = tokio::spawn(housekeeper(self.client("housekeeper".to_owned())));
        let mut background = vec![jumps, operator, reader, user, forgetter, housekeeper];
        background.extend(self.spawn_partners());
        if let Some(lanes) = self.network.lanes.clone() {
            let client = |name: &str, rng| Client::new(name.to_owned(), self.network.clone(), rng);
            let mut rng = self.rng.fork();
            background.push(tokio::spawn(publisher(client("planner", rng.fork()))));
            background.push(tokio::spawn(publisher(client("planner2", rng.fork()))));
            background.push(tokio::spawn(person(client("person", rng.fork()))));
            if lanes.any_polled() {
                background.push(tokio::spawn(poller(client("poller", rng.fork()))));
            }
        }
        background
    }

    fn spawn_partners(&mut self) -> Vec<JoinHandle<()>> {
        if self.network.items.is_none() {
            return Vec::new();
        }
        let hands = (0..PARTNERS.len()).flat_map(|number| [(number, "a"), (number, "b")]);
        hands
            .map(|(number, hand)| {
                let client = self.client(format!("{}-{hand}", PARTNERS[number]));
                tokio::spawn(partner(client, number))
            })
            .collect()
    }

    fn client(&mut self, name: String) -> Client {
        Client::new(name, self.network.clone(), self.rng.fork())
    }

    fn jump(&mut self) {
        if self.rng.bool() {
            jump(&self.clocks, &self.network.recorder, &mut self.rng, self.jump_ms_max);
        }
    }

    // One engine with the store to itself, or up to three that share it. One that cannot start leaves the disk as it was.
    async fn start(&mut self, disk: Disk, faults: Faults) -> Result<Nodes, Disk> {
        let draw = self.rng.usize(0..=NODES_MAX);
        self.start_with(disk, faults, draw).await
    }

    async fn start_with(&mut self, disk: Disk, faults: Faults, draw: usize) -> Result<Nodes, Disk> {
        let (count, shared) = (draw.max(1), draw > 0);
        let clock = shared.then(|| self.clocks.clone());
        let recorder = self.network.recorder.clone();
        let (rng, many_rows) = (self.rng.fork(), !self.network.town.single_rows);
        let twin = match Twin::open(disk, faults, self.plant, rng, recorder.clone(), clock, many_rows).await {
            Ok(twin) => twin,
            Err(error) => {
                recorder.count("damaged", error);
                return Err(Disk::default());
            }
        };
        if self.network.items.is_some() && twin.snapshot().await.is_ok_and(|rows| Items::any_arrival(&rows)) {
            recorder.tally("crash_before_follow_up");
        }
        let floor_ms = twin.time_floor().await.map_or(0, |floor| floor.0);
        let before_ms = self.clocks.store_ms();
        self.clocks.start_store_time(floor_ms);
        if self.clocks.store_ms() < before_ms {
            recorder.tally("restarted_in_the_past");
        }
        if shared {
            recorder.batches_part();
        }
        recorder.note(format_args!("run {} starts: floor {floor_ms}, {count} nodes, shared: {shared}", self.runs));
        let (clocks, network) = (self.clocks.clone(), self.network.clone());
        let mut nodes = Nodes::new(self.runs, twin.clone(), clocks, network, self.rng.fork(), self.time);
        for _ in 0..count {
            if nodes.join().await.is_err() {
                return Err(twin.crash());
            }
        }
        self.runs += 1;
        Ok(nodes)
    }

    async fn run_until_crash(&mut self, mut nodes: Nodes) -> Disk {
        let life_ms = self.rng.u64(50..14_000);
        let twin = nodes.twin.clone();
        let of_itself = tokio::select! {
            biased;
            () = twin.dies() => true,
            () = sleep(Duration::from_millis(life_ms)) => false,
            () = nodes.trouble() => false,
        };
        let how = if of_itself { "crash within a commit" } else { "crash" };
        self.network.recorder.tally(if of_itself { "crash_in_commit" } else { "crash_any_time" });
        nodes.stop(how)
    }

    // Every acknowledged write must still be there, for every reader.
    async fn look_again(&mut self) {
        let mut client = self.calm("auditor");
        for (base, seq) in self.network.recorder.keys() {
            let ask = Ask::Claim { body: None, version: version_of(&base), lease_ms: 100, wait_ms: 0 };
            client.send(&base, seq, ask).await;
        }
        let recorder = self.network.recorder.clone();
        if let Some((run, node)) = client.network.some_node(&mut client.rng)
            && node.engine.keeps(Kind::Audit)
        {
            let asked_at = recorder.moment("the audit is asked for");
            if let Some(lines) = acts::read(&node.engine).await {
                recorder.audited((run, node.number), asked_at, lines);
            }
        }
    }
}

// From another generator: worlds without items stay as they are.
fn items_of(seed: u64, town: &Town, recorder: &Recorder) -> Option<Arc<Items>> {
    let mut own = fastrand::Rng::with_seed(seed.rotate_left(17) ^ 0x17e5);
    if town.single_rows || own.u8(0..3) > 0 {
        return None;
    }
    let items = Items::draw(&mut own)?;
    items.announce(recorder);
    Some(items.into())
}

// The wall goes anywhere within the world's span, not from where it was: it comes back as often as it leaves.
fn jump(clocks: &Clocks, recorder: &Recorder, rng: &mut fastrand::Rng, ms_max: i64) {
    let by_ms = clocks.jump_to(rng.i64(-ms_max..=ms_max));
    recorder.count(if by_ms < 0 { "wall_back" } else { "wall_forward" }, format_args!("{by_ms} ms"));
}
