//! The engine: takes commands, answers at once what a synced snapshot can answer, and sends the rest through the
//! commit loop. Never replies before the commit a reply depends on is durable.
//! Called by the library's `Fencepost` and by the wire.

mod audit;
mod batch;
mod commit;
mod explain;
mod guess;
mod housekeep;
#[cfg(feature = "postgres")]
mod in_tx;
mod lanes;
mod pacing;
mod read;
mod rows;
mod sightings;
mod waiters;

use std::{
    fmt,
    ops::Deref,
    pin::pin,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fencepost_kernel::{
    Command, FenceKey, LaneId, Millis, Reply, Row, RowKey, Rows, Tenant,
    audit::Operator,
    decide,
    fence::{self, Alias},
    lane::Append,
    law::footprint,
};
use fencepost_store::{Node, Promises, Store, WriteSet, contract::Loaded};
use futures::future::{BoxFuture, join, poll_immediate};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
};

pub use explain::{Explanation, HistoryEntry, Repeated, Repetitions, Resolution};
#[cfg(feature = "postgres")]
pub(crate) use in_tx::IN_TRANSACTION;

use crate::clock::{Clock, StoreTime};

/// Bounds that keep one engine from being asked for more than it has.
#[derive(Clone, Debug)]
pub struct EngineLimits {
    /// Commands that may queue for the commit loop.
    pub queue_max: usize,
    /// Callers that may wait for somebody else's seal at one time.
    pub waiters_max: usize,
    /// Of these, how many one tenant may have.
    pub waiters_per_tenant_max: usize,
    /// Commands in one commit, but for one job that has more: many enough to make a sync cheap, few enough to stay in the
    /// processor's cache, and to let others be answered meanwhile.
    pub batch_max: usize,
    /// Rows that one commit is decided over, but for one job that has more. A commit may go beyond this by those of some tens of
    /// commands.
    pub batch_rows_max: usize,
    /// Bytes that the commands of one commit may bring and, apart from that, bytes of the rows that are read for it,
    /// but for one job that has more. Rows are read for some tens of commands at once, and a commit may go beyond this
    /// by so many.
    pub batch_bytes_max: usize,
    /// On a shared store, how many commands must be under way, or jobs waiting, before a commit leaves beside another.
    pub beside_min: usize,
    /// Fences whose unflushed counts are remembered.
    pub sightings_max: usize,
    /// Where commit ids start; at a random place, unless a simulation must repeat itself.
    pub first_commit_id: Option<u64>,
    /// How long a commit may take before its asker is told that the store does not answer.
    pub patience: Duration,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self {
            queue_max: 16_384,
            waiters_max: 10_000,
            waiters_per_tenant_max: 10_000,
            batch_max: 1_024,
            batch_rows_max: 16_384,
            batch_bytes_max: 8 << 20,
            beside_min: 16,
            sightings_max: 50_000,
            first_commit_id: None,
            patience: Duration::from_secs(5),
        }
    }
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Nothing happened; the store cannot be reached or is overloaded. Try again.
    Unavailable(String),
    /// It may have happened. Ask again with the same command: a fence makes that safe.
    Unknown(String),
    /// The store has stopped for good, or the engine was closed. Nothing more will happen.
    Stopped(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => write!(f, "store unavailable, nothing happened: {why}"),
            Self::Unknown(why) => write!(f, "outcome unknown, ask again: {why}"),
            Self::Stopped(why) => write!(f, "stopped: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<fencepost_store::Error> for Error {
    fn from(error: fencepost_store::Error) -> Self {
        match error {
            fencepost_store::Error::NotApplied(why) => Self::Unavailable(why),
            fencepost_store::Error::Unknown(why) => Self::Unknown(why),
            fencepost_store::Error::Broken(why) => Self::Stopped(why),
        }
    }
}

/// Told about every commit; for metrics.
pub trait Observer: Send + Sync + 'static {
    /// A commit of `commands` commands took this long from load to sync.
    fn committed(&self, commands: usize, took: Duration);
}

impl Observer for () {
    fn committed(&self, _: usize, _: Duration) {}
}

pub(crate) struct Shared {
    store: Arc<dyn Store>,
    time: StoreTime,
    /// Whether other engines write to the store, too.
    shared: bool,
    /// Whether a write set may touch several rows.
    many_rows: bool,
    guess_stats: guess::GuessStats,
    limits: EngineLimits,
    waiters: waiters::Waiters,
    sightings: sightings::Sightings,
    sweep: std::sync::Mutex<housekeep::Sweep>,
    next_id: AtomicU64,
    /// Held while a commit runs: alone, or beside others where the store is shared.
    turn: tokio::sync::RwLock<()>,
    backlog: pacing::BacklogSignal,
    /// Askers who wait for a commit.
    asking: AtomicUsize,
    stopped: std::sync::OnceLock<String>,
    observer: Box<dyn Observer>,
    /// Read with each commit that writes to a lane; written when a driver starts.
    listeners: RwLock<Vec<Box<dyn CommitListener>>>,
}

