//! Lanes on a store that several nodes share: each is driven by one of them at a time, under its heartbeat and an epoch.
//! Never sends on when this node may already be taken for dead. An idle lane costs no query of its own: a node reads
//! the notices to it, and all lanes, by the thousand, when the living nodes have changed and twice a minute.

use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use fencepost_kernel::{
    Command, LaneId, Millis, Reply, RowKey, Tenant,
    key::Kind,
    lane::{self, Act, Lane, Members, OnLane, Owner},
    row::Record,
};
use fencepost_store::contract::Loaded;

use super::driver::Driver;
use crate::{
    clock::Clock,
    engine::{Engine, Error},
};

/// A node that was not seen for this long is dead, and its lanes are taken.
pub const LEASE_MS: u64 = 6_000;
/// How long before that it stops sending by itself.
const MARGIN_MS: u64 = 1_500;
/// How far the wall may have moved against the local clock before this node may have slept. Less than the margin.
const ASLEEP_MS: i64 = 1_000;
/// How often words from other nodes are looked for.
const LISTEN_EVERY: Duration = Duration::from_millis(50);
/// How often nodes are looked at.
const LOOK_EVERY_MS: u64 = 500;
/// How often all lanes are: a node that woke up late may have appended to a lane that is another's by now, and have died
/// before it could say so.
const LOOK_AT_ALL_EVERY_MS: u64 = 30_000;
/// Rows read in one step.
const PAGE: usize = 1_000;

/// The nodes that share the store, as far as this node knows.
pub(super) struct Membership {
    me: String,
    members: Mutex<Arc<Members>>,
    clock: Arc<dyn Clock>,
    /// Until when this node may send, by its monotonic clock.
    until_ms: AtomicU64,
    /// How far the wall clock was ahead of the local one when that was said.
    wall_ahead_ms: AtomicI64,
}

impl Membership {
    pub(super) fn new(me: String, clock: Arc<dyn Clock>) -> Self {
        let alive = if me.is_empty() { Vec::new() } else { vec![me.clone()] };
        let members = Mutex::new(Arc::new(Members { me: me.clone(), alive }));
        let wall_ahead_ms = AtomicI64::new(i64::MIN);
        Self { me, members, clock, until_ms: AtomicU64::new(0), wall_ahead_ms }
    }

    pub(super) fn members(&self) -> Arc<Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this node is the owner.
    pub(super) fn drives(&self, owner: &Owner) -> bool {
        self.me.is_empty() || owner.node == self.me
    }

    /// Whether no other node can take this one for dead yet. Goes by a clock that a paused process cannot stop. A
    /// machine that sleeps stops that clock, and not the wall's: where the two have moved apart, only the next look at
    /// the store can tell.
    pub(super) fn may_send(&self) -> bool {
        self.me.is_empty() || (self.clock.monotonic_ms() < self.until_ms.load(Ordering::Acquire) && self.was_awake())
    }

    fn was_awake(&self) -> bool {
        let moved_ms = self.wall_ahead_now_ms().saturating_sub(self.wall_ahead_ms.load(Ordering::Acquire));
        (-ASLEEP_MS..=ASLEEP_MS).contains(&moved_ms)
    }

    fn wall_ahead_now_ms(&self) -> i64 {
        self.clock.wall_ms() as i64 - self.clock.monotonic_ms() as i64
    }

    /// Reads the living nodes from the store. Returns whether this node may have been taken for dead meanwhile: its
    /// table is old then.
    pub(super) async fn refresh(&self, engine: &Engine) -> Result<bool, Error> {
        let (asked_ms, wall_ahead_ms) = (self.clock.monotonic_ms(), self.wall_ahead_now_ms());
        let nodes = engine.alive().await?;
        let now = engine.now();
        let own = nodes.iter().find(|(node, _)| *node == self.me).map(|(_, seen)| now.since(*seen));
        let mut lapsed = false;
        if let Some(silent_ms) = own {
            let left_ms = LEASE_MS.saturating_sub(silent_ms + MARGIN_MS);
            let before_ms = self.until_ms.swap(asked_ms + left_ms, Ordering::AcqRel);
            // A machine that slept past its lease has been taken for dead as well.
            lapsed = before_ms < asked_ms || (before_ms > 0 && !self.was_awake());
            self.wall_ahead_ms.store(wall_ahead_ms, Ordering::Release);
        }
        let members = members(&self.me, nodes, now);
        let mut known = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if **known != members {
            *known = Arc::new(members);
        }
        Ok(lapsed)
    }
}

/// The living nodes. A process that only reads, copies or publishes is not among them, and drives nothing.
pub(crate) fn members(me: &str, nodes: Vec<(String, Millis)>, now: Millis) -> Members {
    let lives = |(_, seen): &(String, Millis)| now.since(*seen) < LEASE_MS;
    let mut alive: Vec<String> = nodes.into_iter().filter(lives).map(|(node, _)| node).collect();
    alive.sort();
    Members { me: me.to_owned(), alive }
}

