//! Make every retry safe.
//!
//! Distributed systems retry: feeds replay, operators double-click, queues redeliver, workers crash between the
//! effect and the acknowledgement. Under a fence the first caller has the effect, and everyone else gets the
//! first one's receipt; a caller that comes while the effect runs waits for it ([`Effect::wait`]):
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! use fencepost::{Done, Failure, Fencepost};
//!
//! async fn book() -> Result<Done, Failure<std::io::Error>> {
//!     Ok(Done::new("RSV-1", r#"{"hotel":"Astoria"}"#)) // the hotel is called here
//! }
//!
//! let once = Fencepost::open(dir.path()).await?;
//! let booking = [("caseUrn", "urn:case:7"), ("waveUrn", "urn:wave:1"), ("groupId", "G-42")];
//! for _ in 0..3 {
//!     let outcome = once.scope("BOOKING").key(booking).run(|_claim| book()).await?;
//!     assert_eq!(outcome.effect_id, "RSV-1"); // booked once, answered three times
//! }
//! # once.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! Promised: only one of any number of callers is let in; a sealed receipt is durable before any caller gets it, and is
//! answered byte for byte for the scope's retention. Not promised: an effect outside this store can still happen twice
//! if its holder dies between the effect and the seal; the next holder is told so ([`Claim::earlier`]) and can ask the
//! target first, or the scope can say `hold`, and then a person decides.

#![warn(missing_docs)]

pub mod answer;
mod claim;
pub mod clock;
pub mod dispatch;
pub mod engine;
pub mod executor;
pub mod idempotency_key;
pub mod ingest;
pub mod layer;
pub mod moving;
mod once;
pub mod queue;
#[cfg(feature = "postgres")]
mod transaction;
pub mod verify;

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    thread,
    time::Duration,
};

use fencepost_kernel::{Tenant, fence::Target};
use fencepost_store::{Address, Store, address::Opener, embedded};

pub use claim::{Claim, Patience};
pub use engine::{Engine, Explanation};
pub use fencepost_policy::{self as policy, signature};
pub use fencepost_store as store;
pub use once::{Claimed, Done, Effect, Error, Failure, Outcome, Resolved};
#[cfg(feature = "postgres")]
pub use transaction::Published;
pub use {fencepost_kernel as kernel, fencepost_kernel::Scope};

use clock::{Clock, SystemClock};
use engine::{EngineLimits, Observer};
use ingest::{Ingest, IngestRules, IngestSignals};
use policy::{NoScope, Policy};
use tokio::{runtime::Handle, sync::oneshot};

/// How often background work gets its turn.
const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(1);

/// An open Fencepost: a store, its engine, and the scopes it knows. Clones share it.
#[derive(Clone)]
pub struct Fencepost {
    engine: Engine,
    // Behind two pointers: a request that began under a policy ends under it, and the next one sees the new.
    policy: Arc<RwLock<Arc<Policy>>>,
    tenant: Tenant,
    settle_for: Option<Duration>,
    threads: Arc<Threads>,
    ingest_signals: Arc<IngestSignals>,
}

struct Threads {
    /// Told when the commit loop has ended.
    end: oneshot::Receiver<()>,
}

impl Fencepost {
    /// Opens the embedded store in a directory, with the built-in scopes.
    pub async fn open(dir: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(dir, Policy::builtin()).await
    }

    /// Opens the embedded store in a directory, with the scopes of a policy.
    pub async fn open_with(dir: impl AsRef<Path>, policy: Policy) -> Result<Self, Error> {
        clock::check_wall().map_err(Error::Open)?;
        let store = embedded::Embedded::open(dir.as_ref(), embedded::Options::default())
            .map_err(|error| Error::Open(error.why().to_owned()))?;
        Self::over(
            Arc::new(store),
            Arc::new(SystemClock::default()),
            policy,
            EngineLimits::default(),
            Box::new(()),
            None,
        )
        .await
    }

