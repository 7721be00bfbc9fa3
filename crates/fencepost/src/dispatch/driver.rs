//! Pushes due events: one in flight per lane, its outcome recorded before the next. Between two commits, never in one.
//! Never sends for a lane that another node drives, and takes no answer for an acknowledgement before it is durable.
//! Started by `Dispatch`; runs on its runtime until it is stopped or the engine is gone.

use std::{
    collections::BTreeSet,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fencepost_kernel::{
    Command, LaneId, Reply, RowKey,
    key::Kind,
    lane::{
        self, Act, Append, AttemptFailure, DeadLetter, Entry, Lane, Members, OnLane, Pause, ReceiverAnswer, Trouble,
        retry::Chance,
    },
    row::Record,
};
use futures::FutureExt;
use tokio::{runtime::Handle, sync::Notify};

use super::{
    polls::Polls,
    shared::Membership,
    sink::{Delivery, Sink},
    table::{AHEAD_MAX, DeliveryAttempt, Halted, LaneCounts, ReadLane, Table},
    vault::Vault,
};
use crate::engine::{CommitListener, Engine, Error, WeakEngine};

/// Bounds of the driver.
#[derive(Clone, Debug)]
pub struct DriverSettings {
    /// The name of this node, as the store knows it; empty where the store is not shared.
    pub node: String,
    /// Attempts under way at one time.
    pub in_flight_max: usize,
    /// Attempts under way to one host.
    pub per_host_max: usize,
    /// How long a head may fail before the alarm.
    pub blocked_after: Duration,
}

impl Default for DriverSettings {
    fn default() -> Self {
        Self { node: String::new(), in_flight_max: 4_096, per_host_max: 256, blocked_after: Duration::from_secs(900) }
    }
}

/// Receives the events that a person should look at.
pub trait Alarm: Send + Sync + 'static {
    /// An event has left its lane undelivered; `at` is where the letter is.
    fn died(&self, lane: &str, at: (LaneId, u64), letter: &DeadLetter);
    /// The head of a lane has failed for long.
    fn blocked(&self, lane: &str, seq: u64, trouble: &Trouble);
    /// A receiver has paused its lane by answering 410: nothing is sent until a person resumes it. Called once for each pause,
    /// and again by a process that finds the lane so.
    fn halted(&self, lane: &str, seq: u64, pause: &Pause, trouble: Option<&Trouble>);
    /// The transport of a lane is sealed with a key, named by its fingerprint, that is missing here: nothing is attempted until
    /// it is back. Called for the first lane that waits for a key.
    fn key_missing(&self, lane: &str, key: &str);
    /// An attempt has ended.
    fn attempted(&self, lane: &str, outcome: Result<(), &AttemptFailure>, took: Duration);
    /// A failed attempt at the head of a lane is recorded; nothing is due while the lane is paused. Not called where the event
    /// is a dead letter now, or the receiver has paused the lane.
    fn failed(&self, lane: &str, seq: u64, trouble: &Trouble, paused: Option<&Pause>);
}

impl Alarm for () {
    fn died(&self, _: &str, _: (LaneId, u64), _: &DeadLetter) {}
    fn blocked(&self, _: &str, _: u64, _: &Trouble) {}
    fn halted(&self, _: &str, _: u64, _: &Pause, _: Option<&Trouble>) {}
    fn key_missing(&self, _: &str, _: &str) {}
    fn attempted(&self, _: &str, _: Result<(), &AttemptFailure>, _: Duration) {}
    fn failed(&self, _: &str, _: u64, _: &Trouble, _: Option<&Pause>) {}
}

/// How long a record of an outcome waits before it is tried again, while the store does not answer.
const RECORD_AGAIN: Duration = Duration::from_millis(200);
/// How late a commit of unknown outcome may land.
const LATE_MAX: Duration = Duration::from_secs(5);
/// Lanes read in one step.
const READ_MAX: usize = 1_000;
/// Lanes that are remembered although nothing is to be sent.
const IDLE_KEPT: usize = 10_000;