/// Hears what this engine has written to lanes, once it is durable. Called from the commit loop: must not block.
pub trait CommitListener: Send + Sync + 'static {
    /// An entry is in its lane at this position; `None` where the outcome of the commit is unknown.
    fn appended(&self, append: &Append, seq: Option<u64>);
    /// A command that did not come from the lane's driver has changed the lane.
    fn lane_changed(&self, lane: LaneId);
    /// The same, where the outcome of the commit is unknown: the change may be there, or may appear soon.
    fn lane_may_have_changed(&self, lane: LaneId);
}

/// A handle to one engine; clones share it.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    /// To the commit loop.
    jobs: mpsc::Sender<commit::Job>,
    /// To the read loop, where the store is shared.
    unread: Option<mpsc::Sender<commit::Job>>,
    /// The operator whose request this handle serves.
    operator: Option<Arc<Operator>>,
}

/// A handle that does not keep the engine alive.
#[derive(Clone)]
pub struct WeakEngine {
    shared: std::sync::Weak<Shared>,
    jobs: mpsc::WeakSender<commit::Job>,
    unread: Option<mpsc::WeakSender<commit::Job>>,
}

impl WeakEngine {
    /// The engine, while somebody else still has it.
    pub fn upgrade(&self) -> Option<Engine> {
        let unread = match &self.unread {
            Some(unread) => Some(unread.upgrade()?),
            None => None,
        };
        Some(Engine { shared: self.shared.upgrade()?, jobs: self.jobs.upgrade()?, unread, operator: None })
    }
}

type Answer = oneshot::Receiver<Result<Vec<Reply>, Error>>;

/// Counts one asker while it waits for a commit.
struct Asking<'s>(&'s AtomicUsize);

