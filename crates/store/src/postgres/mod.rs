//! The PostgreSQL store: rows in real tables that several nodes share, under the laws of the contract.
//! Never decides anything, and never acknowledges a commit that is not durable on the server.
//! Called like any store; runs on the Tokio runtime that it was opened on, and needs none where it is called.

mod about;
mod address;
mod columns;
mod commit;
mod fault;
pub mod in_tx;
mod link;
mod nodes;
mod promises;
mod remember;
mod rows;
mod schema;
mod sql;
mod stamp;
mod tls;
mod write;

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use fencepost_kernel::{Millis, RowKey, key::Kind, row::Ids};
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_postgres::Row;

use self::{
    address::Target,
    columns::{BUCKETS, Keys, Param},
    commit::{Committer, Tried, UnknownOutcomes},
    fault::{Contention, Failed},
    link::{Epoch, Link, Session, dial},
    remember::remember,
    stamp::Stamp,
};
use crate::{
    Error, Node, Promises, Store, Verdict, WriteSet,
    address::Opener,
    codec,
    contract::{Found, Loaded, Span},
    hot::Hot,
    shared_clock::SharedClock,
};

/// How long an answer to a question may take.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long a commit may take. The server gives up a statement before that, and then nothing has happened.
const COMMIT_MAX: Duration = Duration::from_secs(3);
/// The same where the server may have to end another statement first.
const COMMIT_BESIDE_MAX: Duration = Duration::from_millis(4500);

/// How often a question is asked again because connections were given up while it was answered.
const ASK_TRIES_MAX: usize = 3;

/// Memory for rows that were written lately.
const HOT_BYTES: u64 = 32 << 20;

/// A store in a PostgreSQL database.
pub struct Postgres {
    inner: Arc<Inner>,
    runtime: Handle,
}

struct Inner {
    target: Arc<Target>,
    opener: Opener,
    /// The newest row format that this node reads.
    format_max: u8,
    /// The row format that it writes.
    format: AtomicU8,
    /// Whether it drives lanes.
    drives: AtomicBool,
    clock: SharedClock,
    /// When this node last found the others alive.
    sightings: nodes::Sightings,
    /// Nodes of older releases that have fallen silent.
    silent_old: nodes::SilentOldNodes,
    promises: Promises,
    /// One connection for commits, one for loads, one for background work.
    committing: Link,
    reading: Link,
    keeping: Link,
    /// Whose turn it is to commit: alone, or one statement behind another on the same connection.
    turn: tokio::sync::RwLock<()>,
    unknown_outcomes: UnknownOutcomes,
    stopped: OnceLock<String>,
    /// This node's latest writes. Others may have written since.
    hot: Hot<Arc<fencepost_kernel::Row>>,
}

impl Postgres {
    /// Opens the store that `url` names, and makes its tables where there are none. Must be called on a Tokio runtime,
    /// which must outlive the store.
    pub async fn open(url: &str, opener: &Opener) -> Result<Self, Error> {
        let runtime = Handle::try_current();
        let runtime = runtime.map_err(|_| Error::Broken("PostgreSQL needs a Tokio runtime".to_owned()))?;
        let target = Arc::new(Target::read(url, &opener.node)?);
        let format_max = opener.format_max.unwrap_or(codec::VERSION).min(codec::VERSION);
        let mut client = dial(&target).await?;
        schema::migrate(&mut client).await?;
        let format = nodes::register(&mut client, opener, format_max).await.map_err(Failed::of_nothing)?;
        let (clock, promises) = promises::ask(&client).await.map_err(Failed::of_nothing)?;
        let epochs = Arc::<Epoch>::default();
        let link = |first| Link::new(target.clone(), epochs.clone(), first);
        let inner = Arc::new(Inner {
            committing: link(&[sql::COMMIT_FENCES, sql::LOOK_FENCES]),
            reading: link(&[sql::LOAD_FENCES, sql::LOAD_ALL]),
            keeping: link(&[]),
            target,
            opener: opener.clone(),
            format_max,
            format: AtomicU8::new(format),
            drives: AtomicBool::new(false),
            clock,
            sightings: nodes::Sightings::default(),
            silent_old: nodes::SilentOldNodes::default(),
            promises,
            turn: tokio::sync::RwLock::default(),
            unknown_outcomes: UnknownOutcomes::default(),
            stopped: OnceLock::new(),
            hot: Hot::new(HOT_BYTES),
        });
        runtime.spawn(nodes::beat(Arc::downgrade(&inner), inner.clock.behind()));
        Ok(Self { inner, runtime })
    }