    /// Opens a store by its address: `postgres://…`, `redis://…`, `redis+cluster://…` or a directory. Several processes
    /// may share a PostgreSQL or a Redis. The runtime that this is called on must outlive the Fencepost.
    pub async fn connect(address: &str, policy: Policy) -> Result<Self, Error> {
        clock::check_wall().map_err(Error::Open)?;
        let address = Address::parse(address).map_err(Error::Open)?;
        let nonce = getrandom::u64().map_err(|error| Error::Open(format!("no randomness: {error}")))?;
        let opener = Opener {
            node: format!("library-{nonce:016x}"),
            address: String::new(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            ..Opener::default()
        };
        let store = address.open(&opener).await.map_err(|error| Error::Open(address.not_opened(&error)))?;
        Self::over(store, Arc::new(SystemClock::default()), policy, EngineLimits::default(), Box::new(()), None).await
    }

    /// Serves any store, by any clock. `askers` is the executor that every caller runs on, where there is one that
    /// outlives the Fencepost: replies are then handed to it a batch at a time, and commits to a server are made there.
    pub async fn over(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        policy: Policy,
        limits: EngineLimits,
        observer: Box<dyn Observer>,
        askers: Option<Handle>,
    ) -> Result<Self, Error> {
        let promises = store.promises();
        let policy = policy.fit(&promises).map_err(Error::Open)?;
        // Where a sync blocks, it would hold up an executor that others share; where it is a server's, a change of thread for
        // each commit only costs.
        let (executor, askers) = if promises.shared { (askers, None) } else { (None, askers) };
        let (engine, commit_loop) = Engine::new(store, clock, limits, observer, askers).await.map_err(Error::Engine)?;
        let (ended, end) = oneshot::channel();
        let commit_loop = async move {
            commit_loop.await;
            let _ = ended.send(());
        };
        match executor {
            Some(executor) => drop(executor.spawn(commit_loop)),
            None => drop(
                thread::Builder::new()
                    .name("fencepost-commit".to_owned())
                    .spawn(move || futures::executor::block_on(commit_loop))
                    .map_err(|error| Error::Open(error.to_string()))?,
            ),
        }
        let threads = Arc::new(Threads { end });
        let housekeeping = housekeeping(engine.clone(), Arc::downgrade(&threads));
        thread::Builder::new()
            .name("fencepost-housekeeping".to_owned())
            .spawn(housekeeping)
            .map_err(|error| Error::Open(error.to_string()))?;
        let policy = Arc::new(RwLock::new(Arc::new(policy)));
        Ok(Self {
            engine,
            policy,
            tenant: Tenant::new("local"),
            settle_for: None,
            threads,
            ingest_signals: Arc::default(),
        })
    }

    /// The same Fencepost for another tenant: no key or receipt is shared between tenants.
    pub fn tenant(&self, name: &str) -> Self {
        Self { tenant: Tenant::new(name), ..self.clone() }
    }

    /// The same Fencepost with another patience: how long the outcome of an effect is told to a store that does not answer,
    /// before the caller gets [`Error::Unsealed`]. Else it is the policy's `stores.settle_for`, five minutes.
    pub fn settle_for(&self, settle_for: Duration) -> Self {
        Self { settle_for: Some(settle_for), ..self.clone() }
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience(Some(self.settle_for.unwrap_or_else(|| self.policy().stores.settle_for)))
    }

    /// Starts a claim under a scope.
    pub fn scope(&self, name: &str) -> Effect<'_> {
        Effect::new(self, name)
    }

    /// The history of a key, for someone who asks why it did not happen again.
    pub async fn lookup(
        &self,
        scope: &str,
        key: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Result<Option<Explanation>, Error> {
        let target =
            self.target(scope, key.into_iter().map(|(name, value)| (name.into(), value.into())).collect(), None)?;
        self.engine.explain(target.key).await.map_err(Error::Engine)
    }

    /// Items of partners, by the policy in force; none where the store cannot keep them, and on a store that other processes
    /// share while one of them is of a release that does not know items.
    pub fn ingest(&self) -> Option<Ingest> {
        let rules = IngestRules::of(&self.policy()).filter(|_| self.engine.keeps(kernel::key::Kind::Item))?;
        Some(Ingest::new(self.engine.clone(), rules, self.ingest_signals.clone()))
    }

    /// The same where the store can keep jobs.
    pub fn ingest_jobs(&self) -> Option<Ingest> {
        self.ingest().filter(|_| self.engine.keeps(kernel::key::Kind::Job))
    }

    /// The signals that [`ingest::run`] and [`ingest::jobs::run`] wait for.
    pub fn ingest_signals(&self) -> Arc<IngestSignals> {
        self.ingest_signals.clone()
    }

    /// The engine below, for callers with their own commands.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The scopes and settings in force. A later [`Self::set_policy`] changes nothing for a caller that holds these.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts other scopes and settings into force, for every clone and from the next claim on; or says why the store
    /// cannot carry them, and changes nothing.
    pub fn set_policy(&self, policy: Policy) -> Result<Arc<Policy>, String> {
        let policy = Arc::new(policy.fit(&self.engine.promises())?);
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy.clone();
        Ok(policy)
    }

    /// Finishes the queued commands and closes the store. Other clones keep it open until they are gone.
    pub async fn close(self) {
        let _ = self.engine.flush_sightings().await;
        let Self { engine, threads, .. } = self;
        drop(engine);
        if let Some(Threads { end }) = Arc::into_inner(threads) {
            let _ = end.await;
        }
    }

    fn target(&self, scope: &str, fields: Vec<(String, String)>, seq: Option<u64>) -> Result<Target, Error> {
        let policy = self.policy();
        let scope = policy.scope(scope).map_err(|none| match none {
            NoScope::Unknown => Error::UnknownScope(scope.to_owned()),
            NoScope::Unfit(why) => Error::UnfitScope(format!("{scope} {why}")),
        })?;
        Target::new(self.tenant.clone(), scope.clone(), fields, seq).map_err(|wrong| Error::WrongKey(wrong.to_string()))
    }
}

// Holds only a weak reference between steps, so that the last user's drop ends it. The engine handle is taken
// anew at each step: a handle kept here would keep the commit loop alive for ever.
fn housekeeping(engine: Engine, alive: std::sync::Weak<Threads>) -> impl FnOnce() {
    let engine = engine.downgrade();
    move || {
        loop {
            thread::park_timeout(HOUSEKEEPING_EVERY);
            if alive.strong_count() == 0 {
                return;
            }
            let Some(engine) = engine.upgrade() else { return };
            // A failure here is the store's, which every caller learns of; the next step tries again.
            let _ = futures::executor::block_on(engine.housekeep());
        }
    }
}
