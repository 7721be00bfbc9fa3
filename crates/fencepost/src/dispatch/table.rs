//! The driver's lanes, and which of them may send next: bounded in all, bounded per host, fair between lanes.
//! Never waits and never reads a store: it is asked under a lock. A lane that is blocked costs the others nothing.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap, VecDeque, hash_map::Entry as Slot},
    sync::Arc,
    time::Duration,
};

use fencepost_kernel::{
    LaneId, Millis,
    dispatch::WarehouseTransport,
    lane::{Driving, Entry, Lane, Pause, Trouble},
    row::CommitId,
};

use super::hosts::{Hosts, Try};

/// How lanes stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaneCounts {
    /// Lanes with something to send.
    pub busy: usize,
    /// Of these, lanes whose head has failed.
    pub retrying: usize,
    /// Of these, lanes that a person or a receiver has stopped.
    pub standing: usize,
    /// Of these, lanes whose transport is sealed with a key that this process does not have.
    pub without_key: usize,
    /// Attempts under way.
    pub in_flight: usize,
    /// Polls that wait for something new.
    pub polling: usize,
    /// When the oldest head that is known here was published.
    pub oldest: Option<Millis>,
}

/// Where a lane stands with the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its rows must be read first.
    Unread,
    /// Nothing to send.
    Idle,
    /// In its host's queue.
    Ready,
    /// A task sends for it, or records the outcome.
    Flying,
    /// Its head is tried again at this time.
    Waiting(Millis),
    /// Stopped by a person, a receiver, a dead letter or a missing key.
    Standing,
}

/// One lane that this process drives.
pub(super) struct Driven {
    pub(super) lane: Arc<Lane>,
    pub(super) name: Arc<str>,
    pub(super) tail: u64,
    pub(super) transport: Arc<WarehouseTransport>,
    /// The revision of the transport's row.
    target: CommitId,
    /// The first entries that are not settled, as far as they are known without a read.
    next: VecDeque<Arc<Entry>>,
    /// The position of the first of them.
    next_seq: u64,
    state: State,
    host: Arc<str>,
    /// Something happened while it was flying or being read: its rows must be read again.
    stale: bool,
    /// Whether the alarm was raised that its head fails for long.
    alarmed: bool,
    /// The beginning of the receiver's pause that was reported.
    told_pause: Option<Millis>,
    marks: Marks,
}

/// Where a lane stands in the lists of the table: in each of them once, however often it is read again.
#[derive(Default)]
struct Marks {
    /// Whether it is among those that will be looked at for failing long.
    watched: bool,
    /// The time under which it waits.
    due: Option<Millis>,
    /// The host in whose queue it is, and in which of them.
    queued: Option<(Arc<str>, Try)>,
}

/// How many entries of a lane are kept ahead, and how large each may be: a backlog is read so many at a time.
pub(super) const AHEAD_MAX: usize = 16;
const AHEAD_BYTES_MAX: usize = 16 * 1024;

impl Driven {
    fn busy(&self) -> bool {
        self.tail > self.lane.settled
    }

    /// Keeps an entry ahead, where it is the next one and there is room.
    fn keep(&mut self, seq: u64, entry: &Arc<Entry>) {
        let head = self.lane.settled + 1;
        while self.next_seq < head && self.next.pop_front().is_some() {
            self.next_seq += 1;
        }
        if self.next.is_empty() {
            self.next_seq = head;
        }
        let wanted = self.next_seq + self.next.len() as u64;
        // The head itself is kept however large it is.
        let fits = seq == head || entry.body.len() <= AHEAD_BYTES_MAX;
        if seq == wanted && self.next.len() < AHEAD_MAX && fits {
            self.next.push_back(entry.clone());
        }
    }

    fn head(&self) -> Option<&Arc<Entry>> {
        let at = (self.lane.settled + 1).checked_sub(self.next_seq)?;
        self.next.get(usize::try_from(at).ok()?)
    }
}

/// One attempt: its event, and the transport.
pub(super) struct DeliveryAttempt {
    pub(super) lane: Arc<Lane>,
    pub(super) name: Arc<str>,
    pub(super) transport: Arc<WarehouseTransport>,
    pub(super) seq: u64,
    pub(super) entry: Option<Arc<Entry>>,
    pub(super) host: Arc<str>,
}

