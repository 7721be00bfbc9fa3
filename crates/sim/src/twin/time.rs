//! The time of a shared store's server, each node's estimate of it, and the floor that their heartbeats raise.
//! Never lets a node's time go back, and never runs ahead of every living node and the server.
//! Kept by the twin: the doors read it, `nodes` steps the server's clock.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fencepost_kernel::Millis;
use fencepost_store::Store;
use futures::FutureExt;
use tokio::time::sleep;

use super::{Twin, lock};
use crate::{clock::Clocks, plant::Plant};

/// Time between a node's heartbeats.
pub(super) const BEAT_MS: u64 = 2_000;
/// How often while the server is behind.
pub(super) const BEAT_SOON_MS: u64 = 250;
/// How long a node that has just started does so, too.
pub(super) const SETTLED_MS: u64 = 2_500;
/// From which difference on it counts as behind.
pub(super) const BEHIND_MS: u64 = 250;
/// Bound of a heartbeat's age while a node beats soon: one pause, there and back, and the polling interval.
const BEAT_AGE_MS_MAX: u64 = BEAT_SOON_MS + 2 * 40 + LOOK_MS;
const LOOK_MS: u64 = 20;
/// How far two nodes may be apart then.
const APART_MS_MAX: u64 = 400;

/// The nodes' estimates of the server's time, for one run.
#[derive(Default)]
pub(super) struct Times {
    /// Raised by heartbeats.
    floor_ms: u64,
    nodes: BTreeMap<usize, NodeTime>,
    joined: usize,
    /// When a node that starts may last have missed the others' times.
    shaken_ms: u64,
    /// When all had reported their time since then.
    told_ms: u64,
    /// How far apart the nodes were last declared to be.
    apart_ms: u64,
}

impl Times {
    fn all_beaten_since(&self, at_ms: u64) -> bool {
        self.nodes.values().all(|node| node.beaten_ms > at_ms)
    }
}

struct NodeTime {
    lead_ms: i64,
    /// When its last heartbeat that was answered left.
    beaten_ms: u64,
}

impl Twin {
    /// One more node; the name of its time.
    pub(super) fn node_starts(&self, clock: &Clocks) -> usize {
        let floor_ms = self.floor_ms();
        let mut times = lock(&self.times);
        let start_ms = match self.plant {
            Some(Plant::NodeBehind) => clock.server_ms(),
            _ => clock.server_ms().max(floor_ms + 1),
        };
        if times.nodes.is_empty() {
            clock.fall_back_to(start_ms);
        }
        let node = NodeTime { lead_ms: lead_ms(clock, start_ms), beaten_ms: clock.elapsed_ms() };
        let id = times.joined;
        times.joined += 1;
        times.nodes.insert(id, node);
        if start_ms > clock.server_ms() + BEHIND_MS {
            self.recorder.tally("node_started_ahead_of_server");
        }
        id
    }

    /// A node ends: a time that only it knew is lost with it.
    pub(crate) fn node_ends(&self, id: usize) {
        let Some(clock) = self.clock.as_ref().filter(|_| lock(&self.disk).is_some()) else { return };
        let floor_ms = self.floor_ms();
        let mut times = lock(&self.times);
        times.nodes.remove(&id);
        let known_ms = times.nodes.values().map(|node| node_ms(clock, node)).max();
        if let Some(known_ms) = known_ms {
            clock.fall_back_to(known_ms.max(clock.server_ms()).max(floor_ms));
        }
    }

    /// A node's estimate of the time.
    pub(super) fn node_ms(&self, id: usize, clock: &Clocks) -> u64 {
        lock(&self.times).nodes.get(&id).map_or_else(|| clock.server_ms(), |node| node_ms(clock, node))
    }