    // The caller may be on no runtime at all: futures that need timers run on ours.
    fn run<'a, T: Send + 'static>(
        &'a self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> BoxFuture<'a, Result<T, Error>> {
        Box::pin(async move {
            if let Some(why) = self.inner.stopped.get() {
                return Err(Error::Broken(why.clone()));
            }
            let gone = |error| Err(Error::Unknown(format!("the store's runtime ended: {error}")));
            self.runtime.spawn(work).await.unwrap_or_else(gone)
        })
    }
}

impl Inner {
    fn set_format(&self, format: u8) {
        self.format.store(format, Ordering::Release);
    }

    // Stops serving for good.
    fn stop(&self, error: Error) -> Error {
        if let Error::Broken(why) = &error {
            let _ = self.stopped.set(why.clone());
        }
        error
    }

    // An answer within its time. A session that does not answer is given up.
    async fn within<T>(&self, session: &Session, work: impl Future<Output = T>) -> Result<T, Error> {
        tokio::time::timeout(ANSWER_MAX, work).await.map_err(|_| {
            session.spoil();
            Error::NotApplied("the database does not answer".to_owned())
        })
    }

    async fn ask(&self, link: &Link, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        for _ in 0..ASK_TRIES_MAX {
            let session = link.session().await?;
            let answer = self.within(&session, session.query(sql, params)).await?;
            let rows = answer.map_err(|error| fault::of_read(&error))?;
            // Read from a server that may have been replaced meanwhile: a decision over these rows would be written to
            // its successor.
            if session.usable() {
                return Ok(rows);
            }
        }
        Err(Error::NotApplied("the connections to the database keep breaking".to_owned()))
    }

    async fn find(&self, sql: &'static str, params: &[Param<'_>]) -> Result<Found, Error> {
        let rows = self.ask(&self.keeping, sql, params).await?;
        rows::records(&rows, self.format_max, &self.clock)
    }