/// Listens to other nodes, and takes over from those that are gone.
pub(super) async fn run(driver: Weak<Driver>) {
    let mut looked_ms: Option<u64> = None;
    // The time of the last look at all lanes, and the nodes that lived then.
    let mut looked_at_all: Option<(u64, Vec<String>)> = None;
    loop {
        tokio::time::sleep(LISTEN_EVERY).await;
        let Some(driver) = driver.upgrade() else { return };
        let Some(engine) = driver.engine() else { return };
        // A store that does not answer is asked again; meanwhile nothing is sent for long.
        let _ = read_own_notices(&driver, &engine).await;
        let now_ms = engine.clock().monotonic_ms();
        if looked_ms.is_some_and(|looked_ms| now_ms < looked_ms + LOOK_EVERY_MS) {
            continue;
        }
        looked_ms = Some(now_ms);
        if refresh(&driver, &engine).await.is_err() {
            continue;
        }
        driver.pump();
        let members = driver.members();
        // A node that is not among the living itself sees a store that has just come back, or has just woken up: it
        // takes no lane.
        if !members.alive.contains(&members.me) {
            continue;
        }
        // At the start, and when a node has left, there may be lanes without a driver. Also when a node is seen again:
        // the others may have left some to this node while it did not see all of them.
        let is_old =
            |(at_ms, alive): &(u64, Vec<String>)| *alive != members.alive || now_ms >= at_ms + LOOK_AT_ALL_EVERY_MS;
        if looked_at_all.as_ref().is_none_or(is_old) {
            if look_at_all(&driver, &engine).await.is_err() {
                continue;
            }
            looked_at_all = Some((engine.clock().monotonic_ms(), members.alive.clone()));
        }
        let _ = read_all_notices(&driver, &engine).await;
    }
}

// A node that was silent for too long finds its lanes in other hands: it must not send the events in its memory.
async fn refresh(driver: &Arc<Driver>, engine: &Engine) -> Result<(), Error> {
    if driver.membership.refresh(engine).await? {
        driver.doubt();
    }
    Ok(())
}

// Reads the notices to this node.
async fn read_own_notices(driver: &Arc<Driver>, engine: &Engine) -> Result<(), Error> {
    let to_me = RowKey::lane_notices_to(&driver.members().me);
    let found = engine.range(Kind::LaneNotice, &to_me, None, PAGE).await?;
    act_on_notices(driver, engine, found.into_iter().map(|(key, _)| key).collect()).await
}