impl<'s> Asking<'s> {
    fn begin(shared: &'s Shared) -> Self {
        shared.asking.fetch_add(1, Ordering::Relaxed);
        Self(&shared.asking)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Rows peeked for one command.
struct Snapshot(Vec<(RowKey, Loaded)>);

impl Rows for Snapshot {
    fn row(&self, key: &RowKey) -> Option<&Row> {
        self.0.iter().find(|(known, _)| known == key).and_then(|(_, row)| row.as_deref())
    }
}

/// One command, shared by its asker and the commit loop. The asker has it last, as long as it waits: what it made is freed where
/// it was made.
#[derive(Clone)]
pub struct One(Arc<[Command; 1]>);

impl From<Command> for One {
    fn from(command: Command) -> Self {
        Self(Arc::new([command]))
    }
}

impl From<&Command> for One {
    fn from(command: &Command) -> Self {
        command.clone().into()
    }
}

impl Deref for One {
    type Target = Command;

    fn deref(&self) -> &Command {
        let [command] = &*self.0;
        command
    }
}

impl Engine {
    /// An engine over a store, and the commit loop that must be run for it: on a thread of its own in production,
    /// under virtual time in the simulator. The loop ends when the last handle is gone. `askers` is the executor that
    /// the askers run on, where it is not the loop's own.
    pub async fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        limits: EngineLimits,
        observer: Box<dyn Observer>,
        askers: Option<Handle>,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), Error> {
        let time = StoreTime::new(clock, store.clone(), store.time_floor().await?);
        // An id must never be used twice on a store: engines that share one, and the runs of each, start anywhere in 2^64.
        let random = || getrandom::u64().map_err(|error| Error::Stopped(format!("no randomness: {error}")));
        let next_id = AtomicU64::new(limits.first_commit_id.map_or_else(random, Ok)?);
        let (jobs, commits) = mpsc::channel(limits.queue_max);
        let (unread, reads) = mpsc::channel(limits.queue_max);
        let promises = store.promises();
        let shared = Arc::new(Shared {
            shared: promises.shared,
            many_rows: promises.many_rows,
            guess_stats: guess::GuessStats::default(),
            store,
            time,
            waiters: waiters::Waiters::new(limits.waiters_max, limits.waiters_per_tenant_max),
            sightings: sightings::Sightings::new(limits.sightings_max),
            sweep: std::sync::Mutex::default(),
            limits,
            next_id,
            turn: tokio::sync::RwLock::default(),
            backlog: pacing::BacklogSignal::default(),
            asking: AtomicUsize::new(0),
            stopped: std::sync::OnceLock::new(),
            observer,
            listeners: RwLock::default(),
        });
        let unread = shared.shared.then_some(unread);
        // Ends with the last asker, as the commit loop does.
        let to_commits = unread.is_some().then(|| jobs.clone());
        let own = shared.clone();
        let commit_loop = async move {
            match to_commits {
                Some(jobs) => drop(join(read::run(own.clone(), reads, jobs), commit::run(own, commits, askers)).await),
                None => commit::run(own, commits, askers).await,
            }
        };
        Ok((Self { shared, jobs, unread, operator: None }, commit_loop))
    }

    /// A handle that does not keep the engine alive.
    pub fn downgrade(&self) -> WeakEngine {
        let unread = self.unread.as_ref().map(mpsc::Sender::downgrade);
        WeakEngine { shared: Arc::downgrade(&self.shared), jobs: self.jobs.downgrade(), unread }
    }

    /// Adds a listener; it hears every commit from now on.
    pub(crate) fn add_listener(&self, listener: Box<dyn CommitListener>) {
        self.shared.listeners.write().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// The machine's clocks.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.shared.time.clock()
    }

    /// The store's time.
    pub fn now(&self) -> Millis {
        self.shared.time.now()
    }

    /// The machine's own time, for what others say of theirs: signatures, credentials. May jump, and a lease is never
    /// judged by it.
    pub fn wall(&self) -> Millis {
        self.shared.time.wall()
    }

    /// Why the engine no longer serves, if so.
    pub fn stopped(&self) -> Option<&str> {
        self.shared.stopped.get().map(String::as_str)
    }

    /// The store's guarantees.
    pub fn promises(&self) -> Promises {
        self.shared.store.promises()
    }

    /// Everyone who shares the store and was seen lately; empty where it is not shared.
    pub async fn nodes(&self) -> Result<Vec<Node>, Error> {
        self.within_patience(self.shared.store.nodes()).await
    }

    /// Whether the store answers, and ends what it commits.
    pub async fn ready(&self) -> Result<(), Error> {
        if let Some(why) = self.stopped() {
            return Err(Error::Stopped(why.to_owned()));
        }
        let answers = async {
            drop(self.shared.turn.write().await);
            self.shared.store.time_floor().await
        };
        self.within_patience(Box::pin(answers)).await.map(drop)
    }

    /// Answers everyone who waits for somebody else's seal with what is known now, and lets nobody wait any more.
    pub fn dismiss_waiters(&self) {
        self.shared.waiters.close();
    }

    /// How many callers are waiting for somebody else's seal.
    pub fn waiting(&self) -> usize {
        self.shared.waiters.len()
    }

    /// How many askers are waiting for a commit.
    pub fn asking(&self) -> usize {
        self.shared.asking.load(Ordering::Relaxed)
    }

    /// The reply to one command, once everything it depends on is durable.
    pub async fn ask(&self, command: impl Into<One>) -> Result<Reply, Error> {
        let command = self.audited(command.into());
        // Where rows are far away, the read loop looks for many commands at once.
        if !self.shared.shared
            && matches!(*command, Command::Fence(fence::Command::Claim(_)))
            && let Some(reply) = self.try_answer_from_snapshot(&command).await?
        {
            return Ok(reply);
        }
        let mut replies = self.submit(command.0.clone()).await?;
        replies.pop().ok_or_else(|| Error::Unknown("no reply".to_owned()))
    }

    /// The replies to several commands, decided in order and made durable in one commit. On a shared store what others have
    /// moved meanwhile is decided again after the rest; the order holds for each key.
    pub async fn ask_all(&self, commands: impl Into<Arc<[Command]>>) -> Result<Vec<Reply>, Error> {
        let commands = self.audited_all(commands.into());
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.submit(commands).await
    }

    /// The effect behind a name, if the name is known.
    pub async fn alias(&self, tenant: &Tenant, name: &str) -> Result<Option<Arc<Alias>>, Error> {
        let row = self.load(&[RowKey::alias(tenant, name)]).await?.pop().flatten();
        Ok(row.and_then(|row| row.record.as_alias().cloned()))
    }

    // A decision over synced rows that writes nothing is final and needs no commit.
    async fn try_answer_from_snapshot(&self, command: &Command) -> Result<Option<Reply>, Error> {
        // The time of the question, not of the rows: old rows judged at a later time would lapse although renewed since.
        let now = self.now();
        let mut keys = Vec::with_capacity(1);
        footprint(command, &mut |key| keys.push(key));
        let known = match keys[..] {
            [key] => self.shared.store.peek(&key),
            // Several rows must be of one moment, which only a load promises.
            _ => None,
        };
        let rows = match known {
            Some(row) => vec![(keys[0], row?)],
            None => keys.iter().copied().zip(self.load(&keys).await?).collect(),
        };
        let decision = decide(command, &Snapshot(rows), now);
        if !decision.only_answers() {
            return Ok(None);
        }
        if let Some(target) = command.target() {
            self.shared.note(target.key, &decision.reply, now);
        }
        Ok(Some(decision.reply))
    }

    async fn within_patience<T>(&self, read: BoxFuture<'_, Result<T, fencepost_store::Error>>) -> Result<T, Error> {
        match tokio::time::timeout(self.shared.limits.patience, read).await {
            Ok(found) => Ok(found?),
            Err(_) => Err(Error::Unavailable("the store does not answer".to_owned())),
        }
    }

    async fn submit(&self, commands: Arc<[Command]>) -> Result<Vec<Reply>, Error> {
        let _asking = Asking::begin(&self.shared);
        let (job, answer) = self.job(commands)?;
        let mut accepted = pin!(self.enqueue(job));
        match poll_immediate(accepted.as_mut()).await {
            // There is nearly always room, and then nothing to time.
            Some(accepted) => accepted?,
            // Never accepted is never applied; a queue that stays full is an overload, not a reason to wait for ever.
            None => tokio::time::timeout(self.shared.limits.patience, accepted)
                .await
                .map_err(|_| Error::Unavailable("the commit queue is full".to_owned()))??,
        }
        match tokio::time::timeout(self.shared.limits.patience, answer).await {
            Ok(Ok(replies)) => replies,
            Ok(Err(_)) => Err(Error::Unknown("the commit loop ended".to_owned())),
            Err(_) => Err(Error::Unknown("the store does not answer".to_owned())),
        }
    }

    // Needs no timer: housekeeping runs where there is none.
    async fn submit_patiently(&self, commands: Arc<[Command]>) -> Result<Vec<Reply>, Error> {
        let (job, answer) = self.job(commands)?;
        self.enqueue(job).await?;
        answer.await.unwrap_or_else(|_| Err(Error::Unknown("the commit loop ended".to_owned())))
    }

    fn job(&self, commands: Arc<[Command]>) -> Result<(commit::Job, Answer), Error> {
        if let Some(why) = self.stopped() {
            return Err(Error::Stopped(why.to_owned()));
        }
        let (reply, answer) = oneshot::channel();
        Ok((commit::Job { commands, view: None, reply }, answer))
    }

    // Where rows are far away, what can be guessed needs no reading.
    async fn enqueue(&self, mut job: commit::Job) -> Result<(), Error> {
        if let Some(unread) = &self.unread {
            job.view = guess::guess(&self.shared, &job.commands).map(Arc::new);
            if job.view.is_none() {
                return unread.send(job).await.map_err(|_| Error::Stopped("the engine is closed".to_owned()));
            }
        }
        commit::hand_on(&self.shared, &self.jobs, job).await
    }
}

impl Shared {
    // Called by the commit loop rather than by the caller, who may have gone away: the write stands all the same.
    fn notify_listeners<'s>(&self, applied: impl Iterator<Item = (&'s WriteSet, &'s [Option<u64>])>) {
        let listeners = self.listeners.read().unwrap_or_else(PoisonError::into_inner);
        for (set, positions) in applied {
            for listener in listeners.iter() {
                set.also.appends().zip(positions).for_each(|(append, seq)| listener.appended(append, *seq));
                set.also.lanes_changed.iter().for_each(|lane| listener.lane_changed(*lane));
            }
        }
    }

    // The writes may be there, or be there soon: the driver of each lane must look.
    fn notify_listeners_of_unknown(&self, sets: &[WriteSet]) {
        let listeners = self.listeners.read().unwrap_or_else(PoisonError::into_inner);
        for (set, listener) in sets.iter().flat_map(|set| listeners.iter().map(move |listener| (set, listener))) {
            set.also.appends().for_each(|append| listener.appended(append, None));
            set.also.lanes_changed.iter().for_each(|lane| listener.lane_may_have_changed(*lane));
        }
    }

    fn note(&self, key: FenceKey, reply: &Reply, now: Millis) {
        let Reply::Fence(reply) = reply else { return };
        if let Some(sighting) = reply.sighting() {
            self.sightings.note(key, sighting, now);
        }
    }

    fn next_id(&self) -> fencepost_kernel::row::CommitId {
        fencepost_kernel::row::CommitId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }
}