    async fn load(&self, keys: Vec<RowKey>) -> Result<Vec<Loaded>, Error> {
        let by_table: Keys = keys.iter().collect();
        // One statement is one snapshot.
        let rows = match (by_table.fences.is_empty(), by_table.ids.is_empty()) {
            (true, true) => return Ok(Vec::new()),
            (_, true) => self.ask(&self.reading, sql::LOAD_FENCES, &[&by_table.fences]).await?,
            _ => {
                let params: [Param<'_>; 3] = [&by_table.fences, &by_table.ids, &by_table.kinds];
                self.ask(&self.reading, sql::LOAD_ALL, &params).await?
            }
        };
        let found: BTreeMap<_, _> = rows::records(&rows, self.format_max, &self.clock)?.into_iter().collect();
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    async fn commit(&self, sets: Vec<WriteSet>, now: Millis) -> Result<Vec<Verdict>, Error> {
        let outcome = match self.beside_others(&sets, now).await {
            Ok(Tried::Done(verdicts)) => Ok(verdicts),
            Ok(Tried::Undone(contention)) => self.alone(&sets, now, contention).await,
            Err(error) => Err(error),
        };
        if let Ok(verdicts) = &outcome {
            self.unknown_outcomes.settle(&sets);
            remember(&self.hot, &sets, verdicts);
        }
        outcome
    }

    // One statement, which may leave while others are under way: the server goes from one to the next without waiting for us.
    async fn beside_others(&self, sets: &[WriteSet], now: Millis) -> Result<Tried, Error> {
        let Some(puts) = commit::lone_puts(sets).filter(|_| commit::fitting(sets) == sets.len()) else {
            return Ok(Tried::Undone(Contention::Lost));
        };
        let _turn = self.turn.read().await;
        let session = self.committing.session().await?;
        if self.unknown_outcomes.replaced(sets, session.lineage()) {
            return Ok(Tried::Undone(Contention::Lost));
        }
        let tried = within(COMMIT_BESIDE_MAX, &session, self.committer(&session).at_once(sets, puts, now)).await;
        self.noted(sets, &session, tried)
    }

    async fn alone(&self, sets: &[WriteSet], now: Millis, after: Contention) -> Result<Vec<Verdict>, Error> {
        let _turn = self.turn.write().await;
        let session = self.committing.session().await?;
        let told = self.unknown_outcomes.found_or_moved(sets, session.lineage());
        let tried = within(COMMIT_MAX, &session, self.committer(&session).commit(&told, now, after)).await;
        self.noted(sets, &session, tried)
    }

    // Remembers where a try was left open.
    fn noted<T>(&self, sets: &[WriteSet], session: &Session, tried: Result<T, Error>) -> Result<T, Error> {
        tried.inspect_err(|error| {
            if matches!(error, Error::Unknown(_)) {
                self.unknown_outcomes.leave_open(sets, session.lineage());
            }
        })
    }

    fn committer<'a>(&'a self, session: &'a Session) -> Committer<'a> {
        Committer {
            session,
            node: &self.opener.node,
            format: self.format.load(Ordering::Acquire),
            clock: &self.clock,
            unknown_outcomes: &self.unknown_outcomes,
        }
    }

    async fn sweep(&self, now: Millis, limit: usize) -> Result<usize, Error> {
        let session = self.keeping.session().await?;
        let buckets: Vec<i16> = (0..i16::from(BUCKETS)).collect();
        let mut dropped = 0;
        for sql in sql::SWEEPS {
            let left = i64::try_from(limit - dropped).unwrap_or(i64::MAX);
            let now = Stamp(now);
            let params: [Param<'_>; 3] = [&buckets, &now, &left];
            let count = self.within(&session, session.execute(sql, &params)).await?;
            dropped += count.map_err(|error| fault::of_read(&error))? as usize;
        }
        Ok(dropped)
    }

    async fn time_floor(&self) -> Result<Millis, Error> {
        let rows = self.ask(&self.keeping, sql::TIME_FLOOR, &[]).await?;
        Ok(rows.first().and_then(|row| row.get::<_, Option<Stamp>>(0)).map_or(Millis(0), |floor| floor.0))
    }
}

impl Store for Postgres {
    fn promises(&self) -> Promises {
        self.inner.promises.clone()
    }

    fn now(&self) -> Option<Millis> {
        Some(self.inner.clock.now())
    }

    fn format(&self) -> u8 {
        self.inner.format.load(Ordering::Acquire)
    }

    fn load<'a>(&'a self, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        let (inner, keys) = (self.inner.clone(), keys.to_vec());
        self.run(async move { inner.load(keys).await })
    }

    fn peek(&self, _: &RowKey) -> Option<Result<Loaded, Error>> {
        None
    }

    fn guess(&self, key: &RowKey) -> Option<Loaded> {
        // A machine that slept must hear the time before it writes.
        self.inner.clock.awake().then(|| self.inner.hot.get(key))
    }

    fn commit<'a>(&'a self, sets: &'a [WriteSet], now: Millis) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        let (inner, sets) = (self.inner.clone(), sets.to_vec());
        self.run(async move { inner.commit(sets, now).await })
    }

    fn time_floor(&self) -> BoxFuture<'_, Result<Millis, Error>> {
        let inner = self.inner.clone();
        self.run(async move { inner.time_floor().await })
    }

