//! What time a decision is made at where another node writes between its reading and its commit: two engines on one
//! store, of which one is stopped at a chosen place. Both were found by seeds; here they are told step by step.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fencepost::{
    clock::SystemClock,
    engine::{Engine, Limits},
};
use fencepost_kernel::{
    Command, Millis, Reply, RowKey, Tenant,
    command::{Claim, Release, Renew},
    fence::Token,
    key::{Kind, Target},
    scope::{OnLapse, Scope},
};
use fencepost_store::{
    Error, Memory, Promises, Store, Verdict, WriteSet,
    contract::{Found, Loaded},
};
use futures::future::BoxFuture;
use tokio::sync::Mutex;

/// One node's way to a store that others share. A test that holds a lock keeps the node from getting on.
struct Way {
    memory: Arc<Memory>,
    clock_ms: Arc<AtomicU64>,
    loads: Mutex<()>,
    commits: Mutex<()>,
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
            self.memory.commit(sets, now).await
        })
    }

    fn time_floor(&self) -> BoxFuture<'_, Result<Millis, Error>> {
        self.memory.time_floor()
    }

    fn due<'a>(
        &'a self,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        self.memory.due(until, after, limit)
    }

    fn scan<'a>(&'a self, kind: Kind, after: Option<RowKey>, limit: usize) -> BoxFuture<'a, Result<Found, Error>> {
        self.memory.scan(kind, after, limit)
    }
}

/// Two nodes on one store, at the store's time 1,000.
struct Pair {
    clock_ms: Arc<AtomicU64>,
    first: Engine,
    way: Arc<Way>,
    second: Engine,
}

impl Pair {
    async fn start() -> Self {
        let (memory, clock_ms) = (Arc::new(Memory::new()), Arc::new(AtomicU64::new(1_000)));
        let mut nodes = Vec::new();
        for first_commit_id in [1, 1_000_000] {
            let (memory, clock_ms) = (memory.clone(), clock_ms.clone());
            let way = Arc::new(Way { memory, clock_ms, loads: Mutex::default(), commits: Mutex::default() });
            let limits = Limits { first_commit_id: Some(first_commit_id), ..Limits::default() };
            let clock = Arc::new(SystemClock::default());
            let (engine, loops) = Engine::new(way.clone(), clock, limits, Box::new(()), None).await.expect("an engine");
            tokio::spawn(loops);
            nodes.push((engine, way));
        }
        let ((second, _), (first, way)) = (nodes.pop().expect("a node"), nodes.pop().expect("a node"));
        Self { clock_ms, first, way, second }
    }

    fn set_clock_ms(&self, now_ms: u64) {
        self.clock_ms.store(now_ms, Ordering::Relaxed);
    }

    // The first node gets as far as it can.
    fn ask_first(&self, commands: Vec<Command>) -> tokio::task::JoinHandle<Vec<Reply>> {
        let first = self.first.clone();
        tokio::spawn(async move { first.ask_all(commands).await.expect("an answer") })
    }
}

// One thread: everyone who can go on has gone on long before that.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn target(key: &str) -> Target {
    let mut scope = Scope::new("PAY", vec!["k"]);
    scope.on_lapse = OnLapse::Hold;
    let fields = vec![("k".to_owned(), key.to_owned())];
    Target::new(Tenant::new("acme"), Arc::new(scope), fields, None).expect("a target")
}

fn claim(key: &str, lease_ms: u64) -> Command {
    Command::Claim(Claim { target: target(key), body: None, version: None, source: None, lease_ms })
}

async fn claimed_by_second(pair: &Pair, key: &str, lease_ms: u64) -> Token {
    match pair.second.ask(&claim(key, lease_ms)).await.expect("an answer") {
        Reply::New(granted) => granted.token,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_claim_renewed_at_another_node_is_never_told_of_as_a_doubt() {
    let pair = Pair::start().await;
    let token = claimed_by_second(&pair, "held", 500).await;
    let stopped = pair.way.commits.lock().await;
    let busy = pair.ask_first(vec![claim("any", 100)]);
    settle().await;
    // Its rows are read while the claim is pending; its commit waits behind the one before.
    let both = pair.ask_first(vec![claim("held", 100), claim("free", 100)]);
    settle().await;
    let renew = Command::Renew(Renew { target: target("held"), token, lease_ms: 60_000 });
    assert!(matches!(pair.second.ask(&renew).await, Ok(Reply::Renewed { .. })));
    // Past the lease as it was read.
    pair.set_clock_ms(5_000);
    drop(stopped);
    let replies = both.await.expect("replies");
    assert!(matches!(replies[0], Reply::InFlight { .. }), "{:?}", replies[0]);
    assert!(matches!(replies[1], Reply::New(_)), "{:?}", replies[1]);
    assert!(matches!(busy.await.expect("replies")[0], Reply::New(_)));
}

#[tokio::test]
async fn a_claim_is_dated_after_the_release_that_it_stands_on() {
    let pair = Pair::start().await;
    let stopped = pair.way.commits.lock().await;
    let late = pair.ask_first(vec![claim("k", 500)]);
    settle().await;
    // What it read has moved, so it reads again, and that takes long.
    let token = claimed_by_second(&pair, "k", 60_000).await;
    let slow = pair.way.loads.lock().await;
    drop(stopped);
    settle().await;
    pair.set_clock_ms(9_000);
    let release = Command::Release(Release { target: target("k"), token });
    assert!(matches!(pair.second.ask(&release).await, Ok(Reply::Released { .. })));
    drop(slow);
    match &late.await.expect("replies")[0] {
        Reply::New(granted) => assert_eq!(granted.lease_expires, Millis(9_500)),
        other => panic!("{other:?}"),
    }
}