    /// A node learns the time from an answer.
    pub(super) fn node_hears(&self, id: usize, clock: &Clocks, told_ms: u64) {
        if let Some(node) = lock(&self.times).nodes.get_mut(&id) {
            node.lead_ms = node.lead_ms.max(lead_ms(clock, told_ms));
        }
    }

    /// A heartbeat reaches the store: it raises the floor and returns the server's time and the floor.
    pub(super) fn beaten(&self, node_ms: u64, clock: &Clocks) -> [u64; 2] {
        if self.plant == Some(Plant::NodeBehind) {
            return [clock.server_ms(), 0];
        }
        let floor_ms = self.floor_ms().max(node_ms);
        lock(&self.times).floor_ms = floor_ms;
        [clock.server_ms(), floor_ms]
    }

    /// Its answer has arrived.
    pub(super) fn node_has_beaten(&self, id: usize, left_ms: u64) {
        if let Some(node) = lock(&self.times).nodes.get_mut(&id) {
            node.beaten_ms = left_ms;
        }
    }

    pub(super) fn floor_ms(&self) -> u64 {
        let committed = self.view().time_floor().now_or_never().and_then(Result::ok).unwrap_or_default();
        lock(&self.times).floor_ms.max(committed.0)
    }

    /// Sets the server's clock. Forward, every answer shows it; back, the nodes keep the time that they know.
    pub(crate) fn step_server(&self, by_ms: i64) {
        let Some(clock) = &self.clock else { return };
        clock.step_server(by_ms);
        let mut times = lock(&self.times);
        let server_ms = lead_ms(clock, clock.server_ms());
        times.nodes.values_mut().for_each(|node| node.lead_ms = node.lead_ms.max(server_ms));
        drop(times);
        self.shake(clock);
    }

    /// The time as a transaction asks for it: the server's, and never before a reported one.
    pub(crate) fn moment(&self) -> Option<Millis> {
        let clock = self.clock.as_ref()?;
        Some(Millis(clock.server_ms().max(self.floor_ms())))
    }

    /// Rows are dated at this time: a node that may be gone has lived through it.
    pub(super) fn dated(&self, at: Millis) {
        if let Some(clock) = self.clock.as_ref().filter(|clock| clock.store_ms() < at.0) {
            clock.raise_to(at.0);
            self.shake(clock);
        }
    }

    /// Another server: the last heartbeats may not have reached it.
    pub(super) fn forget_heartbeats(&self) {
        lock(&self.times).floor_ms = 0;
        if let Some(clock) = &self.clock {
            self.shake(clock);
        }
    }

    // A node that starts now may take the server's time for true, until it hears of the others.
    fn shake(&self, clock: &Clocks) {
        lock(&self.times).shaken_ms = clock.elapsed_ms();
        self.declare(clock);
    }

    /// Looks at how far apart the nodes may be, and declares it, for as long as the run lives.
    pub(super) fn keep_time(self: &Arc<Self>, clock: Arc<Clocks>) {
        let twin = self.me.clone();
        tokio::spawn(async move {
            while let Some(twin) = twin.upgrade().filter(|twin| lock(&twin.disk).is_some()) {
                twin.declare(&clock);
                drop(twin);
                sleep(Duration::from_millis(LOOK_MS)).await;
            }
        });
    }