/// A lane that its receiver has paused.
pub(super) struct Halted {
    pub(super) name: Arc<str>,
    pub(super) seq: u64,
    pub(super) pause: Pause,
    pub(super) trouble: Option<Trouble>,
}

/// A lane as it was read.
pub(super) struct ReadLane {
    pub(super) lane: Arc<Lane>,
    pub(super) tail: u64,
    /// The revision of the transport's row.
    pub(super) target: CommitId,
    pub(super) transport: Arc<WarehouseTransport>,
    pub(super) host: Arc<str>,
}

/// A lane in the table.
enum Known {
    /// Its rows are being read for the first time.
    Unread {
        /// Whether something happened since.
        stale: bool,
        /// Whether its head is tried at once, whenever it is due.
        at_once: bool,
    },
    /// As it was read.
    Driven(Driven),
}

/// The lanes that this process drives.
pub(super) struct Table {
    lanes: HashMap<LaneId, Known>,
    hosts: Hosts,
    due: BinaryHeap<Reverse<(Millis, LaneId)>>,
    /// When heads that fail will have failed for long.
    watch: BinaryHeap<Reverse<(Millis, LaneId)>>,
    unread: Vec<LaneId>,
    /// Lanes that their receivers have paused, not reported yet.
    halted: Vec<Halted>,
    /// Lanes whose transport is sealed with a key that is missing, with its fingerprint: nothing is attempted for them.
    without_key: HashMap<LaneId, String>,
    blocked_after_ms: u64,
    /// How many lanes were kept when idle ones were last forgotten.
    kept_last: usize,
}

impl Table {
    pub(super) fn new(in_flight_max: usize, per_host_max: usize, blocked_after_ms: u64) -> Self {
        Self {
            lanes: HashMap::new(),
            hosts: Hosts::new(in_flight_max, per_host_max),
            due: BinaryHeap::new(),
            watch: BinaryHeap::new(),
            blocked_after_ms,
            unread: Vec::new(),
            halted: Vec::new(),
            without_key: HashMap::new(),
            kept_last: 0,
        }
    }

    /// An entry was appended to a lane that this process drives, under an epoch and over a transport. Where the table has
    /// another transport or epoch, it is old: nothing new leaves that way.
    pub(super) fn appended(&mut self, id: LaneId, by: &Driving, seq: u64, entry: &Arc<Entry>) {
        let known = |driven: &Driven| driven.lane.owner.epoch == by.epoch && Some(driven.target) == by.target;
        match self.driven(id) {
            Some(driven) if known(driven) && driven.state != State::Unread => {
                driven.tail = driven.tail.max(seq);
                driven.keep(seq, entry);
                match driven.state {
                    State::Idle if driven.lane.is_halted() => driven.state = State::Standing,
                    State::Idle => self.ready(id),
                    _ => {}
                }
            }
            _ => self.look_at(id),
        }
    }

    /// Something about a lane is new: its rows must be read.
    pub(super) fn look_at(&mut self, id: LaneId) {
        match self.lanes.entry(id) {
            Slot::Vacant(slot) => {
                slot.insert(Known::Unread { stale: false, at_once: false });
                self.unread.push(id);
            }
            Slot::Occupied(mut slot) => match slot.get_mut() {
                Known::Unread { stale, .. } => *stale = true,
                Known::Driven(driven) if matches!(driven.state, State::Flying | State::Unread) => driven.stale = true,
                // It may stay in a queue: the task that takes it from there finds that it is not ready any more.
                Known::Driven(driven) => {
                    driven.state = State::Unread;
                    self.unread.push(id);
                }
            },
        }
    }

    /// A lane that was there before this process.
    pub(super) fn found(&mut self, id: LaneId) {
        if let Slot::Vacant(slot) = self.lanes.entry(id) {
            slot.insert(Known::Unread { stale: false, at_once: true });
            self.unread.push(id);
        }
    }

