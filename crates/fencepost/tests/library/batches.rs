//! The bounds of one commit: not only so many commands, but so many rows and so many bytes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fencepost::{
    engine::{Engine, EngineLimits, Observer},
    kernel::{
        Command, Millis, Reply, RowKey, Scope, Tenant, Write,
        fence::{self, ClaimFence, Fence, Granted, Receipt, Seal, State, Target, Token},
        row::CommitId,
    },
    store::{self, Loaded, Promises, Store, Verdict, WriteSet, memory::Memory},
};
use fencepost_testkit::{Forwarding, Hooks, clock::ManualClock, until_async};
use futures::future::{BoxFuture, join_all};
use tokio::sync::Semaphore;

const KEYS: usize = 200;
const RECEIPT_BYTES: usize = 256 << 10;

/// A memory store whose rows are as far away as on a disk. Commits wait for a word, or readings where it is shared.
struct Watched {
    shared: bool,
    turns: Semaphore,
    /// Bytes of the rows of each reading.
    loads: Mutex<Vec<usize>>,
}

impl Watched {
    fn new(shared: bool) -> Arc<Forwarding<Self>> {
        Self { shared, turns: Semaphore::new(0), loads: Mutex::default() }.over(Arc::new(Memory::new()))
    }

    fn largest_load(&self) -> usize {
        self.loads.lock().unwrap().iter().copied().max().unwrap_or(0)
    }
}

impl Hooks for Watched {
    fn promises(&self, inner: &dyn Store) -> Promises {
        Promises { shared: self.shared, ..inner.promises() }
    }

    fn load<'a>(
        &'a self,
        inner: &'a dyn Store,
        keys: &'a [RowKey],
    ) -> BoxFuture<'a, Result<Vec<Loaded>, store::Error>> {
        Box::pin(async move {
            if self.shared {
                drop(self.turns.acquire().await.unwrap());
            }
            let rows = inner.load(keys).await?;
            self.loads.lock().unwrap().push(rows.iter().flatten().map(|row| row.record.weight_bytes()).sum());
            Ok(rows)
        })
    }

    fn peek(&self, _: &dyn Store, _: &RowKey) -> Option<Result<Loaded, store::Error>> {
        None
    }

    fn commit<'a>(
        &'a self,
        inner: &'a dyn Store,
        sets: &'a [WriteSet],
        now: Millis,
    ) -> BoxFuture<'a, Result<Vec<Verdict>, store::Error>> {
        Box::pin(async move {
            if !self.shared {
                drop(self.turns.acquire().await.unwrap());
            }
            inner.commit(sets, now).await
        })
    }
}

/// How many commands each commit answered.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<Vec<usize>>>);

impl Observer for Counts {
    fn committed(&self, commands: usize, _: Duration) {
        self.0.lock().unwrap().push(commands);
    }
}

fn target(number: usize) -> Target {
    let fields = vec![("id".to_owned(), number.to_string())];
    Target::new(Tenant::new("acme"), Arc::new(Scope::new("JOB", ["id"])), fields, None).unwrap()
}

fn claim(number: usize) -> Command {
    let (target, lease_ms) = (target(number), 60_000);
    Command::Fence(fence::Command::Claim(ClaimFence {
        target,
        body: None,
        version: None,
        source: None,
        lease_ms,
        trace: None,
    }))
}

fn sealed(number: usize, receipt: usize) -> Write {
    let target = target(number);
    let receipt = Receipt { effect_id: number.to_string(), body: vec![number as u8; receipt].into() };
    let fence = Fence {
        tenant: target.tenant.clone(),
        scope: target.scope.name.clone(),
        fields: target.fields.clone(),
        seq: None,
        first_seen: Millis(1),
        token: Token(1),
        attempt: 1,
        body: None,
        source: None,
        version: None,
        state: State::Sealed { receipt, at: Millis(1), expires: Millis(u64::MAX) },
        events: Vec::new(),
    };
    Write { key: RowKey::fence(target.key), expect: None, put: Some(fence.into()) }
}

async fn engine(store: Arc<Forwarding<Watched>>, limits: EngineLimits) -> (Engine, Counts) {
    let counts = Counts::default();
    let (engine, loops) = Engine::new(store, ManualClock::new(), limits, Box::new(counts.clone()), None).await.unwrap();
    tokio::spawn(loops);
    (engine, counts)
}

// Asks for all of these while the first commit or reading is under way, so that they are waiting together when it is done.
async fn ask_together(store: &Watched, engine: &Engine, jobs: Vec<Vec<Command>>) -> Vec<Vec<Reply>> {
    let first = tokio::spawn({
        let engine = engine.clone();
        async move { engine.ask_all(vec![claim(usize::MAX)]).await.unwrap() }
    });
    let count = jobs.len();
    let asked = jobs.into_iter().map(|job| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.ask_all(job).await.unwrap() })
    });
    let asked: Vec<_> = asked.collect();
    until_async("all ask", async || engine.asking() > count).await;
    store.turns.add_permits(10_000);
    first.await.unwrap();
    join_all(asked).await.into_iter().map(Result::unwrap).collect()
}