pub(super) struct Driver {
    engine: WeakEngine,
    vault: Arc<Vault>,
    /// Missing keys that were reported.
    told_missing: Mutex<BTreeSet<String>>,
    sink: Arc<dyn Sink>,
    alarm: Arc<dyn Alarm>,
    polls: Arc<Polls>,
    table: Mutex<Table>,
    pub(super) membership: Membership,
    /// Rung when lanes are to be read.
    reads: Notify,
    /// Rung when the first due time may have changed.
    clock: Notify,
    runtime: Handle,
    stopped: AtomicBool,
    /// Attempts whose outcome is not recorded yet.
    under_way: AtomicUsize,
    /// Rung when there are none.
    rest: Notify,
}

impl Driver {
    pub(super) async fn start(
        engine: &Engine,
        vault: Arc<Vault>,
        sink: Arc<dyn Sink>,
        alarm: Arc<dyn Alarm>,
        polls: Arc<Polls>,
        settings: DriverSettings,
    ) -> Result<Arc<Self>, Error> {
        let shared = engine.promises().shared;
        if shared && settings.node.is_empty() {
            return Err(Error::Unavailable("a node that shares a store needs a name to drive lanes under".to_owned()));
        }
        let node = if shared { settings.node.clone() } else { String::new() };
        let driver = Arc::new(Self {
            engine: engine.downgrade(),
            vault,
            told_missing: Mutex::default(),
            sink,
            alarm,
            polls,
            table: Mutex::new(Table::new(
                settings.in_flight_max,
                settings.per_host_max,
                settings.blocked_after.as_millis() as u64,
            )),
            membership: Membership::new(node, engine.clock().clone()),
            reads: Notify::new(),
            clock: Notify::new(),
            runtime: Handle::current(),
            stopped: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
            rest: Notify::new(),
        });
        engine.add_listener(Box::new(LaneListener(Arc::downgrade(&driver))));
        if shared {
            engine.drive().await?;
            driver.membership.refresh(engine).await?;
            tokio::spawn(super::shared::run(Arc::downgrade(&driver)));
        } else {
            driver.find_lanes(engine).await?;
        }
        tokio::spawn(read_lanes(driver.clone()));
        tokio::spawn(keep_time(driver.clone()));
        driver.reads.notify_one();
        Ok(driver)
    }