    /// A lane that is read for the first time is tried at once, whenever its turn would be.
    pub(super) fn hurry(&mut self, id: LaneId) {
        if let Some(Known::Unread { at_once, .. }) = self.lanes.get_mut(&id) {
            *at_once = true;
        }
    }

    /// Nothing that is known counts any more: another node may have driven the lanes meanwhile.
    pub(super) fn doubt(&mut self) {
        let mut known: Vec<LaneId> = self.lanes.keys().copied().collect();
        // In an order that a simulation can repeat.
        known.sort_unstable();
        known.into_iter().for_each(|id| self.look_at(id));
    }

    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Lanes whose rows must be read. The read sees every change until now.
    pub(super) fn unread(&mut self) -> Vec<LaneId> {
        let unread = std::mem::take(&mut self.unread);
        for id in &unread {
            if let Some(Known::Unread { stale, .. } | Known::Driven(Driven { stale, .. })) = self.lanes.get_mut(id) {
                *stale = false;
            }
        }
        unread
    }

    /// A lane as it was read; none where this process does not drive it.
    pub(super) fn read(&mut self, id: LaneId, found: Option<ReadLane>, now: Millis) {
        let (stale, at_once, before) = match self.lanes.remove(&id) {
            Some(Known::Unread { stale, at_once }) => (stale, at_once, None),
            Some(Known::Driven(driven)) => (driven.stale, false, Some(driven)),
            None => (false, false, None),
        };
        if stale {
            // The lane may have changed since it was read. In the lists it stays, as one that is not ready.
            match before {
                Some(driven) => drop(self.lanes.insert(id, Known::Driven(Driven { stale: false, ..driven }))),
                None => drop(self.lanes.insert(id, Known::Unread { stale: false, at_once })),
            }
            self.unread.push(id);
            return;
        }
        // Whether the key is there is judged before the next attempt.
        self.without_key.remove(&id);
        if let Some(ReadLane { lane, tail, target, transport, host }) = found {
            let (name, state) = (lane.name().into(), State::Idle);
            // Another head than the reported one may be reported again.
            let told = |before: &Driven| before.alarmed && before.lane.settled == lane.settled;
            let (alarmed, told_pause, marks) =
                before.map_or_else(Default::default, |before| (told(&before), before.told_pause, before.marks));
            let driven = Driven {
                lane,
                name,
                tail,
                transport,
                target,
                next: VecDeque::new(),
                next_seq: 0,
                state,
                host,
                stale,
                alarmed,
                told_pause,
                marks,
            };
            self.lanes.insert(id, Known::Driven(driven));
            self.settle(id, if at_once { Millis(u64::MAX) } else { now });
        }
    }

    /// The read failed: it is to be tried again.
    pub(super) fn unreadable(&mut self, id: LaneId) {
        self.unread.push(id);
    }

    /// A flight has come to an answer: its host has room for another.
    pub(super) fn answered(&mut self, delivery: &DeliveryAttempt) {
        self.hosts.answered(&delivery.host, Try::of(&delivery.lane));
    }

    /// A flight has failed. Says for how long no other retry may have its place, where it was one itself.
    pub(super) fn failed(&mut self, delivery: &DeliveryAttempt) -> Option<Duration> {
        self.hosts.failed(&delivery.host, Try::of(&delivery.lane))
    }

    /// A retry may have the place again.
    pub(super) fn free(&mut self, name: &Arc<str>) {
        self.hosts.free(name);
    }

    /// The result of an attempt is recorded. The lane is as given, or no longer ours.
    pub(super) fn landed(&mut self, id: LaneId, lane: Option<Arc<Lane>>, now: Millis) {
        let Some(lane) = lane else {
            self.without_key.remove(&id);
            // It may have come back to us since, under another epoch.
            if let Some(Known::Driven(Driven { stale: true, .. })) = self.lanes.remove(&id) {
                self.look_at(id);
            }
            return;
        };
        let Some(driven) = self.driven(id) else { return };
        if lane.trouble.is_none() {
            driven.alarmed = false;
        }
        driven.lane = lane;
        if driven.stale {
            driven.stale = false;
            driven.state = State::Unread;
            self.unread.push(id);
            return;
        }
        self.settle(id, now);
    }

