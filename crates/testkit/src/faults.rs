//! A store whose disk can fail, hang or lose its answers while a test watches.
//! Never changes what is written. Called by tests through `Forwarding`.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use fencepost_kernel::{Millis, RowKey};
use fencepost_store::{Error, Memory, Promises, Store, Verdict, WriteSet, contract::Loaded};
use futures::future::BoxFuture;
use tokio::sync::Mutex as Gate;

use crate::{Forwarding, Hooks, until};

/// The faults of a store. A test that holds a gate keeps calls from getting past it.
#[derive(Default)]
pub struct Faults {
    /// Whether other engines may write to the store, too.
    shared: bool,
    /// Every commit from now on finds the store broken.
    pub broken: AtomicBool,
    /// This many more commits are refused.
    pub refusals: AtomicUsize,
    lost_answers: Mutex<BTreeSet<usize>>,
    /// Held, a commit blocks its thread as on a disk that hangs.
    pub disk: Mutex<()>,
    /// Held, loads wait.
    pub loads: Gate<()>,
    /// Held, commits wait before they are applied.
    pub commits: Gate<()>,
    /// Held, lost answers are not noticed.
    pub answers: Gate<()>,
    begun: AtomicUsize,
    peeks: AtomicUsize,
    threads: Mutex<Vec<String>>,
}

impl Faults {
    /// No fault yet, in a store that other engines may write to, too.
    pub fn shared() -> Self {
        Self { shared: true, ..Self::default() }
    }

    /// An empty memory store with these faults.
    pub fn over_memory(self) -> Arc<Forwarding<Self>> {
        self.over(Arc::new(Memory::new()))
    }

    /// How many commits have begun.
    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// Blocks until so many commits have begun.
    #[track_caller]
    pub fn until_begun(&self, commits: usize) {
        until(&format!("commit {commits} begins"), || self.begun() >= commits);
    }

    /// The number of looks for a row without a load.
    pub fn peeks(&self) -> usize {
        self.peeks.load(Ordering::SeqCst)
    }

    /// The names of the threads that committed since this was last asked, one a commit.
    pub fn take_threads(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.threads))
    }

    /// The answer to the next commit gets lost: it is applied all the same.
    pub fn lose_next_answer(&self) {
        self.lose_answers([self.begun() + 1]);
    }

    /// The answers to these commits get lost, counted from the first of all.
    pub fn lose_answers(&self, commits: impl IntoIterator<Item = usize>) {
        lock(&self.lost_answers).extend(commits);
    }
}

impl Hooks for Faults {
    fn promises(&self, inner: &dyn Store) -> Promises {
        Promises { shared: self.shared, ..inner.promises() }
    }

    fn load<'a>(&'a self, inner: &'a dyn Store, keys: &'a [RowKey]) -> BoxFuture<'a, Result<Vec<Loaded>, Error>> {
        Box::pin(async move {
            let _open = self.loads.lock().await;
            inner.load(keys).await
        })
    }

    fn peek(&self, inner: &dyn Store, key: &RowKey) -> Option<Result<Loaded, Error>> {
        self.peeks.fetch_add(1, Ordering::SeqCst);
        inner.peek(key)
    }

    // As on a disk: nothing is in memory.
    fn recall(&self, _: &dyn Store, _: &RowKey) -> Option<Result<Loaded, Error>> {
        None
    }

    fn commit<'a>(
        &'a self,
        inner: &'a dyn Store,
        sets: &'a [WriteSet],
        now: Millis,
    ) -> BoxFuture<'a, Result<Vec<Verdict>, Error>> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        lock(&self.threads).push(thread::current().name().unwrap_or_default().to_owned());
        drop(lock(&self.disk));
        Box::pin(async move {
            if self.broken.load(Ordering::SeqCst) {
                return Err(Error::Broken("sync failed".to_owned()));
            }
            if self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Err(Error::NotApplied("the store is away".to_owned()));
            }
            let _open = self.commits.lock().await;
            let verdicts = inner.commit(sets, now).await?;
            if lock(&self.lost_answers).remove(&number) {
                let _noticed = self.answers.lock().await;
                return Err(Error::Unknown("the answer was lost".to_owned()));
            }
            Ok(verdicts)
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