    // Everything that is not settled is tried at once: a restart is a good reason for another attempt.
    async fn find_lanes(&self, engine: &Engine) -> Result<(), Error> {
        let mut after = None;
        loop {
            let page = engine.scan(Kind::Lane, after, READ_MAX).await?;
            for (key, _) in &page {
                self.table().found(key.place().0);
            }
            match page.last() {
                Some((key, _)) => after = Some(*key),
                None => return Ok(()),
            }
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn engine(&self) -> Option<Engine> {
        self.engine.upgrade().filter(|_| !self.stopped())
    }

    pub(super) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.reads.notify_one();
        self.clock.notify_one();
    }

    /// Returns when nothing is under way.
    pub(super) async fn rest(&self) {
        while self.under_way.load(Ordering::Acquire) > 0 {
            self.rest.notified().await;
        }
    }

    pub(super) fn counts(&self) -> LaneCounts {
        self.table().counts()
    }

    /// The fingerprints of the keys that lanes of this process wait for.
    pub(super) fn missing_keys(&self) -> BTreeSet<String> {
        self.table().missing_keys()
    }

    /// Lanes that wait for a key that is back are looked at again.
    pub(super) fn look_at_held(&self) {
        let keys = self.vault.fingerprints();
        // A key that is lost again is reported again.
        self.told_missing.lock().unwrap_or_else(PoisonError::into_inner).retain(|key| !keys.contains(key));
        self.table().look_at_held(&keys);
        self.reads.notify_one();
    }

    pub(super) fn members(&self) -> Arc<Members> {
        self.membership.members()
    }

    /// Something about a lane may be new.
    pub(super) fn look_at(&self, lane: LaneId) {
        self.table().look_at(lane);
        self.reads.notify_one();
    }

    /// A lane is this node's now: a new driver is a good reason for another attempt at once.
    pub(super) fn taken(&self, lane: LaneId) {
        let mut table = self.table();
        table.look_at(lane);
        table.hurry(lane);
        drop(table);
        self.reads.notify_one();
    }

    /// Nothing that is known of lanes counts any more.
    pub(super) fn doubt(&self) {
        self.table().doubt();
        self.reads.notify_one();
    }

    /// Starts every attempt that is allowed now.
    pub(super) fn pump(self: &Arc<Self>) {
        self.ready().into_iter().for_each(|attempt| self.spawn_attempts(attempt));
    }

    fn ready(&self) -> Vec<(LaneId, DeliveryAttempt)> {
        let mut table = self.table();
        if self.stopped() || !self.membership.may_send() {
            return Vec::new();
        }
        std::iter::from_fn(|| table.next()).collect()
    }

    // One task goes on with the next attempt when one has ended: a busy lane needs no new task for each event.
    fn spawn_attempts(self: &Arc<Self>, attempt: (LaneId, DeliveryAttempt)) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        let driver = self.clone();
        self.runtime.spawn(async move {
            let mut next = Some(attempt);
            while let Some((id, attempt)) = next {
                next = driver.attempt_and_record(id, attempt).await;
            }
            if driver.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
                driver.rest.notify_one();
            }
        });
    }

    // One attempt, and its record. The lane goes on from there; returns the next attempt.
    async fn attempt_and_record(
        self: &Arc<Self>,
        id: LaneId,
        mut attempt: DeliveryAttempt,
    ) -> Option<(LaneId, DeliveryAttempt)> {
        // Asked before each attempt: keys come and go while lanes are driven.
        if let Some(key) = self.vault.missing_key(&attempt.transport) {
            return self.wait_for_key(id, &attempt, key);
        }
        let entry = match attempt.entry.take() {
            Some(entry) => Some(entry),
            None => self.head(id, attempt.seq).await,
        };
        let Some(entry) = entry else {
            // Gone, or not readable now: the rows decide.
            self.table().answered(&attempt);
            tokio::time::sleep(RECORD_AGAIN).await;
            self.look_at(id);
            return self.finish_attempt(id, Some(attempt.lane));
        };
        let began = self.engine().map(|engine| engine.now())?;
        // Reading the head may have taken long, or this process may have slept.
        if !self.membership.may_send() {
            self.table().answered(&attempt);
            self.look_at(id);
            return self.finish_attempt(id, Some(attempt.lane));
        }
        let clock = tokio::time::Instant::now();
        let delivery = Delivery {
            lane: attempt.name.clone(),
            seq: attempt.seq,
            prev_seq: attempt.seq - 1,
            attempt: attempt.lane.trouble.as_ref().map_or(1, |trouble| trouble.attempts.saturating_add(1)),
            transport: attempt.transport.clone(),
            entry,
        };
        // A way out that breaks must not keep its lane for ever.
        let broken = |_| Err(AttemptFailure::Away(ReceiverAnswer::new(None, "the sink panicked")));
        let outcome = AssertUnwindSafe(self.sink.deliver(delivery)).catch_unwind().await.unwrap_or_else(broken);
        // Its host has room: others go while this one is recorded. One that failed keeps its place until then, or a host that
        // refuses at once would fill the commit queue with failures.
        if outcome.is_ok() {
            self.table().answered(&attempt);
            self.pump();
        }
        let failed = outcome.is_err();
        self.alarm.attempted(&attempt.name, outcome.as_ref().copied(), clock.elapsed());
        let epoch = attempt.lane.owner.epoch;
        let act = match outcome {
            Ok(()) => Act::Ack { upto: attempt.seq, epoch: Some(epoch) },
            Err(failure) => Act::Fail {
                seq: attempt.seq,
                epoch,
                began,
                failure,
                after_dead: attempt.transport.after_dead,
                chance: Chance(fastrand::u32(..)),
            },
        };
        let recorded = self.record(Command::Lane(lane::Command::Act(Box::new(OnLane { lane: id, act })))).await;
        let kept = if failed { self.table().failed(&attempt) } else { None };
        if let Some(kept) = kept {
            let (driver, host) = (Arc::downgrade(self), attempt.host.clone());
            tokio::spawn(async move {
                tokio::time::sleep(kept).await;
                if let Some(driver) = driver.upgrade() {
                    driver.table().free(&host);
                    driver.pump();
                }
            });
        }
        match recorded {
            Some(Reply::Lane(lane::Reply::OnLane { lane, died, .. })) => {
                if let Some(letter) = died {
                    let at = letter.entry.redrive_of.unwrap_or((id, attempt.seq));
                    self.alarm.died(&attempt.name, at, &letter);
                } else if failed {
                    self.tell_failed(&attempt, &lane);
                }
                self.finish_attempt(id, Some(lane))
            }
            // A person was faster.
            Some(Reply::Lane(lane::Reply::NotHead { .. })) => {
                self.look_at(id);
                self.finish_attempt(id, Some(attempt.lane))
            }
            Some(_) => self.finish_attempt(id, None),
            None => None,
        }
    }

    // A receiver's pause is reported when the lane is settled in the table, also by a process that comes later.
    fn tell_failed(&self, attempt: &DeliveryAttempt, lane: &Lane) {
        let paused = lane.paused.as_ref();
        if let Some(trouble) = lane.trouble.as_ref().filter(|_| !paused.is_some_and(Pause::is_by_receiver)) {
            self.alarm.failed(&attempt.name, attempt.seq, trouble, paused);
        }
    }

    // The event is not to blame: no attempt is counted, and its 24 hours do not begin.
    fn wait_for_key(
        self: &Arc<Self>,
        id: LaneId,
        attempt: &DeliveryAttempt,
        key: String,
    ) -> Option<(LaneId, DeliveryAttempt)> {
        let mut table = self.table();
        table.answered(attempt);
        table.hold(id, key.clone());
        drop(table);
        let is_new = self.told_missing.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        if is_new {
            self.alarm.key_missing(&attempt.name, &key);
        }
        self.finish_attempt(id, Some(attempt.lane.clone()))
    }

    // The head, read together with those behind it.
    async fn head(&self, id: LaneId, seq: u64) -> Option<Arc<Entry>> {
        let found = self.engine()?.entries(id, seq - 1, AHEAD_MAX).await.ok()?;
        let head = found.first().filter(|(found, _)| *found == seq).map(|(_, entry)| entry.clone())?;
        self.table().keep(id, &found);
        Some(head)
    }

    // Repeated until it is durable, also where the driver was stopped meanwhile. Recorded again, it is the same record:
    // an acknowledgement of settled events changes nothing.
    async fn record(&self, command: Command) -> Option<Reply> {
        loop {
            match self.engine.upgrade()?.ask(&command).await {
                Ok(reply) => return Some(reply),
                Err(Error::Stopped(_)) => return None,
                Err(_) => tokio::time::sleep(RECORD_AGAIN).await,
            }
        }
    }

    // Returns the next attempt for this task; all other ready lanes start on their own.
    fn finish_attempt(self: &Arc<Self>, id: LaneId, lane: Option<Arc<Lane>>) -> Option<(LaneId, DeliveryAttempt)> {
        let now = self.engine()?.now();
        // A lane that goes on wakes no task: only one that waits for a time, or must be read, does.
        let waits = lane.as_ref().is_some_and(|lane| lane.trouble.is_some());
        let mut table = self.table();
        table.landed(id, lane, now);
        let unread = table.has_unread();
        drop(table);
        if waits {
            self.clock.notify_one();
        }
        if unread {
            self.reads.notify_one();
        }
        let mut ready = self.ready().into_iter();
        let own = ready.next();
        ready.for_each(|attempt| self.spawn_attempts(attempt));
        own
    }

    // Reads lanes together, with their tails and transports.
    async fn read(self: &Arc<Self>, engine: &Engine, lanes: &[LaneId]) -> Result<(), Error> {
        let keys: Vec<RowKey> = lanes.iter().flat_map(|lane| [RowKey::lane(*lane), RowKey::tail(*lane)]).collect();
        let rows = engine.load(&keys).await?;
        let mut found = Vec::with_capacity(lanes.len());
        for (id, pair) in lanes.iter().zip(rows.chunks_exact(2)) {
            let record = |at: usize| pair[at].as_ref().map(|row| &row.record);
            let lane = record(0).and_then(Record::as_lane).filter(|lane| self.membership.drives(&lane.owner)).cloned();
            let tail = record(1).and_then(Record::as_tail).map_or(0, |tail| tail.last);
            // A notice that came too late for this node is passed on: the new owner may have read the lane before it
            // was written.
            if let (None, Some(Record::Lane(lane::Record::Lane(theirs)))) = (&lane, record(0))
                && !theirs.purpose.is_polled()
                && tail > theirs.settled
            {
                let tell = OnLane { lane: *id, act: Act::Tell };
                engine.ask(Command::Lane(lane::Command::Act(Box::new(tell)))).await?;
            }
            found.push((*id, lane, tail));
        }
        let warehouse = |lane: &Lane| Some(RowKey::transport(&lane.tenant, lane.purpose.as_warehouse()?));
        let transports: Vec<RowKey> =
            found.iter().filter_map(|(_, lane, _)| lane.as_deref().and_then(warehouse)).collect();
        let mut rows = engine.load(&transports).await?.into_iter();
        let now = engine.now();
        for (id, lane, tail) in found {
            let row = lane.as_deref().and_then(warehouse).and_then(|_| rows.next().flatten());
            let target = row.and_then(|row| Some((row.revision, row.record.as_transport()?.clone())));
            let driven = lane.zip(target).map(|(lane, (target, transport))| {
                let host = self.sink.host(&transport).into();
                ReadLane { lane, tail, target, transport, host }
            });
            self.table().read(id, driven, now);
        }
        self.clock.notify_one();
        self.pump();
        Ok(())
    }
}