    fn due<'a>(
        &'a self,
        kind: Kind,
        until: Millis,
        after: Option<(Millis, RowKey)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        let inner = self.inner.clone();
        self.run(async move {
            let (until, limit) = (Stamp(until), page(limit));
            let number = kind as i16;
            let after = after.map(|(due, key)| (Stamp(due), key.id));
            match &after {
                None if kind == Kind::Fence => inner.find(sql::DUE_FENCES, &[&until, &limit]).await,
                None => inner.find(sql::DUE_ROWS, &[&until, &limit, &number]).await,
                Some((due, id)) if kind == Kind::Fence => {
                    inner.find(sql::DUE_FENCES_AFTER, &[&until, &limit, due, &id.as_slice()]).await
                }
                Some((due, id)) => {
                    inner.find(sql::DUE_ROWS_AFTER, &[&until, &limit, &number, due, &id.as_slice()]).await
                }
            }
        })
    }

    fn range<'a>(
        &'a self,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        let Some(Span { from, last }) = Span::new(kind, prefix, after) else {
            return Box::pin(async { Ok(Found::new()) });
        };
        let from = match from {
            Bound::Excluded(after) => after.id.to_vec(),
            Bound::Included(first) => just_before(first.id),
            Bound::Unbounded => Vec::new(),
        };
        let inner = self.inner.clone();
        self.run(async move {
            let (to, limit, number) = (last.id.as_slice(), page(limit), kind as i16);
            match kind.spec().ids {
                _ if kind == Kind::Fence => inner.find(sql::RANGE_FENCES, &[&from, &to, &limit]).await,
                _ if kind == Kind::Quarantine => inner.find(sql::RANGE_QUARANTINE, &[&from, &to, &limit]).await,
                Ids::FewRanges => inner.find(sql::RANGE_FEW, &[&from, &to, &limit, &number]).await,
                Ids::Digests | Ids::Ranges => inner.find(sql::RANGE_ROWS, &[&from, &to, &limit, &number]).await,
            }
        })
    }

    fn sweep(&self, now: Millis, limit: usize) -> BoxFuture<'_, Result<Option<usize>, Error>> {
        let inner = self.inner.clone();
        self.run(async move { inner.sweep(now, limit).await.map(Some) })
    }

    fn alive(&self) -> BoxFuture<'_, Result<Vec<(String, Millis)>, Error>> {
        let inner = self.inner.clone();
        self.run(async move { inner.alive().await })
    }

    fn drive(&self) -> BoxFuture<'_, Result<(), Error>> {
        let inner = self.inner.clone();
        self.run(async move { inner.drive().await })
    }

    fn leave(&self) -> BoxFuture<'_, Result<(), Error>> {
        let inner = self.inner.clone();
        self.run(async move { inner.leave().await })
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<Node>, Error>> {
        let inner = self.inner.clone();
        self.run(async move { inner.list().await })
    }
}

// A commit within its time. A session that does not answer is given up.
async fn within<T>(
    most: Duration,
    session: &Session,
    commit: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(most, commit).await.unwrap_or_else(|_| {
        session.spoil();
        Err(Error::Unknown("the database does not answer".to_owned()))
    })
}

// Bytes that come before this id and after every id before it, as PostgreSQL orders them: less of the same is before it.
fn just_before(id: [u8; 32]) -> Vec<u8> {
    let mut before = id.to_vec();
    while before.last() == Some(&0) {
        before.pop();
    }
    if let Some(last) = before.last_mut().filter(|_| id[31] != 0) {
        *last -= 1;
    }
    before
}

fn page(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::just_before;

    #[test]
    fn nothing_lies_between_an_id_and_what_is_just_before_it() {
        let id = |bytes: &[u8], rest: u8| {
            let mut id = [rest; 32];
            id[..bytes.len()].copy_from_slice(bytes);
            id
        };
        for (first, below) in [
            (id(&[7], 0), id(&[6], 0xff)),
            (id(&[7, 0, 9], 0), id(&[7, 0, 8], 0xff)),
            (id(&[], 7), id(&[], 7).map(|byte| byte)),
            (id(&[7; 31], 1), id(&[7; 31], 0)),
        ] {
            let before = just_before(first);
            assert!(before[..] < first[..], "{before:?}");
            assert!(before[..] >= below[..] || below == first, "{before:?}");
        }
        assert!(just_before([0; 32]).is_empty());
    }
}