    fn declare(&self, clock: &Clocks) {
        let mut times = lock(&self.times);
        let now_ms = clock.elapsed_ms();
        // A node that is ahead of the server and has been silent may know a later time than any other.
        let silent = times.nodes.values().any(|node| {
            node_ms(clock, node) > clock.server_ms() + BEHIND_MS && now_ms > node.beaten_ms + BEAT_AGE_MS_MAX
        });
        if silent {
            times.shaken_ms = now_ms;
        }
        if times.told_ms <= times.shaken_ms && times.all_beaten_since(times.shaken_ms) {
            times.told_ms = now_ms;
        }
        // And each has received the others' reports since. Where there is none, users have the server's time and the
        // floor's.
        let latest_ms = times.nodes.values().map(|node| node_ms(clock, node)).max();
        let settled_ms = latest_ms.filter(|_| times.told_ms > times.shaken_ms && times.all_beaten_since(times.told_ms));
        if let Some(settled_ms) = settled_ms {
            // A date that raised the time reached them as it was then, not as it has grown since: no node knows that
            // time.
            clock.fall_back_to(settled_ms.max(clock.server_ms()));
        }
        let (behind_ms, settled) = (clock.server_behind_ms(), settled_ms.is_some());
        let apart_ms = match (behind_ms, settled) {
            (0, _) => 0,
            (behind_ms, true) => behind_ms.min(APART_MS_MAX),
            (behind_ms, false) => behind_ms,
        };
        if apart_ms != times.apart_ms {
            times.apart_ms = apart_ms;
            self.recorder.apart(apart_ms);
        }
    }
}

fn node_ms(clock: &Clocks, node: &NodeTime) -> u64 {
    clock.elapsed_ms().saturating_add_signed(node.lead_ms)
}

fn lead_ms(clock: &Clocks, at_ms: u64) -> i64 {
    at_ms as i64 - clock.elapsed_ms() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{disk::Disk, faults::Faults, history::History, hold::Gate, recorder::Recorder, twin::Door};

    struct Shared {
        clock: Arc<Clocks>,
        twin: Arc<Twin>,
        recorder: Arc<Recorder>,
    }

    async fn shared() -> Shared {
        let clock = Arc::new(Clocks::new(None));
        let recorder = Arc::new(Recorder::new(clock.clone(), History::default()));
        let rng = fastrand::Rng::with_seed(1);
        let twin =
            Twin::open(Disk::default(), Faults::none(), None, rng, recorder.clone(), Some(clock.clone()), true).await;
        clock.start_store_time(0);
        Shared { clock, twin: twin.expect("the disk is sound"), recorder }
    }

    impl Shared {
        fn join(&self) -> Arc<Door> {
            let door = Arc::new(Door::new(
                String::new(),
                self.twin.clone(),
                Arc::<Gate>::default(),
                0,
                fastrand::Rng::with_seed(2),
            ));
            tokio::spawn(door.clone().beat(self.clock.clone()));
            door
        }

        fn behind_ms(&self, door: &Door) -> u64 {
            self.clock.store_ms() - door.now().expect("a shared clock").0
        }

        fn declared_ms(&self) -> Vec<u64> {
            self.recorder.take().apart.iter().map(|apart| apart.ms).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn node_that_starts_before_any_heartbeat_is_behind_as_declared_and_catches_up() {
        let shared = shared().await;
        let first = shared.join();
        sleep(Duration::from_millis(4_400)).await;
        shared.twin.step_server(-10_000);
        let second = shared.join();
        assert_eq!(shared.behind_ms(&first), 0, "a living node keeps its time");
        assert!(shared.behind_ms(&second) > 1_000, "an idle node has told it a while ago");
        sleep(Duration::from_millis(4_500)).await;
        assert!(shared.behind_ms(&second) <= BEAT_AGE_MS_MAX, "{} ms behind", shared.behind_ms(&second));
        assert_eq!(shared.declared_ms(), [10_000, APART_MS_MAX]);
    }

    #[tokio::test(start_paused = true)]
    async fn node_that_starts_after_the_heartbeats_has_the_time_of_the_others() {
        let shared = shared().await;
        let first = shared.join();
        shared.twin.step_server(-10_000);
        sleep(Duration::from_millis(10_000)).await;
        let second = shared.join();
        assert!(shared.behind_ms(&second) <= BEAT_AGE_MS_MAX, "{} ms behind", shared.behind_ms(&second));
        // A time that only the first knew is lost with it, and the second goes on from its own.
        shared.twin.node_ends(first.time_id());
        assert_eq!(shared.behind_ms(&second), 0);
    }
}