    /// A flight did not leave: its transport is sealed with a key that is missing. The lane waits until its rows are read again.
    pub(super) fn hold(&mut self, id: LaneId, key: String) {
        self.without_key.insert(id, key);
    }

    /// These keys are there: lanes that wait for one of them are looked at again.
    pub(super) fn look_at_held(&mut self, keys: &[String]) {
        let held = self.without_key.iter().filter(|(_, key)| keys.contains(key));
        let held: Vec<LaneId> = held.map(|(id, _)| *id).collect();
        held.into_iter().for_each(|id| self.look_at(id));
    }

    /// The fingerprints of the keys that lanes wait for.
    pub(super) fn missing_keys(&self) -> BTreeSet<String> {
        self.without_key.values().cloned().collect()
    }

    /// Lanes that their receivers have paused, each pause reported once by this process.
    pub(super) fn halted(&mut self) -> Vec<Halted> {
        std::mem::take(&mut self.halted)
    }

    /// Entries of a lane that were read, from its head on.
    pub(super) fn keep(&mut self, id: LaneId, entries: &[(u64, Arc<Entry>)]) {
        if let Some(driven) = self.driven(id) {
            entries.iter().for_each(|(seq, entry)| driven.keep(*seq, entry));
        }
    }

    /// A known lane, for a change under the lock.
    pub(super) fn driven(&mut self, id: LaneId) -> Option<&mut Driven> {
        match self.lanes.get_mut(&id) {
            Some(Known::Driven(driven)) => Some(driven),
            _ => None,
        }
    }

    // The next state of a lane that no task holds.
    fn settle(&mut self, id: LaneId, now: Millis) {
        let blocked_after_ms = self.blocked_after_ms;
        let Some(driven) = self.driven(id) else { return };
        if let Some(trouble) = driven.lane.trouble.as_ref().filter(|_| !driven.alarmed && !driven.marks.watched) {
            let at = trouble.first_at.plus(blocked_after_ms);
            driven.marks.watched = true;
            self.watch.push(Reverse((at, id)));
        }
        let without_key = self.without_key.contains_key(&id);
        let Some(Known::Driven(driven)) = self.lanes.get_mut(&id) else { return };
        if let Some(pause) = driven.lane.paused.as_ref().filter(|pause| pause.is_by_receiver())
            && driven.told_pause != Some(pause.at)
        {
            driven.told_pause = Some(pause.at);
            let (name, seq) = (driven.name.clone(), driven.lane.settled + 1);
            self.halted.push(Halted { name, seq, pause: pause.clone(), trouble: driven.lane.trouble.clone() });
        }
        if driven.lane.trouble.is_some() || driven.lane.is_halted() {
            // Events that may wait for long are not kept in memory.
            driven.next.truncate(1);
        }
        if !driven.busy() {
            driven.state = State::Idle;
        } else if driven.lane.is_halted() || without_key {
            driven.state = State::Standing;
        } else {
            match driven.lane.trouble.as_ref().map(|trouble| trouble.next_at).filter(|next_at| *next_at > now) {
                Some(next_at) => {
                    driven.state = State::Waiting(next_at);
                    if driven.marks.due.replace(next_at) != Some(next_at) {
                        self.due.push(Reverse((next_at, id)));
                    }
                }
                None => self.ready(id),
            }
        }
    }

    fn ready(&mut self, id: LaneId) {
        let Some(driven) = self.driven(id) else { return };
        driven.state = State::Ready;
        let (host, attempt) = (driven.host.clone(), Try::of(&driven.lane));
        let queued = driven.marks.queued.replace((host.clone(), attempt));
        if queued.is_none_or(|(known, kind)| known != host || kind != attempt) {
            self.hosts.queue(&host, id, attempt);
        }
        self.hosts.turn(&host);
    }

