//! The nodes of one run: engines over one twin, which join, die alone and are held past leases while the store lives on.
//! Never touches the store: only a crash of the whole machine does. Made by `world` at each start.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use fencepost::{
    dispatch::Dispatch,
    engine::{Engine, EngineLimits, Error},
};
use fencepost_store::Store;
use tokio::{task::AbortHandle, time::sleep};

use crate::{
    client::{CrashSignal, Live, Network, Node},
    clock::Clocks,
    disk::Disk,
    hold::Gate,
    items::Desk,
    lanes::Receivers,
    twin::{Door, OldReading, Twin},
};

/// Nodes at one time.
pub(crate) const NODES_MAX: usize = 3;

/// Everyone who serves one run of the store.
pub(crate) struct Nodes {
    run: usize,
    pub(crate) twin: Arc<Twin>,
    clocks: Arc<Clocks>,
    network: Arc<Network>,
    rng: fastrand::Rng,
    members: Vec<Member>,
    /// How many there ever were: the number of the next.
    joined: usize,
    trouble_ms_max: u64,
    time: Time,
}

/// How the clocks of a world behave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    /// How far two nodes may be apart.
    pub(crate) skew_ms: u64,
    /// How far the clock of a shared store's server is set at once.
    pub(crate) step_ms_max: i64,
    /// Whether a node may read from the old primary for a moment after a failover.
    pub(crate) reads_linger: bool,
    /// Whether a standby may lag behind, so that a failover to it loses what was acknowledged.
    pub(crate) standby_lags: bool,
}

/// A node, and what is needed to hold or to kill it.
struct Member {
    node: Node,
    loops: AbortHandle,
    gate: Arc<Gate>,
    heart: Option<Heartbeat>,
}

/// The heartbeat of a node on a shared store.
struct Heartbeat {
    twin: Arc<Twin>,
    door: Arc<Door>,
    beats: AbortHandle,
}

/// By then every message that left a node before it died has been read.
const READ_BY: Duration = Duration::from_secs(2);
/// How often a node tries to start its driver.
const STARTS_MAX: u32 = 40;

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.beats.abort();
        let (twin, time_id) = (self.twin.clone(), self.door.time_id());
        tokio::spawn(async move {
            sleep(READ_BY).await;
            twin.node_ends(time_id);
        });
    }
}

impl Nodes {
    pub(crate) fn new(
        run: usize,
        twin: Arc<Twin>,
        clocks: Arc<Clocks>,
        network: Arc<Network>,
        mut rng: fastrand::Rng,
        time: Time,
    ) -> Self {
        let trouble_ms_max = [1_500, 6_000, 20_000][rng.usize(0..3)];
        Self { run, twin, clocks, network, rng, members: Vec::new(), joined: 0, trouble_ms_max, time }
    }

    /// One more engine over the store.
    pub(crate) async fn join(&mut self) -> Result<(), Error> {
        let (waiters_max, batch_max) = (self.rng.usize(1..6), self.rng.usize(1..9));
        let limits = EngineLimits {
            beside_min: 1,
            waiters_max,
            batch_max,
            // Some commits are too large for their rows, and some for the bytes that are read for them.
            batch_rows_max: 2 + batch_max / 2,
            batch_bytes_max: 3 << 10,
            queue_max: self.rng.usize(2..40),
            patience: Duration::from_millis(self.rng.u64(300..5_000)),
            first_commit_id: Some(self.rng.u64(..)),
            ..EngineLimits::default()
        };
        let (number, gate) = (self.joined, Arc::new(Gate::default()));
        self.network.recorder.note(format_args!("node {}.{number} starts: {limits:?}", self.run));
        let name = format!("{}.{number}", self.run);
        let skew_ms = self.time.skew_ms;
        let door = || Arc::new(Door::new(name.clone(), self.twin.clone(), gate.clone(), skew_ms, self.rng.fork()));
        let door = self.twin.promises().shared.then(door);
        let heart = door.clone().map(|door| Heartbeat {
            twin: self.twin.clone(),
            door: door.clone(),
            beats: tokio::spawn(door.beat(self.clocks.clone())).abort_handle(),
        });
        let store: Arc<dyn Store> = match door {
            Some(door) => door,
            None => self.twin.clone(),
        };
        // With an executor of their own, replies leave a moment after the commit loop let go of them.
        let askers = self.rng.bool().then(tokio::runtime::Handle::current);
        let (engine, loops) = Engine::new(store, self.clocks.clone(), limits, Box::new(()), askers).await?;
        let own = gate.clone();
        let loops = tokio::spawn(async move { own.pass(loops).await }).abort_handle();
        let death = Arc::<CrashSignal>::default();
        let lanes = self.drive(&engine, name, &gate, &death).await;
        let items = self.take_items(&engine, &gate, &death);
        self.members.push(Member { node: Node { number, engine, lanes, items, death }, loops, gate, heart });
        self.joined += 1;
        self.tell();
        Ok(())
    }

