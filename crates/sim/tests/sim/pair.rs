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
use fencepost_store::{Error, Loaded, Memory, Promises, Store, Verdict, WriteSet};
use fencepost_testkit::{Faults, Forwarding, Hooks, settle};
use futures::future::BoxFuture;
use tokio::task::JoinHandle;

/// One node's way to a store that others share. A test that holds a gate keeps the node from getting on.
pub struct Way {
    clock_ms: Arc<AtomicU64>,
    pub faults: Faults,
    /// Whether somebody else's transaction holds the row of the last of several write sets.
    pub holds_last: AtomicBool,
}

impl Hooks for Way {
    fn promises(&self, inner: &dyn Store) -> Promises {
        self.faults.promises(inner)
    }

    fn now(&self, _: &dyn Store) -> Option<Millis> {
        Some(Millis(self.clock_ms.load(Ordering::Relaxed)))
    }

    fn load<'a>(&'a self, inner: &'a dyn Store, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        self.faults.load(inner, keys)
    }

    fn commit<'a>(
        &'a self,
        inner: &'a dyn Store,
        sets: &'a [WriteSet],
        now: Millis,
    ) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        Box::pin(async move {
            let [free @ .., _] = sets else { return self.faults.commit(inner, sets, now).await };
            let held = !free.is_empty() && self.holds_last.swap(false, Ordering::Relaxed);
            let mut verdicts = self.faults.commit(inner, if held { free } else { sets }, now).await?;
            verdicts.extend(held.then_some(Verdict::Held));
            Ok(verdicts)
        })
    }
}

/// Two nodes on one store, at the store's time 1,000.
pub struct Pair {
    clock_ms: Arc<AtomicU64>,
    first: Engine,
    /// The first node's way to the store.
    pub way: Arc<Forwarding<Way>>,
    pub second: Engine,
}

impl Pair {
    pub async fn start() -> Self {
        let (memory, clock_ms) = (Arc::new(Memory::new()), Arc::new(AtomicU64::new(1_000)));
        let mut nodes = Vec::new();
        for first_commit_id in [1, 1_000_000] {
            let (memory, clock_ms) = (memory.clone(), clock_ms.clone());
            let way = Way { clock_ms, faults: Faults::shared(), holds_last: AtomicBool::new(false) }.over(memory);
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
        let memory = &self.way.inner;
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

/// The token of a claim that the second node granted.
pub async fn claimed_by_second(pair: &Pair, claim: &Command) -> Token {
    match pair.second.ask(claim).await.expect("an answer") {
        Reply::Fence(fence::Reply::New(granted)) => granted.token,
        other => panic!("{other:?}"),
    }
}