// Reads notices to nodes that are gone, or that do not drive the lane any more: the writer did not know yet. Such a
// notice may be younger than the takeover, and then it alone tells that the lane has something new.
async fn read_all_notices(driver: &Arc<Driver>, engine: &Engine) -> Result<(), Error> {
    let mut after = None;
    loop {
        let page = engine.scan(Kind::LaneNotice, after, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(*last);
        act_on_notices(driver, engine, page.into_iter().map(|(key, _)| key).collect()).await?;
    }
}

// Deletes the notices that this node must act on, and then acts: a later notice is written anew. A notice about a lane
// that another living node drives stays until that one reads it.
async fn act_on_notices(driver: &Arc<Driver>, engine: &Engine, notices: Vec<RowKey>) -> Result<(), Error> {
    if notices.is_empty() {
        return Ok(());
    }
    let lanes: Vec<RowKey> = notices.iter().map(|notice| RowKey::lane(lane_of_notice(notice))).collect();
    let rows = engine.load(&lanes).await?;
    let owner =
        |at: usize| rows[at].as_ref().and_then(|row| row.record.as_lane()).map_or("", |lane| lane.owner.node.as_str());
    if (0..notices.len()).any(|at| !driver.members().alive.iter().any(|node| node == owner(at))) {
        // The list of living nodes may be old: read it again before a node counts as dead.
        refresh(driver, engine).await?;
    }
    let members = driver.members();
    let mine = |at: usize| {
        let (owner, lane) = (owner(at), lane_of_notice(&notices[at]));
        let to = |node: &String| RowKey::lane_notice(node, lane) == notices[at];
        let drives = |node: &String| node == owner;
        let nobody = !members.alive.iter().any(drives);
        owner == members.me
            || nobody
                && (to(&members.me)
                    || !members.alive.iter().any(to) && rendezvous_owner(lane, &members) == Some(&members.me))
    };
    let mine_now: Vec<RowKey> = (0..notices.len()).filter(|at| mine(*at)).map(|at| notices[at]).collect();
    if mine_now.is_empty() {
        return Ok(());
    }
    // Where this fails, some of it may be forgotten all the same: it is acted on in any case.
    let forgotten = engine.ask(Command::Lane(lane::Command::DropNotices(mine_now.clone()))).await;
    take_all(driver, engine, &mine_now.iter().map(lane_of_notice).collect::<Vec<_>>()).await;
    forgotten.map(drop)
}

// The lane that a word is about.
fn lane_of_notice(notice: &RowKey) -> LaneId {
    let mut lane = [0; 24];
    lane.copy_from_slice(&notice.id[8..]);
    LaneId(lane)
}

// Every lane whose owner is gone and that has something to send gets a living node; this node's own are read where
// something in them is not settled.
async fn look_at_all(driver: &Arc<Driver>, engine: &Engine) -> Result<(), Error> {
    let mut after = None;
    loop {
        let page = engine.scan(Kind::Lane, after, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(*last);
        let members = driver.members();
        let pushed = page.iter().filter_map(|(key, row)| {
            let lane = row.record.as_lane().filter(|lane| !lane.purpose.is_polled())?;
            Some((key.place().0, lane))
        });
        let drives = |id: LaneId, owner: &str| match members.alive.iter().any(|node| node == owner) {
            true => owner == members.me,
            false => rendezvous_owner(id, &members) == Some(members.me.as_str()),
        };
        let mine: Vec<(LaneId, &Arc<Lane>)> = pushed.filter(|(id, lane)| drives(*id, &lane.owner.node)).collect();
        let tails: Vec<RowKey> = mine.iter().map(|(id, _)| RowKey::tail(*id)).collect();
        let tails = engine.load(&tails).await?;
        let owed = |lane: &Lane, tail: &Record| tail.as_tail().is_some_and(|tail| tail.last > lane.settled);
        let (mut own, mut orphans) = (Vec::new(), Vec::new());
        for ((id, lane), tail) in mine.into_iter().zip(tails) {
            match tail {
                Some(_) if lane.owner.node != members.me => orphans.push(id),
                Some(tail) if owed(lane, &tail.record) => own.push(id),
                _ => {}
            }
        }
        own.into_iter().for_each(|lane| driver.look_at(lane));
        take_all(driver, engine, &orphans).await;
        // Taking many lanes takes long: this node must not be silent meanwhile.
        refresh(driver, engine).await?;
    }
}

// Takes lanes whose owner is gone, many in one commit, and looks at all of them.
async fn take_all(driver: &Arc<Driver>, engine: &Engine, lanes: &[LaneId]) {
    let Ok(rows) = known_after_refresh(driver, engine, lanes).await else {
        return lanes.iter().for_each(|lane| driver.look_at(*lane));
    };
    let lane = |row: &Loaded| row.as_ref().and_then(|row| row.record.as_lane().cloned());
    let takes = lanes.iter().zip(&rows).map(|(id, row)| take(driver, engine, *id, lane(row)));
    let taken = futures::future::join_all(takes).await;
    for (lane, taken) in lanes.iter().zip(taken) {
        if !matches!(taken, Ok(true)) {
            driver.look_at(*lane);
        }
    }
}

// A lane's owner has said that it lives before it took the lane. So the nodes are looked at after the rows: else one that has
// just come, and has taken lanes already, looks like one that is gone.
async fn known_after_refresh(driver: &Arc<Driver>, engine: &Engine, lanes: &[LaneId]) -> Result<Vec<Loaded>, Error> {
    if lanes.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<RowKey> = lanes.iter().map(|lane| RowKey::lane(*lane)).collect();
    let rows = engine.load(&rows).await?;
    refresh(driver, engine).await?;
    Ok(rows)
}

// The living node that takes a lane: every node computes the same.
fn rendezvous_owner(lane: LaneId, members: &Members) -> Option<&str> {
    let weight = |node: &&String| LaneId::executor(&Tenant::new(node.as_str()), &lane.to_string()).0[8..].to_vec();
    members.alive.iter().max_by_key(weight).map(String::as_str)
}

// Takes a lane whose owner is gone; whether it did.
async fn take(driver: &Arc<Driver>, engine: &Engine, id: LaneId, lane: Option<Arc<Lane>>) -> Result<bool, Error> {
    let Some(known) = lane else { return Ok(false) };
    let members = driver.members();
    if known.owner.node == members.me || members.alive.contains(&known.owner.node) {
        return Ok(false);
    }
    let act = Act::Take { node: members.me.clone(), after: known.owner.epoch };
    let reply = engine.ask(Command::Lane(lane::Command::Act(Box::new(OnLane { lane: id, act })))).await?;
    let taken = matches!(reply, Reply::Lane(lane::Reply::OnLane { .. }));
    if taken {
        driver.taken(id);
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn a_machine_that_slept_sends_nothing_before_its_next_look_at_the_store() {
        let membership = Membership::new("one".to_owned(), Arc::new(SystemClock::default()));
        assert!(!membership.may_send(), "nothing was heard yet");
        membership.until_ms.store(membership.clock.monotonic_ms() + LEASE_MS, Ordering::Release);
        membership.wall_ahead_ms.store(membership.wall_ahead_now_ms(), Ordering::Release);
        assert!(membership.may_send());
        // Ten minutes of sleep: the local clock stood still, and the wall did not.
        membership.wall_ahead_ms.fetch_sub(600_000, Ordering::AcqRel);
        assert!(!membership.may_send());
    }
}