    // Its background work ends with the node.
    fn take_items(&self, engine: &Engine, gate: &Arc<Gate>, death: &Arc<CrashSignal>) -> Option<Desk> {
        let items = self.network.items.clone()?;
        let desk = Desk::new(&items, engine, self.network.plant)?;
        let (clocks, recorder) = (self.clocks.clone(), self.network.recorder.clone());
        let follow_up = desk.clone().follow_up(items, clocks, recorder, gate.clone(), self.joined);
        let death = death.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = death.heard() => {}
                () = follow_up => {}
            }
        });
        Some(desk)
    }

    // A process that cannot start its driver tries again.
    async fn drive(
        &mut self,
        engine: &Engine,
        name: String,
        gate: &Arc<Gate>,
        death: &Arc<CrashSignal>,
    ) -> Option<Dispatch> {
        let lanes = self.network.lanes.clone()?;
        let (alone, recorder) = (!self.twin.promises().shared, self.network.recorder.clone());
        for _ in 0..STARTS_MAX {
            let way_out = Receivers {
                lanes: lanes.clone(),
                recorder: recorder.clone(),
                node: (self.run, self.joined),
                alone,
                gate: gate.clone(),
                death: death.clone(),
                plant: self.network.plant,
            };
            let name = if alone { String::new() } else { name.clone() };
            if let Ok(dispatch) = lanes.drive(engine.clone(), name, way_out).await {
                return Some(dispatch);
            }
            sleep(Duration::from_millis(50)).await;
        }
        recorder.tally("driver_did_not_start");
        None
    }

    /// Injects faults into the nodes while the store lives. Never ends.
    pub(crate) async fn trouble(&mut self) {
        if !self.twin.promises().shared {
            return std::future::pending().await;
        }
        loop {
            let wait_ms = self.rng.u64(0..=self.trouble_ms_max);
            sleep(Duration::from_millis(wait_ms)).await;
            match self.rng.u8(0..14) {
                0..2 => self.one_dies(),
                8..10 => self.fail_over(),
                10..12 => self.server_clock_is_set(),
                12 => self.one_closes(),
                13 if self.time.standby_lags => self.twin.standby_lags(),
                2..5 if self.members.len() < NODES_MAX => {
                    if self.join().await.is_ok() {
                        self.network.recorder.tally("node_joined");
                    }
                }
                _ => self.one_is_held(),
            }
        }
    }

    /// Lets paused nodes go on, and starts one if none is left.
    pub(crate) async fn settle(&mut self) {
        for member in &self.members {
            member.gate.open();
        }
        if self.members.is_empty() {
            let _ = self.join().await;
        }
    }

    /// The machine dies, and everyone with it; what is left of the disk.
    pub(crate) fn stop(&mut self, how: &str) -> Disk {
        *self.network.live.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.members.iter().for_each(|member| member.loops.abort());
        let disk = self.twin.crash();
        self.network.recorder.end_run(how);
        self.members.drain(..).for_each(|member| member.node.dies());
        disk
    }

    fn one_dies(&mut self) {
        if self.members.is_empty() {
            return;
        }
        let Member { node, loops, .. } = self.members.swap_remove(self.rng.usize(0..self.members.len()));
        self.tell();
        loops.abort();
        self.network.recorder.count("node_died", format_args!("{}.{}", self.run, node.number));
        self.network.recorder.node_ends((self.run, node.number));
        node.dies();
    }

    fn server_clock_is_set(&mut self) {
        let by_ms = self.rng.i64(-self.time.step_ms_max..=self.time.step_ms_max);
        self.twin.step_server(by_ms);
        let name = if by_ms < 0 { "server_clock_back" } else { "server_clock_forward" };
        self.network.recorder.count(name, format_args!("{by_ms} ms"));
    }

    // The next primary has another clock.
    fn fail_over(&mut self) {
        let has_all = self.twin.fail_over();
        if has_all && self.time.reads_linger && self.rng.bool() {
            self.one_reads_the_old_primary();
        }
        if self.rng.bool() {
            let by_ms = self.rng.i64(-self.time.step_ms_max..=self.time.step_ms_max);
            self.twin.step_server(by_ms);
            let name = if by_ms < 0 { "failover_to_clock_behind" } else { "failover_to_clock_ahead" };
            self.network.recorder.count(name, format_args!("{by_ms} ms"));
        }
    }

    // Its commits go to the new primary: the moment between a load and the loss of its connection, drawn out.
    fn one_reads_the_old_primary(&mut self) {
        let Some(member) = self.rng.choice(&self.members) else { return };
        let Some(heart) = &member.heart else { return };
        let (door, recorder, wait_ms) = (heart.door.clone(), self.network.recorder.clone(), self.rng.u64(1..600));
        let place = recorder.old_reads_begin((self.run, member.node.number));
        door.read_old_primary(OldReading::Begins);
        tokio::spawn(async move {
            sleep(Duration::from_millis(wait_ms)).await;
            door.read_old_primary(OldReading::Ends);
            recorder.old_reads_end(place);
        });
    }

    // As at the end of a process: it gets no new requests, waiters are sent away, and running requests are answered.
    fn one_closes(&mut self) {
        if self.members.is_empty() {
            return;
        }
        let Member { node, loops, gate, heart } = self.members.swap_remove(self.rng.usize(0..self.members.len()));
        self.tell();
        gate.open();
        let recorder = self.network.recorder.clone();
        recorder.count("node_closed", format_args!("{}.{}", self.run, node.number));
        if node.engine.waiting() > 0 {
            recorder.tally("waiters_dismissed");
        }
        node.engine.dismiss_waiters();
        let run = self.run;
        tokio::spawn(async move {
            if let Some(lanes) = &node.lanes {
                lanes.stop();
                lanes.rest(Duration::from_secs(3)).await;
            }
            for _ in 0..200 {
                sleep(Duration::from_millis(20)).await;
                if node.engine.asking() == 0 {
                    break;
                }
            }
            loops.abort();
            drop(heart);
            recorder.node_ends((run, node.number));
            node.dies();
        });
    }

    fn one_is_held(&mut self) {
        let Some(member) = self.rng.choice(&self.members).filter(|member| !member.gate.is_shut()) else { return };
        let wait_ms_max = [400, 2_500, 6_000][self.rng.usize(0..3)];
        let wait_ms = self.rng.u64(50..wait_ms_max);
        let (gate, recorder) = (member.gate.clone(), self.network.recorder.clone());
        let name = format!("{}.{}", self.run, member.node.number);
        recorder.count("node_paused", format_args!("{name} for {wait_ms} ms"));
        recorder.node_pauses(self.run);
        gate.shut();
        tokio::spawn(async move {
            sleep(Duration::from_millis(wait_ms)).await;
            if gate.open() {
                recorder.note(format_args!("node {name} goes on"));
            }
        });
    }

    // Whom a request can reach from now on.
    fn tell(&self) {
        let nodes = self.members.iter().map(|member| member.node.clone()).collect();
        let promises = self.twin.promises();
        let shared = (promises.shared && promises.many_rows).then(|| self.twin.clone());
        *self.network.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(Live { run: self.run, nodes, shared });
    }
}
