//! The Redis store: fences for many services, on one server or on a cluster. A row is one string; a write set is one
//! script that compares revisions and writes all or nothing.
//! Never keeps a row in this process, and never lets a server expire a row that is not sealed.
//! Called by the commit loop like any store; its work runs on the Tokio runtime that opened it.

mod address;
mod cluster;
mod layout;
mod link;
mod ordered;
mod promise;
mod router;
mod rows;
mod script;

use std::{
    future::Future,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fencepost_kernel::{Millis, RowKey, key::Kind};
use futures::future::BoxFuture;
use tokio::runtime::Handle;

use crate::{
    Error, Promises, Store, Verdict, WriteSet,
    contract::{Found, Loaded, Span},
    judge::follow_back,
    shared_clock::SharedClock,
};
use address::Settings;
use layout::Layout;
use router::Router;
use script::Said;

/// How often an engine sends its time to the server, and reads the latest that any engine has sent.
const BEAT: Duration = Duration::from_secs(2);
/// The same while the server's clock is behind, and after a failure. Only the engines know the time then, and one that
/// starts must not grant leases that are over for the others.
const BEAT_SOON: Duration = Duration::from_millis(250);

/// A store in Redis. It keeps fences, but no lanes and no counters.
pub struct Redis {
    inner: Arc<Inner>,
    promises: Promises,
    runtime: Handle,
}

struct Inner {
    router: Router,
    layout: Layout,
    clock: SharedClock,
    /// Whether the server's clock is behind the latest time that any engine has sent to it.
    server_behind: AtomicBool,
}

impl Redis {
    /// Opens the store at `redis://[user:password@]host[:port][/db]` or `redis+cluster://host[:port],host…`, with
    /// `rediss` for TLS. The parameters are `prefix`, `slots=one`, `replicas` and `format`; see the guide on Redis.
    /// Needs a Tokio runtime that outlives the store.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|_| Error::Broken("Redis needs a Tokio runtime".to_owned()))?;
        let settings = Settings::parse(url).map_err(Error::Broken)?;
        // Where a build has two TLS providers, rustls chooses none by itself.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let layout = Layout::new(&settings.prefix, settings.one_slot);
        let router = Router::connect(settings).await.map_err(Error::NotApplied)?;
        let promises = promise::promises(&router, layout.one_slot()).await?;
        let mut inner =
            Inner { router, layout, clock: SharedClock::new(Millis(0)), server_behind: AtomicBool::new(false) };
        inner.mark().await?;
        inner.clock = SharedClock::new(inner.time_floor().await?);
        // Proves that scripts may run and write here before any caller relies on it, and reads the server's time.
        inner.commit(inner.parts(&[], Millis(0))).await?;
        let inner = Arc::new(inner);
        runtime.spawn(keep_time(Arc::downgrade(&inner)));
        Ok(Self { inner, promises, runtime })
    }

    // The commit loop and many callers run outside the runtime.
    fn run<'a, T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> BoxFuture<'a, Result<T, Error>> {
        let task = self.runtime.spawn(work);
        Box::pin(async move { task.await.unwrap_or_else(|error| Err(Error::Unknown(error.to_string()))) })
    }
}

impl Store for Redis {
    fn promises(&self) -> Promises {
        self.promises.clone()
    }

    fn now(&self) -> Option<Millis> {
        Some(self.inner.clock.now())
    }

    fn load<'a>(&'a self, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        let (inner, keys) = (self.inner.clone(), keys.to_vec());
        self.run(async move { inner.load(&keys).await })
    }

    fn peek(&self, _: &RowKey) -> Option<Result<Loaded, Error>> {
        None
    }

    fn commit<'a>(&'a self, sets: &'a [WriteSet], now: Millis) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        if !self.promises.many_rows && sets.iter().any(|set| set.writes.len() + set.also.held.len() > 1) {
            let why = "several rows commit together only where they share a slot: open the cluster with `?slots=one`";
            return Box::pin(async move { Err(Error::NotApplied(why.to_owned())) });
        }
        if sets.iter().any(|set| !set.also.merges.is_empty() || !set.also.drops.is_empty()) {
            let why = "lanes and counters are not kept in Redis: use the embedded store or PostgreSQL";
            return Box::pin(async move { Err(Error::NotApplied(why.to_owned())) });
        }
        let (inner, parts) = (self.inner.clone(), self.inner.parts(sets, now));
        let said = self.run(async move { inner.commit(parts).await });
        Box::pin(async move { said.await.map(|said| verdicts(sets, &said)) })
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
        self.run(async move { inner.due(kind, until, after, limit).await })
    }

    fn range<'a>(
        &'a self,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<RowKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Found, Error>> {
        let Some(span) = Span::new(kind, prefix, after) else { return Box::pin(async { Ok(Found::new()) }) };
        let inner = self.inner.clone();
        self.run(async move { inner.range(span, limit).await })
    }
}

// Keeps the time of all engines together while the store exists: while none of them commits, a server's clock may be
// set back, or a replica whose clock is behind may take over.
async fn keep_time(store: Weak<Inner>) {
    let mut pause = BEAT;
    loop {
        tokio::time::sleep(pause).await;
        let Some(store) = store.upgrade() else { return };
        let told = store.commit(store.parts(&[], store.clock.now())).await.is_ok();
        pause = if told && !store.server_behind.load(Ordering::Acquire) { BEAT } else { BEAT_SOON };
    }
}

// Each set's own verdict, and what the sets after it prove.
fn verdicts(sets: &[WriteSet], said: &[Said]) -> Vec<Verdict> {
    let verdict = |said: &Said| match said {
        Said::Moved => Verdict::Moved,
        Said::Refused => Verdict::Held,
        Said::Applied | Said::Repeated => Verdict::Applied,
    };
    let mut verdicts: Vec<Verdict> = said.iter().map(verdict).collect();
    if said.contains(&Said::Repeated) {
        follow_back(sets, &mut verdicts);
    }
    verdicts
}