// Called on the commit loop's thread: it must be quick.
struct LaneListener(Weak<Driver>);

impl CommitListener for LaneListener {
    fn appended(&self, append: &Append, seq: Option<u64>) {
        let Some(driver) = self.0.upgrade() else { return };
        match (&append.driven, seq) {
            (None, seq) => driver.polls.appended(append.lane, seq),
            (Some(driving), Some(seq)) => {
                let mut table = driver.table();
                table.appended(append.lane, driving, seq, &append.entry);
                let unread = table.has_unread();
                drop(table);
                if unread {
                    driver.reads.notify_one();
                }
                driver.pump();
            }
            (Some(_), None) => self.lane_may_have_changed(append.lane),
        }
    }

    fn lane_changed(&self, lane: LaneId) {
        if let Some(driver) = self.0.upgrade() {
            driver.look_at(lane);
            driver.polls.ring(lane);
        }
    }

    // A commit whose outcome is unknown may still land: the lane is looked at now, and once more.
    fn lane_may_have_changed(&self, lane: LaneId) {
        let Some(driver) = self.0.upgrade() else { return };
        driver.look_at(lane);
        let late = self.0.clone();
        driver.runtime.spawn(async move {
            tokio::time::sleep(LATE_MAX).await;
            if let Some(driver) = late.upgrade() {
                driver.look_at(lane);
            }
        });
    }
}