    /// Heads that have failed for long by now, each reported once.
    pub(super) fn blocked(&mut self, now: Millis) -> Vec<(Arc<str>, u64, Trouble)> {
        let (after_ms, mut blocked) = (self.blocked_after_ms, Vec::new());
        while let Some(Reverse((at, id))) = self.watch.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.watch.pop();
            let Some(driven) = self.driven(id) else { continue };
            driven.marks.watched = false;
            // A receiver's pause was reported at once; the lane is watched again once it is resumed.
            let paused = driven.lane.paused.as_ref().is_some_and(Pause::is_by_receiver);
            let Some(trouble) = driven.lane.trouble.as_ref().filter(|_| !driven.alarmed && !paused) else { continue };
            // Another head may fail by now, or a pause may have moved the time.
            let due = trouble.first_at.plus(after_ms);
            if due <= at.max(now) {
                blocked.push((driven.name.clone(), driven.lane.settled + 1, trouble.clone()));
                driven.alarmed = true;
            } else {
                driven.marks.watched = true;
                self.watch.push(Reverse((due, id)));
            }
        }
        blocked
    }

    /// Lanes whose time has come are ready; says when the next one is due, or to be looked at.
    pub(super) fn wake(&mut self, now: Millis) -> Option<Millis> {
        let due = self.wake_due(now);
        let watched = self.watch.peek().map(|Reverse((at, _))| *at);
        due.into_iter().chain(watched).min()
    }

    fn wake_due(&mut self, now: Millis) -> Option<Millis> {
        while let Some(Reverse((at, id))) = self.due.peek().copied() {
            if at > now {
                return Some(at);
            }
            self.due.pop();
            // One that was woken otherwise meanwhile has left an old entry here.
            let Some(driven) = self.driven(id) else { continue };
            if driven.marks.due == Some(at) {
                driven.marks.due = None;
            }
            if driven.state == State::Waiting(at) {
                self.ready(id);
            }
        }
        None
    }

    /// The next flight, where there is room for one.
    pub(super) fn next(&mut self) -> Option<(LaneId, DeliveryAttempt)> {
        while let Some((name, id, attempt)) = self.hosts.next() {
            let Some(Known::Driven(driven)) = self.lanes.get_mut(&id) else {
                self.hosts.turn(&name);
                continue;
            };
            // One that was queued again elsewhere has left an old entry here.
            let queued_here =
                driven.marks.queued.as_ref().is_some_and(|(host, kind)| *host == name && *kind == attempt);
            if queued_here {
                driven.marks.queued = None;
            }
            if !queued_here || driven.state != State::Ready || driven.host != name {
                self.hosts.turn(&name);
                continue;
            }
            driven.state = State::Flying;
            self.hosts.launched(&name, Try::of(&driven.lane));
            let seq = driven.lane.settled + 1;
            let delivery = DeliveryAttempt {
                host: name.clone(),
                lane: driven.lane.clone(),
                name: driven.name.clone(),
                transport: driven.transport.clone(),
                seq,
                entry: driven.head().cloned(),
            };
            self.hosts.turn(&name);
            return Some((id, delivery));
        }
        None
    }

    /// Forgets idle lanes: only busy ones cost memory.
    pub(super) fn forget_idle(&mut self, keep: usize) {
        if self.lanes.len() > keep.max(self.kept_last * 2) {
            self.lanes.retain(|_, driven| !matches!(driven, Known::Driven(Driven { state: State::Idle, .. })));
            // Those that stay are not looked through again until there are twice as many.
            self.kept_last = self.lanes.len();
        }
    }

    pub(super) fn counts(&self) -> LaneCounts {
        let (in_flight, without_key) = (self.hosts.in_flight(), self.without_key.len());
        let mut counts = LaneCounts { in_flight, without_key, ..LaneCounts::default() };
        let driven = self.lanes.values().filter_map(|known| match known {
            Known::Driven(driven) if driven.busy() => Some(driven),
            _ => None,
        });
        for driven in driven {
            counts.busy += 1;
            counts.retrying += usize::from(driven.lane.trouble.is_some());
            counts.standing += usize::from(driven.lane.is_halted());
            // Of a head that was read for its attempt only, the first failure is known.
            let failed = driven.lane.trouble.as_ref().map(|trouble| trouble.first_at);
            let published = driven.head().map(|entry| entry.published).or(failed);
            counts.oldest = match (counts.oldest, published) {
                (Some(oldest), Some(published)) => Some(oldest.min(published)),
                (oldest, published) => oldest.or(published),
            };
        }
        counts
    }
}