fn duplicate(reply: &Reply) -> &[u8] {
    match reply {
        Reply::Fence(fence::Reply::Duplicate { fence, .. }) => match &fence.state {
            State::Sealed { receipt, .. } => &receipt.body,
            state => panic!("{state:?}"),
        },
        reply => panic!("{reply:?}"),
    }
}

// Two hundred claims of keys with receipts of 4 MiB once held all of these receipts at the same time.
async fn receipts_are_read_in_part(shared: bool) {
    let store = Watched::new(shared);
    let rows: Vec<Write> = (0..KEYS).map(|number| sealed(number, RECEIPT_BYTES)).collect();
    store.inner.commit(&[WriteSet::new(CommitId(1), rows)], Millis(1)).await.unwrap();
    let (engine, counts) = engine(store.clone(), EngineLimits::default()).await;
    let replies = ask_together(&store, &engine, (0..KEYS).map(|number| vec![claim(number)]).collect()).await;
    for (number, replies) in replies.iter().enumerate() {
        assert_eq!(duplicate(&replies[0]), vec![number as u8; RECEIPT_BYTES], "each gets its own answer");
    }
    let page = 32 * (RECEIPT_BYTES + 4_096);
    assert!(store.largest_load() <= page, "{} bytes were read at once", store.largest_load());
    if !shared {
        let counts = counts.0.lock().unwrap().clone();
        assert!(counts.iter().all(|count| *count <= 40), "{counts:?} commands were answered together");
        assert_eq!(counts.iter().sum::<usize>(), KEYS + 1);
    }
}

#[tokio::test]
async fn a_commit_does_not_hold_more_receipts_than_fit() {
    receipts_are_read_in_part(false).await;
}

#[tokio::test]
async fn a_read_on_a_shared_store_does_not_hold_more_receipts_than_fit() {
    receipts_are_read_in_part(true).await;
}

#[tokio::test]
async fn a_commit_takes_no_more_bytes_of_its_commands_than_fit() {
    let store = Watched::new(false);
    store.turns.add_permits(1);
    let (engine, counts) =
        engine(store.clone(), EngineLimits { batch_bytes_max: 1 << 20, ..EngineLimits::default() }).await;
    let granted = join_all((0..40).map(|number| engine.ask(claim(number)))).await;
    let seals = granted.into_iter().enumerate().map(|(number, reply)| {
        let Ok(Reply::Fence(fence::Reply::New(Granted { token, .. }))) = reply else { panic!("{reply:?}") };
        let (target, receipt) = (target(number), vec![number as u8; RECEIPT_BYTES].into());
        vec![Command::Fence(fence::Command::Seal(Seal { target, token, effect_id: number.to_string(), receipt }))]
    });
    let seals: Vec<_> = seals.collect();
    counts.0.lock().unwrap().clear();
    store.turns.forget_permits(10_000);
    let replies = ask_together(&store, &engine, seals).await;
    assert!(
        replies.iter().all(|replies| matches!(replies[..], [Reply::Fence(fence::Reply::Sealed { replay: false, .. })])),
        "{replies:?}"
    );
    let counts = counts.0.lock().unwrap().clone();
    assert!(counts.iter().all(|count| *count <= 4), "{counts:?} seals were committed together");
    assert_eq!(counts.iter().sum::<usize>(), 41);
}

// A job's commands are committed together, whatever they weigh; jobs that do not fit wait, in their order.
#[tokio::test]
async fn a_job_is_not_split_and_jobs_keep_their_order() {
    let store = Watched::new(false);
    let rows: Vec<Write> = (0..30).map(|number| sealed(number, 1_000)).collect();
    store.inner.commit(&[WriteSet::new(CommitId(1), rows)], Millis(1)).await.unwrap();
    let limits = EngineLimits { batch_rows_max: 10, ..EngineLimits::default() };
    let (engine, counts) = engine(store.clone(), limits).await;
    // Every third job has more than a commit takes. The key 99 is asked for by all: only the first of them is let in.
    let job = |number: usize| {
        let own = if number.is_multiple_of(3) { 0..30 } else { number..number + 1 };
        own.map(claim).chain([claim(99)]).collect::<Vec<_>>()
    };
    let replies = ask_together(&store, &engine, (0..12).map(job).collect()).await;
    let words: Vec<&str> = replies.iter().map(|replies| replies.last().unwrap().decision()).collect();
    assert_eq!((words[0], &words[1..]), ("new", &["in_flight"; 11][..]));
    for replies in &replies {
        assert!(replies[..replies.len() - 1].iter().all(|reply| reply.decision() == "duplicate"), "{replies:?}");
    }
    let counts = counts.0.lock().unwrap().clone();
    assert_eq!(counts.iter().sum::<usize>(), 4 * 31 + 8 * 2 + 1);
    assert!(counts.len() > 4 && counts.iter().all(|count| *count <= 31 + 9), "{counts:?}");
}
