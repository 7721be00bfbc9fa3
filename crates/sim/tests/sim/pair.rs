//! Two engines on one store, of which the first can be stopped at a chosen place: cases that a seed found.
//! Never sleeps: a lock that a test holds is where the node stands. Used by `dates` and `batches`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use fencepost::{
    clock::SystemClock,
    engine::{self, Engine, EngineLimits},
};
use fencepost_kernel::{
    Command, Millis, Reply, RowKey, Write,
    fence::{self, Token},
    key::Kind,
    row::CommitId,
};
use fencepost_store::{
    Error, Memory, Promises, Store, Verdict, WriteSet,
    contract::{Found, Loaded},
};
use futures::future::BoxFuture;
use tokio::{sync::Mutex, task::JoinHandle};

/// One node's way to a store that others share. A test that holds a lock keeps the node from getting on.
pub struct Way {
    memory: Arc<Memory>,
    clock_ms: Arc<AtomicU64>,
    pub loads: Mutex<()>,
    pub commits: Mutex<()>,
    /// Whether the answer to the next commit gets lost, and when that is noticed.
    pub loses_answer: AtomicBool,
    pub answers: Mutex<()>,
    /// Whether somebody else's transaction holds the row of the last of several write sets.
    pub holds_last: AtomicBool,
}

impl Store for Way {
    fn promises(&self) -> Promises {
        Promises { shared: true, ..self.memory.promises() }
    }

    fn now(&self) -> Option<Millis> {
        Some(Millis(self.clock_ms.load(Ordering::Relaxed)))
    }

    fn load<'a>(&'a self, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        Box::pin(async move {
            let _may = self.loads.lock().await;
            self.memory.load(keys).await
        })
    }

    fn peek(&self, key: &RowKey) -> Option<Result<Loaded, Error>> {
        self.memory.peek(key)
    }

    fn commit<'a>(&'a self, sets: &'a [WriteSet], now: Millis) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        Box::pin(async move {
            let _may = self.commits.lock().await;
            if let [free @ .., _] = sets
                && !free.is_empty()
                && self.holds_last.swap(false, Ordering::Relaxed)
            {
                let mut verdicts = self.memory.commit(free, now).await?;
                verdicts.push(Verdict::Held);
                return Ok(verdicts);
            }
            let verdicts = self.memory.commit(sets, now).await;
            if self.loses_answer.swap(false, Ordering::Relaxed) {
                let _noticed = self.answers.lock().await;
                return Err(Error::Unknown("the connection broke".to_owned()));
            }
            verdicts
        })
    }

    fn time_floor(&self) -> BoxFuture<'_, Result<Millis, Error>> {
        self.memory.time_floor()
    }

    fn due<'a>(
        &'a self,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        self.memory.due(kind, until, after, limit)
    }

    fn range<'a>(
        &'a self,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        self.memory.range(kind, prefix, after, limit)
    }
}

/// Two nodes on one store, at the store's time 1,000.
pub struct Pair {
    clock_ms: Arc<AtomicU64>,
    first: Engine,
    /// The first node's way to the store.
    pub way: Arc<Way>,
    pub second: Engine,
}

impl Pair {
    pub async fn start() -> Self {
        let (memory, clock_ms) = (Arc::new(Memory::new()), Arc::new(AtomicU64::new(1_000)));
        let mut nodes = Vec::new();
        for first_commit_id in [1, 1_000_000] {
            let (memory, clock_ms) = (memory.clone(), clock_ms.clone());
            let way = Arc::new(Way {
                memory,
                clock_ms,
                loads: Mutex::default(),
                commits: Mutex::default(),
                loses_answer: AtomicBool::new(false),
                answers: Mutex::default(),
                holds_last: AtomicBool::new(false),
            });
            let limits = EngineLimits { first_commit_id: Some(first_commit_id), ..EngineLimits::default() };
            let clock = Arc::new(SystemClock::default());
            let (engine, loops) = Engine::new(way.clone(), clock, limits, Box::new(()), None).await.expect("an engine");
            tokio::spawn(loops);
            nodes.push((engine, way));
        }
        let ((second, _), (first, way)) = (nodes.pop().expect("a node"), nodes.pop().expect("a node"));
        Self { clock_ms, first, way, second }
    }

    pub fn set_clock_ms(&self, now_ms: u64) {
        self.clock_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Rows of a kind are gone, as after a failover to a server that never had them.
    pub async fn lose(&self, kind: Kind) {
        let memory = &self.way.memory;
        for (key, row) in memory.scan(kind, None, usize::MAX).await.expect("rows") {
            let gone = Write { key, expect: Some(row.revision), put: None };
            memory.commit(&[WriteSet::new(CommitId(7), vec![gone])], Millis(0)).await.expect("a commit");
        }
    }

    /// Asks the first node, and lets it get as far as it can.
    pub async fn ask_first(&self, commands: Vec<Command>) -> JoinHandle<Result<Vec<Reply>, engine::Error>> {
        let first = self.first.clone();
        let asked = tokio::spawn(async move { first.ask_all(commands).await });
        settle().await;
        asked
    }
}

/// One thread: everyone who can go on has gone on long before that.
pub async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// The token of a claim that the second node granted.
pub async fn claimed_by_second(pair: &Pair, claim: &Command) -> Token {
    match pair.second.ask(claim).await.expect("an answer") {
        Reply::Fence(fence::Reply::New(granted)) => granted.token,
        other => panic!("{other:?}"),
    }
}