async fn read_lanes(driver: Arc<Driver>) {
    loop {
        driver.reads.notified().await;
        loop {
            let Some(engine) = driver.engine() else { return };
            let unread = driver.table().unread();
            if unread.is_empty() {
                break;
            }
            for lanes in unread.chunks(READ_MAX) {
                if driver.read(&engine, lanes).await.is_err() {
                    tokio::time::sleep(RECORD_AGAIN).await;
                    let mut table = driver.table();
                    lanes.iter().for_each(|lane| table.unreadable(*lane));
                }
            }
        }
        driver.table().forget_idle(IDLE_KEPT);
    }
}

// The one timer for all lanes that wait.
async fn keep_time(driver: Arc<Driver>) {
    loop {
        let Some(engine) = driver.engine() else { return };
        let halted = driver.table().halted();
        for Halted { name, seq, pause, trouble } in halted {
            driver.alarm.halted(&name, seq, &pause, trouble.as_ref());
        }
        let blocked = driver.table().blocked(engine.now());
        for (lane, seq, trouble) in blocked {
            driver.alarm.blocked(&lane, seq, &trouble);
        }
        let next = driver.table().wake(engine.now());
        driver.pump();
        let now = engine.now();
        drop(engine);
        let changed = driver.clock.notified();
        match next {
            Some(next) => {
                let _ = tokio::time::timeout(Duration::from_millis(next.since(now).max(1)), changed).await;
            }
            None => changed.await,
        }
    }
}
